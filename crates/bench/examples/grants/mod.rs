//! The controller of a rack that has none, in examples and tests: it grants every session at once.

use mio::Waker;
use std::collections::VecDeque;
use std::sync::Arc;
use switchback_core::control::{ChainGrant, ClientNotice, ClientReport, Destination, Grant};
use switchback_core::topology::{ByChain, ChainMap};
use switchback_net::ControlLink;
use switchback_wire::{Address, HashKey};

/// Lanes of all sessions.
pub(crate) const HASH_KEY: HashKey = HashKey([7; 16]);

/// The address for all requests.
pub(crate) const SWITCH: Address = Address::in_memory(1, 0);

/// Messages to one client.
pub(crate) struct Grants {
    index: u32,
    notices: VecDeque<ClientNotice>,
    waker: Option<Arc<Waker>>,
}

impl Grants {
    /// The control link of the client with this number.
    pub(crate) fn new(index: u32) -> Grants {
        Grants { index, notices: VecDeque::new(), waker: None }
    }
}

impl ControlLink for Grants {
    fn register(&mut self, waker: &Arc<Waker>) {
        self.waker = Some(Arc::clone(waker));
    }

    fn send(&mut self, report: ClientReport) {
        let ClientReport::Hello { boot, sent_us, lanes, .. } = report else { return };
        self.notices.push_back(ClientNotice::Granted(Grant {
            boot,
            hello_us: sent_us,
            lease_us: 2_000_000,
            chains: ByChain::new(1, |_| {
                Some(ChainGrant {
                    epoch: 1,
                    destination: Destination::Switch(SWITCH),
                    durable_generation: 1,
                    recovered_epoch: 0,
                    preserves: true,
                    gathers: true,
                })
            }),
            served: ChainMap::default(),
            hash_key: HASH_KEY,
            lane_first: self.index * lanes,
            lanes,
            request_base: 0,
        }));
        let waker = self.waker.as_ref().expect("a link is registered before anything is sent");
        waker.wake().expect("the client's poll is there as long as its links");
    }

    fn receive(&mut self) -> Option<ClientNotice> {
        self.notices.pop_front()
    }
}
