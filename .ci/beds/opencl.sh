#!/usr/bin/env bash
# opencl.sh [--refresh]
# Unpacks Intel's OpenCL runtime for CPUs, which executes our device kernels' SPIR-V, from the Python package index
# into .beds/opencl/, and builds the preload that makes enough work-groups resident (more_cpus.c). Writes
#   .beds/opencl/env       to be sourced by a shell: exports what a program needs that loads OPENCL_LIBRARY, and names
#                          OPENCL_PRELOAD, which goes into that program's LD_PRELOAD
#   .beds/opencl/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

bed=$repo/.beds/opencl
root=$bed/root

# The runtime's own metadata doesn't name intel-cmplr-lib-rt, without which it does not load.
pinned=(
    'intel-opencl-rt==2026.2.0 --hash=sha256:6b6215a420598b4999ee01caca6d5cbe106aa4155c46c52377619c5aafce9f67'
    'intel-cmplr-lib-rt==2026.2.0 --hash=sha256:9f713083073a820d2496a6da8e8d4f3482aba6640f74521d25ea48dcebe72748'
    'tbb==2023.2.0 --hash=sha256:7d80615b6e970f11671fa05b6eaa9483ac864fbfe525ac280271a78b37870b7c'
)

build_preload() {
    cc -shared -fPIC -O1 -Wall -Werror -o "$bed/more_cpus.so" "$here/more_cpus.c" -ldl
}

report() {
    say "OpenCL bed: Intel's CPU runtime in ${root#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

# Absolute paths are written into env, so a bed of a moved checkout is made again; so is one of other packages.
signature=$(printf '%s\n' "$root" "${pinned[@]}" | sha256sum | cut -d' ' -f1)
if [[ ${1:-} != --refresh && -f $bed/env ]] && grep -qxF "# $signature" "$bed/env"; then
    build_preload
    report
    exit 0
fi

python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
need_packages build-essential unzip

rm -rf "$bed"
mkdir -p "$root" "$bed/wheels"
printf '%s\n' "${pinned[@]}" >"$bed/requirements"
retry 3 python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --platform manylinux_2_28_x86_64 --dest "$bed/wheels" --requirement "$bed/requirements" >&2
for wheel in "$bed"/wheels/*.whl; do
    unzip -q -o "$wheel" '*.data/data/lib/*' -d "$bed/unpacked"
    IFS=- read -r name version _ <<<"$(basename "$wheel")"
    printf '%s %s %s\n' "${name//_/-}" "$version" "$(sha256sum "$wheel" | cut -d' ' -f1)"
done >"$bed/VERSIONS"
mv "$bed"/unpacked/*.data/data/lib/* "$root"
rm -rf "$bed/wheels" "$bed/unpacked" "$bed/requirements"
[[ -f $root/libintelocl.so && -f $root/libOpenCL.so.1 ]] || die "the packages hold no OpenCL runtime"
build_preload
{
    printf '# %s\n' "$signature"
    printf 'export OPENCL_LIBRARY=%q\n' "$root/libOpenCL.so.1"
    # shellcheck disable=SC2016
    printf 'export LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$root"
    printf 'export OCL_ICD_FILENAMES=%q OCL_ICD_VENDORS=%q\n' "$root/libintelocl.so" "$root/libintelocl.so"
    printf 'export OPENCL_PRELOAD=%q\n' "$bed/more_cpus.so"
} >"$bed/env"
report
