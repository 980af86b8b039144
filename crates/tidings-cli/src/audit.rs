//! The options of `tidings serve` about the audit log, under kube-apiserver's names.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tidings_server::{
    AuditDelivery, AuditFileOptions, AuditLog, AuditMode, AuditPolicy, AuditWebhookOptions,
    ConfigFile, Webhook,
};

use crate::units::parse_duration;

const DAY_SECONDS: u64 = 24 * 3600;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit log")]
pub(crate) struct AuditArguments {
    /// What is written about which request: a policy (audit.k8s.io/v1)
    #[arg(long, value_name = "PATH")]
    audit_policy_file: Option<PathBuf>,

    /// The file that gets the events, a line each; - is standard output
    #[arg(long, value_name = "PATH", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,

    /// How many megabytes the file has before it is put aside; 0: any number
    #[arg(long, default_value_t = 100, value_name = "MEGABYTES")]
    audit_log_maxsize: u64,

    /// How many files that were put aside are kept; 0: all
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    audit_log_maxbackup: usize,

    /// How many days files that were put aside are kept; 0: for ever
    #[arg(long, default_value_t = 366, value_name = "DAYS")]
    audit_log_maxage: u32,

    /// Compress files that were put aside
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_compress: bool,

    /// Whether requests wait until their events are in the file: batch (no; what does not fit into the buffer is lost, and counted), blocking
    /// (yes), blocking-strict (yes, and requests are refused if that fails)
    #[arg(long, default_value = "blocking", value_parser = parse_mode, value_name = "MODE")]
    audit_log_mode: AuditMode,

    /// With --audit-log-mode batch: how many events may wait
    #[arg(long, default_value_t = 10_000, value_parser = positive, value_name = "NUMBER")]
    audit_log_batch_buffer_size: usize,

    /// Leave the bodies out of events that are larger than --audit-log-truncate-max-event-size
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_truncate_enabled: bool,

    /// How large an event may be
    #[arg(long, default_value_t = 102_400, value_parser = positive, value_name = "BYTES")]
    audit_log_truncate_max_event_size: usize,

    /// The webhook that gets the events: a kubeconfig
    #[arg(long, value_name = "PATH", requires = "audit_policy_file")]
    audit_webhook_config_file: Option<PathBuf>,

    /// As --audit-log-mode
    #[arg(long, default_value = "batch", value_parser = parse_mode, value_name = "MODE")]
    audit_webhook_mode: AuditMode,

    /// How many events may wait for the webhook
    #[arg(long, default_value_t = 10_000, value_parser = positive, value_name = "NUMBER")]
    audit_webhook_batch_buffer_size: usize,

    /// How many events are sent together
    #[arg(long, default_value_t = 400, value_parser = positive, value_name = "NUMBER")]
    audit_webhook_batch_max_size: usize,

    /// How long an event waits for others
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "DURATION")]
    audit_webhook_batch_max_wait: Duration,

    /// Send at most --audit-webhook-batch-throttle-qps lists a second
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_batch_throttle_enable: bool,

    /// How many lists are sent in a second, on average
    #[arg(long, default_value_t = 10.0, value_name = "NUMBER")]
    audit_webhook_batch_throttle_qps: f64,

    /// How many lists are sent at once after a quiet time
    #[arg(long, default_value_t = 15, value_name = "NUMBER")]
    audit_webhook_batch_throttle_burst: u32,

    /// The pause before a list that could not be sent is sent again; it grows
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    audit_webhook_initial_backoff: Duration,

    /// Leave the bodies out of events that are larger than --audit-webhook-truncate-max-event-size
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_truncate_enabled: bool,

    /// How large an event may be
    #[arg(long, default_value_t = 102_400, value_parser = positive, value_name = "BYTES")]
    audit_webhook_truncate_max_event_size: usize,
}

fn parse_mode(text: &str) -> Result<AuditMode, String> {
    match text {
        "batch" => Ok(AuditMode::Batch),
        "blocking" => Ok(AuditMode::Blocking),
        "blocking-strict" => Ok(AuditMode::BlockingStrict),
        _ => Err("write batch, blocking or blocking-strict".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number above 0".to_owned())
}

fn delivery(mode: AuditMode, waiting_max: usize, event_bytes_max: Option<usize>) -> AuditDelivery {
    let mut delivery = AuditDelivery::new(mode);
    delivery.waiting_max = waiting_max;
    delivery.event_bytes_max = event_bytes_max;
    delivery
}

impl AuditArguments {
    /// The policy, if there is to be an audit log.
    pub(crate) fn policy(&self) -> anyhow::Result<Option<AuditPolicy>> {
        let Some(path) = &self.audit_policy_file else {
            return Ok(None);
        };
        if self.audit_log_path.is_none() && self.audit_webhook_config_file.is_none() {
            bail!(
                "--audit-policy-file is given, but the events go nowhere: add --audit-log-path or --audit-webhook-config-file"
            );
        }
        let read = ConfigFile::open(path).and_then(|file| AuditPolicy::read(&file));
        read.map(Some).context("--audit-policy-file cannot be used")
    }

    /// The webhook that gets the events.
    pub(crate) fn webhook(&self) -> anyhow::Result<Option<Webhook>> {
        let Some(path) = &self.audit_webhook_config_file else {
            return Ok(None);
        };
        let read = ConfigFile::open(path).and_then(|file| Webhook::from_kubeconfig(&file));
        read.map(Some)
            .context("--audit-webhook-config-file cannot be used")
    }

    /// Opens the audit log. Must be called within a tokio runtime.
    pub(crate) fn open(
        &self,
        policy: AuditPolicy,
        webhook: Option<Webhook>,
    ) -> anyhow::Result<AuditLog> {
        let mut log = AuditLog::new(policy);
        if let Some(path) = &self.audit_log_path {
            let mut options = AuditFileOptions::new(path);
            options.bytes_max = self.audit_log_maxsize << 20;
            options.backups_max = self.audit_log_maxbackup;
            options.age_max = Duration::from_secs(u64::from(self.audit_log_maxage) * DAY_SECONDS);
            options.compress = self.audit_log_compress;
            let bytes_max = self
                .audit_log_truncate_enabled
                .then_some(self.audit_log_truncate_max_event_size);
            let delivery = delivery(
                self.audit_log_mode,
                self.audit_log_batch_buffer_size,
                bytes_max,
            );
            let opened = log.to_file(options, &delivery);
            log = opened.with_context(|| {
                format!("--audit-log-path: {} cannot be opened", path.display())
            })?;
        }
        if let Some(webhook) = webhook {
            let mut options = AuditWebhookOptions::new(webhook);
            options.batch_max = self.audit_webhook_batch_max_size;
            options.batch_wait_max = self.audit_webhook_batch_max_wait;
            options.lists_per_second = self
                .audit_webhook_batch_throttle_enable
                .then_some(self.audit_webhook_batch_throttle_qps);
            options.burst_max = self.audit_webhook_batch_throttle_burst;
            options.backoff = self.audit_webhook_initial_backoff;
            let bytes_max = self
                .audit_webhook_truncate_enabled
                .then_some(self.audit_webhook_truncate_max_event_size);
            let delivery = delivery(
                self.audit_webhook_mode,
                self.audit_webhook_batch_buffer_size,
                bytes_max,
            );
            log = log.to_webhook(options, &delivery);
        }
        Ok(log)
    }
}
