#!/usr/bin/env bash
# loader.sh [--refresh]
# Unpacks the Level Zero loader of Debian's unstable suite, its validation and tracing layers, its headers and the C
# library they need, into .beds/loader/. The system's own packages stay as they are. Writes
#   .beds/loader/env       to be sourced: LOADER_ROOT, LOADER_LIBDIR, LOADER_LD_SO, LOADER_INCLUDE, LOADER_VERSION
#   .beds/loader/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=sid.sh
source "$here/sid.sh"

minimum=1.32
bed=$repo/.beds/loader
root=$bed/root

report() {
    say "Level Zero loader bed: loader $LOADER_VERSION in ${LOADER_ROOT#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

need_packages patchelf

leave_finished_bed "$bed" LOADER_ROOT "$root" "${1:-}"
unpack_sid "$bed" libze1 libze-dev

ld_so=$(sid_file "$bed" 'ld-linux*.so.*')
libdir=$(dirname "$(sid_file "$bed" libze_loader.so.1)")
sid_file "$bed" libze_validation_layer.so.1 >/dev/null
sid_file "$bed" libze_tracing_layer.so.1 >/dev/null
include=$(dirname "$(dirname "$(sid_file "$bed" ze_api.h)")")

version=$(sid_version "$bed" libze1 | sed -E 's/^[0-9]+://; s/-.*//')
dpkg --compare-versions "$version" ge "$minimum" || die "loader $version is older than $minimum"

needs_only_the_bed "$bed" "$ld_so" "$libdir" "$libdir"/libze_*.so.1 "$libdir"/libstdc++.so.6

{
    printf 'LOADER_ROOT=%q\n' "$root"
    printf 'LOADER_LIBDIR=%q\n' "$libdir"
    printf 'LOADER_LD_SO=%q\n' "$ld_so"
    printf 'LOADER_INCLUDE=%q\n' "$include"
    printf 'LOADER_VERSION=%q\n' "$version"
} >"$bed/env"
finish_bed "$bed"
