//! The table behind the handles.
//!
//! A handle is a number: the kind of its object, a place in the table, and how often that place was used
//! before. So a handle that was closed, is of another kind, or was never given out is noticed, and no
//! misuse reads memory that is not there.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bedform::{Array, Result, Store};
use bedform_format::log::Boxes;

use crate::session::OpenSession;
use crate::status::misuse;

/// Uses of a place before it is retired: what its part of a handle can count.
const GENERATION_MAX: u64 = (1 << 24) - 1;

/// What a handle stands for.
#[derive(Clone)]
pub(crate) enum Object {
    Store(Store),
    Array(Array),
    Session(Arc<Mutex<Option<OpenSession>>>),
    Decomposition(Arc<Decomposition>),
}

/// The boxes of one process, declared once; nothing if it has no element.
pub(crate) struct Decomposition {
    pub(crate) boxes: Option<Boxes>,
}

const STORE: u64 = 1;
const ARRAY: u64 = 2;
const SESSION: u64 = 3;
const DECOMPOSITION: u64 = 4;

impl Object {
    fn kind(&self) -> u64 {
        match self {
            Self::Store(_) => STORE,
            Self::Array(_) => ARRAY,
            Self::Session(_) => SESSION,
            Self::Decomposition(_) => DECOMPOSITION,
        }
    }
}

/// A name of [`kind_name`] with its article.
fn one(name: &str) -> String {
    let article = if name.starts_with('a') { "an" } else { "a" };
    format!("{article} {name}")
}

fn kind_name(kind: u64) -> Option<&'static str> {
    match kind {
        STORE => Some("store"),
        ARRAY => Some("array"),
        SESSION => Some("session"),
        DECOMPOSITION => Some("decomposition"),
        _ => None,
    }
}

#[derive(Default)]
struct Place {
    generation: u64,
    object: Option<Object>,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: Vec<usize>,
}

static TABLE: RwLock<Table> = RwLock::new(Table { places: Vec::new(), free: Vec::new() });

fn handle_of(kind: u64, generation: u64, place: usize) -> u64 {
    kind << 56 | generation << 32 | place as u64
}

fn parts_of(handle: u64) -> (u64, u64, usize) {
    let place = usize::try_from(handle & 0xffff_ffff).unwrap_or(usize::MAX);
    (handle >> 56, handle >> 32 & GENERATION_MAX, place)
}

/// Gives `object` a handle.
pub(crate) fn insert(object: Object) -> u64 {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let place = match table.free.pop() {
        Some(place) => place,
        None => {
            table.places.push(Place::default());
            table.places.len() - 1
        }
    };
    let kind = object.kind();
    let entry = &mut table.places[place];
    entry.generation += 1;
    entry.object = Some(object);
    handle_of(kind, entry.generation, place)
}

/// The object behind `handle`, which should be of `kind`.
fn find(handle: u64, kind: u64) -> Result<Object> {
    let wanted = kind_name(kind).unwrap_or_default();
    let (found, generation, place) = parts_of(handle);
    if handle == 0 {
        return Err(misuse(format!("the {wanted} handle is null")));
    }
    let never = || misuse(format!("{handle:#x} is not a handle of Bedform's"));
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let entry = table.places.get(place).ok_or_else(never)?;
    let other = kind_name(found).ok_or_else(never)?;
    if found != kind {
        let (wanted, other) = (one(wanted), one(other));
        return Err(misuse(format!("a handle of {wanted} is wanted, this is one of {other}")));
    }
    let is_same = |object: &&Object| object.kind() == kind && entry.generation == generation;
    match entry.object.as_ref().filter(is_same) {
        Some(object) => Ok(object.clone()),
        None if generation > entry.generation => Err(never()),
        None => Err(misuse(format!("the {wanted} was closed before"))),
    }
}

/// Takes the object behind `handle`, which nobody can use any more.
fn remove(handle: u64, kind: u64) -> Result<Object> {
    find(handle, kind)?;
    let (_, generation, place) = parts_of(handle);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let entry = &mut table.places[place];
    // Another thread may have been faster.
    let is_same = entry.generation == generation;
    let object = if is_same { entry.object.take() } else { None };
    let is_reusable = entry.generation < GENERATION_MAX;
    match object {
        Some(object) => {
            if is_reusable {
                table.free.push(place);
            }
            Ok(object)
        }
        None => Err(misuse("the handle was closed before")),
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $handle:ident, $kind:ident, $variant:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(C)]
        pub struct $handle {
            /// Its number; 0 is no handle.
            pub id: u64,
        }

        impl $handle {
            /// No handle.
            pub const NULL: Self = Self { id: 0 };

            pub(crate) fn new(object: $inner) -> Self {
                Self { id: insert(Object::$variant(object)) }
            }

            pub(crate) fn get(self) -> Result<$inner> {
                match find(self.id, $kind)? {
                    Object::$variant(object) => Ok(object),
                    _ => Err(misuse("the handle is of another kind")),
                }
            }

            pub(crate) fn take(self) -> Result<$inner> {
                match remove(self.id, $kind)? {
                    Object::$variant(object) => Ok(object),
                    _ => Err(misuse("the handle is of another kind")),
                }
            }
        }
    };
}

handle!(
    /// `bf_store`.
    StoreHandle, STORE, Store, Store
);
handle!(
    /// `bf_array`.
    ArrayHandle, ARRAY, Array, Array
);
handle!(
    /// `bf_session`.
    SessionHandle, SESSION, Session, Arc<Mutex<Option<OpenSession>>>
);
handle!(
    /// `bf_decomposition`.
    DecompositionHandle, DECOMPOSITION, Decomposition, Arc<Decomposition>
);

#[cfg(test)]
mod tests {
    use super::*;

    fn decomposition() -> DecompositionHandle {
        DecompositionHandle::new(Arc::new(Decomposition { boxes: None }))
    }

    #[test]
    fn a_place_that_is_used_again_does_not_revive_old_handles() {
        let first = decomposition();
        assert!(first.get().is_ok());
        assert!(first.take().is_ok());
        let later: Vec<_> = (0..50).map(|_| decomposition()).collect();
        assert!(first.get().is_err() && first.take().is_err());
        later.into_iter().for_each(|handle| assert!(handle.take().is_ok()));
    }

    #[test]
    fn numbers_that_were_never_handles_are_refused() {
        let live = decomposition();
        let wrong =
            [0, 1, u64::MAX, live.id + (1 << 32), live.id ^ (3 << 56), live.id | 0xffff_ffff];
        for id in wrong {
            assert!(DecompositionHandle { id }.get().is_err(), "{id:#x}");
            assert!(StoreHandle { id: live.id }.get().is_err());
        }
        live.take().unwrap();
    }
}
