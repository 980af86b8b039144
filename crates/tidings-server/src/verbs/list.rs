//! LIST: all resource-version semantics and paging (W70–W90).

use base64::Engine;
use serde::Deserialize;
use tidings_api::{FieldError, ListOptions, Object, ResourceVersion, ResourceVersionMatch, Status};

use super::Ask;
use crate::api::Inner;
use crate::cache::{Snapshot, Unavailable};
use crate::registry::Kind;
use crate::request::{Query, Target};
use crate::respond::Answer;
use crate::respond::list::{Items, ListHead, Walk, continue_token};
use crate::selection::Selection;

/// Reads the options of a LIST or WATCH, in upstream's order of checks.
pub(crate) fn options(target: &Target, query: &Query) -> Result<(ListOptions, Selection), Status> {
    let mut options = ListOptions::from_query(|name| query.get(name))?;
    Selection::check_syntax(&options.label_selector, &options.field_selector)?;
    // The legacy form of a watch is validated as what it looks like (W19).
    options.apply_watch_defaults();
    options.validate()?;
    options.watch |= target.forced_watch;
    let selection = Selection::new(
        target.kind,
        target.namespace.as_deref(),
        target.name.as_deref(),
        &options.label_selector,
        &options.field_selector,
    )?;
    Ok((options, selection))
}

/// A version of a GET or WATCH; upstream answers 500 with this text (W62), but it is the client's mistake.
pub(crate) fn parse_version(text: &str) -> Result<ResourceVersion, Status> {
    text.parse()
        .map_err(|error: tidings_api::go::ParseNumberError| {
            Status::bad_request(
                FieldError::invalid("resourceVersion", text, error.to_string()).to_string(),
            )
        })
}

pub(crate) async fn list(api: &Inner, ask: &Ask<'_>) -> Result<Answer, Status> {
    let kind = ask.kind();
    let (options, selection) = options(ask.target, ask.query)?;
    let (snapshot, start) = if options.continue_token.is_empty() {
        (snapshot(api, kind, &options).await?, None)
    } else {
        let (snapshot, start) = continued(api, kind, &options, &selection).await?;
        (snapshot, Some(start))
    };
    let mut walk = Walk::new(snapshot.state, selection.clone(), start.as_deref());
    let limit = usize::try_from(options.limit).unwrap_or(0);
    let limited = limit > 0 && options.resource_version != "0"; // W73, W84
    let mut head = ListHead {
        revision: snapshot.revision,
        continue_token: String::new(),
        remaining: None,
    };
    let items = if limited {
        let (page, more) = page(&mut walk, limit);
        if more {
            let revision = snapshot.revision.get() as i64;
            let last = walk.last_key().map_or("", |key| key.as_str());
            head.continue_token =
                continue_token(revision, last, &selection.key_prefix(), api.now_ms());
            head.remaining = selection.is_whole_scope().then(|| walk.remaining());
        }
        Items::Page(page.into_iter())
    } else {
        Items::Walk(walk)
    };
    Ok(Answer::List(head, items))
}

/// The next objects of a walk, and whether more follow.
fn page(walk: &mut Walk, limit: usize) -> (Vec<Object>, bool) {
    let mut page = Vec::new();
    let ended = walk.visit(|object| {
        page.push(object.clone());
        page.len() < limit
    });
    // The walk stops at the last object of the page: only another look says whether there is one behind it.
    let more = !ended && walk.has_more();
    (page, more)
}

/// The state that a LIST without a token is of.
async fn snapshot(
    api: &Inner,
    kind: &'static Kind,
    options: &ListOptions,
) -> Result<Snapshot, Status> {
    let cache = api.cache(kind);
    let version = options.resource_version.as_str();
    if version.is_empty() {
        api.refresh(kind).await?;
        return Ok(cache.snapshot());
    }
    let version = parse_version(version).map_err(|mut status| {
        status.message.insert_str(0, "invalid resource version: "); // W76
        status
    })?;
    let exact = match &options.resource_version_match {
        Some(version_match) => *version_match == ResourceVersionMatch::Exact,
        None => options.limit > 0 && version > ResourceVersion::default(), // W73: the legacy meaning
    };
    api.reach(kind, version).await?;
    if !exact {
        return Ok(cache.snapshot());
    }
    cache
        .snapshot_at(version)
        .map_err(|unavailable| match unavailable {
            Unavailable::TooOld(_) => {
                Status::expired("The resourceVersion for the provided list is too old.")
            }
            Unavailable::NotYet(current) => {
                Status::too_large_resource_version(version.get(), current.get())
            }
        })
}

#[derive(Debug, Deserialize)]
pub(crate) struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    pub(crate) rv: i64,
    #[serde(default)]
    pub(crate) start: String,
    /// When the first page was asked for, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) t: u64,
}

/// Reads the token of a page (W85).
pub(crate) fn read_token(token: &str) -> Result<Token, Status> {
    let bad = |why: &str| {
        Status::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|error| bad(&format!("illegal base64 data: {error}")))?;
    let read: Token = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
    if read.v != "meta.k8s.io/v1" {
        return Err(bad(&format!(
            "server does not recognize this encoded version {:?}",
            read.v
        )));
    }
    if read.rv == 0 {
        return Err(bad(
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ));
    }
    if read.start.is_empty() {
        return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
    }
    let relative = read.start.strip_prefix('/').unwrap_or(&read.start);
    if relative
        .split('/')
        .any(|segment| matches!(segment, "." | ".."))
    {
        return Err(bad(&read.start));
    }
    Ok(read)
}

/// The state and the key that a token goes on from (W83–W90).
async fn continued(
    api: &Inner,
    kind: &'static Kind,
    options: &ListOptions,
    selection: &Selection,
) -> Result<(Snapshot, String), Status> {
    let token = read_token(&options.continue_token)?;
    if !options.any_version() {
        return Err(Status::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let prefix = selection.key_prefix();
    let start = format!(
        "{prefix}{}",
        token.start.strip_prefix('/').unwrap_or(&token.start)
    );
    let cache = api.cache(kind);
    let Ok(revision) = u64::try_from(token.rv) else {
        api.refresh(kind).await?; // W89: go on at the latest state
        return Ok((cache.snapshot(), start));
    };
    let revision = ResourceVersion::new(revision);
    api.reach(kind, revision).await?;
    let last = start.trim_end_matches('\0');
    let expired = || Status::continue_expired(continue_token(-1, last, &prefix, api.now_ms()));
    if token.t > 0 && api.token_expired(token.t) {
        return Err(expired());
    }
    match cache.snapshot_at(revision) {
        Ok(snapshot) => Ok((snapshot, start)),
        Err(Unavailable::TooOld(_)) => Err(expired()),
        Err(Unavailable::NotYet(current)) => Err(Status::too_large_resource_version(
            revision.get(),
            current.get(),
        )),
    }
}
