//! Tests the log under many thread schedules: `cargo test -p tidings-informer --features shuttle --lib`.

use std::collections::BTreeMap;
use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;
use tidings_api::{Object, ObjectKey};

use super::log::{EventLog, LogOptions, Overflow};
use super::subscription::{HandlerOptions, Subscription};
use crate::event::Event;
use crate::object::{Cached, Decode};
use crate::store::{Indexer, StoreWrite};

fn cached(name: &str, version: u64) -> Arc<Cached<Object>> {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}}}}"#
    );
    let object = Object::parse(json).unwrap();
    Cached::new(&object, &Decode::bytes()).unwrap()
}

/// The objects and versions that a subscriber knows when the log has ended.
fn replay(mut subscription: Subscription<Object>) -> BTreeMap<String, u64> {
    let mut known = BTreeMap::new();
    while let Some(event) = block_on(subscription.next()) {
        match event {
            Event::Added { object, .. } => {
                let before = known.insert(object.name().to_owned(), object.version());
                assert!(before.is_none(), "{object:?} was added twice");
            }
            Event::Updated { old, new } => {
                let before = known.insert(new.name().to_owned(), new.version());
                assert_eq!(before, Some(old.version()));
            }
            Event::Deleted { last, .. } => {
                assert!(
                    known.remove(last.name()).is_some(),
                    "{last:?} was not there"
                );
            }
            Event::Resync { .. } | Event::Synced => {}
        }
    }
    known
}

/// A writer with a log of one event, a subscriber from the start, one that subscribes at any time, one that blocks the writer,
/// and one that unsubscribes. Shuttle reports a lost wake-up as a deadlock.
#[test]
fn b83_subscribers_that_come_at_any_time_replay_to_the_last_state() {
    shuttle::check_random(
        || {
            let indexer: Arc<Indexer<Object>> = Arc::default();
            let log = EventLog::new(LogOptions::new(1, usize::MAX), indexer.snapshot());
            let subscribe = |overflow| {
                let options = HandlerOptions::default().overflow(overflow);
                Subscription::new(log.clone(), &options)
            };
            let first = subscribe(Overflow::Coalesce);
            let blocking = subscribe(Overflow::Block);
            let leaving = subscribe(Overflow::Block);
            let writer = {
                let (log, indexer) = (log.clone(), Arc::clone(&indexer));
                thread::spawn(move || {
                    indexer.put(cached("a", 1));
                    log.append(Vec::new(), true, indexer.snapshot());
                    for version in 2..=5 {
                        block_on(std::future::poll_fn(|context| log.poll_room(context)));
                        let write = if version == 4 {
                            StoreWrite::Delete(ObjectKey::new("", "a"))
                        } else {
                            StoreWrite::Put(cached(["a", "b"][version as usize % 2], version))
                        };
                        let (applied, _) = indexer.write(vec![write], None);
                        let events =
                            applied
                                .into_iter()
                                .map(|change| match (change.old, change.new) {
                                    (Some(old), Some(new)) => Event::Updated { old, new },
                                    (None, Some(object)) => Event::Added {
                                        object,
                                        initial: false,
                                    },
                                    (Some(last), None) => Event::Deleted {
                                        last,
                                        final_state_known: true,
                                    },
                                    (None, None) => unreachable!(),
                                });
                        log.append(events.collect(), false, indexer.snapshot());
                    }
                    log.close();
                })
            };
            let late = {
                let log = log.clone();
                thread::spawn(move || replay(Subscription::new(log, &HandlerOptions::default())))
            };
            let goes = thread::spawn(move || drop(leaving));
            let readers =
                [first, blocking].map(|subscription| thread::spawn(move || replay(subscription)));
            writer.join().unwrap();
            goes.join().unwrap();
            let last: BTreeMap<String, u64> = indexer
                .list()
                .iter()
                .map(|object| (object.name().to_owned(), object.version()))
                .collect();
            assert_eq!(late.join().unwrap(), last);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), last);
            }
            assert_eq!(log.size(), (0, 0), "nothing is left behind");
        },
        2000,
    );
}
