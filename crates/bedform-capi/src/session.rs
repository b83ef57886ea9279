//! Writing sessions, of one process or of many.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::ptr::null;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bedform::comm::{CMembers, wait_on};
use bedform::log::session::{Decomposition as Declared, Session, SessionOptions, Token, decline};
use bedform::panics::session_panicked;
use bedform::{Elements, Error, Result, Store};
use bedform_format::ObjectPath;
use bedform_format::log::Boxes;
use bedform_geometry::{Selection, element_count};

use crate::arguments::{
    axes, boxes_to_write, data as elements, give, give_if, object, path, points, region,
};
use crate::elements::{ElementType, to_stored};
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
    /// Decompositions that are declared to the session, by handle.
    declared: HashMap<u64, DeclaredHandle>,
}

/// The session's own identifier of a decomposition, and the boxes behind its handle while that is
/// not freed.
struct DeclaredHandle {
    declared: Declared,
    boxes: Weak<HandleBoxes>,
}

impl OpenSession {
    /// Returns the session's identifier of a decomposition, which is declared to it by the first
    /// write.
    fn declared(
        &mut self,
        handle: DecompositionHandle,
        parts: &Arc<HandleBoxes>,
        boxes: &Boxes,
    ) -> Result<Declared> {
        if let Some(known) = self.declared.get(&handle.id) {
            return Ok(known.declared);
        }
        self.forget_freed();
        let declared = self.session.declare(boxes.clone())?;
        let known = DeclaredHandle { declared, boxes: Arc::downgrade(parts) };
        self.declared.insert(handle.id, known);
        Ok(declared)
    }

    /// Forgets decompositions whose handles were freed.
    fn forget_freed(&mut self) {
        let session = &mut self.session;
        self.declared.retain(|_, known| {
            let is_alive = known.boxes.strong_count() > 0;
            if !is_alive {
                session.forget(known.declared);
            }
            is_alive
        });
    }
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

/// The data of a write as a call passes them: bytes, and the name of their type.
#[derive(Clone, Copy)]
struct GivenData {
    bytes: &'static [u8],
    data_type: Option<ElementType>,
}

impl GivenData {
    /// # Safety
    /// The contract of the calls that write. The bytes are valid for as long as the call says, not
    /// for ever.
    unsafe fn new(data: *const c_void, bytes: u64, dtype: *const c_char) -> Result<Self> {
        // SAFETY: the contract of this function.
        unsafe {
            Ok(Self { bytes: elements(data, bytes)?, data_type: ElementType::of_call(dtype)? })
        }
    }

    /// Returns `count` elements of the array at `path`.
    fn stored(
        self,
        session: &mut Session,
        path: &ObjectPath,
        count: Option<u64>,
    ) -> Result<Cow<'static, [u8]>> {
        let data_type = session.data_type(path)?;
        to_stored(path.as_str(), data_type, self.data_type, count, self.bytes)
    }
}

unsafe fn write(
    session: SessionHandle,
    name: *const c_char,
    selection: &Selection,
    data: GivenData,
) -> Result<()> {
    // SAFETY: the contract of the call.
    let path = unsafe { path(name)? };
    with(session, |session| {
        let stored = data.stored(session, &path, selection.len())?;
        session.write(&path, selection, Elements::Bytes(&stored)).map(drop)
    })
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
    unsafe { bf_session_write_as(session, name, rank, start, shape, data, bytes, null()) }
}

/// `bf_session_write_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_as(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = region(rank, start, shape, null())?;
        write(session, name, &selection, GivenData::new(data, bytes, dtype)?)
    })
}

/// Elements that a session keeps until they are written: the caller's own, or converted ones.
struct KeptElements(Cow<'static, [u8]>);

impl AsRef<[u8]> for KeptElements {
    fn as_ref(&self) -> &[u8] {
        &self.0
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
    // SAFETY: the contract of the call.
    unsafe {
        bf_session_write_borrowed_as(session, name, rank, start, shape, data, bytes, token, null())
    }
}

/// `bf_session_write_borrowed_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_borrowed_as(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    start: *const u64,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    token: *mut u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call: the data stay valid until `bf_session_wait`, the next
    // commit or the session's end, and the session drops them by then.
    call(|| unsafe {
        give("the token", token, 0)?;
        let selection = region(rank, start, shape, null())?;
        let (path, data) = (path(name)?, GivenData::new(data, bytes, dtype)?);
        let taken = with(session, |session| {
            let kept = KeptElements(data.stored(session, &path, selection.len())?);
            session.write_held(&path, &selection, Box::new(kept))
        })?;
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
    unsafe {
        bf_session_write_boxes_as(session, name, rank, count, starts, shapes, data, bytes, null())
    }
}

/// `bf_session_write_boxes_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_boxes_as(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    count: u64,
    starts: *const u64,
    shapes: *const u64,
    data: *const c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let boxes: Option<Boxes> = boxes_to_write(rank, count, starts, shapes)?;
        let (path, data) = (path(name)?, GivenData::new(data, bytes, dtype)?);
        with(session, |session| {
            let stored = data.stored(session, &path, elements_of(boxes.as_ref()))?;
            match boxes {
                Some(boxes) => session.write_boxes(&path, boxes, &stored).map(drop),
                None => write_nothing(session, &path, &stored).map(drop),
            }
        })
    })
}

/// Returns the number of elements of boxes, if it can be counted.
fn elements_of(boxes: Option<&Boxes>) -> Option<u64> {
    boxes.map_or(Some(0), |boxes| boxes.elements().ok())
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
    unsafe {
        bf_session_write_points_as(session, name, rank, count, coordinates, data, bytes, null())
    }
}

/// `bf_session_write_points_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_points_as(
    session: SessionHandle,
    name: *const c_char,
    rank: u32,
    count: u64,
    coordinates: *const u64,
    data: *const c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let selection = points(rank, count, coordinates)?;
        write(session, name, &selection, GivenData::new(data, bytes, dtype)?)
    })
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
    unsafe {
        bf_session_write_decomposed_as(session, name, record, decomposition, data, bytes, null())
    }
}

/// `bf_session_write_decomposed_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_decomposed_as(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: *const c_void,
    bytes: u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let data = GivenData::new(data, bytes, dtype)?;
        write_decomposed(session, name, record, decomposition, data, |session, place, data| {
            session.write_declared(place.path, place.record, place.declared, &data)
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
    let untyped = null();
    // SAFETY: the contract of the call.
    unsafe {
        bf_session_write_decomposed_borrowed_as(
            session,
            name,
            record,
            decomposition,
            data,
            bytes,
            token,
            untyped,
        )
    }
}

/// `bf_session_write_decomposed_borrowed_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_write_decomposed_borrowed_as(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: *const c_void,
    bytes: u64,
    token: *mut u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call, as for `bf_session_write_borrowed`.
    call(|| unsafe {
        give("the token", token, 0)?;
        let data = GivenData::new(data, bytes, dtype)?;
        let write = |session: &mut Session, place: DeclaredTarget<'_>, data| {
            let kept = Box::new(KeptElements(data));
            session.write_declared_held(place.path, place.record, place.declared, kept)
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

/// Calls `write` with the boxes of a decomposition and the elements of `data`.
///
/// # Safety
/// `name` is null or a text that ends with a NUL.
unsafe fn write_decomposed(
    session: SessionHandle,
    name: *const c_char,
    record: i64,
    decomposition: DecompositionHandle,
    data: GivenData,
    write: impl FnOnce(&mut Session, DeclaredTarget<'_>, Cow<'static, [u8]>) -> Result<Token>,
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
        let count = elements_of(parts.boxes.as_ref());
        let stored = data.stored(&mut open.session, &path, count)?;
        let Some(boxes) = &parts.boxes else {
            return write_nothing(&mut open.session, &path, &stored);
        };
        let declared = open.declared(decomposition, &parts, boxes)?;
        write(&mut open.session, DeclaredTarget { path: &path, record, declared }, stored)
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
    unsafe { bf_session_append_as(session, name, axis, rank, shape, data, bytes, start, null()) }
}

/// `bf_session_append_as`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_session_append_as(
    session: SessionHandle,
    name: *const c_char,
    axis: u32,
    rank: u32,
    shape: *const u64,
    data: *const c_void,
    bytes: u64,
    start: *mut u64,
    dtype: *const c_char,
) -> StatusNumber {
    // SAFETY: the contract of the call.
    call(|| unsafe {
        let (path, shape) = (path(name)?, axes("shape", shape, rank)?);
        let data = GivenData::new(data, bytes, dtype);
        let at = with(session, |session| {
            // The other processes wait in this collective call, and learn of an error.
            let stored = data.and_then(|data| data.stored(session, &path, element_count(shape)));
            let given = match &stored {
                Ok(stored) => Ok(Elements::Bytes(stored)),
                Err(error) => Err(Error::new(error.kind(), error.to_string())),
            };
            session.append_given(&path, axis as usize, shape, given)
        })?;
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

/// Calls of `bf_comm_rest` in one wait that only yield.
const YIELDS: u32 = 64;
/// The first sleep of a wait. Each later one is half as long again, up to the longest.
const SLEEP_FIRST: Duration = Duration::from_micros(20);
const SLEEP_LONGEST: Duration = Duration::from_millis(1);

/// `bf_comm_rest`: lets other processes work during a wait. Returns the seconds of a monotonic
/// clock.
#[unsafe(no_mangle)]
pub extern "C" fn bf_comm_rest(tries: u32) -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    match tries.checked_sub(YIELDS) {
        None => std::thread::yield_now(),
        Some(sleeps) => {
            let longer = 1.5_f64.powi(sleeps.min(20).cast_signed());
            std::thread::sleep(SLEEP_FIRST.mul_f64(longer).min(SLEEP_LONGEST));
        }
    }
    BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64()
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
