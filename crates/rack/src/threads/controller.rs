//! The controller's thread, and the one that writes its files.

use super::files::ControllerFiles;
use super::{Stop, poll, spawn, wait};
use mio::Events;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::Now;
use switchback_core::controller::{BackupFile, Controller, Store, StoreFile, Stored, merge_stores};
use switchback_net::{Carrier, Clock, ControlEvent, Mailbox, until};

type Call = Box<dyn FnOnce(&mut Controller, Now) + Send>;

/// Pause before a store that failed (a full disk, say) is tried again.
const STORE_AGAIN: Duration = Duration::from_millis(200);
/// Pause before the controller's full inbox is tried again.
const TOLD_AGAIN: Duration = Duration::from_millis(5);
/// The thread looks after this long, whether or not there is something to do.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Talks to a controller's thread.
#[derive(Clone)]
pub struct ControllerHandle {
    calls: Sender<Call>,
    inbox: Arc<Mailbox<ControlEvent>>,
    messages: Arc<AtomicU64>,
    /// Why files can't be stored just now.
    store_error: Arc<Mutex<Option<String>>>,
}

impl ControllerHandle {
    /// A handle of no controller.
    pub fn detached() -> ControllerHandle {
        let (calls, _) = mpsc::channel();
        ControllerHandle {
            calls,
            inbox: Arc::new(Mailbox::new(1)),
            messages: Arc::default(),
            store_error: Arc::default(),
        }
    }

    /// Runs `call` on the controller, in its thread; `None` if that has ended.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Controller, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        let call = move |controller: &mut Controller, now| {
            let _ = answer.send(call(controller, now));
        };
        self.calls.send(Box::new(call)).ok()?;
        self.inbox.push(ControlEvent::Wake);
        answered.recv().ok()
    }

    /// Control messages taken so far.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Why its files can't be stored just now, if so.
    pub fn store_error(&self) -> Option<String> {
        self.store_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Messages that wait.
    pub fn queued(&self) -> usize {
        self.inbox.len()
    }
}

/// A controller's thread.
pub struct ControllerThread {
    controller: Controller,
    inbox: Arc<Mailbox<ControlEvent>>,
    carrier: Arc<dyn Carrier>,
    clock: Clock,
    calls: Receiver<Call>,
    stores: Sender<Store>,
    messages: Arc<AtomicU64>,
}

impl ControllerThread {
    /// Starts the thread; it ends when `stop` is asked.
    pub fn start(
        controller: Controller,
        files: ControllerFiles,
        inbox: Arc<Mailbox<ControlEvent>>,
        carrier: Arc<dyn Carrier>,
        clock: Clock,
        stop: Stop,
    ) -> io::Result<(ControllerHandle, JoinHandle<()>)> {
        let (sender, calls) = mpsc::channel();
        let (stores, to_store) = mpsc::channel();
        let messages = Arc::new(AtomicU64::new(0));
        let handle = ControllerHandle {
            calls: sender,
            inbox: Arc::clone(&inbox),
            messages: Arc::clone(&messages),
            store_error: Arc::default(),
        };
        let (stored, failing) = (Arc::clone(&inbox), Arc::clone(&handle.store_error));
        let storing = stop.clone();
        let writer = spawn("files".into(), move || {
            store_all(&files, &to_store, &stored, &failing, &storing)
        })?;
        let thread =
            ControllerThread { controller, inbox, carrier, clock, calls, stores, messages };
        let (poll, waker) = poll()?;
        thread.inbox.register(&waker);
        let joined = spawn("controller".into(), move || {
            thread.run(poll, &stop);
            // The writer ends with everything written, once its channel is closed.
            if writer.join().is_err() {
                tracing::error!("the thread that writes the controller's files panicked");
            }
        })?;
        Ok((handle, joined))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop) {
        let mut events = Events::with_capacity(8);
        let mut arrived = VecDeque::new();
        while !stop.is_asked() {
            let now = self.clock.now();
            let timeout = until(now, self.controller.poll_timeout()).unwrap_or(PAUSE_MAX);
            wait(&mut poll, &mut events, Some(timeout.min(PAUSE_MAX)));
            self.inbox.drain_into(&mut arrived);
            // Not before: what arrived while the process was paused didn't arrive in time.
            let now = self.clock.now();
            self.messages.fetch_add(arrived.len() as u64, Ordering::Relaxed);
            for event in arrived.drain(..) {
                match event {
                    ControlEvent::Message(envelope) => {
                        self.controller.handle_message(now, envelope)
                    }
                    ControlEvent::Lost(peer) => self.controller.handle_lost(now, peer),
                    ControlEvent::Stored(id) => self.controller.handle_done(now, Stored { id }),
                    ControlEvent::BackupNotStored(number, why) => {
                        self.controller.backup_not_stored(number, &why);
                    }
                    ControlEvent::Wake => {}
                }
            }
            while let Ok(call) = self.calls.try_recv() {
                call(&mut self.controller, now);
            }
            if now.is_due(self.controller.poll_timeout()) {
                self.controller.handle_timeout(now);
            }
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        loop {
            if let Some(envelope) = self.controller.poll_message() {
                self.carrier.carry(envelope);
            } else if let Some(store) = self.controller.poll_op() {
                if self.stores.send(store).is_err() {
                    tracing::error!("the thread that writes the controller's files has ended");
                }
            } else {
                return;
            }
        }
    }
}

/// Writes files in the order in which they were asked for, what waits merged; a failed write is
/// repeated, so that "stored" is never a lie. A backup isn't worth waiting for: it is given up.
fn store_all(
    files: &ControllerFiles,
    to_store: &Receiver<Store>,
    stored: &Mailbox<ControlEvent>,
    failing: &Mutex<Option<String>>,
    stop: &Stop,
) {
    let say =
        |error: Option<String>| *failing.lock().unwrap_or_else(PoisonError::into_inner) = error;
    let mut pending = VecDeque::new();
    let mut given_up = None;
    loop {
        if pending.is_empty() {
            let Ok(first) = to_store.recv() else { return };
            pending.push_back(first);
        }
        pending.extend(to_store.try_iter());
        merge_stores(&mut pending);
        let Store { file, id, bytes } = pending.pop_front().expect("there is one");
        if let StoreFile::Backup(BackupFile { number, .. }) = file {
            if given_up != Some(number)
                && let Err(error) = files.store(file, &bytes)
            {
                tracing::error!(
                    %error,
                    number,
                    "a file of a backup can't be stored: it is given up"
                );
                stored.push(ControlEvent::BackupNotStored(number, error.to_string()));
                given_up = Some(number);
            }
            // All files before it are stored.
            if !tell_stored(stored, id, stop) {
                return;
            }
            continue;
        }
        let mut told = false;
        while let Err(error) = files.store(file, &bytes) {
            if !told {
                tracing::error!(
                    %error,
                    "the controller's files can't be stored; trying again until there is room"
                );
                say(Some(error.to_string()));
                told = true;
            }
            if stop.is_asked() {
                return;
            }
            std::thread::sleep(STORE_AGAIN);
        }
        if told {
            say(None);
        }
        if !tell_stored(stored, id, stop) {
            return;
        }
    }
}

/// Tells the controller that a file is stored, once its inbox has room: messages wait for it. False
/// if the process is to stop.
fn tell_stored(stored: &Mailbox<ControlEvent>, id: u64, stop: &Stop) -> bool {
    while !stored.push(ControlEvent::Stored(id)) {
        if stop.is_asked() {
            return false;
        }
        std::thread::sleep(TOLD_AGAIN);
    }
    true
}
