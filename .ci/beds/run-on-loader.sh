#!/usr/bin/env bash
# run-on-loader.sh [--mode params|full] BINARY [ARGUMENTS]
# Runs a program on the real Level Zero loader of the bed that loader.sh made, with our software driver under it and
# the loader's validation layer between them.
#   params  parameter validation
#   full    (default) the events checker and the leak checker as well; not for programs that use counter-based events,
#           of which the events checker of loader 1.32 knows nothing
# Fails if the program fails, if the layer found anything in any of its processes, or if it can't be shown that the
# layer was on in at least one. Environment: BED_DRIVER (a driver to use instead of building ours), BED_TIMEOUT
# (seconds, default 300), BED_KEEP (a folder that receives the layer's output), BED_PRELOAD (a library that the program
# needs preloaded).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"

mode=full
if [[ ${1:-} == --mode ]]; then
    mode=${2:?--mode wants params or full}
    shift 2
fi
(($#)) || die "usage: run-on-loader.sh [--mode params|full] BINARY [ARGUMENTS]"
binary=$1
shift
[[ -x $binary ]] || die "$binary is not a program"

[[ -f $repo/.beds/loader/env ]] || die "no loader bed: run .ci/beds/loader.sh first"
# shellcheck disable=SC1091
source "$repo/.beds/loader/env"

driver=${BED_DRIVER:-}
if [[ -z $driver ]]; then
    (cd "$repo" && build_shipped)
    driver=${CARGO_TARGET_DIR:-$repo/target}/release/libze_soft.so
fi
driver=$(realpath -e "$driver") || die "no driver: $driver"

scratch_folder
findings=${BED_KEEP:-$SCRATCH/findings}
mkdir -p "$findings"
rm -f "$findings"/*.{log,stderr}

program=$(bed_copy "$binary" "$LOADER_LD_SO" "$LOADER_LIBDIR")
cc -shared -fPIC -O1 -Wall -Werror -o "$SCRATCH/capture.so" "$here/capture.c"

layer=(ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1)
case $mode in
params) ;;
full) layer+=(ZEL_ENABLE_EVENTS_CHECKER=1 ZEL_ENABLE_BASIC_LEAK_CHECKER=1) ;;
*) die "unknown mode $mode" ;;
esac

status=0
env "${layer[@]}" \
    ZEL_ENABLE_LOADER_LOGGING=1 ZEL_LOADER_LOGGING_LEVEL=trace \
    ZE_ENABLE_ALT_DRIVERS="$driver" CCLX_DEVICE=loader \
    BED_FINDINGS="$findings" LD_PRELOAD="$SCRATCH/capture.so${BED_PRELOAD:+:$BED_PRELOAD}" \
    timeout -k 10 "${BED_TIMEOUT:-300}" "$program" "$@" </dev/null || status=$?

"$here/findings.sh" "$mode" "$findings" || {
    say "run-on-loader: the validation layer ($mode) complains about $(basename "$binary") $*"
    exit 1
}
((status == 0)) || say "run-on-loader: $(basename "$binary") $* ended with status $status"
exit "$status"
