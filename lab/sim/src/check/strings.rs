//! Histories that Redis clients recorded: are the commands on each key linearizable?
//!
//! A file of JSON lines, one event a line, in the order in which they happened:
//!
//! ```text
//! {"client": 3, "type": "invoke", "command": ["SET", "k", "v"]}
//! {"client": 3, "type": "ok", "reply": "OK"}
//! ```
//!
//! After `invoke` comes `ok` with the reply, `fail` (it did not happen, and will not), or `unknown`
//! (it may have happened, or may still, once), with an `error` for the reader; a client has one
//! command under way at a time. One without an end is unknown. Commands of one key only, see
//! [`Command`].

use super::search::{Found, Interval, Object, find_order};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::rc::Rc;

/// Steps of the search for each key.
const STEPS_MAX: u64 = 2_000_000;
/// Operations of a violation that are shown: the last ones.
const SHOWN_MAX: usize = 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    client: u64,
    r#type: Type,
    #[serde(default)]
    command: Vec<String>,
    /// For the reader.
    #[serde(default, rename = "error")]
    _error: Option<String>,
    /// There, but `null`, is an answer, too.
    #[serde(default, deserialize_with = "present")]
    reply: Option<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Invoke,
    Ok,
    Fail,
    Unknown,
}

/// What a command was answered.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
enum Reply {
    Number(i64),
    Text(String),
    Nothing(()),
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Reply>, D::Error> {
    Reply::deserialize(from).map(Some)
}

/// The commands that are understood. What they do to a key, and answer, is in [`Command::run`].
#[derive(Clone, PartialEq, Eq, Debug)]
enum Command {
    Get,
    Exists,
    Strlen,
    Set { value: Rc<str>, condition: Option<Condition>, get: bool },
    SetNx { value: Rc<str> },
    GetSet { value: Rc<str> },
    GetDel,
    Del,
    Append { suffix: String },
    IncrBy { by: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Absent,
    Present,
}

/// A key's value.
type State = Option<Rc<str>>;

impl Command {
    /// The key and the command.
    fn parse(words: &[String]) -> Result<(String, Command), String> {
        let bad = || format!("{words:?} is no command on one key that is understood here");
        let [name, key, rest @ ..] = words else { return Err(bad()) };
        let name = name.to_ascii_uppercase();
        let command = match (name.as_str(), rest) {
            ("GET", []) => Command::Get,
            ("EXISTS", []) => Command::Exists,
            ("STRLEN", []) => Command::Strlen,
            ("GETDEL", []) => Command::GetDel,
            ("DEL", []) => Command::Del,
            ("INCR", []) => Command::IncrBy { by: 1 },
            ("INCRBY", [by]) => Command::IncrBy { by: by.parse().map_err(|_| bad())? },
            ("SETNX", [value]) => Command::SetNx { value: value.as_str().into() },
            ("GETSET", [value]) => Command::GetSet { value: value.as_str().into() },
            ("APPEND", [suffix]) => Command::Append { suffix: suffix.clone() },
            ("SET", [value, options @ ..]) => {
                let (mut condition, mut get) = (None, false);
                for option in options {
                    match option.to_ascii_uppercase().as_str() {
                        "NX" => condition = Some(Condition::Absent),
                        "XX" => condition = Some(Condition::Present),
                        "GET" => get = true,
                        _ => return Err(bad()),
                    }
                }
                Command::Set { value: value.as_str().into(), condition, get }
            }
            _ => return Err(bad()),
        };
        Ok((key.clone(), command))
    }

    fn is_read(&self) -> bool {
        matches!(self, Command::Get | Command::Exists | Command::Strlen)
    }

    /// What is there after it, and its answer; none if it answers an error and changes nothing.
    fn run(&self, state: &State) -> Option<(State, Reply)> {
        let there = state.is_some();
        let value =
            || state.as_ref().map_or(Reply::Nothing(()), |value| Reply::Text(value.to_string()));
        let number = |number: usize| Reply::Number(number as i64);
        let ok = || Reply::Text("OK".into());
        Some(match self {
            Command::Get => (state.clone(), value()),
            Command::Exists => (state.clone(), number(usize::from(there))),
            Command::Strlen => {
                (state.clone(), number(state.as_ref().map_or(0, |value| value.len())))
            }
            Command::Set { value: new, condition, get } => {
                let happens = match condition {
                    None => true,
                    Some(Condition::Absent) => !there,
                    Some(Condition::Present) => there,
                };
                let reply = match (get, happens) {
                    (true, _) => value(),
                    (false, true) => ok(),
                    (false, false) => Reply::Nothing(()),
                };
                (if happens { Some(Rc::clone(new)) } else { state.clone() }, reply)
            }
            Command::SetNx { value: new } => match there {
                true => (state.clone(), number(0)),
                false => (Some(Rc::clone(new)), number(1)),
            },
            Command::GetSet { value: new } => (Some(Rc::clone(new)), value()),
            Command::GetDel => (None, value()),
            Command::Del => (None, number(usize::from(there))),
            Command::Append { suffix } => {
                let whole: Rc<str> = format!("{}{suffix}", state.as_deref().unwrap_or("")).into();
                let length = whole.len();
                (Some(whole), number(length))
            }
            Command::IncrBy { by } => {
                let sum = state.as_deref().unwrap_or("0").parse::<i64>().ok()?.checked_add(*by)?;
                (Some(sum.to_string().into()), Reply::Number(sum))
            }
        })
    }
}

/// A command that was asked.
struct Asked {
    client: u64,
    words: Vec<String>,
    command: Command,
    /// Lines of the file, from 1.
    invoked: u64,
    responded: u64,
    reply: Option<Reply>,
    /// It did not happen, and will not.
    has_failed: bool,
}

/// A key's commands as they were known after a line: later answers have not come, later questions
/// have not been asked.
struct Key<'a> {
    asked: Vec<&'a Asked>,
    line: u64,
}

impl Object for Key<'_> {
    type State = State;

    fn apply(&self, state: &State, at: usize) -> Option<State> {
        let (next, reply) = self.asked[at].command.run(state)?;
        self.answer(self.asked[at]).is_none_or(|told| *told == reply).then_some(next)
    }

    fn is_read(&self, at: usize) -> bool {
        self.asked[at].command.is_read()
    }

    fn hint(&self, at: usize) -> u64 {
        self.asked[at].responded
    }
}

impl<'a> Key<'a> {
    fn until(asked: &[&'a Asked], line: u64) -> Key<'a> {
        let counts = |asked: &&Asked| {
            asked.invoked <= line && (asked.responded <= line || !asked.command.is_read())
        };
        Key { asked: asked.iter().filter(|asked| counts(asked)).copied().collect(), line }
    }

    fn answer(&self, asked: &'a Asked) -> Option<&'a Reply> {
        asked.reply.as_ref().filter(|_| asked.responded <= self.line)
    }

    fn search(asked: &[&'a Asked], line: u64) -> Found {
        let key = Key::until(asked, line);
        let interval = |asked: &&'a Asked| match key.answer(asked) {
            Some(_) => {
                Interval { invoked: asked.invoked, responded: asked.responded, is_required: true }
            }
            None => Interval { invoked: asked.invoked, responded: u64::MAX, is_required: false },
        };
        let intervals: Vec<Interval> = key.asked.iter().map(interval).collect();
        find_order(&key, &None, &intervals, STEPS_MAX)
    }
}

/// What a history came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistoryResult {
    /// All commands.
    pub commands: u64,
    /// Commands with an answer.
    pub answered: u64,
    /// Commands that may or may not have happened.
    pub unknown: u64,
    /// Keys.
    pub keys: u64,
    /// Keys of which it would take too long to tell.
    pub undecided: Vec<String>,
    /// Keys for whose commands there is no order, with the shortest beginning of the history that
    /// shows it.
    pub violations: Vec<String>,
}

/// Checks a history, see the [module](self). An error says which line is wrong, and how.
pub fn check(lines: &str) -> Result<HistoryResult, String> {
    let keys = read(lines)?;
    let mut result = HistoryResult { keys: keys.len() as u64, ..HistoryResult::default() };
    for (name, asked) in &keys {
        result.commands += asked.len() as u64;
        result.answered += asked.iter().filter(|asked| asked.reply.is_some()).count() as u64;
        let asked: Vec<&Asked> = asked.iter().collect();
        match Key::search(&asked, u64::MAX - 1) {
            Found::Order => {}
            Found::GaveUp => result.undecided.push(name.clone()),
            Found::NoOrder => result.violations.push(explain(name, &asked)),
        }
    }
    result.unknown = result.commands - result.answered;
    Ok(result)
}

/// The commands that happened or may have, by key.
fn read(lines: &str) -> Result<BTreeMap<String, Vec<Asked>>, String> {
    let mut keys: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    // Where each client's command is that is under way.
    let mut open: HashMap<u64, (String, usize)> = HashMap::new();
    for (line, text) in (1..).zip(lines.lines()) {
        let wrong = |what: String| format!("line {line}: {what}");
        let event: Event = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let client = event.client;
        if event.r#type == Type::Invoke {
            let (name, command) = Command::parse(&event.command).map_err(wrong)?;
            let of_key = keys.entry(name.clone()).or_default();
            if open.insert(client, (name, of_key.len())).is_some() {
                return Err(wrong(format!("client {client} asks again before it was answered")));
            }
            let (words, responded) = (event.command, u64::MAX);
            of_key.push(Asked {
                client,
                words,
                command,
                invoked: line,
                responded,
                reply: None,
                has_failed: false,
            });
            continue;
        }
        let Some((name, at)) = open.remove(&client) else {
            return Err(wrong(format!("client {client} is answered but has asked nothing")));
        };
        let asked = &mut keys.get_mut(&name).expect("its command is there")[at];
        match event.r#type {
            Type::Ok => {
                asked.reply = Some(event.reply.ok_or_else(|| wrong("ok without a reply".into()))?);
                asked.responded = line;
            }
            Type::Fail => asked.has_failed = true,
            Type::Unknown | Type::Invoke => {}
        }
    }
    for of_key in keys.values_mut() {
        of_key.retain(|asked| {
            asked.reply.is_some() || !(asked.has_failed || asked.command.is_read())
        });
    }
    Ok(keys)
}

/// The shortest beginning of the history for which there is no order.
fn explain(name: &str, asked: &[&Asked]) -> String {
    let mut answers: Vec<u64> =
        asked.iter().map(|asked| asked.responded).filter(|line| *line != u64::MAX).collect();
    answers.sort_unstable();
    // With more answers it only gets harder.
    let first = answers.partition_point(|&line| Key::search(asked, line) != Found::NoOrder);
    let line = answers.get(first).copied().unwrap_or(u64::MAX - 1);
    let key = Key::until(asked, line);
    let shown = &key.asked;
    let mut text =
        format!("key {name}: no order of its commands explains the answer in line {line}\n");
    for asked in &shown[shown.len().saturating_sub(SHOWN_MAX)..] {
        let answer = match key.answer(asked) {
            Some(reply) => format!("{reply:?} in line {}", asked.responded),
            None => "unknown".to_owned(),
        };
        let _ = writeln!(
            text,
            "  line {} client {}: {} -> {answer}",
            asked.invoked,
            asked.client,
            asked.words.join(" ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `client command...` asks, `client = reply`, `client failed` and `client ?` end it.
    fn result(script: &str) -> HistoryResult {
        let event = |line: &str| {
            let (client, rest) = line.trim().split_once(' ').unwrap();
            match rest.split_once(' ') {
                Some(("=", reply)) => {
                    format!(r#"{{"client": {client}, "type": "ok", "reply": {reply}}}"#)
                }
                None if rest == "failed" => format!(r#"{{"client": {client}, "type": "fail"}}"#),
                None if rest == "?" => format!(r#"{{"client": {client}, "type": "unknown"}}"#),
                _ => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    format!(
                        r#"{{"client": {client}, "type": "invoke", "command": {}}}"#,
                        serde_json::json!(words)
                    )
                }
            }
        };
        let lines: Vec<String> = script.split(';').map(event).collect();
        check(&lines.join("\n")).unwrap()
    }

    fn is_good(script: &str) -> bool {
        let result = result(script);
        assert!(result.undecided.is_empty());
        result.violations.is_empty()
    }

    #[test]
    fn good_histories_pass() {
        for script in [
            r#"1 GET k; 1 = null; 1 SET k a; 1 = "OK"; 2 GET k; 2 = "a"; 2 DEL k; 2 = 1; 1 GET k; 1 = null"#,
            // Side by side, in either order.
            r#"1 SET k a; 2 SET k b; 1 = "OK"; 2 = "OK"; 1 GET k; 1 = "a"; 2 GET k; 2 = "a""#,
            // An unknown write that happens late, and one that never does.
            r#"1 SET k a; 1 ?; 2 SET k b; 2 = "OK"; 2 GET k; 2 = "b"; 3 GET k; 3 = "a"; 3 GET k; 3 = "a""#,
            r#"1 SET k a; 1 ?; 2 GET k; 2 = null; 2 INCR k; 2 = 1; 2 SET k v GET; 2 = "1""#,
            r#"1 SETNX k a; 1 = 1; 2 SET k b NX; 2 = null; 2 SET k c XX; 2 = "OK"; 1 APPEND k xy; 1 = 3; 1 STRLEN k; 1 = 3"#,
            r#"1 GETSET k a; 1 = null; 1 GETDEL k; 1 = "a"; 1 EXISTS k; 1 = 0; 1 INCRBY k -7; 1 = -7"#,
            r#"1 SET k a; 1 failed; 2 GET k; 2 = null; 3 GET k"#,
            r#"1 SET k a; 2 SET k b; 3 SET k c; 2 failed; 1 failed; 3 = "OK"; 3 GET k; 3 = "c""#,
        ] {
            assert!(is_good(script), "{script}");
        }
    }

    #[test]
    fn bad_histories_are_refused() {
        for script in [
            // An acknowledged write that is lost; a stale read; a value that vanishes; one that
            // comes from nowhere.
            r#"1 SET k a; 1 = "OK"; 1 GET k; 1 = null"#,
            r#"1 SET k a; 1 = "OK"; 1 SET k b; 1 = "OK"; 2 GET k; 2 = "a""#,
            r#"1 SET k a; 2 GET k; 2 = "a"; 3 GET k; 3 = null; 1 ?"#,
            r#"1 GET k; 1 = "a""#,
            // An increment that ran twice, answered or not; a write that failed and happened.
            r#"1 INCR k; 1 = 1; 1 GET k; 1 = "2""#,
            r#"1 INCR k; 1 ?; 2 GET k; 2 = "2""#,
            r#"1 SET k a; 1 failed; 2 GET k; 2 = "a""#,
            // A deleted value that comes back; two who both found nothing; a condition that was not
            // true.
            r#"1 SET k a; 1 = "OK"; 1 DEL k; 1 = 1; 2 GET k; 2 = "a""#,
            r#"1 SETNX k a; 2 SETNX k b; 1 = 1; 2 = 1"#,
            r#"1 SET k a XX; 1 = "OK""#,
            r#"1 APPEND k a; 1 ?; 2 GET k; 2 = "aa""#,
        ] {
            assert!(!is_good(script), "{script}");
        }
    }

    #[test]
    fn a_violation_shows_the_answer_that_cannot_be() {
        let script =
            r#"1 SET k a; 1 = "OK"; 1 SET j b; 1 = "OK"; 2 GET k; 2 = null; 2 GET k; 2 = "a""#;
        let found = result(script);
        let expected = "key k: no order of its commands explains the answer in line 6\n  \
                        line 1 client 1: SET k a -> Text(\"OK\") in line 2\n  line 5 client 2: GET k -> Nothing(()) in line 6\n";
        assert_eq!(found.violations, [expected]);
        assert_eq!((found.keys, found.commands, found.answered, found.unknown), (2, 4, 4, 0));
    }

    #[test]
    fn what_is_no_history_says_where() {
        let error = |lines: &str| check(lines).unwrap_err();
        assert!(error("{}").starts_with("line 1: missing field"), "{}", error("{}"));
        let ok = r#"{"client": 1, "type": "ok", "reply": 1}"#;
        assert_eq!(error(ok), "line 1: client 1 is answered but has asked nothing");
        let invoke = r#"{"client": 1, "type": "invoke", "command": ["HSET", "k"]}"#;
        assert!(error(invoke).contains("is no command on one key"));
        let get = r#"{"client": 1, "type": "invoke", "command": ["GET", "k"]}"#;
        assert_eq!(
            error(&format!("{get}\n{get}")),
            "line 2: client 1 asks again before it was answered"
        );
    }
}
