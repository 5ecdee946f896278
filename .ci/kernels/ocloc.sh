#!/usr/bin/env bash
# What Intel's graphics compiler makes of the committed SPIR-V, without a GPU.
#   ocloc.sh            compiles it, judges the disassembly (disasm.py), compares the table with the committed one, and
#                       shows that broken kernels and broken options are caught
#   ocloc.sh --all      the same, without the rest being taken for known:
#   ocloc.sh --update   does all, and writes the committed table, ccl-ze/kernels/ocloc.table
# The table names what it was made of: the compiler, the build options, the rules, and each family's SPIR-V by its hash. What
# all of that still holds for would come out the same, so of it only a sample is made again: every family for the first device,
# and each for one of the others; of those that fuse, one form. Of a family that changed, and with another compiler, everything is.
# The exact numbers belong to one version of the compiler. With another the rules hold all the same, and the differences are
# shown but are no failure.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

DEVICES=(bmg-g21 bmg-g31 pvc dg2-g10 lnl-m ptl-h)
# Nine large kernels each, which take the compiler half a minute: judged for one device, and not part of the table.
LARGE_DEVICES=(bmg-g21)
is_large() { [[ $1 == fused_* || $1 == columns_* ]]; }
kernels=$repo/ccl-ze/kernels
committed=$kernels/ocloc.table
# The one place that says what our modules are built with, at run time too.
options=$(<"$kernels/build.options")

need_packages python3 spirv-tools
"$here/../beds/ocloc.sh"
# shellcheck disable=SC1091
source "$repo/.beds/ocloc/env"
scratch_folder

compile() { # SPIRV DEVICE OPTIONS FOLDER
    mkdir -p "$4/binary" "$4/text"
    if ! { "$OCLOC" compile -q -spirv_input -file "$1" -device "$2" -options "$3" -out_dir "$4/binary" -output k &&
        "$OCLOC" disasm -file "$4"/binary/k_*.bin -device "$2" -dump "$4/text"; } >"$4/log" 2>&1; then
        cat "$4/log" >&2
        die "ocloc failed for $2"
    fi
}

# caught NAME WORDS SPIRV DEVICE OPTIONS: the rule that must object to a broken build, by words of its complaint.
caught() {
    compile "$3" "$4" "$5" "$SCRATCH/control"
    ! "$here/disasm.py" "$SCRATCH/control/text" "$4" 1 >/dev/null 2>"$SCRATCH/complaint" || die "control $1: not caught"
    grep -q "$2" "$SCRATCH/complaint" || {
        cat "$SCRATCH/complaint" >&2
        die "control $1: caught for another reason than '$2'"
    }
    rm -rf "$SCRATCH/control"
    say "control $1: caught ($2)"
}

spirv=$kernels/spirv
families=()
declare -A kernels_in
for file in "$spirv"/*.spv; do
    family=$(basename "$file" .spv)
    families+=("$family")
    "$here/trace.py" "$file"
    spirv-dis "$file" | sed -n 's/.*OpEntryPoint Kernel .* "\(.*\)".*/\1/p' >"$SCRATCH/$family.names"
    kernels_in[$family]=$(wc -l <"$SCRATCH/$family.names")
done

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

{
    echo "# What ocloc $OCLOC_VERSION with IGC $IGC_VERSION makes of spirv/. Instructions: all of the kernel, of the"
    echo "# loop over lines, of the spin loop in it (with its failure path). Messages: to uncached and cached memory, atomics."
    echo "# made with $(hash_of "$kernels/build.options" "$here/disasm.py") (options and rules), of"
    for family in "${families[@]}"; do echo "# $family $(hash_of "$spirv/$family.spv")"; done
    "$here/disasm.py" --header
} >"$SCRATCH/table"

# known FAMILY: whether the committed table was made of this.
tools_are_known=
if [[ ${1:-} != --* && $(sed -n '1p;3p' "$committed") == "$(sed -n '1p;3p' "$SCRATCH/table")" ]]; then
    tools_are_known=yes
fi
known() {
    [[ $tools_are_known ]] && grep -qxF "$(grep "^# $1 " "$SCRATCH/table")" "$committed"
}

# committed_rows FAMILY DEVICE
committed_rows() {
    awk -v device="$2" 'NR == FNR { names[$1]; next } $1 == device && $2 in names' "$SCRATCH/$1.names" "$committed"
}

# wanted PLACE FAMILY DEVICE: whether a family, the so many-th, is compiled for a device.
wanted() {
    if is_large "$2"; then
        [[ " ${LARGE_DEVICES[*]} " == *" $3 "* ]] && { [[ $2 == *_l16 ]] || ! known "$2"; }
    else
        [[ $3 == "${DEVICES[0]}" || $3 == "${DEVICES[1 + $1 % (${#DEVICES[@]} - 1)]}" ]] || ! known "$2"
    fi
}

# examine FAMILY DEVICE FOLDER: a family's rows of the table, or a note that there are none.
examine() {
    # In a subshell: what can't be compiled ends that one.
    (compile "$spirv/$1.spv" "$2" "$options" "$3") &&
        "$here/disasm.py" "$3/text" "$2" "${kernels_in[$1]}" >"$3.rows" || touch "$SCRATCH/broken"
}

compiled=0
for device in "${DEVICES[@]}"; do
    for place in "${!families[@]}"; do
        family=${families[$place]}
        if ! wanted "$place" "$family" "$device"; then
            ! is_large "$family" || continue
            committed_rows "$family" "$device" >"$SCRATCH/$device-$family.rows"
            (($(wc -l <"$SCRATCH/$device-$family.rows") == kernels_in[$family])) ||
                die "the committed table has not one row for each kernel of $family on $device"
            continue
        fi
        while (($(jobs -rp | wc -l) >= $(nproc))); do
            wait -n
        done
        examine "$family" "$device" "$SCRATCH/$device-$family" &
        compiled=$((compiled + 1))
    done
done
wait
[[ ! -e $SCRATCH/broken ]] || die "the compiled kernels break a rule"
for device in "${DEVICES[@]}"; do
    for family in "${families[@]}"; do
        is_large "$family" || cat "$SCRATCH/$device-$family.rows" >>"$SCRATCH/table"
    done
done
say "$compiled of $((${#DEVICES[@]} * ${#families[@]})) families and devices compiled"

if [[ ${1:-} == --update ]]; then
    cp "$SCRATCH/table" "$committed"
    say "wrote ${committed#"$repo"/}"
elif ! diff -u "$committed" "$SCRATCH/table" >&2; then
    if [[ $tools_are_known || $(head -n 1 "$committed") == "$(head -n 1 "$SCRATCH/table")" ]]; then
        die "the table differs: look at what changed, then run .ci/kernels/ocloc.sh --update"
    fi
    say "the compiler is another version than the committed table's; its numbers are shown above, all rules hold"
fi

"$here/build.sh" --mutants "$SCRATCH/mutants"
caught 'fence left out of the spin loop' 'a spin loop without its fence' "$SCRATCH/mutants/ring_l16-no_fence.spv" bmg-g21 "$options"
caught 'abort word read through a cache' 'a spin loop loads through a cache' "$SCRATCH/mutants/ring_l16-cached_look.spv" bmg-g21 "$options"
caught 'flag polled as part of a vector' 'no uncached poll' "$SCRATCH/mutants/ring_l16-vector_poll.spv" bmg-g21 "$options"
caught 'weights of boundaries read word by word' 'loads of 16 bytes in loops' "$SCRATCH/mutants/mhc-narrow_weights.spv" bmg-g21 "$options"
caught 'buffers below 4 GiB only' 'through a cache' "$spirv/ring_l16.spv" dg2-g10 ''
caught 'subnormals flushed' 'subnormals are flushed' "$spirv/ring_l16.spv" bmg-g21 "$options -cl-denorms-are-zero"
say "${#DEVICES[@]} devices: no spills but those that disasm.py excepts by name, staging uncached, polls and fences in their loops"
