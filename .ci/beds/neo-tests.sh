#!/usr/bin/env bash
# neo-tests.sh [DEVICE...]
# Runs tests/tests/neo_*.rs on the bed that neo.sh made, on each kind of pretended device (all by default): the host
# path with counter-based events under parameter validation, with regular events under the events and leak checkers as
# well, what makes findings of its own without the layer, and memory in another's place; and, on bmg, what a call costs on
# the host.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
cd "$repo"

(($#)) || set -- bmg bmg-e223 pvc dg2
path=$(built_program ccl-tests test neo_host_path)
cost=$(built_program ccl-tests test neo_host_cost)
graph=$(built_program ccl-tests test neo_graph)
address=$(built_program ccl-tests test neo_same_address)
[[ -n $path && -n $cost && -n $graph && -n $address ]] || die "cargo built no NEO tests"

on_neo() {
    say "--- $*"
    "$here/run-on-neo.sh" "$@"
}

# Each kind's kernels are compiled once.
scratch_folder
export BED_CACHE=$SCRATCH/cache
# These provoke an error on purpose, which the layer would call a finding.
refused=a_module_without_our_kernels_is_refused
harness=(--ignored --test-threads=1)
# This driver knows only descriptors that its own process exported; ccl-ze then takes another way.
export BED_EXPECTED='ERROR \(ZE_RESULT_ERROR_INVALID_ARGUMENT\) in zeMemGetIpcHandleFromFileDescriptorExp\('
for device in "$@"; do
    CCLX_EVENTS=counter on_neo --device "$device" --mode params "$path" "${harness[@]}" --skip "$refused"
    CCLX_EVENTS=regular on_neo --device "$device" --mode full "$path" "${harness[@]}" --skip "$refused"
    CCLX_EVENTS=counter on_neo --device "$device" --mode params "$graph" "${harness[@]}"
    on_neo --device "$device" --mode bare "$path" "${harness[@]}" --exact "$refused"
    # What the driver frees is written over, and not handed out again at once.
    GLIBC_TUNABLES=glibc.malloc.perturb=165:glibc.malloc.tcache_count=0 on_neo --device "$device" --mode bare "$address" \
        "${harness[@]}"
done
# The figures are worth seeing.
on_neo --device bmg --mode bare "$cost" "${harness[@]}" --nocapture
