#!/usr/bin/env bash
# oneccl.sh [--refresh]
# Unpacks oneCCL's headers, its library and its plugin for CPUs from the Python package index into .beds/oneccl/. Writes
#   .beds/oneccl/env       to be sourced by a shell: ONECCL_INCLUDE, ONECCL_LIB, and ONECCL_C_SHIM, which stands in for the
#                          two C++ headers that oneCCL's C header asks for
#   .beds/oneccl/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

bed=$repo/.beds/oneccl

pinned=(
    'oneccl==2022.2.0 --hash=sha256:02c2f52434bfad50cc2d00be6e97fd81e3f365d279ac7bdabd2e3b656194c19f'
    'oneccl-cpu==2022.2.0 --hash=sha256:cc912935bd882b4328a569f70a475942e6e77994255775bde7de6452a982af54'
    'oneccl-devel==2022.2.0 --hash=sha256:6df69cc33962e48f401041bd788991bd47f82d3b1be3ed788aa184293c581cf2'
)

report() {
    say "oneCCL bed: headers and the library for CPUs in ${bed#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

# Its library for CPUs talks over this one.
need_packages build-essential unzip libfabric1

# Absolute paths are written into env, so a bed of a moved checkout is made again; so is one of other packages.
signature=$(printf '%s\n' "$bed" "${pinned[@]}" | sha256sum | cut -d' ' -f1)
if [[ ${1:-} != --refresh && -f $bed/env ]] && grep -qxF "# $signature" "$bed/env"; then
    report
    exit 0
fi

python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip

rm -rf "$bed"
mkdir -p "$bed"/{wheels,shim,lib/ccl/cpu/lib}
printf '%s\n' "${pinned[@]}" >"$bed/requirements"
retry 3 python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --platform manylinux_2_28_x86_64 --dest "$bed/wheels" --requirement "$bed/requirements" >&2
for wheel in "$bed"/wheels/*.whl; do
    IFS=- read -r name version _ <<<"$(basename "$wheel")"
    printf '%s %s %s\n' "${name//_/-}" "$version" "$(sha256sum "$wheel" | cut -d' ' -f1)"
    case $name in
    oneccl) unzip -q -o -j "$wheel" '*/lib/libccl.so.2' '*/lib/libccl_legacy_cpu.so' -d "$bed/lib" ;;
    # The plugin looks here for a library that has the name of the one for GPUs.
    oneccl_cpu) unzip -q -o -j "$wheel" '*/lib/libccl.so.1' -d "$bed/lib/ccl/cpu/lib" ;;
    oneccl_devel) unzip -q -o "$wheel" '*/include/*' -d "$bed/unpacked" ;;
    esac
done >"$bed/VERSIONS"
mv "$bed"/unpacked/*.data/data/include "$bed/include"
rm -rf "$bed/wheels" "$bed/unpacked" "$bed/requirements"
[[ -f $bed/include/oneapi/ccl.h && -f $bed/lib/libccl.so.2 ]] || die "the packages hold no oneCCL"
echo '#include <stddef.h>' >"$bed/shim/cstddef"
echo '#include <stdint.h>' >"$bed/shim/cstdint"
{
    printf '# %s\n' "$signature"
    printf 'export ONECCL_INCLUDE=%q ONECCL_LIB=%q ONECCL_C_SHIM=%q\n' "$bed/include" "$bed/lib" "$bed/shim"
} >"$bed/env"
report
