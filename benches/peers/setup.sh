#!/usr/bin/env bash
# setup.sh [--refresh]: the peers that benches/peers/run.sh measures this library against, in .beds/peers:
#   impi/ mpich/ oneccl/ torch/   as the package index has them, versions and hashes pinned in requirements/
#   bin/                          our contestants, built against them
#   VERSIONS, python              what was fetched; the interpreter for torch
# About 3 GB to download and 5 GB on disk, nearly all of it torch, which comes with its CUDA libraries and does not
# load without them. A finished bed is left alone unless a pinned version changed or --refresh is given; the
# contestants are built anew each time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../../.ci/lib.sh
source "$repo/.ci/lib.sh"

bed=$repo/.beds/peers
python=${PYTHON:-python3}
[[ ${1:-} != --refresh ]] || rm -rf "$bed"
mkdir -p "$bed/bin"

"$python" -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
command -v cc >/dev/null && command -v c++ >/dev/null || need_packages build-essential
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the pinned torch is for CPython 3.11; name one in PYTHON"

# fetch NAME OPTION: the packages of requirements/NAME.txt below NAME, unless the same are there already.
fetch() {
    local name=$1 option=$2 stamp
    stamp=$(sha256sum <"$here/requirements/$name.txt")
    [[ ! -f $bed/$name/.stamp || $(<"$bed/$name/.stamp") != "$stamp" ]] || return 0
    say "peers: $name"
    rm -rf "${bed:?}/$name"
    retry 3 "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --ignore-installed --no-warn-script-location --root-user-action ignore --no-compile "$option" "$bed/$name" \
        --requirement "$here/requirements/$name.txt" >&2
    printf '%s' "$stamp" >"$bed/$name/.stamp"
}
fetch impi --prefix
fetch mpich --prefix
fetch oneccl --prefix
fetch oneccl-cpu --prefix
fetch torch --target
# Its CPU plugin looks here for a library that has the name of the one for GPUs.
cp -a "$bed"/oneccl-cpu/lib/libccl.so.1* "$bed/oneccl/lib/ccl/cpu/lib/"

flags=(-D_GNU_SOURCE -O2 -Wall -Wextra -Werror)
impi=(-I"$bed/impi/include" -L"$bed/impi/lib" -Wl,-rpath,"$bed/impi/lib" -lmpi)
cc "${flags[@]}" -mavx2 "$here/mpi.c" -o "$bed/bin/impi" "${impi[@]}"
cc "${flags[@]}" -mavx2 "$here/mpi.c" -o "$bed/bin/mpich" -I"$bed/mpich/include" "$bed/mpich/lib/libmpi.so.12" \
    -Wl,-rpath,"$bed/mpich/lib"
# All its symbols are weak: a linker that leaves out what seems unused would leave it out.
c++ "${flags[@]}" "$here/oneccl.cpp" -o "$bed/bin/oneccl" -I"$bed/oneccl/include" \
    -Wl,--no-as-needed "$bed/oneccl/lib/libccl.so.2" -Wl,-rpath,"$bed/oneccl/lib" "${impi[@]}"
cc "${flags[@]}" -shared -fPIC "$here/data.c" -o "$bed/bin/libdata.so"

sed -n 's/^\([^# ]*\)==\([^ ]*\).*/\1 \2/p' "$here"/requirements/{impi,mpich,oneccl,oneccl-cpu,torch}.txt >"$bed/VERSIONS"
printf '%s\n' "$("$python" -c 'import sys; print(sys.executable)')" >"$bed/python"
say "peers: $(grep -cE '^(impi-rt|mpich|oneccl-cpu|torch) ' "$bed/VERSIONS") peers in ${bed#"$repo"/}"
