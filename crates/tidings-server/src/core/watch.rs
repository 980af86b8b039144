//! WATCH (W91-W116): opens a watch. The edge encodes its events.

use std::time::Duration;

use tidings_api::{ListOptions, ObjectKey, ResourceVersion, Status};
use tidings_cache::{Unavailable, WatchScope};
use tidings_registry::{Kind, Selection};

use super::answer::{Answer, OpenWatch};
use super::call::Call;
use super::counts::WatchCounter;
use super::list::{ListCommand, parse_version};
use super::state::Core;
use super::walk::SnapshotWalk;

/// The longest timeout, short enough to be added to any time without overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The checked options of a WATCH.
#[derive(Debug)]
pub(crate) struct WatchCommand {
    list: ListCommand,
    version: Option<ResourceVersion>,
}

impl WatchCommand {
    /// Checks the options of a watch.
    pub(crate) fn new(list: ListCommand) -> Result<WatchCommand, Status> {
        let version = match list.options().resource_version.as_str() {
            "" => None,
            text => Some(parse_version(text)?),
        };
        Ok(WatchCommand { list, version })
    }

    fn options(&self) -> &ListOptions {
        self.list.options()
    }

    /// True if the timeout is negative, so that the watch ends before it sends anything (W97).
    pub(crate) fn is_over(&self) -> bool {
        let timeout = self.options().timeout_seconds;
        timeout.is_some_and(|seconds| seconds < 0)
    }
}

/// Opens a watch. The edge sends a failure as an ERROR event (W96).
pub(super) async fn watch(
    core: &Core,
    call: &Call,
    command: WatchCommand,
) -> Result<Answer, Status> {
    let target = &call.target;
    let resource = target.resource()?.clone();
    let rereads = resource.cache().rereads();
    let (options, selection) = (command.options(), command.list.selection());
    let timeout = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds as u64).min(TIMEOUT_MAX),
        _ => core.default_watch_timeout(),
    };
    let version = command.version;
    let any = ResourceVersion::default();
    let from_now = version.is_none_or(|version| version == any);
    // "00" is zero too, but `apply_watch_defaults` compares only with "0".
    let with_state = options.send_initial_events.unwrap_or(from_now);
    if with_state || from_now {
        match version {
            None => resource.refresh().await?,
            Some(version) => resource.reach(version).await?,
        }
    }
    let (cache, scope) = (resource.cache(), scope(&target.kind, selection));
    let (initial, after, cursor) = if with_state || from_now {
        let (snapshot, cursor) = cache.follow(scope);
        let walk = with_state.then(|| {
            let walk = SnapshotWalk::new(snapshot.state, selection.clone(), None);
            Box::new((walk, snapshot.revision))
        });
        (walk, snapshot.revision, cursor)
    } else {
        let after = version.unwrap_or_default();
        let cursor = cache
            .follow_after(after, scope)
            .map_err(|unavailable| match unavailable {
                Unavailable::TooOld(oldest) | Unavailable::NotYet(oldest) => too_old(after, oldest),
            })?;
        (None, after, cursor)
    };
    Ok(Answer::Watch(Box::new(OpenWatch {
        selection: selection.clone(),
        initial,
        mark_end: options.send_initial_events == Some(true) && options.allow_watch_bookmarks,
        after,
        bookmarks: options.allow_watch_bookmarks,
        timeout,
        cursor,
        stopping: core.stopping(),
        counter: WatchCounter::open(resource.watches.clone()),
        rereads,
        resource,
    })))
}

/// The objects whose events wake a watch.
fn scope(kind: &Kind, selection: &Selection) -> WatchScope {
    match (selection.namespace(), selection.name()) {
        (None, None) => WatchScope::All,
        (Some(namespace), None) => WatchScope::Namespace(namespace.into()),
        (None, Some(name)) if !kind.namespaced => WatchScope::Object(ObjectKey::new("", name)),
        (None, Some(name)) => WatchScope::Name(name.into()),
        (Some(namespace), Some(name)) => WatchScope::Object(ObjectKey::new(namespace, name)),
    }
}

/// 410 for a watch that starts before the oldest revision of the history (W104).
pub(crate) fn too_old(requested: ResourceVersion, oldest: ResourceVersion) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}
