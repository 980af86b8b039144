//! A list, page by page.

use std::sync::Arc;

use tidings_api::{ListMetadata, ListOptions, Object};
use tokio::sync::mpsc;

use crate::source::{BoxFuture, List, ListPart, ListStream, Lister, SourceError, next};

/// How many objects a page has unless something else is said.
pub const PAGE_SIZE: usize = 500;

/// How many pages are fetched before they are asked for.
const PAGES_AHEAD: usize = 10;

/// Reads a list page by page, and hands out the objects as they arrive.
///
/// The next page is asked for as soon as it is known where it starts, which most servers say in front of the objects. What comes of
/// it waits in the connection: the bound is that of its buffers. [`Pager::each_item`] fetches further ahead.
pub struct Pager<'a, L: ?Sized> {
    lister: &'a L,
    page_size: usize,
    full_list_if_expired: bool,
}

/// What a paged list says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The version of the first page: the state is at least that new.
    pub resource_version: String,
    /// More than one page was read.
    pub paginated: bool,
}

/// What a pager hands out.
#[derive(Debug)]
pub enum Paged {
    /// The next objects.
    Items(Vec<Object>),
    /// What was handed out so far is void: the pages have expired, and the whole list follows.
    Restart,
}

impl<'a, L: Lister + ?Sized> Pager<'a, L> {
    /// Pages of [`PAGE_SIZE`], and the whole list when they expire.
    pub fn new(lister: &'a L) -> Pager<'a, L> {
        Pager {
            lister,
            page_size: PAGE_SIZE,
            full_list_if_expired: true,
        }
    }

    /// Pages of another size; zero asks for the whole list at once.
    #[must_use]
    pub fn page_size(mut self, page_size: usize) -> Self {
        self.page_size = page_size;
        self
    }

    /// What to do when the continue token of a later page has expired: ask once for the whole list (the default), or fail.
    #[must_use]
    pub fn full_list_if_expired(mut self, full: bool) -> Self {
        self.full_list_if_expired = full;
        self
    }

    /// Reads all pages.
    ///
    /// # Errors
    /// With the first error of the source. What was handed out until then is not a list.
    pub async fn list(
        &self,
        options: ListOptions,
        mut on_part: impl FnMut(Paged),
    ) -> Result<Listed, SourceError> {
        let asked = ListOptions {
            limit: i64::try_from(self.page_size).unwrap_or(i64::MAX),
            ..options
        };
        let mut opening = Opening::Asked(self.lister.list(asked.clone()));
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
                        Opening::Asked(self.lister.list(options))
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
                    let opening = Opening::Asked(self.lister.list(whole));
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

    /// Reads a page, and asks for the next as soon as it is known where that starts.
    async fn page(
        &self,
        opening: Opening<'a>,
        asked: &ListOptions,
        on_part: &mut impl FnMut(Paged),
    ) -> Result<(ListMetadata, Option<Opening<'a>>), SourceError> {
        let mut page = match opening {
            Opening::Asked(asked) => asked.await?,
            Opening::Open(page) => page?,
        };
        let mut next_page: Option<Opening<'a>> = None;
        loop {
            let part = match &mut next_page {
                Some(Opening::Asked(opening)) => {
                    tokio::select! {
                        biased;
                        part = next(&mut page) => part,
                        opened = opening => {
                            next_page = Some(Opening::Open(opened));
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
                        next_page = Some(Opening::Asked(self.lister.list(options)));
                    }
                }
                Some(ListPart::Items(items)) => on_part(Paged::Items(items)),
                Some(ListPart::End(metadata)) => return Ok((metadata, next_page)),
                None => return Err(SourceError::Unexpected("a list that breaks off".into())),
            }
        }
    }
}

/// A page that has been asked for.
enum Opening<'a> {
    Asked(BoxFuture<'a, Result<ListStream, SourceError>>),
    Open(Result<ListStream, SourceError>),
}

/// The options of a page after the first. A server refuses a version beside a continue token, which has its own.
fn following(asked: &ListOptions, continue_token: String) -> ListOptions {
    ListOptions {
        continue_token,
        resource_version: String::new(),
        resource_version_match: None,
        ..asked.clone()
    }
}

impl<L: Lister + ?Sized> Pager<'_, L> {
    /// Hands each object to `on_item` while the next pages are fetched, up to ten ahead.
    ///
    /// There is no way back from an object that was handed out, so expired pages are an error here.
    ///
    /// # Errors
    /// With the first error of the source or of `on_item`; fetching stops then.
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
            let mut opening = Opening::Asked(pager.lister.list(asked.clone()));
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
                    Opening::Asked(pager.lister.list(options))
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
