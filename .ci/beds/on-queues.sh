# shellcheck shell=bash
# For scripts that run the library's programs on SYCL queues (tests/sycl). Source it, behind lib.sh and steps.sh, in the root of
# the repository: takes the beds that `beds` names, builds what is shipped and the bridges into the scratch folder, and has
#   build_program SOURCE   builds it for both releases
#   run RELEASE ADAPTER ARGUMENTS...   runs `$program` with `$library` preloaded

: "${beds:?}"
for bed in $beds; do
    [[ -f .beds/$bed/env ]] || die "no $bed bed: run .ci/beds/$bed.sh first"
    # shellcheck disable=SC1090
    source ".beds/$bed/env"
done

build_shipped
built=${CARGO_TARGET_DIR:-target}/release
scratch_folder
folder=$SCRATCH/library
mkdir "$folder"
# Copies: a long run is of one build.
cp "$built/libcclx.so" "$folder/"
cp "$built/libze_soft.so" "$SCRATCH/"
export BED_DRIVER=$SCRATCH/libze_soft.so
SYCL8_ROOT=${SYCL8_LIB%/*} SYCL9_ROOT=${SYCL9_LIB%/*} ccl-ffi/sycl/build.sh "$folder"

build_program_for() { # SOURCE RELEASE LIBRARY INCLUDE
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Werror -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING -isystem "$4" \
        -isystem "$ONECCL_INCLUDE" -isystem "$LOADER_INCLUDE" -Iccl-ffi/include "tests/sycl/$1.cpp" -o "$SCRATCH/$1-$2" "$3" \
        "$LOADER_LIBDIR/libze_loader.so.1" -Wl,--allow-shlib-undefined -Wl,--no-as-needed "$ONECCL_LIB/libccl.so.2" "-Wl,-rpath-link,${3%/*}" -pthread -ldl
    patchelf --set-interpreter "$LOADER_LD_SO" --set-rpath "$LOADER_LIBDIR:${3%/*}" --force-rpath "$SCRATCH/$1-$2"
}

build_program() {
    build_program_for "$1" 2025.3 "$SYCL8_LIB/libsycl.so.8" "$SYCL8_INCLUDE" &
    build_program_for "$1" 2026.2 "$SYCL9_LIB/libsycl.so.9" "$SYCL9_INCLUDE"
    wait $!
}

# Adapter v1 with immediate command lists, as on the GPUs that this library is for; by itself it takes command queues here.
export UR_L0_USE_IMMEDIATE_COMMANDLISTS=1
run() {
    BED_PRELOAD=${library:-$folder/libcclx.so} .ci/beds/run-on-sycl.sh "$1" "$2" "$SCRATCH/${program:?}-$1" "${@:3}"
}
