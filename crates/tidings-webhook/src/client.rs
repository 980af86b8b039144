//! Calls of one service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tidings_config::{ConfigError, ConfigFile};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use crate::dial::{Dial, Dialer};
use crate::failure::CallFailure;
use crate::kubeconfig::{Credential, Service};

/// The largest answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How many connections are kept for the next calls.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// How long a connection is kept for the next call.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How often a service may say that it is asked at another path.
const MOVES_MAX: usize = 10;
/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A service that is called. Clones share its connections.
#[derive(Clone)]
pub struct Webhook {
    client: Client<HttpsConnector<Dialer>, Full<Bytes>>,
    uri: Uri,
    credential: Arc<Credential>,
}

impl fmt::Debug for Webhook {
    /// Never shows the credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({})", self.uri)
    }
}

/// What a service has answered.
#[derive(Debug, Clone)]
pub struct WebhookAnswer {
    /// The code.
    pub code: u16,
    /// The body.
    pub body: Bytes,
    /// True if the body says that it is text.
    pub is_text: bool,
}

/// Why a service has not answered.
#[derive(Debug, thiserror::Error)]
#[error("{method} {uri}: {failure}")]
pub struct WebhookError {
    method: Method,
    uri: String,
    failure: CallFailure,
}

impl WebhookError {
    /// The error as a client in Go words it, which people search for.
    pub fn in_go(&self) -> String {
        let method = match self.method {
            Method::GET => "Get",
            _ => "Post",
        };
        let uri = tidings_go::quote(&self.uri);
        format!("{method} {uri}: {}", self.failure.in_go())
    }
}

impl Webhook {
    /// The service of the current context of a kubeconfig.
    ///
    /// # Errors
    /// With what is wrong in the file.
    pub fn from_kubeconfig(file: &ConfigFile) -> Result<Webhook, ConfigError> {
        let service = Service::read(file)?;
        let uri: Uri = service
            .url
            .parse()
            .map_err(|_| file.wrong("the server of its cluster is no URL"))?;
        let tls = tls(&service).map_err(|why| file.wrong(why))?;
        Ok(Webhook::new(
            uri,
            tls,
            service.server_name,
            service.credential,
            None,
        ))
    }

    /// A service at a URL, with the authorities that its certificate may be from; those of the machine if none are given.
    ///
    /// # Errors
    /// If it is no URL, or an authority cannot be used.
    pub fn at(
        url: &str,
        authorities: Option<Vec<CertificateDer<'static>>>,
    ) -> Result<Webhook, String> {
        let service = Service {
            url: url.to_owned(),
            authorities,
            insecure: false,
            server_name: None,
            identity: None,
            credential: Credential::None,
        };
        let uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
        Ok(Webhook::new(
            uri,
            tls(&service)?,
            None,
            Credential::None,
            None,
        ))
    }

    /// A service at a URL, with authorities in PEM, those of the machine if there are none. It is reached where `dial` says, if that is given.
    ///
    /// # Errors
    /// With Go's reason, if it is no URL or the authorities cannot be used.
    pub fn dialled(url: &str, authorities: &[u8], dial: Option<Dial>) -> Result<Webhook, String> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(authorities)
            .filter_map(Result::ok)
            .collect();
        if found.is_empty() && !authorities.is_empty() {
            let why = "unable to load root certificates: unable to parse bytes as PEM block";
            return Err(why.to_owned());
        }
        let service = Service {
            url: url.to_owned(),
            authorities: (!authorities.is_empty()).then_some(found),
            insecure: false,
            server_name: None,
            identity: None,
            credential: Credential::None,
        };
        let uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
        let tls =
            tls(&service).map_err(|why| format!("unable to load root certificates: {why}"))?;
        Ok(Webhook::new(uri, tls, None, Credential::None, dial))
    }

    fn new(
        uri: Uri,
        tls: ClientConfig,
        server_name: Option<String>,
        credential: Credential,
        dial: Option<Dial>,
    ) -> Webhook {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        let named = server_name.and_then(|name| ServerName::try_from(name).ok());
        let builder = match named {
            Some(name) => {
                builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
            }
            None => builder,
        };
        let connector = builder
            .enable_all_versions()
            .wrap_connector(Dialer { http, dial });
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Webhook {
            client,
            uri,
            credential: Arc::new(credential),
        }
    }

    /// Sends a document in JSON, and returns the answer. May be dropped; the service may then have got it or not.
    ///
    /// # Errors
    /// If there is no answer within the deadline, or a longer one than may be.
    pub async fn post(
        &self,
        json: Bytes,
        deadline: Duration,
    ) -> Result<WebhookAnswer, WebhookError> {
        self.call(Method::POST, self.uri.clone(), json, deadline)
            .await
    }

    /// Reads a document of the same service at another path, as `/keys`.
    ///
    /// # Errors
    /// As [`Webhook::post`].
    pub async fn get(&self, uri: Uri, deadline: Duration) -> Result<WebhookAnswer, WebhookError> {
        self.call(Method::GET, uri, Bytes::new(), deadline).await
    }

    async fn call(
        &self,
        method: Method,
        uri: Uri,
        body: Bytes,
        deadline: Duration,
    ) -> Result<WebhookAnswer, WebhookError> {
        let wrong = |failure: CallFailure| WebhookError {
            method: method.clone(),
            uri: uri.to_string(),
            failure,
        };
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(ACCEPT, json.clone());
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("tidings/", env!("CARGO_PKG_VERSION"))),
        );
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, json);
        }
        if let Some(mut shown) = self
            .credential
            .header()
            .await
            .map_err(|why| wrong(CallFailure::Other(why)))?
        {
            shown.set_sensitive(true);
            headers.insert(AUTHORIZATION, shown);
        }
        let answered = async {
            let (mut at, mut moves) = (uri.clone(), 0);
            let response = loop {
                let mut request = Request::new(Full::new(body.clone()));
                *request.method_mut() = method.clone();
                *request.uri_mut() = at.clone();
                request.headers_mut().clone_from(&headers);
                let response = self.client.request(request).await;
                let response = response.map_err(|error| wrong(CallFailure::of(&error, &uri)))?;
                match moved(&response, &at) {
                    Some(next) if moves < MOVES_MAX => (at, moves) = (next, moves + 1),
                    _ => break response,
                }
            };
            let code = response.status().as_u16();
            let kind = response.headers().get(CONTENT_TYPE);
            let is_text = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/"));
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await;
            let body = body
                .map_err(|error| wrong(CallFailure::of(&*error, &uri)))?
                .to_bytes();
            Ok(WebhookAnswer {
                code,
                body,
                is_text,
            })
        };
        let answered = tokio::time::timeout(deadline, answered).await;
        answered.unwrap_or_else(|_| Err(wrong(CallFailure::TimedOut(deadline))))
    }
}

/// Where the service says that it is asked, if that is at another path of it, by the same request. Programs whose path is written with two slashes
/// answer so.
fn moved<B>(response: &Response<B>, at: &Uri) -> Option<Uri> {
    let is_same_request = matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let said = response
        .headers()
        .get(LOCATION)
        .filter(|_| is_same_request)?;
    let said: Uri = said.to_str().ok()?.parse().ok()?;
    let origin = |uri: &Uri| (uri.scheme().cloned(), uri.authority().cloned());
    if said.authority().is_some() && origin(&said) != origin(at) {
        return None; // another service is not trusted with what this one is asked
    }
    let mut parts = at.clone().into_parts();
    parts.path_and_query = said.into_parts().path_and_query;
    Uri::from_parts(parts).ok()
}

impl Credential {
    async fn header(&self) -> Result<Option<HeaderValue>, String> {
        let text = match self {
            Credential::None => return Ok(None),
            Credential::Token(token) => format!("Bearer {token}"),
            Credential::TokenFile(path) => {
                let file = path.clone();
                let read = tokio::task::spawn_blocking(|| std::fs::read_to_string(file)).await;
                let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                let token =
                    read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                format!("Bearer {}", token.trim())
            }
            Credential::Basic(name, password) => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
        };
        let header = HeaderValue::from_str(&text);
        header.map(Some).map_err(|_| {
            "the credential cannot be sent: it has a line break or another control character"
                .to_owned()
        })
    }
}

fn tls(service: &Service) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = if service.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(BelievesAll(provider)))
    } else {
        let roots = Arc::new(roots(service)?);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| error.to_string())?;
        let known = service.authorities.clone().unwrap_or_default();
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(BelievesKnown { inner, known }))
    };
    let config = match &service.identity {
        Some((certificates, key)) => builder
            .with_client_auth_cert(certificates.clone(), key.clone_key())
            .map_err(|error| format!("the client's certificate cannot be used: {error}"))?,
        None => builder.with_no_client_auth(),
    };
    Ok(config)
}

fn roots(service: &Service) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(authorities) = &service.authorities else {
        // What cannot be read is left out: another authority may be the right one.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| format!("the certificate authority cannot be used: {error}"))?;
    }
    Ok(roots)
}

/// Believes certificates of the authorities, and, as clients in Go do, one that stands among the authorities itself: people make such certificates
/// with one command.
#[derive(Debug)]
struct BelievesKnown {
    inner: Arc<WebPkiServerVerifier>,
    known: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for BelievesKnown {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.known.iter().any(|known| known == shown) {
            let Self { inner, .. } = self;
            return inner.verify_server_cert(shown, others, name, ocsp, now);
        }
        let (_, parsed) = X509Certificate::from_der(shown)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let now = ASN1Time::from_timestamp(seconds)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::Expired))?;
        if !parsed.validity().is_valid_at(now) {
            return Err(rustls::Error::InvalidCertificate(CertificateError::Expired));
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// For `insecure-skip-tls-verify`.
#[derive(Debug)]
struct BelievesAll(Arc<CryptoProvider>);

impl ServerCertVerifier for BelievesAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
