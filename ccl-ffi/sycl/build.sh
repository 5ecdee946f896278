#!/usr/bin/env bash
# build.sh [FOLDER]
# Builds the bridges to SYCL, one for each release whose headers and library it is told of, into FOLDER (default: where
# cargo puts libcclx.so). They belong beside libcclx.so. Environment:
#   SYCL8_ROOT  the root of an installation of SYCL 2025.x: include/sycl/sycl.hpp and lib/libsycl.so.8 (or .so)
#   SYCL9_ROOT  the same of 2026.x, libsycl.so.9
#   CXX         the compiler (default c++): C++17, need not know SYCL
#   BRIDGE_FLAGS  further flags, for tests
# Says what is missing; fails if it is told of nothing, or of something that isn't there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/../../target}/release}
built=0

for release in 8 9; do
    name=SYCL${release}_ROOT
    root=${!name:-}
    if [[ -z $root ]]; then
        echo "no bridge to libsycl.so.$release: $name names no SYCL installation" >&2
        continue
    fi
    library=$root/lib/libsycl.so.$release
    for needed in "$root/include/sycl/sycl.hpp" "$library"; do
        [[ -e $needed ]] || {
            echo "error: $name=$root lacks ${needed#"$root"/}" >&2
            exit 1
        }
    done
    mkdir -p "$folder"
    # shellcheck disable=SC2086
    "${CXX:-c++}" -std=c++17 -O2 -fPIC -fno-plt -shared -fvisibility=hidden -Wall -Wextra -Werror \
        -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING ${BRIDGE_FLAGS:-} -isystem "$root/include" "$here/bridge.cpp" \
        -o "$folder/libcclx_sycl$release.so" "$library" -Wl,--no-undefined,-z,nodelete,-rpath-link,"$root/lib"
    echo "$folder/libcclx_sycl$release.so" >&2
    built=$((built + 1))
done
((built > 0)) || {
    echo 'error: neither SYCL8_ROOT nor SYCL9_ROOT is set' >&2
    exit 1
}
