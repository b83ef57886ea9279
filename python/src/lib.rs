//! The Python bindings: a thin layer over the engine.
//!
//! `python/bedform` does the indexing. Arguments here are simple: paths and metadata as text,
//! selections as tuples, elements as buffers. All I/O and decoding runs without the interpreter
//! lock, and checks for signals in between.

mod advise;
mod arguments;
mod array;
mod callback;
mod comm;
mod convert;
mod error;
mod foreign;
mod index;
mod mesh;
mod optimize;
mod patterns;
mod progress;
mod publication;
mod query;
mod referencing;
mod selection;
mod session;
mod signals;
mod simulate;
mod storage;
mod store;
mod trace;

use pyo3::panic::PanicException;
use pyo3::prelude::*;

/// The extension module `bedform._internal`.
#[pymodule]
mod _internal {
    #[pymodule_export]
    use crate::advise::{
        advise, calibrate, default_profile, keep_experience, keep_profile, profile_for,
    };
    #[pymodule_export]
    use crate::arguments::{limit_behind, message, parse_size, printable, shell_path};
    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::comm::{decline, wait_on};
    #[pymodule_export]
    use crate::convert::{Conversion, RegionWorker, source_cache_bytes};
    #[pymodule_export]
    use crate::error::{EngineError, error_kinds};
    #[pymodule_export]
    use crate::foreign::{ForeignFile, current_replicas, place_kind};
    #[pymodule_export]
    use crate::index::{conditions, index, value_index};
    #[pymodule_export]
    use crate::mesh::{EngineMesh, EngineMeshWriter, create_mesh};
    #[pymodule_export]
    use crate::optimize::{
        current_mesh_replicas, mesh_layout, optimize, optimize_layouts, optimize_meshes,
        policy_state, replica_conditions, run_policy, set_policy, trust,
    };
    #[pymodule_export]
    use crate::patterns::predicted;
    #[pymodule_export]
    use crate::publication::{StagedDirectory, StagedFile, StagedGroup, StagedStore};
    #[pymodule_export]
    use crate::query::EngineQuery;
    #[pymodule_export]
    use crate::referencing::MadeReferenceSet;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::simulate::{check_machine, organize, place_by_readers, placement, simulate};
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::trace::{
        is_watched, keep_traces, learn, prune_registry, sidecar_directory, sidecar_document,
        sidecar_warnings, start_bedform_by, watch,
    };

    use super::{Bound, PanicException, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        bedform_storage::report_lock_waits(crate::signals::tell_of_lock);
        bedform::trace::ask_for_computations(crate::trace::computation_of_read);
        module.add("PanicException", module.py().get_type::<PanicException>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
