#!/usr/bin/env bash
# sycl-tests.sh
# Runs SYCL programs that know nothing of our library (tests/sycl/) on the software driver: both releases of Intel's
# runtime of the bed that sycl.sh made, both ways of its using Level Zero, with and without immediate command lists,
# work that is recorded by the runtime and by the driver. A driver that forgets an order must be noticed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
cd "$repo"

for bed in loader sycl opencl; do
    [[ -f .beds/$bed/env ]] || die "no $bed bed: run .ci/beds/$bed.sh first"
done
# shellcheck disable=SC1091
source .beds/loader/env
# shellcheck disable=SC1091
source .beds/sycl/env
build_driver
export BED_DRIVER=${CARGO_TARGET_DIR:-target}/release/libze_soft.so
scratch_folder

# One program of each release from each source: a compiler is started for every pair, as many at once as there are cores.
build() { # NAME MAJOR
    local include=SYCL$2_INCLUDE libraries=SYCL$2_LIB
    c++ -std=c++17 -O1 -Wall -Werror -Wno-deprecated-declarations -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING -DRELEASE="$2" -isystem "${!include}" \
        -isystem "$LOADER_INCLUDE" "tests/sycl/$1.cpp" -o "$SCRATCH/$1-$2" "${!libraries}/libsycl.so.$2" \
        "$LOADER_LIBDIR/libze_loader.so.1" -Wl,--allow-shlib-undefined
    patchelf --set-interpreter "$LOADER_LD_SO" --set-rpath "$LOADER_LIBDIR:${!libraries}" --force-rpath "$SCRATCH/$1-$2"
}
export -f build
export SCRATCH LOADER_INCLUDE LOADER_LIBDIR LOADER_LD_SO
for program in eager graphs processes spirv; do printf '%s 8\n%s 9\n' "$program" "$program"; done |
    xargs -P "$(nproc)" -L 1 bash -euo pipefail -c 'build "$@"' build || die "a program did not build"

runs=0
on() { # RELEASE ADAPTER IMMEDIATE PROGRAM [ARGUMENTS]
    local release=$1 adapter=$2 immediate=$3 program=$4 status=0
    shift 4
    if [[ $program != /* ]]; then
        program=$SCRATCH/$program-8
        [[ $release == 2025.3 ]] || program=${program%8}9
    fi
    (
        cd "$SCRATCH"
        UR_L0_USE_IMMEDIATE_COMMANDLISTS=$immediate "$here/run-on-sycl.sh" "${mode[@]}" "$release" "$adapter" \
            "$program" "$@"
    ) >"$SCRATCH/output" 2>&1 || status=$?
    runs=$((runs + 1))
    ((status == wanted)) || {
        tail -n 20 "$SCRATCH/output" >&2
        die "$program $* on $release $adapter, immediate lists $immediate: status $status, not $wanted"
    }
}

BED_DRIVER=$(realpath "$BED_DRIVER")
mode=()
wanted=0
for release in 2025.3 2026.2; do
    for adapter in v1 v2; do
        for immediate in 1 0; do
            for program in eager graphs processes; do
                on "$release" "$adapter" "$immediate" "$program"
            done
        done
        # The driver's parameters are what the specification wants of them.
        mode=(--mode params)
        on "$release" "$adapter" 1 eager
        on "$release" "$adapter" 1 graphs
        mode=()
    done
done
on 2026.2 v2 1 graphs native
on 2026.2 v2 1 processes native
# Recorded by the driver, only the recording's edges order two queues' work: taken away, the results are wrong.
on 2026.2 v2 1 graphs native reordered two
wanted=1 on 2026.2 v2 1 graphs native dropped two
grep -q 'graphs.cpp:[0-9]*: turn' "$SCRATCH/output" || die 'the program with missing edges fails at something else'
# The newer adapter sets a kernel's arguments one by one where it can't hand them over with the launch.
UR_L0_V2_DISABLE_ZE_LAUNCH_KERNEL_WITH_ARGS=1 on 2026.2 v2 1 eager

# Kernels that nobody registered: the driver's own engine says why not, the one of Intel's CPU runtime executes them.
image=$repo/ze-soft/tests/opencl/kernels.spv
for release in 2025.3 2026.2; do
    for adapter in v1 v2; do
        wanted=3 on "$release" "$adapter" 1 spirv "$image"
        grep -q 'is SPIR-V, which only other engines execute' "$SCRATCH/output" || die 'the refusal gives no reason'
        (
            # shellcheck disable=SC1091
            source .beds/opencl/env
            export ZE_SOFT_ENGINE=opencl ZE_SOFT_OPENCL_CACHE=$repo/.beds/opencl/cache
            on "$release" "$adapter" 1 spirv "$image"
        )
        runs=$((runs + 1))
    done
done

# From Python: queues, memory and events of dpctl.
for adapter in v1 v2; do
    PYTHONHOME=$("$SYCL_PYTHON" -c 'import sys; print(sys.base_prefix)') PYTHONPATH=$SYCL_SITE \
        PYTHONDONTWRITEBYTECODE=1 on 2026.2 "$adapter" 1 "$SYCL_PYTHON" "$repo/tests/sycl/from_python.py"
done
say "SYCL programs: $runs runs, all right"
