//! Commands of Redis that Switchback has not, and why: a clear error instead of "unknown command".

use super::{VERBS, Verb};

const STRINGS_ONLY: &str = "it stores strings only";

const REASONS: &[(&str, &[&str])] = &[
    (
        STRINGS_ONLY,
        &[
            "hdel",
            "hexists",
            "hget",
            "hgetall",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hrandfield",
            "hscan",
            "hset",
            "hsetnx",
            "hstrlen",
            "hvals",
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
            "pfadd",
            "pfcount",
            "pfdebug",
            "pfmerge",
            "pfselftest",
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
            "sort",
            "sort_ro",
        ],
    ),
    ("it has no functions; scripts are run by EVAL and EVALSHA", &["fcall", "fcall_ro"]),
    (
        "it has no publish and subscribe",
        &[
            "publish",
            "subscribe",
            "unsubscribe",
            "psubscribe",
            "punsubscribe",
            "pubsub",
            "spublish",
            "ssubscribe",
            "sunsubscribe",
        ],
    ),
    ("there is only database 0", &["move", "swapdb"]),
    (
        "nodes persist and replicate by themselves; see switchback ctl",
        &[
            "save",
            "bgsave",
            "bgrewriteaof",
            "lastsave",
            "replicaof",
            "slaveof",
            "role",
            "psync",
            "sync",
            "replconf",
            "failover",
            "wait",
            "waitaof",
            "shutdown",
            "migrate",
            "restore-asking",
        ],
    ),
    ("it has none of Redis' internals to show or change", &["acl", "debug", "module", "lolwut"]),
];

/// Why Switchback doesn't have this command of Redis (lower case); `None` if Redis hasn't, either.
pub(crate) fn why_unsupported(lower: &str) -> Option<&'static str> {
    REASONS.iter().find(|(_, names)| names.contains(&lower)).map(|(reason, _)| *reason)
}

const NAMES: usize = {
    let (mut names, mut at) = (0, 0);
    while at < REASONS.len() {
        names += REASONS[at].1.len();
        at += 1;
    }
    names
};

/// A refused command, as refusals are counted: by the names that are known here, all others
/// together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused(usize);

impl Refused {
    /// How many there are.
    pub const COUNT: usize = VERBS + NAMES + 1;
    const OTHER: Refused = Refused(Refused::COUNT - 1);

    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Refused> {
        (0..Refused::COUNT).map(Refused)
    }

    /// The one of this name, in any case.
    pub(crate) fn from_name(name: &[u8]) -> Refused {
        let at = || names().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        Verb::from_name(name)
            .map(Refused::from)
            .or_else(|| at().map(|at| Refused(VERBS + at)))
            .unwrap_or(Refused::OTHER)
    }

    /// Its place among all.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// A label for metrics.
    pub fn name(self) -> &'static str {
        let verb = Verb::all().nth(self.0).map(Verb::name);
        verb.or_else(|| names().nth(self.0 - VERBS)).unwrap_or("other")
    }
}

/// A command that is there: a subcommand is refused, or what comes with it.
impl From<Verb> for Refused {
    fn from(verb: Verb) -> Refused {
        Refused(verb as usize)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    REASONS.iter().flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_supported_or_not() {
        for (_, names) in REASONS {
            for name in *names {
                assert_eq!(Verb::from_name(name.as_bytes()), None, "{name}");
            }
        }
        assert_eq!(why_unsupported("hset"), Some(STRINGS_ONLY));
        assert_eq!(why_unsupported("multi"), None);
        assert_eq!(why_unsupported("nonsense"), None);
    }

    #[test]
    fn refusals_have_a_number_for_each_name_and_one_for_all_others() {
        let mut seen = std::collections::BTreeSet::new();
        for (number, refused) in Refused::all().enumerate() {
            assert_eq!(refused.number(), number);
            assert!(seen.insert(refused.name()), "{} twice", refused.name());
            assert_eq!(Refused::from_name(refused.name().to_uppercase().as_bytes()), refused);
        }
        for unknown in [&b"nonsense"[..], b"", b"ev\xffal", &[b'a'; 1000]] {
            assert_eq!(Refused::from_name(unknown).name(), "other");
        }
        assert_eq!(Refused::from(Verb::Client).name(), "client");
    }
}
