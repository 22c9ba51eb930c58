//! From start to stop: says when it is ready, waits for a signal, drains, and gives up at the
//! second one.

use crate::launch::Running;
use crate::{notify, output};
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a running part is asked whether it has failed.
const CHECK_PERIOD: Duration = Duration::from_millis(200);
/// How often one that starts is asked whether it serves, and after how long a person wants to know
/// why it doesn't.
const START_PERIOD: Duration = Duration::from_millis(10);
const LONG_START: Duration = Duration::from_secs(3);
/// Exit code of a process that was told twice to stop: what shells call "ended by SIGTERM or
/// SIGINT", which it wasn't, cleanly.
const IMPATIENT: i32 = 130;

/// What is said of a part that is told twice to stop.
pub(crate) const TOLD_TWICE: &str =
    "told twice: stopping at once; what was not yet flushed stays where it is";

/// Whether SIGHUP has a process read its files again: if it `has_files`, or has no terminal whose
/// end the signal could tell of.
pub(crate) fn reloads(has_files: bool) -> bool {
    has_files || !(std::io::stdin().is_terminal() || std::io::stderr().is_terminal())
}

/// Signals that ask to stop. Registered before anything starts, so that none is missed. The second
/// one says `twice` and ends the process. SIGHUP is one of them, unless the process [`reloads`].
pub(crate) fn signals(twice: &'static str, reloads: bool) -> anyhow::Result<Receiver<i32>> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals can't be handled")?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let stops = !(reloads && signal == SIGHUP);
            // At once, whatever the other threads are doing.
            if asked && stops {
                output::note(twice);
                // Without the destructors of the process: threads of RocksDB still use what they
                // would destroy.
                signal_hook::low_level::exit(IMPATIENT);
            }
            asked |= stops;
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Serves until a signal to stop comes or the part fails; then drains for at most `drain`.
pub(crate) fn until_stopped(
    mut running: Box<dyn Running>,
    signals: &Receiver<i32>,
    reloads: bool,
    drain: Duration,
    hints: impl FnOnce(&dyn Running),
) -> anyhow::Result<ExitCode> {
    let (started, mut hints, mut told) = (Instant::now(), Some(hints), false);
    let failure = loop {
        let serves = hints.is_none() || running.serves();
        if serves && let Some(hints) = hints.take() {
            // A rack serves on even if its ready line can't be written.
            let _ = output::line(&running.ready());
            notify::ready();
            hints(&*running);
        } else if !serves && !told && started.elapsed() > LONG_START {
            told = true;
            output::note(
                "the rack doesn't serve yet: this goes on as soon as its controller and a switch answer",
            );
        }
        match signals.recv_timeout(if serves { CHECK_PERIOD } else { START_PERIOD }) {
            Ok(SIGHUP) if reloads => reload(&*running),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(failure) = running.failure() {
                    break Some(failure);
                }
            }
        }
    };
    notify::stopping();
    let drained = running.shutdown(drain);
    if let Some(failure) = &failure {
        output::error(failure);
    }
    if let Err(remains) = &drained {
        output::error(remains);
    }
    Ok(if failure.is_none() && drained.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has the gateway show the certificates that are in its files now; says what came of it.
fn reload(running: &dyn Running) {
    let Some(tls) = running.tls() else {
        output::note("SIGHUP: nothing to read again, for nothing here serves TLS");
        return;
    };
    match tls.reload() {
        Ok(()) => output::note("certificates read again: new connections get them"),
        Err(error) => output::error(&format!("the old certificates stay in force: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Fake {
        failure: Option<String>,
        remains: Option<String>,
        stopped: Arc<AtomicU32>,
    }

    impl Running for Fake {
        fn ready(&self) -> String {
            "ready".into()
        }
        fn failure(&mut self) -> Option<String> {
            self.failure.take()
        }
        fn shutdown(self: Box<Self>, drain: Duration) -> Result<(), String> {
            assert_eq!(drain, Duration::from_secs(9));
            self.stopped.fetch_add(1, Ordering::Relaxed);
            self.remains.map_or(Ok(()), Err)
        }
    }

    fn serve(failure: Option<&str>, remains: Option<&str>, signals: &[i32]) -> ExitCode {
        let reloads = true;
        let stopped = Arc::new(AtomicU32::new(0));
        let fake = Fake {
            failure: failure.map(str::to_owned),
            remains: remains.map(str::to_owned),
            stopped: Arc::clone(&stopped),
        };
        let (sender, receiver) = channel();
        signals.iter().for_each(|signal| sender.send(*signal).unwrap());
        let code =
            until_stopped(Box::new(fake), &receiver, reloads, Duration::from_secs(9), |_| {})
                .unwrap();
        assert_eq!(stopped.load(Ordering::Relaxed), 1, "it is drained in any case");
        code
    }

    #[test]
    fn a_signal_drains_and_succeeds() {
        assert_eq!(serve(None, None, &[SIGTERM]), ExitCode::SUCCESS);
    }

    #[test]
    fn what_remains_is_a_failure() {
        assert_eq!(serve(None, Some("node 2: 17 records"), &[SIGTERM]), ExitCode::FAILURE);
    }

    #[test]
    fn a_part_that_fails_ends_the_process() {
        assert_eq!(serve(Some("node 2: disk full"), None, &[]), ExitCode::FAILURE);
    }

    /// It looks for a failure next, and finds one.
    #[test]
    fn a_process_that_reloads_goes_on_after_sighup() {
        assert_eq!(serve(Some("node 2: disk full"), None, &[SIGHUP]), ExitCode::FAILURE);
    }
}
