//! The table of commands: what COMMAND tells, what arguments are counted by, what statistics are
//! kept by.

macro_rules! commands {
    ($($verb:ident $name:literal $arity:literal [$($flag:ident)*]
        $first:literal $last:literal $step:literal
        $group:literal $since:literal $summary:literal;)*) => {
        /// A command that Switchback knows.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)] // They are Redis'.
        pub enum Verb { $($verb,)* }

        static SPECS: &[Spec] = &[$(Spec {
            verb: Verb::$verb, name: $name, arity: $arity, flags: &[$(stringify!($flag)),*],
            keys: ($first, $last, $step), group: $group, since: $since, summary: $summary,
        },)*];

        /// How many commands there are.
        pub const VERBS: usize = [$(Verb::$verb,)*].len();

        #[inline]
        fn find(name: u128) -> Option<Verb> {
            $(if name == const { packed($name.as_bytes()) } {
                return Some(Verb::$verb);
            })*
            None
        }
    };
}

/// What is known of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Which it is.
    pub verb: Verb,
    /// Its name, lower case.
    pub name: &'static str,
    /// How many arguments, itself included; negative: at least.
    pub arity: i32,
    /// As COMMAND shows them.
    pub flags: &'static [&'static str],
    /// Position of the first and last key, and the step.
    pub keys: (i32, i32, i32),
    /// As in Redis' documentation.
    pub group: &'static str,
    /// The version of Redis that brought it.
    pub since: &'static str,
    /// One line.
    pub summary: &'static str,
}

commands! {
    Append "append" 3 [write denyoom fast] 1 1 1 "string" "2.0.0"
        "Appends a string to the value of a key.";
    Asking "asking" 1 [fast] 0 0 0 "cluster" "3.0.0"
        "Has the next command executed though its slot is elsewhere; none is.";
    Auth "auth" -2 [noscript loading stale fast no_auth] 0 0 0 "connection" "1.0.0"
        "Authenticates the connection.";
    BitCount "bitcount" -2 [readonly] 1 1 1 "bitmap" "2.6.0"
        "Counts the bits of a value that are set.";
    BitField "bitfield" -2 [write denyoom] 1 1 1 "bitmap" "3.2.0"
        "Reads and changes integers of any size within a value.";
    BitFieldRo "bitfield_ro" -2 [readonly fast] 1 1 1 "bitmap" "6.0.0"
        "Reads integers of any size within a value.";
    BitOp "bitop" -4 [write denyoom] 2 -1 1 "bitmap" "2.6.0"
        "Combines values bit by bit, and stores the result.";
    BitPos "bitpos" -3 [readonly] 1 1 1 "bitmap" "2.8.7"
        "Finds the first bit of a value that is set, or that is clear.";
    Client "client" -2 [noscript loading stale] 0 0 0 "connection" "2.4.0"
        "A container for client connection commands.";
    Cluster "cluster" -2 [] 0 0 0 "cluster" "3.0.0" "A container for Redis Cluster commands.";
    Command "command" -1 [loading stale] 0 0 0 "server" "2.8.13"
        "Returns information about the commands.";
    Config "config" -2 [admin noscript loading stale] 0 0 0 "server" "2.0.0"
        "A container for configuration commands.";
    Copy "copy" -3 [write denyoom] 1 2 1 "generic" "6.2.0"
        "Copies the value of a key to another key.";
    DbSize "dbsize" 1 [readonly fast] 0 0 0 "server" "1.0.0" "Returns the number of keys.";
    Decr "decr" 2 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Decrements the integer value of a key by one.";
    DecrBy "decrby" 3 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Decrements the integer value of a key by a number.";
    Del "del" -2 [write] 1 -1 1 "generic" "1.0.0" "Deletes keys.";
    DelEx "delex" -2 [write fast] 1 1 1 "string" "8.4.0" "Deletes a key depending on its value.";
    Discard "discard" 1 [noscript loading stale fast allow_busy] 0 0 0 "transactions" "2.0.0"
        "Discards a transaction.";
    Dump "dump" 2 [readonly] 1 1 1 "generic" "2.6.0" "Returns a value in serialized form.";
    Echo "echo" 2 [loading stale fast] 0 0 0 "connection" "1.0.0" "Returns the given string.";
    Eval "eval" -3 [noscript stale skip_monitor no_mandatory_keys movablekeys]
        0 0 0 "scripting" "2.6.0"
        "Runs a script.";
    EvalRo "eval_ro" -3 [readonly noscript stale skip_monitor no_mandatory_keys movablekeys]
        0 0 0 "scripting" "7.0.0"
        "Runs a script that doesn't write.";
    EvalSha "evalsha" -3 [noscript stale skip_monitor no_mandatory_keys movablekeys]
        0 0 0 "scripting" "2.6.0"
        "Runs a script that is known by its SHA-1.";
    EvalShaRo "evalsha_ro" -3 [readonly noscript stale skip_monitor no_mandatory_keys movablekeys]
        0 0 0 "scripting" "7.0.0"
        "Runs a script that is known by its SHA-1 and doesn't write.";
    Exec "exec" 1 [noscript loading stale skip_slowlog] 0 0 0 "transactions" "1.2.0"
        "Executes the commands of a transaction.";
    Exists "exists" -2 [readonly fast] 1 -1 1 "generic" "1.0.0"
        "Determines how many of the keys exist.";
    Expire "expire" -3 [write fast] 1 1 1 "generic" "1.0.0"
        "Sets the expiration of a key in seconds.";
    ExpireAt "expireat" -3 [write fast] 1 1 1 "generic" "1.2.0"
        "Sets the expiration of a key to a Unix time.";
    ExpireTime "expiretime" 2 [readonly fast] 1 1 1 "generic" "7.0.0"
        "Returns the expiration of a key as a Unix time.";
    FlushAll "flushall" -1 [write] 0 0 0 "server" "1.0.0" "Deletes all keys.";
    FlushDb "flushdb" -1 [write] 0 0 0 "server" "1.0.0" "Deletes all keys.";
    Function "function" -2 [noscript] 0 0 0 "scripting" "7.0.0"
        "A container for function commands.";
    Get "get" 2 [readonly fast] 1 1 1 "string" "1.0.0" "Returns the value of a key.";
    GetBit "getbit" 3 [readonly fast] 1 1 1 "bitmap" "2.2.0" "Returns a bit of a value.";
    GetDel "getdel" 2 [write fast] 1 1 1 "string" "6.2.0"
        "Returns the value of a key after deleting it.";
    GetEx "getex" -2 [write fast] 1 1 1 "string" "6.2.0"
        "Returns the value of a key after setting its expiration.";
    GetRange "getrange" 4 [readonly] 1 1 1 "string" "2.4.0" "Returns a part of a value.";
    GetSet "getset" 3 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Returns the old value of a key after setting a new one.";
    Hello "hello" -1 [noscript loading stale fast no_auth] 0 0 0 "connection" "6.0.0"
        "Handshakes with the server.";
    HotKeys "hotkeys" -2 [admin noscript] 0 0 0 "server" "8.6.0"
        "A container for commands about hot keys.";
    Incr "incr" 2 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Increments the integer value of a key by one.";
    IncrBy "incrby" 3 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Increments the integer value of a key by a number.";
    IncrByFloat "incrbyfloat" 3 [write denyoom fast] 1 1 1 "string" "2.6.0"
        "Increments the floating point value of a key by a number.";
    Info "info" -1 [loading stale] 0 0 0 "server" "1.0.0"
        "Returns information and statistics about the gateway.";
    Keys "keys" 2 [readonly] 0 0 0 "generic" "1.0.0"
        "Returns the keys that match a pattern, if they aren't too many.";
    Latency "latency" -2 [admin noscript loading stale] 0 0 0 "server" "2.8.13"
        "A container for commands about slow moments.";
    Lcs "lcs" -3 [readonly] 1 2 1 "string" "7.0.0"
        "Finds the longest common subsequence of two values.";
    Memory "memory" -2 [] 0 0 0 "server" "4.0.0" "A container for memory commands.";
    MGet "mget" -2 [readonly fast] 1 -1 1 "string" "1.0.0" "Returns the values of keys.";
    Monitor "monitor" 1 [admin noscript loading stale] 0 0 0 "server" "1.0.0"
        "Shows the commands that the gateway executes.";
    MSet "mset" -3 [write denyoom] 1 -1 2 "string" "1.0.1" "Sets the values of keys.";
    MSetNx "msetnx" -3 [write denyoom] 1 -1 2 "string" "1.0.1"
        "Sets the values of keys, if none of them exists.";
    Multi "multi" 1 [noscript loading stale fast allow_busy] 0 0 0 "transactions" "1.2.0"
        "Begins a transaction.";
    Object "object" -2 [] 0 0 0 "generic" "2.2.3" "A container for object commands.";
    Persist "persist" 2 [write fast] 1 1 1 "generic" "2.2.0" "Removes the expiration of a key.";
    PExpire "pexpire" -3 [write fast] 1 1 1 "generic" "2.6.0"
        "Sets the expiration of a key in milliseconds.";
    PExpireAt "pexpireat" -3 [write fast] 1 1 1 "generic" "2.6.0"
        "Sets the expiration of a key to a Unix time in milliseconds.";
    PExpireTime "pexpiretime" 2 [readonly fast] 1 1 1 "generic" "7.0.0"
        "Returns the expiration of a key as a Unix time in milliseconds.";
    Ping "ping" -1 [fast] 0 0 0 "connection" "1.0.0" "Returns the server's liveliness response.";
    PSetEx "psetex" 4 [write denyoom] 1 1 1 "string" "2.6.0"
        "Sets the value and expiration in milliseconds of a key.";
    PTtl "pttl" 2 [readonly fast] 1 1 1 "generic" "2.6.0"
        "Returns the time to live of a key in milliseconds.";
    Quit "quit" -1 [noscript loading stale fast no_auth] 0 0 0 "connection" "1.0.0"
        "Closes the connection.";
    RandomKey "randomkey" 1 [readonly] 0 0 0 "generic" "1.0.0" "Returns some key.";
    ReadOnly "readonly" 1 [loading stale fast] 0 0 0 "cluster" "3.0.0"
        "Allows reads of replicas in a cluster; there are none.";
    ReadWrite "readwrite" 1 [loading stale fast] 0 0 0 "cluster" "3.0.0"
        "Ends what READONLY begins.";
    Rename "rename" 3 [write] 1 2 1 "generic" "1.0.0" "Gives the value of a key to another key.";
    RenameNx "renamenx" 3 [write fast] 1 2 1 "generic" "1.0.0"
        "Gives the value of a key to another key, if that doesn't exist.";
    Reset "reset" 1 [noscript loading stale fast no_auth] 0 0 0 "connection" "6.2.0"
        "Resets the connection.";
    Restore "restore" -4 [write denyoom] 1 1 1 "generic" "2.6.0"
        "Sets a key to a value in serialized form.";
    Scan "scan" -2 [readonly] 0 0 0 "generic" "2.8.0" "Iterates over the keys.";
    Script "script" -2 [noscript] 0 0 0 "scripting" "2.6.0"
        "A container for commands about scripts.";
    Select "select" 2 [loading stale fast] 0 0 0 "connection" "1.0.0"
        "Changes the selected database; there is only number 0.";
    Set "set" -3 [write denyoom] 1 1 1 "string" "1.0.0" "Sets the value of a key.";
    SetBit "setbit" 4 [write denyoom] 1 1 1 "bitmap" "2.2.0"
        "Sets or clears a bit of a value; returns what it was.";
    SetEx "setex" 4 [write denyoom] 1 1 1 "string" "2.0.0"
        "Sets the value and expiration of a key.";
    SetNx "setnx" 3 [write denyoom fast] 1 1 1 "string" "1.0.0"
        "Sets the value of a key only if it doesn't exist.";
    SetRange "setrange" 4 [write denyoom] 1 1 1 "string" "2.2.0" "Overwrites a part of a value.";
    SlowLog "slowlog" -2 [admin loading stale] 0 0 0 "server" "2.2.12"
        "A container for commands about slow commands.";
    StrLen "strlen" 2 [readonly fast] 1 1 1 "string" "2.2.0" "Returns the length of a value.";
    SubStr "substr" 4 [readonly] 1 1 1 "string" "1.0.0" "Returns a part of a value.";
    Time "time" 1 [loading stale fast] 0 0 0 "server" "2.6.0" "Returns the gateway's time.";
    Touch "touch" -2 [readonly fast] 1 -1 1 "generic" "3.2.1" "Returns how many of the keys exist.";
    Ttl "ttl" 2 [readonly fast] 1 1 1 "generic" "1.0.0"
        "Returns the time to live of a key in seconds.";
    Type "type" 2 [readonly fast] 1 1 1 "generic" "1.0.0" "Returns the type of the value of a key.";
    Unlink "unlink" -2 [write fast] 1 -1 1 "generic" "4.0.0" "Deletes keys.";
    Unwatch "unwatch" 1 [noscript loading stale fast allow_busy] 0 0 0 "transactions" "2.2.0"
        "Forgets the keys that are watched.";
    Watch "watch" -2 [noscript loading stale fast allow_busy] 1 -1 1 "transactions" "2.2.0"
        "Has the next transaction fail if these keys change before.";
}

/// Longest name in the table, and longer than it need be.
const NAME_MAX: usize = 15;

/// A name in lower case as a number, in which it takes one comparison to find it. A 1 comes first,
/// so that zeros count, too.
#[inline]
const fn packed(name: &[u8]) -> u128 {
    assert!(name.len() <= NAME_MAX);
    let (mut number, mut at) = (1, 0);
    while at < name.len() {
        number = number << 8 | name[at].to_ascii_lowercase() as u128;
        at += 1;
    }
    number
}

impl Verb {
    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Verb> {
        SPECS.iter().map(|spec| spec.verb)
    }

    /// The command of this name, in any case.
    #[inline]
    pub fn from_name(name: &[u8]) -> Option<Verb> {
        if name.len() > NAME_MAX { None } else { find(packed(name)) }
    }

    /// What is known of it.
    #[inline]
    pub fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// Its name, lower case.
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

impl Spec {
    /// Whether it takes this many arguments, itself included.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        arguments == least || (self.arity < 0 && arguments > least)
    }

    /// Whether it may change a record.
    pub fn writes(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// Whether it may be used before authentication.
    pub fn needs_no_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for verb in Verb::all() {
            assert_eq!(Verb::from_name(verb.name().to_uppercase().as_bytes()), Some(verb));
            assert_eq!(verb.spec().verb, verb);
        }
        assert_eq!(Verb::all().count(), VERBS);
        assert_eq!(Verb::from_name(b"hset"), None);
        assert_eq!(Verb::from_name(b""), None);
        assert_eq!(Verb::from_name(&[b'a'; 100]), None);
        assert_eq!(Verb::from_name(b"g\xffet"), None);
        for near in ["get\0", "\0get", "get ", "g\u{5}t", "ge", "gett", "G%T", "bitfield\x7fro"] {
            assert_eq!(Verb::from_name(near.as_bytes()), None, "{near:?}");
        }
    }
}
