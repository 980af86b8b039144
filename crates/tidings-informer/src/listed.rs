//! The objects of a list, which several threads decode.

use std::sync::Arc;

use tidings_api::{Object, ObjectKey};

use crate::object::{Cached, DecodeError, Decoder, Uid};
use crate::ordered_work::OrderedWork;

/// An event of a list, before and after its object is decoded.
pub(crate) enum Listed<K> {
    /// The store has the object in this version.
    Known(Arc<Cached<K>>),
    /// The object of an own write, decoded already.
    New(Arc<Cached<K>>),
    Undecoded {
        /// `None` if decoding it has panicked.
        object: Option<Object>,
        key: ObjectKey,
        version: u64,
        uid: Uid,
    },
    Decoded {
        key: ObjectKey,
        version: u64,
        uid: Uid,
        decoded: Result<Arc<Cached<K>>, DecodeError>,
    },
    /// An object that is known not to be decodable.
    Unreadable {
        key: ObjectKey,
        uid: Uid,
    },
    Deleted(ObjectKey),
}

impl<K: 'static> Listed<K> {
    pub(crate) fn decode(&mut self, decoder: &Decoder<K>) {
        let Listed::Undecoded {
            object,
            key,
            version,
            uid,
        } = self
        else {
            return;
        };
        let Some(object) = object.take() else {
            return;
        };
        *self = Listed::Decoded {
            decoded: decoder.decode(object, key.clone()),
            key: key.clone(),
            version: *version,
            uid: *uid,
        };
    }
}

/// The part of a list that several threads are decoding.
pub(crate) struct DecodingList<K> {
    work: OrderedWork<Vec<Listed<K>>>,
    batch: Vec<Listed<K>>,
    /// The size of the objects in `batch`.
    bytes: usize,
    batch_bytes: usize,
}

/// The size of the objects that a thread decodes at a time: about a millisecond of work.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// The most objects of a batch: the store may have most of them already.
const BATCH_OBJECTS: usize = 1024;

impl<K: Send + Sync + 'static> DecodingList<K> {
    /// `None` if other threads cannot help, or decoding is too cheap to be shared.
    pub(crate) fn new(decoder: &Decoder<K>, batch_bytes: usize) -> Option<DecodingList<K>> {
        let helpers = OrderedWork::<Vec<Listed<K>>>::helpers();
        if helpers == 0 || decoder.is_cheap() {
            return None;
        }
        let decoder = decoder.clone();
        let work = OrderedWork::new(helpers, move |batch: &mut Vec<Listed<K>>| {
            for listed in batch {
                listed.decode(&decoder);
            }
        });
        Some(DecodingList {
            work,
            batch: Vec::new(),
            bytes: 0,
            batch_bytes,
        })
    }

    pub(crate) fn push(&mut self, listed: Listed<K>) {
        if let Listed::Undecoded {
            object: Some(object),
            ..
        } = &listed
        {
            self.bytes += object.as_bytes().len();
        }
        self.batch.push(listed);
        if self.bytes >= self.batch_bytes || self.batch.len() >= BATCH_OBJECTS {
            self.send();
        }
    }

    pub(crate) fn send(&mut self) {
        self.bytes = 0;
        self.work.push(std::mem::take(&mut self.batch));
    }

    pub(crate) fn next(&mut self, ended: bool) -> Option<Vec<Listed<K>>> {
        match ended {
            true => self.work.finish_one(),
            false => self.work.pop(),
        }
    }
}
