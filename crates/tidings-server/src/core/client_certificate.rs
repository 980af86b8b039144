//! Certificates of clients: the common name is the user, the organisations are the groups.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use tidings_access::User;
use tidings_config::FollowedFile;
use x509_parser::der_parser::oid;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::credentials_error::CredentialsError;

/// The attribute of a subject that is the uid of the user, as in kube-apiserver.
const USER_ID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// What is known of a user by a certificate: which one it was.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The authorities whose certificates are believed.
pub(super) struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthority {
    /// Reads authorities in PEM.
    pub(super) fn parse(
        path: &Path,
        pem: std::io::Result<&[u8]>,
    ) -> Result<ClientAuthority, CredentialsError> {
        let wrong = |why: String| CredentialsError::Certificates {
            path: path.to_owned(),
            why,
        };
        let pem = CredentialsError::readable(path, pem)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("there is no certificate in it".into()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|error| wrong(error.to_string()))?;
        Ok(ClientAuthority { verifier })
    }

    /// The user of a chain of certificates. `None` if it is not believed.
    fn user(&self, chain: &[CertificateDer<'_>]) -> Option<CertificateUser> {
        let (own, others) = chain.split_first()?;
        let verified = self
            .verifier
            .verify_client_cert(own, others, UnixTime::now());
        verified.ok()?;
        let (_, certificate) = X509Certificate::from_der(own).ok()?;
        let subject = certificate.subject();
        // As in Go, the last of several names counts.
        let name = subject.iter_common_name().last()?.as_str().ok()?;
        if name.is_empty() {
            return None;
        }
        let mut uids = subject.iter_by_oid(&USER_ID);
        let uid = match (uids.next(), uids.next()) {
            (None, _) => "",
            (Some(uid), None) => uid.as_str().ok()?,
            (Some(_), Some(_)) => return None,
        };
        let groups = subject.iter_organization();
        let groups = groups.filter_map(|group| group.as_str().ok());
        let digest = ring::digest::digest(&ring::digest::SHA256, own);
        let digest: String = digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let user = User {
            name: name.to_owned(),
            uid: uid.to_owned(),
            groups: groups.map(ToOwned::to_owned).collect(),
            extra: [(
                CREDENTIAL_ID.to_owned(),
                vec![format!("X509SHA256={digest}")],
            )]
            .into(),
        };
        let until = certificate.validity().not_after.timestamp();
        let until = u64::try_from(until).unwrap_or_default();
        Some(CertificateUser {
            user: Arc::new(user.authenticated()),
            until: SystemTime::UNIX_EPOCH + Duration::from_secs(until),
        })
    }
}

/// The user of a certificate, as long as that is valid.
#[derive(Debug)]
struct CertificateUser {
    user: Arc<User>,
    until: SystemTime,
}

/// What the client of a connection has shown in the handshake. Clones share it.
#[derive(Clone)]
pub(crate) struct ShownCertificate(Arc<ShownChain>);

struct ShownChain {
    authorities: Arc<FollowedFile<ClientAuthority, CredentialsError>>,
    chain: Vec<CertificateDer<'static>>,
    /// The user, by the authorities that were believed when it was last looked at.
    checked: Mutex<Option<(Arc<ClientAuthority>, Option<CertificateUser>)>>,
}

impl ShownCertificate {
    pub(super) fn new(
        authorities: &Arc<FollowedFile<ClientAuthority, CredentialsError>>,
        chain: &[CertificateDer<'_>],
    ) -> ShownCertificate {
        let owned = chain
            .iter()
            .map(|certificate| certificate.clone().into_owned());
        ShownCertificate(Arc::new(ShownChain {
            authorities: authorities.clone(),
            chain: owned.collect(),
            checked: Mutex::default(),
        }))
    }

    /// The user; `None` if the certificate is not believed, or not any more.
    pub(super) fn user(&self) -> Option<Arc<User>> {
        let current = self.0.authorities.current();
        let checked = self.0.checked.lock();
        let mut checked = checked.unwrap_or_else(PoisonError::into_inner);
        let known = match checked.take() {
            Some((by, known)) if Arc::ptr_eq(&by, &current) => known,
            _ => current.user(&self.0.chain),
        };
        let (_, known) = checked.insert((current, known));
        let known = known
            .as_ref()
            .filter(|known| SystemTime::now() <= known.until);
        known.map(|known| known.user.clone())
    }
}

/// Asks clients for a certificate and takes any in the handshake: whether it is believed is decided for requests, which are answered in words.
pub(super) struct AnyCertificate(pub(super) Arc<FollowedFile<ClientAuthority, CredentialsError>>);

impl fmt::Debug for AnyCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyCertificate")
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verifier = self.0.current().verifier.clone();
        verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verifier = self.0.current().verifier.clone();
        verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.current().verifier.supported_verify_schemes()
    }
}
