#!/usr/bin/env bash
# instructions.sh: counts the instructions of a steady-state call, submit and wait, outside the kernel, on the software
# device. Fails above the limit, and if an artificial extra cost would not be noticed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/.." && pwd)
# shellcheck source=lib.sh
source "$here/lib.sh"
# shellcheck source=steps.sh
source "$here/steps.sh"

limit=2500
calls=50

need_packages valgrind python3
cd "$repo"
build_shipped
program=${CARGO_TARGET_DIR:-target}/release/steady_calls
scratch_folder

# count RANKS BYTES [EXTRA]: prints the instructions outside the kernel and in it, of one call.
count() {
    local out=$SCRATCH/$1-$2-${3:-0}
    mkdir "$out" || return
    # A rank whose peer is slow must not give it up.
    CCLX_DEVICE=soft CCLX_TIMEOUT_MS=120000 timeout 300 valgrind --tool=callgrind --trace-children=yes \
        --callgrind-out-file="$out/out.%p" --collect-atstart=no --toggle-collect=ccl_steady_calls \
        --dump-after=ccl_steady_calls "$program" "$@" 2>"$out/log" || {
        cat "$out/log" >&2
        return 1
    }
    python3 "$here/instructions.py" "$calls" "$out"/out.*.[0-9]*
}

failed=0
declare -A outside
for case in '2 8' '2 65536'; do
    read -r ranks bytes <<<"$case"
    result=$(count "$ranks" "$bytes")
    read -r instructions kernel <<<"$result"
    outside[$bytes]=$instructions
    say "$ranks ranks, $bytes bytes: $instructions instructions outside the kernel (limit $limit), $kernel in it"
    ((instructions <= limit)) || failed=1
done
result=$(count 2 8 1000)
read -r extra _ <<<"$result"
say "with a loop of 1000 turns in each call: $extra"
((extra >= outside[8] + 1000)) || die "an extra cost of 1000 instructions a call went unnoticed"
((failed == 0)) || die "a call takes more than $limit instructions"
