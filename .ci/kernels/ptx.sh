#!/usr/bin/env bash
# Device kernels to PTX, for the software driver's CUDA engine.
#   ptx.sh DIR                compiles each family into DIR/HASH.ptx, where HASH is the SHA-256 of the family's committed
#                             SPIR-V: by that the engine finds it (ZE_SOFT_CUDA_MODULES=DIR)
#   ptx.sh --mutants DIR      the same of the deliberately broken variants that build.sh --mutants DIR has left there
# With PTXAS=PROGRAM each is assembled besides, into DIR/HASH.sm_90.cubin, and refused if registers had to be spilled.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

source=$repo/ccl-ze/kernels
need_packages clang-15 libclc-15
library=/usr/lib/clc/nvptx64--nvidiacl.bc

# The same language and the same source as build.sh; the target knows no extensions and its library names another vendor.
compile() { # FAMILY SPIRV DIR [DEFINES]
    local family=$1 name=${1%_l*} spirv=$2 folder=$3 defines=() hash said
    shift 3
    [[ $family == "$name" ]] || defines=("-DLINE=${family##*_l}")
    hash=$(sha256sum "$spirv" | cut -d' ' -f1)
    (cd "$source" && clang-15 --target=nvptx64-nvidia-cuda -S -cl-std=CL3.0 -Xclang -finclude-default-header -O2 -g0 \
        -ffp-contract=off -Xclang -target-cpu -Xclang sm_80 -Xclang -target-feature -Xclang +ptx70 \
        -Xclang -mlink-builtin-bitcode -Xclang "$library" \
        -Wall -Wextra -Wno-unused-parameter -Wno-linker-warnings -Wno-ignored-pragmas -Werror -fno-ident \
        "${defines[@]}" "$@" -o "$folder/$hash.ptx" "$name.cl")
    # clang 15 makes one instruction of (x >> 63 & mask), the sign spread over all bits but the first, that keeps one bit.
    sed -i -E 's/bfe\.u64\s+(%[a-z0-9]+), (%[a-z0-9]+), 63, 63;/shr.s64 \1, \2, 63; and.b64 \1, \1, 0x7FFFFFFFFFFFFFFF;/' \
        "$folder/$hash.ptx"
    if awk -F'[ ,;]+' '/bfe\./ { if ($4 + $5 > (/64/ ? 64 : 32)) { print; found = 1 } } END { exit !found }' \
        <(sed -E 's/^\s+//; s/\s+/ /g' "$folder/$hash.ptx") >&2; then
        die "$family: bits beyond a word's end"
    fi
    # clang 15 leaves the size of groups out. Where a source demands one, that two of them are to share a multiprocessor.
    if [[ $family == mhc || $name == columns ]]; then
        awk '/\.entry /{ entry = 1 } { print } /^\)/ && entry { print ".maxntid 256, 1, 1\n.minnctapersm 2"; entry = 0 }' \
            "$folder/$hash.ptx" >"$folder/$hash.sized"
        mv "$folder/$hash.sized" "$folder/$hash.ptx"
    fi
    # An operation that may be fused with the next, or an approximate one, would have other bits, unless the source says of
    # it that what follows sets it right.
    if grep -nE '\b((add|sub|mul)\.(ftz\.)?f(32|64)|(div|sqrt|rcp)\.(approx|full))' "$folder/$hash.ptx" |
        grep -v '// set right' >&2; then
        die "$family: floating-point operations that aren't rounded one by one"
    fi
    if [[ ${PTXAS:-} ]]; then
        said=$("$PTXAS" -v -arch=sm_90 -o "$folder/$hash.sm_90.cubin" "$folder/$hash.ptx" 2>&1) || die "$family: $said"
        # A mutant is to be wrong, not fast.
        if [[ ! ${mutants:-} ]] && grep -E '[1-9][0-9]* bytes spill' <<<"$said" >&2; then
            die "$family: registers are spilled"
        fi
    fi
    say "$family: $hash.ptx"
}

case ${1:-} in
--mutants)
    folder=${2:?--mutants wants a folder}
    mutants=true
    for spirv in "$folder"/*.spv; do
        name=$(basename "$spirv" .spv)
        define=${name#*-}
        compile "${name%%-*}" "$spirv" "$folder" "-DMUTANT_${define^^}"
    done
    ;;
'' | -*)
    die "usage: ptx.sh DIR | --mutants DIR"
    ;;
*)
    mkdir -p "$1"
    for spirv in "$source"/spirv/*.spv; do
        compile "$(basename "$spirv" .spv)" "$spirv" "$1"
    done
    ;;
esac
