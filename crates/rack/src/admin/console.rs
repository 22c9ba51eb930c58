//! The web console: its files, what it may know of the settings, and whether it may command.

use super::ServerState;
use crate::config::{Console, ConsoleAccess, RackConfig};
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rand::TryRng;
use rand::rngs::SysRng;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use switchback_console::{File, PAGE};

/// A browser takes everything from where the page is and shows the page in no other; what it runs
/// comes in files.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The console's token, in the controller's directory.
const TOKEN_FILE: &str = "console-token";
/// Its length: 128 bits in hexadecimal digits.
const TOKEN_DIGITS: usize = 32;

/// What the pages are told and may do.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    access: ConsoleAccess,
    token: Option<Token>,
    settings: Arc<Value>,
    is_demo: bool,
}

/// A secret that allows commands. It isn't shown by `Debug`.
#[derive(Clone)]
struct Token {
    file: PathBuf,
    digits: Arc<str>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({})", self.file.display())
    }
}

impl Pages {
    /// Those of a process of `config`'s rack. Where the controller is, pages can command, so a
    /// token is drawn, or read if there is one already.
    ///
    /// # Errors
    /// The token can't be kept, or others can read it.
    pub(super) fn new(
        config: &RackConfig,
        has_controller: bool,
        is_demo: bool,
    ) -> io::Result<Pages> {
        let Console { access, .. } = config.console;
        let wants_token = has_controller && access == ConsoleAccess::Control;
        let token = wants_token.then(|| Token::kept(&config.controller.data)).transpose()?;
        Ok(Pages { access, token, settings: Arc::new(settings(config)), is_demo })
    }

    fn are_served(&self) -> bool {
        self.access != ConsoleAccess::Off
    }

    /// Whether a page may command that sent these headers; why not.
    pub(super) fn may_command(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let Some(token) = &self.token else {
            return Err(
                "commands are not taken from web pages; use switchback ctl or curl (or the console \
                        of the controller's process, with [console] access = \"control\" in \
                        rack.toml)\n",
            );
        };
        if !is_from_here(headers) {
            return Err(
                "commands are taken from the console's own pages only: Origin and Host differ\n",
            );
        }
        let said = headers.get(header::AUTHORIZATION).and_then(|said| said.to_str().ok());
        let said = said.and_then(|said| said.strip_prefix("Bearer ")).unwrap_or_default();
        match is_same(said.as_bytes(), token.digits.as_bytes()) {
            true => Ok(()),
            false => Err(
                "commands need the console's token: open the page with #t=TOKEN; it is in the file \
                          console-token of the controller's directory\n",
            ),
        }
    }
}

/// The page is of the host and port that it asks.
fn is_from_here(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let authority = origin.and_then(|origin| origin.split_once("://")).map(|(_, rest)| rest);
    authority.is_some() && authority == host
}

/// In a time that doesn't tell how many bytes agree.
fn is_same(said: &[u8], right: &[u8]) -> bool {
    let differ = said.iter().zip(right).fold(0, |differ, (said, right)| differ | (said ^ right));
    said.len() == right.len() && differ == 0
}

impl Token {
    fn kept(directory: &Path) -> io::Result<Token> {
        let file = directory.join(TOKEN_FILE);
        let failed = |error: io::Error| {
            let why = format!("the console's token {}: {error}", file.display());
            io::Error::new(error.kind(), why)
        };
        let digits = match read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => draw(&file),
            found => found,
        };
        Ok(Token { digits: digits.map_err(failed)?.into(), file })
    }
}

fn read(file: &Path) -> io::Result<String> {
    let open = fs::File::open(file)?;
    let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if open.metadata()?.permissions().mode() & 0o077 != 0 {
        return wrong(
            "other users may read it; remove it, and another one is drawn at the next start",
        );
    }
    let mut text = String::new();
    open.take(TOKEN_DIGITS as u64 + 1).read_to_string(&mut text)?;
    let digits = text.trim_end();
    if digits.len() != TOKEN_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong("not a token; remove it, and another one is drawn at the next start");
    }
    Ok(digits.to_owned())
}

fn draw(file: &Path) -> io::Result<String> {
    let word = || SysRng.try_next_u64().map_err(io::Error::other);
    let digits = format!("{:016x}{:016x}", word()?, word()?);
    // Beside it first: half a token would be refused at the next start.
    let aside = file.with_extension("new");
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    open.write_all(digits.as_bytes())?;
    open.write_all(b"\n")?;
    open.sync_all()?;
    fs::rename(&aside, file)?;
    Ok(digits)
}

/// `GET /config`: the settings in force, and which of them are not the default.
fn settings(config: &RackConfig) -> Value {
    let (shown, defaults) = (config.shown(), RackConfig::default().shown());
    let mut changed = Vec::new();
    for (section, keys) in shown.as_object().into_iter().flatten() {
        for (key, value) in keys.as_object().into_iter().flatten() {
            if defaults[section][key] != *value {
                changed.push(format!("{section}.{key}"));
            }
        }
    }
    json!({ "shape": config.shape.name(), "settings": shown, "changed": changed })
}

pub(super) async fn config(State(shared): State<ServerState>) -> axum::Json<Value> {
    let Pages { access, token, settings, is_demo } = &shared.pages;
    let mut told = Value::clone(settings);
    told["console_access"] = access.name().into();
    told["console_token_file"] = token.as_ref().map(|it| it.file.display().to_string()).into();
    told["demo"] = (*is_demo).into();
    axum::Json(told)
}

/// `GET /`: the page for browsers, the list of paths for other programs.
pub(super) async fn index(State(shared): State<ServerState>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
    let wants_page = accepts.is_some_and(|accepts| accepts.contains("text/html"));
    let mut answer = match wants_page && shared.pages.are_served() {
        true => served(&PAGE, &headers),
        false => super::INDEX.into_response(),
    };
    answer.headers_mut().insert(header::VARY, header::HeaderValue::from_static("accept"));
    answer
}

/// `GET /console/...`: what the page loads.
pub(super) async fn file(
    State(shared): State<ServerState>,
    UrlPath(path): UrlPath<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match File::at(&format!("console/{path}")).filter(|_| shared.pages.are_served()) {
        Some(file) => served(file, &headers),
        None => {
            (StatusCode::NOT_FOUND, format!("there is no {:.200}\n", uri.path())).into_response()
        }
    }
}

fn served(file: &File, asked: &HeaderMap) -> Response {
    let mut hasher = DefaultHasher::new();
    file.bytes.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // It is asked for anew each time, and not sent again while it is the same.
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &tag),
    ];
    if asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, [(header::CONTENT_TYPE, file.content_type())], file.bytes).into_response()
}
