# shellcheck shell=bash
# What the scripts share that run a program under the real Level Zero loader and its validation layer. Source it after lib.sh
# (and steps.sh for find_driver); `repo` and `here` are the script's, and SCRATCH is set.
# shellcheck disable=SC2154

# find_driver: sets `driver` to BED_DRIVER, or to ours, built.
find_driver() {
    driver=${BED_DRIVER:-}
    if [[ -z $driver ]]; then
        (cd "$repo" && build_driver)
        driver=${CARGO_TARGET_DIR:-$repo/target}/release/libze_soft.so
    fi
    driver=$(realpath -e "$driver") || die "no driver: $driver"
}

# validate MODE: sets `layer` to the variables that put the validation layer between, `preload` to what the program is to have
# preloaded (BED_PRELOAD with it), and `findings` to the folder that the layer's output goes to (BED_KEEP or a scratch one).
# Modes are bare, params and full.
validate() {
    preload=${BED_PRELOAD:-}
    layer=()
    case $1 in
    bare) return 0 ;;
    params) ;;
    full) layer=(ZEL_ENABLE_EVENTS_CHECKER=1 ZEL_ENABLE_BASIC_LEAK_CHECKER=1) ;;
    *) die "unknown mode $1" ;;
    esac
    findings=${BED_KEEP:-$SCRATCH/findings}
    mkdir -p "$findings"
    rm -f "$findings"/*.{log,stderr}
    cc -shared -fPIC -O1 -Wall -Werror -o "$SCRATCH/capture.so" "$here/capture.c"
    preload=$SCRATCH/capture.so${preload:+:$preload}
    layer+=(ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 ZEL_ENABLE_LOADER_LOGGING=1
        ZEL_LOADER_LOGGING_LEVEL=trace BED_FINDINGS="$findings")
}

# judge MODE STATUS WHAT: ends the script, with STATUS if the layer found nothing.
judge() {
    if [[ $1 != bare ]] && ! "$here/findings.sh" "$1" "$findings"; then
        say "$(basename "$0" .sh): the validation layer ($1) complains about $3"
        exit 1
    fi
    (($2 == 0)) || say "$(basename "$0" .sh): $3 ended with status $2"
    exit "$2"
}
