//! Bodies become objects while they arrive.

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
use tidings_api::{ListSplitter, Object, SplitError, SplitOptions, WatchEvent, WatchSplitter};
use tidings_informer::{ListPart, SourceError};
use tokio::time::{Instant, Sleep, sleep};

use crate::client::SILENCE_MAX;
use crate::failure::{BrokenOff, Damaged, TimedOut};

/// How much is decompressed at once. Gzip makes at most a thousand bytes of one, so this bounds what a frame can become before
/// it is looked at.
const INFLATE_BYTES: usize = 4 << 10;

enum Coding {
    Identity,
    /// A server may send a member for each piece of a watch, so there is more than one.
    Gzip(Box<Gzip>),
}

struct Gzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    empty: bool,
}

impl Coding {
    /// What the server chose, whether it was asked to or not.
    fn of(headers: &HeaderMap) -> Result<Coding, SourceError> {
        let Some(coding) = headers.get(CONTENT_ENCODING) else {
            return Ok(Coding::Identity);
        };
        match coding.as_bytes() {
            b"" | b"identity" => Ok(Coding::Identity),
            b"gzip" | b"x-gzip" => Ok(Coding::Gzip(Box::new(Gzip {
                decoder: MultiGzDecoder::new(Vec::new()),
                empty: true,
            }))),
            _ => Err(SourceError::Unexpected(
                "a body in an encoding that was not asked for".into(),
            )),
        }
    }

    /// Hands on everything that can be known from the bytes so far: the next may be long in coming.
    fn decode(
        &mut self,
        bytes: &[u8],
        mut hand_on: impl FnMut(&[u8]) -> Result<(), SplitError>,
    ) -> Result<(), SourceError> {
        let gzip = match self {
            Coding::Identity => return Ok(hand_on(bytes)?),
            Coding::Gzip(gzip) => gzip,
        };
        for piece in bytes.chunks(INFLATE_BYTES) {
            gzip.empty = false;
            let written = gzip.decoder.write_all(piece);
            written
                .and_then(|()| gzip.decoder.flush())
                .map_err(|error| SourceError::transport(Damaged(error)))?;
            let plain = gzip.decoder.get_mut();
            hand_on(plain)?;
            plain.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        match self {
            Coding::Gzip(gzip) if !gzip.empty => gzip
                .decoder
                .try_finish()
                .map_err(|error| SourceError::transport(Damaged(error))),
            _ => Ok(()),
        }
    }
}

/// What a body is cut into.
pub(crate) trait Cut: Unpin {
    type Piece: Unpin;
    type Batch;

    fn feed(&mut self, bytes: &[u8], pieces: &mut Vec<Self::Piece>) -> Result<(), SplitError>;
    fn batch(pieces: Vec<Self::Piece>) -> Self::Batch;
    /// What is known before the first piece, once.
    fn begun(&mut self) -> Option<Self::Batch> {
        None
    }
    /// The body is complete.
    fn end(self) -> Result<Option<Self::Batch>, SourceError>;
}

impl Cut for WatchSplitter {
    type Piece = WatchEvent;
    type Batch = Vec<WatchEvent>;

    fn feed(&mut self, bytes: &[u8], events: &mut Vec<WatchEvent>) -> Result<(), SplitError> {
        WatchSplitter::feed(self, bytes, |event| events.push(event))
    }

    fn batch(events: Vec<WatchEvent>) -> Vec<WatchEvent> {
        events
    }

    fn end(self) -> Result<Option<Vec<WatchEvent>>, SourceError> {
        self.finish()?;
        Ok(None)
    }
}

impl Cut for ListSplitter {
    type Piece = Object;
    type Batch = ListPart;

    fn feed(&mut self, bytes: &[u8], items: &mut Vec<Object>) -> Result<(), SplitError> {
        ListSplitter::feed(self, bytes, |item| items.push(item))
    }

    fn batch(items: Vec<Object>) -> ListPart {
        ListPart::Items(items)
    }

    fn begun(&mut self) -> Option<ListPart> {
        self.head().map(|head| ListPart::Begin(head.metadata))
    }

    fn end(self) -> Result<Option<ListPart>, SourceError> {
        let envelope = self.finish()?;
        // A custom resource may call its list whatever it likes; these two are never one.
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

/// A body as batches: what each of its frames completes. After an error nothing follows; what was complete before it comes
/// first.
pub(crate) struct Batches<C: Cut> {
    body: Body,
    coding: Coding,
    /// None when it is over.
    cut: Option<C>,
    /// What comes before anything else.
    waiting: Option<C::Batch>,
    failure: Option<SourceError>,
    silence: Option<Silence>,
}

/// Gives up on a body of which nothing comes.
struct Silence(Pin<Box<Sleep>>);

impl Silence {
    fn new() -> Silence {
        Silence(Box::pin(sleep(SILENCE_MAX)))
    }

    fn broken(&mut self) {
        self.0.as_mut().reset(Instant::now() + SILENCE_MAX);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        self.0.as_mut().poll(context).map(|()| SILENCE_MAX)
    }
}

impl Batches<ListSplitter> {
    pub(crate) fn list(
        response: Response<Body>,
        options: SplitOptions,
    ) -> Result<Self, SourceError> {
        let silence = Some(Silence::new());
        Batches::new(response, ListSplitter::new(options), silence)
    }
}

impl Batches<WatchSplitter> {
    /// How long a watch may be silent is the reflector's business.
    pub(crate) fn watch(
        response: Response<Body>,
        options: SplitOptions,
    ) -> Result<Self, SourceError> {
        Batches::new(response, WatchSplitter::new(options), None)
    }
}

impl<C: Cut> Batches<C> {
    fn new(
        response: Response<Body>,
        cut: C,
        silence: Option<Silence>,
    ) -> Result<Batches<C>, SourceError> {
        let coding = Coding::of(response.headers())?;
        Ok(Batches {
            body: response.into_body(),
            coding,
            cut: Some(cut),
            waiting: None,
            failure: None,
            silence,
        })
    }

    /// The next frame's bytes; None at the end of the body.
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
            let frame = frame.map_err(|error| SourceError::transport(BrokenOff(error)))?;
            // Trailers say nothing about objects.
            Ok(frame.into_data().unwrap_or_default())
        }))
    }

    fn fail(&mut self, error: SourceError) {
        self.cut = None;
        self.failure = Some(error);
    }

    fn end(&mut self) -> Option<Result<C::Batch, SourceError>> {
        let cut = self.cut.take()?;
        // Whether an object breaks off is worth more to know than that a checksum is missing.
        let ended = cut.end();
        ended
            .and_then(|last| self.coding.finish().map(|()| last))
            .transpose()
    }
}

impl<C: Cut> Stream for Batches<C>
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
            let begun = this.cut.as_mut().and_then(Cut::begun);
            if !pieces.is_empty() {
                this.waiting = Some(C::batch(pieces));
            }
            if let Some(batch) = begun.or_else(|| this.waiting.take()) {
                return Poll::Ready(Some(Ok(batch)));
            }
        }
    }
}
