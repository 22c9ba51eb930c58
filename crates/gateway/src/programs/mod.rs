//! Transactions and scripts of one key. An operation reads the record, what is asked for runs here
//! on a copy of it, and what it comes to is written on the condition that the record is still the
//! one that was read: all of it takes effect at once, or nothing does.
//!
//! A script of several keys (which `transactions = "batch"` permits) runs on copies of their
//! records. They are written one after the other, each on that condition: if the first one fails,
//! the script runs again; if a later one does, those before it stay.

mod budget;
mod copies;
mod scripts;
mod transaction;

use crate::failure::Failure;
use crate::operation::Version;
use crate::shared::Shared;
pub(crate) use budget::Budget;
pub(crate) use copies::{Copies, Effect};
pub(crate) use scripts::{Call, Sources, eval, script};
use scripts::{Compiled, Engine, Host, Sha, sha};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use transaction::{Transaction, Watched};
pub(crate) use transaction::{discard, exec, multi, queue, replay, spoil, unwatch, watch};

/// What is run on a record, as often as it takes until its write succeeds.
#[derive(Debug)]
pub(crate) struct Program {
    what: What,
    /// It is only to be run if this is the record's version.
    only_if: Option<Version>,
    resp3: bool,
    reply: Vec<u8>,
}

#[derive(Debug)]
enum What {
    Transaction(Transaction),
    Script(Call),
}

impl Program {
    pub(crate) fn transaction(
        transaction: Transaction,
        only_if: Option<Version>,
        resp3: bool,
    ) -> Program {
        Program { what: What::Transaction(transaction), only_if, resp3, reply: Vec::new() }
    }

    pub(crate) fn script(call: Call, resp3: bool) -> Program {
        Program { what: What::Script(call), only_if: None, resp3, reply: Vec::new() }
    }

    /// Bytes of its commands.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.what {
            What::Transaction(transaction) => transaction.bytes(),
            What::Script(call) => call.bytes(),
        }
    }

    /// Whether a write by others ends it.
    pub(crate) fn watches(&self) -> bool {
        self.only_if.is_some()
    }

    /// Whether the record isn't the one that was watched.
    pub(crate) fn is_outdated(&self, version: Version) -> bool {
        self.only_if.is_some_and(|watched| watched != version)
    }

    /// What the last run has answered.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    pub(crate) fn take_reply(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.reply)
    }
}

/// What a worker runs programs with.
#[derive(Debug)]
pub(crate) struct Programs {
    host: Arc<Mutex<Host>>,
    engine: Option<Engine>,
    sources: Arc<Sources>,
    reply_bytes_max: usize,
    /// A program since the turn began took long.
    took_long: bool,
}

impl Programs {
    pub(crate) fn new(shared: &Shared, worker: usize) -> Programs {
        Programs {
            host: Arc::new(Mutex::new(Host::new(shared, worker))),
            engine: None,
            sources: Arc::clone(&shared.scripts),
            reply_bytes_max: shared.config.output_bytes_hard,
            took_long: false,
        }
    }

    /// A connection's turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.took_long = false;
    }

    /// Whether a program since then took long: the turn is to end.
    pub(crate) fn took_long(&self) -> bool {
        self.took_long
    }

    fn host(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A script by its name.
    ///
    /// # Errors
    ///
    /// It isn't known, or there is no memory to compile it.
    pub(crate) fn named(&mut self, name: Sha) -> Result<Arc<Compiled>, Failure> {
        let Programs { engine, host, sources, .. } = self;
        let engine = engine_of(engine, host)?;
        if let Some(compiled) = engine.named(&name, sources) {
            return Ok(compiled);
        }
        let text = sources.get(&name).ok_or(Failure::NoScript)?;
        engine.compile(name, text).map_err(Failure::Text)
    }

    /// A script by its text, which is known by its name from then on.
    ///
    /// # Errors
    ///
    /// It is no script.
    pub(crate) fn of_text(&mut self, text: &[u8]) -> Result<Arc<Compiled>, Failure> {
        let Programs { engine, host, sources, .. } = self;
        let engine = engine_of(engine, host)?;
        if let Some(compiled) = engine.of_text(text, sources) {
            return Ok(compiled);
        }
        let (name, text) = (sha(text), Arc::from(text));
        let compiled = engine.compile(name, Arc::clone(&text)).map_err(Failure::Text)?;
        sources.insert(name, &text);
        Ok(compiled)
    }

    /// Runs a program on what was found of a key. What is to be written is in `value` then.
    ///
    /// # Errors
    ///
    /// It took too long, or its reply is too long. Nothing must be written.
    pub(crate) fn run(
        &mut self,
        program: &mut Program,
        key: &[u8],
        found: Option<(&[u8], u64)>,
        now_ms: u64,
        value: &mut Vec<u8>,
    ) -> Result<Effect, Failure> {
        {
            let mut host = self.host();
            host.copies.begin(now_ms);
            host.copies.add(key, found);
            host.budget = Budget::default();
        }
        let result = self.run_on_copies(program);
        let mut host = self.host();
        let effect = result.map(|()| host.copies.end(0, value));
        host.copies.rest();
        effect
    }

    /// Runs a program on what was found of several keys. For each it is told in turn what is to be
    /// done, and the value to write.
    ///
    /// # Errors
    ///
    /// As of [`Programs::run`].
    pub(crate) fn run_several<'a>(
        &mut self,
        program: &mut Program,
        found: impl Iterator<Item = (&'a [u8], Option<(&'a [u8], u64)>)>,
        now_ms: u64,
    ) -> Result<Vec<(Effect, Vec<u8>)>, Failure> {
        let mut count = 0;
        {
            let mut host = self.host();
            host.copies.begin(now_ms);
            for (key, found) in found {
                host.copies.add(key, found);
                count += 1;
            }
            host.budget = Budget::default();
        }
        let result = self.run_on_copies(program);
        let mut host = self.host();
        let effect = |at| {
            let mut value = Vec::new();
            (host.copies.end(at, &mut value), value)
        };
        let effects = result.map(|()| (0..count).map(effect).collect());
        host.copies.rest();
        effects
    }

    fn run_on_copies(&mut self, program: &mut Program) -> Result<(), Failure> {
        let result = self.run_whole(program);
        let is_long = self.host().budget.is_long();
        self.took_long |= is_long;
        result
    }

    fn run_whole(&mut self, program: &mut Program) -> Result<(), Failure> {
        let Program { what, reply, resp3, .. } = program;
        reply.clear();
        match what {
            What::Script(call) => self.run_script(call, reply, *resp3)?,
            What::Transaction(transaction) => self.run_transaction(transaction, reply, *resp3)?,
        }
        if reply.len() > self.reply_bytes_max {
            return Err(Failure::ReplyLength(self.reply_bytes_max));
        }
        Ok(())
    }

    /// Runs a script that names no key.
    pub(crate) fn run_keyless(
        &mut self,
        program: &mut Program,
        now_ms: u64,
    ) -> Result<Vec<u8>, Failure> {
        self.run(program, &[], None, now_ms, &mut Vec::new())?;
        Ok(program.take_reply())
    }

    fn run_script(&mut self, call: &Call, reply: &mut Vec<u8>, resp3: bool) -> Result<(), Failure> {
        match &mut self.engine {
            Some(engine) => engine.run(call, reply, resp3),
            None => Err(Failure::NoScript),
        }
    }

    fn run_transaction(
        &mut self,
        transaction: &Transaction,
        reply: &mut Vec<u8>,
        resp3: bool,
    ) -> Result<(), Failure> {
        transaction.head(reply);
        for command in transaction.commands() {
            self.host().budget.check()?;
            match command.answered {
                Some(answer) => reply.extend_from_slice(answer),
                None if command.verb.is_script() => {
                    match Call::new(self, command.verb, command.args) {
                        Ok(call) => self.run_script(&call, reply, resp3)?,
                        Err(failure) => crate::resp::write::error(reply, &failure.text()),
                    }
                }
                None => {
                    let mut host = self.host();
                    host.copies.execute(command.args, reply, resp3);
                    let work = host.copies.take_work();
                    host.budget.spend(work)?;
                }
            }
            if reply.len() > self.reply_bytes_max {
                return Err(Failure::ReplyLength(self.reply_bytes_max));
            }
        }
        Ok(())
    }
}

/// A worker's engine, made when the first script comes.
fn engine_of<'a>(
    engine: &'a mut Option<Engine>,
    host: &Arc<Mutex<Host>>,
) -> Result<&'a mut Engine, Failure> {
    match engine {
        Some(engine) => Ok(engine),
        none => {
            let engine = Engine::new(Arc::clone(host));
            Ok(none.insert(engine.map_err(|error| Failure::Text(format!("ERR {error}")))?))
        }
    }
}

/// Whether this can be a key.
fn is_key(key: &[u8]) -> bool {
    (1..=switchback_wire::KEY_BYTES_MAX).contains(&key.len())
}
