//! How the library is linked.

fn main() {
    // Not what installs the library, beside it.
    println!("cargo:rerun-if-changed=build.rs");
    // The name under which programs look for it: the number changes with the ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbedform.so.0");
    // What other crates export to C is no part of the library: their objects come in archives, its own do
    // not.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
