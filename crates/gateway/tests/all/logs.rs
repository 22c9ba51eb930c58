//! What clients can have written to the log.

use crate::fake::{Client, FakeRack, config};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Lines about clients that speak HTTP.
static LINES: AtomicU64 = AtomicU64::new(0);

/// A log that counts these lines.
struct Log;

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" && format!("{value:?}").contains("speaks HTTP") {
            LINES.fetch_add(1, Relaxed);
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("::execute")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Log);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Fails if a client that knows no password can have a line written for each of its connections.
/// (Another test's gateway may write one, too.)
#[test]
fn connections_that_speak_http_do_not_fill_the_log() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let gateway = FakeRack::default().start(config());
    for _ in 0..50 {
        let mut client = Client::connect(&gateway);
        client.send(b"POST / HTTP/1.1\r\n");
        assert_eq!(client.reply(), b"");
    }
    let lines = LINES.load(Relaxed);
    assert!((1..=5).contains(&lines), "{lines} lines");
}
