//! A Lua state with what scripts see in it.

use super::super::Budget;
use super::commands::COMMON_BYTES_MAX;
use super::host::{self, Checked, Host, Meter, STRING_BYTES_MAX, TIME_IS_OVER, guarded, lock};
use super::known::Known;
use super::raw::{self, Caller};
use super::replies::Form;
use super::sources::{Sha, Sources, sha};
use super::{Call, bits, json, msgpack, patterns, structs};
use crate::command::introspect::{REDIS_VERSION, REDIS_VERSION_NUMBER};
use crate::failure::Failure;
use crate::resp::write;
use memchr::memmem;
use mlua::state::{GcIncParams, GcMode};
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, RegistryKey, StdLib, Table,
    Value, VmState,
};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

const SANDBOX: &str = include_str!("sandbox.lua");
/// Instructions between two looks at the clock.
const INSTRUCTIONS: u32 = 100;
/// Instructions between two looks once a script has taken more memory than [`TIGHT_BYTES`]: one
/// that compares or joins long strings may take as long as thousands of others.
const TIGHT_INSTRUCTIONS: u32 = 10;
const TIGHT_BYTES: usize = 512 << 10;
/// A script's text: to compile it can't be interrupted.
pub(crate) const TEXT_BYTES_MAX: usize = 32 << 10;
/// Memory that one script may take beyond what was in use before, and what it is given. The limit
/// of common scripts allows for garbage ([`GARBAGE_BYTES_MAX`]) and arguments
/// ([`COMMON_BYTES_MAX`]): where there are none, a script may take as much more.
pub(crate) const SCRIPT_MB_MAX: usize = 4;
/// Garbage that is kept from one script to the next.
const GARBAGE_BYTES_MAX: usize = 1 << 20;
/// While a script runs, Lua collects garbage when its memory has grown to this share of what was
/// left the last time, or by [`GARBAGE_BYTES_MAX`] if that is less: by far less than a script may
/// take, but not for each few scripts that leave some hundred bytes.
const GARBAGE_PERCENT_MAX: c_int = 400;
/// See `check_pattern` in sandbox.lua.
const PATTERN_BYTES_MAX: usize = 1000;
const PATTERN_WORK_MAX: f64 = 4e6;
const SORTED_MAX: usize = 10_000;
const SORTED_WORK_MAX: f64 = 4e7;

/// A script that can be run.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) sha: Sha,
    pub(super) text: Arc<[u8]>,
    /// Where in Lua's registry its function is.
    function: RegistryKey,
    pub(crate) is_read_only: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    lua: Lua,
    caller: Caller,
    compile: Function,
    known: Known,
    /// Memory that was taken after garbage was last collected.
    floor_bytes: usize,
    host: Arc<Mutex<Host>>,
}

impl Engine {
    /// # Errors
    ///
    /// There is no memory for it.
    pub(crate) fn new(host: Arc<Mutex<Host>>) -> mlua::Result<Engine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::DEBUG;
        let options = LuaOptions::new().catch_rust_panics(false);
        // SAFETY: of what can break the state, modules in C aren't loaded; `debug` is reached by
        // sandbox.lua only, which scripts don't get it from.
        let lua = unsafe { Lua::unsafe_new_with(libraries, options) };
        let given = functions(&lua, &host)?;
        let made: Table = lua.load(SANDBOX).set_name("=sandbox").call(given)?;
        let proxy: Table = made.raw_get("proxy")?;
        lua.set_globals(proxy)?;
        watch(&lua, &host, INSTRUCTIONS)?;
        let mut engine = Engine {
            caller: Caller::new(&lua, made.raw_get("globals")?, made.raw_get("handle")?)?,
            compile: made.raw_get("compile")?,
            known: Known::default(),
            floor_bytes: 0,
            lua,
            host,
        };
        engine.collect_all();
        Ok(engine)
    }

    /// A script of this name that was compiled before.
    pub(crate) fn named(&mut self, sha: &Sha, sources: &Sources) -> Option<Arc<Compiled>> {
        self.known.named(sha, sources)
    }

    /// A script of this text that was compiled before.
    pub(crate) fn of_text(&mut self, text: &[u8], sources: &Sources) -> Option<Arc<Compiled>> {
        self.known.of_text(text, sources)
    }

    /// # Errors
    ///
    /// It is no script; the text of the error reply.
    pub(crate) fn compile(&mut self, sha: Sha, text: Arc<[u8]>) -> Checked<Arc<Compiled>> {
        if text.len() > TEXT_BYTES_MAX {
            let length = text.len();
            return Err(format!("ERR a script of {length} bytes: {TEXT_BYTES_MAX} are the most"));
        }
        let (is_read_only, body) = shebang(&text)?;
        // The hook may fire here, too, where the time of the script before could be over.
        let budget = std::mem::take(&mut lock(&self.host).budget);
        self.limit_memory(0);
        let compiled = (|| {
            let body = self.lua.create_string(body)?;
            let (function, error): (Option<Function>, Option<LuaString>) =
                self.compile.call(body)?;
            let function = function.map(|function| self.lua.create_registry_value(function));
            Ok::<_, mlua::Error>((function.transpose()?, error))
        })();
        self.limit_memory(self.common_limit());
        lock(&self.host).budget = budget;
        let (function, error) = compiled.map_err(|error| format!("ERR {error}"))?;
        let Some(function) = function else {
            let error = error.map_or(String::new(), |error| error.to_string_lossy());
            return Err(format!("ERR Error compiling script (new function): {error}"));
        };
        let compiled = Arc::new(Compiled { sha, text, function, is_read_only });
        self.known.insert(&compiled);
        Ok(compiled)
    }

    /// Runs a script on the host's copies, and appends its reply.
    ///
    /// # Errors
    ///
    /// It took too much time or memory: nothing of it counts.
    pub(crate) fn run(
        &mut self,
        call: &Call,
        out: &mut Vec<u8>,
        resp3: bool,
    ) -> Result<(), Failure> {
        let used_bytes = self.collect_garbage();
        lock(&self.host).begin(call.read_only, used_bytes + call.lua_bytes() + TIGHT_BYTES);
        if call.is_large() {
            self.limit_memory(used_bytes + call.lua_bytes() + (SCRIPT_MB_MAX << 20));
        }
        let result = self.caller.run(&call.script.function, call);
        // To look into a table takes memory, too.
        let is_lifted = call.is_large() || matches!(result, Ok((_, Value::Table(_))));
        if is_lifted {
            self.limit_memory(0);
        }
        let concluded = self.conclude(call, result, out, resp3);
        if is_lifted {
            self.limit_memory(self.common_limit());
        }
        concluded
    }

    /// Appends the reply of a script that has ended.
    fn conclude(
        &mut self,
        call: &Call,
        result: mlua::Result<(bool, Value)>,
        out: &mut Vec<u8>,
        resp3: bool,
    ) -> Result<(), Failure> {
        let script_resp3 = {
            let mut host = lock(&self.host);
            let (failure, resp3) = (host.failure.take(), host.resp3);
            let is_tight = std::mem::take(&mut host.is_tight);
            host.end();
            drop(host);
            if is_tight || failure.is_some() {
                self.limit_memory(0);
                let watched = watch(&self.lua, &self.host, INSTRUCTIONS);
                self.limit_memory(self.common_limit());
                watched.map_err(|error| Failure::Text(format!("ERR {error}")))?;
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            resp3
        };
        match result {
            Ok((true, value)) => {
                return Form::new(&self.host, resp3, script_resp3).write(out, &value, 0);
            }
            Ok((false, Value::Table(error))) => {
                write::error(out, &error_text(&error, &call.script.sha))
            }
            // What isn't a table hasn't been through the handler: there was no memory for it.
            Ok((false, _)) | Err(_) => return Err(Failure::ScriptMemory(SCRIPT_MB_MAX)),
        }
        Ok(())
    }

    /// Collects what scripts have left, if that is much; the memory that is taken then.
    fn collect_garbage(&mut self) -> usize {
        let used_bytes = self.lua.used_memory();
        if used_bytes > self.floor_bytes + GARBAGE_BYTES_MAX {
            self.collect_all();
            return self.floor_bytes;
        }
        if used_bytes < self.floor_bytes {
            self.floor_bytes = used_bytes;
            self.limit_memory(self.common_limit());
        }
        used_bytes
    }

    fn collect_all(&mut self) {
        self.lua.expire_registry_values(); // those of forgotten scripts
        let _ = self.lua.gc_collect(); // it can't fail: no finalizer is a script's
        self.floor_bytes = self.lua.used_memory();
        let percent = 100 + 100 * GARBAGE_BYTES_MAX / self.floor_bytes.max(1);
        let pause = (percent as c_int).min(GARBAGE_PERCENT_MAX);
        self.lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(pause)));
        self.limit_memory(self.common_limit());
    }

    /// What Lua may take while a script of a common size runs, whatever garbage there is when it
    /// begins.
    fn common_limit(&self) -> usize {
        self.floor_bytes + GARBAGE_BYTES_MAX + COMMON_BYTES_MAX + (SCRIPT_MB_MAX << 20)
    }

    /// Limits what Lua takes in all; 0: not at all.
    fn limit_memory(&self, bytes: usize) {
        let _ = self.lua.set_memory_limit(bytes); // it can't fail: the allocator is mlua's
    }
}

/// Has a script end when its time is over. From then on every instruction is its last one, so that
/// it can't catch the error for ever.
fn watch(lua: &Lua, host: &Arc<Mutex<Host>>, instructions: u32) -> mlua::Result<()> {
    let watched = Arc::clone(host);
    let triggers = HookTriggers::new().every_nth_instruction(instructions);
    lua.set_global_hook(triggers, move |lua, _| {
        let mut host = lock(&watched);
        let goes_on = host.may_go_on(Budget::look);
        let tightens = goes_on && !host.is_tight && lua.used_memory() > host.tight_above_bytes;
        host.is_tight |= tightens;
        drop(host);
        let next = if goes_on { TIGHT_INSTRUCTIONS } else { 1 };
        if tightens || (!goes_on && instructions > 1) {
            watch(lua, &watched, next)?;
        }
        match goes_on {
            true => Ok(VmState::Continue),
            false => Err(time_is_over()),
        }
    })
}

fn time_is_over() -> mlua::Error {
    mlua::Error::runtime(TIME_IS_OVER.to_string_lossy())
}

/// Whether the script says that it doesn't write, and what of it is Lua: `#!lua flags=no-writes`.
fn shebang(text: &[u8]) -> Checked<(bool, &[u8])> {
    if !text.starts_with(b"#!") {
        return Ok((false, text));
    }
    let end = text.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or("ERR Invalid script shebang")?;
    let line = String::from_utf8_lossy(&text[..end]);
    let mut parts = line.split_whitespace();
    let engine = parts.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    let mut is_read_only = false;
    for part in parts {
        let flags = part
            .strip_prefix("flags=")
            .ok_or_else(|| format!("ERR Unknown lua shebang option: {part}"))?;
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => is_read_only = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
            }
        }
    }
    // With the end of that line, so that lines have their numbers.
    Ok((is_read_only, &text[end..]))
}

fn error_text(error: &Table, sha: &Sha) -> String {
    let field = |name: &str| match error.raw_get(name) {
        Ok(Value::String(text)) => Some(text.to_string_lossy()),
        Ok(Value::Number(number)) => Some(format!("{number}")),
        Ok(Value::Integer(number)) => Some(format!("{number}")),
        _ => None,
    };
    let text = field("err").unwrap_or_else(|| "ERR unknown error".into());
    let text = text.trim_end_matches(['\r', '\n']);
    match (field("source"), field("line")) {
        (Some(source), Some(line)) => {
            let sha = String::from_utf8_lossy(sha);
            format!("{text} script: {sha}, on {source}:{line}.")
        }
        _ => text.to_owned(),
    }
}

/// Everything that sandbox.lua is given.
fn functions(lua: &Lua, host: &Arc<Mutex<Host>>) -> mlua::Result<Table> {
    let given = lua.create_table()?;
    let shared = || Arc::clone(host);
    for (name, raises) in [("call", true), ("pcall", false)] {
        // SAFETY: an engine's state ends before its host.
        let command = unsafe { raw::command(lua, host, raises) };
        given.raw_set(name, command?)?;
    }
    given.raw_set("native", lua.create_function(raw::native)?)?;
    let of = shared();
    given.raw_set("random", lua.create_function(move |_, ()| Ok(lock(&of).draw()))?)?;
    let of = shared();
    let seed = move |_: &Lua, seed: f64| {
        lock(&of).seed(seed as i64 as u32);
        Ok(())
    };
    given.raw_set("seed", lua.create_function(seed)?)?;
    let of = shared();
    let setresp = move |_: &Lua, version: u8| {
        lock(&of).resp3 = version == 3;
        Ok(())
    };
    given.raw_set("setresp", lua.create_function(setresp)?)?;
    let hex = |lua: &Lua, text: LuaString| lua.create_string(sha(&text.as_bytes()));
    given.raw_set("sha1hex", lua.create_function(hex)?)?;
    let of = shared();
    let spend = move |_: &Lua, work: f64| match lock(&of).may_go_on(|it| it.spend(work as usize)) {
        true => Ok(()),
        false => Err(time_is_over()),
    };
    given.raw_set("spend", lua.create_function(spend)?)?;
    let pattern_work = |_: &Lua, (pattern, text_bytes, knows_anchor): (LuaString, usize, bool)| {
        Ok(patterns::work(&pattern.as_bytes(), text_bytes, knows_anchor))
    };
    given.raw_set("pattern_work", lua.create_function(pattern_work)?)?;
    let is_plain = |_: &Lua, pattern: LuaString| Ok(patterns::is_plain(&pattern.as_bytes()));
    given.raw_set("is_plain", lua.create_function(is_plain)?)?;
    let find = |_: &Lua, (text, part): (LuaString, LuaString)| {
        Ok(memmem::find(&text.as_bytes(), &part.as_bytes()).map(|at| at + 1))
    };
    given.raw_set("find", lua.create_function(find)?)?;
    let log = |_: &Lua, text: LuaString| {
        tracing::debug!(text = %text.to_string_lossy(), "a script says");
        Ok(())
    };
    given.raw_set("log", lua.create_function(log)?)?;
    given.raw_set("null", Value::NULL)?;
    given.raw_set("version", REDIS_VERSION)?;
    given.raw_set("version_number", REDIS_VERSION_NUMBER)?;
    given.raw_set("pattern_bytes_max", PATTERN_BYTES_MAX)?;
    given.raw_set("pattern_work_max", PATTERN_WORK_MAX)?;
    given.raw_set("script_bytes_max", SCRIPT_MB_MAX << 20)?;
    given.raw_set("string_bytes_max", STRING_BYTES_MAX)?;
    given.raw_set("sorted_max", SORTED_MAX)?;
    given.raw_set("sorted_work_max", SORTED_WORK_MAX)?;
    given.raw_set("text_bytes_max", TEXT_BYTES_MAX)?;
    libraries(lua, host, &given)?;
    Ok(given)
}

/// A function of a library.
fn library(
    lua: &Lua,
    host: &Arc<Mutex<Host>>,
    called: impl Fn(&Lua, &MultiValue, &Meter<'_>) -> Checked<Vec<Value>> + Send + 'static,
) -> mlua::Result<Function> {
    let host = Arc::clone(host);
    let length = |value: &Value| value.as_string().map_or(0, |text| text.as_bytes().len());
    lua.create_function(move |lua, values: MultiValue| {
        let meter = Meter::new(&host);
        let called = || {
            meter.spend(values.iter().map(length).sum())?;
            called(lua, &values, &meter)
        };
        match guarded(&host, called) {
            Some(checked) => host::results(lua, checked),
            None => Err(mlua::Error::runtime("internal error")),
        }
    })
}

fn string(lua: &Lua, bytes: impl AsRef<[u8]>) -> Checked<Vec<Value>> {
    let string = lua.create_string(bytes).map_err(|error| error.to_string())?;
    Ok(vec![Value::String(string)])
}

fn libraries(lua: &Lua, host: &Arc<Mutex<Host>>, given: &Table) -> mlua::Result<()> {
    let named = |name: &str| {
        let table = lua.create_table()?;
        given.raw_set(name, &table)?;
        Ok::<_, mlua::Error>(table)
    };
    let cjson = named("cjson")?;
    let encode = |lua: &Lua, values: &MultiValue, meter: &Meter<'_>| {
        string(lua, json::encode(values, meter)?)
    };
    cjson.raw_set("encode", library(lua, host, encode)?)?;
    let decode = |lua: &Lua, values: &MultiValue, meter: &Meter<'_>| {
        Ok(vec![json::decode(lua, values, meter)?])
    };
    cjson.raw_set("decode", library(lua, host, decode)?)?;
    let cmsgpack = named("cmsgpack")?;
    let pack = |lua: &Lua, values: &MultiValue, meter: &Meter<'_>| {
        string(lua, msgpack::pack(values, meter)?)
    };
    cmsgpack.raw_set("pack", library(lua, host, pack)?)?;
    cmsgpack.raw_set("unpack", library(lua, host, msgpack::unpack)?)?;
    cmsgpack.raw_set("unpack_one", library(lua, host, msgpack::unpack_one)?)?;
    cmsgpack.raw_set("unpack_limit", library(lua, host, msgpack::unpack_limit)?)?;
    let c = named("struct")?;
    let pack = |lua: &Lua, values: &MultiValue, _: &Meter<'_>| string(lua, structs::pack(values)?);
    c.raw_set("pack", library(lua, host, pack)?)?;
    let unpack = |lua: &Lua, values: &MultiValue, _: &Meter<'_>| structs::unpack(lua, values);
    c.raw_set("unpack", library(lua, host, unpack)?)?;
    let size = |_: &Lua, values: &MultiValue, _: &Meter<'_>| {
        Ok(vec![Value::Number(structs::size(values)?)])
    };
    c.raw_set("size", library(lua, host, size)?)?;
    let bit = named("bit")?;
    let hex = |lua: &Lua, values: &MultiValue, _: &Meter<'_>| string(lua, bits::to_hex(values)?);
    bit.raw_set("tohex", library(lua, host, hex)?)?;
    type Operation = Box<dyn Fn(&MultiValue) -> Checked<Value> + Send>;
    let operations: [(&str, Operation); 11] = [
        ("tobit", Box::new(bits::unary("tobit", |bits| bits))),
        ("bnot", Box::new(bits::unary("bnot", |bits| !bits))),
        ("bswap", Box::new(bits::unary("bswap", u32::swap_bytes))),
        ("band", Box::new(bits::fold("band", |one, other| one & other))),
        ("bor", Box::new(bits::fold("bor", |one, other| one | other))),
        ("bxor", Box::new(bits::fold("bxor", |one, other| one ^ other))),
        ("lshift", Box::new(bits::shift("lshift", |bits, by| bits << by))),
        ("rshift", Box::new(bits::shift("rshift", |bits, by| bits >> by))),
        ("arshift", Box::new(bits::shift("arshift", |bits, by| (bits as i32 >> by) as u32))),
        ("rol", Box::new(bits::shift("rol", u32::rotate_left))),
        ("ror", Box::new(bits::shift("ror", u32::rotate_right))),
    ];
    for (name, operation) in operations {
        let called =
            move |_: &Lua, values: &MultiValue, _: &Meter<'_>| Ok(vec![operation(values)?]);
        bit.raw_set(name, library(lua, host, called)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::words::Words;
    use super::*;
    use crate::config::GatewayConfig;
    use crate::shared::Shared;
    use crate::statistics::GatewayStatistics;

    /// Whether a clock is looked at when this script runs.
    fn looks_at_clock(engine: &mut Engine, text: &str) -> bool {
        let script = engine.compile(sha(text.as_bytes()), text.as_bytes().into()).unwrap();
        let keys = [&b"k"[..]].into_iter().collect();
        let call = Call { script, read_only: false, keys, arguments: Words::default() };
        {
            let mut host = lock(&engine.host);
            host.budget = Budget::default();
            host.copies.begin(0);
            host.copies.add(b"k", Some((&[b'a'; 200_000], 0)));
        }
        let mut reply = Vec::new();
        engine.run(&call, &mut reply, false).unwrap();
        assert_ne!(reply[0], b'-', "{text}: {}", String::from_utf8_lossy(&reply));
        lock(&engine.host).budget.has_begun()
    }

    /// Each function whose time grows with what it is given tells of its work.
    #[test]
    fn a_clock_is_looked_at_after_one_long_call() {
        let (config, statistics) = (GatewayConfig::default(), GatewayStatistics::new(1));
        let shared =
            Shared::new(Arc::new(config), Arc::new(statistics), Vec::new(), Vec::new(), None);
        let host = Arc::new(Mutex::new(Host::new(&shared, 0)));
        let mut engine = Engine::new(host).unwrap();
        watch(&engine.lua, &engine.host, 1 << 30).unwrap(); // more than a script has
        let calls = [
            ("string.upper(V)", "string.upper('a')"),
            ("string.lower(V)", "string.lower('a')"),
            ("string.reverse(V)", "string.reverse('a')"),
            ("string.rep('a', 200000)", "string.rep('a', 2)"),
            ("string.format('%s', V)", "string.format('%s', 'a')"),
            ("string.find(V, 'b')", "string.find('a', 'b')"),
            ("string.find(V, 'b', 1, true)", "string.find('a', 'b', 1, true)"),
            ("string.match(V, '^a*b')", "string.match('a', '^a*b')"),
            ("string.gsub(V, 'b', '')", "string.gsub('a', 'b', '')"),
            ("string.gmatch(V, 'b')()", "string.gmatch('a', 'b')()"),
            ("table.concat({V})", "table.concat({'a'})"),
            ("redis.sha1hex(V)", "redis.sha1hex('a')"),
            ("cjson.encode(V)", "cjson.encode('a')"),
            ("cjson.decode('\"' .. V .. '\"')", "cjson.decode('1')"),
            ("cmsgpack.pack(V)", "cmsgpack.pack(1)"),
            (r"cmsgpack.unpack('\219\0\2\128\0' .. V)", "cmsgpack.unpack('a')"),
            ("struct.pack('s', V)", "struct.pack('s', 'a')"),
            ("struct.unpack('b', V)", "struct.unpack('b', 'a')"),
            ("redis.call('get', KEYS[1])", "redis.call('ping')"),
            ("redis.call('bitcount', KEYS[1])", "redis.call('time')"),
            ("redis.call('append', KEYS[1], V)", "redis.call('echo', 'a')"),
            ("loadstring(string.rep('x=1 ', 2000))", "loadstring('x=1')"),
        ];
        let given = format!("local V = '{}'", "a".repeat(120_000));
        assert!(
            engine.compile(sha(b""), given.as_bytes().into()).is_err(),
            "it is too long a text"
        );
        for (long, short) in calls {
            // To make V takes no call that tells of its work.
            let make = "local V = 'aaaaaaaaaa' for i = 1, 14 do V = V .. V end";
            assert!(looks_at_clock(&mut engine, &format!("{make} local _ = {long}")), "{long}");
            assert!(!looks_at_clock(&mut engine, &format!("local _ = {short}")), "{short}");
        }
        let make = "local V = 'aaaaaaaaaa' for i = 1, 14 do V = V .. V end";
        assert!(!looks_at_clock(&mut engine, make), "nor does it look by itself");
    }

    /// An engine of a gateway that answers with this many bytes at most.
    fn engine_of(reply_bytes_max: usize) -> Engine {
        let config = GatewayConfig { output_bytes_hard: reply_bytes_max, ..Default::default() };
        let statistics = Arc::new(GatewayStatistics::new(1));
        let shared = Shared::new(Arc::new(config), statistics, Vec::new(), Vec::new(), None);
        Engine::new(Arc::new(Mutex::new(Host::new(&shared, 0)))).unwrap()
    }

    /// How a script ends, and how long its reply is by then.
    fn outcome(engine: &mut Engine, text: &str) -> (Result<(), Failure>, usize) {
        let script = engine.compile(sha(text.as_bytes()), text.as_bytes().into()).unwrap();
        let (keys, arguments) = (Words::default(), Words::default());
        let call = Call { script, read_only: false, keys, arguments };
        lock(&engine.host).budget = Budget::default();
        let mut reply = Vec::new();
        let result = engine.run(&call, &mut reply, false);
        (result, reply.len())
    }

    /// Fails if a reply is measured once it is made: of few tables many bytes can be made.
    #[test]
    fn a_reply_ends_where_it_gets_too_long_or_takes_too_long() {
        let bytes_max = 256 << 10;
        let mut engine = engine_of(bytes_max);
        let same = "local s, t = string.rep('x', 1e4), {} for i = 1, 100 do t[i] = s end return t";
        let (result, length) = outcome(&mut engine, same);
        assert_eq!(result, Err(Failure::ReplyLength(bytes_max)));
        assert!(length <= bytes_max, "{length}");
        let mut engine = engine_of(16 << 20);
        for doubled in ["{t, t}", "{map = {[1] = t, [2] = t}}", "{err = 1, t, t}"] {
            let text = format!("local t = {{}} for i = 1, 24 do t = {doubled} end return t");
            let (result, _) = outcome(&mut engine, &text);
            assert!(matches!(result, Err(Failure::TooSlow(_))), "{text}: {result:?}");
        }
        assert_eq!(outcome(&mut engine, "return {1, {2, 'x'}}"), (Ok(()), 23));
        assert_eq!(outcome(&mut engine, "local t = {1, 2, 3, 4} t[2] = nil return t"), (Ok(()), 8));
    }
}
