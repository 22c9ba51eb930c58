//! HTTP connections, limited in number and time: a peer that holds them open takes nothing from the
//! data path.

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The other end of a connection.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
    /// It is a program of this machine.
    pub(super) is_local: bool,
}

impl Caller {
    /// A connection from an address to the same address can't come from elsewhere: what is sent
    /// back stays here.
    pub(super) fn new(address: SocketAddr, own: Option<SocketAddr>) -> Caller {
        let ip = address.ip().to_canonical();
        let is_own = own.is_some_and(|own| own.ip().to_canonical() == ip);
        Caller { address, is_local: ip.is_loopback() || is_own }
    }
}

/// What connections may take.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Connections at a time; more wait to be accepted.
    pub(super) connections: usize,
    /// How long a request's head may be on its way, the wait for it included.
    pub(super) head: Duration,
    /// How long a peer may take nothing of what it is sent, or be gone without a word.
    pub(super) unread: Duration,
}

/// What metrics and administration need at most.
pub(super) const LIMITS: Limits =
    Limits { connections: 64, head: Duration::from_secs(10), unread: Duration::from_secs(30) };

/// Between two attempts to accept a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            // The peer is gone already, or files are short.
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.unread)) {
            tracing::debug!(%peer, %error, "a connection has no limit for what isn't taken");
        }
        let caller = ConnectInfo(Caller::new(peer, stream.local_addr().ok()));
        let service = TowerToHyperService::new(router.clone().layer(Extension(caller)));
        tokio::spawn(async move {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(limits.head);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%peer, %error, "an HTTP connection ended");
            }
            drop(place);
        });
    }
}
