#!/usr/bin/env bash
# opencl-tests.sh [--modules]
# Executes SPIR-V on the processor, with the runtime of the bed that opencl.sh made: the tests of the software driver's
# engine for it, then the ring as users get it between processes (tests/tests/spirv_*.rs), through the loader of the
# bed that loader.sh made and its validation layer; kernels with a rule of the protocol broken must be noticed. The kernels are
# compiled for the processor first and kept beside the bed; --modules does no more than that.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
cd "$repo"

timed() { # WHAT COMMAND...
    local what=$1 start=$SECONDS
    shift
    say "--- $what"
    "$@"
    say "$what: $((SECONDS - start)) s"
}

[[ -f .beds/opencl/env ]] || die "no OpenCL bed: run .ci/beds/opencl.sh first"
scratch_folder
program() { # PACKAGE NAME; prints its path
    local built
    built=$(built_program "$1" test "$2")
    [[ -n $built ]] || die "cargo built no $2"
    printf %s "$built"
}
mutants=$(program ccl-tests spirv_mutants)
export BED_MUTANTS=$SCRATCH/mutants
.ci/kernels/build.sh --mutants "$BED_MUTANTS"

# shellcheck disable=SC1091
source .beds/opencl/env
export ZE_SOFT_ENGINE=opencl ZE_SOFT_OPENCL_CACHE=$repo/.beds/opencl/cache
harness=(--ignored --test-threads=1)

# Ranks of these tests spin for each other, many to a processor.
cc -O1 -Wall -Wextra -Werror -o "$SCRATCH/metronome" "$here/metronome.c" -pthread
metronome=("$SCRATCH/metronome" 400)

# With the driver that is linked in. These tests' children, which run one test of all, write where they do: .ci/run is
# not to count those results.
linked() { # PROGRAM [ARGUMENTS]
    "${metronome[@]}" env LD_PRELOAD="$OPENCL_PRELOAD" CCLX_DEVICE=soft timeout -k 10 600 "$@" </dev/null |
        sed -E '/[1-9][0-9]* filtered out/s/^test result:/result of a child:/'
}

on_loader() { # PROGRAM [ARGUMENTS]
    BED_DRIVER=${CARGO_TARGET_DIR:-target}/release/libze_soft.so BED_PRELOAD=$OPENCL_PRELOAD BED_TIMEOUT=600 \
        "${metronome[@]}" "$here/run-on-loader.sh" --mode params "$@"
}

# The runtime compiles a family for a quarter of a minute and more, and each process would do so anew.
compile_all() { # NAME...: a line form's bytes, or a mutant
    local image pid pids=()
    for image in "$@"; do
        case $image in
        *-*) set -- BED_IMAGE="$image" CCLX_GRANULE=16 ;;
        *) set -- CCLX_GRANULE="$image" ;;
        esac
        env "$@" LD_PRELOAD="$OPENCL_PRELOAD" CCLX_DEVICE=soft timeout -k 10 660 \
            "$mutants" --ignored --exact a_module_is_compiled </dev/null >"$SCRATCH/compiled-$image" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || {
            cat "$SCRATCH"/compiled-* >&2
            die "a module was not compiled"
        }
    done
}

fill_cache() {
    compile_all 8 16 64
    # All but the mutated family is there now.
    compile_all ring_l16-{flag_first,frozen_base,one_slot_fewer,truncate} \
        push_l16-{flag_first,one_generation,wrong_order} bulk-{bulk_flag_first,one_generation,wrong_order} \
        channel_l16-no_credit
}

timed 'compiling modules' fill_cache
[[ ${1:-} != --modules ]] || exit 0

build_driver
kernels=$(program ze-soft opencl_kernels)
resident=$(program ze-soft opencl_resident)
ring=$(program ccl-tests spirv_ring)
push=$(program ccl-tests spirv_push)
collectives=$(program ccl-tests spirv_collectives)
failure=$(program ccl-tests spirv_failure)
graph=$(program ccl-tests spirv_graph)
boundaries=$(program ccl-tests spirv_mhc)
columns=$(program ccl-tests spirv_columns)
timed 'kernels of all kinds' linked "$kernels" "${harness[@]}"
timed 'resident kernels' linked "$resident" "${harness[@]}"
timed 'ring' on_loader "$ring" "${harness[@]}"
timed 'graphs' linked "$graph" "${harness[@]}"
timed 'boundaries' linked "$boundaries" "${harness[@]}"
timed 'columns' linked "$columns" "${harness[@]}"
timed 'push' on_loader "$push" "${harness[@]}"
timed 'collectives' linked "$collectives" "${harness[@]}"
timed 'failures' on_loader "$failure" "${harness[@]}"
timed 'mutants' on_loader "$mutants" "${harness[@]}"
