//! A slab whose entries keep their buffers when they are freed, so that using one again allocates
//! nothing.

use std::ops::{Index, IndexMut};

/// Entries that one which rests keeps.
const KEPT_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Arena<T> {
    entries: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Arena<T> {
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(T::default());
            (self.entries.len() - 1) as u32
        })
    }

    /// The caller has reset the entry.
    #[inline]
    pub(crate) fn give_back(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Gives up its room if nothing is in use and there is much of it.
    pub(crate) fn rest(&mut self) {
        if self.in_use() == 0 && self.entries.len() > KEPT_MAX {
            *self = Arena { entries: Vec::new(), free: Vec::new() };
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.entries[at as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.entries[at as usize]
    }
}
