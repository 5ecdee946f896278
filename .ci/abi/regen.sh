#!/bin/sh
# regen.sh INCLUDE_DIR [specification|vendor]
# Prints the table of sizes, offsets, values and signatures that the headers under INCLUDE_DIR give to everything
# level-zero-sys declares: of the specification (level_zero/ze_api.h, ze_ddi.h; the default) or of the driver's own
# headers (level_zero/driver_experimental). Needs a C++ compiler: CXX, else c++.
set -eu
export LC_ALL=C

include=${1:?usage: regen.sh INCLUDE_DIR [specification|vendor]}
group=${2:-specification}
here=$(cd "$(dirname "$0")" && pwd)
src=$here/../../level-zero-sys/src

case $group in
specification)
    set -- "$src"/types/[a-y]*.rs "$src"/ddi.rs "$src"/functions.rs
    headers='level_zero/ze_api.h level_zero/ze_ddi.h'
    ;;
vendor)
    set -- "$src"/types/zex.rs "$src"/functions.rs
    # The structure types are defined only where the graph header has not been seen: it comes after them.
    headers='level_zero/ze_stypes.h level_zero/driver_experimental/zex_api.h level_zero/driver_experimental/zex_event.h
        level_zero/driver_experimental/zex_driver.h level_zero/driver_experimental/zex_graph.h'
    ;;
*)
    echo "regen.sh: no such group: $group" >&2
    exit 2
    ;;
esac

version=$(sed -n 's/.*@version \(v[^ ]*\).*/\1/p;/@version/q' "$include/level_zero/ze_api.h")
if [ -z "$version" ]; then
    echo "regen.sh: $include/level_zero/ze_api.h states no version" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
    for header in $headers; do
        echo "#include <$header>"
    done
    cat <<'CODE'
#include <cstddef>
#include <cstdio>
#include <type_traits>

static const char *kind;
static void number(const char *name, unsigned long long value) { std::printf("number\t%s\t0x%llx\n", name, value); }
static void text(const char *name, const char *value) { std::printf("%s\t%s\t%s\n", kind, name, value); }
static void structure(const char *name, size_t size, size_t align) {
    std::printf("struct\t%s\t%zu\t%zu\n", name, size, align);
}
static void field(const char *name, size_t offset, size_t size) {
    std::printf("field\t%s\t%zu\t%zu\n", name, offset, size);
}
CODE
    for name in numbers texts structs functions; do
        echo "static void $name() {"
        awk -v section="$name" -v group="$group" -f "$here/probe.awk" "$@"
        echo '}'
    done
    cat <<'CODE'
int main() {
    numbers();
    kind = "text";
    texts();
    structs();
    kind = "function";
    functions();
}
CODE
} >"$work/probe.cpp"

"${CXX:-c++}" -std=c++17 -w -I"$include" -o "$work/probe" "$work/probe.cpp"
echo "# ze_api.h $version"
"$work/probe"
