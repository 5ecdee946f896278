#!/usr/bin/env bash
# ocloc.sh [--refresh]
# Unpacks Intel's offline compiler for its GPUs (ocloc, and the graphics compiler behind it that the real driver also
# uses) from Debian's unstable suite into .beds/ocloc/. Writes
#   .beds/ocloc/env       to be sourced: OCLOC (a program to run), OCLOC_VERSION, IGC_VERSION
#   .beds/ocloc/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=sid.sh
source "$here/sid.sh"

bed=$repo/.beds/ocloc
program=$bed/ocloc

report() {
    say "ocloc bed: ocloc $OCLOC_VERSION, IGC $IGC_VERSION"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

leave_finished_bed "$bed" OCLOC "$program" "${1:-}"
unpack_sid "$bed" intel-ocloc libigc2 libigdfcl2
ld_so=$(sid_file "$bed" 'ld-linux*.so.*')
binary=$(sid_file "$bed" 'ocloc-[0-9]*')
libraries=$bed/root/usr/lib/x86_64-linux-gnu

# The packages need a newer C library than the system's, so they bring their own dynamic linker.
cat >"$program" <<SCRIPT
#!/bin/sh
exec '$ld_so' --library-path '$libraries' '$binary' "\$@"
SCRIPT
chmod +x "$program"

{
    printf 'OCLOC=%q\n' "$program"
    printf 'OCLOC_VERSION=%q\n' "$(sid_version "$bed" intel-ocloc)"
    printf 'IGC_VERSION=%q\n' "$(sid_version "$bed" libigc2)"
} >"$bed/env"
finish_bed "$bed"
