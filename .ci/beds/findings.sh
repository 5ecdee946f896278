#!/usr/bin/env bash
# findings.sh params|full FOLDER
# Judges what the validation layer wrote into FOLDER (see capture.c). Prints what it found and exits 1 if that is
# anything, or if the files don't show that the layer was on. Environment: BED_EXPECTED, a regular expression of
# findings that are none, for a driver that is known to fail a call.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
mode=$1
folder=$2

# Every call that doesn't return success leaves a line "ERROR (CODE) in FUNCTION(...)". Some of them are answers: an
# event isn't signalled yet, a driver has no extension function of a name, and yes and no to a question about graphs (by
# the specification's numbers, and by those of Intel's driver).
harmless='ERROR \(ZE_RESULT_NOT_READY\)'
harmless+='|ERROR \(ZE_RESULT_ERROR_INVALID_ARGUMENT\) in zeDriverGetExtensionFunctionAddress\('
harmless+='|ERROR \((201326595[45]|214741811[23])\) in ze(CommandListIsGraphCaptureEnabled|GraphIsEmpty)Ext\('

harmless+=${BED_EXPECTED:+|$BED_EXPECTED}

processes=0
calls=0

judge() {
    local log text pid
    shopt -s nullglob
    for log in "$folder"/*.log; do
        pid=$(basename "$log" .log)
        text=$folder/$pid.stderr
        processes=$((processes + 1))
        calls=$((calls + $(grep -cE '\[trace\] z[a-z]+[A-Z]' "$log" || true)))
        if ! grep -q 'bed: ended in order' "$text"; then
            echo "a process was cut off: its log may lack the end"
        elif ! grep -q 'Validation Layer Enabled' "$log"; then
            echo "a process used the loader without the validation layer"
        fi
        # The table comes when the process ends. Without it, leaks would go unseen.
        if [[ $mode == full ]] && ! grep -q 'Check balance of create/destroy calls' "$text"; then
            echo "a process ended without the leak checker's table"
        fi
        grep -E 'ERROR \(|\[(warning|error|critical)\]' "$log" | grep -vE "$harmless" | sed 's/.*\[thread-id: [0-9]*\] //' ||
            true
    done
    for text in "$folder"/*.stderr; do
        grep -E '^Warning|LEAK =' "$text" || true
    done
    ((processes > 0)) || echo "no process used the loader"
    ((calls > 0)) || echo "no call went through the loader's layers"
}

scratch_folder
judge >"$SCRATCH/findings"
if [[ -s $SCRATCH/findings ]]; then
    # The same finding with other addresses is one finding.
    sed -E 's/0x[0-9a-f]+/0x../g' "$SCRATCH/findings" | sort | uniq -c | sort -rn | sed -n '1,40s/^/finding, times /p' >&2
    exit 1
fi
say "validation layer ($mode): no finding in $calls calls of $processes processes"
