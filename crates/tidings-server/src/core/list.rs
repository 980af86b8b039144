//! LIST, with the semantics of resourceVersion and paging (W70-W90).

use tidings_api::{FieldError, ListOptions, Object, ResourceVersion, ResourceVersionMatch, Status};
use tidings_cache::{Snapshot, Unavailable};
use tidings_registry::Selection;

use super::answer::{Answer, ListHead};
use super::call::Call;
use super::clock;
use super::continue_token::ContinueToken;
use super::reading::Reading;
use super::state::Core;
use super::target::Target;
use super::walk::{self, ListItems, SnapshotWalk};

/// The checked options of a LIST.
#[derive(Debug, Clone)]
pub(crate) struct ListCommand {
    options: ListOptions,
    selection: Selection,
}

impl ListCommand {
    /// Checks the options of a LIST or WATCH of a target, in the order of kube-apiserver. `forced_watch` is the legacy `/watch/` path (W19),
    /// whose options are checked as those of a LIST.
    pub(crate) fn new(
        target: &Target,
        mut options: ListOptions,
        forced_watch: bool,
    ) -> Result<ListCommand, Status> {
        Selection::check_syntax(&options.label_selector, &options.field_selector)?;
        options.apply_watch_defaults();
        options.validate()?;
        options.watch |= forced_watch;
        let selection = Selection::new(
            &target.kind,
            target.namespace(),
            target.name(),
            &options.label_selector,
            &options.field_selector,
        )?;
        let selection = selection.sharded(&options.shard_selector)?;
        Ok(ListCommand { options, selection })
    }

    pub(super) fn options(&self) -> &ListOptions {
        &self.options
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }
}

/// Parses the resourceVersion of a GET or WATCH. To one that is not a number kube-apiserver answers 500 (W62); we answer 400, because it is
/// the client's mistake.
pub(crate) fn parse_version(text: &str) -> Result<ResourceVersion, Status> {
    text.parse().map_err(|error: tidings_go::ParseNumberError| {
        let wrong = FieldError::invalid("resourceVersion", text, error.to_string());
        Status::bad_request(wrong.to_string())
    })
}

pub(super) async fn list(
    core: &Core,
    call: &Call,
    command: &ListCommand,
) -> Result<Answer, Status> {
    tracing::trace!(target: "tidings::walk", "lists a snapshot");
    let ListCommand { options, selection } = command;
    let reading = Reading::of(call.target.resource()?, &call.target.kind);
    let now_ms = clock::now_ms();
    let (snapshot, start) = if options.continue_token.is_empty() {
        (Box::pin(snapshot(&reading, options)).await?, None)
    } else {
        let continued = continued(core, &reading, command, now_ms);
        let (snapshot, start) = Box::pin(continued).await?;
        (snapshot, Some(start))
    };
    let limit = usize::try_from(options.limit).unwrap_or(0);
    // With resourceVersion=0 the limit is ignored (W73, W84).
    let limit = Some(limit).filter(|limit| *limit > 0 && options.resource_version != "0");
    let Snapshot { state, revision } = snapshot;
    let mut head = ListHead {
        revision,
        continue_token: String::new(),
        remaining: None,
        shard: selection.shard().cloned(),
    };
    let (objects, more) = if selection.is_everything() {
        let mut walk = SnapshotWalk::new(state, selection.key_prefix(), start.as_deref());
        let Some(limit) = limit else {
            return Ok(Answer::List(head, ListItems::Walk(walk)));
        };
        let (page, ended) = page(&mut walk, limit);
        if !ended {
            head.remaining = Some(Box::pin(walk.remaining()).await);
        }
        (page, head.remaining.is_some_and(|remaining| remaining > 0))
    } else {
        let limit = limit.unwrap_or(usize::MAX);
        let selected = walk::select(reading.cache(), &state, selection, start.as_deref(), limit);
        let selected = Box::pin(selected).await; // boxed, because few requests need its memory
        (selected.objects, selected.more)
    };
    if more {
        let last = objects.last().map(Object::key);
        let last = last.as_ref().map_or("", |key| key.as_str());
        let prefix = selection.key_prefix();
        head.continue_token = ContinueToken::write(revision.get() as i64, last, &prefix, now_ms);
    }
    Ok(Answer::List(head, ListItems::Page(objects.into_iter())))
}

/// The next objects, up to a limit, and whether they are the last ones. They may also be that if it says no.
fn page(walk: &mut SnapshotWalk, limit: usize) -> (Vec<Object>, bool) {
    let mut page = Vec::new();
    let ended = walk.visit(|object| {
        page.push(object.clone());
        page.len() < limit
    });
    (page, ended)
}

/// The snapshot for a LIST without a continue token.
async fn snapshot(reading: &Reading, options: &ListOptions) -> Result<Snapshot, Status> {
    let cache = reading.cache();
    let version = options.resource_version.as_str();
    if version.is_empty() {
        reading.refresh().await?;
        return Ok(cache.snapshot());
    }
    let version = parse_version(version).map_err(|mut status| {
        status.message.insert_str(0, "invalid resource version: "); // W76
        status
    })?;
    let exact = match &options.resource_version_match {
        Some(version_match) => *version_match == ResourceVersionMatch::Exact,
        None => options.limit > 0 && version > ResourceVersion::default(), // the legacy meaning (W73)
    };
    reading.reach(version).await?;
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

/// The snapshot and the start key of the page that a continue token asks for (W83-W90).
async fn continued(
    core: &Core,
    reading: &Reading,
    command: &ListCommand,
    now_ms: u64,
) -> Result<(Snapshot, String), Status> {
    let token = ContinueToken::read(&command.options.continue_token)?;
    if !command.options.any_version() {
        return Err(Status::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let prefix = command.selection.key_prefix();
    let start = format!("{prefix}{}", token.relative_start());
    let cache = reading.cache();
    let Ok(revision) = u64::try_from(token.rv) else {
        reading.refresh().await?; // continue at the latest revision (W89)
        return Ok((cache.snapshot(), start));
    };
    let revision = ResourceVersion::new(revision);
    reading.reach(revision).await?;
    let last = start.trim_end_matches('\0');
    let expired = || Status::continue_expired(ContinueToken::write(-1, last, &prefix, now_ms));
    if token.t > 0 && core.token_expired(token.t, now_ms) {
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
