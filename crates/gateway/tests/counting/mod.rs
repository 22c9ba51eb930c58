//! An allocator that counts what some threads allocate. A test binary makes it its own with
//! `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What was allocated wherever it counts, since the process began.
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, which asks at every allocation whether it counts here; the answer must
/// not allocate.
pub(crate) struct Counting(pub(crate) fn() -> bool);

impl Counting {
    fn count(&self) {
        if self.0() {
            ALLOCATIONS.fetch_add(1, Relaxed);
        }
    }
}

// SAFETY: everything is the system allocator's; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        self.count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
