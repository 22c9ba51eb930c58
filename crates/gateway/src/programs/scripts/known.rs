//! The scripts that a worker has compiled, by name and by text.

use super::engine::Compiled;
use super::sources::{KEPT_BYTES_MAX, KEPT_MAX, Sha, Sources};
use std::collections::HashMap;
use std::sync::Arc;

/// See the [module](self). Both maps have the same scripts.
#[derive(Debug, Default)]
pub(super) struct Known {
    by_name: HashMap<Sha, Arc<Compiled>>,
    /// To look a text up takes less time than its SHA-1.
    by_text: HashMap<Arc<[u8]>, Arc<Compiled>>,
    /// The one that was asked for last, which is often asked for next.
    last: Option<Arc<Compiled>>,
    text_bytes: usize,
    /// Those of [`Sources`] when these were begun.
    flushes: u64,
}

impl Known {
    pub(super) fn named(&mut self, sha: &Sha, sources: &Sources) -> Option<Arc<Compiled>> {
        self.forget_flushed(sources);
        if self.last.as_ref().is_none_or(|last| last.sha != *sha) {
            self.last = Some(Arc::clone(self.by_name.get(sha)?));
        }
        self.last.clone()
    }

    pub(super) fn of_text(&mut self, text: &[u8], sources: &Sources) -> Option<Arc<Compiled>> {
        self.forget_flushed(sources);
        if self.last.as_ref().is_none_or(|last| *last.text != *text) {
            self.last = Some(Arc::clone(self.by_text.get(text)?));
        }
        self.last.clone()
    }

    /// Adds one, if it isn't too long; all others go if there are too many.
    pub(super) fn insert(&mut self, compiled: &Arc<Compiled>) {
        let text = &compiled.text;
        if text.len() > KEPT_BYTES_MAX {
            return;
        }
        if self.by_name.len() >= KEPT_MAX || self.text_bytes + text.len() > KEPT_BYTES_MAX {
            self.forget();
        }
        self.text_bytes += text.len();
        self.by_name.insert(compiled.sha, Arc::clone(compiled));
        self.by_text.insert(Arc::clone(text), Arc::clone(compiled));
    }

    fn forget_flushed(&mut self, sources: &Sources) {
        if self.flushes != sources.flushes() {
            self.flushes = sources.flushes();
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.by_name.clear();
        self.by_text.clear();
        self.last = None;
        self.text_bytes = 0;
    }
}
