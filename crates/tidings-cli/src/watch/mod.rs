//! `tidings watch`: shows the objects of a resource and their changes, on any API server.

mod diff;
mod report;
mod show;
mod target;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use tidings_api::{EventType, LabelSelector, Object};
use tidings_informer::{
    Event, HandlerOptions, OnRefusal, ReflectorOptions, ReflectorState, SharedInformer,
    Subscription,
};
use tidings_kube::{Connection, Resolved, Scope, connect, dynamic, resolve};
use tokio::signal::unix::{SignalKind, signal};

use report::{explain, patiently, refusal, report, say, sync};
use show::{LineStyle, OutputFormat, ShownEvent};
use target::WatchTarget;

#[derive(Debug, clap::Args)]
pub(crate) struct WatchArguments {
    /// What to follow: configmaps, cm, ConfigMap.v1, deployments.apps, deployments.v1.apps, or one object: cm/coredns
    resource: String,

    /// Only the object of this name
    name: Option<String>,

    // Accepted only for an error that says what to write instead.
    #[arg(hide = true)]
    more: Vec<String>,

    /// Only the objects of this namespace [default: that of the kubeconfig's context]
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        conflicts_with = "all_namespaces"
    )]
    namespace: Option<String>,

    /// The objects of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only objects with these labels: app=web,tier!=db
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: String,

    /// Only objects with these fields: metadata.name=web
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    field_selector: String,

    /// How events are shown [default: a line with what changed]
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,

    /// With -o name, put the type of the event first: DELETED  configmap/web (the other outputs always have it)
    #[arg(long)]
    output_watch_events: bool,

    /// Show only changes, not the existing objects
    #[arg(long)]
    watch_only: bool,

    // kubectl needs it; this command always watches.
    #[arg(short = 'w', long, hide = true)]
    watch: bool,

    /// The kubeconfig [default: KUBECONFIG, or .kube/config in the home directory]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Colors [default: on a terminal, unless NO_COLOR is set]
    #[arg(long, value_enum, default_value = "auto", hide_default_value = true)]
    color: ColorChoice,
}

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ColorChoice {
    Auto,
    Always,
    Never,
}

pub(crate) fn run(arguments: &WatchArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow(arguments))
}

async fn follow(arguments: &WatchArguments) -> anyhow::Result<()> {
    if let Err(error) = LabelSelector::parse(&arguments.selector) {
        bail!(
            "the selector {:?} cannot be read: {error}",
            arguments.selector
        );
    }
    let target = arguments.target()?;
    let connection = connect(
        arguments.kubeconfig.as_deref(),
        arguments.context.as_deref(),
    )
    .await?;
    let server = connection.server.as_str();
    let client = connection.client.clone().retries(1);
    let resolved = patiently(server, resolve(&client, &target.resource))
        .await
        .map_err(|error| explain(error, server))?;
    let namespace = namespace(arguments, &connection, &resolved);
    let scope = scope(arguments, &target, namespace);
    let informer = informer(&connection, &resolved, &scope);
    let style = style(arguments, &resolved);
    let events = informer.subscribe(&HandlerOptions::default())?;
    informer.start();
    tokio::select! {
        outcome = patiently(server, sync(&informer, server, &resolved.resource.plural)) => outcome?,
        () = stopped() => return Ok(()),
    }
    if informer.store().is_empty() {
        say(&nothing(arguments, &target, &resolved, namespace));
    }
    tokio::select! {
        outcome = show(events, &style, arguments.watch_only) => outcome?,
        outcome = report(&informer) => outcome?,
        () = stopped() => return Ok(()),
    }
    // The events end when standard output is closed, or when the server refuses.
    match informer.state() {
        ReflectorState::Stopped {
            problem: Some(problem),
        } => Err(refusal(&problem)),
        _ => Ok(()),
    }
}

/// Waits for SIGINT or SIGTERM.
async fn stopped() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

impl WatchArguments {
    fn target(&self) -> anyhow::Result<WatchTarget> {
        let words: Vec<String> = std::iter::once(&self.resource)
            .chain(&self.name)
            .chain(&self.more)
            .cloned()
            .collect();
        let target = WatchTarget::parse(&words)?;
        if let Some(name) = &target.name
            && !self.field_selector.is_empty()
        {
            bail!(
                "a name and --field-selector do not go together: add metadata.name={name} to the selector"
            );
        }
        Ok(target)
    }
}

/// The namespace to watch; empty for all namespaces and for cluster-scoped resources.
fn namespace<'a>(
    arguments: &'a WatchArguments,
    connection: &'a Connection,
    resolved: &Resolved,
) -> &'a str {
    match &arguments.namespace {
        _ if arguments.all_namespaces || !resolved.namespaced => "",
        Some(namespace) => namespace,
        None => &connection.namespace,
    }
}

fn scope(arguments: &WatchArguments, target: &WatchTarget, namespace: &str) -> Scope {
    let fields = match &target.name {
        Some(name) => format!("metadata.name={name}"),
        None => arguments.field_selector.clone(),
    };
    Scope::namespace(namespace)
        .labels(&arguments.selector)
        .fields(fields)
}

/// The message when there are no objects, so that an empty screen is not mistaken for a failure.
fn nothing(
    arguments: &WatchArguments,
    target: &WatchTarget,
    resolved: &Resolved,
    namespace: &str,
) -> String {
    let what = match &target.name {
        Some(name) => format!("{} {name}", resolved.resource.kind.to_lowercase()),
        None => resolved.resource.plural.clone(),
    };
    let is_selected = !arguments.selector.is_empty() || !arguments.field_selector.is_empty();
    let which = if is_selected { " that match" } else { "" };
    let place = match namespace {
        "" if resolved.namespaced => " in any namespace".to_owned(),
        "" => String::new(),
        namespace => format!(" in namespace {namespace}"),
    };
    format!("no {what}{which}{place} yet; waiting")
}

fn informer(connection: &Connection, resolved: &Resolved, scope: &Scope) -> SharedInformer<Object> {
    let mut options = ReflectorOptions::default();
    options.on_refusal = OnRefusal::StopBeforeSync;
    dynamic(&connection.client, &resolved.resource, scope)
        .name(resolved.resource.plural.as_str())
        .reflector(options)
        .build()
}

fn style(arguments: &WatchArguments, resolved: &Resolved) -> LineStyle {
    let kind = resolved.resource.kind.to_lowercase();
    let color = match arguments.color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
        }
    };
    LineStyle {
        output: arguments.output,
        events: arguments.output_watch_events,
        color,
        namespaces: resolved.namespaced && arguments.all_namespaces,
        prefix: match resolved.resource.group.as_str() {
            "" => kind,
            group => format!("{kind}.{group}"),
        },
        secret: resolved.resource.kind == "Secret" && resolved.resource.group.is_empty(),
    }
}

async fn show(
    mut events: Subscription<Object>,
    style: &LineStyle,
    watch_only: bool,
) -> anyhow::Result<()> {
    let stdout = std::io::stdout();
    while let Some(event) = events.next().await {
        let shown = match &event {
            Event::Added { initial: true, .. } if watch_only => continue,
            Event::Added { object, .. } => ShownEvent {
                event: EventType::Added,
                object: object.value(),
                old: None,
                unseen: false,
            },
            Event::Updated { old, new } => ShownEvent {
                event: EventType::Modified,
                object: new.value(),
                old: Some(old.value()),
                unseen: false,
            },
            Event::Deleted {
                last,
                final_state_known,
            } => ShownEvent {
                event: EventType::Deleted,
                object: last.value(),
                old: None,
                unseen: !final_state_known,
            },
            _ => continue,
        };
        let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        let text = style.text(&shown, &time);
        let mut out = stdout.lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Ok(()) => {}
            // The reader of the pipe has ended, as in `| head`.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error).context("the events cannot be written"),
        }
    }
    Ok(())
}
