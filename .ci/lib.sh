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
    with_apt install_packages "${missing[@]}"
}

install_packages() {
    # The lists may be absent or stale, so a failed installation is tried once more behind a fresh update.
    apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2 && return 0
    retry 3 apt-get update -qq </dev/null >&2
    retry 3 apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# with_apt COMMAND...: steps that run beside each other use the system's package lists one at a time.
with_apt() {
    (
        flock "$lock"
        "$@"
    ) {lock}>"${TMPDIR:-/tmp}/ccl-ci-apt.lock"
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

# A step is declared by `add LANE TITLE COMMAND...`. Lanes run beside each other, the steps of a lane one after another; a step
# can wait for others (`after TITLE...`, said ahead of its `add`). `run_lanes` reports in the order of declaration.
declare -A LANE_OF=() WAITS_OF=() COMMAND_OF=()
TITLES=()
AFTER=()

after() { AFTER=("$@"); }

add() { # LANE TITLE COMMAND...
    local lane=$1 title=$2 waits=("${AFTER[@]}")
    shift 2
    AFTER=()
    wanted "$title" || return 0
    [[ -z ${LANE_OF[$title]:-} ]] || die "two steps are called '$title'"
    TITLES+=("$title")
    LANE_OF[$title]=$lane
    # What was not asked for is not waited for.
    WAITS_OF[$title]=$(for wait in "${waits[@]}"; do [[ -z ${LANE_OF[$wait]:-} ]] || printf '%s\n' "$wait"; done)
    COMMAND_OF[$title]=${*@Q}
}

# step_file TITLE SUFFIX
step_file() { printf '%s/%s.%s' "$LOGS" "$(tr -c 'a-zA-Z0-9\n' - <<<"$1")" "$2"; }

# run_lane LANE: its steps, each with its output in a log; beside that, a file with its exit status and how long it took.
run_lane() {
    local title waited status start child='' command
    trap '[[ -z $child ]] || kill "$child" 2>/dev/null; exit 130' INT TERM
    for title in "${TITLES[@]}"; do
        [[ ${LANE_OF[$title]} == "$1" ]] || continue
        while read -r waited; do
            until [[ -z $waited || -e $(step_file "$waited" ended) ]]; do sleep 0.2; done
        done <<<"${WAITS_OF[$title]}"
        status=0 start=$SECONDS
        eval "command=(${COMMAND_OF[$title]})"
        # A shell of its own: set -e is off in a function whose status is asked for, and only a process can be timed out.
        # shellcheck disable=SC2016
        timeout -k 10 "${STEP_LIMIT:-1500}" bash -euo pipefail -c 'source .ci/lib.sh; source .ci/steps.sh; "$@"' \
            step "${command[@]}" >"$(step_file "$title" log)" 2>&1 </dev/null &
        # timeout has a process group of its own, which an interrupted run must take along.
        child=$!
        wait "$child" || status=$?
        child=''
        # Whoever waits for the file finds it complete.
        echo "$status $((SECONDS - start)) $start" >"$(step_file "$title" new)"
        mv "$(step_file "$title" new)" "$(step_file "$title" ended)"
    done
}

# Runs what was added and counts its results, whatever they are.
run_lanes() {
    local title lane ended
    local -A pid_of=()
    for title in "${TITLES[@]}"; do rm -f "$(step_file "$title" ended)"; done
    for title in "${TITLES[@]}"; do
        lane=${LANE_OF[$title]}
        [[ -z ${pid_of[$lane]:-} ]] || continue
        run_lane "$lane" &
        pid_of[$lane]=$!
    done
    # shellcheck disable=SC2064
    trap "kill ${pid_of[*]} 2>/dev/null || true; wait" EXIT
    trap 'exit 130' INT TERM
    for title in "${TITLES[@]}"; do
        say "--- $title"
        ended=$(step_file "$title" ended)
        until [[ -e $ended ]]; do
            kill -0 "${pid_of[${LANE_OF[$title]}]}" 2>/dev/null || [[ -e $ended ]] || die "its lane is gone"
            sleep 0.2
        done
        report_step "$title"
    done
    wait
    trap - EXIT INT TERM
}

# A step that runs Rust tests counts as those tests, any other as one check.
report_step() { # TITLE
    local log status took start passed failed skipped
    log=$(step_file "$1" log)
    read -r status took start <"$(step_file "$1" ended)"
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
        FAILED_STEPS+=("$1")
        say "    FAILED with status $status after $took s; what it says failed, and the end of its output:"
        # With what a panic says, which is on the lines after its place.
        grep -hE -A 2 --no-group-separator '^(test .* FAILED|error)|panicked at' "$log" |
            cut -c 1-600 | head -n 60 | sed 's/^/    | /' >&2 || true
        say "    ..."
        tail -n "${TAIL_LINES:-80}" "$log" | sed 's/^/    | /' >&2
    else
        say "    ok, $took s from second $start on: $passed passed, $skipped skipped"
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
