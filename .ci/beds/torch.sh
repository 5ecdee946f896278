#!/usr/bin/env bash
# torch.sh [--refresh]
# Installs torch for CPython 3.11 from the Python package index into .beds/torch/site, pinned as for benches/peers. Its wheel
# for Linux wants CUDA's libraries (2.5 GB) at load; no test here calls them, so stand-ins take their place, whose functions
# end the process. Writes
#   .beds/torch/env       to be sourced by a shell: TORCH_SITE, TORCH_PYTHON
#   .beds/torch/VERSIONS  what was installed
# A finished bed is left alone unless --refresh is given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"

bed=$repo/.beds/torch
site=$bed/site
pins=$repo/benches/peers/requirements/torch.txt

report() {
    say "torch bed: torch for CPUs in ${bed#"$repo"/}"
    sed 's/^/  /' "$bed/VERSIONS" >&2
}

need_packages build-essential binutils
python=${PYTHON:-python3}
"$python" -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the pinned torch is for CPython 3.11; name one in PYTHON"
python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')

signature=$(printf '%s\n' "$bed" "$python" | cat - "$pins" "${BASH_SOURCE[0]}" | sha256sum | cut -d' ' -f1)
if [[ ${1:-} != --refresh && -f $bed/env ]] && grep -qxF "# $signature" "$bed/env"; then
    report
    exit 0
fi

rm -rf "$bed"
mkdir -p "$bed"
# Those of NVIDIA's libraries that are small, and hold variables or versions that torch looks at, are the real ones.
grep -vE '^(#|nvidia-)' "$pins" >"$bed/requirements"
grep -E '^nvidia-(cuda-runtime|cuda-cupti|cufile|nvtx)=' "$pins" >>"$bed/requirements"
retry 3 "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --ignore-installed --no-warn-script-location --root-user-action ignore --no-compile --target "$site" \
    --requirement "$bed/requirements" >&2

lib=$site/torch/lib
mapfile -t libraries < <(find "$lib" "$site/nvidia" -name '*.so*' -type f)
names() { nm -D "$1" "${libraries[@]}" "$site"/torch/_C.*.so 2>/dev/null | awk 'NF >= 2 && NF <= 3 { sub(/@.*/, "", $NF); print $NF }' | sort -u; }
comm -23 <(names --undefined-only) <(names --defined-only) | grep -E '^(cu|nccl|nvrtc|nvshmem)' |
    awk 'BEGIN { print "#include <stdlib.h>" } { print "void " $1 "(void) { abort(); }" }' >"$bed/absent.c"
cc -shared -fPIC -o "$lib/libcuda_absent.so" "$bed/absent.c" -Wl,-soname,libcuda_absent.so
for library in "${libraries[@]}"; do
    readelf -d -W "$library" | sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nccl\|nvrtc\|nvshmem_host\)[^]]*\)\]/\1/p'
done | sort -u | while read -r name; do
    [[ -z $(find "$lib" "$site/nvidia" -name "$name" -print -quit) ]] || continue
    cc -shared -x c /dev/null -o "$lib/$name" -Wl,-soname,"$name",--no-as-needed,-rpath,'$ORIGIN' -L"$lib" -l:libcuda_absent.so
done

# The only tests are those of collectives: it has to load, and to have gloo.
PYTHONPATH=$site "$python" -c 'import torch; assert torch.distributed.is_gloo_available(); print("torch", torch.__version__)' \
    >"$bed/VERSIONS"
{
    printf '# %s\n' "$signature"
    printf 'export TORCH_SITE=%q TORCH_PYTHON=%q\n' "$site" "$python"
} >"$bed/env"
report
