#!/usr/bin/env bash
# C and C++ programs that are built with oneCCL's headers and linked with oneCCL's library: their assumptions about layout
# hold; one binary gives the same results with oneCCL's library for CPUs and with ours in its place, by LD_PRELOAD, by a folder
# that comes first, by the audit library and as oneCCL's plugin. What ours has beyond that is tried on ours alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
# shellcheck disable=SC1091
source "$repo/.beds/oneccl/env"
scratch_folder

cd "$repo"
build_shipped
ours=${CARGO_TARGET_DIR:-$repo/target}/release/libcclx.so
witness=${CARGO_TARGET_DIR:-$repo/target}/release/libcclx_witness.so
mkdir "$SCRATCH/first"
ln -s "$ours" "$SCRATCH/first/libccl.so.2"

flags=(-D_GNU_SOURCE -DWITH_HEADERS -O1 -Wall -Wextra -Werror -isystem "$ONECCL_INCLUDE")
c=(cc -std=c11 -x c -isystem "$ONECCL_C_SHIM" "${flags[@]}")
cpp=(c++ -std=c++17 -x c++ "${flags[@]}")
# All its symbols are weak: a linker that leaves out what seems unused would leave it out.
link=(-x none -Wl,--no-as-needed "$ONECCL_LIB/libccl.so.2" "-Wl,--enable-new-dtags,-rpath,$ONECCL_LIB")
for language in c cpp; do
    declare -n compile=$language
    "${compile[@]}" tests/c/layout.c -o "$SCRATCH/layout-$language"
    "$SCRATCH/layout-$language"
    "${compile[@]}" tests/c/client.c "${link[@]}" -o "$SCRATCH/client-$language"
done

# A program that looks where it was told at first, whatever the environment says: only the audit library changes that.
"${c[@]}" tests/c/client.c -x none -Wl,--no-as-needed "$ONECCL_LIB/libccl.so.2" \
    "-Wl,--disable-new-dtags,-rpath,$ONECCL_LIB" -o "$SCRATCH/client-rpath"

# run NAME PROGRAM RANKS VARIABLES ARGUMENTS: all ranks; their results are NAME.RANK.
run() {
    local name=$1 program=$2 ranks=$3 rank pids=() status=0 variables arguments
    read -ra variables <<<"$4"
    read -ra arguments <<<"${5:-}"
    for ((rank = 0; rank < ranks; rank++)); do
        env "${variables[@]}" timeout 180 "$program" "$rank" "$ranks" "$SCRATCH/$name.id" "$SCRATCH/$name.$rank" \
            "${arguments[@]}" 2>"$SCRATCH/$name.$rank.err" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
    if ((status != 0)); then
        tail -n 20 "$SCRATCH/$name".*.err >&2
        die "$name: status $status"
    fi
}

on_cpus="CCL_PLUGIN=ONECCL_LEGACY_CPU CCL_WORKER_OFFLOAD=0 CCL_ATL_TRANSPORT=ofi FI_PROVIDER=tcp CCL_ATL_SHM=1 \
CCL_PROCESS_LAUNCHER=none CCL_LOG_LEVEL=error"
run real "$SCRATCH/client-c" 2 "$on_cpus"
run preload "$SCRATCH/client-c" 2 "LD_PRELOAD=$ours CCLX_DEVICE=soft"
run folder "$SCRATCH/client-cpp" 2 "LD_LIBRARY_PATH=$SCRATCH/first CCLX_DEVICE=soft"
run plugin "$SCRATCH/client-c" 2 "CCL_PLUGIN=$ours CCLX_DEVICE=soft"
run audit "$SCRATCH/client-rpath" 2 "LD_AUDIT=${ours%/*}/libcclx_audit.so CCLX_DEVICE=soft"
for rank in 0 1; do
    for name in preload folder plugin audit; do
        diff "$SCRATCH/real.$rank" "$SCRATCH/$name.$rank" >&2 || die "$name: rank $rank has other results than oneCCL"
    done
done
lines=$(wc -l <"$SCRATCH/real.0")
((lines > 1000)) || die "only $lines cases were compared"
say "$lines cases on 2 ranks: oneCCL's results and ours are the same"

# The witness between the program and oneCCL's library: it changes no result, compares every call, and finds none wrong.
run witnessed "$SCRATCH/client-c" 2 "$on_cpus LD_PRELOAD=$witness CCLX_WITNESS=$ONECCL_LIB/libccl.so.2 \
CCLX_WITNESS_REPORT=$SCRATCH/witness"
for rank in 0 1; do
    diff "$SCRATCH/real.$rank" "$SCRATCH/witnessed.$rank" >&2 || die "witnessed: rank $rank has other results than oneCCL"
done
compared=$(jq -s '[.[] | select(.rank == 0).tally.compared] | add' "$SCRATCH/witness")
jq -s -e 'length == 2 and all(.[].tally; .convicted == 0 and .gave_up == null)' "$SCRATCH/witness" >/dev/null \
    || die "the witness says: $(cat "$SCRATCH/witness")"
((compared > 1000)) || die "the witness compared only $compared calls: $(cat "$SCRATCH/witness")"
say "the witness cleared oneCCL's library of $compared calls"

run all "$SCRATCH/client-c" 3 "LD_PRELOAD=$ours CCLX_DEVICE=soft" all
run all-cpp "$SCRATCH/client-cpp" 3 "LD_PRELOAD=$ours CCLX_DEVICE=soft" all

# `ccl run` tells which library was mapped and called by each route, with oneCCL's own library installed.
told() { # NAME OPTIONS OTHERS BY PROGRAM VARIABLES: whether oneCCL's own is mapped too, and how ours was reached
    local name=$1 others=$3 by=$4 rank options variables pids=()
    read -ra options <<<"$2"
    read -ra variables <<<"$6"
    for rank in 0 1; do
        env "${variables[@]}" CCLX_LIBRARY="$ours" timeout 180 "${ours%/*}/ccl" run "${options[@]}" \
            --json "$SCRATCH/told.$rank" -- "$5" "$rank" 2 "$SCRATCH/$name.run-id" "$SCRATCH/$name.run.$rank" \
            2>"$SCRATCH/told.$rank.err" &
        pids+=($!)
    done
    for rank in 0 1; do
        wait "${pids[$rank]}" || { cat "$SCRATCH/told.$rank.err" >&2; die "ccl run ${options[*]}: status $?"; }
        diff "$SCRATCH/real.$rank" "$SCRATCH/$name.run.$rank" >&2 || die "ccl run ${options[*]}: other results than oneCCL"
        jq -e --arg by "$by" --argjson others "$others" '
            [.processes[] | select(.ours)] | length == 1 and .[0].others == $others and (.[0].called.route | startswith($by))
            and ($by == "a witness of" or (.[0].communicators | length > 0))' "$SCRATCH/told.$rank" >/dev/null ||
            { cat "$SCRATCH/told.$rank" "$SCRATCH/told.$rank.err" >&2; die "ccl run ${options[*]} tells otherwise"; }
    done
}
told preload '--route preload' false LD_PRELOAD "$SCRATCH/client-c" CCLX_DEVICE=soft
told audit '--route audit' false LD_AUDIT "$SCRATCH/client-rpath" CCLX_DEVICE=soft
told plugin '--route plugin' true "oneCCL's plugin interface" "$SCRATCH/client-c" CCLX_DEVICE=soft
told witness '--route audit --witness' true 'a witness of' "$SCRATCH/client-rpath" \
    "$on_cpus CCLX_WITNESS=$ONECCL_LIB/libccl.so.2 CCLX_WITNESS_SHARE=10"
say "ccl run tells what was mapped: by LD_PRELOAD, by LD_AUDIT, as a plugin, and with the witness"

# Python programs open the library by ctypes: by its SONAME, by name, by path; local, global, deeply bound. The last two words
# are what names and paths get.
command -v python3 >/dev/null || need_packages python3
mkdir "$SCRATCH/installed"
ln -s "$ONECCL_LIB/libccl.so.2" "$SCRATCH/installed/libccl.so.2"
ln -s "$ONECCL_LIB/libccl.so.2" "$SCRATCH/installed/libccl.so"
export LD_LIBRARY_PATH=$SCRATCH/installed
timeout 60 python3 tests/python/binding.py "$ONECCL_LIB/libccl.so.2" real real
while read -r route names paths; do
    CCLX_DEVICE=soft CCLX_LIBRARY=$ours timeout 60 "${ours%/*}/ccl" run --route "$route" -- \
        python3 tests/python/binding.py "$ONECCL_LIB/libccl.so.2" "$names" "$paths" 2>"$SCRATCH/binding.err" </dev/null ||
        { cat "$SCRATCH/binding.err" >&2; die "ctypes by $route gets another library than expected"; }
done <<<'preload ours real
audit ours ours
folder ours real'
unset LD_LIBRARY_PATH
say "ctypes gets the library that docs/preload.md says, by each name, mode and route"

cc -std=gnu11 -O1 -Wall -Wextra -Werror tests/c/lookup.c "${link[@]}" -ldl -o "$SCRATCH/lookup"
CCL_PLUGIN=$ours CCLX_DEVICE=soft timeout 60 "$SCRATCH/lookup" "$ours" 2>"$SCRATCH/lookup.log" || die "$(<"$SCRATCH/lookup.log")"
! grep -q CCL_PLUGIN "$SCRATCH/lookup.log" || die "the plugin says that CCL_PLUGIN has no effect"
say "a communicator that was made through oneCCL's own library is found in its plugin"

names() { nm -D --defined-only "$1" | awk '$3 ~ /^oneccl/ { print $3 }' | sort; }
missing=$(comm -23 <(names "$ONECCL_LIB/libccl.so.2") <(names "$ours"))
[[ -z $missing ]] || die "oneCCL exports what ours does not: $missing"
say "all $(names "$ONECCL_LIB/libccl.so.2" | wc -l) names of oneCCL's library are ours too"
