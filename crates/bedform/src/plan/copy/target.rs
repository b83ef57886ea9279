//! The target of copies: a buffer that many threads fill at once, each thread different bytes of it.
//!
//! It is a raw pointer with the buffer's length and lifetime. The bytes are disjoint by the contract
//! of [`Copy::run`](super::Copy::run), which the callers of the unsafe functions keep.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::ContiguousRun;

/// A buffer that several threads fill, each thread different bytes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyTarget<'a> {
    /// The first byte. Only this module and the kernels write through it.
    pub(super) pointer: *mut u8,
    length: usize,
    /// False for uninitialised memory.
    has_bytes: bool,
    marker: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `CopyTarget` is a borrowed buffer; the threads that share it write disjoint parts, which is
// the contract of `Copy::run`.
unsafe impl Send for CopyTarget<'_> {}
// SAFETY: as above.
unsafe impl Sync for CopyTarget<'_> {}

impl<'a> CopyTarget<'a> {
    /// Makes a target of an initialised buffer.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        let pointer = buffer.as_mut_ptr();
        Self { pointer, length: buffer.len(), has_bytes: true, marker: PhantomData }
    }

    /// Makes a target of uninitialised memory.
    pub(crate) fn of_room(room: &'a mut [MaybeUninit<u8>]) -> Self {
        let pointer = room.as_mut_ptr().cast();
        Self { pointer, length: room.len(), has_bytes: false, marker: PhantomData }
    }

    /// Makes a target of the `length` initialised bytes at `pointer`.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes for 'a, and nothing else uses them while a plan
    /// writes to the target.
    pub(crate) unsafe fn at(pointer: *mut u8, length: usize) -> Self {
        Self { pointer, length, has_bytes: true, marker: PhantomData }
    }

    /// Fills the whole target with `elements`.
    ///
    /// # Panics
    /// If `elements` has another length than the target.
    pub(crate) fn fill(self, elements: &[u8]) {
        assert_eq!(elements.len(), self.length, "elements for another buffer");
        // SAFETY: the buffer is borrowed for writing as long as this lives, and has as many bytes.
        // Its caller shares it with no other thread meanwhile, which is the contract of `Copy::run`
        // as well.
        unsafe { self.pointer.copy_from_nonoverlapping(elements.as_ptr(), self.length) };
    }

    /// Returns the slice of the target for a run, to be filled in place; `None` if it lies outside,
    /// or if the target is uninitialised.
    ///
    /// # Safety
    /// No other thread reads or writes these bytes while the slice lives, and no other slice of
    /// them exists.
    pub(crate) unsafe fn room_of(self, run: &ContiguousRun) -> Option<&'a mut [u8]> {
        let fits = run.target.checked_add(run.bytes).is_some_and(|end| end <= self.length);
        // SAFETY: the bytes lie in the buffer, which is borrowed for writing for 'a.
        let room =
            || unsafe { std::slice::from_raw_parts_mut(self.pointer.add(run.target), run.bytes) };
        (fits && self.has_bytes).then(room)
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}
