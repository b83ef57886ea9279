//! Puts the libraries of `bedform run` into the Python package, for maturin (the feature `package`).
//!
//! They load into programs of any kind, so they are no part of the extension. Where cargo has built them
//! already, as our Makefile does, `BEDFORM_BUILT` names the directory. Else a cargo of its own builds
//! them, in a target directory of its own, because this one's is locked.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const BUILT: &str = "BEDFORM_BUILT";

/// The packages of the libraries, the names under which cargo builds them, and their places in the
/// Python package. HDF5 tries every library in the folder of its connector, so that has its own.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("bedform-preload", "libbedform_preload.so", "libbedform_preload.so"),
    ("bedform-vol", "libbedform_hdf5.so", "hdf5_plugin/libbedform_hdf5.so"),
    ("bedform-capi", "libbedform_capi.so", "libbedform.so"),
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CARGO_FEATURE_PACKAGE").is_none() {
        println!("cargo::rerun-if-changed=build.rs");
        return Ok(());
    }
    println!("cargo::rerun-if-env-changed={BUILT}");
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = here.parent().ok_or("the bindings have no workspace")?;
    let built = match env::var_os(BUILT) {
        Some(directory) => PathBuf::from(directory),
        None => build(workspace)?,
    };
    let package = package_directory(&here, workspace)?;
    for (_, name, place) in LIBRARIES {
        let library = built.join(name);
        println!("cargo::rerun-if-changed={}", library.display());
        install(&library, &package.join(place))?;
    }
    Ok(())
}

/// Builds the libraries in the profile of the extension; returns the directory that holds them.
fn build(workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    for source in ["Cargo.toml", "Cargo.lock", "crates", "vol"] {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let (target, profile) = (env::var("TARGET")?, env::var("PROFILE")?);
    let directory = PathBuf::from(env::var("OUT_DIR")?).join("libraries");
    let status = Command::new(env::var("CARGO")?)
        .args(["build", "--locked", "--target", &target])
        .args(LIBRARIES.iter().flat_map(|(package, ..)| ["--package", package]))
        .args((profile == "release").then_some("--release"))
        .arg("--target-dir")
        .arg(&directory)
        .current_dir(workspace)
        .status()?;
    if !status.success() {
        return Err(
            format!("the libraries of `bedform run` were not built: cargo: {status}").into()
        );
    }
    Ok(directory.join(target).join(profile))
}

/// Returns the directory of the Python package, which stands beside pyproject.toml: here, or, in a
/// source distribution, at its top.
fn package_directory(here: &Path, workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let place = [here, workspace].into_iter().find(|place| place.join("pyproject.toml").exists());
    Ok(place.ok_or("pyproject.toml is neither here nor at the top")?.join("bedform"))
}

/// Puts a library into the package as a new file: a program may be running with the old one.
fn install(library: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    // A package without the library has it put there again.
    println!("cargo::rerun-if-changed={}", target.display());
    let directory = target.parent().ok_or("a library without a directory")?;
    fs::create_dir_all(directory)?;
    let hidden = target.with_extension("so.tmp");
    fs::copy(library, &hidden)?;
    // As old as this program: cargo would take a newer file for a change, at every build.
    let age = fs::metadata(env::current_exe()?)?.modified()?;
    File::options().append(true).open(&hidden)?.set_modified(age)?;
    Ok(fs::rename(hidden, target)?)
}
