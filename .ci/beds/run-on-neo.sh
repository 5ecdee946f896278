#!/usr/bin/env bash
# run-on-neo.sh [--device bmg|bmg-e223|pvc|dg2] [--mode bare|params|full] BINARY [ARGUMENTS]
# Runs a program on Intel's GPU driver of the bed that neo.sh made. The driver pretends four devices of the given kind:
# every call on the host is the real one, the graphics compiler compiles, nothing executes. BED_DEVICE tells the
# program the kind.
#   bare    no validation layer: for times
#   params  (default) parameter validation
#   full    the events checker and the leak checker as well; not for programs that use counter-based events, of which
#           the events checker of loader 1.32 knows nothing
# Fails if the program fails, if the layer found anything in any of its processes, or if it can't be shown that the
# layer was on in at least one. Environment: BED_TIMEOUT (seconds, default 300), BED_KEEP (a folder that receives the
# layer's output), BED_EXPECTED (see findings.sh).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

device=bmg
mode=params
while [[ ${1:-} == --* ]]; do
    case $1 in
    --device) device=${2:?--device wants a kind} ;;
    --mode) mode=${2:?--mode wants bare, params or full} ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
(($#)) || die "usage: run-on-neo.sh [--device KIND] [--mode MODE] BINARY [ARGUMENTS]"
binary=$1
shift
[[ -x $binary ]] || die "$binary is not a program"

# Slices x sub-slices x execution units of each, as the largest product of the kind has them.
case $device in
bmg) pretended=(ProductFamilyOverride=bmg ForceDeviceId=0xe20b HardwareInfoOverride=5x4x8) ;;
bmg-e223) pretended=(ProductFamilyOverride=bmg ForceDeviceId=0xe223 HardwareInfoOverride=8x4x8) ;;
pvc) pretended=(ProductFamilyOverride=pvc ForceDeviceId=0x0bd5 HardwareInfoOverride=8x16x8 CreateMultipleSubDevices=2) ;;
dg2) pretended=(ProductFamilyOverride=dg2 ForceDeviceId=0x56a0 HardwareInfoOverride=8x4x16) ;;
*) die "unknown device $device" ;;
esac

[[ -f $repo/.beds/neo/env ]] || die "no NEO bed: run .ci/beds/neo.sh first"
# shellcheck disable=SC1091
source "$repo/.beds/neo/env"

scratch_folder
findings=${BED_KEEP:-$SCRATCH/findings}
mkdir -p "$findings"
rm -f "$findings"/*.{log,stderr}

program=$(bed_copy "$binary" "$NEO_LD_SO" "$NEO_LIBDIR")

layer=(ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1)
layer+=(ZEL_ENABLE_LOADER_LOGGING=1 ZEL_LOADER_LOGGING_LEVEL=trace)
layer+=(BED_FINDINGS="$findings" LD_PRELOAD="$SCRATCH/capture.so")
case $mode in
bare) layer=() ;;
params) ;;
full) layer+=(ZEL_ENABLE_EVENTS_CHECKER=1 ZEL_ENABLE_BASIC_LEAK_CHECKER=1) ;;
*) die "unknown mode $mode" ;;
esac
[[ $mode == bare ]] || cc -shared -fPIC -O1 -Wall -Werror -o "$SCRATCH/capture.so" "$here/capture.c"

# Command stream receiver 5 accepts everything and does nothing. The cache of compiled kernels is this run's own: its
# first process compiles.
mkdir "$SCRATCH/cache"
status=0
env NEOReadDebugKeys=1 UseAubStream=0 UseBindlessMode=0 SetCommandStreamReceiver=5 "${pretended[@]}" \
    CreateMultipleRootDevices=4 NEO_CACHE_PERSISTENT=1 NEO_CACHE_DIR="$SCRATCH/cache" \
    ZE_ENABLE_ALT_DRIVERS="$NEO_DRIVER" CCLX_DEVICE=intel BED_DEVICE="$device" "${layer[@]}" \
    timeout -k 10 "${BED_TIMEOUT:-300}" "$program" "$@" </dev/null || status=$?

if [[ $mode != bare ]]; then
    "$here/findings.sh" "$mode" "$findings" || {
        say "run-on-neo: the validation layer ($mode) complains about $(basename "$binary") $* on $device"
        exit 1
    }
fi
((status == 0)) || say "run-on-neo: $(basename "$binary") $* on $device ended with status $status"
exit "$status"
