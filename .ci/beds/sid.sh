# shellcheck shell=bash
# Packages of Debian's unstable suite, unpacked into a folder. Source it after lib.sh; the system's own packages and
# its apt configuration stay as they are.

# leave_finished_bed BED NAME VALUE [--refresh]: reports a finished bed and ends the script, unless a refresh is asked for.
# Absolute paths are written into a bed's env, NAME=VALUE among them, so that of a moved checkout is made again. `report`
# is the script's.
leave_finished_bed() {
    local bed=$1 line
    line=$2=$(printf %q "$3")
    if [[ ${4:-} != --refresh && -f $bed/env ]] && grep -qxF "$line" "$bed/env"; then
        # shellcheck disable=SC1091
        source "$bed/env"
        report
        exit 0
    fi
    rm -rf "$bed"
}

# finish_bed BED: what a script does when its env is written.
finish_bed() {
    # shellcheck disable=SC1091
    source "$1/env"
    report
}

# needs_only_the_bed BED LINKER LIBRARIES FILE...: nothing may fall back on the system's older libraries, nor be missing.
needs_only_the_bed() {
    local bed=$1 linker=$2 libraries=$3 library listed foreign
    shift 3
    for library in "$@"; do
        listed=$("$linker" --library-path "$libraries" --list "$library") || die "$library does not load: $listed"
        if foreign=$(awk -v root="$bed/root/" '/=>/ && index($3, root) != 1' <<<"$listed") && [[ -n $foreign ]]; then
            die "$library needs what the bed lacks: $foreign"
        fi
    done
}

# The mirror from which this system takes its own release serves the unstable suite as well.
sid_mirror() {
    local codename
    codename=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
    # awk reads to the end: an early exit would break apt's pipe. The names in $() are apt's.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(COMPONENT) $(REPO_URI)' |
        awk -v codename="$codename" '$1 == "Packages" && $2 == codename && $3 == "main" && !uri { uri = $4 } END { print uri }'
}

# unpack_sid BED PACKAGE...: unpacks the packages and all that they depend on, down to the C library, into BED/root.
# BED/VERSIONS then says what that is: package, version, sha256 of the archive.
unpack_sid() {
    local bed=$1 mirror keyring closure deb
    shift
    mkdir -p "$bed"/{root,debs} "$bed"/apt/{lists/partial,cache/archives/partial,etc/preferences.d,etc/sources.list.d}
    : >"$bed/apt/status"
    mirror=$(sid_mirror)
    if [[ -z $mirror ]]; then
        with_apt retry 3 apt-get update -qq </dev/null >&2
        mirror=$(sid_mirror)
    fi
    [[ -n $mirror ]] || die "this system's apt sources name no mirror of its own release"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [[ -f $keyring ]] || die "$keyring is missing: install debian-archive-keyring"
    echo "deb [signed-by=$keyring] $mirror sid main" >"$bed/apt/etc/sources.list"
    # Own Dir and own status file; proxies and the like come from the system's configuration, which apt reads first.
    local isolated=(
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
    # The names in angle brackets are virtual packages.
    closure=$(
        apt-cache "${isolated[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
            --no-replaces --no-enhances "$@" | awk '/^[a-z0-9]/ && !/:/ && !seen[$1]++ { print $1 }'
    )
    local packages
    mapfile -t packages <<<"$closure"
    ((${#packages[@]} > $#)) || die "apt found no dependencies of $* in sid"
    (cd "$bed/debs" && retry 3 apt-get "${isolated[@]}" download -qq "${packages[@]}" </dev/null >&2)
    for deb in "$bed"/debs/*.deb; do
        dpkg-deb -x "$deb" "$bed/root"
        printf '%s %s %s\n' "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" \
            "$(sha256sum "$deb" | cut -d' ' -f1)"
    done >"$bed/VERSIONS"
    rm -rf "$bed/debs" "$bed/apt"
}

# sid_version BED PACKAGE: the version that was unpacked.
sid_version() {
    awk -v name="$2" '$1 == name { print $2 }' "$1/VERSIONS"
}

# sid_file BED NAME: the one unpacked file of this name (a pattern of find).
sid_file() {
    local found
    found=$(find "$1/root" -name "$2" | sort | sed -n 1p)
    [[ -n $found ]] || die "the unpacked packages hold no $2"
    printf %s "$found"
}
