//! The certificates that the gateway shows: read from files, checked, and read again once they were
//! renewed. Connections keep those that they began with.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection, crypto::ring};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use thiserror::Error;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage};

/// A file of certificates or of a key has fewer bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Ciphertext of a connection that waits for its socket; more is taken as the socket takes it.
pub(crate) const PENDING_BYTES_MAX: usize = 64 << 10;

/// Where certificates and key are, in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The gateway's certificate; after it those that lead to its CA, if there are any between.
    pub certificate: PathBuf,
    /// The private key of the gateway's certificate.
    pub key: PathBuf,
    /// Certificates of CAs, one of which must have issued that of each client. `None`: clients show
    /// no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Why certificates can't be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TlsError {
    #[error("{} can't be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "{} is no file of certificates or keys: it has {FILE_BYTES_MAX} bytes or more",
        .0.display()
    )]
    TooLong(PathBuf),
    #[error("{} has no certificate in PEM form (-----BEGIN CERTIFICATE-----)", .0.display())]
    NoCertificate(PathBuf),
    #[error(
        "{} has no private key in PEM form (-----BEGIN PRIVATE KEY-----) without a passphrase; `openssl pkey -in FILE` prints one",
        .0.display()
    )]
    NoKey(PathBuf),
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error(
        "{} isn't the private key of the certificate in {}",
        key.display(),
        certificate.display()
    )]
    OtherKey { key: PathBuf, certificate: PathBuf },
    #[error("the certificate in {} has expired, {} ago; renew it", path.display(), roughly(*since))]
    Expired { path: PathBuf, since: Duration },
    #[error(
        "the certificate in {} isn't valid yet, only in {}; if it should be, set this machine's clock",
        path.display(), roughly(*until)
    )]
    NotYetValid { path: PathBuf, until: Duration },
    #[error(
        "the certificate in {} isn't for servers: its extended key usage lacks serverAuth",
        .0.display()
    )]
    NotForServers(PathBuf),
    #[error("the certificate in {} can't be used: {why}", path.display())]
    Refused { path: PathBuf, why: String },
}

/// A time as a person would say it.
fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    match () {
        () if seconds >= 2 * 86_400 => format!("{} days", seconds / 86_400),
        () if seconds >= 2 * 3600 => format!("{} hours", seconds / 3600),
        () => format!("{} minutes", seconds.div_ceil(60)),
    }
}

/// The certificates in force.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    loaded: RwLock<Loaded>,
}

/// What was read of the files.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the first certificate of the chain expires.
    expires: UnixTime,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let loaded = RwLock::new(files.load(UnixTime::now())?);
        Ok(Tls { files, loaded })
    }

    /// Reads the files again. New connections get what is in them now, those that are open keep
    /// what they have.
    ///
    /// # Errors
    /// What is wrong with which file. What was read before stays in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = self.files.load(UnixTime::now())?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// When the certificate, or one that leads to its CA, expires: seconds since the Unix epoch.
    pub fn expires_unix_s(&self) -> u64 {
        self.loaded().expires.as_secs()
    }

    /// The gateway's end of a new connection.
    pub(crate) fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        let mut connection = ServerConnection::new(self.loaded().config)?;
        connection.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Ok(connection)
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TlsFiles {
    fn load(&self, now: UnixTime) -> Result<Loaded, TlsError> {
        let path = &self.certificate;
        let chain = certificates(path)?;
        let key = private_key(&self.key)?;
        let mut expires = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
        for certificate in &chain {
            expires = expires.min(check_time(certificate, path, now)?);
        }
        check_usage(&chain[0], path, now)?;
        let refused = |why: String| TlsError::Refused { path: path.clone(), why };
        let provider = Arc::new(ring::default_provider());
        let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(error.to_string()))?;
        let clients = match &self.client_ca {
            None => versions.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let damaged = |why: String| TlsError::Damaged { path: path.clone(), why };
                versions.with_client_cert_verifier(
                    verifier.map_err(|error| damaged(error.to_string()))?,
                )
            }
        };
        let config = clients.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::OtherKey { key: self.key.clone(), certificate: path.clone() }
            }
            other => refused(other.to_string()),
        })?;
        Ok(Loaded { config: Arc::new(config), expires })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| TlsError::Unreadable { path: path.to_owned(), error })?;
    match bytes.len() as u64 {
        FILE_BYTES_MAX => Err(TlsError::TooLong(path.to_owned())),
        _ => Ok(bytes),
    }
}

fn damaged(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::Damaged { path: path.to_owned(), why: error.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(none) if none.is_empty() => Err(TlsError::NoCertificate(path.to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(damaged(path, &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey(path.to_owned()),
        error => damaged(path, &error),
    })
}

/// The CAs that issue certificates to clients.
fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Damaged { path: path.to_owned(), why: error.to_string() })?;
    }
    Ok(roots)
}

/// Accepts every extended key usage.
struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

/// What is wrong with a certificate by itself, before its issuer is looked for: the error after
/// that is of the path to a CA, which is the clients' to judge.
fn objection(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
    usage: impl ExtendedKeyUsageValidator,
) -> Option<webpki::Error> {
    let parsed = EndEntityCert::try_from(certificate);
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    parsed
        .and_then(|parsed| {
            parsed.verify_for_usage(algorithms, &[], &[], now, usage, None, None).map(drop)
        })
        .err()
}

/// Whether a certificate is valid at this time; until when it is.
fn check_time(
    certificate: &CertificateDer<'_>,
    path: &Path,
    now: UnixTime,
) -> Result<UnixTime, TlsError> {
    let path = path.to_owned();
    let between = |from: UnixTime, to: UnixTime| {
        Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()))
    };
    match objection(certificate, now, AnyUsage) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            return Err(TlsError::Expired { path, since: between(not_after, now) });
        }
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
            return Err(TlsError::NotYetValid { path, until: between(now, not_before) });
        }
        Some(error @ (webpki::Error::BadDer | webpki::Error::InvalidCertValidity)) => {
            return Err(TlsError::Refused { path, why: error.to_string() });
        }
        _ => {}
    }
    // At the end of time it tells when it expires.
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    Ok(match objection(certificate, never, AnyUsage) {
        Some(webpki::Error::CertExpired { not_after, .. }) => not_after,
        _ => never,
    })
}

/// Whether a certificate is for servers.
fn check_usage(
    certificate: &CertificateDer<'_>,
    path: &Path,
    now: UnixTime,
) -> Result<(), TlsError> {
    match objection(certificate, now, KeyUsage::server_auth()) {
        Some(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            Err(TlsError::NotForServers(path.to_owned()))
        }
        _ => Ok(()),
    }
}
