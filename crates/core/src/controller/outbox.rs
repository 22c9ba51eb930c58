//! What the controller wants done: messages to send, and files to store.

use crate::control::{Envelope, Message, Peer};
use crate::topology::ChainId;
use std::collections::VecDeque;

/// A file of the controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StoreFile {
    /// Epochs, sessions, the map of partitions.
    Directory,
    /// The last complete snapshot of a chain.
    Snapshot(ChainId),
    /// Of the last backup.
    Backup(BackupFile),
}

/// A file of a backup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BackupFile {
    /// The number of the nodes' checkpoints that belong to it. Once this backup's directory is
    /// stored, the files of those with lower numbers can go.
    pub number: u64,
    /// Which it is.
    pub part: BackupPart,
}

/// What a file of a backup holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BackupPart {
    /// The snapshot of a chain that began at the cut, if the chain has one.
    Snapshot(ChainId),
    /// The directory at the cut, without sessions. Stored last: without it there is no backup.
    Directory,
}

/// A file to be stored whole: written, synced, renamed into place, the old one kept until then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// Which file.
    pub file: StoreFile,
    /// Rises from store to store.
    pub id: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// A store is durable, and with it all of lower ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Of the [`Store`].
    pub id: u64,
}

/// Merges what waits for a slow disk: of each file only the newest contents need be written, where
/// the first of them were due. So there are at most as many stores as files, and none is confirmed
/// before everything that was asked for earlier is on the disk.
pub fn merge_stores(pending: &mut VecDeque<Store>) {
    let Some(newest) = pending.iter().map(|store| store.id).max() else { return };
    let mut merged: VecDeque<Store> = VecDeque::new();
    for store in pending.drain(..) {
        match merged.iter_mut().find(|known| known.file == store.file) {
            Some(known) => known.bytes = store.bytes,
            None => merged.push_back(store),
        }
    }
    merged.back_mut().expect("there was one").id = newest;
    *pending = merged;
}

#[derive(Debug)]
enum Effect {
    Send(Envelope),
    Store(Store),
}

/// Effects in the order in which they came up, and messages that wait until a store is durable.
#[derive(Debug)]
pub(super) struct Outbox {
    effects: VecDeque<Effect>,
    /// Each may leave once this store is durable. In the order of the stores.
    held_back: VecDeque<(u64, Envelope)>,
    next_store: u64,
    /// This store is durable, with all before it.
    stored: u64,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { effects: VecDeque::new(), held_back: VecDeque::new(), next_store: 1, stored: 0 }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.post(Envelope { from: Peer::Controller, to, message });
    }

    /// Sends an envelope.
    pub(super) fn post(&mut self, envelope: Envelope) {
        self.effects.push_back(Effect::Send(envelope));
    }

    /// Sends a message once a store is durable.
    pub(super) fn send_after(&mut self, store: u64, to: Peer, message: Message) {
        self.held_back.push_back((store, Envelope { from: Peer::Controller, to, message }));
        self.release();
    }

    /// Stores a file whole; the number of the store.
    pub(super) fn store(&mut self, file: StoreFile, bytes: Vec<u8>) -> u64 {
        let id = self.next_store;
        self.next_store += 1;
        self.effects.push_back(Effect::Store(Store { file, id, bytes }));
        id
    }

    /// A store is durable, with all before it: what was held back for them leaves.
    pub(super) fn set_stored(&mut self, store: u64) {
        self.stored = self.stored.max(store);
        self.release();
    }

    /// Whether a store is durable.
    pub(super) fn is_stored(&self, store: u64) -> bool {
        self.stored >= store
    }

    /// Takes the next message, unless a store comes before it.
    pub(super) fn poll_message(&mut self) -> Option<Envelope> {
        match self.effects.pop_front()? {
            Effect::Send(envelope) => Some(envelope),
            store => {
                self.effects.push_front(store);
                None
            }
        }
    }

    /// Takes the next store, unless a message comes before it.
    pub(super) fn poll_op(&mut self) -> Option<Store> {
        match self.effects.pop_front()? {
            Effect::Store(store) => Some(store),
            message => {
                self.effects.push_front(message);
                None
            }
        }
    }

    fn release(&mut self) {
        while self.held_back.front().is_some_and(|(store, _)| *store <= self.stored) {
            let (_, envelope) = self.held_back.pop_front().expect("just seen");
            self.post(envelope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ClientNotice;

    fn store(file: StoreFile, id: u64, byte: u8) -> Store {
        Store { file, id, bytes: vec![byte] }
    }

    #[test]
    fn stores_that_wait_are_merged_in_order() {
        let (directory, snapshot) = (StoreFile::Directory, StoreFile::Snapshot(ChainId::new(1)));
        let mut pending =
            VecDeque::from([store(directory, 5, 5), store(snapshot, 6, 6), store(directory, 7, 7)]);
        merge_stores(&mut pending);
        // The snapshot's generation was reserved in the fifth store, which it may not precede.
        assert_eq!(pending, [store(directory, 5, 7), store(snapshot, 7, 6)]);
        merge_stores(&mut pending);
        assert_eq!(pending.len(), 2);
        let mut pending = VecDeque::from([store(directory, 8, 8), store(directory, 9, 9)]);
        merge_stores(&mut pending);
        assert_eq!(pending, [store(directory, 9, 9)]);
    }

    #[test]
    fn messages_and_stores_leave_in_the_order_in_which_they_came_up() {
        let mut outbox = Outbox::new();
        let message = Message::ToClient(ClientNotice::Gathered { epoch: 1, chunk: 0 });
        outbox.send(Peer::Client(1), message.clone());
        let id = outbox.store(StoreFile::Directory, vec![1]);
        outbox.send_after(id, Peer::Client(2), message.clone());
        outbox.send(Peer::Client(3), message);
        let to = |envelope: Option<Envelope>| envelope.map(|envelope| envelope.to);
        assert_eq!(outbox.poll_op(), None);
        assert_eq!(to(outbox.poll_message()), Some(Peer::Client(1)));
        assert_eq!(to(outbox.poll_message()), None);
        assert_eq!(outbox.poll_op(), Some(store(StoreFile::Directory, id, 1)));
        assert_eq!(to(outbox.poll_message()), Some(Peer::Client(3)));
        assert_eq!(to(outbox.poll_message()), None);
        outbox.set_stored(id);
        assert_eq!(to(outbox.poll_message()), Some(Peer::Client(2)));
    }
}
