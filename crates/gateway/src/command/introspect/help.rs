//! HELP of the commands that have subcommands. It lists those that are answered, in Redis' words
//! where they hold.

use super::Verb;
use crate::resp::write;

const CLIENT: &[&str] = &[
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled: it never is.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ID <client-id>",
    "      Kill the connection of this ID.",
    "    * ADDR <ip:port>",
    "      Kill connections made from the specified address",
    "    * LADDR <ip:port>",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type: all are NORMAL.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type: all are NORMAL.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return the clients of these IDs.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Tell the name or the version of the client's library.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client: none ever is.",
    "NO-EVICT (ON|OFF)",
    "    Accepted, without effect.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted, without effect.",
];

const CLUSTER: &[&str] = &[
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "LINKS",
    "    Return information about all network links between this node and its peers: there are none.",
    "MYID",
    "    Return the node id.",
    "NODES",
    "    Return cluster configuration seen by node.",
    "REPLICAS <node-id>",
    "    Return <node-id> replicas: there are none.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOTS",
    "    Return information about slots range mappings.",
];

const COMMAND: &[&str] = &[
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands.",
    "LIST [FILTERBY PATTERN <pattern>]",
    "    Return a list of all commands.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "    If no command names are given, details for all commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
];

const CONFIG: &[&str] = &[
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
];

const FUNCTION: &[&str] = &[
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries: there are none.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries: there are none.",
];

const HOT_KEYS: &[&str] =
    &["GET", "    Return the keys that were asked for most in the last ten seconds."];

const LATENCY: &[&str] = &[
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the \
     specified command names.",
    "    If no commands are specified then all histograms are replied.",
];

const MEMORY: &[&str] = &[
    "USAGE <key> [SAMPLES <count>]",
    "    Return the bytes of <key> and its value. <count> has no effect.",
];

const OBJECT: &[&str] = &[
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
];

const SCRIPT: &[&str] = &[
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache.",
    "KILL",
    "    Kill the currently executing Lua script: there is none.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
];

const SLOW_LOG: &[&str] = &[
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
];

/// What there is of a command, if it has subcommands.
pub(super) fn help_of(verb: Verb) -> Option<&'static [&'static str]> {
    Some(match verb {
        Verb::Client => CLIENT,
        Verb::Cluster => CLUSTER,
        Verb::Command => COMMAND,
        Verb::Config => CONFIG,
        Verb::Function => FUNCTION,
        Verb::HotKeys => HOT_KEYS,
        Verb::Latency => LATENCY,
        Verb::Memory => MEMORY,
        Verb::Object => OBJECT,
        Verb::Script => SCRIPT,
        Verb::SlowLog => SLOW_LOG,
        _ => return None,
    })
}

/// The reply of HELP.
pub(super) fn write_help(out: &mut Vec<u8>, verb: Verb, lines: &[&str]) {
    let name = verb.name().to_ascii_uppercase();
    write::array(out, lines.len() + 3);
    let title = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    write::simple(out, &title);
    lines.iter().for_each(|line| write::simple(out, line));
    write::simple(out, "HELP");
    write::simple(out, "    Prints this help.");
}
