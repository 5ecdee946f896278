#!/usr/bin/env bash
# run-on-sycl.sh [--mode bare|params] RELEASE ADAPTER PROGRAM [ARGUMENTS]
# Runs a SYCL program on a runtime of the bed that sycl.sh made, under the real Level Zero loader of the bed that
# loader.sh made, with our software driver as its only driver.
#   RELEASE   2025.3 (libsycl.so.8) or 2026.2 (libsycl.so.9)
#   ADAPTER   v1 or v2: the runtime's older or newer way of using Level Zero
#   bare      (default) no validation layer
#   params    parameter validation; fails if the layer found anything, or if it can't be shown that it was on
# A program that is already set up for the bed (its interpreter is the bed's) is run where it lies, any other as a copy.
# The runtime's own variables (UR_L0_USE_IMMEDIATE_COMMANDLISTS, SYCL_GRAPH_FORCE_NATIVE_RECORDING...) and the driver's
# (ZE_SOFT_*) are the caller's to set. Environment: BED_DRIVER (a driver to use instead of building ours), BED_TIMEOUT
# (seconds, default 120), BED_PRELOAD (a library that the program needs preloaded), BED_LIBRARIES (a folder of
# libraries that the driver needs), BED_KEEP (a folder that receives the layer's output),
# BED_TOOL (a program, with arguments, that runs the program: not one that is linked with the C library).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
# shellcheck source=layer.sh
source "$here/layer.sh"

mode=bare
if [[ ${1:-} == --mode ]]; then
    mode=${2:?--mode wants bare or params}
    shift 2
fi
(($# >= 3)) || die "usage: run-on-sycl.sh [--mode bare|params] RELEASE ADAPTER PROGRAM [ARGUMENTS]"
release=$1
adapter=$2
binary=$3
shift 3
[[ -x $binary ]] || die "$binary is not a program"

for bed in loader sycl; do
    [[ -f $repo/.beds/$bed/env ]] || die "no $bed bed: run .ci/beds/$bed.sh first"
    # shellcheck disable=SC1090
    source "$repo/.beds/$bed/env"
done
case $release in
2025.3) libraries=$SYCL8_LIB ;;
2026.2) libraries=$SYCL9_LIB ;;
*) die "unknown release $release: 2025.3 or 2026.2" ;;
esac
case $adapter in
v1) second=0 ;;
v2) second=1 ;;
*) die "unknown adapter $adapter: v1 or v2" ;;
esac

[[ $mode != full ]] || die "unknown mode $mode"
scratch_folder
find_driver
validate "$mode"
program=$binary
[[ $(patchelf --print-interpreter "$binary") == "$LOADER_LD_SO" ]] ||
    program=$(bed_copy "$binary" "$LOADER_LD_SO" "$LOADER_LIBDIR:$libraries")

read -r -a tool <<<"${BED_TOOL:-}"
# The libraries' path is the program's alone: the system's own programs can't run with the bed's C library.
status=0
timeout -k 10 "${BED_TIMEOUT:-120}" env ONEAPI_DEVICE_SELECTOR=level_zero:gpu SYCL_UR_USE_LEVEL_ZERO_V2="$second" \
    ZE_ENABLE_ALT_DRIVERS="$driver" CCLX_DEVICE="${CCLX_DEVICE:-loader}" "${layer[@]}" \
    LD_LIBRARY_PATH="$LOADER_LIBDIR:$libraries${BED_LIBRARIES:+:$BED_LIBRARIES}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ${preload:+LD_PRELOAD="$preload"} \
    "${tool[@]}" "$program" "$@" </dev/null || status=$?
judge "$mode" "$status" "$(basename "$binary") $* on $release $adapter"
