//! Tests the queues under many thread schedules: `cargo test -p tidings-informer --features shuttle --test shuttle`.

#![cfg(feature = "shuttle")]

use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use shuttle::sync::{Arc, Mutex};
use shuttle::{future::block_on, thread};
use tidings_api::Object;
use tidings_informer::workqueue::WorkQueue;
use tidings_informer::{Cached, Decode, Delta, DeltaFifo};

fn cached(name: &str, version: u64) -> std::sync::Arc<Cached<Object>> {
    let json = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
    Cached::new(&Object::parse(json).unwrap(), &Decode::bytes()).unwrap()
}

const ITEMS: usize = 3;
const WORKERS: usize = 3;

/// For each item how often it was added, and how many of these adds a worker had seen when it began.
struct Record {
    busy: [AtomicU32; ITEMS],
    added: [AtomicU32; ITEMS],
    seen: [AtomicU32; ITEMS],
    runs: [AtomicU32; ITEMS],
}

impl Record {
    fn new() -> Arc<Record> {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Record {
            busy: zeros(),
            added: zeros(),
            seen: zeros(),
            runs: zeros(),
        })
    }

    fn add(&self, queue: &WorkQueue<usize>, item: usize) {
        self.added[item].fetch_add(1, SeqCst);
        queue.add(item);
    }

    fn work(&self, item: usize) {
        assert_eq!(
            self.busy[item].fetch_add(1, SeqCst),
            0,
            "two workers have {item}"
        );
        self.seen[item].store(self.added[item].load(SeqCst), SeqCst);
        self.runs[item].fetch_add(1, SeqCst);
        thread::yield_now();
        self.busy[item].fetch_sub(1, SeqCst);
    }
}

/// Workers wait in `get`; producers add and re-add; one shuts down with a drain. Shuttle reports a lost wake-up as a deadlock.
#[test]
fn b111_exclusion_and_no_loss_under_many_interleavings() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let record = Record::new();
            let workers: Vec<_> = (0..WORKERS)
                .map(|_| {
                    let (queue, record) = (queue.clone(), Arc::clone(&record));
                    thread::spawn(move || {
                        while let Some(lease) = block_on(queue.get()) {
                            record.work(*lease);
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..2)
                .map(|producer| {
                    let (queue, record) = (queue.clone(), Arc::clone(&record));
                    thread::spawn(move || {
                        for number in 0..4 {
                            record.add(&queue, (number + producer) % ITEMS);
                        }
                    })
                })
                .collect();
            for producer in producers {
                producer.join().unwrap();
            }
            assert!(block_on(queue.shut_down_with_drain()).is_empty());
            assert!(
                record.busy.iter().all(|busy| busy.load(SeqCst) == 0),
                "drained"
            );
            for worker in workers {
                worker.join().unwrap();
            }
            for item in 0..ITEMS {
                let added = record.added[item].load(SeqCst);
                assert_eq!(
                    record.seen[item].load(SeqCst),
                    added,
                    "the last add was seen"
                );
                assert!((1..=added).contains(&record.runs[item].load(SeqCst)));
            }
        },
        3000,
    );
}

/// An item that is added while its worker has it runs exactly once more, however often it is added.
#[test]
fn b111_added_while_processing_runs_exactly_once_more_under_many_interleavings() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            queue.add(0);
            let lease = block_on(queue.get()).unwrap();
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    let queue = queue.clone();
                    thread::spawn(move || {
                        queue.add(0);
                        queue.add(0);
                    })
                })
                .collect();
            let runs = Arc::new(AtomicU32::new(0));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, runs) = (queue.clone(), Arc::clone(&runs));
                    thread::spawn(move || {
                        while let Some(lease) = block_on(queue.get()) {
                            runs.fetch_add(1, SeqCst);
                            drop(lease);
                        }
                    })
                })
                .collect();
            for adder in adders {
                adder.join().unwrap();
            }
            assert_eq!(runs.load(SeqCst), 0, "another worker has it");
            queue.shut_down();
            drop(lease);
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(runs.load(SeqCst), 1);
        },
        3000,
    );
}

/// Workers that drop their wait at any moment lose no wake-up.
#[test]
fn a_dropped_get_loses_no_wake_up_under_many_interleavings() {
    shuttle::check_random(
        || {
            let queue: WorkQueue<usize> = WorkQueue::new();
            let taken = Arc::new(Mutex::new(Vec::new()));
            let fickle = {
                let (queue, taken) = (queue.clone(), Arc::clone(&taken));
                thread::spawn(move || {
                    for _ in 0..3 {
                        let once = async {
                            let mut get = Box::pin(queue.get());
                            let mut polls = 0;
                            std::future::poll_fn(move |context| match get.as_mut().poll(context) {
                                std::task::Poll::Pending if polls < 1 => {
                                    polls += 1;
                                    context.waker().wake_by_ref();
                                    std::task::Poll::Pending
                                }
                                std::task::Poll::Pending => std::task::Poll::Ready(None),
                                ready => ready,
                            })
                            .await
                        };
                        let lease = block_on(once);
                        taken.lock().unwrap().extend(lease.map(|lease| *lease));
                    }
                })
            };
            let steady = {
                let (queue, taken) = (queue.clone(), Arc::clone(&taken));
                thread::spawn(move || {
                    while let Some(lease) = block_on(queue.get()) {
                        taken.lock().unwrap().push(*lease);
                    }
                })
            };
            for item in 0..ITEMS {
                queue.add(item);
            }
            // Nothing else wakes the other worker: if a wake-up was lost, this loop never ends, which shuttle reports.
            fickle.join().unwrap();
            while !queue.is_empty() {
                thread::yield_now();
            }
            queue.shut_down();
            steady.join().unwrap();
            let mut taken = taken.lock().unwrap().clone();
            taken.sort_unstable();
            assert_eq!(taken, [0, 1, 2]);
        },
        3000,
    );
}

/// A producer that is faster than the consumer, with a budget of zero: the last delta of each key must come out.
#[test]
fn deltas_are_handed_out_in_order_and_the_last_of_each_key_is_not_lost() {
    shuttle::check_random(
        || {
            let queue: DeltaFifo<Object> = DeltaFifo::new(0);
            let producer = {
                let queue = queue.clone();
                thread::spawn(move || {
                    for version in 1..=6 {
                        queue.push(Delta::Updated(cached(
                            ["a", "b"][version as usize % 2],
                            version,
                        )));
                    }
                    queue.close();
                })
            };
            let mut versions = Vec::new();
            while let Some(batch) = block_on(queue.pop_batch()) {
                for delta in batch.deltas {
                    if let Delta::Updated(object) = delta {
                        versions.push(object.version());
                    }
                }
            }
            producer.join().unwrap();
            assert!(
                versions.windows(2).all(|pair| pair[0] < pair[1]),
                "{versions:?}"
            );
            assert_eq!(versions[versions.len() - 2..], [5, 6]);
        },
        1000,
    );
}
