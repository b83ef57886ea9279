//! Calibration and advice.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use bedform::layout::{AdviseRequest, advise as best_layout};
use bedform::{Error, ErrorKind};
use bedform_storage::{CalibrateOptions, Profile, ProfileError, calibrate as measure};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::raise;

pub(crate) fn profile_error(error: ProfileError) -> PyErr {
    match error {
        ProfileError::Storage(error) => raise(error.into()),
        other => raise(Error::new(ErrorKind::InvalidArgument, other.to_string())),
    }
}

/// Measures the storage below `path`, and gives its profile as JSON. `progress` is called with the
/// stage and the part done; what it raises stops the measurement.
#[pyfunction]
#[pyo3(signature = (path, *, bytes=None, seconds=None, name=None, progress=None))]
pub(crate) fn calibrate(
    py: Python<'_>,
    path: PathBuf,
    bytes: Option<u64>,
    seconds: Option<f64>,
    name: Option<String>,
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
    let cancel = AtomicBool::new(false);
    let mut raised: Option<PyErr> = None;
    let outcome = py.detach(|| {
        measure(&path, &options, &cancel, &mut |step| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => progress.call1(py, (step.stage, step.done)).map(drop),
                    None => Ok(()),
                }
            });
            if let Err(error) = told {
                raised.get_or_insert(error);
                cancel.store(true, Ordering::Relaxed);
            }
        })
    });
    match (raised, outcome) {
        (Some(error), _) => Err(error),
        (None, outcome) => outcome.and_then(|profile| profile.to_json()).map_err(profile_error),
    }
}

/// The kept profile of the storage below `path`, as JSON.
#[pyfunction]
pub(crate) fn profile_for(py: Python<'_>, path: PathBuf) -> PyResult<Option<String>> {
    let found = py.detach(|| Profile::for_path(&path)).map_err(profile_error)?;
    found.map(|profile| profile.to_json()).transpose().map_err(profile_error)
}

/// Keeps a profile for the storage below `path`; gives where.
#[pyfunction]
pub(crate) fn keep_profile(py: Python<'_>, profile: &str, path: PathBuf) -> PyResult<String> {
    let profile = Profile::from_json("the profile", profile).map_err(profile_error)?;
    let kept = py.detach(|| profile.save_for_path(&path)).map_err(profile_error)?;
    Ok(kept.display().to_string())
}

/// The profile that stands in where nothing was measured, as JSON.
#[pyfunction]
pub(crate) fn default_profile() -> PyResult<String> {
    Profile::default_local().to_json().map_err(profile_error)
}

/// The best layout for a question in JSON (see `AdviseRequest::from_json`) on a profile in JSON: the
/// answer as JSON and as text.
#[pyfunction]
pub(crate) fn advise(py: Python<'_>, question: &str, profile: &str) -> PyResult<(String, String)> {
    let profile = Profile::from_json("the profile", profile).map_err(profile_error)?;
    let question: serde_json::Value =
        serde_json::from_str(question).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.detach(|| {
        let request = AdviseRequest::from_json(&question, profile)?;
        let advice = best_layout(&request).map_err(|error| Error::invalid(error.to_string()))?;
        let json =
            serde_json::to_string(&advice).map_err(|error| Error::invalid(error.to_string()))?;
        Ok((json, advice.to_string()))
    })
    .map_err(raise)
}
