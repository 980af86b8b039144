//! The options of `tidings serve` about encryption at rest, under kube-apiserver's names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidings_encryption::{EncryptedStore, EncryptionConfig, StoredResource};
use tidings_server::{ConfigError, ConfigFile, FollowedFile, store_prefixes};
use tidings_storage::Storage;
use tokio::task::JoinSet;

/// How often the file is looked at.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption at rest")]
pub(crate) struct EncryptionArguments {
    /// Which resources are encrypted in the store, and with which keys: an EncryptionConfiguration (apiserver.config.k8s.io/v1)
    #[arg(long, value_name = "PATH")]
    encryption_provider_config: Option<PathBuf>,

    /// Read that file again when it changes
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    encryption_provider_config_automatic_reload: bool,
}

/// The configuration, which may change.
pub(crate) type EncryptionFile = FollowedFile<EncryptionConfig, ConfigError>;

impl EncryptionArguments {
    /// Reads the configuration.
    pub(crate) fn read(&self) -> anyhow::Result<Option<EncryptionFile>> {
        let Some(path) = &self.encryption_provider_config else {
            return Ok(None);
        };
        let file = FollowedFile::open(path, |path, read| {
            EncryptionConfig::read(&ConfigFile::from_read(path, read)?)
        });
        file.map(Some)
            .context("--encryption-provider-config cannot be used")
    }

    /// Encrypts what a store keeps. Without a configuration nothing is encrypted, and what is already is refused.
    pub(crate) async fn wrap(
        &self,
        store: Arc<dyn Storage>,
        file: Option<&EncryptionFile>,
    ) -> anyhow::Result<Arc<EncryptedStore>> {
        let config = match file {
            Some(file) => (*file.current()).clone(),
            None => EncryptionConfig::none(),
        };
        let resources = store_prefixes().map(|(prefix, group, resource)| StoredResource {
            prefix,
            group: group.to_owned(),
            resource: resource.to_owned(),
        });
        let store = EncryptedStore::open(store, config, resources.collect()).await;
        Ok(Arc::new(
            store.context("--encryption-provider-config cannot be used")?,
        ))
    }

    /// Follows the configuration until what is returned is dropped.
    pub(crate) fn follow(
        &self,
        file: Option<EncryptionFile>,
        store: Arc<EncryptedStore>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(file) = file.filter(|_| self.encryption_provider_config_automatic_reload) {
            tasks.spawn(follow(Arc::new(file), store));
        }
        tasks
    }
}

async fn follow(file: Arc<EncryptionFile>, store: Arc<EncryptedStore>) {
    let mut is_new = false;
    let mut failed = None;
    loop {
        tokio::time::sleep(FOLLOW_EVERY).await;
        let look = file.clone();
        // On another thread: a disk may be slow.
        is_new |= tokio::task::spawn_blocking(move || look.follow())
            .await
            .unwrap_or(false);
        if !is_new {
            continue;
        }
        match store.reload((*file.current()).clone()).await {
            Ok(()) => {
                tracing::info!("objects are encrypted by the new encryption configuration");
                (is_new, failed) = (false, None);
            }
            // It is tried again at every look: a plugin may not be there yet.
            Err(error) => {
                let error = error.to_string();
                if failed.as_ref() != Some(&error) {
                    tracing::error!(%error, "the new encryption configuration cannot be used: the one before stays");
                }
                failed = Some(error);
            }
        }
    }
}
