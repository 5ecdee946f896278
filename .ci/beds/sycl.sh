#!/usr/bin/env bash
# sycl.sh [--refresh]
# Unpacks two releases of Intel's SYCL runtime, with headers, from the Python package index into .beds/sycl/. They differ
# in the major version of the library: 2025.3 has libsycl.so.8, 2026.2 has libsycl.so.9. Writes
#   .beds/sycl/RELEASE/{lib,include}  the runtime with its adapters for Level Zero, its headers
#   .beds/sycl/site                   dpctl and numpy, for CPython 3.11 and the runtime of 2026.2
#   .beds/sycl/env       to be sourced by a shell: SYCL8_LIB, SYCL8_INCLUDE, SYCL9_LIB, SYCL9_INCLUDE, SYCL_SITE, and
#                        SYCL_PYTHON, an interpreter of that version (PYTHON names another)
#   .beds/sycl/VERSIONS  what was unpacked: package, version, sha256 of the archive
# A finished bed is left alone unless --refresh is given. run-on-sycl.sh runs programs on it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

bed=$repo/.beds/sycl

# The last two of each release: what its memory allocator loads.
old=(
    'intel-sycl-rt==2025.3.2 --hash=sha256:3b19d9f64b56804a7bc58a91fe95daacf10bc906b94ce3c5b6416153367df972'
    'intel-cmplr-lib-ur==2025.3.2 --hash=sha256:175cdb0fbca5c3ef0db176f1cbd8b8f2c36d33eb774cf1d0cfa0404f748df634'
    'intel-cmplr-lib-rt==2025.3.2 --hash=sha256:c413efc1b2ddd8a879e9518bcbc375541b8b633951b2825684571d833aea26ad'
    'umf==1.0.3 --hash=sha256:c89c0974daed30a1cac77fb7ce5ff9140d178e286bb2dd91b751486d5d0a65b0'
    'tcmlib==1.6.0 --hash=sha256:46c2491988bfd18c4733eeb08aca6a386706a497b92cc51d155f37ddea003c14'
)
new=(
    'intel-sycl-rt==2026.2.0 --hash=sha256:ad920da1ffcb43edbc03422a7c85094997e6d578f9ab534743442af70bcbfaa1'
    'intel-cmplr-lib-ur==2026.2.0 --hash=sha256:0d0a5099aa2e1e38375b509c2a8182e719ed74aa656b2a800ddf6cfbd3384b80'
    'intel-cmplr-lib-rt==2026.2.0 --hash=sha256:9f713083073a820d2496a6da8e8d4f3482aba6640f74521d25ea48dcebe72748'
    'umf==1.2.0 --hash=sha256:238d186fdd9e9c0fe1489da95b19b0b79045fe26c4aa98bd0a022a2a3603c195'
    'tcmlib==1.6.0 --hash=sha256:46c2491988bfd18c4733eeb08aca6a386706a497b92cc51d155f37ddea003c14'
)

python_packages=(
    'dpctl==0.22.1 --hash=sha256:19b90062f02ca9a8e8c534169e607b251c05d0da51a4c21d3c3e7c96d9e70bb7'
    'numpy==2.4.6 --hash=sha256:89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93'
)

report() {
    say "SYCL bed: runtimes and headers in ${bed#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

python=${PYTHON:-python3}
"$python" -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the pinned dpctl is for CPython 3.11; name one in PYTHON"
python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')

# Absolute paths are written into env, so a bed of a moved checkout is made again; so is one of other packages.
signature=$(printf '%s\n' "$bed" "$python" "${old[@]}" "${new[@]}" "${python_packages[@]}" | sha256sum | cut -d' ' -f1)
if [[ ${1:-} != --refresh && -f $bed/env ]] && grep -qxF "# $signature" "$bed/env"; then
    report
    exit 0
fi

need_packages build-essential unzip patchelf

# Of hundreds of megabytes, what a program that was built elsewhere loads.
wanted=('libsycl.so.[0-9]' 'libur_loader.so.0' 'libur_adapter_level_zero.so.0' 'libur_adapter_level_zero_v2.so.0'
    'libumf.so.1' 'libhwloc.so.15' 'libxptifw.so' 'libxptifw.so.1' 'libimf.so' 'libirng.so' 'libsvml.so' 'libintlc.so.5')

unpack() { # RELEASE PACKAGE...
    local release=$bed/$1 wheel name version
    shift
    mkdir -p "$release"/{wheels,lib}
    printf '%s\n' "$@" >"$release/requirements"
    retry 3 "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
        --platform manylinux_2_28_x86_64 --dest "$release/wheels" --requirement "$release/requirements" >&2
    for wheel in "$release"/wheels/*.whl; do
        IFS=- read -r name version _ <<<"$(basename "$wheel")"
        # Status 11: one of the patterns fits nothing, as most do in most packages.
        unzip -q -o -j "$wheel" "${wanted[@]/#/*.data/data/lib/}" -d "$release/lib" 2>/dev/null || (($? == 11))
        [[ $name != intel_sycl_rt ]] || unzip -q -o "$wheel" '*.data/data/include/*' -d "$release/unpacked"
        printf '%s %s %s\n' "${name//_/-}" "$version" "$(sha256sum "$wheel" | cut -d' ' -f1)" >>"$bed/VERSIONS"
    done
    mv "$release"/unpacked/*.data/data/include "$release/include"
    rm -rf "$release/wheels" "$release/unpacked" "$release/requirements"
}

rm -rf "$bed"
unpack 2025.3 "${old[@]}"
unpack 2026.2 "${new[@]}"
[[ -f $bed/2025.3/lib/libsycl.so.8 && -f $bed/2026.2/lib/libsycl.so.9 ]] || die "the packages hold no SYCL runtime"
printf '%s\n' "${python_packages[@]}" >"$bed/requirements"
retry 3 "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --ignore-installed --no-warn-script-location --root-user-action ignore --no-compile --target "$bed/site" \
    --requirement "$bed/requirements" >&2
rm "$bed/requirements"
printf '%s\n' "${python_packages[@]}" | sed -E 's/==/ /; s/ --hash=sha256:/ /' >>"$bed/VERSIONS"
{
    printf '# %s\n' "$signature"
    printf 'export SYCL8_LIB=%q SYCL8_INCLUDE=%q\n' "$bed/2025.3/lib" "$bed/2025.3/include"
    printf 'export SYCL_SITE=%q SYCL_PYTHON=%q\n' "$bed/site" "$python"
    printf 'export SYCL9_LIB=%q SYCL9_INCLUDE=%q\n' "$bed/2026.2/lib" "$bed/2026.2/include"
} >"$bed/env"
report
