//! Gives the library the name that programs linked against oneCCL look for, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libccl.so.2");
    // Its threads run in it as long as the process does.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // As a plugin it is loaded after a library that has the same names, and means its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
