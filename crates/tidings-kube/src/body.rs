//! Splits response bodies into objects and events while they arrive.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use futures_core::Stream;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response};
use http_body::Body as _;
use kube::client::Body;
use tidings_api::{ListSplitter, Object, WatchEvent, WatchSplitter};
use tidings_informer::{ListPart, SourceError};
use tokio::time::{Instant, Sleep, sleep};

use crate::client::SILENCE_MAX;
use crate::failure::{BrokenBody, DamagedBody, TimedOut};

/// Compressed bytes that are decompressed at once. Gzip expands a byte to at most about a thousand, so this bounds the memory
/// before the splitter checks its limits.
const INFLATE_BYTES: usize = 4 << 10;

/// The `Content-Encoding` of a body.
enum ContentCoding {
    Identity,
    /// A body may have several gzip members: some servers send one for each piece of a watch.
    Gzip(Box<GzipBody>),
}

/// A gzip body that is being decompressed.
struct GzipBody {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// No byte has arrived: an empty body is valid.
    empty: bool,
}

impl ContentCoding {
    /// The coding in the headers, whether the client asked for it or not.
    fn of(headers: &HeaderMap) -> Result<ContentCoding, SourceError> {
        let Some(coding) = headers.get(CONTENT_ENCODING) else {
            return Ok(ContentCoding::Identity);
        };
        match coding.as_bytes() {
            b"" | b"identity" => Ok(ContentCoding::Identity),
            b"gzip" | b"x-gzip" => Ok(ContentCoding::Gzip(Box::new(GzipBody {
                decoder: MultiGzDecoder::new(Vec::new()),
                empty: true,
            }))),
            _ => Err(SourceError::Unexpected(
                "a body in an encoding that the client does not support".into(),
            )),
        }
    }

    /// Passes on all bytes that can be decompressed so far, because the next bytes of a watch may come much later.
    fn decode(
        &mut self,
        bytes: &[u8],
        mut hand_on: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let gzip = match self {
            ContentCoding::Identity => return hand_on(bytes),
            ContentCoding::Gzip(gzip) => gzip,
        };
        for piece in bytes.chunks(INFLATE_BYTES) {
            gzip.empty = false;
            let written = gzip.decoder.write_all(piece);
            written
                .and_then(|()| gzip.decoder.flush())
                .map_err(|error| SourceError::transport(DamagedBody(error)))?;
            let plain = gzip.decoder.get_mut();
            hand_on(plain)?;
            plain.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        match self {
            ContentCoding::Gzip(gzip) if !gzip.empty => gzip
                .decoder
                .try_finish()
                .map_err(|error| SourceError::transport(DamagedBody(error))),
            _ => Ok(()),
        }
    }
}

/// Splits a body into pieces: objects or events.
pub(crate) trait BodySplitter: Unpin {
    type Piece: Unpin;
    type Batch;

    fn feed(&mut self, bytes: &[u8], pieces: &mut Vec<Self::Piece>) -> Result<(), SourceError>;
    fn batch(pieces: Vec<Self::Piece>) -> Self::Batch;
    /// The metadata that stands before the first piece. Returned once.
    fn begun(&mut self) -> Option<Self::Batch> {
        None
    }
    /// Ends a complete body.
    fn end(self) -> Result<Option<Self::Batch>, SourceError>;
}

impl BodySplitter for WatchSplitter {
    type Piece = WatchEvent;
    type Batch = Vec<WatchEvent>;

    fn feed(&mut self, bytes: &[u8], events: &mut Vec<WatchEvent>) -> Result<(), SourceError> {
        Ok(WatchSplitter::feed(self, bytes, |event| {
            events.push(event);
        })?)
    }

    fn batch(events: Vec<WatchEvent>) -> Vec<WatchEvent> {
        events
    }

    fn end(self) -> Result<Option<Vec<WatchEvent>>, SourceError> {
        self.finish()?;
        Ok(None)
    }
}

impl BodySplitter for ListSplitter {
    type Piece = Object;
    type Batch = ListPart;

    fn feed(&mut self, bytes: &[u8], items: &mut Vec<Object>) -> Result<(), SourceError> {
        Ok(ListSplitter::feed(self, bytes, |item| items.push(item))?)
    }

    fn batch(items: Vec<Object>) -> ListPart {
        ListPart::Items(items)
    }

    fn begun(&mut self) -> Option<ListPart> {
        self.head().map(|head| ListPart::Begin(head.metadata))
    }

    fn end(self) -> Result<Option<ListPart>, SourceError> {
        let envelope = self.finish()?;
        // Custom resources choose the kind of their lists, so only these two kinds are certainly not lists.
        let group = envelope.api_version.split('/').next().unwrap_or_default();
        match (group, &*envelope.kind) {
            ("meta.k8s.io", "Table") | ("v1", "Status") => Err(SourceError::Unexpected(format!(
                "a {} of {}",
                envelope.kind, envelope.api_version
            ))),
            _ => Ok(Some(ListPart::End(envelope.metadata))),
        }
    }
}

/// A body as a stream of batches: one for the pieces that each frame completes. Complete pieces come before an error; the stream
/// ends after an error.
pub(crate) struct BodyBatches<C: BodySplitter> {
    body: Body,
    coding: ContentCoding,
    /// `None` after the end or an error.
    cut: Option<C>,
    /// A batch to return before more of the body is read.
    waiting: Option<C::Batch>,
    failure: Option<SourceError>,
    silence: Option<SilenceTimer>,
}

/// Ends a body that sends nothing for [`SILENCE_MAX`].
struct SilenceTimer(Pin<Box<Sleep>>);

impl SilenceTimer {
    fn new() -> SilenceTimer {
        SilenceTimer(Box::pin(sleep(SILENCE_MAX)))
    }

    fn broken(&mut self) {
        self.0.as_mut().reset(Instant::now() + SILENCE_MAX);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        self.0.as_mut().poll(context).map(|()| SILENCE_MAX)
    }
}

impl<C: BodySplitter> BodyBatches<C> {
    /// The batches of a list.
    pub(crate) fn list(response: Response<Body>, cut: C) -> Result<Self, SourceError> {
        BodyBatches::new(response, cut, Some(SilenceTimer::new()))
    }

    /// The batches of a watch. Without a silence timer: the reflector has one.
    pub(crate) fn watch(response: Response<Body>, cut: C) -> Result<Self, SourceError> {
        BodyBatches::new(response, cut, None)
    }

    fn new(
        response: Response<Body>,
        cut: C,
        silence: Option<SilenceTimer>,
    ) -> Result<BodyBatches<C>, SourceError> {
        let coding = ContentCoding::of(response.headers())?;
        Ok(BodyBatches {
            body: response.into_body(),
            coding,
            cut: Some(cut),
            waiting: None,
            failure: None,
            silence,
        })
    }

    /// The bytes of the next frame; `None` at the end of the body.
    fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<bytes::Bytes, SourceError>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some(silence) = &mut self.silence else {
                    return Poll::Pending;
                };
                let longest = ready!(silence.poll(context));
                return Poll::Ready(Some(Err(SourceError::transport(TimedOut(longest)))));
            }
        };
        if let Some(silence) = &mut self.silence {
            silence.broken();
        }
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| SourceError::transport(BrokenBody(error)))?;
            // Trailers have no data.
            Ok(frame.into_data().unwrap_or_default())
        }))
    }

    fn fail(&mut self, error: SourceError) {
        self.cut = None;
        self.failure = Some(error);
    }

    fn end(&mut self) -> Option<Result<C::Batch, SourceError>> {
        let cut = self.cut.take()?;
        // First the splitter: a truncated object is the more useful error than a missing gzip checksum.
        let ended = cut.end();
        ended
            .and_then(|last| self.coding.finish().map(|()| last))
            .transpose()
    }
}

impl<C: BodySplitter> Stream for BodyBatches<C>
where
    C::Batch: Unpin,
{
    type Item = Result<C::Batch, SourceError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(batch) = this.waiting.take() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if let Some(error) = this.failure.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if this.cut.is_none() {
                return Poll::Ready(None);
            }
            let bytes = match ready!(this.poll_bytes(context)) {
                None => return Poll::Ready(this.end()),
                Some(Err(error)) => {
                    this.fail(error);
                    continue;
                }
                Some(Ok(bytes)) => bytes,
            };
            let mut pieces = Vec::new();
            if let Some(cut) = &mut this.cut {
                let decoded = this
                    .coding
                    .decode(&bytes, |plain| cut.feed(plain, &mut pieces));
                if let Err(error) = decoded {
                    this.fail(error);
                }
            }
            let begun = this.cut.as_mut().and_then(BodySplitter::begun);
            if !pieces.is_empty() {
                this.waiting = Some(C::batch(pieces));
            }
            if let Some(batch) = begun.or_else(|| this.waiting.take()) {
                return Poll::Ready(Some(Ok(batch)));
            }
        }
    }
}
