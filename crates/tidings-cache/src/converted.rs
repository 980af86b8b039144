//! A cache of the objects of another cache in another version. What converts them may take long and may fail: it is a webhook.
//!
//! The cache reads the log of the other one, converts the objects of its events, many in one call, and fills itself with them. All lists and
//! watches of the version then share the converted objects. While objects cannot be converted, the cache stays at the revision before them, and
//! those who wait for a later one are told why.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::{Object, ResourceVersion, WatchEvent};
use tidings_informer::{ReflectorStore, ServerVersion};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cache::{Cache, Snapshot};
use crate::fill::CacheFiller;
use crate::log::LoggedEvent;

/// How many objects are given to the converter at once.
const OBJECTS_AT_ONCE: usize = if cfg!(test) { 3 } else { 250 };
/// How many bytes of objects are given to the converter at once, if they are several.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The first wait after a failure. Those who wait for the cache end the wait.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Why objects could not be converted.
pub type ConvertError = Arc<dyn std::error::Error + Send + Sync>;

/// Converts objects to another version: as many, in the same order, with the same names and revisions. One that has the version comes back as it is.
pub type Converter = Arc<
    dyn Fn(Vec<Object>) -> Pin<Box<dyn Future<Output = Result<Vec<Object>, ConvertError>> + Send>>
        + Send
        + Sync,
>;

/// A cache of the objects of another cache in another version, and the task that fills it. Dropping it stops the task and ends its watches.
pub struct ConvertedCache {
    cache: Arc<Cache>,
    progress: Arc<Progress>,
    filler: JoinHandle<()>,
}

/// How far the task is, for those who wait for it.
#[derive(Default)]
struct Progress {
    failures: watch::Sender<Failures>,
    /// Somebody waits: what has failed is tried again at once.
    asked: Notify,
}

impl Progress {
    fn failed(&self, error: ConvertError) {
        self.failures.send_modify(|failures| {
            failures.count += 1;
            failures.last = Some(error);
        });
    }
}

#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<ConvertError>,
}

impl fmt::Debug for ConvertedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvertedCache")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Drop for ConvertedCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl ConvertedCache {
    /// Begins to fill a cache with the objects and the history of another one. Its log holds at most `log_bytes_max` bytes of objects. Must be
    /// called within a tokio runtime.
    pub fn open(
        source: Arc<Cache>,
        convert: Converter,
        log_bytes_max: usize,
        indexes_max: usize,
        changed: Arc<Notify>,
    ) -> ConvertedCache {
        let cache = Cache::new(log_bytes_max, indexes_max, changed, None);
        let progress = Arc::new(Progress::default());
        let task = ConvertingTask {
            source,
            convert,
            filler: CacheFiller::new(cache.clone()),
            cache: cache.clone(),
            progress: progress.clone(),
            position: None,
            rereads: 0,
        };
        ConvertedCache {
            cache,
            progress,
            filler: tokio::spawn(task.run()),
        }
    }

    /// The cache itself.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Stops the task and ends every watch once it has sent its pending events.
    pub fn close(&self) {
        self.filler.abort();
        self.cache.close();
        self.progress.failed(Arc::new(Closed));
    }

    /// Waits until the cache has reached a revision of the other one.
    ///
    /// # Errors
    /// If objects on the way cannot be converted, or the cache is closed.
    pub async fn reach(&self, revision: ResourceVersion) -> Result<(), ConvertError> {
        let reached = self.cache.reached();
        if reached.is_some_and(|reached| reached >= revision) {
            return Ok(());
        }
        let mut failures = self.progress.failures.subscribe();
        let known = failures.borrow_and_update().count;
        if self.cache.is_closed() {
            return Err(Arc::new(Closed));
        }
        self.progress.asked.notify_one();
        let failed = async {
            loop {
                // The sender lives as long as this.
                let _ = failures.changed().await;
                let failures = failures.borrow_and_update();
                if failures.count > known
                    && let Some(error) = &failures.last
                {
                    return error.clone();
                }
            }
        };
        tokio::select! {
            () = self.cache.reach(revision) => Ok(()),
            error = failed => Err(error),
        }
    }
}

struct ConvertingTask {
    source: Arc<Cache>,
    convert: Converter,
    cache: Arc<Cache>,
    filler: CacheFiller,
    progress: Arc<Progress>,
    /// The position in the log of the source; `None` before the first objects and after the log was trimmed past it.
    position: Option<u64>,
    /// What [`Cache::rereads`] said of the source when it was read from the beginning.
    rereads: u64,
}

impl ConvertingTask {
    async fn run(mut self) {
        let mut changes = self.source.changes();
        let mut wait = BACKOFF_FIRST;
        loop {
            changes.mark_unchanged();
            match self.step().await {
                Ok(true) => wait = BACKOFF_FIRST,
                Ok(false) => {
                    wait = BACKOFF_FIRST;
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    self.progress.failed(error);
                    // A request that waits does not wait longer than one attempt.
                    let asked = self.progress.asked.notified();
                    let _ = tokio::time::timeout(wait, asked).await;
                    wait = (wait * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Reads what comes next. False if there is nothing more now.
    async fn step(&mut self) -> Result<bool, ConvertError> {
        let rereads = self.source.rereads();
        let Some(position) = self.position.filter(|_| self.rereads == rereads) else {
            if self.source.reached().is_none() {
                return Ok(false);
            }
            self.refill().await?;
            self.rereads = rereads;
            return Ok(true);
        };
        let Ok((segment, end, revision)) = self.source.read_at(position) else {
            self.position = None;
            return Ok(true);
        };
        let mut events = segment.from(position).peekable();
        if events.peek().is_none() {
            if position < end {
                // The segment has ended, and the next one begins here.
                return Ok(true);
            }
            if self.cache.reached() < Some(revision) {
                self.filler.apply(vec![bookmark(revision)]);
            }
            return Ok(false);
        }
        let mut batch = Batch::default();
        let batch: Vec<&LoggedEvent> = events
            .take_while(|event| batch.takes(&event.object))
            .collect();
        let read = batch.len() as u64;
        let living = batch.iter().filter(|event| !event.deleted);
        let living = living.map(|event| event.object.clone()).collect();
        let mut converted = VecDeque::from((self.convert)(living).await?);
        let mut seen = Vec::with_capacity(batch.len() + 1);
        for event in batch {
            seen.push(match event.deleted {
                true => WatchEvent::Deleted(event.object.clone()),
                false => match (converted.pop_front(), &event.previous) {
                    (Some(object), None) => WatchEvent::Added(object),
                    (Some(object), Some(_)) => WatchEvent::Modified(object),
                    (None, _) => return Err(Arc::new(TooFew)),
                },
            });
        }
        if position + read == end {
            seen.push(bookmark(revision));
        }
        self.filler.apply(seen);
        self.position = Some(position + read);
        Ok(true)
    }

    /// Fills the cache with the oldest state that the source has; its history follows.
    async fn refill(&mut self) -> Result<(), ConvertError> {
        let (Snapshot { state, revision }, position) = self.source.oldest_state();
        self.filler.discard();
        let objects: Vec<Object> = state.iter().map(|(_, object)| object.clone()).collect();
        let mut rest = objects.as_slice();
        while !rest.is_empty() {
            let mut batch = Batch::default();
            let most = rest.iter().position(|object| !batch.takes(object));
            let (taken, left) = rest.split_at(most.unwrap_or(rest.len()));
            let converted = (self.convert)(taken.to_vec()).await?;
            if converted.len() < taken.len() {
                return Err(Arc::new(TooFew));
            }
            let added = converted.into_iter().map(WatchEvent::Added);
            self.filler.collect(added.collect());
            rest = left;
        }
        self.filler.replace(&ServerVersion::from(revision));
        self.position = Some(position);
        Ok(())
    }
}

/// The size of what is given to the converter at once.
#[derive(Default)]
struct Batch {
    objects: usize,
    bytes: usize,
}

impl Batch {
    /// True if one more object fits. The first one does, whatever its size is.
    fn takes(&mut self, object: &Object) -> bool {
        self.objects += 1;
        self.bytes += object.as_bytes().len();
        self.objects == 1 || (self.objects <= OBJECTS_AT_ONCE && self.bytes <= BYTES_AT_ONCE)
    }
}

fn bookmark(revision: ResourceVersion) -> WatchEvent {
    WatchEvent::Bookmark {
        resource_version: revision.to_string(),
        initial_events_end: false,
    }
}

/// The objects are not converted any more.
#[derive(Debug, thiserror::Error)]
#[error("the definition has changed, please try again")]
struct Closed;

/// A converter has returned fewer objects than it was given.
#[derive(Debug, thiserror::Error)]
#[error("fewer objects were returned than were to be converted")]
struct TooFew;
