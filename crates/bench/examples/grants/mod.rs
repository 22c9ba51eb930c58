//! The controller of a rack that has none: it grants every session at once, and for long.

use mio::Waker;
use std::collections::VecDeque;
use std::sync::Arc;
use switchback_core::control::{ClientNotice, ClientReport, Destination, Grant};
use switchback_net::ControlLink;
use switchback_wire::{Address, HashKey};

/// Of all sessions.
pub(crate) const HASH_KEY: HashKey = HashKey([7; 16]);

/// What one client hears.
pub(crate) struct Grants {
    index: u32,
    partitions: u32,
    notices: VecDeque<ClientNotice>,
}

impl Grants {
    /// Of the client of this number, in a rack of so many partitions.
    pub(crate) fn new(index: u32, partitions: u32) -> Grants {
        Grants { index, partitions, notices: VecDeque::new() }
    }
}

impl ControlLink for Grants {
    fn register(&mut self, _: &Arc<Waker>) {}

    fn send(&mut self, report: ClientReport) {
        let ClientReport::Hello { boot, sent_us, lanes, .. } = report else { return };
        self.notices.push_back(ClientNotice::Granted(Grant {
            boot,
            hello_us: sent_us,
            lease_us: 10_000_000,
            epoch: 1,
            destination: Destination::Switch(Address::in_memory(1, 0)),
            hash_key: HASH_KEY,
            partitions: self.partitions,
            lane_first: self.index * lanes,
            lanes,
            request_base: 0,
            durable_generation: 1,
            recovered_epoch: 0,
        }));
    }

    fn receive(&mut self) -> Option<ClientNotice> {
        self.notices.pop_front()
    }
}
