//! The names by which HTTP may be asked. A browser lets a page of `evil.example` read what
//! `evil.example` answers, and that name's owner can make it resolve to 127.0.0.1 (DNS rebinding);
//! the request still says the name in `Host`. An IP address there can't be rebound.

use super::ServerState;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The names of `metrics_hosts`; IP addresses and this machine's own names are known without.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<[String]>);

impl Hosts {
    pub(super) fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| plain(name)).collect())
    }

    /// A host as a URI has it: a name, an IPv4 address, or an IPv6 address in brackets.
    fn know(&self, host: &str) -> bool {
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = plain(host);
        // No browser asks a name server for these.
        let local = name == "localhost" || name.ends_with(".localhost");
        local || name.parse::<Ipv4Addr>().is_ok() || self.0.contains(&name)
    }

    /// What RFC 9112 (section 3.2) and the names ask of a request.
    fn check(
        &self,
        version: Version,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, String)> {
        let header = header_of(version, headers)?;
        // The authority of an absolute target takes the place of the header, which must be there
        // nevertheless.
        let said = uri
            .authority()
            .or(header.as_ref())
            .map(|said| host_of(said).ok_or_else(invalid))
            .transpose()?;
        if let Some(host) = said.filter(|host| !self.know(host)) {
            let why = format!(
                "\"{host:.253}\" is no name of this rack: ask it by its IP address or localhost, \
                 or add the name to metrics_hosts in [rack] of rack.toml\n"
            );
            return Err((StatusCode::MISDIRECTED_REQUEST, why));
        }
        match headers.get_all(header::ORIGIN).iter().all(|origin| self.know_origin(origin)) {
            true => Ok(()),
            false => {
                let why = "this rack answers no web pages of other hosts; add the page's host to \
                           metrics_hosts in [rack] of rack.toml if it may read what the rack \
                           says\n";
                Err((StatusCode::FORBIDDEN, why.to_owned()))
            }
        }
    }

    /// `scheme://host`; `null` is any page that doesn't say where it is from.
    fn know_origin(&self, origin: &HeaderValue) -> bool {
        let origin =
            Uri::try_from(origin.as_bytes()).ok().filter(|origin| origin.scheme().is_some());
        origin.and_then(|origin| origin.host().map(|host| self.know(host))).unwrap_or(false)
    }
}

/// The one `Host` of a request; HTTP/1.0 may have none.
fn header_of(
    version: Version,
    headers: &HeaderMap,
) -> Result<Option<Authority>, (StatusCode, String)> {
    let mut all = headers.get_all(header::HOST).iter();
    match (all.next(), all.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(None),
        (Some(host), None) => Authority::try_from(host.as_bytes()).map(Some).map_err(|_| invalid()),
        _ => Err(invalid()),
    }
}

fn invalid() -> (StatusCode, String) {
    let why =
        "a request says once which host it is for: a name or an IP address, and perhaps a port\n";
    (StatusCode::BAD_REQUEST, why.to_owned())
}

/// Without the port; `None` if there is more beside the two.
fn host_of(authority: &Authority) -> Option<&str> {
    let host = authority.host();
    let rest = authority.as_str().strip_prefix(host)?;
    let is_port = |rest: &str| {
        rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    (!host.is_empty() && (rest.is_empty() || is_port(rest))).then_some(host)
}

/// Names are compared without regard to case; `name.` is the same name.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Refuses requests for other names, before anything else looks at them.
pub(super) async fn check(
    State(shared): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    match shared.hosts.check(request.version(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}
