//! Writing sessions, of one process or of many.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use bedform::comm::{Alone, CMembers, Communicator, Members};
use bedform::log::session::{AtEnd, Session, SessionOptions, decline};
use bedform::{Elements, Error, ErrorKind, Result};
use bedform_geometry::{Region, Selection};

use crate::arguments::{boxes, data as elements, give, give_if, object, path, points, region};
use crate::handles::{Decomposition, DecompositionHandle, SessionHandle, StoreHandle};
use crate::status::{Status, call, misuse};

/// A session and what becomes of its commits.
pub(crate) struct OpenSession {
    session: Session,
    at_end: AtEnd,
}

type Shared = Arc<Mutex<Option<OpenSession>>>;

fn lock(session: &Shared) -> Result<MutexGuard<'_, Option<OpenSession>>> {
    session.lock().map_err(|_| {
        let text = "an earlier call of this session ended in a bug of Bedform; start a new session";
        Error::new(ErrorKind::Poisoned, text)
    })
}

/// Does `act` with the session behind a handle.
fn with<T>(handle: SessionHandle, act: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let shared = handle.get()?;
    let mut open = lock(&shared)?;
    match open.as_mut() {
        Some(open) => act(&mut open.session),
        None => Err(misuse("the session was ended before")),
    }
}

/// Ends what a handle stands for, whatever comes of it.
fn take(handle: SessionHandle) -> Result<OpenSession> {
    let shared = handle.take()?;
    let open = lock(&shared)?.take();
    open.ok_or_else(|| misuse("the session was ended before"))
}

/// The options of a session: `buffer_bytes`, `settle` (`"end"` or `"later"`).
unsafe fn options_of(options: *const c_char) -> Result<(SessionOptions, AtEnd)> {
    let (mut chosen, mut at_end) = (SessionOptions::default(), AtEnd::Settle);
    // SAFETY: the caller's contract.
    for (key, value) in unsafe { object("options", options) }? {
        match (key.as_str(), value.as_u64(), value.as_str()) {
            ("buffer_bytes", Some(bytes), _) => {
                chosen.buffer_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            ("settle", _, Some("end")) => at_end = AtEnd::Settle,
            ("settle", _, Some("later")) => at_end = AtEnd::Leave,
            ("buffer_bytes" | "settle", _, _) => {
                return Err(misuse(format!("not a value of {key}: {value}")));
            }
            _ => return Err(misuse(format!("there is no option {key:?} of a session"))),
        }
    }
    Ok((chosen, at_end))
}

/// `bf_session_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_begin(
    store: StoreHandle,
    comm: *const CMembers,
    options: *const c_char,
    session: *mut SessionHandle,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the session", session, SessionHandle::NULL)?;
        let members: Box<dyn Communicator> = match comm.as_ref() {
            None => Box::new(Alone),
            Some(comm) => Box::new(Members::new(comm.messages()?)),
        };
        let (store, (options, at_end)) =
            match store.get().and_then(|store| Ok((store, options_of(options)?))) {
                Ok(ready) => ready,
                // The others are waiting in this call.
                Err(error) => return Err(decline(members, error)),
            };
        let begun = OpenSession { session: store.session(members, options)?, at_end };
        give("the session", session, SessionHandle::new(Arc::new(Mutex::new(Some(begun)))))
    })
}

unsafe fn write(
    session: SessionHandle,
    name: *const c_char,
    selection: &Selection,
    data: *const c_void,
    bytes: u64,
) -> Result<()> {
    // SAFETY: the contract of the call.
    let (path, data) = unsafe { (path(name)?, elements(data, bytes)?) };
    with(session, |session| session.write(&path, selection, Elements::Bytes(data)).map(drop))
}

/// `bf_session_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = region(rank, start, shape, std::ptr::null())?;
        write(session, name, &selection, data, bytes)
    })
}

/// `bf_session_write_boxes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_boxes(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
    data: *const c_void,
    bytes: u64,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = Selection::Union(boxes(rank, count, starts, shapes)?);
        write(session, name, &selection, data, bytes)
    })
}

/// `bf_session_write_points`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_points(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    count: u64,
    coordinates: *const u64,
    data: *const c_void,
    bytes: u64,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe { write(session, name, &points(rank, count, coordinates)?, data, bytes) })
}

/// `bf_decomposition_declare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_decomposition_declare(
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
    decomposition: *mut DecompositionHandle,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the decomposition", decomposition, DecompositionHandle::NULL)?;
        let boxes = boxes(rank, count, starts, shapes)?;
        let declared = Arc::new(Decomposition { rank: rank as usize, boxes });
        give("the decomposition", decomposition, DecompositionHandle::new(declared))
    })
}

/// `bf_decomposition_free`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_decomposition_free(decomposition: DecompositionHandle) -> Status {
    call(|| decomposition.take().map(drop))
}

/// `bf_session_write_decomposed`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_decomposed(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: *const c_void,
    bytes: u64,
) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = selection_of(&*decomposition.get()?, record)?;
        write(session, name, &selection, data, bytes)
    })
}

/// The boxes of a decomposition in an array that has them as they are (record -1), or at one place of an
/// axis in front.
fn selection_of(decomposition: &Decomposition, record: i64) -> Result<Selection> {
    let Ok(record) = u64::try_from(record) else {
        return match record {
            -1 => Ok(Selection::Union(decomposition.boxes.clone())),
            _ => Err(misuse(format!("the record is {record}; -1 stands for none"))),
        };
    };
    let axes = |first: u64, rest: &[u64]| {
        let mut all = Vec::with_capacity(decomposition.rank + 1);
        all.push(first);
        all.extend_from_slice(rest);
        all
    };
    let boxes = decomposition.boxes.iter();
    let boxes = boxes.map(|part| Region::new(axes(record, part.start()), axes(1, part.shape())));
    Ok(Selection::Union(boxes.collect::<std::result::Result<_, _>>()?))
}

/// `bf_session_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_commit(session: SessionHandle, number: *mut u64) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let committed = with(session, Session::commit)?;
        give_if("the number", number, committed)
    })
}

/// `bf_session_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_end(session: SessionHandle) -> Status {
    call(|| {
        let open = take(session)?;
        open.session.close(open.at_end, &|| false)
    })
}

/// `bf_session_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_abort(session: SessionHandle) -> Status {
    call(|| {
        take(session)?.session.leave();
        Ok(())
    })
}

/// `bf_comm_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_comm_free(comm: *mut CMembers) -> Status {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let Some(comm) = comm.as_mut() else { return Err(misuse("the communicator is NULL")) };
        let freed = std::mem::replace(comm, CMembers::EMPTY);
        match freed.free {
            Some(free) if freed.size > 0 => free(freed.context),
            _ => return Err(misuse("the communicator was not filled, or was freed before")),
        }
        Ok(())
    })
}
