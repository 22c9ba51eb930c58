//! Metrics in Prometheus' text format.
//!
//! Parts count for themselves, without knowing of this module; a [`Source`] reads their counters
//! at a scrape. (That is why there is no registry of live metric objects here: most
//! counters live in the datapath's C tables and in single-threaded state machines.)

mod histogram;
mod samples;
mod sources;

pub use histogram::{BOUNDS_US, HistogramSnapshot};
pub use samples::{Kind, Samples};
pub use sources::{
    agent, build, certificate, control_channel, controller, datapath, engine, gateway, heat,
    interface, links, node, process, queue, socket,
};

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Something that can be asked for its counters.
pub trait Source: Send + Sync {
    /// Adds them.
    fn collect(&self, samples: &mut Samples);
}

impl<F: Fn(&mut Samples) + Send + Sync> Source for F {
    fn collect(&self, samples: &mut Samples) {
        self(samples);
    }
}

/// Every source of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Sources(Arc<RwLock<Vec<Arc<dyn Source>>>>);

impl Sources {
    /// Adds one; it is asked from the next scrape on.
    pub fn add(&self, source: impl Source + 'static) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// Asks all of them.
    pub fn collect(&self) -> Samples {
        // Not under the lock: a source may take its time, and another may be added meanwhile.
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut samples = Samples::default();
        for source in sources {
            source.collect(&mut samples);
        }
        samples
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sources({})", self.0.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}
