#!/usr/bin/env bash
# memory.sh [asan]
# C clients of the library under valgrind's memcheck, or under AddressSanitizer, whose build takes minutes and is not part of
# .ci/run: two ranks make the whole table of calls, with
# groups, splits, refusals, aborts and ends. No error, and no memory that nobody knows any more, without any suppression. Two
# faulty clients show that the tool would find them.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
need_packages build-essential valgrind
scratch_folder
cd "$repo"
target=${CARGO_TARGET_DIR:-$repo/target}
export CCLX_DEVICE=soft

# compile NAME LIBRARY FLAGS: both programs, as NAME-client and NAME-faulty.
compile() {
    local name=$1 program
    mkdir -p "$SCRATCH/$name"
    ln -sf "$2" "$SCRATCH/$name/libccl.so.2"
    for program in client faulty; do
        cc -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror "tests/c/$program.c" "${@:3}" "$SCRATCH/$name/libccl.so.2" \
            "-Wl,-rpath,$SCRATCH/$name" -o "$SCRATCH/$name-$program"
    done
}

# ranks NAME COMMAND: two ranks, each by COMMAND.
ranks() {
    local name=$1 rank pids=() status=0
    for rank in 0 1; do
        CCL_LOG_FILE=$SCRATCH/$name.log timeout 300 "${@:2}" "$SCRATCH/$name-client" "$rank" 2 "$SCRATCH/$name.id" \
            "$SCRATCH/$name.results.$rank" all >"$SCRATCH/$name.$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
    cat "$SCRATCH/$name".[01] >&2
    ((status == 0)) || die "$name: status $status"
    say "$name: $(wc -l <"$SCRATCH/$name.results.0") cases on two ranks, no fault"
}

# finds NAME FAULT WORDS COMMAND: COMMAND has to fail on a faulty client, with these words.
finds() {
    ! CCL_LOG_FILE=$SCRATCH/$1.log timeout 100 "${@:4}" "$SCRATCH/$1-faulty" "$2" >"$SCRATCH/$1.$2" 2>&1 ||
        die "$1 doesn't notice a $2"
    grep -q "$3" "$SCRATCH/$1.$2" || { cat "$SCRATCH/$1.$2" >&2 && die "$1 says something else than expected of a $2"; }
}

under_memcheck() {
    build_shipped
    compile memcheck "$(realpath "$target/release/libcclx.so")"
    memcheck=(valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite
        --show-leak-kinds=definite --num-callers=30)
    finds memcheck read 'Invalid read' "${memcheck[@]}"
    finds memcheck leak '4,711 bytes in 1 blocks are definitely lost' "${memcheck[@]}"
    ranks memcheck "${memcheck[@]}"
}

under_asan() {
    # The standard library is as it comes; what is compiled here is instrumented. A nightly option of the pinned compiler.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer' CARGO_TARGET_DIR=$target/asan \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=line-tables-only \
        cargo build --release --quiet -p ccl-ffi --target x86_64-unknown-linux-gnu
    compile asan "$(realpath "$target/asan/x86_64-unknown-linux-gnu/release/libcclx.so")" -fsanitize=address
    export ASAN_OPTIONS=exitcode=9
    finds asan read 'heap-buffer-overflow' env
    finds asan leak '4711 byte(s) leaked' env
    ranks asan env
}

case ${1:-} in
'') under_memcheck ;;
asan) under_asan ;;
*) die "memory.sh [asan]" ;;
esac
