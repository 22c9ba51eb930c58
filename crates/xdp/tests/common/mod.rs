//! The kernel's build of the pipeline as tests use it.
#![allow(dead_code, clippy::unwrap_used)] // Each test uses a part of it; a failed unwrap is a failed test.

#[path = "../../../datapath/tests/conformance/mod.rs"]
pub(crate) mod conformance;

use conformance::*;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use switchback_datapath::state::{Lane, Record, Registers};
use switchback_datapath::*;
use switchback_wire::*;
use switchback_xdp::XdpDatapath;

/// Whether programs can be loaded; if not, says that this is skipped, and how to run it.
pub(crate) fn may_load(what: &str) -> bool {
    match switchback_xdp::permission() {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: {what} ({error}); how to run: as root, cargo test --release -p switchback-xdp");
            false
        }
    }
}

/// Loading takes most of a second, so what was loaded for the last vector is used again, after it has forgotten everything.
pub(crate) struct Kernel(Rc<XdpDatapath>);

thread_local! {
    static LOADED: RefCell<Option<Rc<XdpDatapath>>> = const { RefCell::new(None) };
}

impl Kernel {
    fn load(config: &Config) -> Kernel {
        LOADED.with_borrow_mut(|loaded| {
            let same = loaded.take().filter(|loaded| loaded.config() == config);
            let datapath = match same {
                Some(datapath) => {
                    // A lane that a vector has locked stays locked for ever.
                    for lane in 0..config.lanes {
                        datapath.poke_lane(lane, &Lane::default());
                    }
                    datapath.clear();
                    datapath
                }
                None => Rc::new(XdpDatapath::new(config, Address::default()).unwrap()),
            };
            *loaded = Some(Rc::clone(&datapath));
            Kernel(datapath)
        })
    }
}

impl Deref for Kernel {
    type Target = XdpDatapath;
    fn deref(&self) -> &XdpDatapath {
        &self.0
    }
}

subject!(
    Kernel as XdpDatapath,
    |this, packet, from, now_ms, random| XdpDatapath::process(this, packet, from, now_ms, random),
    Kernel::load
);
