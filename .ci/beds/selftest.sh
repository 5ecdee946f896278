#!/usr/bin/env bash
# selftest.sh: shows that run-on-loader.sh passes a program without fault and catches each fault that provoke.c offers,
# in the mode that is there to catch it; and that a graph is recorded and replayed through the loader, and a plain program gets
# what the driver has, and a refusal by name of what it has not.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck disable=SC1091
source "$repo/.beds/loader/env"

scratch_folder
# The loader needs a newer C library than the compiler's: its symbols are resolved in the bed, not here.
for program in provoke graphs program; do
    cc -O1 -Wall -Werror -I"$LOADER_INCLUDE" "$here/$program.c" "$LOADER_LIBDIR/libze_loader.so.1" \
        -Wl,--allow-shlib-undefined -o "$SCRATCH/$program"
done

wrong=0
judge() { # EXPECTATION MODE FAULT [PROGRAM]: EXPECTATION is "clean" or words that the report must contain
    local expected=$1 mode=$2 fault=$3 program=$SCRATCH/${4:-provoke} status=0
    BED_TIMEOUT=30 "$here/run-on-loader.sh" --mode "$mode" "$program" "$fault" >"$SCRATCH/report" 2>&1 || status=$?
    if [[ $expected == clean ]]; then
        ((status == 0)) && grep -q 'no finding in' "$SCRATCH/report" && return 0
    else
        ((status != 0)) && grep -q "^finding, times .*$expected" "$SCRATCH/report" && return 0
    fi
    wrong=$((wrong + 1))
    say "selftest: fault $fault in mode $mode: expected '$expected', status $status:"
    sed 's/^/  /' "$SCRATCH/report" >&2
}

judge clean params none
judge clean full none
judge 'ERROR (ZE_RESULT_ERROR_INVALID_ARGUMENT) in zeContextCreate' params stype
judge 'ERROR (ZE_RESULT_ERROR_INVALID_NULL_HANDLE) in zeCommandListAppendSignalEvent' params null-event
judge 'same ze_event_handle_t for signal' full double-signal
judge 'zeEventDestroy = 0 *---> LEAK = 1' full leaked-event
judge 'zeEventPoolDestroy = 0 *---> LEAK = 1' full leaked-pool
judge 'LEAK = 1' full leaked-memory
judge 'LEAK = 1' full in-child:leaked-pool
judge clean full in-child:none
judge 'cut off' params killed
judge 'no process used the loader' params no-call
judge clean params none graphs
# 0x78000025: not while a recording is under way.
judge 'ERROR (2013265957) in zeEventHostSynchronize' params answers graphs
judge clean full none program
judge 'ERROR (ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) in zeImageCreate' params refused program
grep -q 'refusals: right' "$SCRATCH/report" || die "a plain program gets other answers than it should: $(<"$SCRATCH/report")"

((wrong == 0)) || die "$wrong of the bed's own checks failed"
say "selftest: the bed passes a clean program and catches every provoked fault"
