//! Gives the library the name under which programs look for it: the number changes with the ABI.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbedform.so.0");
}
