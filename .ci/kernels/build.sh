#!/usr/bin/env bash
# Device kernels to SPIR-V.
#   build.sh                  compiles each family into ccl-ze/kernels/spirv/FAMILY.spv, which is committed: FAMILY.cl, and
#                             those that go by lines once for each form, as FAMILY_l8, FAMILY_l16 and FAMILY_l64
#   build.sh --check          shows that the committed bytes come from the committed source, in whatever folder it lies
#   build.sh --mutants DIR    compiles each deliberately broken variant (MUTANTS below) into DIR/FAMILY-NAME.spv
# The compilers are those of Debian bookworm, whose version is part of what decides the bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

source=$repo/ccl-ze/kernels
committed=$source/spirv

# A rule of the protocol broken in each, in a family, by a macro of that name in the sources.
MUTANTS=(ring_l16:{FLAG_FIRST,FROZEN_BASE,ONE_SLOT_FEWER,TRUNCATE,CACHED_LOOK,NO_FENCE,VECTOR_POLL}
    push_l16:{FLAG_FIRST,ONE_GENERATION,WRONG_ORDER} bulk:{BULK_FLAG_FIRST,ONE_GENERATION,WRONG_ORDER}
    channel_l16:NO_CREDIT fused_l16:{OWN_SUMS_FIRST,NO_READY}
    columns_l16:{ONE_GENERATION,UNSENT_BLOCK,UNCOUNTED_FAILURE,AHEAD_OF_CLEARING,NO_CLEARING,LATE_COMPARE} mhc:NARROW_WEIGHTS)

need_packages python3 clang-15 llvm-spirv-15 spirv-tools

# -O2: the translator needs functions inlined and variables in registers. Of what LLVM then produces, SPIR-V has no word
# for a frozen condition after loop unswitching and for vectors of pointers, and forbids blocks ahead of their
# dominators. Where it makes one store of two equal ones, it forgets that they were to pass the caches by. Names of
# values and debug information would tie the bytes to a machine.
compile() { # FAMILY OUTPUT [DEFINES]
    local name=${1%_l*} output=$2 scratch=$2.bc defines=()
    [[ $1 == "$name" ]] || defines=("-DLINE=${1##*_l}")
    shift 2
    (cd "$source" && clang-15 -c -target spir64 -cl-std=CL3.0 -Xclang -finclude-default-header -O2 -g0 \
        -Wall -Wextra -Wno-unused-parameter -Werror -fno-ident -fdiscard-value-names \
        -mllvm -freeze-loop-unswitch-cond=false -fno-vectorize -fno-slp-vectorize \
        -mllvm -sink-common-insts=0 -mllvm -hoist-common-insts=0 \
        "${defines[@]}" "$@" -emit-llvm -o "$scratch" "$name.cl")
    llvm-spirv-15 --spirv-max-version=1.2 "$scratch" -o "$output"
    rm "$scratch"
    "$here/order.py" "$output"
    spirv-val --target-env opencl2.1 "$output"
}

# side_by_side COMMAND...: as many at once as there are processors; `finished` ends the script if one failed.
side_by_side() {
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
    # Not with || behind it, where set -e is off.
    (
        trap '(($? == 0)) || touch "$SCRATCH/failed"' EXIT
        "$@"
    ) &
}

finished() {
    wait
    [[ ! -e $SCRATCH/failed ]] || die "not all could be compiled"
}

# All mutants of this source, compiled once and then kept: sets `mutants` to their folder.
compile_mutants() {
    local mutant family name
    mutants=${CARGO_TARGET_DIR:-$repo/target}/mutants/$(
        cat "$source"/*.{cl,inc,h} "${BASH_SOURCE[0]}" "$here/order.py" <(clang-15 --version; llvm-spirv-15 --version) | sha256sum | cut -c-16
    )
    [[ ! -d $mutants ]] || return 0
    mkdir -p "$mutants.$$" "$SCRATCH/mutants"
    for mutant in "${MUTANTS[@]}"; do
        family=${mutant%%:*} name=${mutant#*:}
        side_by_side compile "$family" "$SCRATCH/mutants/$family-${name,,}.spv" "-DMUTANT_$name"
    done
    finished
    mv "$SCRATCH"/mutants/*.spv "$mutants.$$"
    # Whoever was first has the same.
    mv -T "$mutants.$$" "$mutants" 2>/dev/null || rm -rf "$mutants.$$"
}

families=()
for file in "$source"/*.cl; do
    name=$(basename "$file" .cl)
    if grep -qE '^#include "(widths|fused_streams).inc"|^#define OF_COLUMNS' "$file"; then
        families+=("$name"_l{8,16,64})
    else
        families+=("$name")
    fi
done

scratch_folder
case ${1:-} in
'')
    mkdir -p "$committed"
    for family in "${families[@]}"; do side_by_side compile "$family" "$SCRATCH/$family.spv"; done
    finished
    for family in "${families[@]}"; do
        mv "$SCRATCH/$family.spv" "$committed"
        say "$(sha256sum "$committed/$family.spv" | cut -d' ' -f1)  ${committed#"$repo"/}/$family.spv"
    done
    ;;
--check)
    # From another folder, at another time than the committed ones: what is left of either would show.
    cp -r "$source" "$SCRATCH/elsewhere"
    here_source=$source source=$SCRATCH/elsewhere
    for family in "${families[@]}"; do side_by_side compile "$family" "$SCRATCH/$family.spv"; done
    finished
    source=$here_source
    for family in "${families[@]}"; do
        cmp "$SCRATCH/$family.spv" "$committed/$family.spv" ||
            die "the committed $family.spv is not what the source compiles to: run .ci/kernels/build.sh"
    done
    for file in "$committed"/*.spv; do
        [[ " ${families[*]} " == *" $(basename "$file" .spv) "* ]] || die "$(basename "$file") has no source"
    done
    # The control: a build of another source must not pass for it.
    compile_mutants
    for mutant in "${MUTANTS[@]}"; do
        family=${mutant%%:*} name=${mutant#*:}
        file=$mutants/$family-${name,,}.spv
        [[ -s $file && -s $committed/$family.spv ]] || die "no $mutant to compare"
        ! cmp -s "$file" "$committed/$family.spv" || die "mutant $mutant changes nothing"
    done
    say "${families[*]}: what their sources compile to; ${#MUTANTS[@]} mutants differ"
    ;;
--mutants)
    compile_mutants
    mkdir -p "${2:?--mutants wants a folder}"
    cp "$mutants"/*.spv "$2"
    ;;
*)
    die "usage: build.sh [--check | --mutants DIR]"
    ;;
esac
