# Turns our declarations (Rust, on standard input or as files) into a C++ program that prints the same facts from the
# headers. Signatures and the types of driver table slots are compared by the compiler: a difference doesn't build.
# Variables: section (numbers, texts, structs or functions) picks what to print, group (specification or vendor) whose
# functions.

function c_type(rust) {
    if (sub(/^\*const /, "", rust)) return c_type(rust) " const *"
    if (sub(/^\*mut /, "", rust)) return c_type(rust) " *"
    if (rust in scalar) return scalar[rust]
    return rust
}

function statement_number(text, part) {
    split(text, part, /[ :]+/)
    printf "    number(\"%s\", (unsigned long long)(%s));\n", part[3], part[3]
}

function statement_text(text, part) {
    split(text, part, /[ :]+/)
    printf "    text(\"%s\", %s);\n", part[3], part[3]
}

function statement_field(text, name, type) {
    sub(/^pub (r#)?/, "", text)
    sub(/,$/, "", text)
    name = type = text
    sub(/:.*/, "", name)
    sub(/^[^:]*: */, "", type)
    printf "    field(\"%s.%s\", offsetof(%s, %s), sizeof(%s::%s));\n", struct, name, struct, name, struct, name
    if (type ~ /^Option<ze[A-Za-z0-9]+_t>$/ && struct ~ /dditable/) {
        gsub(/^Option<|_t>$/, "", type)
        printf "    static_assert(std::is_same<decltype(%s::%s), decltype(&%s)>::value, \"%s.%s\");\n", \
            struct, name, type, struct, name
    }
}

function statement_function(text, name, args, result, count, part, i, list, plain, type) {
    name = args = result = text
    sub(/:.*/, "", name)
    sub(/^.*-> */, "", result)
    sub(/;$/, "", result)
    sub(/^[^(]*\( */, "", args)
    sub(/,? *\) *->.*/, "", args)
    count = split(args, part, /, */)
    list = plain = ""
    for (i = 1; i <= count; i++) {
        type = part[i]
        sub(/^[^:]*: */, "", type)
        list = list (i > 1 ? ", " : "") c_type(type)
        plain = plain (i > 1 ? ", " : "") type
    }
    plain = "(" plain ") -> " result
    printf "    static_assert(std::is_same<decltype(&%s), %s (*)(%s)>::value, \"%s\");\n", name, c_type(result), list, name
    printf "    text(\"%s\", \"%s\");\n", name, plain
}

BEGIN {
    scalar["c_void"] = "void"; scalar["c_char"] = "char"; scalar["usize"] = "size_t"
    scalar["u8"] = "uint8_t"; scalar["u16"] = "uint16_t"; scalar["u32"] = "uint32_t"; scalar["u64"] = "uint64_t"
    scalar["i32"] = "int32_t"; scalar["i64"] = "int64_t"; scalar["f32"] = "float"
}

{
    sub(/^ +/, "")
    sub(/ +$/, "")
}

/^constants! \{/ { block = "numbers" }
/^names! \{/ { block = "texts" }
/^structs! \{/ { block = "structs" }
/^functions! \{/ { block = "functions" }
block == "functions" && /^(required|optional|extension) \{/ { members = "specification"; next }
block == "functions" && /^vendor \{/ { members = "vendor"; next }

# A statement may span lines: join up to its semicolon.
block == section && block != "structs" && (pending != "" || /^pub const / || /: ze[A-Za-z0-9]+_t = fn\(/) {
    pending = pending (pending == "" ? "" : " ") $0
    if ($0 !~ /;$/) next
    if (section == "numbers") statement_number(pending)
    else if (section == "texts") statement_text(pending)
    else if (members == group) statement_function(pending)
    pending = ""
}

block == section && section == "structs" && /^pub struct / {
    struct = $3
    printf "    structure(\"%s\", sizeof(%s), alignof(%s));\n", struct, struct, struct
    next
}
block == section && section == "structs" && /^pub [a-zA-Z0-9_#]+: / { statement_field($0) }
