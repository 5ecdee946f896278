#!/usr/bin/env bash
# neo.sh [--refresh]
# Unpacks Intel's GPU driver (NEO), the graphics compiler behind it and the Level Zero loader with its layers from
# Debian's unstable suite into .beds/neo/. The system's own packages stay as they are. Writes
#   .beds/neo/env       to be sourced: NEO_ROOT, NEO_LIBDIR, NEO_LD_SO, NEO_DRIVER, NEO_VERSION, NEO_IGC_VERSION,
#                       NEO_LOADER_VERSION
#   .beds/neo/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=sid.sh
source "$here/sid.sh"

bed=$repo/.beds/neo
# The suite rolls: what is older than this was never tried.
oldest_driver=26.27
oldest_loader=1.32

report() {
    say "NEO bed: driver $NEO_VERSION, IGC $NEO_IGC_VERSION, loader $NEO_LOADER_VERSION in ${NEO_ROOT#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

need_packages patchelf

leave_finished_bed "$bed" NEO_ROOT "$bed/root" "${1:-}"
unpack_sid "$bed" libze1 libze-intel-gpu1 libigc2 libigdgmm12

# at_least PACKAGE OLDEST: the version without epoch and Debian's revision, if it is new enough.
at_least() {
    local version
    version=$(sid_version "$bed" "$1" | sed -E 's/^[0-9]+://; s/-[^-]*$//')
    [[ -n $version ]] || die "$1 was not unpacked"
    dpkg --compare-versions "$version" ge "$2" || die "$1 $version is older than $2"
    printf %s "$version"
}
driver_version=$(at_least libze-intel-gpu1 "$oldest_driver")
igc_version=$(at_least libigc2 2)
loader_version=$(at_least libze1 "$oldest_loader")

ld_so=$(sid_file "$bed" 'ld-linux*.so.*')
libdir=$(dirname "$(sid_file "$bed" libze_loader.so.1)")
driver=$(sid_file "$bed" libze_intel_gpu.so.1)
compiler=$(sid_file "$bed" 'libigc.so.[0-9]')
sid_file "$bed" libze_validation_layer.so.1 >/dev/null

needs_only_the_bed "$bed" "$ld_so" "$libdir" "$libdir"/libze_*.so.1 "$driver" "$compiler" "$libdir"/libstdc++.so.6

{
    printf 'NEO_ROOT=%q\n' "$bed/root"
    printf 'NEO_LIBDIR=%q\n' "$libdir"
    printf 'NEO_LD_SO=%q\n' "$ld_so"
    printf 'NEO_DRIVER=%q\n' "$driver"
    printf 'NEO_VERSION=%q\n' "$driver_version"
    printf 'NEO_IGC_VERSION=%q\n' "$igc_version"
    printf 'NEO_LOADER_VERSION=%q\n' "$loader_version"
} >"$bed/env"
finish_bed "$bed"
