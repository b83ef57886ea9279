//! Writing sessions, of one process or of many.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform::comm::{CMembers, wait_on};
use bedform::log::session::{Decomposition as Declared, Session, SessionOptions, Token, decline};
use bedform::panics::session_panicked;
use bedform::{Elements, Result, Store};
use bedform_format::ObjectPath;
use bedform_format::log::Boxes;
use bedform_geometry::Selection;

use crate::arguments::{
    axes, boxes_to_write, data as elements, give, give_if, object, path, points, region,
};
use crate::handles::handle;
use crate::status::{StatusNumber, call, misuse};
use crate::store::{StoreHandle, members_of};

handle!(
    /// `bf_session`.
    pub SessionHandle, Session, SharedSession
);
handle!(
    /// `bf_decomposition`.
    pub DecompositionHandle, Decomposition, Arc<HandleBoxes>
);

/// The boxes of one process, declared once; `None` if the process has no element.
pub(crate) struct HandleBoxes {
    boxes: Option<Boxes>,
}

/// An open session, with the decompositions that it knows.
pub(crate) struct OpenSession {
    session: Session,
    /// The session's own identifiers of decompositions, by handle.
    declared: HashMap<u64, Declared>,
}

pub(crate) type SharedSession = Arc<Mutex<Option<OpenSession>>>;

fn lock(session: &SharedSession) -> Result<MutexGuard<'_, Option<OpenSession>>> {
    session.lock().map_err(|_| session_panicked())
}

/// Calls `act` with the session behind a handle.
fn with_open<T>(
    handle: SessionHandle,
    act: impl FnOnce(&mut OpenSession) -> Result<T>,
) -> Result<T> {
    let shared = handle.get()?;
    let mut open = lock(&shared)?;
    act(open.as_mut().ok_or_else(|| misuse("the session was closed before"))?)
}

pub(crate) fn with<T>(
    handle: SessionHandle,
    act: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    with_open(handle, |open| act(&mut open.session))
}

/// Closes a handle, and returns its session and whether a call of it has panicked.
fn take(handle: SessionHandle) -> Result<(OpenSession, bool)> {
    let shared = handle.take()?;
    let has_panicked = shared.is_poisoned();
    let open = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    let open = open.ok_or_else(|| misuse("the session was closed before"))?;
    Ok((open, has_panicked))
}

unsafe fn options_of(options: *const c_char, store: &Store) -> Result<SessionOptions> {
    // SAFETY: the caller's contract.
    let given = unsafe { object("options", options) }?;
    SessionOptions::from_json(&given, &**store.storage())
}

/// `bf_session_begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_begin(
    store: StoreHandle,
    comm: *const CMembers,
    options: *const c_char,
    session: *mut SessionHandle,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the session", session, SessionHandle::NULL)?;
        let members = members_of(comm)?;
        let (store, options) = match store.get().and_then(|store| {
            let options = options_of(options, &store)?;
            Ok((store, options))
        }) {
            Ok(ready) => ready,
            // The other processes wait in this collective call.
            Err(error) => return Err(decline(members, error)),
        };
        let session_of_all = store.session(members, options)?;
        let begun = OpenSession { session: session_of_all, declared: HashMap::new() };
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
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = region(rank, start, shape, std::ptr::null())?;
        write(session, name, &selection, data, bytes)
    })
}

/// Data of the caller, which stay in place until they are written.
struct Borrowed(&'static [u8]);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

/// `bf_session_write_borrowed`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_borrowed(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    token: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call: the data stay valid until `bf_session_wait`, the next
    // commit or the session's end, and the session drops them by then.
    call(|| unsafe {
        give("the token", token, 0)?;
        let selection = region(rank, start, shape, std::ptr::null())?;
        let (path, data) = (path(name)?, Borrowed(elements(data, bytes)?));
        let taken = with(session, |session| session.write_held(&path, &selection, Box::new(data)))?;
        give("the token", token, taken.number())
    })
}

/// `bf_session_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_wait(session: SessionHandle, token: u64) -> StatusNumber {
    call(|| with(session, |session| session.wait(Token::from_number(token))))
}

/// `bf_session_flush`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_flush(session: SessionHandle) -> StatusNumber {
    call(|| with(session, Session::flush))
}

/// Writes no element, but checks the path and the data's length.
fn write_nothing(session: &mut Session, path: &ObjectPath, data: &[u8]) -> Result<Token> {
    session.write(path, &Selection::Union(Vec::new()), Elements::Bytes(data))
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
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let boxes: Option<Boxes> = boxes_to_write(rank, count, starts, shapes)?;
        let (path, data) = (path(name)?, elements(data, bytes)?);
        with(session, |session| match boxes {
            Some(boxes) => session.write_boxes(&path, boxes, data).map(drop),
            None => write_nothing(session, &path, data).map(drop),
        })
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
) -> StatusNumber {
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
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        give("the decomposition", decomposition, DecompositionHandle::NULL)?;
        let boxes = boxes_to_write(rank, count, starts, shapes)?;
        let declared = Arc::new(HandleBoxes { boxes });
        give("the decomposition", decomposition, DecompositionHandle::new(declared))
    })
}

/// `bf_decomposition_free`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_decomposition_free(decomposition: DecompositionHandle) -> StatusNumber {
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
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let data = elements(data, bytes)?;
        write_decomposed(session, name, record, decomposition, data, |session, place| {
            session.write_declared(place.path, place.record, place.declared, data)
        })
        .map(drop)
    })
}

/// `bf_session_write_decomposed_borrowed`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_decomposed_borrowed(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: *const c_void,
    bytes: u64,
    token: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call, as for `bf_session_write_borrowed`.
    call(|| unsafe {
        give("the token", token, 0)?;
        let data: &'static [u8] = elements(data, bytes)?;
        let write = |session: &mut Session, place: DeclaredTarget<'_>| {
            let data = Box::new(Borrowed(data));
            session.write_declared_held(place.path, place.record, place.declared, data)
        };
        let taken = write_decomposed(session, name, record, decomposition, data, write)?;
        give("the token", token, taken.number())
    })
}

/// The target of a write of declared boxes.
struct DeclaredTarget<'a> {
    path: &'a ObjectPath,
    record: Option<u64>,
    declared: Declared,
}

/// Calls `write` with the boxes of a decomposition, after declaring them to the session if it does
/// not know them.
///
/// # Safety
/// `name` is null or a text that ends with a NUL.
unsafe fn write_decomposed(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: &[u8],
    write: impl FnOnce(&mut Session, DeclaredTarget<'_>) -> Result<Token>,
) -> Result<Token> {
    let record = match record {
        -1 => None,
        record => Some(
            u64::try_from(record)
                .map_err(|_| misuse(format!("the record is {record}; -1 stands for none")))?,
        ),
    };
    let parts = decomposition.get()?;
    // SAFETY: the contract of the call.
    let path = unsafe { path(name)? };
    with_open(session, |open| {
        let Some(boxes) = &parts.boxes else {
            return write_nothing(&mut open.session, &path, data);
        };
        let known = open.declared.get(&decomposition.id).copied();
        let declared = match known {
            Some(declared) => declared,
            None => open.session.declare(boxes.clone())?,
        };
        open.declared.insert(decomposition.id, declared);
        write(&mut open.session, DeclaredTarget { path: &path, record, declared })
    })
}

/// `bf_session_resize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_resize(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    shape: *const u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (path, shape) = (path(name)?, axes("shape", shape, rank)?);
        with(session, |session| session.resize(&path, shape))
    })
}

/// `bf_session_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_append(
    session: SessionHandle,
    name: *const c_char,
    axis: u32,
    rank: u32,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    start: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (path, shape) = (path(name)?, axes("shape", shape, rank)?);
        let data = Elements::Bytes(elements(data, bytes)?);
        let at = with(session, |session| session.append(&path, axis as usize, shape, data))?;
        give_if("the start", start, at)
    })
}

/// `bf_session_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_commit(
    session: SessionHandle,
    number: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let committed = with(session, Session::commit)?;
        give_if("the number", number, committed)
    })
}

/// `bf_session_commit_begin`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_commit_begin(session: SessionHandle) -> StatusNumber {
    call(|| with(session, Session::commit_begin))
}

/// `bf_session_commit_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_commit_wait(
    session: SessionHandle,
    number: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let committed = with(session, Session::commit_wait)?;
        give_if("the number", number, committed)
    })
}

/// `bf_session_drain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_drain(
    session: SessionHandle,
    number: *mut u64,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let drained = with(session, Session::drain)?;
        give_if("the number", number, drained)
    })
}

/// `bf_session_end`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_end(session: SessionHandle) -> StatusNumber {
    call(|| {
        let (open, has_panicked) = take(session)?;
        if has_panicked {
            open.session.leave();
            return Err(session_panicked());
        }
        open.session.close()
    })
}

/// `bf_session_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn bf_session_abort(session: SessionHandle) -> StatusNumber {
    call(|| {
        take(session)?.0.session.leave();
        Ok(())
    })
}

/// `bf_comm_waits`: reports a long wait of a communicator's function. Returns 1 to end the wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_comm_waits(seconds: f64, missing: *const i32, count: u64) -> c_int {
    let missing = match usize::try_from(count) {
        Ok(count) if !missing.is_null() && count > 0 => {
            // SAFETY: the contract of the call.
            unsafe { std::slice::from_raw_parts(missing, count) }
        }
        _ => &[],
    };
    let missing: Vec<u32> = missing.iter().filter_map(|rank| u32::try_from(*rank).ok()).collect();
    let due = wait_on(seconds, &missing);
    if let Some(warning) = due.warning {
        // The wait continues even if stderr is closed.
        let _ = writeln!(std::io::stderr(), "bedform: {warning}");
    }
    c_int::from(due.gives_up)
}

/// `bf_comm_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_comm_free(comm: *mut CMembers) -> StatusNumber {
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
