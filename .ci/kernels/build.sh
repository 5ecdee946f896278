#!/usr/bin/env bash
# Device kernels to SPIR-V.
#   build.sh                  compiles ccl-ze/kernels/ccl.cl into ccl-ze/kernels/spirv/ccl.spv, which is committed
#   build.sh --check          shows that the committed bytes come from the committed source
#   build.sh --mutants DIR    compiles each deliberately broken variant (MUTANTS below) into DIR/NAME.spv
# The compilers are those of Debian bookworm, whose version is part of what decides the bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

source=$repo/ccl-ze/kernels
committed=$source/spirv/ccl.spv

# A rule of the protocol broken in each, by a macro of that name in the sources.
MUTANTS=(FLAG_FIRST FROZEN_BASE ONE_SLOT_FEWER TRUNCATE NO_FENCE VECTOR_POLL)

need_packages clang-15 llvm-spirv-15 spirv-tools

# -O2: the translator needs functions inlined and variables in registers. Two of LLVM's habits produce what SPIR-V has
# no word for or forbids: a frozen condition after loop unswitching, and blocks ahead of their dominators after partial
# redundancy elimination. Names of values and debug information would tie the bytes to a machine.
compile() { # OUTPUT [DEFINES]
    local output=$1 scratch=$1.bc
    shift
    (cd "$source" && clang-15 -c -target spir64 -cl-std=CL3.0 -Xclang -finclude-default-header -O2 -g0 \
        -Wall -Wextra -Wno-unused-parameter -Werror -fno-ident -fdiscard-value-names \
        -mllvm -enable-pre=0 -mllvm -freeze-loop-unswitch-cond=false \
        "$@" -emit-llvm -o "$scratch" ccl.cl)
    llvm-spirv-15 --spirv-max-version=1.2 "$scratch" -o "$output"
    rm "$scratch"
    spirv-val --target-env opencl2.1 "$output"
}

scratch_folder
case ${1:-} in
'')
    mkdir -p "$(dirname "$committed")"
    compile "$SCRATCH/ccl.spv"
    mv "$SCRATCH/ccl.spv" "$committed"
    say "$(sha256sum "$committed" | cut -d' ' -f1)  ${committed#"$repo"/}"
    ;;
--check)
    compile "$SCRATCH/ccl.spv"
    # From another folder, at another time: what is left of either would show.
    cp -r "$source" "$SCRATCH/elsewhere"
    source=$SCRATCH/elsewhere
    compile "$SCRATCH/again.spv"
    cmp "$SCRATCH/ccl.spv" "$SCRATCH/again.spv" || die "two builds of the same source differ"
    cmp "$SCRATCH/ccl.spv" "$committed" ||
        die "the committed ccl.spv is not what the source compiles to: run .ci/kernels/build.sh"
    # The control: a build of another source must not pass for it.
    for mutant in "${MUTANTS[@]}"; do
        compile "$SCRATCH/mutant.spv" "-DMUTANT_$mutant"
        ! cmp -s "$SCRATCH/mutant.spv" "$committed" || die "mutant $mutant changes nothing"
    done
    say "ccl.spv is what its source compiles to; ${#MUTANTS[@]} mutants differ"
    ;;
--mutants)
    folder=${2:?--mutants wants a folder}
    mkdir -p "$folder"
    for mutant in "${MUTANTS[@]}"; do
        compile "$SCRATCH/mutant.spv" "-DMUTANT_$mutant"
        mv "$SCRATCH/mutant.spv" "$folder/${mutant,,}.spv"
    done
    ;;
*)
    die "usage: build.sh [--check | --mutants DIR]"
    ;;
esac
