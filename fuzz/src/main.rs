//! Runs one target of `targets.rs` under libFuzzer; `BEDFORM_FUZZ_TARGET` names it.
//!
//! `tools/fuzz.py` builds and runs this. `crates/bedform/tests/reliability/fuzz_regressions.rs`
//! runs the same targets on the committed seeds and crashers, without libFuzzer.
#![no_main]

mod targets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// Inputs are at most 64 KiB, so no allocation may be larger than this.
const ALLOCATION_MAX: usize = (64 << 20) + (16 * (64 << 10));

/// A global allocator that ends the process at an allocation over the limit.
struct Capped;

// SAFETY: every call passes to the system's allocator with the same layout, or does not return.
unsafe impl GlobalAlloc for Capped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        // SAFETY: as the caller's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn check(size: usize) {
    if size > ALLOCATION_MAX {
        eprintln!("an allocation of {size} bytes");
        std::process::abort();
    }
}

#[global_allocator]
static ALLOCATOR: Capped = Capped;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name =
            std::env::var("BEDFORM_FUZZ_TARGET").expect("BEDFORM_FUZZ_TARGET names a target");
        if name == "canary" {
            return targets::canary;
        }
        let found = targets::TARGETS.iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("no target {name:?}")).1
    });
    target(data);
});
