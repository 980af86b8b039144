//! The options of `tidings serve` about the certificates that clients see, under kube-apiserver's names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidings_server::ServingCertificates;
use tokio::task::JoinSet;

/// How often files are looked at.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct ServingArguments {
    /// A certificate to show to clients instead of one by the server's own authority, in PEM, with those of authorities in between behind it. It is
    /// read again when it changes
    #[arg(long, value_name = "PATH", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "PATH", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,

    /// Another certificate and key for clients that ask for some names: those behind the colon, *.example.com too, or else those in the
    /// certificate. Can be given several times
    #[arg(long, value_parser = parse_named, value_name = "CERTIFICATE,KEY[:NAME,…]")]
    tls_sni_cert_key: Vec<NamedFiles>,
}

#[derive(Debug, Clone)]
struct NamedFiles {
    certificate: PathBuf,
    key: PathBuf,
    names: Vec<String>,
}

fn parse_named(text: &str) -> Result<NamedFiles, String> {
    let wrong = || "write it as CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,…".to_owned();
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, names.split(',').map(ToOwned::to_owned).collect()),
        None => (text, Vec::new()),
    };
    let (certificate, key) = files.split_once(',').ok_or_else(wrong)?;
    if certificate.is_empty() || key.is_empty() || names.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Ok(NamedFiles {
        certificate: certificate.into(),
        key: key.into(),
        names,
    })
}

impl ServingArguments {
    /// Reads the certificates.
    pub(crate) fn read(&self) -> anyhow::Result<ServingCertificates> {
        let mut files = ServingCertificates::default();
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            let read = files.pair(certificate, key);
            files = read.context("--tls-cert-file cannot be used")?;
        }
        for NamedFiles {
            certificate,
            key,
            names,
        } in &self.tls_sni_cert_key
        {
            let read = files.named_pair(certificate, key, names);
            files = read.context("--tls-sni-cert-key cannot be used")?;
        }
        Ok(files)
    }
}

/// Follows the files of certificates until what is returned is dropped.
pub(crate) fn follow_certificates(files: Arc<ServingCertificates>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if !files.is_empty() {
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(FOLLOW_EVERY).await;
                let files = files.clone();
                // On another thread: a disk may be slow.
                let _ = tokio::task::spawn_blocking(move || files.follow()).await;
            }
        });
    }
    tasks
}
