//! The certificates that a listener shows: one made by the server's own authority, which renews itself, and those of files, which are followed.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SanType};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tidings_config::FollowedFile;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long a certificate that is made here is valid.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long before it was made it is valid: clocks of clients may be slow.
const VALID_BEFORE: Duration = Duration::from_secs(24 * 3600);
/// A certificate is made anew when it is valid for less than this.
const RENEW_BEFORE: Duration = Duration::from_secs(120 * 24 * 3600);
/// The name by which clients always get the server's own certificate, as kube-apiserver's own client does.
pub(crate) const OWN_NAME: &str = "apiserver-loopback-client";

/// The addresses and names for which the server's certificate is valid.
#[derive(Debug, Clone)]
pub struct ServerNames {
    /// The address that the server listens on.
    pub address: IpAddr,
    /// Other addresses and names: of the machine, or of a load balancer before it.
    pub others: Vec<String>,
}

/// Why certificates of files cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct ServingError {
    path: PathBuf,
    why: String,
}

impl ServingError {
    fn new(path: &Path, why: impl Into<String>) -> ServingError {
        ServingError {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Makes the server's own certificate, again before it expires.
pub(crate) struct OwnCertificate {
    issuer: Issuer<'static, KeyPair>,
    names: ServerNames,
    current: Mutex<Option<MadeCertificate>>,
}

struct MadeCertificate {
    key: Arc<CertifiedKey>,
    made: SystemTime,
    until: SystemTime,
}

impl OwnCertificate {
    pub(crate) fn new(issuer: Issuer<'static, KeyPair>, names: ServerNames) -> OwnCertificate {
        OwnCertificate {
            issuer,
            names,
            current: Mutex::new(None),
        }
    }

    /// The certificate at a time. A new one is made if there is none yet, it expires soon, or the clock was set back to before it was made.
    pub(crate) fn at(&self, now: SystemTime) -> Result<Arc<CertifiedKey>, String> {
        let current = self.current.lock();
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = current.as_ref() {
            let left = made.until.duration_since(now).unwrap_or_default();
            if left > RENEW_BEFORE && made.made <= now + VALID_BEFORE {
                return Ok(made.key.clone());
            }
            tracing::info!("the server's certificate is renewed");
        }
        let made = self.make(now)?;
        let key = made.key.clone();
        *current = Some(made);
        Ok(key)
    }

    fn make(&self, now: SystemTime) -> Result<MadeCertificate, String> {
        let told = |error: &dyn fmt::Display| error.to_string();
        let mut params = params(&self.names).map_err(|error| told(&error))?;
        let since = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            rcgen::date_time_ymd(1970, 1, 1) + since.unwrap_or_default()
        };
        params.not_before = since(now - VALID_BEFORE);
        params.not_after = since(now + LIFE);
        let key = KeyPair::generate().map_err(|error| told(&error))?;
        let certificate = params.signed_by(&key, &self.issuer);
        let certificate = certificate.map_err(|error| told(&error))?.der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| told(&error))?;
        let key = CertifiedKey::from_der(vec![certificate], key, &provider());
        Ok(MadeCertificate {
            key: Arc::new(key.map_err(|error| told(&error))?),
            made: now,
            until: now + LIFE,
        })
    }
}

fn params(names: &ServerNames) -> Result<CertificateParams, rcgen::Error> {
    let always = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        OWN_NAME,
    ];
    let mut all: Vec<String> = always.map(ToOwned::to_owned).to_vec();
    all.extend(names.others.iter().cloned());
    let mut params = CertificateParams::new(all)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "tidings");
    let loopback = [
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
    ];
    let other = Some(names.address).filter(|address| !address.is_loopback());
    for address in loopback.into_iter().chain(other) {
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    Ok(params)
}

/// A certificate and its key in files, which are read again when they change.
struct FilePair {
    certificate: FollowedFile<Vec<u8>, ServingError>,
    key: FollowedFile<Vec<u8>, ServingError>,
    current: RwLock<LoadedPair>,
}

#[derive(Clone)]
struct LoadedPair {
    key: Arc<CertifiedKey>,
    /// The names in the certificate.
    names: Vec<String>,
}

fn bytes(path: &Path, read: std::io::Result<&[u8]>) -> Result<Vec<u8>, ServingError> {
    let read = read.map_err(|error| ServingError::new(path, format!("it cannot be read: {error}")));
    read.map(<[u8]>::to_vec)
}

impl FilePair {
    fn open(certificate: &Path, key: &Path) -> Result<FilePair, ServingError> {
        let (certificate, key) = (
            FollowedFile::open(certificate, bytes)?,
            FollowedFile::open(key, bytes)?,
        );
        let loaded = load(&certificate, &key)?;
        Ok(FilePair {
            certificate,
            key,
            current: RwLock::new(loaded),
        })
    }

    fn current(&self) -> LoadedPair {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again if one has changed. While they do not fit each other, the pair before stays.
    fn follow(&self) {
        let (one, other) = (self.certificate.follow(), self.key.follow());
        if !one && !other {
            return;
        }
        match load(&self.certificate, &self.key) {
            Ok(loaded) => {
                let current = self.current.write();
                *current.unwrap_or_else(PoisonError::into_inner) = loaded;
            }
            Err(error) => {
                tracing::error!(%error, "a certificate of the server has changed and cannot be used: the one before stays");
            }
        }
    }
}

fn load(
    certificate: &FollowedFile<Vec<u8>, ServingError>,
    key: &FollowedFile<Vec<u8>, ServingError>,
) -> Result<LoadedPair, ServingError> {
    let wrong = |why: String| ServingError::new(certificate.path(), why);
    let pem = certificate.current();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| wrong(format!("it is not in PEM: {error}")))?;
    let Some(own) = chain.first() else {
        return Err(wrong("there is no certificate in it".to_owned()));
    };
    let (names, until) =
        read_names(own).ok_or_else(|| wrong("its certificate cannot be read".to_owned()))?;
    if until < SystemTime::now() {
        tracing::warn!(path = %certificate.path().display(), "the certificate of the server has expired: clients will refuse it");
    }
    let der = PrivateKeyDer::from_pem_slice(&key.current()).map_err(|_| {
        let why = "there is no private key in it: PEM with PKCS #8, PKCS #1 or SEC 1 is read";
        ServingError::new(key.path(), why)
    })?;
    let certified =
        CertifiedKey::from_der(chain, der, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => wrong(format!(
                "its key is not the one in {}",
                key.path().display()
            )),
            error => ServingError::new(key.path(), format!("the key cannot be used: {error}")),
        })?;
    Ok(LoadedPair {
        key: Arc::new(certified),
        names,
    })
}

/// The names in a certificate, and when it expires.
fn read_names(der: &CertificateDer<'_>) -> Option<(Vec<String>, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until);
    let others = certificate.subject_alternative_name().ok().flatten();
    let others = others.iter().flat_map(|names| &names.value.general_names);
    let others = others.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_lowercase()),
        _ => None,
    });
    Some((others.collect(), until))
}

/// A certificate for some names.
struct NamedPair {
    pair: FilePair,
    /// The names that it is shown for; those in the certificate if none are given.
    patterns: Vec<String>,
}

/// How well a pattern fits a name: `*.example.com` fits names with one label more.
fn fits(pattern: &str, name: &str) -> Option<NameFit> {
    if pattern == name {
        return Some(NameFit::Exact);
    }
    let suffix = pattern.strip_prefix("*.")?;
    let (label, rest) = name.split_once('.')?;
    (!label.is_empty() && rest == suffix).then_some(NameFit::Wildcard)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameFit {
    Wildcard,
    Exact,
}

/// The certificates of files that a listener shows instead of the server's own.
#[derive(Default)]
pub struct ServingCertificates {
    default: Option<FilePair>,
    named: Vec<NamedPair>,
}

impl fmt::Debug for ServingCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificates")
    }
}

impl ServingCertificates {
    /// Shows the certificate of a file in PEM to all clients.
    ///
    /// # Errors
    /// If the files cannot be read, or do not fit each other.
    pub fn pair(
        mut self,
        certificate: &Path,
        key: &Path,
    ) -> Result<ServingCertificates, ServingError> {
        self.default = Some(FilePair::open(certificate, key)?);
        Ok(self)
    }

    /// Shows the certificate of a file to clients that ask for one of these names, or for one of its names if none are given. `*.example.com` is
    /// a name too.
    ///
    /// # Errors
    /// As [`ServingCertificates::pair`].
    pub fn named_pair(
        mut self,
        certificate: &Path,
        key: &Path,
        names: &[String],
    ) -> Result<ServingCertificates, ServingError> {
        self.named.push(NamedPair {
            pair: FilePair::open(certificate, key)?,
            patterns: names.iter().map(|name| name.to_lowercase()).collect(),
        });
        Ok(self)
    }

    /// True if no file is named.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.named.is_empty()
    }

    /// Reads files again that have changed. Blocks.
    pub fn follow(&self) {
        let named = self.named.iter().map(|named| &named.pair);
        self.default.iter().chain(named).for_each(FilePair::follow);
    }

    /// The certificate for a name, or for clients that name none. `None`: the server's own.
    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        if name == Some(OWN_NAME) {
            return None;
        }
        let default = || self.default.as_ref().map(|pair| pair.current().key);
        let Some(name) = name else { return default() };
        let fit = |named: &NamedPair| {
            let loaded = named.pair.current();
            let is_given = !named.patterns.is_empty();
            let patterns = match is_given {
                true => &named.patterns,
                false => &loaded.names,
            };
            let best = patterns
                .iter()
                .filter_map(|pattern| fits(pattern, name))
                .max()?;
            // As in kube-apiserver: an exact name counts more than a wildcard, and a given one more than one in a certificate.
            Some(((best, is_given), loaded.key))
        };
        let mut best: Option<((NameFit, bool), Arc<CertifiedKey>)> = None;
        for found in self.named.iter().filter_map(fit) {
            if best.as_ref().is_none_or(|(fit, _)| found.0 > *fit) {
                best = Some(found);
            }
        }
        best.map(|(_, key)| key).or_else(default)
    }
}

/// Chooses the certificate of a handshake.
pub(crate) struct CertificateChoice {
    pub(crate) own: OwnCertificate,
    pub(crate) files: Arc<ServingCertificates>,
}

impl fmt::Debug for CertificateChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateChoice")
    }
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.files.find(hello.server_name());
        found.or_else(|| match self.own.at(SystemTime::now()) {
            Ok(own) => Some(own),
            Err(error) => {
                tracing::error!(%error, "the server's certificate cannot be made");
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn issuer() -> Issuer<'static, KeyPair> {
        let key = KeyPair::generate().unwrap();
        Issuer::new(CertificateParams::default(), key)
    }

    fn names() -> ServerNames {
        ServerNames {
            address: [127, 0, 0, 1].into(),
            others: vec!["tidings.example.com".to_owned()],
        }
    }

    #[test]
    fn an_own_certificate_lives_a_year_and_is_renewed_before() {
        let own = OwnCertificate::new(issuer(), names());
        let day = Duration::from_secs(24 * 3600);
        let start = SystemTime::now();
        let first = own.at(start).unwrap();
        let (names, until) = read_names(&first.cert[0]).unwrap();
        assert!(
            names.contains(&"tidings.example.com".to_owned()),
            "{names:?}"
        );
        let life = until.duration_since(start).unwrap();
        assert!(life <= 365 * day && life > 364 * day, "{life:?}");
        assert!(Arc::ptr_eq(&first, &own.at(start + 244 * day).unwrap()));
        let second = own.at(start + 246 * day).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        // A clock that was wrong when it was made: nobody would believe it for months.
        let third = own.at(start).unwrap();
        assert!(!Arc::ptr_eq(&second, &third));
        assert!(Arc::ptr_eq(&third, &own.at(start).unwrap()));
    }

    fn write_pair(directory: &Path, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let paths = (
            directory.join(format!("{file}.crt")),
            directory.join(format!("{file}.key")),
        );
        fs::write(&paths.0, certificate.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    #[test]
    fn the_name_chooses_the_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let pair = |file, names: &[&str]| write_pair(directory.path(), file, names);
        let own = ServingCertificates::default();
        assert!(own.is_empty() && own.find(Some("a.example.com")).is_none());
        let default = pair("default", &["default.example.com"]);
        let wild = pair("wild", &["*.example.com"]);
        let exact = pair("exact", &["a.example.com"]);
        let given = pair("given", &["unused.example.com"]);
        let files = own
            .pair(&default.0, &default.1)
            .and_then(|files| files.named_pair(&wild.0, &wild.1, &[]))
            .and_then(|files| files.named_pair(&exact.0, &exact.1, &[]))
            .and_then(|files| {
                files.named_pair(
                    &given.0,
                    &given.1,
                    &["*.b.example.com".into(), "c.example.com".into()],
                )
            })
            .unwrap();
        let shown = |name: Option<&str>| {
            let found = files.find(name)?;
            Some(read_names(&found.cert[0])?.0.remove(0))
        };
        for (name, expected) in [
            (None, Some("default.example.com")),
            (Some("other.org"), Some("default.example.com")),
            (Some("a.example.com"), Some("a.example.com")),
            (Some("x.example.com"), Some("*.example.com")),
            (Some("x.y.example.com"), Some("default.example.com")),
            (Some("x.b.example.com"), Some("unused.example.com")),
            (Some("c.example.com"), Some("unused.example.com")),
            (Some(OWN_NAME), None),
        ] {
            assert_eq!(shown(name).as_deref(), expected, "{name:?}");
        }
    }

    #[test]
    fn files_are_followed_and_a_wrong_pair_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let pair = |name: &str| write_pair(directory.path(), "pair", &[name]);
        let (certificate, key) = pair("one.example.com");
        let files = ServingCertificates::default()
            .pair(&certificate, &key)
            .unwrap();
        let shown = || {
            read_names(&files.find(None).unwrap().cert[0])
                .unwrap()
                .0
                .remove(0)
        };
        let old_key = fs::read(&key).unwrap();
        pair("two.example.com");
        let new_key = fs::read(&key).unwrap();
        fs::write(&key, &old_key).unwrap();
        files.follow();
        assert_eq!(shown(), "one.example.com");
        fs::write(&key, "nothing").unwrap();
        files.follow();
        assert_eq!(shown(), "one.example.com");
        fs::write(&key, &new_key).unwrap();
        files.follow();
        assert_eq!(shown(), "two.example.com");
        fs::remove_file(&certificate).unwrap();
        files.follow();
        assert_eq!(shown(), "two.example.com");
    }

    #[test]
    fn what_is_wrong_with_files_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = write_pair(directory.path(), "one", &["a"]);
        let (_, other) = write_pair(directory.path(), "two", &["a"]);
        let said = |certificate: &Path, key: &Path| {
            let error = ServingCertificates::default().pair(certificate, key);
            error.unwrap_err().to_string()
        };
        assert!(said(&certificate, &other).contains("one.crt: its key is not the one in"));
        assert!(
            said(&certificate, &certificate).contains("one.crt: there is no private key in it")
        );
        assert!(said(&key, &key).contains("one.key: there is no certificate in it"));
        assert!(said(Path::new("/nowhere"), &key).contains("/nowhere: it cannot be read"));
    }
}
