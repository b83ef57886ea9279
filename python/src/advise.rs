//! Calibration of storage, and advice on layouts.

use std::path::PathBuf;

use bedform::layout::{AdviseRequest, advise as best_layout};
use bedform::{
    Error, ErrorKind, calibrate as measure, calibrate_url as measure_url, forget_experience,
};
use bedform_remote::{RemoteOptions, RemoteStorage, UrlError};
use bedform_storage::{CalibrateOptions, Mode, Profile, ProfileError};
use pyo3::prelude::*;

use crate::arguments::options;
use crate::error::{raise, to_json};
use crate::signals::{self, detached};

pub(crate) fn profile_error(error: ProfileError) -> PyErr {
    match error {
        ProfileError::Storage(error) => raise(error.into()),
        other => raise(Error::new(ErrorKind::InvalidArgument, other.to_string())),
    }
}

fn url_error(error: UrlError) -> PyErr {
    raise(Error::new(ErrorKind::InvalidArgument, error.to_string()))
}

/// Parses the options of an object store from JSON, as for opening a store.
fn remote_options(text: &str) -> PyResult<RemoteOptions> {
    Ok(options(text)?.remote)
}

/// Opens the place at `url` for its name alone, which needs no credentials.
fn nameless(url: &str, remote: &str) -> PyResult<RemoteStorage> {
    let options = RemoteOptions { anonymous: true, ..remote_options(remote)? };
    RemoteStorage::open(url, Mode::ReadOnly, &options).map_err(url_error)
}

/// Measures the storage below `path`, or at a URL if `remote` has options, and returns its profile
/// as JSON. Calls `progress` with the stage and the share done; an exception of it stops the
/// measurement.
#[pyfunction]
#[pyo3(signature = (path, *, bytes=None, seconds=None, name=None, remote=None, progress=None))]
pub(crate) fn calibrate(
    py: Python<'_>,
    path: PathBuf,
    bytes: Option<u64>,
    seconds: Option<f64>,
    name: Option<String>,
    remote: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut options = CalibrateOptions::default();
    if let Some(bytes) = bytes {
        options.bytes = bytes;
    }
    if let Some(seconds) = seconds {
        options.seconds_max = seconds;
    }
    if let Some(name) = name {
        options.name = name;
    }
    let open = |remote| {
        let url = path.to_string_lossy();
        RemoteStorage::open(&url, Mode::ReadOnly, &remote_options(remote)?).map_err(url_error)
    };
    let remote = remote.map(open).transpose()?;
    let outcome = detached(py, || {
        let tell = |stage: &'static str, done: f64| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => progress.call1(py, (stage, done)).map(drop),
                    None => Ok(()),
                }
            });
            if let Err(error) = told {
                signals::keep(error);
            }
        };
        let profile = match &remote {
            None => measure(&path, &options, &mut |step| tell(step.stage, step.done)),
            Some(remote) => measure_url(remote, &options, &mut |step| tell(step.stage, step.done)),
        }
        .map_err(raise)?;
        profile.to_json().map_err(profile_error)
    });
    let profile = outcome?;
    signals::take().map_or(Ok(profile), Err)
}

/// Returns the stored profile of the storage below `path`, or at a URL if `remote` has options, as
/// JSON.
#[pyfunction]
#[pyo3(signature = (path, remote=None))]
pub(crate) fn profile_for(
    py: Python<'_>,
    path: PathBuf,
    remote: Option<&str>,
) -> PyResult<Option<String>> {
    let found = match remote {
        None => detached(py, || Profile::for_path(&path)),
        Some(remote) => Profile::for_system(nameless(&path.to_string_lossy(), remote)?.system()),
    };
    found
        .and_then(|found| found.map(|profile| profile.to_json()).transpose())
        .map_err(profile_error)
}

/// Stores a profile for the storage below `path`, or at a URL if `remote` has options; returns its
/// path.
#[pyfunction]
#[pyo3(signature = (profile, path, remote=None))]
pub(crate) fn keep_profile(
    py: Python<'_>,
    profile: &str,
    path: PathBuf,
    remote: Option<&str>,
) -> PyResult<PathBuf> {
    let profile = Profile::from_json("the profile", profile).map_err(profile_error)?;
    let kept = match remote {
        None => detached(py, || profile.save_for_path(&path)),
        Some(remote) => {
            profile.save_for_system(nameless(&path.to_string_lossy(), remote)?.system())
        }
    };
    let place = kept.map_err(profile_error)?;
    forget_experience(&place);
    Ok(place)
}

/// Saves the measured experience of reads with the stored profiles; called at the end of a process.
#[pyfunction]
pub(crate) fn keep_experience() {
    bedform::keep_experience();
}

/// Returns the default profile for unmeasured storage, as JSON: of a disk, or of an object store.
#[pyfunction]
#[pyo3(signature = (is_remote=false))]
pub(crate) fn default_profile(is_remote: bool) -> PyResult<String> {
    let assumed = if is_remote { Profile::default_remote() } else { Profile::default_local() };
    assumed.to_json().map_err(profile_error)
}

/// Returns the best layout for a request in JSON (see `AdviseRequest::from_json`) on a profile in
/// JSON, as JSON and as text.
#[pyfunction]
pub(crate) fn advise(py: Python<'_>, question: &str, profile: &str) -> PyResult<(String, String)> {
    let profile = Profile::from_json("the profile", profile).map_err(profile_error)?;
    let question: serde_json::Value =
        serde_json::from_str(question).map_err(|error| raise(Error::invalid(error.to_string())))?;
    detached(py, || {
        let request = AdviseRequest::from_json(&question, profile)?;
        let advice = best_layout(&request).map_err(|error| Error::invalid(error.to_string()))?;
        Ok((to_json(&advice)?, advice.to_string()))
    })
    .map_err(raise)
}
