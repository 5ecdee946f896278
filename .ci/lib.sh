# shellcheck shell=bash
# Helpers shared by the scripts in this folder. Source it; it changes no shell option.

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# retry TRIES COMMAND...: mirrors fail for a moment now and then.
retry() {
    local tries=$1 attempt
    shift
    for ((attempt = 1; ; attempt++)); do
        "$@" && return 0
        ((attempt < tries)) || return 1
        say "attempt $attempt of $tries failed: $*"
        sleep $((attempt * 5))
    done
}

# need_packages NAME...: installs the Debian packages that are missing.
need_packages() {
    local name missing=()
    for name in "$@"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be absent or stale, so a failed installation is tried once more behind a fresh update.
    apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2 && return 0
    retry 3 apt-get update -qq </dev/null >&2
    retry 3 apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
}

# The folder for scratch files of one script; removed when the shell that asked for it ends.
scratch_folder() {
    local folder
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$folder'" EXIT
    # shellcheck disable=SC2034
    SCRATCH=$folder
}

# Totals over all steps of a run.
PASSED=0
FAILED=0
SKIPPED=0
FAILED_STEPS=()

# sum_of LOG WORD: adds up "N WORD" over the result lines that Rust's test harness prints.
sum_of() {
    awk -v word="$2" '/^test result: /{ for (i = 2; i <= NF; i++) if ($i == word ";" ) total += $(i - 1) } END { print total + 0 }' "$1"
}

# step TITLE COMMAND...: runs one step with its output in a log, counts its results, and goes on whatever they are.
# A step that runs Rust tests counts as those tests, any other as one check.
step() {
    local title=$1 log status=0 start=$SECONDS passed failed skipped
    shift
    log=$LOGS/$(tr -c 'a-zA-Z0-9\n' - <<<"$title").log
    say "--- $title"
    # A shell of its own: set -e is off in a function whose status is asked for, and only a process can be timed out.
    # shellcheck disable=SC2016
    timeout -k 10 "${STEP_LIMIT:-1500}" bash -euo pipefail -c 'source .ci/lib.sh; source .ci/steps.sh; "$@"' \
        step "$@" >"$log" 2>&1 </dev/null &
    # timeout has a process group of its own, which an interrupted run must take along.
    # shellcheck disable=SC2064
    trap "kill $! 2>/dev/null; exit 130" INT TERM
    wait $! || status=$?
    trap - INT TERM
    passed=$(sum_of "$log" passed)
    failed=$(sum_of "$log" failed)
    skipped=$(sum_of "$log" ignored)
    if ! grep -q '^test result: ' "$log"; then
        ((status == 0)) && passed=1 || failed=1
    elif ((failed == 0 && (status != 0 || passed == 0))); then
        # It broke outside its tests, or a filter or a build flag left none of them.
        failed=1
    fi
    PASSED=$((PASSED + passed))
    FAILED=$((FAILED + failed))
    SKIPPED=$((SKIPPED + skipped))
    if ((status != 0 || failed != 0)); then
        FAILED_STEPS+=("$title")
        say "    FAILED with status $status after $((SECONDS - start)) s; what it says failed, and the end of its output:"
        grep -E '^(test .* FAILED|error)|panicked at' "$log" | head -n 20 | sed 's/^/    | /' >&2 || true
        say "    ..."
        tail -n "${TAIL_LINES:-80}" "$log" | sed 's/^/    | /' >&2
    else
        say "    ok, $((SECONDS - start)) s: $passed passed, $skipped skipped"
    fi
}

# A copy of a program that names a bed's own dynamic linker, so that one which starts itself again stays in the bed.
bed_copy() { # BINARY LINKER LIBRARIES; prints the copy's path
    local copy
    copy=$SCRATCH/$(basename "$1")
    # Chained: a substitution doesn't stop at the first failure by itself.
    cp "$1" "$copy" &&
        patchelf --set-interpreter "$2" --set-rpath "$3" --force-rpath "$copy" &&
        printf '%s\n' "$copy"
}

# Seconds that a whole run may take.
TIME_LIMIT=${TIME_LIMIT:-2700}

# The last line of a run, and its exit status.
finish() {
    say "total: $((SECONDS / 60)) min $((SECONDS % 60)) s"
    if ((SECONDS > TIME_LIMIT)); then
        FAILED_STEPS+=("time: more than $((TIME_LIMIT / 60)) min")
        FAILED=$((FAILED + 1))
    fi
    if ((PASSED == 0)); then
        FAILED_STEPS+=('nothing was run')
        FAILED=$((FAILED + 1))
    fi
    ((${#FAILED_STEPS[@]} == 0)) || printf 'failed step: %s\n' "${FAILED_STEPS[@]}" >&2
    printf '%d passed, %d failed, %d skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
    ((FAILED == 0))
}
