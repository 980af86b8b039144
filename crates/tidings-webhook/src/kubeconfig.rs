//! A kubeconfig: which service is called, whose certificates are believed, and what is shown.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use tidings_config::{Checked, ConfigError, ConfigFile};

/// What a kubeconfig says about the service of its current context.
pub(crate) struct Service {
    pub(crate) url: String,
    /// Whose certificates are believed; `None`: those that the machine believes.
    pub(crate) authorities: Option<Vec<CertificateDer<'static>>>,
    /// Believe every certificate.
    pub(crate) insecure: bool,
    /// The name in the certificate, if it is another than that of the URL.
    pub(crate) server_name: Option<String>,
    /// The certificate that is shown, and its key.
    pub(crate) identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(crate) credential: Credential,
}

/// What is shown in the header `Authorization`.
pub(crate) enum Credential {
    None,
    Token(String),
    /// A file with a token, which may change.
    TokenFile(PathBuf),
    Basic(String, String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kubeconfig {
    #[serde(rename = "apiVersion")]
    _version: Checked,
    #[serde(rename = "kind")]
    _kind: Checked,
    #[serde(rename = "preferences", default)]
    _preferences: Checked,
    #[serde(rename = "extensions", default)]
    _extensions: Checked,
    #[serde(default)]
    clusters: Vec<Named<NamedCluster>>,
    #[serde(default)]
    users: Vec<Named<NamedUser>>,
    #[serde(default)]
    contexts: Vec<Named<NamedContext>>,
    #[serde(rename = "current-context", default)]
    current: String,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    what: T,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Cluster {
    server: String,
    #[serde(default)]
    certificate_authority: String,
    #[serde(default)]
    certificate_authority_data: String,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    #[serde(default)]
    tls_server_name: String,
    #[serde(rename = "extensions", default)]
    _extensions: Checked,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct User {
    #[serde(default)]
    client_certificate: String,
    #[serde(default)]
    client_certificate_data: String,
    #[serde(default)]
    client_key: String,
    #[serde(default)]
    client_key_data: String,
    #[serde(default)]
    token: String,
    #[serde(rename = "tokenFile", default)]
    token_file: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(rename = "extensions", default)]
    _extensions: Checked,
}

impl Service {
    /// Reads the service of the current context.
    pub(crate) fn read(file: &ConfigFile) -> Result<Service, ConfigError> {
        let config: Kubeconfig = file.clone().secret().read("v1", "Config")?;
        let context = find(&config.contexts, &config.current);
        let context = context.ok_or_else(|| {
            file.wrong("its current-context is none of its contexts: set it, as `kubectl config use-context` does")
        })?;
        let context = &context.context;
        let cluster = find(&config.clusters, &context.cluster).ok_or_else(|| {
            file.wrong(format!(
                "the cluster {:?} of its current context is not there",
                context.cluster
            ))
        })?;
        let cluster = &cluster.cluster;
        let nobody = User::default();
        let user = match (context.user.as_str(), find(&config.users, &context.user)) {
            ("", _) => &nobody,
            (_, Some(named)) => &named.user,
            (name, None) => {
                return Err(file.wrong(format!(
                    "the user {name:?} of its current context is not there"
                )));
            }
        };
        if !cluster.server.starts_with("https://") && !cluster.server.starts_with("http://") {
            return Err(file.wrong("the server of its cluster is no URL that begins with https://"));
        }
        let authorities = part(
            file,
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )?;
        let authorities =
            authorities.map(|pem| certificates(file, &pem, "the certificate authority"));
        let certificate = part(
            file,
            &user.client_certificate_data,
            &user.client_certificate,
        )?;
        let key = part(file, &user.client_key_data, &user.client_key)?;
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_slice(&key);
                let key = key.map_err(|_| file.wrong("the client's key is not a key in PEM"))?;
                Some((
                    certificates(file, &certificate, "the client's certificate")?,
                    key,
                ))
            }
            _ => {
                return Err(file
                    .wrong("a client's certificate and its key belong together: one is missing"));
            }
        };
        let credential = match user {
            user if !user.token_file.is_empty() => {
                Credential::TokenFile(beside(file, &user.token_file))
            }
            user if !user.token.is_empty() => Credential::Token(user.token.clone()),
            user if !user.username.is_empty() => {
                Credential::Basic(user.username.clone(), user.password.clone())
            }
            _ => Credential::None,
        };
        Ok(Service {
            url: cluster.server.clone(),
            authorities: authorities.transpose()?,
            insecure: cluster.insecure_skip_tls_verify,
            server_name: Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty()),
            identity,
            credential,
        })
    }
}

fn find<'a, T>(all: &'a [Named<T>], name: &str) -> Option<&'a T> {
    let found = all.iter().find(|named| named.name == name);
    found.map(|named| &named.what)
}

/// A path in the file, which is relative to the folder of the file.
fn beside(file: &ConfigFile, path: &str) -> PathBuf {
    let folder = file.path().parent().unwrap_or(Path::new(""));
    folder.join(path)
}

/// What the file has as data, or names.
fn part(file: &ConfigFile, data: &str, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
    if !data.is_empty() {
        let decoded = STANDARD.decode(data.trim());
        return match decoded {
            Ok(decoded) => Ok(Some(decoded)),
            Err(_) => Err(file.wrong("a member that ends with -data is not in base64")),
        };
    }
    if path.is_empty() {
        return Ok(None);
    }
    let path = beside(file, path);
    match std::fs::read(&path) {
        Ok(read) => Ok(Some(read)),
        Err(error) => Err(file.wrong(format!(
            "{}, which it names, cannot be read: {error}",
            path.display()
        ))),
    }
}

fn certificates(
    file: &ConfigFile,
    pem: &[u8],
    what: &str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(file.wrong(format!("{what} is not a certificate in PEM"))),
    }
}
