#!/usr/bin/env bash
# python/tests on the software device: the package cclx by itself; what torch's process group issues, with the torch of the
# bed that torch.sh made, against gloo; calls with events, on the Level Zero loader of the bed that loader.sh made; and calls on
# dpctl's queues, with the SYCL runtime of the bed that sycl.sh made. Ends with a line as Rust's test harness has it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
# shellcheck disable=SC1091
source "$repo/.beds/torch/env"
# shellcheck disable=SC1091
source "$repo/.beds/loader/env"
# shellcheck disable=SC1091
source "$repo/.beds/sycl/env"
scratch_folder

cd "$repo"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$repo/target}
build_shipped

passed=0
# run PYTHON ARGUMENTS: tests that may not be left out.
run() {
    timeout 400 "$1" -B -m unittest "${@:2}" >"$SCRATCH/log" 2>&1 || {
        cat "$SCRATCH/log" >&2
        die "${*:2} failed"
    }
    cat "$SCRATCH/log" >&2
    ! grep -q skipped "$SCRATCH/log" || die "a test was left out"
    passed=$((passed + $(sed -n 's/^Ran \([0-9]*\) tests\? in .*/\1/p' "$SCRATCH/log")))
}

export PYTHONPATH=$repo/python:$repo/python/tests CCLX_DEVICE=soft
run "$TORCH_PYTHON" test_buffers test_calls test_readme
PYTHONPATH=$PYTHONPATH:$TORCH_SITE run "$TORCH_PYTHON" test_torch

# The loader's C library is newer than the system's: the interpreter runs on it, and so do the processes that it starts.
libraries=$LOADER_LIBDIR:$("$TORCH_PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
cat >"$SCRATCH/python" <<END
#!/bin/sh
exec "$LOADER_LD_SO" --library-path "$libraries:/usr/lib/x86_64-linux-gnu" "$TORCH_PYTHON" "\$@"
END
chmod +x "$SCRATCH/python"
TEST_PYTHON=$SCRATCH/python CCLX_DEVICE=loader ZE_ENABLE_ALT_DRIVERS=$(realpath "$CARGO_TARGET_DIR/release/libze_soft.so") \
    run "$SCRATCH/python" test_events

# With either of the runtime's ways of using Level Zero.
SYCL9_ROOT=${SYCL9_LIB%/*} ccl-ffi/sycl/build.sh
BED_DRIVER=$(realpath "$CARGO_TARGET_DIR/release/libze_soft.so")
PYTHONHOME=$("$SYCL_PYTHON" -c 'import sys; print(sys.base_prefix)')
# Its own library of Python's, and not one that the system may have.
BED_LIBRARIES=$("$SYCL_PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
export BED_DRIVER BED_LIBRARIES
for adapter in v1 v2; do
    printf '#!/bin/sh\nexec "%s" 2026.2 %s "%s" "$@"\n' "$here/run-on-sycl.sh" "$adapter" "$SYCL_PYTHON" >"$SCRATCH/sycl-python"
    chmod +x "$SCRATCH/sycl-python"
    CCLX_DEVICE=loader PYTHONHOME=$PYTHONHOME PYTHONPATH=$PYTHONPATH:$SYCL_SITE run "$SCRATCH/sycl-python" test_sycl
done
echo "test result: ok. $passed passed; 0 failed; 0 ignored"
