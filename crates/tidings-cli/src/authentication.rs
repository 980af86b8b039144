//! The options of `tidings serve` about tokens of other issuers, and requests without a credential, under kube-apiserver's names.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use tidings_server::{Credentials, read_keys};

#[derive(Debug, clap::Args)]
pub(crate) struct AuthenticationArguments {
    /// The issuers of OpenID Connect whose tokens are believed, how their claims become users, and which paths may be asked for without a credential:
    /// an AuthenticationConfiguration (apiserver.config.k8s.io/v1). It is read again when it changes
    #[arg(long, value_name = "PATH")]
    authentication_config: Option<PathBuf>,

    /// The keys of an issuer of that configuration, a JSON Web Key Set, if the issuer is not to be asked for them. Can be given several times
    #[arg(long, value_parser = parse_keys, requires = "authentication_config", value_name = "URL=PATH")]
    authentication_keys_file: Vec<KeysFile>,

    /// Serve requests without a credential as the user system:anonymous; otherwise they are refused [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    anonymous_auth: Option<bool>,
}

#[derive(Debug, Clone)]
struct KeysFile {
    issuer: String,
    path: PathBuf,
}

fn parse_keys(text: &str) -> Result<KeysFile, String> {
    match text.split_once('=') {
        Some((issuer, path)) if issuer.starts_with("https://") && !path.is_empty() => {
            Ok(KeysFile {
                issuer: issuer.to_owned(),
                path: path.into(),
            })
        }
        _ => Err(
            "write the URL of the issuer and a path, as https://login.example.com=keys.json"
                .to_owned(),
        ),
    }
}

impl AuthenticationArguments {
    /// Adds what the options say. `own_issuers` are those of service accounts.
    pub(crate) fn read(
        &self,
        mut credentials: Credentials,
        own_issuers: &[String],
    ) -> anyhow::Result<Credentials> {
        if let Some(path) = &self.authentication_config {
            let mut keys = HashMap::new();
            for KeysFile { issuer, path } in &self.authentication_keys_file {
                let read = std::fs::read(path).map_err(|error| error.to_string());
                let read = read
                    .and_then(|json| read_keys(&json))
                    .map_err(anyhow::Error::msg);
                let read = read.with_context(|| {
                    format!(
                        "--authentication-keys-file: {} cannot be used",
                        path.display()
                    )
                });
                keys.insert(issuer.clone(), read?);
            }
            let read = credentials.authentication_config(path, keys, own_issuers.to_vec());
            credentials = read.context("--authentication-config cannot be used")?;
        }
        match self.anonymous_auth {
            Some(_) if credentials.configures_anonymous() => {
                bail!(
                    "--anonymous-auth is given, and the file of --authentication-config has `anonymous`: leave out one of the two"
                )
            }
            Some(false) => Ok(credentials.refuse_anonymous()),
            _ => Ok(credentials),
        }
    }
}
