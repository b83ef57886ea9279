//! Creates many arrays at once, from `bf_define_begin` to `bf_define_end` or
//! `bf_session_define_end`.
//!
//! The arrays of a definition are stored with the handle of their store; closing the handle drops
//! them.

use crate::session::{SessionHandle, with};
use crate::status::{StatusNumber, call};
use crate::store::StoreHandle;

/// `bf_define_begin`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_define_begin(store: StoreHandle) -> StatusNumber {
    call(|| store.get()?.begin_definition())
}

/// `bf_define_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_define_end(store: StoreHandle) -> StatusNumber {
    call(|| {
        let store = store.get()?;
        store.create_arrays(&store.end_definition()?)
    })
}

/// `bf_session_define_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_define_end(
    session: SessionHandle,
    store: StoreHandle,
) -> StatusNumber {
    call(|| {
        // Only the definition of the process with rank 0 counts.
        let defined = store.get().and_then(|store| store.end_definition());
        with(session, |session| session.create_arrays_given(defined))
    })
}
