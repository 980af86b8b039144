//! Compares engines for the store: durable writes in groups, and opening what was written.
//!
//! Every engine keeps records by a growing revision. Writers wait for their write; one thread commits all that wait with one
//! sync. Run it with `cargo run --release`.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use fjall::{CompressionType, Database, KeyspaceCreateOptions, PersistMode};
use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};
use tidings_storage::{Embedded, EmbeddedOptions, Storage, Write};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("records");
const RECORD_BYTES: usize = 1500;
const TIME: Duration = Duration::from_secs(3);
const RECOVERED: u64 = 100_000;

/// Something that keeps records durably, by revision.
trait Engine: Send {
    fn commit(&mut self, first: u64, records: &[Vec<u8>]);
}

struct Redb(redb::Database);

impl Redb {
    fn open(path: &Path) -> Redb {
        Redb(
            redb::Builder::new()
                .set_cache_size(16 << 20)
                .create(path.join("redb"))
                .expect("open"),
        )
    }
}

impl Engine for Redb {
    fn commit(&mut self, first: u64, records: &[Vec<u8>]) {
        let mut transaction = self.0.begin_write().expect("begin");
        transaction
            .set_durability(Durability::Immediate)
            .expect("durability");
        {
            let mut table = transaction.open_table(TABLE).expect("table");
            for (revision, record) in (first..).zip(records) {
                table.insert(revision, record.as_slice()).expect("insert");
            }
        }
        transaction.commit().expect("commit");
    }
}

struct Fjall(Database, fjall::Keyspace);

impl Fjall {
    fn open(path: &Path) -> Fjall {
        let database = Database::builder(path)
            .cache_size(8 << 20)
            .worker_threads(1)
            .journal_compression(CompressionType::None)
            .open()
            .expect("open");
        let records = database
            .keyspace("records", KeyspaceCreateOptions::default)
            .expect("keyspace");
        Fjall(database, records)
    }
}

impl Engine for Fjall {
    fn commit(&mut self, first: u64, records: &[Vec<u8>]) {
        let mut batch = self.0.batch().durability(Some(PersistMode::SyncData));
        for (revision, record) in (first..).zip(records) {
            batch.insert(&self.1, revision.to_be_bytes(), record.as_slice());
        }
        batch.commit().expect("commit");
    }
}

type Request = (Vec<u8>, SyncSender<()>);

/// Commits all that wait, up to 512 at once.
fn committer(mut engine: impl Engine, requests: &Receiver<Request>) {
    let mut revision = 1;
    while let Ok(first) = requests.recv() {
        let rest = std::iter::from_fn(|| requests.try_recv().ok());
        let (records, answers): (Vec<_>, Vec<_>) =
            std::iter::once(first).chain(rest.take(511)).unzip();
        engine.commit(revision, &records);
        revision += records.len() as u64;
        for answer in answers {
            let _ = answer.send(());
        }
    }
}

/// Runs writers in a closed loop and returns how many writes they got done in a second.
fn rate(writers: usize, write: impl Fn(usize, u64) + Send + Sync + 'static) -> f64 {
    let write = Arc::new(write);
    let started = Instant::now();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let write = write.clone();
            std::thread::spawn(move || {
                let mut count = 0;
                while started.elapsed() < TIME {
                    write(writer, count);
                    count += 1;
                }
                count
            })
        })
        .collect();
    let count: u64 = threads
        .into_iter()
        .map(|thread| thread.join().expect("writer"))
        .sum();
    count as f64 / started.elapsed().as_secs_f64()
}

fn rate_of(engine: impl Engine + 'static, writers: usize) -> f64 {
    let (sender, requests): (Sender<Request>, _) = channel();
    let committing = std::thread::spawn(move || committer(engine, &requests));
    let rate = rate(writers, move |_, _| {
        let (answer, done) = sync_channel(1);
        sender
            .send((vec![b'x'; RECORD_BYTES], answer))
            .expect("send");
        done.recv().expect("answer");
    });
    committing.join().expect("committer");
    rate
}

fn rate_of_tidings(store: Embedded, writers: usize) -> f64 {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime")
    };
    thread_local!(static RUNTIME: std::cell::OnceCell<tokio::runtime::Runtime> = const { std::cell::OnceCell::new() });
    let store = Arc::new(store);
    rate(writers, move |writer, count| {
        let write = Write::create(format!("key/{writer}/{count}"), vec![b'x'; RECORD_BYTES]);
        RUNTIME.with(|cell| {
            cell.get_or_init(runtime)
                .block_on(store.write(write))
                .expect("write")
        });
    })
}

fn batches() -> impl Iterator<Item = (u64, Vec<Vec<u8>>)> {
    (1..=RECOVERED)
        .step_by(500)
        .map(|first| (first, vec![vec![b'x'; RECORD_BYTES]; 500]))
}

fn main() {
    let new = || tempfile::tempdir_in(".").expect("directory");
    for writers in [1, 16, 256] {
        let (a, b, c) = (new(), new(), new());
        let redb = rate_of(Redb::open(a.path()), writers);
        let fjall = rate_of(Fjall::open(b.path()), writers);
        let store = Embedded::open(c.path(), EmbeddedOptions::default()).expect("open");
        let tidings = rate_of_tidings(store, writers);
        println!(
            "durable writes/s, {writers} writers: redb {redb:.0}, fjall {fjall:.0}, tidings {tidings:.0}"
        );
    }
    let (a, b, c) = (new(), new(), new());
    let (mut redb, mut fjall) = (Redb::open(a.path()), Fjall::open(b.path()));
    for (first, records) in batches() {
        redb.commit(first, &records);
        fjall.commit(first, &records);
    }
    drop((redb, fjall));
    {
        let store = Embedded::open(c.path(), EmbeddedOptions::default()).expect("open");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime");
        runtime.block_on(async {
            for first in (0..RECOVERED).step_by(500) {
                let key = |number: u64| format!("key/{number}");
                let writes: Vec<_> = (first..first + 500)
                    .map(|n| store.write(Write::create(key(n), vec![b'x'; RECORD_BYTES])))
                    .collect();
                for write in writes {
                    write.await.expect("write");
                }
            }
        });
    }
    let started = Instant::now();
    let database = Redb::open(a.path()).0;
    let reading = database.begin_read().expect("read");
    let bytes: usize = reading
        .open_table(TABLE)
        .expect("table")
        .iter()
        .expect("scan")
        .map(|entry| entry.expect("record").1.value().len())
        .sum();
    println!(
        "open and read {RECOVERED} records: redb {:.0} ms ({bytes} bytes)",
        started.elapsed().as_secs_f64() * 1e3
    );
    let started = Instant::now();
    let bytes: usize = Fjall::open(b.path())
        .1
        .iter()
        .map(|entry| entry.into_inner().expect("record").1.len())
        .sum();
    println!(
        "open and read {RECOVERED} records: fjall {:.0} ms ({bytes} bytes)",
        started.elapsed().as_secs_f64() * 1e3
    );
    let started = Instant::now();
    let store = Embedded::open(c.path(), EmbeddedOptions::default()).expect("open");
    println!(
        "open and read {} records: tidings {:.0} ms",
        store.stats().keys,
        started.elapsed().as_secs_f64() * 1e3
    );
}
