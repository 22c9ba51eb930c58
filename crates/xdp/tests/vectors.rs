//! Runs the conformance vectors in the kernel, by BPF_PROG_TEST_RUN.

#[path = "../../datapath/tests/conformance/mod.rs"]
mod conformance;

use conformance::*;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use switchback_datapath::state::{Lane, Record, Registers};
use switchback_datapath::*;
use switchback_wire::*;
use switchback_xdp::XdpDatapath;

/// Loading takes most of a second, so what was loaded for the last vector is used again, after it has forgotten everything.
struct Kernel(Rc<XdpDatapath>);

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

#[test]
fn every_vector_holds_in_the_kernel() {
    if let Err(error) = switchback_xdp::permission() {
        eprintln!("skipped: the vectors in the kernel ({error}); how to run: as root, cargo test --release -p switchback-xdp");
        return;
    }
    let mut vectors = vectors();
    vectors.sort_by_key(|(_, _, features)| features.0);
    std::panic::set_hook(Box::new(|_| {})); // Messages are kept, and told below.
    let failed = failures::<Kernel>(&vectors, Features(0));
    drop(std::panic::take_hook());
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), vectors.len(), failed.join("\n"));
    assert!(vectors.len() >= 150, "only {}: some went missing", vectors.len());
}
