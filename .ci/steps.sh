# shellcheck shell=bash
# The steps of .ci/run that take more than one command. Each runs in the root of the repository.

install_tools() {
    need_packages build-essential ca-certificates jq patchelf spirv-tools
    local component
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
    done
}

# What the scripts of this folder ask for, each for itself, in one go.
install_packages_of_beds() {
    need_packages binutils build-essential clang-15 jq libclc-15 libfabric1 llvm-spirv-15 patchelf python3 python3-pip spirv-tools \
        unzip valgrind
}

# All builds select the whole workspace, or all of it but ccl-tests: with a choice of packages cargo builds what they share
# again, with just the features that these need. Tests have ccl-ze's hooks, what is shipped has not.
build_tests() {
    build_driver
    cargo test --workspace --release --no-run --message-format json-render-diagnostics >"$CI_PROGRAMS.new"
    mv "$CI_PROGRAMS.new" "$CI_PROGRAMS"
    say "$(jq -r 'select(.executable != null) | .executable' "$CI_PROGRAMS" | wc -l) programs"
}

# What is shipped but for the library itself: of that there is one file, which the tests take until they are over. In a whole
# run it is there; cargo would put it in place anew, under those who use it.
build_driver() {
    [[ ! -s ${CI_PROGRAMS:-} ]] || return 0
    cargo build --release --quiet --workspace --exclude ccl-tests --exclude ccl-ffi --lib >&2
}

build_shipped() {
    cargo build --release --quiet --workspace --exclude ccl-tests >&2
}

# The library with hooks, which comes with the tests.
build_hooked() {
    [[ -s ${CI_PROGRAMS:-} ]] || cargo build --release --quiet --workspace --example hooked >&2
}

test_beyond_4_gib() {
    test_program ccl-tests test push_bits --ignored
}

# loom replaces the atomics of the code that it models. With a target named, its flag is not for what runs while compiling,
# which is there already.
model_slots_with_loom() {
    RUSTFLAGS='--cfg loom' cargo test --release --workspace --test loom_slots --test loom_bulk \
        --target "$(rustc --print host-tuple)"
}

build_documentation() {
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --release
}

compare_abi() {
    # shellcheck disable=SC1091
    source .beds/loader/env
    .ci/abi/check.sh "$LOADER_INCLUDE"
}

# The command as the readme has it, but for the largest size, and with results that a program can read.
try_readme_command() {
    local command json
    command=$(grep -m1 -E '^cargo run .* perf all_reduce' README.md)
    [[ $command == *' -e 64M '* ]] || die "the readme's command has another form than expected: $command"
    json=$(mktemp)
    # shellcheck disable=SC2086
    timeout 300 ${command/ -e 64M / -e 256K } --json "$json"
    jq -e '
        .version == 1 and .collective == "all_reduce" and .ranks == 4 and (.device | length > 0)
        and ([.results[].bytes] | unique) == [8, 32, 128, 512, 2048, 8192, 32768, 131072]
        and ([.results[] | select(.in_place)] | length) == 8
        and ([.results[] | select(.in_place | not)] | length) == 8
        and all(.results[]; .dtype == "bfloat16" and .wrong == 0 and .median_us > 0 and .ze_calls_per_op <= 3)
    ' "$json" || {
        say "unexpected results:"
        cat "$json"
        return 1
    }
    rm -f "$json"
}

# Every crate that we build on may be used under our own licence's terms, and comes from the package registry.
check_dependencies() {
    cargo metadata --locked --format-version 1 --quiet | jq -e -r '
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "0BSD",
         "Unlicense", "Unicode-3.0", "CC0-1.0", "MPL-2.0"] as $usable
        # Where brackets and AND mix, stricter than the expression: each part of the AND needs a usable alternative.
        | def usable: gsub("/"; " OR ") | split(" AND ")
            | all(gsub("[()]"; "") | split(" OR ") | any(. as $one | $usable | index($one)));
        [.packages[] | select(.source != null)
            | select((.license // "none" | usable | not) or (.source | startswith("registry+") | not))
            | "\(.name) \(.version): licence \(.license), from \(.source)"] as $bad
        | if $bad == [] then "\([.packages[] | select(.source != null)] | length) crates looked at"
          else ($bad[], error("not usable")) end
    '
}

# The program cargo built for a test target: looked up if build_tests ran, or else built.
built_program() { # PACKAGE KIND NAME, with KIND test or lib
    local selector=("--$2" "$3")
    [[ $2 != lib ]] || selector=(--lib)
    if [[ -s ${CI_PROGRAMS:-} ]]; then
        cat "$CI_PROGRAMS"
    else
        cargo test --release --quiet --no-run --workspace "${selector[@]}" --message-format json-render-diagnostics
    fi | jq -r --arg package "$1" --arg kind "$2" --arg name "${3//-/_}" '
        select(.reason == "compiler-artifact" and .executable != null and .profile.test)
        | select(.package_id | test("[/]" + $package + "#|#" + $package + "@"))
        | select((.target.name | gsub("-"; "_")) == $name)
        | select(.target.kind | any(. == $kind or ($kind == "lib" and endswith("lib")))) | .executable' | tail -n 1
}

# test_program PACKAGE KIND NAME [ARGUMENTS]: runs it.
test_program() {
    local program
    program=$(built_program "$1" "$2" "$3")
    [[ -n $program ]] || die "cargo built no $2 $3 in package $1"
    "$program" "${@:4}"
}

test_on_loader() { # MODE PACKAGE KIND NAME [VARIABLE=VALUE...] [ARGUMENTS]
    local mode=$1 program
    program=$(built_program "$2" "$3" "$4")
    [[ -n $program ]] || die "cargo built no $3 $4 in package $2"
    shift 4
    while [[ ${1:-} =~ ^[A-Z][A-Z0-9_]*= ]]; do
        export "${1?}"
        shift
    done
    .ci/beds/run-on-loader.sh --mode "$mode" "$program" "$@"
}
