//! The certificate authority, the administrator's token and the key that signs tokens of service accounts: made at the first start and kept in files.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use tidings_identity::SigningKey;
use tidings_storage::disk::{self, Disk, OpenMode, RealDisk};
use uuid::Uuid;

use crate::core::Credentials;
use crate::serving::{
    CertificateChoice, OWN_NAME, OwnCertificate, ServerNames, ServingCertificates,
};

/// A text that every kubeconfig written by Tidings contains.
const KUBECONFIG_MARK: &str = "current-context: tidings";
/// A token shorter than this was not made by Tidings.
const TOKEN_BYTES_MIN: usize = 16;

/// Why the credentials cannot be loaded or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot read or write {path}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file exists and is the kubeconfig of another cluster.
    #[error(
        "{path} exists and was not written by Tidings: choose another path with --kubeconfig, or move it away"
    )]
    Kubeconfig {
        /// The file.
        path: String,
    },
    /// A certificate cannot be made or read.
    #[error(
        "the credentials are not usable ({0}): delete the folder `pki` of the data directory to have new ones made"
    )]
    Certificate(String),
}

/// The credentials of a server and of its administrator.
pub struct Pki {
    ca_pem: String,
    token: String,
    ca_key: String,
    names: ServerNames,
    service_account_key: SigningKey,
}

impl std::fmt::Debug for Pki {
    /// Never shows the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pki(…)")
    }
}

fn certificate_error(error: impl std::fmt::Display) -> PkiError {
    PkiError::Certificate(error.to_string())
}

impl Pki {
    /// Reads the credentials in a directory, and makes missing ones. The names are for the server's certificate, which is in no file.
    ///
    /// # Errors
    /// If files cannot be read or written.
    pub fn open(directory: &Path, names: &ServerNames) -> Result<Pki, PkiError> {
        Pki::open_on(&RealDisk, directory, names)
    }

    fn open_on(disk: &dyn Disk, directory: &Path, names: &ServerNames) -> Result<Pki, PkiError> {
        // Also syncs the parents of the directory, so that their new entries survive a power loss: nobody else may have synced them.
        let made = disk.create_dir(directory).and_then(|()| {
            let mut above = directory.ancestors().skip(1).take(2);
            above.try_for_each(|above| match disk.sync_names(above) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                synced => synced,
            })
        });
        made.map_err(|source| io_error(directory, source))?;
        let ca_key = read_or_make(disk, &directory.join("ca.key"), || {
            Ok(generate_key()?.serialize_pem())
        })?;
        let ca_pem = read_or_make(disk, &directory.join("ca.crt"), || {
            let key = KeyPair::from_pem(&ca_key).map_err(certificate_error)?;
            Ok(ca_params()?
                .self_signed(&key)
                .map_err(certificate_error)?
                .pem())
        })?;
        let token = read_or_make(disk, &directory.join("token"), || Ok(new_token()))?
            .trim()
            .to_owned();
        if token.len() < TOKEN_BYTES_MIN {
            let why = format!(
                "the token in {} is empty or too short",
                directory.join("token").display()
            );
            return Err(PkiError::Certificate(why));
        }
        let account_key = read_or_make(disk, &directory.join("sa.key"), || {
            Ok(generate_key()?.serialize_pem())
        })?;
        Pki::assemble(&ca_key, ca_pem, token, &account_key, names)
    }

    /// Credentials in memory only.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn ephemeral(names: &ServerNames) -> Result<Pki, PkiError> {
        let key = generate_key()?;
        let ca_pem = ca_params()?
            .self_signed(&key)
            .map_err(certificate_error)?
            .pem();
        let account_key = generate_key()?.serialize_pem();
        Pki::assemble(
            &key.serialize_pem(),
            ca_pem,
            new_token(),
            &account_key,
            names,
        )
    }

    fn assemble(
        ca_key: &str,
        ca_pem: String,
        token: String,
        account_key: &str,
        names: &ServerNames,
    ) -> Result<Pki, PkiError> {
        Ok(Pki {
            ca_pem,
            token,
            ca_key: ca_key.to_owned(),
            names: names.clone(),
            service_account_key: SigningKey::from_pem(account_key.as_bytes())
                .map_err(certificate_error)?,
        })
    }

    /// The key that signs tokens of service accounts, if no other is given.
    pub fn service_account_key(&self) -> SigningKey {
        self.service_account_key.clone()
    }

    /// The administrator's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The TLS configuration for a listener. It shows the certificates of files, if there are any, and otherwise one of the server's own authority,
    /// which is made anew before it expires. It asks clients for certificates if the credentials say so.
    ///
    /// # Errors
    /// If the own certificate cannot be made.
    pub fn tls(
        &self,
        credentials: &Credentials,
        files: Arc<ServingCertificates>,
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let ca_key = KeyPair::from_pem(&self.ca_key).map_err(certificate_error)?;
        let own = OwnCertificate::new(Issuer::new(ca_params()?, ca_key), self.names.clone());
        own.at(SystemTime::now()).map_err(PkiError::Certificate)?;
        server_config(
            CertificateChoice { own, files },
            credentials.client_verifier(),
        )
    }

    /// A kubeconfig for the administrator of the server at a URL. If the listener shows certificates of files, clients ask for the server's own
    /// by its name (`asks_by_name`).
    pub fn kubeconfig(&self, url: &str, asks_by_name: bool) -> String {
        let name = match asks_by_name {
            true => format!("\n    tls-server-name: {OWN_NAME}"),
            false => String::new(),
        };
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let token = &self.token;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: tidings\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}{name}\nusers:\n- name: admin\n  user:\n    token: {token}\ncontexts:\n- name: tidings\n  \
             context:\n    cluster: tidings\n    user: admin\ncurrent-context: tidings\n"
        )
    }

    /// Writes the kubeconfig to a file that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_kubeconfig(
        &self,
        path: &Path,
        url: &str,
        asks_by_name: bool,
    ) -> Result<(), PkiError> {
        // The kubeconfig of another cluster is not overwritten by mistake.
        if fs::read_to_string(path)
            .is_ok_and(|text| !text.is_empty() && !text.contains(KUBECONFIG_MARK))
        {
            return Err(PkiError::Kubeconfig {
                path: path.display().to_string(),
            });
        }
        let text = self.kubeconfig(url, asks_by_name);
        // An unchanged file is not written again: the disk may be full.
        if is_private(path) && fs::read_to_string(path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        match write_private(&RealDisk, path, &text) {
            // On a full disk the file is overwritten in place, which needs no room. The write is not atomic, but a kubeconfig can be made again.
            Err(PkiError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::StorageFull && is_private(path) =>
            {
                overwrite(path, &text).map_err(|source| io_error(path, source))
            }
            written => written,
        }
    }
}

fn generate_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate().map_err(certificate_error)
}

/// Two random UUIDs: 244 random bits.
fn new_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn ca_params() -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(certificate_error)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "tidings-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2120, 1, 1);
    Ok(params)
}

fn server_config(
    certificates: CertificateChoice,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, PkiError> {
    let clients = clients.unwrap_or_else(|| Arc::new(NoClientAuth));
    // Explicit, because rustls panics at run time if two providers are linked and none is chosen.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(certificate_error)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Writes a file in place.
fn overwrite(path: &Path, text: &str) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// True if a file can be read only by its owner.
fn is_private(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
}

/// The content of a file, which is made and written if there is none.
fn read_or_make(
    disk: &dyn Disk,
    path: &Path,
    make: impl FnOnce() -> Result<String, PkiError>,
) -> Result<String, PkiError> {
    let read = disk
        .open(path, OpenMode::Read)
        .and_then(|file| disk::read_all(&*file))
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    match read {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = make()?;
            write_private(disk, path, &text)?;
            Ok(text)
        }
        Err(source) => Err(io_error(path, source)),
    }
}

/// Writes a file that only its owner can read, durably and atomically.
fn write_private(disk: &dyn Disk, path: &Path, text: &str) -> Result<(), PkiError> {
    disk::write_durably(disk, path, text.as_bytes()).map_err(|source| io_error(path, source))
}

fn io_error(path: &Path, source: std::io::Error) -> PkiError {
    PkiError::Io {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use tidings_storage::disk::{Fault, SimulatedDisk};

    use super::*;

    fn names() -> ServerNames {
        ServerNames {
            address: [127, 0, 0, 1].into(),
            others: Vec::new(),
        }
    }

    #[test]
    fn credentials_survive_a_power_loss_once_they_were_returned() {
        for seed in 0..40 {
            let mut disk = SimulatedDisk::new(seed);
            let directory = Path::new("/data/pki");
            // Wherever the first start is cut off, the second start can use what it left.
            disk.fail_after(seed, Fault::PowerLoss);
            let _ = Pki::open_on(&disk, directory, &names());
            disk.crash(Fault::PowerLoss);
            disk = disk.next_process();
            let first = Pki::open_on(&disk, directory, &names()).unwrap();
            disk.crash(Fault::PowerLoss);
            disk = disk.next_process();
            let again = Pki::open_on(&disk, directory, &names()).unwrap();
            assert_eq!(first.token, again.token, "seed {seed}");
            assert_eq!(first.ca_pem, again.ca_pem, "seed {seed}");
            let key = |pki: &Pki| pki.service_account_key.public().clone();
            assert_eq!(key(&first), key(&again), "seed {seed}");
        }
    }
}
