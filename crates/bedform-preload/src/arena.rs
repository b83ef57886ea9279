//! The memory of the library: an arena of its own.
//!
//! `malloc` is not for it: a signal handler that reads may have interrupted `malloc` in the same thread,
//! and a forked child may have a copy of its lock. The arena is used by the thread with the lock alone
//! ([`crate::inside::Locked`]); what others allocate, which is next to nothing, is mapped by itself.
//!
//! Blocks are powers of two. Those that are freed are kept by size. When the arena is full, its owner
//! forgets everything and empties it at once ([`empty`]): cheaper than to collect, and as safe in a forked
//! child, where what the parent left may be half changed.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::inside;

/// Bytes of the arena. Only those that are used are memory.
pub(crate) const ARENA_BYTES: usize = 64 << 20;
/// Larger blocks are mapped by themselves.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const PAGE: usize = 4096;
/// The smallest block is 16 bytes.
const SMALLEST: u32 = 4;
const CLASSES: usize = (BLOCK_BYTES_MAX.trailing_zeros() - SMALLEST) as usize + 1;

/// Where the arena is; null before [`map`].
static START: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

struct Blocks {
    used: usize,
    free: [*mut u8; CLASSES],
}

struct Shared(UnsafeCell<Blocks>);

// SAFETY: used by the thread that has the lock alone.
unsafe impl Sync for Shared {}

static BLOCKS: Shared =
    Shared(UnsafeCell::new(Blocks { used: 0, free: [ptr::null_mut(); CLASSES] }));

/// Maps the arena; false where the system gives no memory.
pub(crate) fn map() -> bool {
    let start = map_pages(ARENA_BYTES);
    START.store(start, Ordering::Release);
    !start.is_null()
}

/// Bytes of the arena that were never used.
pub(crate) fn untouched_bytes() -> usize {
    debug_assert!(inside::has_lock());
    // SAFETY: this thread has the lock.
    ARENA_BYTES - unsafe { (*BLOCKS.0.get()).used }
}

/// Makes the arena empty. Nothing that was allocated before may be used again.
pub(crate) fn empty() {
    let start = START.load(Ordering::Acquire);
    // SAFETY: this thread has the lock, or is the only one of a forked child.
    let blocks = unsafe { &mut *BLOCKS.0.get() };
    if !start.is_null() {
        // SAFETY: the pages are the arena's own, and nothing in them is used any more.
        unsafe { libc::madvise(start.cast(), blocks.used, libc::MADV_DONTNEED) };
    }
    *blocks = Blocks { used: 0, free: [ptr::null_mut(); CLASSES] };
}

/// Pages that are zero; null where the system gives none.
pub(crate) fn map_pages(bytes: usize) -> *mut u8 {
    map_raw(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
}

/// Maps pages past the functions of [`crate::calls`]; null where that fails.
pub(crate) fn map_raw(bytes: usize, flags: i32, descriptor: i32) -> *mut u8 {
    let protection = c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    let [flags, descriptor, none] = [flags, descriptor, 0].map(c_long::from);
    // SAFETY: new pages, of which nobody knows.
    let start =
        unsafe { libc::syscall(libc::SYS_mmap, none, bytes, protection, flags, descriptor, none) }
            as *mut u8;
    if start.addr() == usize::MAX { ptr::null_mut() } else { start }
}

/// The class of blocks that hold so much; nothing for those that are mapped by themselves.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
    let bytes = bytes.checked_next_power_of_two().filter(|bytes| *bytes <= BLOCK_BYTES_MAX)?;
    Some((bytes.trailing_zeros() - SMALLEST) as usize)
}

fn bytes_of(class: usize) -> usize {
    1 << (class + SMALLEST as usize)
}

/// The allocator of the library.
pub(crate) struct Arena;

impl Blocks {
    fn take(&mut self, class: usize) -> *mut u8 {
        let block = self.free[class];
        if !block.is_null() {
            // SAFETY: a free block begins with the place of the next one.
            self.free[class] = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let bytes = bytes_of(class);
        let at = self.used.next_multiple_of(bytes.min(PAGE));
        let start = START.load(Ordering::Relaxed);
        if start.is_null() || at + bytes > ARENA_BYTES {
            return ptr::null_mut();
        }
        self.used = at + bytes;
        // SAFETY: within the arena.
        unsafe { start.add(at) }
    }
}

// SAFETY: a block is given to one owner until that frees it, has at least the bytes of the layout, and lies
// at a multiple of its size, up to a page. Larger alignments are refused.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return ptr::null_mut();
        }
        if inside::has_lock()
            && let Some(class) = class_of(layout)
        {
            // SAFETY: this thread has the lock.
            let block = unsafe { (*BLOCKS.0.get()).take(class) };
            if !block.is_null() {
                return block;
            }
        }
        map_pages(layout.size().next_multiple_of(PAGE))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let start = START.load(Ordering::Relaxed).addr();
        if start != 0 && (start..start + ARENA_BYTES).contains(&block.addr()) {
            if inside::has_lock()
                && let Some(class) = class_of(layout)
            {
                // SAFETY: this thread has the lock; nobody uses the block any more, and it holds an address.
                unsafe {
                    let blocks = &mut *BLOCKS.0.get();
                    block.cast::<*mut u8>().write(blocks.free[class]);
                    blocks.free[class] = block;
                }
            }
            return;
        }
        // SAFETY: mapped by `alloc`, with so many bytes.
        unsafe { libc::munmap(block.cast(), layout.size().next_multiple_of(PAGE)) };
    }
}

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: Arena = Arena;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::Inside;

    #[test]
    fn blocks_are_used_again_and_an_emptied_arena_has_all_its_bytes() {
        assert!(map());
        let inside = Inside::enter().unwrap();
        let locked = inside.lock().unwrap();
        let layout = Layout::from_size_align(3000, 8).unwrap();
        // SAFETY: the blocks are freed with their layout, and not used after.
        unsafe {
            let first = Arena.alloc(layout);
            first.write_bytes(1, 3000);
            let second = Arena.alloc(layout);
            assert_eq!(first.align_offset(4096), 0);
            assert_ne!(first, second);
            Arena.dealloc(first, layout);
            assert_eq!(Arena.alloc(layout), first);
            // What is larger than any block lies elsewhere.
            let large = Layout::from_size_align(BLOCK_BYTES_MAX + 1, 8).unwrap();
            let elsewhere = Arena.alloc(large);
            elsewhere.write_bytes(1, large.size());
            Arena.dealloc(elsewhere, large);
        }
        assert!(untouched_bytes() < ARENA_BYTES);
        empty();
        assert_eq!(untouched_bytes(), ARENA_BYTES);
        drop(locked);
    }
}
