//! The memory of the library: an arena of its own.
//!
//! The library cannot use `malloc`: a signal handler that reads may have interrupted `malloc` in
//! the same thread, and a forked child may have a copy of its lock. Only the thread with the lock
//! ([`crate::inside::LibraryLock`]) allocates from the arena. The rare allocations of other threads get
//! pages of their own.
//!
//! Blocks are powers of two, with a free list per size. When the arena is full, its owner drops all
//! patterns and empties it at once ([`empty`]). That is cheaper than collecting single blocks, and
//! safe in a forked child, where the parent's data may be half changed.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::inside;

/// Bytes of the arena's address space; only used pages take memory.
pub(crate) const ARENA_BYTES: usize = 64 << 20;
/// Larger blocks get pages of their own.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const PAGE: usize = 4096;
/// The smallest block is 16 bytes.
const SMALLEST: u32 = 4;
const CLASSES: usize = (BLOCK_BYTES_MAX.trailing_zeros() - SMALLEST) as usize + 1;

/// The address of the arena; null before [`map`].
static START: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

struct ArenaBlocks {
    used: usize,
    free: [*mut u8; CLASSES],
}

struct LockedBlocks(UnsafeCell<ArenaBlocks>);

// SAFETY: only the thread with the lock uses it.
unsafe impl Sync for LockedBlocks {}

static BLOCKS: LockedBlocks =
    LockedBlocks(UnsafeCell::new(ArenaBlocks { used: 0, free: [ptr::null_mut(); CLASSES] }));

/// Maps the arena; false if the system has no memory.
pub(crate) fn map() -> bool {
    let start = map_pages(ARENA_BYTES);
    START.store(start, Ordering::Release);
    !start.is_null()
}

/// Returns the bytes of the arena that no block has used yet.
pub(crate) fn untouched_bytes() -> usize {
    debug_assert!(inside::has_lock());
    // SAFETY: this thread has the lock.
    ARENA_BYTES - unsafe { (*BLOCKS.0.get()).used }
}

/// Empties the arena. No earlier block may be used again.
pub(crate) fn empty() {
    let start = START.load(Ordering::Acquire);
    // SAFETY: this thread has the lock, or is the only one of a forked child.
    let blocks = unsafe { &mut *BLOCKS.0.get() };
    if !start.is_null() {
        // SAFETY: the pages are the arena's own, and no block in them is in use.
        unsafe { libc::madvise(start.cast(), blocks.used, libc::MADV_DONTNEED) };
    }
    *blocks = ArenaBlocks { used: 0, free: [ptr::null_mut(); CLASSES] };
}

/// Maps zeroed pages; returns null on failure.
pub(crate) fn map_pages(bytes: usize) -> *mut u8 {
    map_raw(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
}

/// Maps pages without the functions of [`crate::calls`]; returns null on failure.
pub(crate) fn map_raw(bytes: usize, flags: i32, descriptor: i32) -> *mut u8 {
    let protection = c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    let [flags, descriptor, none] = [flags, descriptor, 0].map(c_long::from);
    // SAFETY: maps new pages.
    let start =
        unsafe { libc::syscall(libc::SYS_mmap, none, bytes, protection, flags, descriptor, none) }
            as *mut u8;
    if start.addr() == usize::MAX { ptr::null_mut() } else { start }
}

/// Returns the class of the blocks that fit a layout; `None` for blocks with pages of their own.
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

impl ArenaBlocks {
    fn take(&mut self, class: usize) -> *mut u8 {
        let block = self.free[class];
        if !block.is_null() {
            // SAFETY: a free block begins with the address of the next one.
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

// SAFETY: a block has one owner until it is freed, has at least the bytes of the layout, and is
// aligned to its size, up to a page. Larger alignments are refused.
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
                // SAFETY: this thread has the lock; the block is unused, and large enough for an
                // address.
                unsafe {
                    let blocks = &mut *BLOCKS.0.get();
                    block.cast::<*mut u8>().write(blocks.free[class]);
                    blocks.free[class] = block;
                }
            }
            return;
        }
        // SAFETY: `alloc` mapped these pages, with this size.
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
            // A block above the largest class lies outside the arena.
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
