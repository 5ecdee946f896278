#!/usr/bin/env bash
# sycl-queues.sh
# Runs what PyTorch's process group for XPUs does, tests/sycl/xccl.cpp, on our library in oneCCL's place: real SYCL runtimes
# of both releases with both adapters, eager, recorded, and recorded by the driver; in 2 and 4 processes; with a command
# queue in place of an immediate list; with queues that must be refused. Then with bridges that break a rule, which must be
# noticed. Needs the beds of sycl.sh, loader.sh and oneccl.sh (for its header; its library is not used).
# Environment: ROUNDS (default 1): how often.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
cd "$repo"
for bed in loader sycl oneccl; do
    [[ -f .beds/$bed/env ]] || die "no $bed bed: run .ci/beds/$bed.sh first"
    # shellcheck disable=SC1090
    source ".beds/$bed/env"
done

build_shipped
built=${CARGO_TARGET_DIR:-target}/release
scratch_folder
folder=$SCRATCH/library
mkdir "$folder"
cp "$built/libcclx.so" "$folder/"
export BED_DRIVER=$built/libze_soft.so
SYCL8_ROOT=${SYCL8_LIB%/*} SYCL9_ROOT=${SYCL9_LIB%/*} ccl-ffi/sycl/build.sh "$folder"

# The library itself needs no SYCL, no C++ and no loader.
needed=$(readelf -d "$folder/libcclx.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
[[ $needed == 'ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 ' ]] || die "libcclx.so needs: $needed"
if nm -D --undefined-only "$folder/libcclx.so" | grep -E ' (_Z|ze[A-Z])'; then die "libcclx.so needs these"; fi

program() { # SOURCE RELEASE LIBRARY INCLUDE
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Werror -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING -isystem "$4" \
        -isystem "$ONECCL_INCLUDE" -isystem "$LOADER_INCLUDE" -Iccl-ffi/include "tests/sycl/$1.cpp" -o "$SCRATCH/$1-$2" "$3" \
        "$LOADER_LIBDIR/libze_loader.so.1" -Wl,--allow-shlib-undefined -Wl,--no-as-needed "$ONECCL_LIB/libccl.so.2" "-Wl,-rpath-link,${3%/*}" -pthread -ldl
    patchelf --set-interpreter "$LOADER_LD_SO" --set-rpath "$LOADER_LIBDIR:${3%/*}" --force-rpath "$SCRATCH/$1-$2"
}
program xccl 2025.3 "$SYCL8_LIB/libsycl.so.8" "$SYCL8_INCLUDE" &
program xccl 2026.2 "$SYCL9_LIB/libsycl.so.9" "$SYCL9_INCLUDE"
wait $!
program cost 2025.3 "$SYCL8_LIB/libsycl.so.8" "$SYCL8_INCLUDE" &
program cost 2026.2 "$SYCL9_LIB/libsycl.so.9" "$SYCL9_INCLUDE"
wait $!

run() { # RELEASE ADAPTER ARGUMENTS...
    local -x XCCL_NO_HOST_TASKS=1
    [[ "$1 $2" == '2025.3 v1' ]] || unset XCCL_NO_HOST_TASKS
    BED_PRELOAD=${library:-$folder/libcclx.so} .ci/beds/run-on-sycl.sh "$1" "$2" "$SCRATCH/${program:-xccl}-$1" "${@:3}"
}

for ((round = 0; round < ${ROUNDS:-1}; ++round)); do
    for ranks in 2 4; do
        for kind in '2025.3 v1' '2025.3 v2' '2026.2 v1' '2026.2 v2'; do
            say "$kind, $ranks ranks"
            # shellcheck disable=SC2086
            XCCL_REFUSALS=1 CCLX_ON_ERROR=log CCL_LOG_FILE=$SCRATCH/log run $kind $ranks eager
            # shellcheck disable=SC2086
            run $kind $ranks graph $((400 / ranks))
        done
        run 2026.2 v2 $ranks native $((400 / ranks))
    done
    for release in 2025.3 2026.2; do
        UR_L0_USE_IMMEDIATE_COMMANDLISTS=0 run "$release" v1 2 graph 20
    done
done

# Nothing is left behind by calls; what one costs the host beside the runtime's own submissions.
for kind in '2025.3 v1' '2025.3 v2' '2026.2 v1' '2026.2 v2'; do
    # shellcheck disable=SC2086
    program=cost run $kind 10000
    # shellcheck disable=SC2086
    program=cost run $kind
done

# A bridge that breaks a rule: the test must fail, and for that.
broken() { # HEADER MODE WORD KIND...
    local library=$SCRATCH/$1/libcclx.so kind
    mkdir "$SCRATCH/$1"
    cp "$folder/libcclx.so" "$library"
    SYCL8_ROOT=${SYCL8_LIB%/*} SYCL9_ROOT=${SYCL9_LIB%/*} BRIDGE_FLAGS="-DCCLX_TEST_SUBMIT=\"$repo/tests/sycl/$1.hpp\"" ccl-ffi/sycl/build.sh "$SCRATCH/$1"
    for kind in "${@:4}"; do
        # shellcheck disable=SC2086
        if run $kind 2 "$2" >"$SCRATCH/broken" 2>&1; then
            die "a bridge that breaks a rule ($1) passes on $kind"
        fi
        grep -q "$3" "$SCRATCH/broken" || die "a bridge that breaks a rule ($1) fails otherwise: $(cat "$SCRATCH/broken")"
    done
}
broken other_queue eager 'all_reduce: element' '2025.3 v2' '2026.2 v1' '2026.2 v2'
# Adapter v1 has a command queue here, to which nothing can be appended.
broken raw_list graph 'replay.*: element' '2025.3 v2' '2026.2 v2'
say 'SYCL queues: all as computed, and what breaks a rule is noticed'
