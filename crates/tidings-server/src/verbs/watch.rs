//! WATCH (W91–W116).

use std::time::Duration;

use http::Response;
use tidings_api::{ListOptions, ResourceVersion, Status};

use crate::api::Inner;
use crate::cache::Unavailable;
use crate::metrics::WatchMetrics;
use crate::request::{Query, Target};
use crate::respond::list::Walk;
use crate::respond::view::View;
use crate::respond::watch::{WatchBody, WatchPlan, error_event, too_old};
use crate::respond::{self, ResponseBody};
use crate::selection::Selection;

pub(crate) async fn watch(
    api: &Inner,
    target: &Target,
    query: &Query,
    view: View,
) -> Result<Response<ResponseBody>, Status> {
    let (options, selection) = super::list::options(target, query)?;
    let version = match options.resource_version.as_str() {
        "" => None,
        text => Some(super::list::parse_version(text)?),
    };
    let timeout = match options.timeout_seconds {
        // W97: it has ended before anything could be sent.
        Some(seconds) if seconds < 0 => {
            let nothing = ResponseBody::bytes(bytes::Bytes::new());
            return Ok(respond::events(view.format, nothing));
        }
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds as u64).min(LONGEST),
        _ => api.default_watch_timeout(),
    };
    let body = match open(api, view, &options, selection, version, timeout).await {
        Ok(body) => ResponseBody::watch(body),
        // W96: from here on failures are events.
        Err(status) => ResponseBody::bytes(error_event(&status, view.format)),
    };
    Ok(respond::events(view.format, body))
}

/// Longer than anybody waits, short enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

async fn open(
    api: &Inner,
    view: View,
    options: &ListOptions,
    selection: Selection,
    version: Option<ResourceVersion>,
    timeout: Duration,
) -> Result<WatchBody, Status> {
    let kind = view.kind;
    let cache = api.cache(kind);
    let any = ResourceVersion::default();
    let from_now = version.is_none_or(|version| version == any);
    // "00" is zero too, though it is not the text that the defaults look for.
    let with_state = options.send_initial_events.unwrap_or(from_now);
    if with_state || from_now {
        match version {
            None => api.refresh(kind).await?,
            Some(version) => api.reach(kind, version).await?,
        }
    }
    let (initial, after, cursor) = if with_state || from_now {
        let (snapshot, cursor) = cache.follow(selection.scope());
        let walk = with_state.then(|| {
            Box::new((
                Walk::new(snapshot.state, selection.clone(), None),
                snapshot.revision,
            ))
        });
        (walk, snapshot.revision, cursor)
    } else {
        let after = version.unwrap_or_default();
        let cursor = cache
            .follow_after(after, selection.scope())
            .map_err(|unavailable| match unavailable {
                Unavailable::TooOld(oldest) | Unavailable::NotYet(oldest) => too_old(after, oldest),
            })?;
        (None, after, cursor)
    };
    let plan = WatchPlan {
        view,
        selection,
        initial,
        mark_end: options.send_initial_events == Some(true) && options.allow_watch_bookmarks,
        after,
        bookmarks: options.allow_watch_bookmarks,
        timeout,
    };
    Ok(WatchBody::new(
        plan,
        cache.clone(),
        cursor,
        api.stopping(),
        WatchMetrics::open(api.resource(kind).watches.clone()),
    ))
}
