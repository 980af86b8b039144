//! WATCH (W91-W116): opens a watch. The edge encodes its events.

use std::sync::Arc;
use std::time::Duration;

use tidings_api::{ListOptions, Object, ResourceVersion, Status};
use tidings_cache::{Narrowing, ObjectTest, Unavailable, WatchScope};
use tidings_registry::Selection;

use super::answer::{Answer, OpenWatch};
use super::call::Call;
use super::counts::WatchCounter;
use super::list::{ListCommand, parse_version};
use super::reading::Reading;
use super::state::Core;
use super::walk::{self, ListItems, SnapshotWalk};
use super::watch_limits::WatchPermit;

/// The longest timeout, short enough to be added to any time without overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The checked options of a WATCH.
#[derive(Debug, Clone)]
pub(crate) struct WatchCommand {
    list: ListCommand,
    version: Option<ResourceVersion>,
    permit: Option<Arc<WatchPermit>>,
}

impl WatchCommand {
    /// Checks the options of a watch.
    pub(crate) fn new(list: ListCommand) -> Result<WatchCommand, Status> {
        let version = match list.options().resource_version.as_str() {
            "" => None,
            text => Some(parse_version(text)?),
        };
        Ok(WatchCommand {
            list,
            version,
            permit: None,
        })
    }

    /// Holds a permit as long as the watch is open.
    pub(crate) fn permitted(mut self, permit: WatchPermit) -> WatchCommand {
        self.permit = Some(Arc::new(permit));
        self
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
    let reading = Reading::of(&resource, &target.kind);
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
            None => reading.refresh().await?,
            Some(version) => reading.reach(version).await?,
        }
    }
    let (cache, scope) = (reading.cache(), scope(selection));
    let (initial, after, cursor) = if with_state || from_now {
        let (snapshot, cursor) = cache.follow(scope);
        let (state, revision) = (snapshot.state, snapshot.revision);
        let items = match with_state {
            false => None,
            true if selection.is_everything() => {
                let walk = SnapshotWalk::new(state, selection.key_prefix(), None);
                Some(ListItems::Walk(walk))
            }
            true => {
                let found = walk::select(cache, &state, selection, None, usize::MAX);
                let found = Box::pin(found).await; // boxed, because few requests need its memory
                Some(ListItems::Page(found.objects.into_iter()))
            }
        };
        let initial = items.map(|items| Box::new((items, revision)));
        (initial, revision, cursor)
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
        permit: command.permit.clone(),
        rereads,
        resource,
        reading,
    })))
}

/// The objects whose events a watch has to examine. Watches with equal selectors share their scope.
fn scope(selection: &Selection) -> WatchScope {
    let narrowed = match selection.required_value() {
        Some((facet, value)) => Narrowing::Value(facet, value.into()),
        None if selection.is_everything() => Narrowing::None,
        None => {
            let (name, selection) = (selection.selectors_name(), selection.clone());
            let test = move |object: &Object| selection.selects(object);
            Narrowing::Test(ObjectTest::new(name, test))
        }
    };
    WatchScope {
        namespace: selection.namespace().map(Into::into),
        narrowed,
    }
}

/// 410 for a watch that starts before the oldest revision of the history (W104).
pub(crate) fn too_old(requested: ResourceVersion, oldest: ResourceVersion) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}
