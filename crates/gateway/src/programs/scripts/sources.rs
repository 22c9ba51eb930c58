//! The scripts that are known by their SHA-1, of all workers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scripts that are kept; then the oldest goes.
pub(super) const KEPT_MAX: usize = 1000;
pub(super) const KEPT_BYTES_MAX: usize = 8 << 20;

/// The name of a script, in lower case.
pub(crate) type Sha = [u8; 40];

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Sources {
    kept: Mutex<Kept>,
    /// How often all have been forgotten, so that workers notice.
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    texts: HashMap<Sha, Arc<[u8]>>,
    order: VecDeque<Sha>,
    bytes: usize,
}

/// The name of a script.
pub(crate) fn sha(text: &[u8]) -> Sha {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = sha1_smol::Sha1::from(text).digest().bytes();
    let mut name = [0; 40];
    for (two, byte) in name.chunks_exact_mut(2).zip(digest) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    name
}

impl Sources {
    pub(crate) fn insert(&self, sha: Sha, text: &Arc<[u8]>) {
        let mut kept = self.kept();
        if kept.texts.insert(sha, Arc::clone(text)).is_some() {
            return;
        }
        kept.order.push_back(sha);
        kept.bytes += text.len();
        while kept.order.len() > KEPT_MAX || kept.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.bytes -= kept.texts.remove(&oldest).map_or(0, |text| text.len());
        }
    }

    pub(crate) fn get(&self, sha: &Sha) -> Option<Arc<[u8]>> {
        self.kept().texts.get(sha).cloned()
    }

    pub(crate) fn flush(&self) {
        *self.kept() = Kept::default();
        self.flushes.fetch_add(1, Relaxed);
    }

    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let sources = Sources::default();
        let name = |number: usize| sha(number.to_string().as_bytes());
        let text = |bytes: usize| -> Arc<[u8]> { vec![b' '; bytes].into() };
        (0..=KEPT_MAX).for_each(|number| sources.insert(name(number), &text(10)));
        assert_eq!(sources.get(&name(0)), None);
        assert!(sources.get(&name(1)).is_some());
        sources.insert(name(2000), &text(KEPT_BYTES_MAX - 100));
        assert_eq!(sources.get(&name(KEPT_MAX - 10)), None);
        assert!(sources.get(&name(KEPT_MAX)).is_some() && sources.get(&name(2000)).is_some());
        sources.flush();
        assert_eq!((sources.get(&name(2000)), sources.flushes()), (None, 1));
    }

    #[test]
    fn a_script_is_named_by_its_sha1() {
        assert_eq!(&sha(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
