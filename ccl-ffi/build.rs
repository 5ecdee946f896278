//! Gives the library the name that programs linked against oneCCL look for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libccl.so.2");
    println!("cargo:rerun-if-changed=build.rs");
}
