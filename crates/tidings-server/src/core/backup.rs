//! A backup of the store, encoded while it is sent, so that memory does not grow with its size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidings_storage::backup::BackupWriter;
use tidings_storage::{Error, HistoryHold, Range, Revision, Storage};

/// How many keys are read at a time. The size of values is bounded, so this bounds memory.
const PAGE: usize = 64;

/// The rest of a backup.
struct BackupRest {
    store: Arc<dyn Storage>,
    writer: BackupWriter,
    revision: Revision,
    start: Option<Bytes>,
    /// Keeps the revision readable.
    _history: HistoryHold,
}

type NextBackupPage = Pin<Box<dyn Future<Output = Option<(Bytes, Option<BackupRest>)>> + Send>>;

/// The bytes of a backup. If the store fails, they end early, and the reader notices that the end mark is missing.
pub(crate) struct BackupPages {
    head: Option<Bytes>,
    next: Option<NextBackupPage>,
}

impl BackupPages {
    /// A backup of the store as it is now.
    pub(super) async fn start(store: Arc<dyn Storage>, now_ms: u64) -> Result<BackupPages, Error> {
        let history = store.hold_history();
        let revision = store.revision().await?;
        let (writer, head) = BackupWriter::start(revision, now_ms, store.stats().keys);
        let pages = BackupRest {
            store,
            writer,
            revision,
            start: None,
            _history: history,
        };
        Ok(BackupPages {
            head: Some(head),
            next: Some(Box::pin(pages.next())),
        })
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(head));
        }
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let page = std::task::ready!(next.as_mut().poll(context));
        let (bytes, rest) = page.map_or((None, None), |(bytes, rest)| (Some(bytes), rest));
        self.next = rest.map(|rest| Box::pin(rest.next()) as NextBackupPage);
        Poll::Ready(bytes)
    }
}

impl BackupRest {
    /// The next bytes, and what comes after them.
    async fn next(mut self) -> Option<(Bytes, Option<BackupRest>)> {
        let range = Range {
            start: self.start.clone(),
            limit: PAGE,
            at: Some(self.revision),
            ..Range::default()
        };
        let page = match self.store.stored_range(range).await {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "cannot finish a backup");
                return None;
            }
        };
        let last = page.entries.last();
        self.start = last.map(|last| [&last.key[..], b"\0"].concat().into());
        let mut bytes = self.writer.entries(page.entries);
        if page.more {
            return Some((bytes, Some(self)));
        }
        bytes = [bytes, self.writer.end()].concat().into();
        Some((bytes, None))
    }
}
