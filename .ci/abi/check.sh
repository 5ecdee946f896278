#!/bin/sh
# check.sh INCLUDE_DIR
# Compares the committed tables of level-zero-sys with what the headers under INCLUDE_DIR say; exit 1 on a difference.
# The driver's own headers are compared where INCLUDE_DIR has them, which that of CI's bed has not (docs/testing.md).
set -eu

include=${1:?usage: check.sh INCLUDE_DIR}
here=$(cd "$(dirname "$0")" && pwd)
tables=$here/../../level-zero-sys/abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compare() {
    "$here/regen.sh" "$include" "$1" >"$work/$2" || exit 1
    if ! diff -u "$tables/$2" "$work/$2"; then
        echo "check.sh: $2 differs from the headers in $include" >&2
        exit 1
    fi
    echo "check.sh: $2 agrees: $(grep -vc '^#' "$work/$2") rows, $(head -n 1 "$work/$2" | cut -c3-)"
}

compare specification ze_api.tsv
if [ -d "$include/level_zero/driver_experimental" ]; then
    compare vendor zex_api.tsv
else
    echo "check.sh: no level_zero/driver_experimental in $include: zex_api.tsv not compared"
fi
