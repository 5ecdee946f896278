#!/usr/bin/env bash
# sycl-failures.sh
# What becomes of collectives on SYCL queues that go wrong (tests/sycl/failing.cpp), and what CCLX_CHECK and CCLX_CAPTURE make
# of calls there (captured.cpp), and queues and communicators that come and go (lifetimes.cpp): real SYCL runtimes of both releases with both adapters, eager, recorded, and recorded by the
# driver. Whoever doesn't check must not notice, and a corpus that was saved wrongly must not stand. Needs the beds of sycl.sh,
# loader.sh and oneccl.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../lib.sh
source "$here/../lib.sh"
# shellcheck source=../steps.sh
source "$here/../steps.sh"
cd "$repo"

# shellcheck disable=SC2034
beds='loader sycl oneccl'
# shellcheck source=on-queues.sh
source "$here/on-queues.sh"
build_program failing
build_program captured
build_program lifetimes
kinds=('2025.3 v1' '2025.3 v2' '2026.2 v1' '2026.2 v2')

# fails KIND SCENARIO HOW: as it should, in words of its own; the library's log is beside.
program=failing
export CCLX_ON_ERROR=log
fails() {
    local kind
    read -r -a kind <<<"$1"
    CCL_LOG_FILE=$SCRATCH/log run "${kind[@]}" 3 "$2" "$3"
}

# Where ranks wait for their deadline, beside the others.
absent() { # HOW
    local kind
    for kind in "${kinds[@]}"; do
        [[ $1 != native ]] || kind='2026.2 v2'
        CCLX_TIMEOUT_MS=3000 fails "$kind" absent "$1"
        [[ $1 != native ]] || break
    done
}
waits=()
for how in eager graph native; do
    absent "$how" >"$SCRATCH/absent-$how" 2>&1 &
    waits+=($!)
done
for kind in "${kinds[@]}" native; do
    hows=(eager graph)
    [[ $kind != native ]] || kind='2026.2 v2' hows=(native)
    for how in "${hows[@]}"; do
        say "$kind, $how"
        CCLX_CHECK=global fails "$kind" odd "$how"
        CCLX_CHECK=local fails "$kind" outside "$how"
        fails "$kind" aborted "$how"
        # The runtime doesn't hold a natively recorded graph back behind a host task.
        [[ $how == native ]] || fails "$kind" stuck "$how"
        [[ $how != eager ]] || fails "$kind" second "$how"
        fails "$kind" killed "$how"
    done
done
for wait in "${waits[@]}"; do
    wait "$wait" || die "a rank that doesn't come: $(cat "$SCRATCH"/absent-*)"
done

# Queues and communicators that come and go; one queue that stays must be noticed.
for kind in '2025.3 v1' '2026.2 v2' native; do
    hows=(eager graph)
    [[ $kind != native ]] || kind='2026.2 v2' hows=(native)
    for how in "${hows[@]}"; do
        # shellcheck disable=SC2086
        program=lifetimes run $kind 3 "$how"
    done
done

# must_fail WORDS COMMAND...: and for that.
must_fail() {
    if "${@:2}" >"$SCRATCH/output" 2>&1; then die "passes: ${*:2}"; fi
    grep -q "$1" "$SCRATCH/output" || die "fails otherwise: ${*:2}: $(cat "$SCRATCH/output")"
}
# Unchecked, nobody notices that ranks made different calls, nor whose memory it is.
for how in eager graph; do
    FAILING_PATIENCE=2 must_fail 'nobody noticed' fails '2026.2 v2' odd "$how"
done
must_fail 'a buffer outside' fails '2025.3 v1' outside eager
# Unless it is told to go on, a process ends with the failure, and says which.
for how in eager graph; do
    (
        unset CCLX_ON_ERROR
        must_fail 'rank 2 is gone .*; the process ends' fails '2026.2 v2' killed "$how"
    )
done

program=lifetimes LIFETIMES_LEAK=1 must_fail 'queues: that is a leak' run 2026.2 v2 2 eager

# captured KIND WHAT: the corpus is then $SCRATCH/corpus.
captured() {
    local kind
    read -r -a kind <<<"$1"
    rm -rf "$SCRATCH/corpus"
    program=captured CCLX_CAPTURE=$SCRATCH/corpus CCL_LOG_FILE=$SCRATCH/log run "${kind[@]}" 2 "$2"
}
verify() { "$built/ccl" verify "$SCRATCH/corpus" "$@"; }
for kind in "${kinds[@]}"; do
    captured "$kind" eager
    text=$(verify) || die "$kind: $text"
    for words in 'all_reduce: 31 calls, 12 of them' 'mhc_boundary: 6 calls, 6 of them' 'mhc_post: 3 calls, 3 of them'; do
        [[ $text == *"$words"* ]] || die "$kind: no $words: $text"
    done
done
# What was saved on queues comes out the same without any.
CCLX_DEVICE=soft "$built/ccl" replay "$SCRATCH/corpus" --graph 2 >&2
for kind in "${kinds[@]}" native; do
    what=graph
    [[ $kind != native ]] || kind='2026.2 v2' what=native
    captured "$kind" "$what"
    must_fail 'a recorded all_reduce of 900 float32' verify
    must_fail 'all_gather of 900 float32 (no all_reduce)' verify
    text=$(verify --allow-incomplete) || die "$kind: $text"
    [[ $text == *'all_reduce: 4 calls'* ]] || die "$kind: $text"
done
# What can't be waited for ends the capture and is not held up.
for kind in '2025.3 v1' '2026.2 v2'; do
    CCLX_TIMEOUT_MS=4000 captured "$kind" held
    must_fail 'work before a call did not end within 2s' verify
    text=$(verify --allow-incomplete) || die "$kind: $text"
    [[ $text == *'all_reduce: 1 calls'* ]] || die "$kind: $text"
done
# A library that reads the inputs when they have been overwritten.
build_hooked
hooked=$SCRATCH/hooked
mkdir "$hooked"
cp "$built/examples/libhooked.so" "$hooked/libccl.so.2"
patchelf --set-soname libccl.so.2 "$hooked/libccl.so.2"
cp "$folder"/libcclx_sycl?.so "$hooked/"
CAPTURED_RULES=0x100000 library=$hooked/libccl.so.2 captured '2026.2 v2' eager
must_fail 'all_reduce' verify
say 'SYCL queues: failures are told and leave nothing behind, and what is captured stands'
