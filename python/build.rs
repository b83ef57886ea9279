//! Builds the library of `bedform run` into the Python package, for maturin (the feature `package`).
//!
//! The library stands before the reads of every program, so it is no part of the extension: a cargo
//! of its own builds it, in a target directory of its own, because this one's is locked.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libbedform_preload.so";

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_PACKAGE").is_none() {
        println!("cargo::rerun-if-changed=build.rs");
        return Ok(());
    }
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = here.parent().ok_or("the bindings have no workspace")?;
    for source in ["Cargo.toml", "Cargo.lock", "crates/bedform-patterns", "crates/bedform-preload"]
    {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let package = package_directory(&here, workspace)?;
    install(&build(workspace)?, &package)
}

/// Builds the library in the profile of the extension; returns its path.
fn build(workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let (target, profile) = (env::var("TARGET")?, env::var("PROFILE")?);
    let directory = PathBuf::from(env::var("OUT_DIR")?).join("preload");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--locked", "--package", "bedform-preload", "--target", &target])
        .args((profile == "release").then_some("--release"))
        .arg("--target-dir")
        .arg(&directory)
        .current_dir(workspace)
        .status()?;
    if !status.success() {
        return Err(format!("the library of `bedform run` was not built: cargo: {status}").into());
    }
    Ok(directory.join(target).join(profile).join(LIBRARY))
}

/// Returns the directory of the Python package, which stands beside pyproject.toml: here, or, in a
/// source distribution, at its top.
fn package_directory(here: &Path, workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let place = [here, workspace].into_iter().find(|place| place.join("pyproject.toml").exists());
    Ok(place.ok_or("pyproject.toml is neither here nor at the top")?.join("bedform"))
}

/// Puts the library into the package as a new file: a program may be running with the old one.
fn install(library: &Path, package: &Path) -> Result<(), Box<dyn Error>> {
    let target = package.join(LIBRARY);
    // A package without the library has it built again.
    println!("cargo::rerun-if-changed={}", target.display());
    let hidden = package.join(format!(".{LIBRARY}.tmp"));
    fs::copy(library, &hidden)?;
    // As old as this program: cargo would take a newer file for a change, at every build.
    let age = fs::metadata(env::current_exe()?)?.modified()?;
    File::options().append(true).open(&hidden)?.set_modified(age)?;
    Ok(fs::rename(hidden, target)?)
}
