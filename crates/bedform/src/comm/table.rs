//! Messages through a table of C functions.
//!
//! `bedform_mpi.h` fills a table with functions of the user's own MPI; any other message passing
//! library can be used the same way. [`CMembers`] and [`CMessage`] have the layout of `bf_comm` and
//! `bf_message` in `bedform.h`, which specifies each function.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{Messages, ReceivedMessage, SentMessage};
use crate::error::{Error, ErrorKind, Result};

/// A message to or from a member: `bf_message` of `bedform.h`.
#[derive(Debug)]
#[repr(C)]
pub struct CMessage {
    /// The rank of the other member.
    pub peer: i32,
    /// The bytes: read if they are sent, written if they are received.
    pub bytes: *mut c_void,
    /// Number of bytes.
    pub length: u64,
}

/// The members of a session behind C functions that return 0 on success: `bf_comm` of `bedform.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CMembers {
    /// Passed to every function.
    pub context: *mut c_void,
    /// The rank of this member, from 0.
    pub rank: i32,
    /// The number of members.
    pub size: i32,
    /// Waits for all members: (context).
    pub barrier: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Broadcasts: (context, bytes, length, root).
    pub broadcast: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, i32) -> c_int>,
    /// Gathers: (context, bytes, all, length, root).
    pub gather:
        Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, u64, i32) -> c_int>,
    /// Not called; it keeps the layout. Tables of older headers have a function here.
    pub reserved: Option<unsafe extern "C" fn()>,
    /// (context, sent, number sent, received, number received).
    pub exchange: Option<
        unsafe extern "C" fn(*mut c_void, *const CMessage, u64, *const CMessage, u64) -> c_int,
    >,
    /// Frees the context.
    pub free: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl CMembers {
    /// A table without members, to be filled.
    pub const EMPTY: Self = Self {
        context: null_mut(),
        rank: 0,
        size: 0,
        barrier: None,
        broadcast: None,
        gather: None,
        reserved: None,
        exchange: None,
        free: None,
    };

    /// Returns the message passing of the table. The table is copied; its context stays the
    /// caller's, and must outlive the returned value.
    ///
    /// # Errors
    /// `InvalidArgument` for a table that was not filled.
    ///
    /// # Safety
    /// The functions do as `bedform.h` specifies, and access only memory that is passed to them;
    /// one thread after another may call them.
    pub unsafe fn messages(&self) -> Result<Box<dyn Messages>> {
        Ok(Box::new(CTable::new(*self)?))
    }
}

/// A filled table.
#[derive(Debug)]
struct CTable {
    members: CMembers,
    rank: u32,
    size: u32,
}

// SAFETY: only the functions of the table use its context, and `CMembers::messages` requires that
// one thread after another may call them.
unsafe impl Send for CTable {}
// SAFETY: as above; only sessions use a table, and they make one call at a time.
unsafe impl Sync for CTable {}

impl CTable {
    fn new(members: CMembers) -> Result<Self> {
        let CMembers { context: _, rank, size, .. } = members;
        let is_complete = members.barrier.is_some()
            && members.broadcast.is_some()
            && members.gather.is_some()
            && members.exchange.is_some();
        match (u32::try_from(rank), u32::try_from(size)) {
            (Ok(rank), Ok(size)) if rank < size && is_complete => Ok(Self { members, rank, size }),
            _ => Err(Error::invalid(format!(
                "the communicator (rank {rank} of {size}) was not filled, or was freed; fill it with \
                 bf_comm_from_mpi of bedform_mpi.h"
            ))),
        }
    }
}

/// Returns an error if a function of the table returned a code other than 0.
fn check(function: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text =
        format!("the processes of the session lost each other: {function} gave error {code}");
    Err(Error::new(ErrorKind::Io, text))
}

fn missing() -> Error {
    Error::invalid("a function of the communicator is missing")
}

/// Returns a rank as the `i32` that C uses.
fn peer(rank: u32) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

// Lengths of existing buffers fit 64 bits.
impl Messages for CTable {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn barrier(&self) -> Result<()> {
        let wait = self.members.barrier.ok_or_else(missing)?;
        // SAFETY: the contract of `CMembers::messages`.
        check("barrier", unsafe { wait(self.members.context) })
    }

    fn broadcast(&self, bytes: &mut [u8], root: u32) -> Result<()> {
        let send = self.members.broadcast.ok_or_else(missing)?;
        let (pointer, length) = (bytes.as_mut_ptr().cast(), bytes.len() as u64);
        // SAFETY: the contract of `CMembers::messages`; the buffer has that length.
        let code = unsafe { send(self.members.context, pointer, length, peer(root)) };
        check("broadcast", code)
    }

    fn gather(&self, bytes: &[u8], all: &mut [u8], root: u32) -> Result<()> {
        let collect = self.members.gather.ok_or_else(missing)?;
        let length = bytes.len() as u64;
        if self.rank == root && all.len() as u64 != length * u64::from(self.size) {
            return Err(Error::invalid("the buffer of a gather has the wrong length"));
        }
        let (from, to) = (bytes.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: the contract of `CMembers::messages`; the buffers have the lengths that it says.
        let code = unsafe { collect(self.members.context, from, to, length, peer(root)) };
        check("gather", code)
    }

    fn exchange(
        &self,
        sent: &[SentMessage<'_>],
        received: &mut [ReceivedMessage<'_>],
    ) -> Result<()> {
        let exchange = self.members.exchange.ok_or_else(missing)?;
        let sent: Vec<CMessage> = sent
            .iter()
            .map(|message| CMessage {
                peer: peer(message.to),
                bytes: message.bytes.as_ptr().cast_mut().cast(),
                length: message.bytes.len() as u64,
            })
            .collect();
        let received: Vec<CMessage> = received
            .iter_mut()
            .map(|message| CMessage {
                peer: peer(message.from),
                bytes: message.bytes.as_mut_ptr().cast(),
                length: message.bytes.len() as u64,
            })
            .collect();
        let (sends, receives) = (sent.len() as u64, received.len() as u64);
        let (from, to) = (sent.as_ptr(), received.as_ptr());
        // SAFETY: the contract of `CMembers::messages`; the messages' buffers outlive the call, and
        // sent ones are only read.
        let code = unsafe { exchange(self.members.context, from, sends, to, receives) };
        check("exchange", code)
    }
}

#[cfg(test)]
#[expect(clippy::undocumented_unsafe_blocks, reason = "the table is filled below")]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::comm::{Communicator as _, Members, agree};

    /// Messages by (sender, receiver), each in order.
    type Boxes = HashMap<(i32, i32), Vec<Vec<u8>>>;

    /// A post office between threads.
    #[derive(Default)]
    struct Post {
        boxes: Mutex<Boxes>,
        arrived: Condvar,
        freed: Mutex<u32>,
    }

    struct Context {
        post: Arc<Post>,
        rank: i32,
        size: i32,
    }

    impl Context {
        fn send(&self, to: i32, bytes: &[u8]) {
            let mut boxes = self.post.boxes.lock().unwrap();
            boxes.entry((self.rank, to)).or_default().push(bytes.to_vec());
            self.post.arrived.notify_all();
        }

        fn receive(&self, from: i32, into: &mut [u8]) {
            let mut boxes = self.post.boxes.lock().unwrap();
            loop {
                let waiting = boxes.entry((from, self.rank)).or_default();
                if !waiting.is_empty() {
                    into.copy_from_slice(&waiting.remove(0));
                    return;
                }
                boxes = self.post.arrived.wait(boxes).unwrap();
            }
        }
    }

    unsafe fn of<'a>(context: *mut c_void) -> &'a Context {
        unsafe { &*context.cast::<Context>() }
    }

    fn usized(length: u64) -> usize {
        usize::try_from(length).unwrap()
    }

    unsafe extern "C" fn barrier(context: *mut c_void) -> c_int {
        let context = unsafe { of(context) };
        (0..context.size).for_each(|to| context.send(to, &[1]));
        (0..context.size).for_each(|from| context.receive(from, &mut [0]));
        0
    }

    unsafe extern "C" fn broadcast(
        context: *mut c_void,
        bytes: *mut c_void,
        length: u64,
        root: i32,
    ) -> c_int {
        let context = unsafe { of(context) };
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), usized(length)) };
        if context.rank != root {
            context.receive(root, bytes);
            return 0;
        }
        (0..context.size).filter(|to| *to != root).for_each(|to| context.send(to, bytes));
        0
    }

    unsafe extern "C" fn gather(
        context: *mut c_void,
        bytes: *const c_void,
        all: *mut c_void,
        length: u64,
        root: i32,
    ) -> c_int {
        let context = unsafe { of(context) };
        let length = usized(length);
        context.send(root, unsafe { std::slice::from_raw_parts(bytes.cast(), length) });
        if context.rank == root {
            for from in 0..context.size {
                let at = all.cast::<u8>().wrapping_add(from as usize * length);
                context.receive(from, unsafe { std::slice::from_raw_parts_mut(at, length) });
            }
        }
        0
    }

    unsafe extern "C" fn exchange(
        context: *mut c_void,
        sent: *const CMessage,
        sends: u64,
        received: *const CMessage,
        receives: u64,
    ) -> c_int {
        let context = unsafe { of(context) };
        for message in unsafe { std::slice::from_raw_parts(sent, usized(sends)) } {
            let (bytes, length) = (message.bytes.cast::<u8>(), usized(message.length));
            context.send(message.peer, unsafe { std::slice::from_raw_parts(bytes, length) });
        }
        for message in unsafe { std::slice::from_raw_parts(received, usized(receives)) } {
            let (bytes, length) = (message.bytes.cast::<u8>(), usized(message.length));
            context.receive(message.peer, unsafe { std::slice::from_raw_parts_mut(bytes, length) });
        }
        0
    }

    unsafe extern "C" fn free(context: *mut c_void) {
        let context = unsafe { Box::from_raw(context.cast::<Context>()) };
        *context.post.freed.lock().unwrap() += 1;
    }

    fn table(post: Arc<Post>, rank: i32, size: i32) -> CMembers {
        CMembers {
            context: Box::into_raw(Box::new(Context { post, rank, size })).cast(),
            rank,
            size,
            barrier: Some(barrier),
            broadcast: Some(broadcast),
            gather: Some(gather),
            reserved: None,
            exchange: Some(exchange),
            free: Some(free),
        }
    }

    /// Runs `act` on each of `size` members that communicate through tables; returns how many
    /// contexts were freed.
    fn on_all(size: i32, act: impl Fn(Members) + Sync) -> u32 {
        let post = Arc::new(Post::default());
        std::thread::scope(|scope| {
            for rank in 0..size {
                let (post, act) = (post.clone(), &act);
                scope.spawn(move || {
                    let members = table(post, rank, size);
                    act(Members::new(unsafe { members.messages() }.unwrap()));
                    unsafe { free(members.context) };
                });
            }
        });
        *post.freed.lock().unwrap()
    }

    /// Returns `length` bytes for the pair of `from` and `to`.
    fn part(from: u32, to: u32, length: usize) -> Vec<u8> {
        let of_pair = u64::from(from * 50 + to * 3);
        (0..length as u64).map(|at| (at * 7 + of_pair).to_le_bytes()[0]).collect()
    }

    #[test]
    fn parts_of_any_length_arrive_whether_or_not_they_fit_their_frames() {
        // Around the capacity of each kind of frame, and far beyond.
        let lengths = [0, 1, 55, 56, 57, 247, 248, 249, 1015, 1016, 1017, 70_000];
        on_all(3, |members| {
            let (rank, size) = (members.rank(), members.size());
            for (round, &length) in lengths.iter().enumerate() {
                let root = u32::try_from(round).unwrap() % size;
                let told = members.broadcast(part(rank, 0, length), root).unwrap();
                assert_eq!(told, part(root, 0, length));
                // Each member's part has another length.
                let own = lengths[(round + rank as usize) % lengths.len()];
                let all = members.gather(&part(rank, root, own), root).unwrap();
                let wanted = (0..size)
                    .map(|from| part(from, root, lengths[(round + from as usize) % lengths.len()]));
                assert_eq!(all, (rank == root).then(|| wanted.collect()));
                members.barrier().unwrap();
                // The same among some members.
                if rank != 1 {
                    let some = members.select(&[2, 0]).unwrap();
                    let told = some.broadcast(part(rank, 0, length), 0).unwrap();
                    assert_eq!(told, part(2, 0, length));
                    let all = some.gather(&part(rank, 5, own), 1).unwrap();
                    let of =
                        |from: u32| part(from, 5, lengths[(round + from as usize) % lengths.len()]);
                    assert_eq!(all, (rank == 0).then(|| vec![of(2), of(0)]));
                }
            }
            let error = agree(
                &members,
                if rank == 1 { Err(Error::invalid("x".repeat(5000))) } else { Ok(()) },
            );
            assert!(error.unwrap_err().to_string().ends_with("xxx"));
        });
    }

    #[test]
    fn members_of_one_system_are_on_one_node() {
        on_all(3, |members| {
            assert_eq!(members.nodes().unwrap(), [0; 3]);
            let all = members.select(&[0, 1, 2]).unwrap();
            assert_eq!((all.rank(), all.size()), (members.rank(), 3));
            assert_eq!(all.broadcast(vec![4], 1).unwrap(), [4]);
        });
    }

    #[test]
    fn a_table_that_nobody_filled_is_refused() {
        let mut members = table(Arc::default(), 0, 1);
        let whole = members;
        members.gather = None;
        for wrong in [
            CMembers::EMPTY,
            members,
            CMembers { rank: 1, ..whole },
            CMembers { rank: -1, ..whole },
            CMembers { size: 0, ..whole },
        ] {
            let error = unsafe { wrong.messages() }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        unsafe { free(whole.context) };
    }

    #[test]
    fn an_error_of_a_function_is_that_of_the_call() {
        unsafe extern "C" fn fail(_: *mut c_void) -> c_int {
            15
        }
        let members = CMembers { barrier: Some(fail), ..table(Arc::default(), 0, 1) };
        let error = unsafe { members.messages() }.unwrap().barrier().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().ends_with("barrier gave error 15"), "{error}");
        unsafe { free(members.context) };
    }
}
