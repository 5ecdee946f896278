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

suite=sid
minimum=1.32
bed=$repo/.beds/loader
root=$bed/root
debs=$bed/debs
wanted=(libze1 libze-dev)

report() {
    say "Level Zero loader bed: loader $LOADER_VERSION in ${LOADER_ROOT#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

need_packages patchelf

# Absolute paths are written into env, so a bed of a moved checkout is made again.
if [[ ${1:-} != --refresh && -f $bed/env ]] && grep -qxF "LOADER_ROOT=$(printf %q "$root")" "$bed/env"; then
    # shellcheck disable=SC1091
    source "$bed/env"
    report
    exit 0
fi

rm -rf "$bed"
mkdir -p "$root" "$debs" "$bed"/apt/{lists/partial,cache/archives/partial,etc/preferences.d,etc/sources.list.d}
: >"$bed/apt/status"

# The mirror from which this system takes its own release serves the unstable suite as well.
system_mirror() {
    local codename
    codename=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
    # awk reads to the end: an early exit would break apt's pipe. The names in $() are apt's.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(COMPONENT) $(REPO_URI)' |
        awk -v codename="$codename" '$1 == "Packages" && $2 == codename && $3 == "main" && !uri { uri = $4 } END { print uri }'
}
mirror=$(system_mirror)
if [[ -z $mirror ]]; then
    retry 3 apt-get update -qq </dev/null >&2
    mirror=$(system_mirror)
fi
[[ -n $mirror ]] || die "this system's apt sources name no mirror of its own release"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -f $keyring ]] || die "$keyring is missing: install debian-archive-keyring"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$bed/apt/etc/sources.list"

# Own Dir and own status file; proxies and the like come from the system's configuration, which apt reads before these.
isolated=(
    -o Dir="$bed/apt"
    -o Dir::Etc="$bed/apt/etc"
    -o Dir::Etc::SourceList="$bed/apt/etc/sources.list"
    -o Dir::Etc::SourceParts="$bed/apt/etc/sources.list.d"
    -o Dir::Etc::PreferencesParts="$bed/apt/etc/preferences.d"
    -o Dir::State="$bed/apt"
    -o Dir::State::Lists="$bed/apt/lists"
    -o Dir::State::Status="$bed/apt/status"
    -o Dir::Cache="$bed/apt/cache"
    -o Acquire::Check-Valid-Until=false
    -o Acquire::Languages=none
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o APT::Sandbox::User=root
)

retry 3 apt-get "${isolated[@]}" update -qq </dev/null >&2

# Everything the loader depends on, down to the C library; the names in angle brackets are virtual packages.
closure=$(
    apt-cache "${isolated[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances "${wanted[@]}" | awk '/^[a-z0-9]/ && !/:/ && !seen[$1]++ { print $1 }'
)
mapfile -t packages <<<"$closure"
((${#packages[@]} > ${#wanted[@]})) || die "apt found no dependencies of ${wanted[*]} in $suite"
(cd "$debs" && retry 3 apt-get "${isolated[@]}" download -qq "${packages[@]}" </dev/null >&2)

for deb in "$debs"/*.deb; do
    dpkg-deb -x "$deb" "$root"
    printf '%s %s %s\n' "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" \
        "$(sha256sum "$deb" | cut -d' ' -f1)"
done >"$bed/VERSIONS"

find_one() {
    local found
    found=$(find "$root" -name "$1" | sort | sed -n 1p)
    [[ -n $found ]] || die "the unpacked packages hold no $1"
    printf %s "$found"
}
ld_so=$(find_one 'ld-linux*.so.*')
libdir=$(dirname "$(find_one libze_loader.so.1)")
find_one libze_validation_layer.so.1 >/dev/null
find_one libze_tracing_layer.so.1 >/dev/null
include=$(dirname "$(dirname "$(find_one ze_api.h)")")

version=$(awk '$1 == "libze1" { sub(/^[0-9]+:/, "", $2); sub(/-.*/, "", $2); print $2 }' "$bed/VERSIONS")
dpkg --compare-versions "$version" ge "$minimum" || die "loader $version is older than $minimum"

# Nothing may fall back on the system's older libraries, nor be missing.
for library in "$libdir"/libze_*.so.1 "$libdir"/libstdc++.so.6; do
    listed=$("$ld_so" --library-path "$libdir" --list "$library") || die "$library does not load: $listed"
    if foreign=$(awk -v root="$root/" '/=>/ && index($3, root) != 1' <<<"$listed") && [[ -n $foreign ]]; then
        die "$library needs what the bed lacks: $foreign"
    fi
done

rm -rf "$debs" "$bed/apt"
{
    printf 'LOADER_ROOT=%q\n' "$root"
    printf 'LOADER_LIBDIR=%q\n' "$libdir"
    printf 'LOADER_LD_SO=%q\n' "$ld_so"
    printf 'LOADER_INCLUDE=%q\n' "$include"
    printf 'LOADER_VERSION=%q\n' "$version"
} >"$bed/env"
# shellcheck disable=SC1091
source "$bed/env"
report
