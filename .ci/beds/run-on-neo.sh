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
# layer's output), BED_PRELOAD (a library that the program needs preloaded), BED_CACHE (a folder for compiled kernels, of one run
# otherwise), BED_EXPECTED (see findings.sh).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=layer.sh
source "$here/layer.sh"

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
validate "$mode"
program=$(bed_copy "$binary" "$NEO_LD_SO" "$NEO_LIBDIR")

# Command stream receiver 5 accepts everything and does nothing. Of a run's processes the first compiles the kernels.
cache=${BED_CACHE:-$SCRATCH/cache}
mkdir -p "$cache"
status=0
env NEOReadDebugKeys=1 UseAubStream=0 UseBindlessMode=0 SetCommandStreamReceiver=5 "${pretended[@]}" \
    CreateMultipleRootDevices=4 NEO_CACHE_PERSISTENT=1 NEO_CACHE_DIR="$cache" \
    ZE_ENABLE_ALT_DRIVERS="$NEO_DRIVER" CCLX_DEVICE=intel BED_DEVICE="$device" "${layer[@]}" \
    ${preload:+LD_PRELOAD="$preload"} timeout -k 10 "${BED_TIMEOUT:-300}" "$program" "$@" </dev/null || status=$?
judge "$mode" "$status" "$(basename "$binary") $* on $device"
