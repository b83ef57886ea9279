//! Linker options of the library.

fn main() {
    // Rebuilds for changes of this file only, not of the installation scripts beside it.
    println!("cargo:rerun-if-changed=build.rs");
    // The name under which programs look for it: the number changes with the ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbedform.so.0");
    // Hides C symbols of other crates, which come in archives; the library's own objects do not.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
