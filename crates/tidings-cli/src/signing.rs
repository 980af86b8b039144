//! The options of `tidings serve` about certificates that clients ask for, under the names of kube-controller-manager.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tidings_server::ClientSigner;

use crate::units::parse_duration;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Certificates for clients")]
pub(crate) struct SigningArguments {
    /// The authority that signs approved CertificateSigningRequests for the signer kubernetes.io/kube-apiserver-client, in PEM. Without it nobody
    /// here does
    #[arg(long, value_name = "PATH", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,

    /// The private key of that authority, in PEM
    #[arg(long, value_name = "PATH", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,

    /// How long a signed certificate lives at most
    #[arg(long, default_value = "8760h", value_parser = parse_duration, value_name = "DURATION")]
    cluster_signing_duration: Duration,
}

impl SigningArguments {
    /// The authority, if there is one.
    pub(crate) fn read(&self) -> anyhow::Result<Option<ClientSigner>> {
        let files = self.cluster_signing_cert_file.as_ref();
        let Some((certificate, key)) = files.zip(self.cluster_signing_key_file.as_ref()) else {
            return Ok(None);
        };
        let signer = ClientSigner::open(certificate, key, self.cluster_signing_duration);
        let signer = signer.context("--cluster-signing-cert-file cannot be used")?;
        Ok(Some(signer))
    }
}
