//! What scripts reach of the gateway: commands on the records, and what Redis' libraries are made
//! of.

use super::super::{Budget, Copies};
use super::number;
use crate::command::introspect;
use crate::command::{Refused, Verb, why_unsupported};
use crate::failure::Failure;
use crate::monitors::Monitors;
use crate::resp::{Args, Range, write};
use crate::shared::Shared;
use crate::statistics::GatewayStatistics;
use mlua::{Lua, MultiValue, Value};
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switchback_wire::VALUE_BYTES_MAX;

/// Buffers of one script's commands longer than this aren't kept for the next one.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What a script is told in which nothing counts any more.
pub(super) const TIME_IS_OVER: &CStr = c"its time is over";

/// A string that scripts make of others.
pub(super) const STRING_BYTES_MAX: usize = 1 << 20;

/// A result, or what is wrong.
pub(super) type Checked<T> = Result<T, String>;

/// Runs code of ours for a script; `None`: it has panicked, and the script ends without effect.
pub(super) fn guarded<T>(host: &Mutex<Host>, run: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(run));
    if result.is_err() {
        lock(host).failure = Some(Failure::Static("ERR internal error in a script"));
    }
    result.ok()
}

pub(super) fn lock(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work of a library's function that is put together before the budget is told.
pub(super) const METERED: usize = 10_000;

/// What a library's function does, by and by.
pub(super) struct Meter<'a> {
    host: &'a Mutex<Host>,
    work: Cell<usize>,
}

impl Meter<'_> {
    pub(super) fn new(host: &Mutex<Host>) -> Meter<'_> {
        Meter { host, work: Cell::new(0) }
    }

    /// See [`Budget::spend`].
    ///
    /// # Errors
    ///
    /// The script's time is over.
    pub(super) fn spend(&self, work: usize) -> Checked<()> {
        let work = self.work.get().saturating_add(work);
        self.work.set(if work < METERED { work } else { 0 });
        match work < METERED || lock(self.host).may_go_on(|budget| budget.spend(work)) {
            true => Ok(()),
            false => Err(TIME_IS_OVER.to_string_lossy().into_owned()),
        }
    }
}

/// A word of a command, as a script gives it.
pub(super) enum Word<'a> {
    Text(&'a [u8]),
    Number(f64),
    /// Neither; no command takes it.
    Other,
}

/// See the [module](self). One a worker.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) copies: Copies,
    pub(crate) budget: Budget,
    /// Why the script that runs can't go on. Nothing of it counts.
    pub(crate) failure: Option<Failure>,
    /// The longest reply of a program.
    pub(super) reply_bytes_max: usize,
    /// The longest command of a script.
    command_bytes_max: usize,
    /// It may not write.
    pub(crate) read_only: bool,
    /// What it is answered in.
    pub(super) resp3: bool,
    /// The clock is looked at more often, since the script has taken more memory than this.
    pub(super) is_tight: bool,
    pub(super) tight_above_bytes: usize,
    /// The state of `math.random`.
    random: u64,
    bytes: Vec<u8>,
    ranges: Vec<Range>,
    reply: Vec<u8>,
    statistics: Arc<GatewayStatistics>,
    monitors: Arc<Monitors>,
    worker: usize,
}

impl Host {
    pub(crate) fn new(shared: &Shared, worker: usize) -> Host {
        Host {
            copies: Copies::new(shared.config.output_bytes_hard),
            budget: Budget::default(),
            failure: None,
            reply_bytes_max: shared.config.output_bytes_hard,
            command_bytes_max: shared.config.command_bytes_max,
            read_only: false,
            resp3: false,
            is_tight: false,
            tight_above_bytes: 0,
            random: 0x1234_abcd_330e,
            bytes: Vec::new(),
            ranges: Vec::new(),
            reply: Vec::new(),
            statistics: Arc::clone(&shared.statistics),
            monitors: Arc::clone(&shared.monitors),
            worker,
        }
    }

    /// Begins a script, whose clock is looked at more often once Lua's memory is above this.
    pub(super) fn begin(&mut self, read_only: bool, tight_above_bytes: usize) {
        (self.read_only, self.resp3, self.failure) = (read_only, false, None);
        self.tight_above_bytes = tight_above_bytes;
    }

    /// Takes note of time, as one of the budget's checks says; false if there is none left.
    pub(super) fn may_go_on(
        &mut self,
        check: impl FnOnce(&mut Budget) -> Result<(), Failure>,
    ) -> bool {
        if let Err(failure) = check(&mut self.budget) {
            self.failure = Some(failure);
        }
        self.failure.is_none()
    }

    /// As `srand48`: scripts get the numbers of `lrand48`, as in Redis.
    pub(super) fn seed(&mut self, seed: u32) {
        self.random = u64::from(seed) << 16 | 0x330e;
    }

    pub(super) fn draw(&mut self) -> f64 {
        const LARGEST: u64 = 0x7fff_ffff;
        self.random = self.random.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        ((self.random >> 17) % LARGEST) as f64 / LARGEST as f64
    }

    /// Executes a command of a script; its reply, in RESP.
    pub(super) fn call<'w>(&mut self, words: impl Iterator<Item = Word<'w>>) -> &[u8] {
        self.reply.clear();
        if let Err(text) = self.take(words).and_then(|()| self.execute()) {
            self.reply.clear();
            write::error(&mut self.reply, &text);
        }
        let work = self.reply.len() + self.copies.take_work();
        self.may_go_on(|budget| budget.spend(work));
        &self.reply
    }

    /// A script has ended, and nothing looks at its last reply any more.
    pub(super) fn end(&mut self) {
        for buffer in [&mut self.bytes, &mut self.reply] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.ranges.capacity() > KEPT_BYTES_MAX / size_of::<Range>() {
            self.ranges = Vec::new();
        }
    }

    fn take<'w>(&mut self, words: impl Iterator<Item = Word<'w>>) -> Checked<()> {
        self.bytes.clear();
        self.ranges.clear();
        for word in words {
            let from = self.bytes.len();
            match word {
                Word::Text(text) if text.len() > VALUE_BYTES_MAX => {
                    return Err(Failure::ValueLength.to_string());
                }
                // Of one string thousands of words can be made.
                Word::Text(text) if text.len() > self.command_bytes_max - from => {
                    return Err(Failure::CommandLength(self.command_bytes_max).to_string());
                }
                Word::Text(text) => {
                    self.bytes.extend_from_slice(text);
                    if !self.may_go_on(|budget| budget.spend(text.len())) {
                        return Err(TIME_IS_OVER.to_string_lossy().into_owned());
                    }
                }
                Word::Number(number) => match number::integral(number) {
                    Some(number) => {
                        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes())
                    }
                    None => self.bytes.extend_from_slice(number::general(number, 17).as_bytes()),
                },
                Word::Other => {
                    return Err(
                        "ERR Lua redis lib command arguments must be strings or integers".into()
                    );
                }
            }
            if self.bytes.len() > self.command_bytes_max {
                return Err(Failure::CommandLength(self.command_bytes_max).to_string());
            }
            self.ranges.push(Range::new(from, self.bytes.len()));
        }
        if self.ranges.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call".into());
        }
        Ok(())
    }

    fn execute(&mut self) -> Checked<()> {
        let args = Args::new(&self.bytes, &self.ranges);
        let name = args.get(0);
        let Some(verb) = Verb::from_name(name) else {
            let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
            let text = why_unsupported(&lower)
                .map_or("ERR Unknown Redis command called from script".into(), |reason| {
                    format!("ERR '{lower}' is not supported by Switchback: {reason}")
                });
            self.statistics.workers()[self.worker].count_refused(Refused::from_name(name));
            return Err(text);
        };
        let spec = verb.spec();
        if !spec.takes(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if spec.flags.contains(&"noscript") {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if self.read_only && spec.writes() {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        if verb.keys(args).any(|at| !self.copies.has(args.get(at))) {
            let text = "ERR Script attempted to access a non local key in a cluster node";
            return Err(text.into());
        }
        if self.monitors.are_any() {
            self.monitors.show("lua", args, |_| false);
        }
        let out = &mut self.reply;
        match verb {
            Verb::Ping => introspect::write_ping(out, args),
            Verb::Echo => write::bulk(out, args.get(1)),
            Verb::Time => introspect::write_time(out),
            _ => self.copies.execute(args, out, self.resp3),
        }
        Ok(())
    }
}

/// An argument of a function, counted from 1.
pub(super) fn argument(values: &MultiValue, at: usize) -> Option<&Value> {
    values.get(at - 1)
}

pub(super) fn bad_argument(at: usize, function: &str, what: &str) -> String {
    format!("bad argument #{at} to '{function}' ({what})")
}

fn wrong_type(values: &MultiValue, at: usize, function: &str, wanted: &str) -> String {
    let found = argument(values, at).map_or("no value", Value::type_name);
    bad_argument(at, function, &format!("{wanted} expected, got {found}"))
}

/// An argument that has to be a number.
pub(super) fn number(values: &MultiValue, at: usize, function: &str) -> Checked<f64> {
    let number = match argument(values, at) {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => {
            let text = text.as_bytes();
            let trimmed = text.trim_ascii();
            number::prefix(trimmed)
                .filter(|(_, end)| *end == trimmed.len())
                .map(|(number, _)| number)
        }
        _ => None,
    };
    number.ok_or_else(|| wrong_type(values, at, function, "number"))
}

/// An argument that has to be a string; a number is one.
pub(super) fn bytes(values: &MultiValue, at: usize, function: &str) -> Checked<Vec<u8>> {
    match argument(values, at) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Integer(number)) => Ok(number.to_string().into_bytes()),
        Some(Value::Number(value)) => Ok(number::general(*value, 14).into_bytes()),
        _ => Err(wrong_type(values, at, function, "string")),
    }
}

/// What a function of a library gives back: true and its results, or false and what is wrong.
pub(super) fn results(lua: &Lua, checked: Checked<Vec<Value>>) -> mlua::Result<MultiValue> {
    let mut values = MultiValue::new();
    match checked {
        Ok(results) => {
            values.push_back(Value::Boolean(true));
            results.into_iter().for_each(|value| values.push_back(value));
        }
        Err(text) => {
            values.push_back(Value::Boolean(false));
            values.push_back(Value::String(lua.create_string(text)?));
        }
    }
    Ok(values)
}
