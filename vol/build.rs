//! Compiles the C sources beside this file.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=.");
    let files = fs::read_dir(".")?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<Result<Vec<PathBuf>, std::io::Error>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    let mut build = cc::Build::new();
    build.files(files).std("c11").warnings(true).extra_warnings(true).flag("-fvisibility=hidden");
    build.compile("bedform_hdf5_sources");
    Ok(())
}
