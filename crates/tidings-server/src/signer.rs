//! Signs the certificates that clients ask for, with an authority of two files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::SignatureScheme;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, PrivateKeyDer, alg_id};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, construct_der};

/// How long before it is signed a certificate is valid: clocks may be slow.
const VALID_BEFORE: Duration = Duration::from_secs(5 * 60);
/// The shortest life of a certificate.
const LIFE_MIN: Duration = Duration::from_secs(10 * 60);
/// The life from which on a certificate ends so much earlier as it begins.
const LONG_LIFE_MIN: Duration = Duration::from_secs(8 * 3600);

/// The ways to sign, and how they are named in certificates.
const SCHEMES: [(SignatureScheme, AlgorithmIdentifier); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::ED25519, alg_id::ED25519),
];

/// Why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct SignerError {
    path: PathBuf,
    why: String,
}

/// Signs certificates by which clients tell the server who they are (`kubernetes.io/kube-apiserver-client`).
#[derive(Clone)]
pub struct ClientSigner {
    authority: CertificateDer<'static>,
    key: Arc<dyn SigningKey>,
    life_max: Duration,
}

impl fmt::Debug for ClientSigner {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSigner")
    }
}

impl ClientSigner {
    /// An authority of two files in PEM. Certificates live no longer than `life_max`.
    ///
    /// # Errors
    /// If the files cannot be read or do not fit each other.
    pub fn open(
        certificate: &Path,
        key: &Path,
        life_max: Duration,
    ) -> Result<ClientSigner, SignerError> {
        let wrong = |path: &Path, why: String| SignerError {
            path: path.to_owned(),
            why,
        };
        let read = |path: &Path| {
            let read = std::fs::read(path);
            read.map_err(|error| wrong(path, format!("it cannot be read: {error}")))
        };
        let authority = CertificateDer::from_pem_slice(&read(certificate)?)
            .map_err(|_| wrong(certificate, "there is no certificate in it".to_owned()))?;
        let der = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_| wrong(key, "there is no private key in it".to_owned()))?;
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(vec![authority.clone()], der, &provider);
        let pair = pair.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let why = format!("its key is not the one in {}", key.display());
                wrong(certificate, why)
            }
            error => wrong(key, format!("the key cannot be used: {error}")),
        })?;
        let parsed = X509Certificate::from_der(&authority);
        let is_ca = parsed.is_ok_and(|(_, parsed)| parsed.is_ca());
        if !is_ca {
            let why = "its certificate is not that of an authority: make one with CA:TRUE";
            return Err(wrong(certificate, why.to_owned()));
        }
        Ok(ClientSigner {
            authority,
            key: pair.key.clone(),
            life_max,
        })
    }

    /// Signs a request in DER, and returns the certificate in PEM.
    ///
    /// # Errors
    /// With what cannot be signed.
    pub(crate) fn sign(
        &self,
        request: &[u8],
        usages: &[String],
        asked_for: Option<Duration>,
        now: SystemTime,
    ) -> Result<String, String> {
        check_usages(usages)?;
        let (_, authority) = X509Certificate::from_der(&self.authority)
            .map_err(|error| format!("the authority cannot be read: {error}"))?;
        let (_, request) = X509CertificationRequest::from_der(request)
            .map_err(|error| format!("the request cannot be read: {error}"))?;
        let ends = authority.validity().not_after.timestamp();
        let ends = Timestamp::from_second(ends).map_err(|error| error.to_string())?;
        let now = Timestamp::try_from(now).map_err(|error| error.to_string())?;
        if now >= ends {
            return Err(format!("the signer has expired: NotAfter={ends}"));
        }
        let life = asked_for
            .unwrap_or(self.life_max)
            .min(self.life_max)
            .max(LIFE_MIN);
        let span = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let from = now - span(VALID_BEFORE);
        let until = match life < LONG_LIFE_MIN {
            true => now + span(life),
            false => now + span(life - VALID_BEFORE),
        };
        let offered: Vec<SignatureScheme> = SCHEMES.iter().map(|(scheme, _)| *scheme).collect();
        let signer = self.key.choose_scheme(&offered);
        let signer = signer.ok_or("the key of the authority is of a kind that cannot sign here")?;
        let algorithm = SCHEMES
            .iter()
            .find(|(scheme, _)| *scheme == signer.scheme());
        let (_, algorithm) =
            algorithm.ok_or("the key of the authority is of a kind that cannot sign here")?;
        let mut serial = [0; 16];
        let filled = SystemRandom::new().fill(&mut serial);
        filled.map_err(|_| "the operating system gives no random numbers")?;
        let certified = CertifiedContent {
            serial,
            algorithm,
            issuer: authority.subject().as_raw(),
            from,
            until: until.min(ends),
            subject: request.certification_request_info.subject.as_raw(),
            key: request.certification_request_info.subject_pki.raw,
            usages,
            key_of_issuer: key_identifier(&authority),
            other_names: other_names(&request),
        };
        let content = construct_der(|writer| certified.write(writer));
        let signature = signer.sign(&content).map_err(|error| error.to_string())?;
        let certificate = construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&content);
                write_algorithm(writer.next(), algorithm);
                writer
                    .next()
                    .write_bitvec_bytes(&signature, signature.len() * 8);
            });
        });
        Ok(pem(&certificate))
    }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Refuses usages that a certificate of a client has not.
fn check_usages(usages: &[String]) -> Result<(), String> {
    let mut is_client = false;
    for usage in usages {
        match usage.as_str() {
            "digital signature" | "key encipherment" => {}
            "client auth" => is_client = true,
            other => return Err(format!("invalid usage for client certificate: {other}")),
        }
    }
    match is_client {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

/// By what the key of an authority is named in the certificates that it signs.
fn key_identifier<'a>(authority: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    authority
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        })
}

/// The other names that a request asks for, as they stand in it.
fn other_names<'a>(request: &'a X509CertificationRequest<'_>) -> Option<&'a [u8]> {
    let attributes = request.certification_request_info.iter_attributes();
    let extensions = attributes.filter_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(asked) => Some(&asked.extensions),
        _ => None,
    });
    extensions
        .flatten()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(_) => Some(extension.value),
            _ => None,
        })
}

/// What a signature of an authority says.
struct CertifiedContent<'a> {
    serial: [u8; 16],
    algorithm: &'a AlgorithmIdentifier,
    /// Names and keys are in DER, as they stand in the authority and the request.
    issuer: &'a [u8],
    from: Timestamp,
    until: Timestamp,
    subject: &'a [u8],
    key: &'a [u8],
    usages: &'a [String],
    key_of_issuer: Option<&'a [u8]>,
    other_names: Option<&'a [u8]>,
}

const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const OTHER_NAMES: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const KEY_OF_ISSUER: &[u64] = &[2, 5, 29, 35];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
const CLIENT_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];

fn id(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

fn write_algorithm(writer: DERWriter<'_>, algorithm: &AlgorithmIdentifier) {
    // What rustls has is the content of the sequence.
    let mut sequence = vec![0x30, algorithm.as_ref().len() as u8];
    sequence.extend_from_slice(algorithm.as_ref());
    writer.write_der(&sequence);
}

fn write_time(writer: DERWriter<'_>, time: Timestamp) {
    let text = time.strftime("%Y%m%d%H%M%SZ").to_string();
    // Years from 2050 on have four digits (RFC 5280).
    match text.as_str() < "2050" {
        true => writer.write_tagged_implicit(
            Tag {
                tag_class: yasna::TagClass::Universal,
                tag_number: 23,
            },
            |writer| {
                writer.write_bytes(&text.as_bytes()[2..]);
            },
        ),
        false => writer.write_tagged_implicit(
            Tag {
                tag_class: yasna::TagClass::Universal,
                tag_number: 24,
            },
            |writer| {
                writer.write_bytes(text.as_bytes());
            },
        ),
    }
}

impl CertifiedContent<'_> {
    fn write(&self, writer: DERWriter<'_>) {
        writer.write_sequence(|writer| {
            writer
                .next()
                .write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&self.serial, true);
            write_algorithm(writer.next(), self.algorithm);
            writer.next().write_der(self.issuer);
            writer.next().write_sequence(|writer| {
                write_time(writer.next(), self.from);
                write_time(writer.next(), self.until);
            });
            writer.next().write_der(self.subject);
            writer.next().write_der(self.key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    let mut extension = |numbers: &[u64], is_critical: bool, value: &[u8]| {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_oid(&id(numbers));
                            if is_critical {
                                writer.next().write_bool(true);
                            }
                            writer.next().write_bytes(value);
                        });
                    };
                    if let Some(usage) = self.key_usage() {
                        extension(KEY_USAGE, true, &usage);
                    }
                    extension(
                        EXTENDED_KEY_USAGE,
                        false,
                        &construct_der(|writer| {
                            writer
                                .write_sequence(|writer| writer.next().write_oid(&id(CLIENT_AUTH)));
                        }),
                    );
                    extension(
                        BASIC_CONSTRAINTS,
                        true,
                        &construct_der(|writer| writer.write_sequence(|_| {})),
                    );
                    if let Some(key) = self.key_of_issuer {
                        extension(
                            KEY_OF_ISSUER,
                            false,
                            &construct_der(|writer| {
                                writer.write_sequence(|writer| {
                                    writer
                                        .next()
                                        .write_tagged_implicit(Tag::context(0), |writer| {
                                            writer.write_bytes(key)
                                        });
                                });
                            }),
                        );
                    }
                    if let Some(names) = self.other_names {
                        extension(OTHER_NAMES, false, names);
                    }
                });
            });
        });
    }

    /// The first bit is for signatures, the third for encrypted keys. Without either there is no such extension.
    fn key_usage(&self) -> Option<Vec<u8>> {
        let has = |usage: &str| self.usages.iter().any(|known| known == usage);
        let (signs, enciphers) = (has("digital signature"), has("key encipherment"));
        let bits = u8::from(signs) << 7 | u8::from(enciphers) << 5;
        let length = match (signs, enciphers) {
            (false, false) => return None,
            (true, false) => 1,
            (_, true) => 3,
        };
        Some(construct_der(|writer| {
            writer.write_bitvec_bytes(&[bits], length);
        }))
    }
}
