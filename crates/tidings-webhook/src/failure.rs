//! Why a call has failed, in our words and in those of a client in Go.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::Uri;
use rustls::CertificateError;

use crate::dial::NotDialled;

/// Why a call has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// Nobody listens there.
    Refused {
        at: String,
        text: String,
    },
    /// The name has no address.
    Unknown {
        host: String,
        text: String,
    },
    /// There is no place to connect to.
    Nowhere(String),
    /// No answer came in time.
    TimedOut(Duration),
    /// The certificate is not believed.
    Certificate {
        why: String,
        text: String,
    },
    /// The connection ended before the answer.
    Ended {
        text: String,
    },
    Other(String),
}

/// An error and those behind it.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let next = |error: &&'e (dyn Error + 'static)| -> Option<&'e (dyn Error + 'static)> {
        let error: &'e (dyn Error + 'static) = *error;
        // The error inside of an I/O error is not its source.
        match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    };
    std::iter::successors(Some(error), next)
}

/// What an error and the errors behind it say.
fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in chain(error) {
        let more = error.to_string();
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

impl CallFailure {
    pub(crate) fn of(error: &(dyn Error + 'static), uri: &Uri) -> CallFailure {
        let text = told(error);
        for error in chain(error) {
            if let Some(NotDialled(why)) = error.downcast_ref() {
                return CallFailure::Nowhere(why.clone());
            }
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                let why = certificate(error, uri);
                return match why {
                    Some(why) => CallFailure::Certificate { why, text },
                    None => CallFailure::Other(text),
                };
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                match error.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        let host = uri.host().unwrap_or_default();
                        let port = uri.port_u16().unwrap_or(443);
                        let at = format!("{host}:{port}");
                        return CallFailure::Refused { at, text };
                    }
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        return CallFailure::Ended { text };
                    }
                    _ => {}
                }
            }
        }
        if text.contains("failed to lookup address") || text.contains("dns error") {
            let host = uri.host().unwrap_or_default().to_owned();
            return CallFailure::Unknown { host, text };
        }
        if text.contains("connection closed before") || text.contains("IncompleteMessage") {
            return CallFailure::Ended { text };
        }
        CallFailure::Other(text)
    }

    /// The failure in Go's words.
    pub(crate) fn in_go(&self) -> String {
        match self {
            CallFailure::Refused { at, .. } => {
                format!("dial tcp {at}: connect: connection refused")
            }
            CallFailure::Unknown { host, .. } => format!("dial tcp: lookup {host}: no such host"),
            CallFailure::TimedOut(_) => "context deadline exceeded".to_owned(),
            CallFailure::Certificate { why, .. } => {
                format!("tls: failed to verify certificate: x509: {why}")
            }
            CallFailure::Ended { .. } => "EOF".to_owned(),
            CallFailure::Nowhere(text) | CallFailure::Other(text) => text.clone(),
        }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallFailure::TimedOut(deadline) => {
                write!(f, "no answer within {} s", deadline.as_secs_f64())
            }
            CallFailure::Refused { text, .. }
            | CallFailure::Unknown { text, .. }
            | CallFailure::Certificate { text, .. }
            | CallFailure::Ended { text }
            | CallFailure::Nowhere(text)
            | CallFailure::Other(text) => f.write_str(text),
        }
    }
}

const UNKNOWN: &str = "certificate signed by unknown authority";

/// Why a certificate is not believed, in Go's words.
fn certificate(error: &rustls::Error, uri: &Uri) -> Option<String> {
    let rustls::Error::InvalidCertificate(error) = error else {
        return None;
    };
    Some(match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => UNKNOWN.to_owned(),
        // One that is an authority itself, but none that is known.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            UNKNOWN.to_owned()
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "certificate is valid for {}, not {}",
            presented.join(", "),
            uri.host().unwrap_or_default()
        ),
        CertificateError::NotValidForName => format!(
            "certificate is not valid for {}",
            uri.host().unwrap_or_default()
        ),
        other => other.to_string(),
    })
}
