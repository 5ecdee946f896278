#!/usr/bin/env bash
# The kernels and the protocol on an NVIDIA GPU.
#   cuda.sh --bundle DIR [PTXAS]   builds all that is needed there into DIR: programs, tests, kernels and their mutants
#   cuda.sh [DIR]                  there, on one GPU: runs it all (DIR is this script's folder otherwise) and leaves timings
#                                  as JSON lines in $OUT, or below DIR
#   cuda.sh --gpus [DIR]           there, on several: the same calls with one rank a GPU over its links, then timings beside
#                                  NCCL and PyTorch's symmetric memory (benches/peers/beside_nccl.py), which wants PyTorch
# There it takes a driver, its multi-process service and nothing else. All tests are tests of this repository; what they
# rest on and prove is in docs/testing.md.
set -euo pipefail

# Names of test files, and what is passed to them. Their ranks are processes, and they kill none: docs/testing.md says why.
declare -A ARGUMENTS=(
    # Its plan is for at most eight groups.
    [spirv_ring]='--ignored --skip grids_of_four_to_eight_groups'
    # The engine finds modules by the hash of the delivered SPIR-V, not of what is made of it for SYCL's runtimes.
    [spirv_push]='--ignored --skip two_ranks_with_one_argument_a_kernel'
    # The control needs a queue that comes late.
    [spirv_graph]='--ignored --skip without_the_incoming_edge'
    [spirv_mhc]='--ignored one_rank two_ranks columns'
    # Ranks are left behind, which the service does not survive.
    [spirv_mutants]='--ignored --skip channel_without_credit'
    # The others have the host look into the device's memory.
    [spirv_columns]='--ignored every_call_begins_with_a_clearing'
    [spirv_failure]='--ignored a_peer_that'
    [stress_calls]='')
TESTS=(spirv_ring spirv_push spirv_graph spirv_mhc spirv_columns spirv_failure spirv_mutants stress_calls)

bundle() { # DIR [PTXAS]
    local repo folder=$1 target
    repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    target=${CARGO_TARGET_DIR:-$repo/target}
    mkdir -p "$folder"/{bin,tests,modules,mutants}
    cd "$repo"
    cargo build --release -p ccl-cli -p ccl-benches --bins
    cp "$target"/release/{ccl,back_to_back} "$folder/bin"
    local test
    for test in "${TESTS[@]}"; do
        cp "$(cargo test --release -p ccl-tests --test "$test" --no-run --message-format=json 2>/dev/null |
            sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)" "$folder/tests/$test"
    done
    strip "$folder"/bin/* "$folder"/tests/*
    .ci/kernels/build.sh --mutants "$folder/mutants"
    PTXAS=${2:-} .ci/kernels/ptx.sh "$folder/modules"
    PTXAS=${2:-} .ci/kernels/ptx.sh --mutants "$folder/mutants"
    PTXAS=${2:-} .ci/kernels/ptx.sh --controls "$folder/controls"
    mv "$folder"/mutants/*.{ptx,cubin} "$folder/modules" 2>/dev/null || true
    cp "${BASH_SOURCE[0]}" "$folder/cuda.sh"
    cp benches/peers/beside_nccl.py "$folder/peers.py"
    cp benches/peers/beside_nccl_table.py "$folder/table.py"
    du -sh "$folder" >&2
}

service() {
    export CUDA_MPS_PIPE_DIRECTORY=$SCRATCH/mps CUDA_MPS_LOG_DIRECTORY=$SCRATCH/mps-log
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d
    sleep 1
}

FAILED=()
PASSED=0

attempt() { # NAME COMMAND...
    local name=$1 log=$SCRATCH/$1.log
    shift
    if timeout "${LIMIT:-120}" "$@" >"$log" 2>&1; then
        PASSED=$((PASSED + 1))
        echo "ok     $name  $(grep -ho 'test result: ok. [0-9]* passed' "$log" | tr '\n' ' ')"
    else
        FAILED+=("$name")
        echo "FAILED $name"
        tail -n "${TAIL:-25}" "$log"
    fi
}

# The modules, a control's in the place of its family's, in a folder of the control's name.
modules_with() { # DIR NAME
    mkdir -p "$SCRATCH/$2"
    cp "$1"/modules/* "$SCRATCH/$2"
    cp "$1/controls/$2"/* "$SCRATCH/$2"
}

# What boundaries rest on, taken away: they must be wrong, or the test is. What they fall back on: right. That a kernel waits
# for the one before (unasked) and doesn't let the next one begin too soon (hasty) is needed only where there is code for
# the GPU's architecture.
controls() { # DIR
    local folder=$1 name boundaries complaint
    for name in mhc-trial_{impatient,late_sums} mhc-mutant_{left_alone,unmarked,unasked} \
        columns_l16-trial_alone columns_l16-mutant_{unasked,hasty}; do
        compgen -G "$folder/controls/$name/*.cubin" >/dev/null || [[ $name != *_@(unasked|hasty) ]] || continue
        modules_with "$folder" "$name"
        boundaries=(ccl perf mhc --ranks 4 --rows 1 --variant v4 --design a --graph 20 -n 1)
        [[ $name == columns* ]] || boundaries=(ccl perf mhc --ranks 1 "--rows=1,8" --design unfused --graph 10 -n 1)
        # Groups that find the call before still at work say so by name, or have read what wasn't there yet. Those whose places
        # others have are waited for in vain.
        case $name in
        columns*unasked) complaint='values : .* FAILED\|while another collective of the same communicator was running' ;;
        columns*hasty) complaint='timed out after' ;;
        *) complaint='values : .* FAILED' ;;
        esac
        if [[ $name == *-trial_* ]]; then
            ZE_SOFT_CUDA_MODULES=$SCRATCH/$name attempt "$name" "${boundaries[@]}"
        else
            # shellcheck disable=SC2016
            CCLX_TIMEOUT_MS=5000 ZE_SOFT_CUDA_MODULES=$SCRATCH/$name attempt "$name" \
                bash -c '"${@:3}" >"$1" 2>&1 && exit 1; cat "$1"; grep -q "$2" "$1"' - \
                "$SCRATCH/$name.out" "$complaint" "${boundaries[@]}"
        fi
    done
}

# Where only some of a sub-group ask whether others give up, all wait for ever: a survivor's kernel doesn't end. The last of all,
# since its processes are killed with a kernel at work.
last_control() { # DIR
    local name=push_l16-mutant_asked_by_some
    modules_with "$1" "$name"
    local aborts=("$1/tests/spirv_failure" --ignored --exact a_peer_that_aborts_a_short_message)
    LIMIT=25 attempt "$name-without" "${aborts[@]}"
    # shellcheck disable=SC2016
    ZE_SOFT_CUDA_MODULES=$SCRATCH/$name attempt "$name" \
        bash -c 'timeout -k 1 25 "$@"; ended=$?; ((ended == 124 || ended == 137))' - "${aborts[@]}"
}

perf() { # NAME RANKS ARGUMENTS...
    local name=$1 ranks=$2
    shift 2
    attempt "perf-$name-$ranks" ccl perf all_reduce --ranks "$ranks" -n 3 "$@"
}

prepare() { # DIR
    local folder=$1
    SCRATCH=$(mktemp -d)
    OUT=${OUT:-$folder/out}
    mkdir -p "$OUT"
    export PATH=$folder/bin:$PATH BED_MUTANTS=$folder/mutants RUST_BACKTRACE=0
    export ZE_SOFT_ENGINE=cuda ZE_SOFT_CUDA_MODULES=$folder/modules CCLX_DEVICE=soft CCLX_TIMEOUT_MS=${CCLX_TIMEOUT_MS:-20000}
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
}

verdict() {
    echo "$PASSED passed, ${#FAILED[@]} failed: ${FAILED[*]}"
    ((${#FAILED[@]} == 0))
}

# One rank a GPU, so that neither the service nor shared places are needed.
run_gpus() { # DIR
    local folder=$1 n granule algo
    prepare "$folder"
    n=$(nvidia-smi --list-gpus | wc -l)
    export ZE_SOFT_DEVICES=$n
    nvidia-smi topo -m | head -n "$((n + 1))"
    # The order of stores over the link, first: lines of each width and bulk, by communicators of their own, whose start
    # tries them, then by replays whose results are checked.
    for granule in 8 16 64; do
        CCLX_GRANULE=$granule perf "litmus-$granule" "$n" -b 24 -e 100K -f 17 -d bfloat16 --graph 1000
    done
    for algo in ring mesh oneshot; do
        perf "$algo" "$n" -b 24 -e 3M -f 17 -d bfloat16,float64 --algo "$algo" --graph 10
    done
    perf direct "$n" -b 24 -e 3M -f 17 -d bfloat16,float64 --algo direct -R 1
    perf types "$n" -b 1000 -e 1000 -d all -o all
    perf rank-order "$n" -b 24 -e 100K -f 17 -d bfloat16,float32 --order rank
    attempt mhc ccl perf mhc --ranks "$n" --rows 1,8,64 --design unfused --graph 20 -n 5 --json "$OUT/mhc.json"
    attempt mhc-fused ccl perf mhc --ranks "$n" --rows 1,8 --design all --graph 20 -n 5 --json "$OUT/mhc-fused.json"
    cp "$SCRATCH"/mhc*.log "$OUT"
    LIMIT=400 attempt peers python3 "$folder/peers.py" --ranks "$n" --ours "$folder/bin/back_to_back" \
        --json "$OUT/peers.json"
    cp "$SCRATCH/peers.log" "$OUT"
    python3 "$folder/table.py" "$OUT/peers.json" "$OUT/two_gpus.svg" | tee "$OUT/tables.md"
    verdict
}

run_all() { # DIR
    local folder=$1 test n algo
    prepare "$folder"
    service
    # Every type and reduction, both orders, several sizes with tails; every result of every rank compared by bits.
    for n in 1 2 4 8; do
        perf types "$n" -b 1000 -e 1000 -d all -o all
        perf rank-order "$n" -b 24 -e 100K -f 17 -d bfloat16,float32 --order rank
        for algo in ring mesh oneshot; do
            ((n == 1)) || perf "$algo" "$n" -b 24 -e 3M -f 17 -d bfloat16,float64 --algo "$algo" --graph 10
        done
        ((n == 1)) || perf direct "$n" -b 24 -e 3M -f 17 -d bfloat16,float64 --algo direct -R 1
    done
    for test in "${TESTS[@]}"; do
        # shellcheck disable=SC2086
        attempt "$test" "$folder/tests/$test" --test-threads=1 ${ARGUMENTS[$test]}
    done
    for n in 1 2 4; do
        attempt "mhc-$n" ccl perf mhc --ranks "$n" --rows 1,8,64 --design unfused --graph 10 -n 5
        ((n == 1)) || attempt "mhc-columns-$n" ccl perf mhc --ranks "$n" --rows 1,8 --variant v4 --design unfused,a --graph 20 -n 7 \
            --json "$OUT/mhc-$n.json"
    done
    controls "$folder"
    attempt replays ccl perf all_reduce --ranks 4 -b 8K -e 8K --graph 10000 -n 10
    timings >"$OUT/timings.jsonl" 2>"$OUT/timings.log" || FAILED+=(timings)
    last_control "$folder"
    verdict
}

timings() {
    local sizes=8,512,4096,8192,32768,131072,1048576,4194304,16777216,67108864
    timeout 60 back_to_back 1 copy $sizes 20 20
    for n in 2 4; do
        timeout 100 back_to_back $n graph $sizes 20 20
        timeout 100 back_to_back $n eager $sizes 20 20
        for algo in oneshot mesh ring; do
            CCL_ALLREDUCE=$algo timeout 100 back_to_back $n graph $sizes 20 20
        done
    done
    for mode in graph loose edge; do
        timeout 60 back_to_back 4 $mode 8192 100 100
    done
    timeout 60 back_to_back 8 graph 8,8192,1048576 20 20
}

case ${1:-} in
--bundle)
    bundle "${@:2}"
    ;;
--gpus)
    run_gpus "$(cd "${2:-$(dirname "${BASH_SOURCE[0]}")}" && pwd)"
    ;;
*)
    run_all "$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")}" && pwd)"
    ;;
esac
