//! The options of `tidings serve` about a webhook that decides who may do what, under kube-apiserver's names.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tidings_server::{AuthorizationMode, AuthorizationWebhook, ConfigFile, ReviewVersion, Webhook};

use crate::units::parse_duration;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authorization by a webhook")]
pub(crate) struct WebhookArguments {
    /// The service that decides in the mode Webhook: a kubeconfig
    #[arg(long, value_name = "PATH")]
    authorization_webhook_config_file: Option<PathBuf>,

    /// The version of the SubjectAccessReview that it understands: v1 or v1beta1
    #[arg(long, default_value = "v1beta1", value_parser = parse_version, value_name = "VERSION")]
    authorization_webhook_version: ReviewVersion,

    /// How long it is remembered that something is allowed
    #[arg(long, default_value = "5m", value_parser = parse_duration, value_name = "DURATION")]
    authorization_webhook_cache_authorized_ttl: Duration,

    /// How long it is remembered that something is not allowed
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "DURATION")]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

fn parse_version(text: &str) -> Result<ReviewVersion, String> {
    match text {
        "v1" => Ok(ReviewVersion::V1),
        "v1beta1" => Ok(ReviewVersion::V1Beta1),
        _ => Err("write v1 or v1beta1".to_owned()),
    }
}

impl WebhookArguments {
    /// The service, if the modes have one.
    pub(crate) fn read(
        &self,
        modes: &[AuthorizationMode],
    ) -> anyhow::Result<Option<AuthorizationWebhook>> {
        for (at, mode) in modes.iter().enumerate() {
            if modes[..at].contains(mode) {
                bail!("--authorization-mode has {mode:?} more than once: name each mode once");
            }
        }
        let is_asked = modes.contains(&AuthorizationMode::Webhook);
        let Some(path) = &self.authorization_webhook_config_file else {
            if is_asked {
                bail!(
                    "--authorization-mode has Webhook, but nobody knows where it is: add --authorization-webhook-config-file"
                );
            }
            return Ok(None);
        };
        if !is_asked {
            bail!(
                "--authorization-webhook-config-file is given, but the webhook is not asked: add Webhook to --authorization-mode"
            );
        }
        let read = ConfigFile::open(path).and_then(|file| Webhook::from_kubeconfig(&file));
        let webhook = read.context("--authorization-webhook-config-file cannot be used")?;
        let mut options = AuthorizationWebhook::new(webhook);
        options.version = self.authorization_webhook_version;
        options.allowed_for = self.authorization_webhook_cache_authorized_ttl;
        options.refused_for = self.authorization_webhook_cache_unauthorized_ttl;
        Ok(Some(options))
    }
}
