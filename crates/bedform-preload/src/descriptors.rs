//! A lock-free table from descriptors to files; a closed descriptor is forgotten at once.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::arena::map_pages;

/// Descriptors of one part of the table, which takes 32 KiB.
const PART: usize = 4096;
/// Parts of the table, for 2^20 descriptors: the kernel's default limit. Higher descriptors are not
/// watched.
const PARTS: usize = 256;

/// The state of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorState {
    /// Not looked up yet.
    No,
    /// It is not a regular file, or not watched.
    Ignored,
    /// The file in this slot, if the slot still has this generation.
    File {
        /// The number of the slot.
        slot: u16,
        /// The generation of the slot when the descriptor was looked up.
        generation: u32,
    },
}

static TABLE: [AtomicPtr<[AtomicU64; PART]>; PARTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; PARTS];

fn cell(descriptor: i32, may_make: bool) -> Option<&'static AtomicU64> {
    let number = usize::try_from(descriptor).ok()?;
    let part = TABLE.get(number / PART)?;
    let mut found = part.load(Ordering::Acquire);
    if found.is_null() && may_make {
        let made = map_pages(size_of::<[AtomicU64; PART]>()).cast();
        match part.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => found = made,
            // Another thread was first; these pages stay unused, once or twice per process.
            Err(other) => found = other,
        }
    }
    // SAFETY: a part is never unmapped, and zeros are a valid part.
    let part = unsafe { found.as_ref() }?;
    Some(&part[number % PART])
}

/// Returns the state of a descriptor; descriptors beyond the table are ignored.
#[inline]
pub(crate) fn known(descriptor: i32) -> DescriptorState {
    let in_table = usize::try_from(descriptor).is_ok_and(|number| number < PART * PARTS);
    match cell(descriptor, false) {
        None if in_table => DescriptorState::No,
        None => DescriptorState::Ignored,
        Some(cell) => unpack(cell.load(Ordering::Acquire)),
    }
}

/// Stores the state of a descriptor.
pub(crate) fn keep(descriptor: i32, known: DescriptorState) {
    if let Some(cell) = cell(descriptor, true) {
        cell.store(pack(known), Ordering::Release);
    }
}

/// Forgets a descriptor that is closed or reused.
#[inline]
pub(crate) fn forget(descriptor: i32) {
    if let Some(cell) = cell(descriptor, false) {
        cell.store(0, Ordering::Release);
    }
}

/// Forgets all descriptors of a range.
pub(crate) fn forget_range(first: u32, last: u32) {
    let end = usize::try_from(last).unwrap_or(usize::MAX).min(PART * PARTS - 1);
    let mut number = usize::try_from(first).unwrap_or(usize::MAX);
    while number <= end {
        // Missing parts have nothing to forget.
        let part = TABLE[number / PART].load(Ordering::Acquire);
        // SAFETY: as in `cell`.
        if let Some(part) = unsafe { part.as_ref() } {
            part[number % PART].store(0, Ordering::Release);
            number += 1;
        } else {
            number = (number / PART + 1) * PART;
        }
    }
}

fn pack(known: DescriptorState) -> u64 {
    match known {
        DescriptorState::No => 0,
        DescriptorState::Ignored => 1,
        DescriptorState::File { slot, generation } => {
            u64::from(generation) << 32 | (u64::from(slot) + 2)
        }
    }
}

fn unpack(packed: u64) -> DescriptorState {
    let [low, high] = [packed & u64::from(u32::MAX), packed >> 32];
    match low {
        0 => DescriptorState::No,
        1 => DescriptorState::Ignored,
        _ => match (u16::try_from(low - 2), u32::try_from(high)) {
            (Ok(slot), Ok(generation)) => DescriptorState::File { slot, generation },
            _ => DescriptorState::No,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_and_forgotten_to_the_end_of_the_table() {
        let file = DescriptorState::File { slot: u16::MAX, generation: u32::MAX };
        let last = i32::try_from(PART * PARTS - 1).unwrap();
        for descriptor in [700, 9000, last] {
            assert_eq!(known(descriptor), DescriptorState::No);
            keep(descriptor, file);
            assert_eq!(known(descriptor), file);
        }
        forget(9000);
        assert_eq!(known(9000), DescriptorState::No);
        forget_range(600, u32::MAX);
        assert_eq!([known(700), known(last)], [DescriptorState::No; 2]);
        for beyond in [last + 1, i32::MAX, -1] {
            keep(beyond, file);
            assert_eq!(known(beyond), DescriptorState::Ignored);
        }
    }
}
