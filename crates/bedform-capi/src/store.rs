//! Calls on stores, groups and attributes.

use std::ffi::{c_char, c_int};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bedform::comm::{Alone, CMembers, Communicator, Members};
use bedform::log::recover::{LeftoverPolicy, Recovered};
use bedform::log::session::{Burst, decline};
use bedform::log::settle::SettleOptions;
use bedform::{NewArray, NodeKind, OpenOptions, Result, Store, size};
use bedform_format::ObjectPath;
use serde_json::{Map, Value};

use crate::arguments::{give, give_if, give_text, object, path, text};
use crate::handles::handle;
use crate::status::{StatusNumber, call, misuse};

handle!(
    /// `bf_store`.
    pub StoreHandle, Store, OpenStore
);

/// New arrays with their paths.
type DefinedArrays = Vec<(ObjectPath, NewArray)>;

/// A store, with the arrays of an unfinished definition if this handle began one.
#[derive(Clone)]
pub(crate) struct OpenStore {
    store: Store,
    defined: Arc<Mutex<Option<DefinedArrays>>>,
}

impl OpenStore {
    fn new(store: Store) -> Self {
        Self { store, defined: Arc::default() }
    }

    fn defined(&self) -> MutexGuard<'_, Option<DefinedArrays>> {
        self.defined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a definition; an error within one.
    pub(crate) fn begin_definition(&self) -> Result<()> {
        let mut defined = self.defined();
        if defined.is_some() {
            return Err(misuse("the store is being defined already"));
        }
        *defined = Some(Vec::new());
        Ok(())
    }

    /// Adds an array to the definition; returns it if there is none.
    pub(crate) fn define(&self, path: ObjectPath, new: NewArray) -> Option<(ObjectPath, NewArray)> {
        match self.defined().as_mut() {
            Some(arrays) => {
                arrays.push((path, new));
                None
            }
            None => Some((path, new)),
        }
    }

    /// Ends the definition, and returns its arrays.
    pub(crate) fn end_definition(&self) -> Result<DefinedArrays> {
        let defined = self.defined().take();
        defined.ok_or_else(|| misuse("bf_define_begin was not called for this store"))
    }
}

impl Deref for OpenStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Parses the options of a store. For a URL without `freshness` it is `"open"`, as in Python,
/// because each look for changes is a request.
unsafe fn open_options(place: &Path, options: *const c_char) -> Result<OpenOptions> {
    // SAFETY: the caller's contract.
    let mut given = unsafe { object("options", options) }?;
    let is_url = place.to_str().is_some_and(|text| text.contains("://"));
    if is_url && given.get("freshness").is_none_or(Value::is_null) {
        given.insert("freshness".to_owned(), "open".into());
    }
    OpenOptions::from_json(&given)
}

/// `bf_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_create(
    place: *const c_char,
    attributes: *const c_char,
    options: *const c_char,
    store: *mut StoreHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the store", store, StoreHandle::NULL)?;
        let place = Path::new(text("path", place)?);
        let attributes = object("attributes", attributes)?;
        let options = open_options(place, options)?;
        let made = Store::create_path(place, &attributes, options)?;
        give("the store", store, StoreHandle::new(OpenStore::new(made)))
    })
}

/// `bf_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_open(
    place: *const c_char,
    mode: *const c_char,
    options: *const c_char,
    store: *mut StoreHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the store", store, StoreHandle::NULL)?;
        let place = Path::new(text("path", place)?);
        let mut options = open_options(place, options)?;
        options.writable = match text("mode", mode)? {
            "r" => false,
            "r+" => true,
            other => {
                return Err(misuse(format!(
                    "the mode must be \"r\" or \"r+\", not {other:?}; bf_create makes stores"
                )));
            }
        };
        let opened = Store::open_path(place, options)?;
        give("the store", store, StoreHandle::new(OpenStore::new(opened)))
    })
}

/// `bf_snapshot`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_snapshot(
    store: StoreHandle,
    snapshot: *mut StoreHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the snapshot", snapshot, StoreHandle::NULL)?;
        let held = store.get()?.snapshot()?;
        give("the snapshot", snapshot, StoreHandle::new(OpenStore::new(held)))
    })
}

/// `bf_close`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_close(store: StoreHandle) -> StatusNumber {
    call(|| store.take().map(drop))
}

/// `bf_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_list(
    store: StoreHandle,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let nodes = store.get()?.nodes()?.into_iter();
        let kind_name = |kind| match kind {
            NodeKind::Array => "array",
            NodeKind::Group => "group",
        };
        let nodes: Map<String, Value> =
            nodes.map(|(path, kind)| (path.to_string(), kind_name(kind).into())).collect();
        give_text(&Value::Object(nodes).to_string(), buffer, capacity, needed)
    })
}

/// `bf_kind`: nothing, an array or a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_kind(
    store: StoreHandle,
    name: *const c_char,
    kind: *mut c_int,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let found = match store.get()?.kind(&path(name)?)? {
            None => 0,
            Some(NodeKind::Array) => 1,
            Some(NodeKind::Group) => 2,
        };
        give("the kind", kind, found)
    })
}

/// `bf_create_group`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_create_group(
    store: StoreHandle,
    name: *const c_char,
    attributes: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { store.get()?.create_group(&path(name)?, &object("attributes", attributes)?) })
}

/// `bf_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_delete(store: StoreHandle, name: *const c_char) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe { store.get()?.delete(&path(name)?) })
}

/// `bf_attributes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_attributes(
    store: StoreHandle,
    name: *const c_char,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let attributes = store.get()?.attributes(&path(name)?)?;
        give_text(&Value::Object(attributes).to_string(), buffer, capacity, needed)
    })
}

/// `bf_set_attributes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_set_attributes(
    store: StoreHandle,
    name: *const c_char,
    attributes: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        text("attributes", attributes)?;
        store.get()?.set_attributes(&path(name)?, object("attributes", attributes)?)
    })
}

/// `bf_settle`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_settle(store: StoreHandle) -> StatusNumber {
    call(|| store.get()?.settle().map(drop))
}

/// `bf_recovered`: what [`bf_recover`] found and did. Later versions append fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RecoveryFacts {
    /// Bytes copied from the burst tier.
    pub drained_bytes: u64,
    /// Promised commits that became visible.
    pub completed: u64,
    /// Segments of writers that are alive.
    pub live: u64,
    /// Writes that no commit has.
    pub uncommitted_writes: u64,
    /// Bytes of those writes.
    pub uncommitted_bytes: u64,
    /// Commits that were made of them.
    pub committed: u64,
    /// Promised commits that were given up.
    pub given_up: u64,
    /// Sessions with promised commits that are damaged.
    pub damaged: u64,
    /// Burst tiers that were not looked at, through which dead writers may have promised commits.
    pub tiers: u64,
}

impl RecoveryFacts {
    fn of(recovered: &Recovered) -> Self {
        let found = &recovered.found;
        Self {
            drained_bytes: recovered.drained_bytes,
            completed: recovered.completed,
            live: recovered.live,
            uncommitted_writes: found.iter().map(|found| found.writes).sum(),
            uncommitted_bytes: found.iter().map(|found| found.bytes).sum(),
            committed: recovered.committed,
            given_up: recovered.given_up,
            damaged: recovered.damaged.len() as u64,
            tiers: recovered.tiers.len() as u64,
        }
    }
}

/// `bf_recover`: the options are `leftover` and `burst`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_recover(
    store: StoreHandle,
    options: *const c_char,
    recovered: *mut RecoveryFacts,
    bytes: u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let store = store.get()?;
        if !recovered.is_null() && bytes != size_of::<RecoveryFacts>() as u64 {
            return Err(misuse(format!(
                "bf_recovered of {bytes} bytes; this version has {}: pass sizeof of it",
                size_of::<RecoveryFacts>()
            )));
        }
        let (mut leftover, mut burst) = (LeftoverPolicy::Keep, None);
        for (key, value) in object("options", options)? {
            let bad = || misuse(format!("not a value of {key}: {value}"));
            match key.as_str() {
                "leftover" => leftover = value.as_str().ok_or_else(bad)?.parse()?,
                "burst" => burst = Some(PathBuf::from(value.as_str().ok_or_else(bad)?)),
                _ => return Err(misuse(format!("there is no option {key:?} of recovery"))),
            }
        }
        let burst = match burst {
            Some(path) => Some(Burst::existing(&path)?),
            None => Burst::of_store(&**store.storage())?,
        };
        let done = store.recover(burst.as_ref(), leftover)?;
        give_if("what was recovered", recovered, RecoveryFacts::of(&done))
    })
}

/// `bf_settle_together`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_settle_together(
    store: StoreHandle,
    comm: *const CMembers,
    options: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        // SAFETY: as above.
        let members = members_of(comm)?;
        let ready = store.get().and_then(|store| Ok((store, settle_options(options)?)));
        let (store, options) = match ready {
            Ok(ready) => ready,
            // The other processes wait in this collective call.
            Err(error) => return Err(decline(members, error)),
        };
        store.settle_together(members, &options, &|_, _| ()).map(drop)
    })
}

/// Returns the processes of a communicator from C, or this process alone.
pub(crate) unsafe fn members_of(comm: *const CMembers) -> Result<Box<dyn Communicator>> {
    // SAFETY: the caller's contract.
    match unsafe { comm.as_ref() } {
        None => Ok(Box::new(Alone)),
        // SAFETY: as above.
        Some(comm) => Ok(Box::new(Members::new(unsafe { comm.messages() }?))),
    }
}

/// Parses the options of settling: `memory_bytes`, `grace_seconds`, `arrays` (a list of paths).
unsafe fn settle_options(options: *const c_char) -> Result<SettleOptions> {
    let mut chosen = SettleOptions::default();
    // SAFETY: the caller's contract.
    for (key, value) in unsafe { object("options", options) }? {
        let bad = || misuse(format!("not a value of {key}: {value}"));
        match key.as_str() {
            "memory_bytes" => chosen.memory_bytes = size::from_json(&key, &value)?,
            "grace_seconds" => {
                let seconds = value.as_f64().ok_or_else(bad)?;
                chosen.grace = Duration::try_from_secs_f64(seconds).map_err(|_| bad())?;
            }
            "arrays" => {
                let names = value.as_array().ok_or_else(bad)?.iter();
                let path = |name: &Value| Ok(ObjectPath::parse(name.as_str().ok_or_else(bad)?)?);
                chosen.arrays = Some(names.map(path).collect::<Result<_>>()?);
            }
            _ => return Err(misuse(format!("there is no option {key:?} of settling"))),
        }
    }
    Ok(chosen)
}
