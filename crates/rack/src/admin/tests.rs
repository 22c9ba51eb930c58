//! The server over real sockets, with an [`Admin`] that answers from memory.

use super::*;
use crate::config::ConsoleAccess;
use crate::metrics::Samples;
use crate::observer::LiveSample;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Fake {
    down: bool,
    has_controller: bool,
    /// The rest of its status.
    known: RackStatus,
    /// If there are some, the gateways are among them.
    others: Vec<(Peer, SocketAddr)>,
    /// `cached` waits for this, and how often it was asked.
    gate: Arc<Mutex<()>>,
    asked_cached: Arc<AtomicUsize>,
}

impl Admin for Fake {
    fn has_controller(&self) -> bool {
        self.has_controller
    }
    fn others(&self) -> Vec<(Peer, SocketAddr)> {
        self.others.clone()
    }
    fn status(&self) -> RackStatus {
        let phase = if self.down { "recovering" } else { "serving" };
        RackStatus { name: "test".into(), phase: phase.into(), ..self.known.clone() }
    }
    fn cached(&self, limit: usize) -> Result<CachedStatus, AdminError> {
        self.asked_cached.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.lock().unwrap());
        let record =
            |slot| CachedRecord { key: format!("key{slot}"), slot, ..CachedRecord::default() };
        Ok(CachedStatus { total: 500, records: (0..500.min(limit as u32)).map(record).collect() })
    }
    fn hot(&self, limit: usize, seconds: u64) -> Result<HotStatus, AdminError> {
        self.counts()?;
        let key = |at| HotKeyStatus {
            key: format!("key{at}"),
            hash: format!("{at:032x}"),
            reads_per_s: 1.0,
            ..HotKeyStatus::default()
        };
        let keys = (0..300.min(limit)).map(key).collect();
        let (window_seconds, requests_per_s) = (seconds as f64, 300.0);
        Ok(HotStatus { window_seconds, requests_per_s, keys, ..HotStatus::default() })
    }
    fn asked(&self) -> Option<Counts> {
        self.counts().ok().map(|()| Counts::default())
    }
    fn nodes(&self) -> Vec<NodeStatus> {
        vec![NodeStatus { index: 3, alive: Some(true), ..NodeStatus::default() }]
    }
    fn chains(&self) -> Result<Vec<ChainStatus>, AdminError> {
        Ok(vec![ChainStatus { epoch: 4, switch: Some(1), ..ChainStatus::default() }])
    }
    fn switches(&self) -> Result<Vec<SwitchStatus>, AdminError> {
        Ok(vec![SwitchStatus { index: 1, active: true, ..SwitchStatus::default() }])
    }
    fn partitions(&self) -> Result<Vec<PartitionStatus>, AdminError> {
        Err(AdminError::Unsupported("this process has no controller".into()))
    }
    fn kill_switch(&self) -> Result<KillResult, AdminError> {
        Err(AdminError::Unsupported("this process is no demo's".into()))
    }
    fn snapshot(&self) -> Result<SnapshotResult, AdminError> {
        Ok(SnapshotResult { generation: 7, records: 10, bytes: 1000, duration_seconds: 0.5 })
    }
    fn back_up(&self) -> Result<BackupStatus, AdminError> {
        Ok(BackupStatus { request: 3, stage: "waiting".into(), ..BackupStatus::default() })
    }
    fn backup(&self) -> Result<BackupStatus, AdminError> {
        Ok(BackupStatus { request: 3, complete: true, ..BackupStatus::default() })
    }
    fn drain_switch(
        &self,
        switch: u16,
        spare: Option<u16>,
    ) -> Result<Vec<SwitchStatus>, AdminError> {
        let (active, drained) = (true, true);
        match (switch, spare) {
            (0, _) => Err(AdminError::Failed("switch 0 is the only one".into())),
            _ => {
                Ok(vec![SwitchStatus { index: switch, active, drained, ..SwitchStatus::default() }])
            }
        }
    }

    fn add_switch(&self, switch: u16) -> Result<Vec<SwitchStatus>, AdminError> {
        Ok(vec![SwitchStatus { index: switch, ..SwitchStatus::default() }])
    }

    fn drain(&self) -> Result<DrainResult, AdminError> {
        Err(AdminError::Failed("node 2 is down".into()))
    }
}

impl Fake {
    fn counts(&self) -> Result<(), AdminError> {
        let elsewhere = || AdminError::Unsupported("this process has no gateway".into());
        self.others.is_empty().then_some(()).ok_or_else(elsewhere)
    }
}

fn start(admin: Fake) -> MetricsServer {
    let sources = Sources::default();
    sources.add(|samples: &mut Samples| samples.gauge("switchback_epoch", "Epoch.", &[], 4.0));
    let mut config = RackConfig::default();
    config.rack.metrics_hosts = vec!["Rack1.example.org".to_owned()];
    MetricsServer::start("127.0.0.1:0".parse().unwrap(), &config, Arc::new(admin), sources).unwrap()
}

/// One exchange: status code, and everything after the headers.
fn exchange(server: &MetricsServer, request: &str, headers: &str) -> (u16, String) {
    let host = server.address();
    sent(server, &format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}"))
}

/// As [`exchange`], with all that is said of the host.
fn sent(server: &MetricsServer, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "{head}Connection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn everything_can_be_asked() {
    let server = start(Fake::default());
    let (code, text) = exchange(&server, "GET /metrics", "");
    assert_eq!(
        (code, text.as_str()),
        (
            200,
            "# HELP switchback_epoch Epoch.\n# TYPE switchback_epoch gauge\nswitchback_epoch 4\n"
        )
    );
    let (code, body) = exchange(&server, "GET /status", "");
    let status: RackStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((code, status.name.as_str()), (200, "test"));
    let cached: CachedStatus =
        serde_json::from_str(&exchange(&server, "GET /cached?limit=2", "").1).unwrap();
    assert_eq!((cached.total, cached.records.len()), (500, 2));
    let cached: CachedStatus =
        serde_json::from_str(&exchange(&server, "GET /cached", "").1).unwrap();
    assert_eq!(cached.records.len(), CACHED_DEFAULT);
    assert_eq!(exchange(&server, "GET /cached?limit=-1", "").0, 400);
    let nodes: Vec<NodeStatus> =
        serde_json::from_str(&exchange(&server, "GET /nodes", "").1).unwrap();
    assert_eq!(nodes[0].index, 3);
    let chains: Vec<ChainStatus> =
        serde_json::from_str(&exchange(&server, "GET /chains", "").1).unwrap();
    assert_eq!((chains[0].epoch, chains[0].switch), (4, Some(1)));
    let switches: Vec<SwitchStatus> =
        serde_json::from_str(&exchange(&server, "GET /switches", "").1).unwrap();
    assert!(switches[0].active && switches[0].index == 1);
    let elsewhere = (501, "this process has no controller\n".into());
    assert_eq!(exchange(&server, "GET /partitions", ""), elsewhere);
    assert_eq!(exchange(&server, "GET /healthz", ""), (200, "serving\n".into()));
    let no_demo = (501, "this process is no demo's\n".into());
    assert_eq!(exchange(&server, "POST /demo/kill", ""), no_demo);
    assert_eq!(exchange(&server, "GET /nonsense", "").0, 404);
}

#[test]
fn hot_keys_are_limited_whatever_is_asked_for() {
    let server = start(Fake::default());
    let asked = |query: &str| {
        let (code, body) = exchange(&server, &format!("GET /hot{query}"), "");
        assert_eq!(code, 200, "{query}: {body}");
        let hot: HotStatus = serde_json::from_str(&body).unwrap();
        (hot.keys.len(), hot.window_seconds)
    };
    assert_eq!(asked(""), (20, 2.0));
    assert_eq!(asked("?limit=3&seconds=7"), (3, 7.0));
    assert_eq!(asked("?limit=18446744073709551615&seconds=18446744073709551615"), (256, 10.0));
    for query in
        ["limit=-1", "limit=x", "seconds=0.5", "limit=1&limit=2", "limit=99999999999999999999"]
    {
        assert_eq!(exchange(&server, &format!("GET /hot?{query}"), "").0, 400, "{query}");
    }
    assert_eq!(exchange(&server, "POST /hot", "").0, 405);
}

/// Every path that shows the load, with what a hostile client may send.
#[test]
fn queries_that_make_no_sense_are_refused_and_large_ones_limited() {
    let server = start(Fake::default());
    let ok = |path: &str| {
        let (code, body) = exchange(&server, &format!("GET {path}"), "");
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str::<serde_json::Value>(&body).unwrap()
    };
    // The first look is at the start.
    while ok("/events")["next"] == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let max = u64::MAX;
    assert_eq!(ok(&format!("/heat?seconds={max}&columns={max}"))["step_seconds"], 105);
    assert_eq!(ok("/heat?seconds=0&columns=0")["ranges"], 256);
    let events = ok(&format!("/events?since=0&limit={max}"));
    assert_eq!(events["events"][0]["kind"], "started");
    assert_eq!(ok(&format!("/events?since={max}"))["events"], serde_json::json!([]));
    for path in ["/heat?seconds=-1", "/heat?columns=1e3", "/events?since=x", "/events?limit=-1"] {
        assert_eq!(exchange(&server, &format!("GET {path}"), "").0, 400, "{path}");
    }
    for path in ["/heat", "/hot", "/events", "/live"] {
        assert_eq!(exchange(&server, &format!("POST {path}"), "").0, 405, "{path}");
        let evil = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n");
        assert_eq!(sent(&server, &evil).0, 421, "{path}");
        assert_eq!(
            exchange(&server, &format!("GET {path}"), "Origin: http://evil.example\r\n").0,
            403
        );
    }
}

#[test]
fn one_process_tells_what_all_gateways_and_switches_know() {
    let mut gateways = [3, 5].map(|connections| {
        let clients = ClientsStatus { connections: Some(connections), ..ClientsStatus::default() };
        let known = RackStatus { clients, ..RackStatus::default() };
        start(Fake { known, ..Fake::default() })
    });
    let switch = start(Fake::default());
    let gone = start(Fake::default());
    let (one, other) = (gateways[0].address(), gateways[1].address());
    let controller = start(Fake {
        has_controller: true,
        others: vec![
            (Peer::Client(1), one),
            // A gateway's second worker.
            (Peer::Client(2), one),
            (Peer::Switch(1), switch.address()),
            (Peer::Client(7), other),
            (Peer::Client(9), gone.address()),
        ],
        ..Fake::default()
    });
    gone.stop();
    let start = std::time::Instant::now();
    loop {
        let (_, sample) = watch(open(&controller));
        if (sample.connections, sample.reads_per_s) == (Some(8), Some(0.0)) {
            assert!(sample.hot.is_some_and(|hot| hot.len() == 10 && hot[0].reads_per_s == 2.0));
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{sample:?}");
    }
    let hot = || {
        let (code, body) = exchange(&controller, "GET /hot?limit=3", "");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str::<HotStatus>(&body).unwrap()
    };
    let both = hot();
    assert_eq!((both.keys.len(), both.requests_per_s), (3, 600.0));
    assert_eq!((both.keys[2].reads_per_s, both.keys[2].share), (2.0, 2.0 / 600.0));
    let (code, body) = exchange(&controller, "GET /heat?seconds=2&columns=2", "");
    let heat: HeatStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((code, heat.ranges), (200, 256));
    std::mem::replace(&mut gateways[1], switch).stop();
    assert_eq!(hot().requests_per_s, 300.0, "the one that is left");
}

fn open(server: &MetricsServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream
}

/// Waits for the head and the first sample.
fn watch(stream: TcpStream) -> (TcpStream, LiveSample) {
    let mut lines = std::io::BufReader::new(stream.try_clone().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    let data = lines.find_map(|line| line.unwrap().strip_prefix("data: ").map(str::to_owned));
    (stream, serde_json::from_str(&data.unwrap()).unwrap())
}

#[test]
fn few_may_watch_and_a_place_is_free_again_when_one_goes() {
    let server = start(Fake::default());
    // All at once, since each waits for the next sample.
    let open: Vec<_> = (0..live::WATCHERS_MAX).map(|_| open(&server)).collect();
    let mut watching: Vec<_> = open.into_iter().map(watch).collect();
    let (_, sample) = &watching[0];
    assert_eq!((sample.name.as_str(), sample.reads_per_s), ("test", Some(0.0)));
    assert_eq!(sample.hot.as_ref().unwrap().len(), 10);
    let (code, why) = exchange(&server, "GET /live", "");
    assert_eq!(
        (code, why.as_str()),
        (503, "16 programs watch already, which is the limit; /status answers all\n")
    );
    assert_eq!(exchange(&server, "GET /healthz", ""), (200, "serving\n".into()));
    watching.pop();
    let start = std::time::Instant::now();
    // The server notices with the next sample that it sends.
    while sent_code(&server, "GET /live") != 200 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
    let (mut stream, _) = watching.pop().unwrap();
    let mut rest = Vec::new();
    // It ends: with the stream's end, or broken off.
    let _ = stream.read_to_end(&mut rest);
}

/// Only the status code: the body has no end.
fn sent_code(server: &MetricsServer, request: &str) -> u16 {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

#[test]
fn commands_are_carried_out_or_say_why_not() {
    let server = start(Fake::default());
    let (code, body) = exchange(&server, "POST /snapshot", "");
    let result: SnapshotResult = serde_json::from_str(&body).unwrap();
    assert_eq!((code, result.generation), (200, 7));
    assert_eq!(exchange(&server, "POST /drain", ""), (503, "node 2 is down\n".into()));
    assert_eq!(exchange(&server, "GET /drain", "").0, 405, "looking changes nothing");
}

#[test]
fn web_pages_can_not_command() {
    let server = start(Fake::default());
    assert_eq!(exchange(&server, "POST /snapshot", "Origin: http://evil.example\r\n").0, 403);
    let own = format!("Origin: http://{}\r\nAuthorization: Bearer \r\n", server.address());
    let (code, why) = exchange(&server, "POST /snapshot", &own);
    assert!(code == 403 && why.contains("access = \"control\""), "{code} {why}");
}

/// A server whose console has this access, with its data there.
fn with_console(access: ConsoleAccess, data: &std::path::Path) -> io::Result<MetricsServer> {
    let mut config = RackConfig::default();
    config.console.access = access;
    config.controller.data = data.to_owned();
    config.gateway.password = Some("hunter2".into());
    let admin = Arc::new(Fake { has_controller: true, ..Fake::default() });
    MetricsServer::start("127.0.0.1:0".parse().unwrap(), &config, admin, Sources::default())
}

/// Fails if requests that wait for other parts take all threads, so that metrics and health wait,
/// too.
#[test]
fn slow_requests_leave_threads_for_metrics_and_health() {
    let admin = Fake::default();
    let (gate, asked) = (Arc::clone(&admin.gate), Arc::clone(&admin.asked_cached));
    let server = start(admin);
    let closed = gate.lock().unwrap();
    std::thread::scope(|scope| {
        let get = || exchange(&server, "GET /cached", "").0;
        let slow = [scope.spawn(get), scope.spawn(get)];
        while asked.load(Ordering::SeqCst) < SLOW_MAX {
            std::thread::yield_now();
        }
        assert_eq!(get(), 503, "there is no thread for it");
        assert_eq!(exchange(&server, "POST /snapshot", "").0, 503);
        assert_eq!(exchange(&server, "GET /healthz", "").0, 200);
        assert_eq!(exchange(&server, "GET /metrics", "").0, 200);
        drop(closed);
        assert!(slow.map(|it| it.join().unwrap()).iter().all(|code| *code == 200));
        assert_eq!(get(), 200);
    });
}

#[test]
fn the_consoles_own_pages_command_with_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("console-token");
    let server = with_console(ConsoleAccess::Control, directory.path()).unwrap();
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    let token = std::fs::read_to_string(&file).unwrap().trim_end().to_owned();
    assert_eq!(token.len(), 32);
    let code = |origin: &str, token: &str| {
        let headers = format!("Origin: {origin}\r\nAuthorization: {token}\r\n");
        exchange(&server, "POST /snapshot", &headers).0
    };
    let (own, right) = (format!("http://{}", server.address()), format!("Bearer {token}"));
    assert_eq!(code(&own, &right), 200);
    let other_port = format!("http://127.0.0.1:{}", server.address().port() ^ 1);
    for origin in [other_port.as_str(), "http://localhost", "null", "http://evil.example"] {
        assert_eq!(code(origin, &right), 403, "{origin}");
    }
    let longer = format!("{right}0");
    for wrong in ["", "Bearer", "Bearer ", &right[..38], &longer, &token, "Bearer hunter2"] {
        assert_eq!(code(&own, wrong), 403, "{wrong}");
    }
    // Programs of this machine need none, as before.
    assert_eq!(exchange(&server, "POST /snapshot", "").0, 200);
    drop(server);
    // What a start that was killed has left is no token.
    std::fs::write(file.with_extension("new"), &token[..7]).unwrap();
    let again = with_console(ConsoleAccess::Control, directory.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), token, "it stays");
    drop(again);
    std::fs::remove_file(&file).unwrap();
    let again = with_console(ConsoleAccess::Control, directory.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end().len(), token.len());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(again);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = with_console(ConsoleAccess::Control, directory.path()).unwrap_err().to_string();
    assert!(error.contains("console-token: other users may read it"), "{error}");
}

#[test]
fn a_browser_gets_the_page_and_other_programs_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_console(ConsoleAccess::Read, directory.path()).unwrap();
    assert!(!directory.path().join("console-token").exists(), "nothing can be commanded");
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let (code, page) = exchange(&server, "GET /", browser);
    assert!(code == 200 && page.starts_with("<!doctype html>"), "{page}");
    assert!(exchange(&server, "GET /", "Accept: */*\r\n").1.starts_with("Switchback\n"));
    for path in page.split('"').filter(|word| word.starts_with("console/")) {
        let head = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n");
        let answer = whole(&server, &head);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:.200}");
        let policy = "content-security-policy: default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
        assert!(answer.contains(policy), "{path}: {answer:.400}");
        let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let again = whole(&server, &format!("{head}If-None-Match: {tag}\r\n"));
        assert!(again.starts_with("HTTP/1.1 304"), "{path}: {again:.200}");
    }
    for path in ["/console/", "/console/../rack.toml", "/console/%2e%2e/lib.rs", "/console/app.js/"]
    {
        assert_eq!(exchange(&server, &format!("GET {path}"), "").0, 404, "{path}");
    }
    let evil = "GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\n";
    assert_eq!(sent(&server, evil).0, 421);
    let off = with_console(ConsoleAccess::Off, directory.path()).unwrap();
    assert!(exchange(&off, "GET /", browser).1.starts_with("Switchback\n"));
    assert_eq!(exchange(&off, "GET /console/app.js", "").0, 404);
}

#[test]
fn settings_are_told_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_console(ConsoleAccess::Control, directory.path()).unwrap();
    let (code, body) = exchange(&server, "GET /config", "");
    let token = std::fs::read_to_string(directory.path().join("console-token")).unwrap();
    assert!(code == 200 && !body.contains("hunter2") && !body.contains(token.trim_end()), "{body}");
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["settings"]["gateway"]["has_password"], true);
    let changed: Vec<_> = told["changed"].as_array().unwrap().iter().collect();
    assert_eq!(changed, ["console.access", "controller.data", "gateway.has_password"]);
}

/// Head and body of an answer.
fn whole(server: &MetricsServer, head: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// DNS rebinding: the page's name leads here, and the browser says that name.
#[test]
fn a_name_that_a_web_page_could_have_is_refused() {
    let server = start(Fake::default());
    for host in [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "rack1",
    ] {
        for request in
            ["GET /cached", "GET /metrics", "GET /nonsense", "POST /snapshot", "POST /drain"]
        {
            let (code, why) = sent(&server, &format!("{request} HTTP/1.1\r\nHost: {host}\r\n"));
            assert_eq!(code, 421, "{request} of {host}: {why}");
        }
    }
    let (_, why) = sent(&server, "GET /cached HTTP/1.1\r\nHost: evil.example:80\r\n");
    let expected = "\"evil.example\" is no name of this rack: ask it by its IP address or \
                    localhost, or add the name to metrics_hosts in [rack] of rack.toml\n";
    assert_eq!(why, expected);
    // An absolute target is asked for, whatever the header says.
    assert_eq!(
        sent(&server, "GET http://evil.example/cached HTTP/1.1\r\nHost: localhost\r\n").0,
        421
    );
    assert_eq!(
        sent(&server, "GET http://localhost/cached HTTP/1.1\r\nHost: evil.example\r\n").0,
        200
    );
}

#[test]
fn addresses_and_known_names_are_answered() {
    let server = start(Fake::default());
    for host in [
        "localhost",
        "LocalHost:9464",
        "localhost.",
        "rack.localhost",
        "127.0.0.1",
        "10.1.2.3:9464",
        "[::1]",
        "[fd00::7]:9464",
        "rack1.example.org",
        "RACK1.example.org.:80",
    ] {
        assert_eq!(
            sent(&server, &format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n")).0,
            200,
            "{host}"
        );
    }
}

/// RFC 9112, 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1
/// request message that lacks a Host header field and to any request message that contains more
/// than one Host header field line or a Host header field with an invalid field value."
#[test]
fn a_request_has_one_valid_host() {
    let server = start(Fake::default());
    for (head, code) in [
        ("HTTP/1.1\r\n", 400),
        ("HTTP/1.0\r\n", 200),
        ("HTTP/1.0\r\nHost: evil.example\r\n", 421),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("HTTP/1.1\r\nHost:\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost/\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost:x\r\n", 400),
        ("HTTP/1.1\r\nHost: [::1].evil.example\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost@evil.example\r\n", 400),
        ("HTTP/1.1\r\nHost: evil.example, localhost\r\n", 400),
    ] {
        assert_eq!(sent(&server, &format!("GET /healthz {head}")).0, code, "{head:?}");
    }
}

#[test]
fn pages_of_other_hosts_are_not_answered() {
    let server = start(Fake::default());
    for (origin, code) in [
        ("http://localhost:3000", 200),
        ("https://rack1.example.org", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("localhost", 403),
        ("http://localhost\r\nOrigin: http://evil.example", 403),
    ] {
        assert_eq!(
            exchange(&server, "GET /cached", &format!("Origin: {origin}\r\n")).0,
            code,
            "{origin}"
        );
    }
}

#[tokio::test]
async fn other_machines_can_not_command() {
    let admin = Arc::new(Fake { has_controller: true, ..Fake::default() });
    let shared = ServerState::new(&RackConfig::default(), admin, Sources::default()).unwrap();
    for (peer, own, code) in [
        ("10.0.0.1:5", "10.0.0.2:9464", 403),
        ("10.0.0.2:5", "10.0.0.2:9464", 200),
        ("[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.2]:9464", 403),
        ("[::ffff:10.0.0.2]:5", "10.0.0.2:9464", 200),
        ("[::ffff:127.0.0.1]:5", "[::]:9464", 200),
        ("[::1]:5", "[::1]:9464", 200),
    ] {
        let caller = Caller::new(peer.parse().unwrap(), own.parse().ok());
        let work = |_: &ServerState| Ok::<_, AdminError>(1);
        let answer = command(shared.clone(), caller, &HeaderMap::new(), "x", work).await;
        assert_eq!(answer.unwrap_or_else(|refused| refused).status().as_u16(), code, "{peer}");
    }
}

#[test]
fn a_rack_that_recovers_is_not_healthy() {
    let server = start(Fake { down: true, ..Fake::default() });
    assert_eq!(exchange(&server, "GET /healthz", ""), (503, "recovering\n".into()));
}

#[test]
fn a_taken_port_says_how_to_mend_it() {
    let server = start(Fake::default());
    let (admin, sources) = (Arc::new(Fake::default()), Sources::default());
    let error =
        MetricsServer::start(server.address(), &RackConfig::default(), admin, sources).unwrap_err();
    let expected = format!(
        "metrics can't be served at {}: another program has it, perhaps a rack that runs already; \
         choose another: `metrics` of this part in rack.toml, or --metrics of `switchback up` \
         (port 0: any free one)",
        server.address()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_stopped_server_frees_its_port() {
    let server = start(Fake::default());
    let address = server.address();
    // A client that never finishes its request doesn't keep it.
    let _slow = TcpStream::connect(address).unwrap();
    server.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn connections_that_say_nothing_make_room_for_others() {
    let limits = Limits { connections: 3, head: Duration::from_millis(200), ..LIMITS };
    let address = "127.0.0.1:0".parse().unwrap();
    let admin = Arc::new(Fake::default());
    let shared = ServerState::new(&RackConfig::default(), admin, Sources::default()).unwrap();
    let server = MetricsServer::limited(address, shared, limits).unwrap();
    let mut open: Vec<_> = (0..6).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for (index, stream) in open.iter_mut().enumerate() {
        // Nothing, half a head, or a whole request and then no other.
        let said: &[u8] = match index % 3 {
            0 => b"",
            1 => b"GET /metrics HT",
            _ => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        stream.write_all(said).unwrap();
    }
    assert_eq!(exchange(&server, "GET /healthz", ""), (200, "serving\n".into()));
    for stream in &mut open {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
}
