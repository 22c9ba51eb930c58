//! EVAL, EVALSHA, SCRIPT.

use crate::fake::redis::Redis;
use crate::fake::{Client, FakeRack, Knobs, config};
use std::io::{Read as _, Write as _};
use switchback_core::client::ClientConfig;
use switchback_gateway::GatewayConfig;

const SCRIPT: &str = include_str!("scripts.script");

fn words(line: &str) -> Vec<String> {
    if let Some(command) = line.strip_prefix("! ") {
        return command.split(' ').map(|word| word.replace('~', " ").replace('^', "\n")).collect();
    }
    let (arguments, text) = line.split_once(" :: ").unwrap();
    let arguments = arguments.split(' ').map(str::to_string);
    ["EVAL".to_string(), text.to_string()].into_iter().chain(arguments).collect()
}

fn call(client: &mut Client, words: &[String]) -> String {
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    client.call(&words).escape_ascii().to_string()
}

fn eval(client: &mut Client, script: &str, keys: &[&str]) -> String {
    let count = keys.len().to_string();
    let words = [&["EVAL", script, &count], keys].concat();
    call(client, &words.into_iter().map(str::to_string).collect::<Vec<_>>())
}

#[test]
fn scripts_are_answered_as_by_redis() {
    let Some(redis) = Redis::start(&["--proto-max-bulk-len", "1mb", "--databases", "1"]) else {
        return;
    };
    let uncached = Knobs { nothing_cached: true, ..Knobs::default() };
    let mut wrong = Vec::new();
    for (version, knobs) in [("2", Knobs::default()), ("3", uncached)] {
        let rack = FakeRack::default();
        rack.set(|to| *to = knobs.clone());
        let gateway = rack.start(config());
        let (mut theirs, mut ours) = (redis.client(), Client::connect(&gateway));
        theirs.ask("FLUSHALL");
        theirs.ask("SCRIPT FLUSH");
        for client in [&mut theirs, &mut ours] {
            client.ask(&format!("HELLO {version}"));
        }
        for line in SCRIPT.lines().filter(|line| !line.starts_with("# ")) {
            let words = words(line);
            let (wanted, got) = (call(&mut theirs, &words), call(&mut ours, &words));
            if got != wanted {
                wrong.push(format!("RESP{version}: {line}\n  {wanted}\n  {got}"));
            }
        }
    }
    assert!(wrong.is_empty(), "wanted, got:\n{}", wrong.join("\n"));
}

#[test]
fn a_script_may_call_what_it_has_declared() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let far = "-ERR Script attempted to access a non local key in a cluster node script: ";
    for script in [
        "return redis.call('set', 'other', 1)",
        "return redis.call('mset', KEYS[1], 1, 'other', 2)",
        "return redis.call('del', KEYS[1], 'other')",
    ] {
        assert!(eval(&mut client, script, &["k"]).starts_with(far), "{script}");
        assert!(eval(&mut client, &script.replace("KEYS[1]", "'k'"), &[]).starts_with(far));
    }
    assert_eq!((rack.value(b"k"), rack.value(b"other")), (None, None));
    let several = "-ERR a script of several keys, which no write spans, is refused";
    assert!(eval(&mut client, "return 1", &["a", "b"]).starts_with(several));
    assert_eq!(eval(&mut client, "return 1", &["a", "a"]), ":1\\r\\n");
    let hset = eval(&mut client, "return redis.call('hset', KEYS[1], 'f', 'v')", &["k"]);
    assert!(hset.contains("is not supported by Switchback: it stores strings only"), "{hset}");
    let scan = eval(&mut client, "return redis.call('scan', 0)", &["k"]);
    assert!(scan.contains("is not supported by Switchback in a transaction or script"), "{scan}");
}

#[test]
fn a_scripts_memory_is_limited_also_after_one_that_was_given_much() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let argument = "x".repeat(900_000);
    let deep = "local t = {#ARGV} for i = 1, 100 do t = {t} end return t";
    for _ in 0..3 {
        let words = [&["EVAL", deep, "0"], &[&argument[..]; 6][..]].concat();
        let reply = call(&mut client, &words.into_iter().map(str::to_string).collect::<Vec<_>>());
        assert_eq!(reply, "*1\\r\\n".repeat(101) + ":6\\r\\n");
        assert_eq!(eval(&mut client, "return KEYS[1]", &["k"]), "$1\\r\\nk\\r\\n");
        let taking =
            "local s, t = ('x'):rep(62500), {} for i = 1, 32 do t[i] = s .. i end return #t";
        assert_eq!(eval(&mut client, taking, &[]), ":32\\r\\n");
        let large = "-ERR the script used more than 4 MiB of memory; nothing was changed\\r\\n";
        let doubling = "local t = string.rep('a', 1e6) for i = 1, 3 do t = t .. t end return #t";
        assert_eq!(eval(&mut client, doubling, &[]), large);
    }
}

#[test]
fn a_script_ends_when_its_time_or_memory_is_over_and_changes_nothing() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let slow = "-ERR the transaction or script ran for more than 5 ms; nothing was changed\\r\\n";
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local f = function() while true do end end while true do xpcall(f, f) end",
        "while true do redis.pcall('get', KEYS[1]) end",
        "while true do coroutine.wrap(function() pcall(function() while true do end end) end)() end",
        "repeat local s = string.rep('x', 1000000) until false",
        "local function f() return f() end return f()",
        "return ('x'):rep(1000):gsub('.', function() while true do end end)",
        "for i = 1, 1e9 do pcall(error, {}) end",
    ] {
        let script = format!("redis.call('set', KEYS[1], 'changed') {script}");
        assert_eq!(eval(&mut client, &script, &["k"]), slow, "{script}");
    }
    let large = "-ERR the script used more than 4 MiB of memory; nothing was changed\\r\\n";
    for script in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let script = format!("redis.call('set', KEYS[1], 'changed') {script}");
        let reply = eval(&mut client, &script, &["k"]);
        assert!(reply == large || reply == slow, "{script}: {reply}");
    }
    // What can't be interrupted is refused before.
    for (script, wanted) in [
        (
            "return (('a'):rep(5000)):find(('a*'):rep(10) .. 'b')",
            "pattern that may take too long for a text of 5000 bytes",
        ),
        (
            "return (('a'):rep(60)):find(('a?'):rep(60) .. 'b')",
            "pattern that may take too long for a text of 60 bytes",
        ),
        (
            "return (('a'):rep(1000)):find('a*' .. ('a'):rep(900) .. 'b')",
            "pattern that may take too long for a text of 1000 bytes",
        ),
        (
            "return (('a'):rep(100000)):find('^(a*)%1b')",
            "pattern that may take too long for a text of 100000 bytes",
        ),
        (
            "return (('a'):rep(100000)):find('^[^' .. ('b'):rep(900) .. ']*')",
            "pattern that may take too long for a text of 100000 bytes",
        ),
        (
            "return (('^'):rep(100000)):gmatch('^.*b')()",
            "pattern that may take too long for a text of 100000 bytes",
        ),
        ("return string.rep(10, '1e6')", "resulting string too large"),
        ("return ('a'):find(('a?'):rep(5000))", "pattern too long"),
        ("return ('a'):rep(1e9)", "resulting string too large"),
        (
            "local t = {} for i = 1, 10001 do t[i] = 1 end table.sort(t)",
            "table too large to be sorted",
        ),
        ("return loadstring('\\27Lua')()", "attempt to call a nil value"),
        (
            "return loadstring(string.dump(function() return 1 end))()",
            "attempt to call a nil value",
        ),
    ] {
        let reply = eval(&mut client, script, &[]);
        assert!(reply.contains(wanted), "{script}: {reply}");
    }
    assert_eq!(rack.value(b"k"), None);
    assert_eq!(eval(&mut client, "return redis.call('set', KEYS[1], 'well')", &["k"]), "+OK\\r\\n");
}

/// A script may be compiled although the one before ran out of time.
#[test]
fn compiling_is_no_part_of_the_last_scripts_time() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    assert!(eval(&mut client, "while true do end", &[]).contains("ran for more than"));
    // Each takes few instructions, and the clock is looked at after some hundred.
    for number in 0..1_000 {
        let script = ["SCRIPT", "LOAD", &format!("return {number}")].map(str::to_string);
        let reply = call(&mut client, &script);
        assert!(reply.starts_with("$40"), "{number}: {reply}");
    }
}

/// Nothing that one script does is seen by the next one.
#[test]
fn scripts_leave_nothing_behind() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    for script in [
        "string.format = nil",
        "rawset(string, 'format', 1)",
        "table.insert(redis, 1)",
        "getmetatable('').__index.format = nil",
        "setmetatable(redis, {})",
        "_G.redis = 1",
        "cjson.encode = nil",
        "for name in pairs(string) do string[name] = nil end getmetatable('').x = 1",
        "local f = loadstring('redis = 1') f()",
        "local f = load(function() return nil end) coroutine.wrap(function() x = 1 end)()",
        "redis.call = function() return 'mine' end",
        "getmetatable(_G).__index = nil",
    ] {
        assert!(eval(&mut client, script, &[]).starts_with('-'), "{script}");
    }
    let check = "return string.format('%s %s %s', type(redis.call), #string, type(cjson.encode))";
    assert_eq!(eval(&mut client, check, &[]), "$19\\r\\nfunction 0 function\\r\\n");
}

#[test]
fn every_worker_knows_a_script_that_one_has_loaded() {
    let rack = FakeRack::default();
    let gateway = rack.try_start(config(), 2).unwrap();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&gateway)).collect();
    let words = [
        "SCRIPT".to_string(),
        "LOAD".to_string(),
        "return redis.call('incr', KEYS[1])".to_string(),
    ];
    let name = call(&mut clients[0], &words)[7..47].to_string();
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("EVALSHA {name} 1 n")), format!(":{}\r\n", at + 1));
    }
    assert_eq!(clients[1].ask("SCRIPT FLUSH"), "+OK\r\n");
    for client in &mut clients {
        assert_eq!(
            client.ask(&format!("EVALSHA {name} 1 n")),
            "-NOSCRIPT No matching script. Please use EVAL.\r\n"
        );
    }
}

#[test]
fn gateways_that_share_a_key_lose_no_increment_of_a_script() {
    const EACH: usize = 100;
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.nothing_cached = true);
    let gateway = rack.try_start(config(), 2).unwrap();
    let script = "redis.call('set', KEYS[1], (redis.call('get', KEYS[1]) or 0) + 1) return 1";
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(&gateway);
            std::thread::spawn(move || {
                for _ in 0..EACH {
                    assert_eq!(eval(&mut client, script, &["k"]), ":1\\r\\n");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rack.value(b"k"), Some((4 * EACH).to_string().into_bytes()));
}

#[test]
fn a_script_whose_write_is_not_answered_is_indeterminate_and_one_that_loses_is_repeated() {
    let rack = FakeRack::default();
    let session = ClientConfig { deadline_us: 200_000, ..ClientConfig::default() };
    let gateway = rack.start(GatewayConfig { session, ..config() });
    let mut client = Client::connect(&gateway);
    let script = "return redis.call('incr', KEYS[1])";
    rack.set(|knobs| knobs.fail_conditions = 200);
    assert_eq!(eval(&mut client, script, &["k"]), ":1\\r\\n");
    rack.set(|knobs| knobs.fail_conditions = 1000);
    assert!(
        eval(&mut client, script, &["k"]).starts_with("-TRYAGAIN others kept writing this key")
    );
    rack.set(|knobs| (knobs.silent_writes, knobs.fail_conditions) = (true, 0));
    let reply = eval(&mut client, script, &["k"]);
    assert!(
        reply.starts_with("-INDETERMINATE all writes of this transaction or script"),
        "{reply}"
    );
}

/// Whatever a script calls, it ends when its time is over, in which each of these would go on for
/// hours.
#[test]
fn no_function_of_a_library_keeps_a_script_running() {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    let mut client = Client::connect(&gateway);
    let ends = [
        "local t = string.rep('\\1', 150000) for i = 1, 1e9 do cjson.encode(t) end",
        "local t = '[' .. string.rep('1,', 50000) .. '1]' for i = 1, 1e9 do cjson.decode(t) end",
        "local t = string.rep('a', 1e6) for i = 1, 1e9 do string.upper(t) end",
        "local t = string.rep('a', 1e6) for i = 1, 1e9 do t:reverse() end",
        "local t = string.rep('\\n', 4e5) for i = 1, 1e9 do string.format('%q', t) end",
        "local t = string.rep('a', 1e6) for i = 1, 1e9 do redis.sha1hex(t) end",
        "local t = string.rep('a', 990) for i = 1, 1e9 do t:find('a*b') end",
        "local t = string.rep('a', 1e5) for i = 1, 1e9 do t:gsub('a', 'b') end",
        "local t = {} for i = 1, 9999 do t[i] = i end for i = 1, 1e9 do table.sort(t) end",
        "local t = {} for i = 1, 9999 do t[i] = 'a' end for i = 1, 1e9 do table.concat(t) end",
        "local t = {} for i = 1, 9999 do t[i] = i end for i = 1, 1e9 do cmsgpack.pack(t) end",
        "local t = string.rep('a', 1e6) for i = 1, 1e9 do struct.pack('s', t) end",
        "for i = 1, 1e9 do redis.call('set', KEYS[1], string.rep('a', 1e6)) end",
        "local a, b = string.rep('a', 1e6) .. 1, string.rep('a', 1e6) .. 2 \
         while true do local less = a < b end",
    ];
    for script in ends {
        let reply = eval(&mut client, script, &["k"]);
        assert!(
            reply.starts_with("-ERR the transaction or script ran for more"),
            "{script}: {reply}"
        );
    }
    let long = "x = 1 ".repeat(8000);
    assert!(eval(&mut client, &long, &["k"]).starts_with("-ERR a script of 48000 bytes: 32768"));
    assert_eq!(eval(&mut client, "return 7", &["k"]), ":7\\r\\n");
}

/// Nor does one call of such a function, which can't be interrupted: each of these would go on for
/// many seconds.
#[test]
fn no_single_call_takes_long() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    for (script, wanted) in [
        ("return #string.rep('', 2e9)", ":0\\r\\n"),
        ("return #string.rep('', '2000000000')", ":0\\r\\n"),
        (
            "local a = 'a' for i = 1, 18 do a = a .. a end return (a .. a):find(a .. 'b', 1, true)",
            "$-1\\r\\n",
        ),
        (
            "local a = 'a' for i = 1, 14 do a = a .. a end \
             return {(a .. a .. 'b'):find(a .. 'b', -20000)}",
            "*2\\r\\n:16385\\r\\n:32769\\r\\n",
        ),
        // The clock is looked at while these call functions of C, or as soon as they have ended.
        ("for i = 1, 1e9 do (('a'):rep(1e5)):gsub('.', tostring) end", ""),
        ("for i = 1, 1e9 do (('a'):rep(1e5)):gsub('.', {a = 'b'}) end", ""),
        ("local b = ('b'):rep(10000) for i = 1, 1e9 do (('a'):rep(100)):gsub('a', b) end", ""),
    ] {
        let began = std::time::Instant::now();
        let reply = eval(&mut client, script, &[]);
        let took = began.elapsed();
        let is_right = match wanted {
            "" => reply.starts_with("-ERR the transaction or script ran for more"),
            _ => reply == wanted,
        };
        assert!(is_right, "{script}: {reply}");
        assert!(took < std::time::Duration::from_secs(3), "{script}: {took:?}");
    }
}

/// However many scripts a connection sends at once, others are answered between them.
#[test]
fn scripts_of_one_connection_do_not_hold_up_another() {
    const SCRIPTS: usize = 100;
    for keys in [&["1", "k"][..], &["0"]] {
        let rack = FakeRack::default();
        let gateway = rack.start(config());
        let (mut busy, mut other) = (Client::connect(&gateway).0, Client::connect(&gateway));
        // Each takes what it may, and is ended.
        let words = [&["EVAL", "while true do end"], keys].concat();
        let script = Client::command(&words.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
        busy.write_all(&script.repeat(SCRIPTS)).unwrap();
        busy.read_exact(&mut [0]).unwrap(); // The first is answered.
        assert_eq!(other.ask("PING"), "+PONG\r\n");
        busy.set_nonblocking(true).unwrap();
        let mut answered = vec![0; 1 << 20];
        let bytes = busy.read(&mut answered).unwrap_or(0);
        let errors = answered[..bytes].iter().filter(|byte| **byte == b'\n').count();
        assert!(errors < SCRIPTS, "all {SCRIPTS} are answered before another connection");
    }
}

/// Fails if each word of a command is limited, but not the command.
#[test]
fn the_words_of_a_command_are_limited_together() {
    let limits = GatewayConfig { command_bytes_max: 1 << 20, ..config() };
    let gateway = FakeRack::default().start(limits);
    let mut client = Client::connect(&gateway);
    let script = "local s, t = string.rep('x', 1e5), {} for i = 1, tonumber(ARGV[1]) do t[i] = s \
                  end return redis.pcall('mset', unpack(t))";
    let mut call = |words: &[u8]| client.call(&[b"EVAL", script.as_bytes(), b"0", words]);
    assert_eq!(call(b"12"), b"-ERR a command has at most 1048576 bytes\r\n");
    let others = call(b"2");
    assert!(others.starts_with(b"-ERR Script attempted to access a non local key"));
}

/// Fails if what is no number passes for a place in the data.
#[test]
fn struct_unpack_refuses_an_offset_that_is_no_number() {
    let gateway = FakeRack::default().start(config());
    let mut client = Client::connect(&gateway);
    let text = eval(&mut client, "return struct.unpack('b', 'x', 0/0)", &[]);
    assert!(text.contains("bad argument #3") && text.contains("offset must be 1"), "{text}");
    assert_eq!(eval(&mut client, "return struct.unpack('b', 'x', 1)", &[]), ":120\\r\\n");
}
