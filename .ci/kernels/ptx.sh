#!/usr/bin/env bash
# Device kernels to PTX, for the software driver's CUDA engine.
#   ptx.sh DIR                compiles each family into DIR/HASH.ptx, where HASH is the SHA-256 of the family's committed
#                             SPIR-V: by that the engine finds it (ZE_SOFT_CUDA_MODULES=DIR)
#   ptx.sh --sample DIR       the same of one family of each source: lines of 16 bytes
#   ptx.sh --mutants DIR      the same of the deliberately broken variants that build.sh --mutants DIR has left there
#   ptx.sh --controls DIR     boundaries' kernels without what they rest on (mutant_*), which are to be wrong, and such that
#                             make them use what they fall back on (trial_*), which are to be right, each into a folder
# With PTXAS=PROGRAM each is assembled besides, into DIR/HASH.sm_90.cubin, and refused if registers had to be spilled.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

source=$repo/ccl-ze/kernels
need_packages clang-15 libclc-15
library=/usr/lib/clc/nvptx64--nvidiacl.bc

# Whose kernels wait by themselves for the kernel before; the same ones that demand a size of groups.
begins_early() { # FAMILY
    [[ $1 == mhc || $1 == columns_* ]]
}

# The same language and the same source as build.sh; the target knows no extensions and its library names another vendor.
translate() { # FAMILY FILE [DEFINES]
    local family=$1 name=${1%_l*} text=$2 defines=()
    shift 2
    [[ $family == "$name" ]] || defines=("-DLINE=${family##*_l}")
    (cd "$source" && clang-15 --target=nvptx64-nvidia-cuda -S -cl-std=CL3.0 -Xclang -finclude-default-header -O2 -g0 \
        -ffp-contract=off -Xclang -target-cpu -Xclang sm_80 -Xclang -target-feature -Xclang +ptx70 \
        -Xclang -mlink-builtin-bitcode -Xclang "$library" \
        -Wall -Wextra -Wno-unused-parameter -Wno-linker-warnings -Wno-ignored-pragmas -Werror -fno-ident \
        "${defines[@]}" "$@" -o "$text" "$name.cl")
    # clang 15 makes one instruction of (x >> 63 & mask), the sign spread over all bits but the first, that keeps one bit.
    sed -i -E 's/bfe\.u64\s+(%[a-z0-9]+), (%[a-z0-9]+), 63, 63;/shr.s64 \1, \2, 63; and.b64 \1, \1, 0x7FFFFFFFFFFFFFFF;/' \
        "$text"
    if awk -F'[ ,;]+' '/bfe\./ { if ($4 + $5 > (/64/ ? 64 : 32)) { print; found = 1 } } END { exit !found }' \
        <(sed -E 's/^\s+//; s/\s+/ /g' "$text") >&2; then
        die "$family: bits beyond a word's end"
    fi
    # clang 15 leaves the size of groups out. Where a source demands one, that two of them are to share a multiprocessor; or that
    # none is to, by the registers that each takes.
    if begins_early "$family"; then
        local size='.minnctapersm 2'
        [[ ! ${alone:-} ]] || size='.maxnreg 168'
        awk -v size="$size" \
            '/\.entry /{ entry = 1 } { print } /^\)/ && entry { print ".maxntid 256, 1, 1\n" size; entry = 0 }' \
            "$text" >"$text.sized"
        mv "$text.sized" "$text"
    fi
    # An operation that may be fused with the next, or an approximate one, would have other bits, unless the source says of
    # it that what follows sets it right.
    if grep -nE '\b((add|sub|mul)\.(ftz\.)?f(32|64)|(div|sqrt|rcp)\.(approx|full))' "$text" |
        grep -v '// set right' >&2; then
        die "$family: floating-point operations that aren't rounded one by one"
    fi
}

compile() { # FAMILY SPIRV DIR [DEFINES]
    local family=$1 spirv=$2 folder=$3 hash said text
    shift 3
    hash=$(sha256sum "$spirv" | cut -d' ' -f1)
    # Sources are compiled where they lie.
    folder=$(cd "$folder" && pwd)
    text=$folder/$hash.ptx
    translate "$family" "$text" "$@"
    if begins_early "$family"; then
        # What is assembled. From that architecture on a kernel can begin while the one before ends. clang 15 knows neither,
        # and says what it was told.
        text=$folder/$hash.early
        translate "$family" "$text" -DBEGINS_EARLY "$@"
        sed -i -E 's/^\.version .*/.version 7.8/; s/^\.target .*/.target sm_90/' "$text"
    fi
    if [[ ${PTXAS:-} ]]; then
        said=$("$PTXAS" -v -arch=sm_90 -o "$folder/$hash.sm_90.cubin" "$text" 2>&1) || die "$family: $said"
        # A mutant is to be wrong, not fast.
        if [[ ! ${mutants:-} ]] && grep -E '[1-9][0-9]* bytes spill' <<<"$said" >&2; then
            die "$family: registers are spilled"
        fi
    fi
    rm -f "$folder/$hash.early"
    say "$family: $hash.ptx"
}

compile_all() { # DIR SPIRV...
    local folder=$1 spirv
    shift
    mkdir -p "$folder"
    for spirv; do compile "$(basename "$spirv" .spv)" "$spirv" "$folder"; done
}

case ${1:-} in
--sample)
    sample=()
    for spirv in "$source"/spirv/*.spv; do
        [[ $spirv == *_l@(8|64).spv ]] || sample+=("$spirv")
    done
    compile_all "${2:?--sample wants a folder}" "${sample[@]}"
    ;;
--mutants)
    folder=${2:?--mutants wants a folder}
    mutants=true
    for spirv in "$folder"/*.spv; do
        name=$(basename "$spirv" .spv)
        define=${name#*-}
        compile "${name%%-*}" "$spirv" "$folder" "-DMUTANT_${define^^}"
    done
    ;;
--controls)
    folder=${2:?--controls wants a folder}
    for control in mhc-{TRIAL_IMPATIENT,TRIAL_LATE_SUMS,MUTANT_LEFT_ALONE,MUTANT_UNMARKED,MUTANT_UNASKED} \
        columns_l16-{MUTANT_UNASKED,TRIAL_ALONE,MUTANT_HASTY} push_l16-MUTANT_ASKED_BY_SOME; do
        family=${control%-*} define=${control#*-} alone=
        # What is hasty takes places that another needs only where there are none to spare.
        [[ $define != @(TRIAL_ALONE|MUTANT_HASTY) ]] || alone=true
        mkdir -p "$folder/${control,,}"
        compile "$family" "$source/spirv/$family.spv" "$folder/${control,,}" "-D$define"
    done
    ;;
'' | -*)
    die "usage: ptx.sh DIR | --sample DIR | --mutants DIR | --controls DIR"
    ;;
*)
    compile_all "$1" "$source"/spirv/*.spv
    ;;
esac
