//! `tidings serve`: runs an API server over an embedded store or etcd.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Resource, getrlimit, setrlimit};
use tidings_server::{
    Api, ApiOptions, Authentication, AuthorizationMode, ControllerSet, Credentials, Listener, Pki,
    ServerNames, lifetimes,
};
use tidings_storage::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, EtcdTls, Storage};
use tokio::signal::unix::{SignalKind, signal};

use crate::admission::AdmissionArguments;
use crate::audit::AuditArguments;
use crate::authentication::AuthenticationArguments;
use crate::authorization::WebhookArguments;
use crate::encryption::EncryptionArguments;
use crate::envtest;
use crate::logging::{LogFormat, Logging};
use crate::service_accounts::ServiceAccountArguments;
use crate::serving::{ServingArguments, follow_certificates};
use crate::signing::SigningArguments;
use crate::units::{parse_bytes, parse_duration};
use crate::user::users_file;

/// How long requests and watches have to end when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How many open files are kept for the store, logs and what a program needs besides connections.
const KEPT_FILES: u64 = 128;
/// How many connections may be open where more files are allowed.
const CONNECTIONS_MAX: usize = 100_000;

/// Entries of a data directory that do not belong to the store.
pub(crate) const BESIDE: &[&str] = &["kubeconfig", "kubeconfig.new", "pki", "users"];

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArguments {
    /// The address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:6443", value_parser = parse_address, value_name = "ADDRESS")]
    listen: SocketAddr,

    /// More names and addresses for the server's certificate: those of the machine, or of a load balancer in front of it
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    tls_san: Vec<String>,

    #[command(flatten)]
    serving: ServingArguments,

    /// Where objects are kept: in the data directory, or in an etcd cluster that several servers share
    #[arg(long, default_value = "embedded", value_enum)]
    storage: StorageEngine,

    /// Where certificates, the kubeconfig, and with --storage embedded all objects are kept
    #[arg(long, default_value = "./tidings-data", value_name = "PATH")]
    data_dir: PathBuf,

    /// Keep objects, certificates and the token in memory only: they are gone when the server stops
    #[arg(long)]
    ephemeral: bool,

    #[command(flatten)]
    etcd: EtcdArguments,

    /// Where to write the kubeconfig [default: kubeconfig in the data directory]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Bearer tokens of users: a file of lines `token,user,uid,"group1,group2"`. It is read again when it changes
    #[arg(long, value_name = "PATH")]
    token_auth_file: Option<PathBuf>,

    /// The authorities whose certificates clients may show, in PEM: the common name is the user, the organisations are the groups. It is read
    /// again when it changes
    #[arg(long, value_name = "PATH")]
    client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    authentication: AuthenticationArguments,

    /// Who may do what: RBAC (by roles and bindings), Webhook (a service is asked), AlwaysAllow or AlwaysDeny; several with commas, the first that
    /// decides counts. Members of the group system:masters may do everything
    #[arg(
        long,
        default_value = "RBAC",
        value_delimiter = ',',
        value_name = "MODE,…"
    )]
    authorization_mode: Vec<AuthorizationMode>,

    #[command(flatten)]
    authorization_webhook: WebhookArguments,

    #[command(flatten)]
    admission: AdmissionArguments,

    /// The controllers that run in the server, named as for kube-controller-manager: * for all, -NAME to leave one out, for example
    /// '*,-garbage-collector-controller'. Leave out what a kube-controller-manager beside it does
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        value_name = "NAME,…",
        allow_hyphen_values = true
    )]
    controllers: Vec<String>,

    /// How many connections may be open; more are closed at once [default: as many as open files are allowed, less 128, at most 100000]
    #[arg(long, value_name = "NUMBER")]
    max_connections: Option<usize>,

    /// How many watches may be open; more are answered 429
    #[arg(long, default_value_t = 200_000, value_name = "NUMBER")]
    max_watches: usize,

    /// How many watches one user may have open, unless it is an administrator
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    max_watches_per_user: usize,

    /// How long history is kept, so that watches can resume: a number with s, m or h. The last 1000 revisions are always kept
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "DURATION")]
    history: Duration,

    /// The largest stored object: a number of bytes, or one with Ki or Mi. With --storage etcd, it must be less than etcd's
    /// --max-request-bytes
    #[arg(long, default_value = "1532Ki", value_parser = parse_bytes, value_name = "BYTES")]
    max_object_bytes: usize,

    /// For tests: the size at which a segment of the log ends
    #[arg(long, hide = true, value_name = "BYTES")]
    log_segment_bytes: Option<u64>,

    /// For tests: how often history is compacted
    #[arg(long, hide = true, value_name = "MILLISECONDS")]
    compact_every_ms: Option<u64>,

    /// For tests: how many of the last revisions are always kept
    #[arg(long, hide = true, value_name = "NUMBER")]
    history_revisions: Option<u64>,

    /// The format of log lines
    #[arg(long, default_value = "text", value_enum)]
    log: LogFormat,

    /// Log a line for each request: id, user, verb, resource, status, duration
    #[arg(long)]
    access_log: bool,

    #[command(flatten)]
    audit: AuditArguments,

    #[command(flatten)]
    encryption: EncryptionArguments,

    #[command(flatten)]
    signing: SigningArguments,

    #[command(flatten)]
    service_accounts: ServiceAccountArguments,
}

/// Where objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StorageEngine {
    Embedded,
    Etcd,
}

#[derive(Debug, clap::Args)]
struct EtcdArguments {
    /// The members of the etcd cluster, as http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_delimiter = ',', value_name = "URL,…")]
    etcd_endpoints: Vec<String>,

    /// The certificate authority of etcd, in PEM
    #[arg(long, value_name = "PATH")]
    etcd_ca: Option<PathBuf>,

    /// The certificate to show to etcd, in PEM
    #[arg(long, value_name = "PATH", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,

    /// The key of that certificate, in PEM
    #[arg(long, value_name = "PATH", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,

    /// The prefix of all keys in etcd
    #[arg(long, default_value = "/registry", value_name = "PREFIX")]
    etcd_prefix: String,
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address and a port, as 127.0.0.1:6443 or [::1]:6443".to_owned())
}

/// Serves until it is told to stop. `without_effect` are flags of another program that are told of in the log.
pub(crate) fn run(arguments: &ServeArguments, without_effect: &[String]) -> anyhow::Result<()> {
    let logging = Logging::start(arguments.log, arguments.access_log);
    envtest::apiserver::tell(without_effect);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the tokio runtime cannot be started")?;
    let served = runtime.block_on(serve(arguments, &logging));
    // Tasks that still run have nothing to save: writes are durable before they are answered.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn serve(arguments: &ServeArguments, logging: &Logging) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let data_dir = &arguments.data_dir;
    let mut stop = std::pin::pin!(async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping: asked to terminate"),
            _ = interrupt.recv() => tracing::info!("stopping: interrupted"),
        }
    });
    let credentials = credentials(arguments)?;
    let mut service_accounts = arguments.service_accounts.options()?;
    let audit_policy = arguments.audit.policy()?;
    let audit_webhook = arguments.audit.webhook()?;
    let authorization_webhook = arguments
        .authorization_webhook
        .read(&arguments.authorization_mode)?;
    let encryption = arguments.encryption.read()?;
    let client_signer = arguments.signing.read()?;
    let certificates = Arc::new(arguments.serving.read()?);
    let plugins = arguments.admission.plugins()?;
    let controllers =
        ControllerSet::new(&arguments.controllers).context("--controllers cannot be used")?;
    let connections_max = connections_max(arguments)?;
    // First, so that a port in use leaves no data directory behind. Clients that connect already wait until the store is open.
    let listener = Listener::bind(arguments.listen).await.with_context(|| {
        format!(
            "{} cannot be listened on; choose another address with --listen",
            arguments.listen
        )
    })?;
    let listener = listener.connections_max(connections_max);
    let store = tokio::select! {
        store = open_store(arguments) => store?,
        () = &mut stop => return Ok(()),
    };
    let store = arguments
        .encryption
        .wrap(store, encryption.as_ref())
        .await?;
    let address = listener.address();
    let names = ServerNames {
        address: address.ip(),
        others: arguments.tls_san.clone(),
    };
    let pki = if arguments.ephemeral {
        if arguments.kubeconfig.is_none() {
            std::fs::create_dir_all(data_dir)
                .with_context(|| format!("{} cannot be created", data_dir.display()))?;
        }
        Pki::ephemeral(&names)?
    } else {
        Pki::open(&data_dir.join("pki"), &names)?
    };
    let kubeconfig = arguments
        .kubeconfig
        .clone()
        .unwrap_or_else(|| data_dir.join("kubeconfig"));
    let url = format!("https://{}", reachable(address));
    pki.write_kubeconfig(&kubeconfig, &url, !certificates.is_empty())?;

    let mut options = ApiOptions::default();
    let key = service_accounts.signing_key.take();
    service_accounts.signing_key = Some(key.unwrap_or_else(|| pki.service_account_key()));
    options.service_accounts = service_accounts;
    let credentials = credentials.admin_token(pki.token());
    let tls = pki.tls(&credentials, certificates.clone())?;
    options.authentication = Authentication::Credentials(credentials);
    options
        .authorization
        .clone_from(&arguments.authorization_mode);
    options.authorization_webhook = authorization_webhook;
    options.client_signer = client_signer;
    options.plugins = plugins;
    options.controllers = controllers;
    options.watch_limits.all = arguments.max_watches;
    options.watch_limits.user = arguments.max_watches_per_user;
    options.history = arguments.history;
    options.lost_log_lines = logging.lost();
    let audit = audit_policy.map(|policy| arguments.audit.open(policy, audit_webhook));
    let audit = audit.transpose()?.map(Arc::new);
    options.audit.clone_from(&audit);
    let api = tokio::select! {
        api = Api::start(store.clone(), options) => api?,
        why = store.unreadable() => bail!(
            "{why}\nThe server does not start, because objects that it cannot read would count as deleted. \
             --encryption-provider-config names the keys"
        ),
        () = &mut stop => return Ok(()),
    };
    let _follows_certificates = follow_certificates(certificates);
    let _follows_keys = arguments.encryption.follow(encryption, store);
    announce(&kubeconfig, address)?;
    listener.serve(api, tls, stop, DRAIN).await;
    if let Some(audit) = audit.and_then(Arc::into_inner) {
        audit.close(DRAIN).await;
    }
    Ok(())
}

/// Raises the limit of open files as far as it goes. Returns how many connections may be open: some files are kept for the store.
fn connections_max(arguments: &ServeArguments) -> anyhow::Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What is not allowed stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(files.saturating_sub(KEPT_FILES)).unwrap_or(usize::MAX);
    match arguments.max_connections {
        Some(wanted) if wanted > room => bail!(
            "--max-connections {wanted} needs more open files than the {files} that are allowed, of which {KEPT_FILES} are kept for the store: \
             raise the limit (ulimit -n), or leave the option out"
        ),
        Some(wanted) => Ok(wanted),
        None if room == 0 => bail!(
            "only {files} open files are allowed: raise the limit (ulimit -n) above {KEPT_FILES}"
        ),
        None => Ok(room.min(CONNECTIONS_MAX)),
    }
}

/// The credentials of users. They are read first: a wrong file leaves no data directory behind.
fn credentials(arguments: &ServeArguments) -> anyhow::Result<Credentials> {
    let mut credentials = Credentials::default();
    if let Some(path) = &arguments.token_auth_file {
        let read = credentials.token_file(path);
        credentials = read.context("--token-auth-file cannot be used")?;
    }
    if let Some(path) = &arguments.client_ca_file {
        let read = credentials.client_ca(path);
        credentials = read.context("--client-ca-file cannot be used")?;
    }
    let own_issuers = arguments.service_accounts.issuers();
    credentials = arguments.authentication.read(credentials, own_issuers)?;
    if !arguments.ephemeral {
        credentials = credentials.token_file_if_there(&users_file(&arguments.data_dir))?;
    }
    Ok(credentials)
}

async fn open_store(arguments: &ServeArguments) -> anyhow::Result<Arc<dyn Storage>> {
    match arguments.storage {
        StorageEngine::Embedded if !arguments.etcd.etcd_endpoints.is_empty() => {
            bail!("--etcd-endpoints is given, but objects are not kept there: add --storage etcd")
        }
        StorageEngine::Embedded => open_embedded(arguments),
        StorageEngine::Etcd if arguments.ephemeral => {
            bail!("--ephemeral keeps objects in memory: leave it out, or leave out --storage etcd")
        }
        StorageEngine::Etcd => open_etcd(arguments).await,
    }
}

async fn open_etcd(arguments: &ServeArguments) -> anyhow::Result<Arc<dyn Storage>> {
    let given = &arguments.etcd;
    if given.etcd_endpoints.is_empty() {
        bail!(
            "--storage etcd needs to know where etcd is: add --etcd-endpoints http://127.0.0.1:2379"
        );
    }
    let read = |path: &Option<PathBuf>| -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = path else { return Ok(None) };
        let read = std::fs::read(path);
        let read = read.with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Some(read))
    };
    let tls = EtcdTls {
        authority: read(&given.etcd_ca)?,
        identity: read(&given.etcd_cert)?.zip(read(&given.etcd_key)?),
    };
    let mut options = EtcdOptions::new(given.etcd_endpoints.clone());
    options.prefix.clone_from(&given.etcd_prefix);
    options.tls = (tls.authority.is_some() || tls.identity.is_some()).then_some(tls);
    options.history_age = arguments.history;
    options.value_bytes_max = arguments.max_object_bytes;
    options.lifetimes = lifetimes()
        .map(|(prefix, age)| (prefix.into(), age))
        .collect();
    Ok(Arc::new(Etcd::open(options).await?))
}

fn open_embedded(arguments: &ServeArguments) -> anyhow::Result<Arc<dyn Storage>> {
    let mut options = EmbeddedOptions::default();
    options.history_age = arguments.history;
    options.value_bytes_max = arguments.max_object_bytes;
    options.lifetimes = lifetimes()
        .map(|(prefix, age)| (prefix.into(), age))
        .collect();
    options.beside = BESIDE;
    if let Some(bytes) = arguments.log_segment_bytes {
        options.segment_bytes_max = bytes;
    }
    if let Some(milliseconds) = arguments.compact_every_ms {
        options.compact_every = Duration::from_millis(milliseconds);
    }
    if let Some(revisions) = arguments.history_revisions {
        options.history_revisions_min = revisions;
    }
    let directory = arguments.data_dir.display();
    if arguments.data_dir.is_file() {
        bail!("{directory} is a file: choose a directory with --data-dir");
    }
    if arguments.ephemeral {
        if arguments.data_dir.join("FORMAT").exists() && arguments.kubeconfig.is_none() {
            bail!(
                "{directory} belongs to a durable server, whose kubeconfig would be replaced: choose another place with \
                 --kubeconfig or --data-dir"
            );
        }
        return Ok(Arc::new(Embedded::ephemeral(options)));
    }
    Ok(Arc::new(Embedded::open(&arguments.data_dir, options)?))
}

/// The address for clients on this machine: loopback instead of the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    reachable
}

/// Prints two lines on standard output, for people and for programs that start the server.
fn announce(kubeconfig: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let path = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    writeln!(
        out,
        "kubeconfig: {0} (use it with: export KUBECONFIG={0})",
        path.display()
    )?;
    writeln!(out, "ready: https://{}", reachable(address))?;
    out.flush()?;
    Ok(())
}
