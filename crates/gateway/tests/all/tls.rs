//! The gateway over TLS: real handshakes on real sockets, certificates in files.

use crate::fake::{Client, FakeRack, PATIENCE, config};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};
use std::io::{ErrorKind as Io, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use switchback_gateway::{ErrorKind, Gateway, GatewayConfig, TlsFiles};
use tempfile::TempDir;

/// A CA, and certificates that it has issued: files in a directory that goes away.
struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.crt"), certificate.pem()).unwrap();
        let root = certificate.der().clone();
        Authority { directory, issuer: Issuer::new(params, key), root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues `name`.crt and `name`.key, for localhost.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn files(&self, name: &str) -> TlsFiles {
        TlsFiles {
            certificate: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
            client_ca: None,
        }
    }

    /// A client that trusts this CA, and shows the certificate that is called so.
    fn client(&self, shows: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match shows {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let files = self.files(name);
                let certificate = CertificateDer::from_pem_file(files.certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        })
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Stream {
    let name = ServerName::try_from("localhost").unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket)
}

/// Sends bytes and reads as many as are expected; fewer at the end of the stream.
fn exchange(stream: &mut Stream, sent: &[u8], expected: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(sent)?;
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

fn tls_only(files: TlsFiles) -> GatewayConfig {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    GatewayConfig { listen: vec![], tls: Some((any, files)), ..config() }
}

fn failed(gateway: &Gateway) -> u64 {
    gateway.statistics().sum(|worker| worker.errors(ErrorKind::Tls))
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn commands_are_answered_beside_plain_text() {
    let ca = Authority::new("ca");
    ca.issue("gateway", |_| {});
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let both = GatewayConfig { tls: Some((any, ca.files("gateway"))), ..config() };
    let gateway = FakeRack::default().try_start(both, 2).unwrap();
    let address = gateway.tls_addr().unwrap();
    assert_ne!(address, gateway.local_addr());
    let mut stream = connect(address, &ca.client(None));
    assert_eq!(exchange(&mut stream, b"SET a 1\r\n", b"+OK\r\n").unwrap(), b"+OK\r\n");
    let mut plain = Client::connect(&gateway);
    assert_eq!(plain.ask("get a"), "$1\r\n1\r\n");
    let port = plain.ask("config get tls-port");
    assert!(port.contains(&address.port().to_string()), "{port}");
    assert_eq!(failed(&gateway), 0);
}

/// Values of 300 KB need many records and more than a socket takes at once; a pipeline of them,
/// more than TLS buffers.
#[test]
fn long_values_and_pipelines_arrive_whole() {
    let ca = Authority::new("ca");
    ca.issue("gateway", |_| {});
    let gateway = FakeRack::default().start(tls_only(ca.files("gateway")));
    let mut stream = connect(gateway.local_addr(), &ca.client(None));
    let value: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    stream.write_all(&Client::command(&[b"set", b"long", &value])).unwrap();
    let mut ok = [0; 5];
    stream.read_exact(&mut ok).unwrap();
    let mut reply = format!("${}\r\n", value.len()).into_bytes();
    reply.extend(&value);
    reply.extend(b"\r\n");
    // All are asked for before any is read.
    stream.write_all(&Client::command(&[b"get", b"long"]).repeat(40)).unwrap();
    for at in 0..40 {
        let mut found = vec![0; reply.len()];
        stream.read_exact(&mut found).unwrap();
        assert!(found == reply, "value {at}");
    }
    // Byte by byte, each in a record of its own.
    for byte in Client::command(&[b"strlen", b"long"]) {
        stream.write_all(&[byte]).unwrap();
    }
    let mut length = [0; 9];
    stream.read_exact(&mut length).unwrap();
    assert_eq!(&length, b":300000\r\n");
    stream.write_all(b"QUIT\r\n").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"+OK\r\n", "and then a clean end of TLS");
}

#[test]
fn renewed_certificates_are_shown_to_new_connections_and_old_ones_go_on() {
    let (ca, next) = (Authority::new("ca"), Authority::new("next"));
    ca.issue("gateway", |params| params.not_after = date_time_ymd(2090, 1, 1));
    let gateway = FakeRack::default().start(tls_only(ca.files("gateway")));
    let (address, tls) = (gateway.local_addr(), gateway.tls().unwrap());
    let mut old = connect(address, &ca.client(None));
    assert_eq!(exchange(&mut old, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    let expires = tls.expires_unix_s();
    assert_eq!(expires, date_time_ymd(2090, 1, 1).unix_timestamp() as u64);

    // What is no certificate leaves the old one in force.
    std::fs::write(ca.path("gateway.crt"), "nothing").unwrap();
    let error = tls.reload().unwrap_err().to_string();
    assert!(error.contains("gateway.crt has no certificate in PEM form"), "{error}");
    let mut another = connect(address, &ca.client(None));
    assert_eq!(exchange(&mut another, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    assert_eq!(tls.expires_unix_s(), expires);

    next.issue("gateway", |params| params.not_after = date_time_ymd(2091, 1, 1));
    for name in ["gateway.crt", "gateway.key"] {
        std::fs::copy(next.path(name), ca.path(name)).unwrap();
    }
    tls.reload().unwrap();
    assert!(tls.expires_unix_s() > expires);
    let mut new = connect(address, &next.client(None));
    assert_eq!(exchange(&mut new, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    for stream in [&mut old, &mut another] {
        assert_eq!(exchange(stream, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    }
    assert!(exchange(&mut connect(address, &ca.client(None)), b"PING\r\n", b"+PONG\r\n").is_err());
}

#[test]
fn certificates_that_clients_would_refuse_are_refused_at_the_start() {
    let ca = Authority::new("ca");
    ca.issue("good", |_| {});
    ca.issue("old", |params| params.not_after = date_time_ymd(2020, 1, 1));
    ca.issue("early", |params| params.not_before = date_time_ymd(2090, 1, 1));
    ca.issue("client", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    std::fs::write(ca.path("empty"), "").unwrap();
    std::fs::write(ca.path("bad"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
        .unwrap();
    std::fs::write(ca.path("long"), vec![b'x'; 1 << 20]).unwrap();
    let good = || ca.files("good");
    for (files, wanted) in [
        (ca.files("old"), "old.crt has expired, "),
        (ca.files("early"), "early.crt isn't valid yet, only in "),
        (ca.files("client"), "client.crt isn't for servers"),
        (TlsFiles { key: ca.path("old.key"), ..good() }, "old.key isn't the private key of the"),
        (TlsFiles { key: ca.path("empty"), ..good() }, "empty has no private key in PEM form"),
        (TlsFiles { key: ca.path("good.crt"), ..good() }, "good.crt has no private key in PEM"),
        (TlsFiles { certificate: ca.path("empty"), ..good() }, "empty has no certificate in PEM"),
        (TlsFiles { certificate: ca.path("bad"), ..good() }, "bad is damaged: "),
        (TlsFiles { certificate: ca.path("none"), ..good() }, "none can't be read: No such file"),
        (TlsFiles { certificate: ca.path("long"), ..good() }, "long is no file of certificates"),
        (TlsFiles { certificate: "/dev/zero".into(), ..good() }, "zero is no file of certificates"),
        (TlsFiles { client_ca: Some(ca.path("good.key")), ..good() }, "good.key has no certif"),
    ] {
        let started = FakeRack::default().try_start(tls_only(files), 1);
        let error = started.unwrap_err().to_string();
        assert!(error.starts_with("the gateway can't serve TLS: "), "{error}");
        assert!(error.contains(wanted), "{error} instead of {wanted}");
    }
}

#[test]
fn clients_without_an_accepted_certificate_are_refused_if_one_is_asked_for() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    ca.issue("gateway", |_| {});
    ca.issue("client", |_| {});
    ca.issue("old", |params| params.not_after = date_time_ymd(2020, 1, 1));
    other.issue("client", |_| {});
    let stranger = {
        let mut stranger = (*ca.client(None)).clone();
        stranger.client_auth_cert_resolver =
            Arc::clone(&other.client(Some("client")).client_auth_cert_resolver);
        Arc::new(stranger)
    };
    let files = TlsFiles { client_ca: Some(ca.path("ca.crt")), ..ca.files("gateway") };
    let rack = FakeRack::default();
    let gateway = rack.start(tls_only(files));
    let address = gateway.local_addr();
    let mut known = connect(address, &ca.client(Some("client")));
    assert_eq!(exchange(&mut known, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    for config in [ca.client(None), ca.client(Some("old")), stranger] {
        assert!(exchange(&mut connect(address, &config), b"SET a 1\r\n", b"+OK\r\n").is_err());
    }
    eventually("each refusal is counted", || failed(&gateway) == 3);
    assert_eq!(rack.writes(), 0);
}

/// What isn't TLS, what stops in the midst of it, and what comes one byte at a time.
#[test]
fn strangers_at_the_port_cost_their_connection_only() {
    let ca = Authority::new("ca");
    ca.issue("gateway", |_| {});
    let gateway = FakeRack::default().start(tls_only(ca.files("gateway")));
    let address = gateway.local_addr();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    match plain.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), Io::ConnectionReset),
    }
    assert!(!answer.windows(4).any(|bytes| bytes == b"PONG"), "{answer:?}");
    eventually("it is counted", || failed(&gateway) == 1);

    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(ca.client(None), name).unwrap().write_tls(&mut hello).unwrap();
    let half = TcpStream::connect(address).unwrap();
    (&half).write_all(&hello[..hello.len() / 2]).unwrap();
    drop(half);
    let mut slow = TcpStream::connect(address).unwrap();
    for byte in hello {
        slow.write_all(&[byte]).unwrap();
    }
    let mut first = [0; 1];
    slow.read_exact(&mut first).unwrap();
    assert_eq!(first[0], 22, "a handshake goes on");

    let mut stream = connect(address, &ca.client(None));
    assert_eq!(exchange(&mut stream, b"PING\r\n", b"+PONG\r\n").unwrap(), b"+PONG\r\n");
    drop((slow, stream));
    eventually("all are closed", || gateway.connections() == 0);
}

#[test]
fn redis_tools_speak_tls() {
    let ca = Authority::new("ca");
    ca.issue("gateway", |_| {});
    ca.issue("client", |_| {});
    let files = TlsFiles { client_ca: Some(ca.path("ca.crt")), ..ca.files("gateway") };
    let gateway = FakeRack::default().start(tls_only(files));
    let port = gateway.local_addr().port().to_string();
    let run = |tool: &str, more: &[&str]| {
        let mut command = std::process::Command::new(tool);
        command.args(["-p", &port, "--tls", "--sni", "localhost", "--cacert"]);
        command.arg(ca.path("ca.crt"));
        command.arg("--cert").arg(ca.path("client.crt"));
        command.arg("--key").arg(ca.path("client.key"));
        let output = command.args(more).output();
        if output.is_err() {
            switchback_testing::skip(tool);
        }
        output.ok().map(|it| String::from_utf8_lossy(&[it.stdout, it.stderr].concat()).into_owned())
    };
    let Some(found) = run("redis-cli", &["set", "a", "1"]) else { return };
    assert_eq!(found, "OK\n");
    assert_eq!(run("redis-cli", &["-3", "get", "a"]).unwrap(), "1\n");
    let load = ["-n", "2000", "-d", "128", "-t", "set,get", "-q", "-P", "16"];
    let found = run("redis-benchmark", &load).unwrap();
    assert!(found.matches("requests per second").count() == 2, "{found}");
    assert!(!found.contains("rror"), "{found}");
}
