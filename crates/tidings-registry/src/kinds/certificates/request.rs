//! What stands in a certificate request (PKCS #10): whether its signature is right, and for whom it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// A certificate request whose signature is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The request in DER.
    pub der: Vec<u8>,
    /// The organisations of its subject, which become groups.
    pub organizations: Vec<String>,
}

/// Reads the text of `spec.request`: a request in PEM, in base64.
///
/// # Errors
/// With what is wrong.
pub fn read_request(text: &str) -> Result<CertificateRequest, String> {
    let no_pem = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
    let pem = STANDARD.decode(text).map_err(|_| no_pem())?;
    let block = Pem::iter_from_buffer(&pem).next();
    let block = block.and_then(Result::ok).ok_or_else(no_pem)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(no_pem());
    }
    let (rest, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("the request cannot be read: {error}"))?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    request.verify_signature().map_err(|_| {
        "x509: the signature of the request is wrong, or of an unknown kind".to_owned()
    })?;
    let subject = &request.certification_request_info.subject;
    let organizations = subject.iter_organization();
    let organizations = organizations.filter_map(|name| name.as_str().ok());
    Ok(CertificateRequest {
        organizations: organizations.map(ToOwned::to_owned).collect(),
        der: block.contents,
    })
}

/// Checks the certificates of `status.certificate`: PEM, in base64.
///
/// # Errors
/// With what is wrong.
pub(super) fn check_certificates(text: &str) -> Result<(), String> {
    let none = || "must contain at least one CERTIFICATE PEM block".to_owned();
    let pem = STANDARD.decode(text).map_err(|_| none())?;
    if pem.is_empty() {
        return Ok(());
    }
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&pem) {
        let Ok(block) = block else { break };
        if block.label != "CERTIFICATE" {
            let label = tidings_go::quote(&block.label);
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {label}"
            ));
        }
        block
            .parse_x509()
            .map_err(|error| format!("a certificate cannot be read: {error}"))?;
        blocks += 1;
    }
    match blocks {
        0 => Err(none()),
        _ => Ok(()),
    }
}
