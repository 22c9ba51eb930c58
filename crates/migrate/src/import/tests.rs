//! The pass that deletes, between two servers of a dozen commands.

use super::*;
use redis::{Parser, Value};
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Keys with their strings; `None` is a list.
type Records = BTreeMap<String, Option<String>>;

fn records(some: &[(&str, Option<&str>)]) -> Records {
    some.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
}

/// A server of one connection at a time, on which keys don't expire.
struct Fake {
    url: String,
    records: Arc<Mutex<Records>>,
    /// What was sent, a command a line.
    commands: Arc<Mutex<Vec<String>>>,
}

/// Of a scan.
const PAGES: u64 = 3;

impl Fake {
    /// One that asks `before` about each command: it may change the records, and an answer of it is
    /// the command's.
    fn new(
        some: &[(&str, Option<&str>)],
        mut before: impl FnMut(&str, &mut Records) -> Option<&'static str> + Send + 'static,
    ) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Fake {
            url: format!("redis://{}", listener.local_addr().unwrap()),
            records: Arc::new(Mutex::new(records(some))),
            commands: Arc::default(),
        };
        let (records, commands) = (Arc::clone(&fake.records), Arc::clone(&fake.commands));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                serve(&connection.unwrap(), |words| {
                    let line = words.join(" ");
                    let mut records = records.lock().unwrap();
                    let reply = match before(&line, &mut records) {
                        Some(reply) => reply.to_owned(),
                        None => answer(words, &mut records),
                    };
                    commands.lock().unwrap().push(line);
                    reply
                });
            }
        });
        fake
    }

    fn plain(some: &[(&str, Option<&str>)]) -> Fake {
        Fake::new(some, |_, _| None)
    }

    fn records(&self) -> Records {
        self.records.lock().unwrap().clone()
    }

    fn has_got(&self, command: &str) -> bool {
        self.commands.lock().unwrap().iter().any(|line| line.starts_with(command))
    }
}

fn serve(connection: &TcpStream, mut answer: impl FnMut(&[&str]) -> String) {
    let (mut parser, mut reader) = (Parser::new(), BufReader::new(connection));
    while let Ok(Value::Array(words)) = parser.parse_value(&mut reader) {
        let words: Vec<String> =
            words.iter().map(|word| redis::from_redis_value_ref(word).unwrap()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut writer = connection;
        writer.write_all(answer(&words).as_bytes()).unwrap();
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn answer(words: &[&str], records: &mut Records) -> String {
    let found = words.get(1).and_then(|key| records.get(*key));
    match (words, found) {
        (["GET", _], None) | (["RANDOMKEY"], _) if records.is_empty() => "$-1\r\n".into(),
        (["GET", _], None) => "$-1\r\n".into(),
        (["GET", _], Some(None)) => "-WRONGTYPE it is a list\r\n".into(),
        (["GET", _], Some(Some(value))) => bulk(value),
        (["PTTL", _], None) => ":-2\r\n".into(),
        (["PTTL", _], Some(_)) => ":-1\r\n".into(),
        (["TYPE", _], None) => "+none\r\n".into(),
        (["TYPE", _], Some(None)) => "+list\r\n".into(),
        (["TYPE", _], Some(Some(_))) => "+string\r\n".into(),
        (["RANDOMKEY"], _) => bulk("any"),
        (["SET", key, value], _) => {
            records.insert((*key).into(), Some((*value).into()));
            "+OK\r\n".into()
        }
        (["DEL", key], _) => format!(":{}\r\n", u8::from(records.remove(*key).is_some())),
        (["SCAN", page, "COUNT", _, more @ ..], _) => {
            let start = more.last().map_or("", |pattern| pattern.trim_end_matches('*'));
            scan(page.parse().unwrap(), start, records)
        }
        (["INFO", "server"], _) => bulk("# Server\r\nrun_id:1234\r\n"),
        (["CLIENT", "SETINFO", ..], _) => "+OK\r\n".into(),
        other => format!("-ERR unknown: {other:?}\r\n"),
    }
}

/// A key stays on its page, whichever others there are.
fn scan(page: u64, start: &str, records: &Records) -> String {
    let is_on_it = |key: &&String| {
        key.starts_with(start) && key.bytes().map(u64::from).sum::<u64>() % PAGES == page
    };
    let keys: Vec<_> = records.keys().filter(is_on_it).map(|key| bulk(key)).collect();
    let next = bulk(&((page + 1) % PAGES).to_string());
    format!("*2\r\n{next}*{}\r\n{}", keys.len(), keys.concat())
}

/// An import from one of them to the other.
struct Import {
    args: ImportArgs,
    signals: (Sender<i32>, Receiver<i32>),
    _directory: TempDir,
}

impl Import {
    fn new(source: &Fake, target: &Fake, delete: bool) -> Import {
        let directory = tempfile::tempdir().unwrap();
        let args = ImportArgs {
            from: source.url.clone(),
            to: target.url.clone(),
            pattern: None,
            follow: false,
            delete,
            state: directory.path().join("state"),
            batch: 2,
            certificates: Certificates::default(),
        };
        Import { args, signals: channel(), _directory: directory }
    }

    fn run(&self) -> anyhow::Result<ExitCode> {
        run(&self.args, &self.signals.1)
    }

    fn state(&self) -> Option<Progress> {
        progress::load(&self.args.state).unwrap()
    }

    /// Goes on where the state is.
    fn go_on(&self) -> Progress {
        let mut done = self.state().unwrap();
        let [from, to] = Server::of([&self.args.from, &self.args.to], &self.args.certificates)
            .unwrap()
            .map(|server| server.connect().unwrap());
        let mut copier = Copier::new(from, to, &done, &self.signals.1);
        assert!(copier.copy_keys(&self.args, &mut done, None).unwrap());
        done
    }
}

const SOURCE: [(&str, Option<&str>); 4] =
    [("a:1", Some("new")), ("a:2", Some("2")), ("b:1", Some("3")), ("b:list", None)];
const TARGET: [(&str, Option<&str>); 4] =
    [("a:1", Some("old")), ("a:gone", Some("4")), ("b:gone", Some("5")), ("b:list", Some("6"))];
const STRINGS: [(&str, Option<&str>); 3] =
    [("a:1", Some("new")), ("a:2", Some("2")), ("b:1", Some("3"))];

#[test]
fn what_the_source_has_not_is_deleted_if_that_is_asked_for() {
    let (source, target) = (Fake::plain(&SOURCE), Fake::plain(&TARGET));
    Import::new(&source, &target, false).run().unwrap();
    let mut both = records(&TARGET);
    both.extend(records(&STRINGS));
    assert_eq!(target.records(), both);

    let import = Import::new(&source, &target, true);
    import.run().unwrap();
    assert_eq!(target.records(), records(&STRINGS));
    assert_eq!(source.records(), records(&SOURCE));
    assert_eq!(import.state(), None);
}

#[test]
fn what_is_no_string_is_named_and_the_exit_code_tells() {
    let code = |import: &Import| format!("{:?}", import.run().unwrap());
    let target = Fake::plain(&[]);
    let import = Import::new(&Fake::plain(&SOURCE), &target, false);
    assert_eq!(code(&import), format!("{:?}", ExitCode::from(3)));
    let import = Import::new(&Fake::plain(&STRINGS), &target, false);
    assert_eq!(code(&import), format!("{:?}", ExitCode::SUCCESS));

    assert_eq!(named(&[], 2), "2 of an earlier run");
    let mut done = Progress::default();
    done.leave_out(&[b"list", b"a\r\nb"]);
    assert_eq!(named(&done.left_out, done.other_types), "list, a\\r\\nb");
    done.leave_out(&[&b"hash"[..]; 1010]);
    assert!(named(&done.left_out, done.other_types).ends_with("hash, hash and 1,002 more"));
}

#[test]
fn with_a_pattern_other_keys_stay() {
    let (source, target) = (Fake::plain(&SOURCE), Fake::plain(&TARGET));
    let mut import = Import::new(&source, &target, true);
    import.args.pattern = Some("a:*".into());
    import.run().unwrap();
    let mut expected = records(&TARGET);
    expected.remove("a:gone");
    expected.extend(records(&STRINGS[..2]));
    assert_eq!(target.records(), expected);
}

#[test]
fn a_source_without_keys_deletes_none() {
    let (source, target) = (Fake::plain(&[]), Fake::plain(&TARGET));
    let error = Import::new(&source, &target, true).run().unwrap_err().to_string();
    assert!(error.contains("has no keys, so --delete would delete all of the rack"), "{error}");
    assert_eq!(target.records(), records(&TARGET));
}

#[test]
fn what_a_gateway_refuses_for_now_is_tried_again() {
    let mut refused = Vec::new();
    let source = Fake::plain(&SOURCE);
    let target = Fake::new(&TARGET, move |line, records| {
        let is_first = !refused.iter().any(|earlier| earlier == line);
        refused.push(line.to_owned());
        match line.split(' ').next() {
            Some("SCAN") if is_first => Some("-TIMEOUT no answer\r\n"),
            Some("DEL") if is_first => {
                records.remove(&line["DEL ".len()..]);
                Some("-INDETERMINATE who knows\r\n")
            }
            _ => None,
        }
    });
    Import::new(&source, &target, true).run().unwrap();
    assert_eq!(target.records(), records(&STRINGS));
}

#[test]
fn a_key_that_comes_back_is_copied() {
    // After TYPE was answered, and before it is read.
    let source = Fake::new(&SOURCE, |line, records| {
        if line == "GET a:gone" {
            records.insert("a:gone".into(), Some("back".into()));
        }
        None
    });
    let target = Fake::plain(&TARGET);
    Import::new(&source, &target, true).run().unwrap();
    let mut expected = records(&STRINGS);
    expected.insert("a:gone".into(), Some("back".into()));
    assert_eq!(target.records(), expected);
}

#[test]
fn a_pass_that_deletes_goes_on_where_it_was() {
    let mut deletions = 0;
    let source = Fake::plain(&SOURCE);
    let target = Fake::new(&TARGET, move |line, _| {
        deletions += u32::from(line.starts_with("DEL"));
        (line.starts_with("DEL") && deletions == 3).then_some("-ERR broken\r\n")
    });
    let import = Import::new(&source, &target, true);
    let error = import.run().unwrap_err().to_string();
    assert!(error.contains("broken"), "{error}");
    let state = import.state().unwrap();
    assert_eq!((state.stage, state.copied), (Stage::Deleting, 3));
    assert!(state.cursor > 0 && state.deleted > 0, "{state:?}");

    source.commands.lock().unwrap().clear();
    let done = import.go_on();
    assert_eq!((done.stage, done.deleted), (Stage::Whole, 3));
    assert_eq!(target.records(), records(&STRINGS));
    // Nothing is copied once more.
    assert!(source.has_got("TYPE") && !source.has_got("SCAN"));
}

#[test]
fn a_string_that_became_a_list_is_deleted_after_that_pass() {
    let (source, target) = (Fake::plain(&SOURCE), Fake::plain(&TARGET));
    let import = Import::new(&source, &target, true);
    let [from, to] = Server::of([&source.url[..], &target.url], &Certificates::default())
        .unwrap()
        .map(|server| server.connect().unwrap());
    let mut done = Progress::default();
    let mut copier = Copier::new(from, to, &done, &import.signals.1);
    let list = [b"b:list".to_vec()];
    // The pass comes by this key later.
    copier.copy(&list).unwrap();
    assert!(target.records().contains_key("b:list"));
    assert!(copier.copy_keys(&import.args, &mut done, None).unwrap());
    target.records.lock().unwrap().insert("b:list".into(), Some("a string before".into()));
    copier.copy(&list).unwrap();
    assert!(!target.records().contains_key("b:list"));
}
