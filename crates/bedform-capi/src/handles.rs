//! The table behind the handles.
//!
//! A handle is a number: the kind of its object, an index into the table, and the generation of
//! that entry. So the library detects a closed handle, a handle of another kind and an arbitrary
//! number, and no misuse reads invalid memory.
//!
//! The table does not know the types of its objects: each module defines its handle type with
//! [`handle!`].

use std::any::Any;
use std::sync::{PoisonError, RwLock};

use bedform::Result;

use crate::status::misuse;

/// The most generations of an entry, as its 24 bits of a handle can count; then the entry is
/// retired.
const GENERATION_MAX: u64 = (1 << 24) - 1;

/// The kind of object behind a handle. Its number is part of the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Store = 1,
    Array = 2,
    Session = 3,
    Decomposition = 4,
    Query = 5,
    Points = 6,
    Batches = 7,
}

impl HandleKind {
    const ALL: [Self; 7] = [
        Self::Store,
        Self::Array,
        Self::Session,
        Self::Decomposition,
        Self::Query,
        Self::Points,
        Self::Batches,
    ];

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Array => "array",
            Self::Session => "session",
            Self::Decomposition => "decomposition",
            Self::Query => "query",
            Self::Points => "result of points",
            Self::Batches => "sequence of batches",
        }
    }

    fn name_with_article(self) -> String {
        let article = if self == Self::Array { "an" } else { "a" };
        format!("{article} {}", self.name())
    }
}

#[derive(Default)]
struct HandleEntry {
    generation: u64,
    object: Option<(HandleKind, HandleObject)>,
}

type HandleObject = Box<dyn Any + Send + Sync>;

#[derive(Default)]
struct HandleTable {
    places: Vec<HandleEntry>,
    free: Vec<usize>,
}

static TABLE: RwLock<HandleTable> =
    RwLock::new(HandleTable { places: Vec::new(), free: Vec::new() });

fn handle_of(kind: HandleKind, generation: u64, place: usize) -> u64 {
    (kind as u64) << 56 | generation << 32 | place as u64
}

fn parts_of(handle: u64) -> (u64, u64, usize) {
    let place = usize::try_from(handle & 0xffff_ffff).unwrap_or(usize::MAX);
    (handle >> 56, handle >> 32 & GENERATION_MAX, place)
}

/// Stores an object of `kind` in the table, and returns its handle.
pub(crate) fn insert<T: Any + Send + Sync>(kind: HandleKind, object: T) -> u64 {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let place = match table.free.pop() {
        Some(place) => place,
        None => {
            table.places.push(HandleEntry::default());
            table.places.len() - 1
        }
    };
    let entry = &mut table.places[place];
    entry.generation += 1;
    entry.object = Some((kind, Box::new(object)));
    handle_of(kind, entry.generation, place)
}

/// Returns a clone of the object behind `handle`, which must be of `kind`.
pub(crate) fn find<T: Any + Clone>(handle: u64, kind: HandleKind) -> Result<T> {
    let (found, generation, place) = parts_of(handle);
    if handle == 0 {
        return Err(misuse(format!("the {} handle is null", kind.name())));
    }
    let never = || misuse(format!("{handle:#x} is not a handle of Bedform's"));
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let entry = table.places.get(place).ok_or_else(never)?;
    let other = HandleKind::from_number(found).ok_or_else(never)?;
    if other != kind {
        let (wanted, other) = (kind.name_with_article(), other.name_with_article());
        return Err(misuse(format!("a handle of {wanted} is wanted, this is one of {other}")));
    }
    let object = match &entry.object {
        Some((own, object)) if *own == kind && entry.generation == generation => object,
        _ if generation > entry.generation => return Err(never()),
        _ => return Err(misuse(format!("the {} was closed before", kind.name()))),
    };
    object.downcast_ref::<T>().cloned().ok_or_else(never)
}

/// Removes the object behind `handle`, and returns it.
pub(crate) fn remove<T: Any + Clone>(handle: u64, kind: HandleKind) -> Result<T> {
    let object = find(handle, kind)?;
    let (_, generation, place) = parts_of(handle);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let entry = &mut table.places[place];
    // Another thread may have removed it meanwhile.
    let is_same = entry.generation == generation;
    let kept = if is_same { entry.object.take() } else { None };
    if kept.is_none() {
        return Err(misuse("the handle was closed before"));
    }
    if entry.generation < GENERATION_MAX {
        table.free.push(place);
    }
    // Dropped after the lock is released, because dropping the object may take time.
    drop(table);
    drop(kept);
    Ok(object)
}

/// Defines a handle type for one [`HandleKind`] and type of object.
macro_rules! handle {
    ($(#[$doc:meta])* $vis:vis $handle:ident, $kind:ident, $object:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(C)]
        $vis struct $handle {
            /// Its number; 0 for the null handle.
            $vis id: u64,
        }

        impl $handle {
            /// The null handle.
            $vis const NULL: Self = Self { id: 0 };

            pub(crate) fn new(object: $object) -> Self {
                Self { id: $crate::handles::insert($crate::handles::HandleKind::$kind, object) }
            }

            pub(crate) fn get(self) -> bedform::Result<$object> {
                $crate::handles::find(self.id, $crate::handles::HandleKind::$kind)
            }

            pub(crate) fn take(self) -> bedform::Result<$object> {
                $crate::handles::remove(self.id, $crate::handles::HandleKind::$kind)
            }
        }
    };
}

pub(crate) use handle;

#[cfg(test)]
mod tests {
    handle!(
        /// A handle of numbers.
        NumberHandle, Decomposition, u32
    );
    handle!(
        /// A handle of texts.
        TextHandle, Store, String
    );

    #[test]
    fn a_place_that_is_used_again_does_not_revive_old_handles() {
        let first = NumberHandle::new(1);
        assert_eq!(first.get().unwrap(), 1);
        assert_eq!(first.take().unwrap(), 1);
        let later: Vec<_> = (0..50).map(NumberHandle::new).collect();
        assert!(first.get().is_err() && first.take().is_err());
        for (number, handle) in (0..).zip(later) {
            assert_eq!(handle.take().unwrap(), number);
        }
    }

    #[test]
    fn numbers_that_were_never_handles_are_refused() {
        let live = NumberHandle::new(1);
        let wrong =
            [0, 1, u64::MAX, live.id + (1 << 32), live.id ^ (3 << 56), live.id | 0xffff_ffff];
        for id in wrong {
            assert!(NumberHandle { id }.get().is_err(), "{id:#x}");
        }
        assert!(NumberHandle::NULL.take().is_err() && TextHandle::NULL.take().is_err());
        live.take().unwrap();
    }

    #[test]
    fn a_handle_of_another_kind_is_refused_and_named() {
        let (number, text) = (NumberHandle::new(1), TextHandle::new("one".to_owned()));
        let error = TextHandle { id: number.id }.get().unwrap_err().to_string();
        assert!(error.contains("of a store is wanted, this is one of a decomposition"), "{error}");
        assert!(NumberHandle { id: text.id }.take().is_err());
        assert_eq!((number.take().unwrap(), text.take().unwrap()), (1, "one".to_owned()));
    }
}
