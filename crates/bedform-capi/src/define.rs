//! Arrays that are created together: `bf_define_begin` to `bf_define_end` or `bf_session_define_end`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bedform::{Error, NewArray};
use bedform_format::ObjectPath;

use crate::handles::{SessionHandle, StoreHandle};
use crate::session::with;
use crate::status::{Status, call, misuse};

type Defined = HashMap<u64, Vec<(ObjectPath, NewArray)>>;

/// What is being defined, by the handles of stores, which are never given twice.
static DEFINED: Mutex<Option<Defined>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Defined>> {
    DEFINED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the array if `store` is being defined; else gives it back.
pub(crate) fn note(
    store: StoreHandle,
    path: ObjectPath,
    new: NewArray,
) -> Option<(ObjectPath, NewArray)> {
    let mut defined = lock();
    match defined.as_mut().and_then(|all| all.get_mut(&store.id)) {
        Some(arrays) => {
            arrays.push((path, new));
            None
        }
        None => Some((path, new)),
    }
}

/// Forgets what was defined and not ended.
pub(crate) fn forget(store: StoreHandle) {
    lock().as_mut().and_then(|all| all.remove(&store.id));
}

fn take(store: StoreHandle) -> Option<Vec<(ObjectPath, NewArray)>> {
    lock().as_mut().and_then(|all| all.remove(&store.id))
}

fn not_begun() -> Error {
    misuse("bf_define_begin was not called for this store")
}

/// `bf_define_begin`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_define_begin(store: StoreHandle) -> Status {
    call(|| {
        store.get()?;
        let mut defined = lock();
        let all = defined.get_or_insert_default();
        if all.contains_key(&store.id) {
            return Err(misuse("the store is being defined already"));
        }
        all.insert(store.id, Vec::new());
        Ok(())
    })
}

/// `bf_define_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_define_end(store: StoreHandle) -> Status {
    call(|| {
        let opened = store.get()?;
        opened.create_arrays(&take(store).ok_or_else(not_begun)?)
    })
}

/// `bf_session_define_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_define_end(session: SessionHandle, store: StoreHandle) -> Status {
    call(|| {
        // What members but the first define counts for nothing.
        let defined = take(store);
        let defined = store.get().and_then(|_| defined.ok_or_else(not_begun));
        with(session, |session| session.create_arrays_given(defined))
    })
}
