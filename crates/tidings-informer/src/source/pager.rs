//! Reads a list page by page.

use std::sync::Arc;

use tidings_api::{ListMetadata, ListOptions, Object};
use tokio::sync::mpsc;

use crate::source::{BoxFuture, List, ListPart, ListStream, Lister, SourceError, next};

/// The default number of objects per page.
pub const PAGE_SIZE: usize = 500;

/// Pages that [`Pager::each_item`] fetches ahead.
const PAGES_AHEAD: usize = 10;

/// Reads a list page by page, and passes on the objects as they arrive.
///
/// The next page is requested as soon as its continue token is known; most servers send it before the objects. Its response waits
/// in the buffers of the connection. [`Pager::each_item`] fetches further ahead.
pub struct Pager<'a, L: ?Sized> {
    lister: &'a L,
    page_size: usize,
    full_list_if_expired: bool,
}

/// The result of a paged list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The resource version of the first page: the list is at least that new.
    pub resource_version: String,
    /// True if more than one page was read.
    pub paginated: bool,
}

/// A part of a paged list.
#[derive(Debug)]
pub enum Paged {
    /// The next objects.
    Items(Vec<Object>),
    /// Discard all items so far: the continue token has expired, and the complete list follows.
    Restart,
}

impl<'a, L: Lister + ?Sized> Pager<'a, L> {
    /// A pager with pages of [`PAGE_SIZE`] that falls back to the complete list when a continue token expires.
    pub fn new(lister: &'a L) -> Pager<'a, L> {
        Pager {
            lister,
            page_size: PAGE_SIZE,
            full_list_if_expired: true,
        }
    }

    /// Sets the page size; zero requests the complete list at once.
    #[must_use]
    pub fn page_size(mut self, page_size: usize) -> Self {
        self.page_size = page_size;
        self
    }

    /// Whether to request the complete list when a continue token has expired (the default), or to fail.
    #[must_use]
    pub fn full_list_if_expired(mut self, full: bool) -> Self {
        self.full_list_if_expired = full;
        self
    }

    /// Reads all pages.
    ///
    /// # Errors
    /// With the first error of the source. The items before it are an incomplete list.
    pub async fn list(
        &self,
        options: ListOptions,
        mut on_part: impl FnMut(Paged),
    ) -> Result<Listed, SourceError> {
        let asked = ListOptions {
            limit: i64::try_from(self.page_size).unwrap_or(i64::MAX),
            ..options
        };
        let mut opening = PageRequest::Asked(self.lister.list(asked.clone()));
        let mut first: Option<String> = None;
        loop {
            match self.page(opening, &asked, &mut on_part).await {
                Ok((metadata, next)) => {
                    let paginated = first.is_some();
                    let resource_version = first.get_or_insert(metadata.resource_version);
                    if metadata.continue_token.is_empty() {
                        return Ok(Listed {
                            resource_version: resource_version.clone(),
                            paginated,
                        });
                    }
                    opening = next.unwrap_or_else(|| {
                        let options = following(&asked, metadata.continue_token);
                        PageRequest::Asked(self.lister.list(options))
                    });
                }
                Err(error)
                    if first.is_some() && self.full_list_if_expired && error.is_expired() =>
                {
                    on_part(Paged::Restart);
                    let whole = ListOptions {
                        limit: 0,
                        ..asked.clone()
                    };
                    let opening = PageRequest::Asked(self.lister.list(whole));
                    let (metadata, _) = self.page(opening, &asked, &mut on_part).await?;
                    return Ok(Listed {
                        resource_version: metadata.resource_version,
                        paginated: true,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a page, and requests the next one as soon as its continue token is known.
    async fn page(
        &self,
        opening: PageRequest<'a>,
        asked: &ListOptions,
        on_part: &mut impl FnMut(Paged),
    ) -> Result<(ListMetadata, Option<PageRequest<'a>>), SourceError> {
        let mut page = match opening {
            PageRequest::Asked(asked) => asked.await?,
            PageRequest::Open(page) => page?,
        };
        let mut next_page: Option<PageRequest<'a>> = None;
        loop {
            let part = match &mut next_page {
                Some(PageRequest::Asked(opening)) => {
                    tokio::select! {
                        biased;
                        part = next(&mut page) => part,
                        opened = opening => {
                            next_page = Some(PageRequest::Open(opened));
                            continue;
                        }
                    }
                }
                _ => next(&mut page).await,
            };
            match part.transpose()? {
                Some(ListPart::Begin(metadata)) => {
                    if !metadata.continue_token.is_empty() {
                        let options = following(asked, metadata.continue_token);
                        next_page = Some(PageRequest::Asked(self.lister.list(options)));
                    }
                }
                Some(ListPart::Items(items)) => on_part(Paged::Items(items)),
                Some(ListPart::End(metadata)) => return Ok((metadata, next_page)),
                None => return Err(SourceError::Unexpected("a list without an end".into())),
            }
        }
    }
}

/// A page that has been requested: still without an answer, or answered.
enum PageRequest<'a> {
    Asked(BoxFuture<'a, Result<ListStream, SourceError>>),
    Open(Result<ListStream, SourceError>),
}

/// The options of a page after the first. They have no resource version: a server rejects one beside a continue token.
fn following(asked: &ListOptions, continue_token: String) -> ListOptions {
    ListOptions {
        continue_token,
        resource_version: String::new(),
        resource_version_match: None,
        ..asked.clone()
    }
}

impl<L: Lister + ?Sized> Pager<'_, L> {
    /// Passes each object to `on_item` while up to ten further pages are fetched.
    ///
    /// Objects that `on_item` has seen cannot be taken back, so an expired continue token is an error here.
    ///
    /// # Errors
    /// With the first error of the source or of `on_item`. Fetching stops then.
    pub async fn each_item<E: From<SourceError>>(
        lister: Arc<L>,
        options: ListOptions,
        page_size: usize,
        mut on_item: impl FnMut(Object) -> Result<(), E>,
    ) -> Result<(), E> {
        let (sender, mut pages) = mpsc::channel::<Result<List, SourceError>>(PAGES_AHEAD);
        let fetching = tokio::spawn(async move {
            let pager = Pager::new(lister.as_ref()).page_size(page_size);
            let asked = ListOptions {
                limit: i64::try_from(page_size).unwrap_or(i64::MAX),
                ..options
            };
            let mut opening = PageRequest::Asked(pager.lister.list(asked.clone()));
            loop {
                let mut items = Vec::new();
                let mut take = |part| {
                    if let Paged::Items(more) = part {
                        items.extend(more);
                    }
                };
                let (metadata, next) = match pager.page(opening, &asked, &mut take).await {
                    Ok(page) => page,
                    Err(error) => {
                        let _ = sender.send(Err(error)).await;
                        return;
                    }
                };
                let continue_token = metadata.continue_token.clone();
                let sent = sender.send(Ok(List { items, metadata })).await;
                if sent.is_err() || continue_token.is_empty() {
                    return;
                }
                opening = next.unwrap_or_else(|| {
                    let options = following(&asked, continue_token);
                    PageRequest::Asked(pager.lister.list(options))
                });
            }
        });
        let _stop = AbortOnDrop(fetching);
        while let Some(page) = pages.recv().await {
            for item in page?.items {
                on_item(item)?;
            }
        }
        Ok(())
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<L: ?Sized> std::fmt::Debug for Pager<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pager")
            .field("page_size", &self.page_size)
            .field("full_list_if_expired", &self.full_list_if_expired)
            .finish_non_exhaustive()
    }
}
