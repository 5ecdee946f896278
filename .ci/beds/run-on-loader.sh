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
# shellcheck source=layer.sh
source "$here/layer.sh"

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

[[ $mode != bare ]] || die "unknown mode $mode"
scratch_folder
find_driver
validate "$mode"
program=$(bed_copy "$binary" "$LOADER_LD_SO" "$LOADER_LIBDIR")

status=0
env "${layer[@]}" ZE_ENABLE_ALT_DRIVERS="$driver" CCLX_DEVICE=loader LD_PRELOAD="$preload" \
    timeout -k 10 "${BED_TIMEOUT:-300}" "$program" "$@" </dev/null || status=$?
judge "$mode" "$status" "$(basename "$binary") $*"
