//! A lease in memory, and candidates that record their callbacks.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tidings_informer::BoxFuture;
use tidings_informer::leader::{
    ElectionEnd, ElectionOptions, LeaderCallbacks, LeaderElector, LeaseLock, LeaseRecord,
    LeaseVersion, LockError, StopSignal,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Holds the lease, and records the calls.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) lease: Mutex<Option<(LeaseRecord, u64)>>,
    calls: Mutex<Vec<(Instant, String)>>,
}

impl Board {
    pub(crate) fn record(&self) -> LeaseRecord {
        self.lease.lock().unwrap().clone().unwrap().0
    }

    /// Writes the lease as another candidate.
    pub(crate) fn put(&self, record: LeaseRecord) {
        let mut lease = self.lease.lock().unwrap();
        let version = lease.as_ref().map_or(0, |(_, version)| *version);
        *lease = Some((record, version + 1));
    }

    fn update(&self, record: LeaseRecord, version: &str) -> Result<LeaseVersion, LockError> {
        match &mut *self.lease.lock().unwrap() {
            Some((old, current)) if current.to_string() == version => {
                *old = record;
                *current += 1;
                Ok(current.to_string())
            }
            _ => Err(LockError::Conflict),
        }
    }

    /// Changes a label of the lease: a new version with an equal record.
    pub(crate) fn touch(&self) {
        self.put(self.record());
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push((Instant::now(), call));
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|(_, call)| call.clone()).collect()
    }

    pub(crate) fn clear_calls(&self) {
        self.calls.lock().unwrap().clear();
    }

    /// The times between calls.
    pub(crate) fn gaps(&self, call: &str) -> Vec<Duration> {
        let calls = self.calls.lock().unwrap();
        let calls: Vec<_> = calls.iter().filter(|(_, name)| name == call).collect();
        calls.windows(2).map(|two| two[1].0 - two[0].0).collect()
    }
}

/// A candidate's lock, with faults.
pub(crate) struct MemoryLock {
    pub(crate) identity: &'static str,
    board: Arc<Board>,
    /// Every call fails.
    pub(crate) down: AtomicBool,
    /// No call is answered.
    pub(crate) hangs: AtomicBool,
    /// The next update is done but its answer is lost after five seconds; later updates are not done.
    pub(crate) loses_answer: AtomicBool,
    no_updates: AtomicBool,
}

impl MemoryLock {
    async fn call(&self, name: &str) -> Result<(), LockError> {
        let call = format!("{} {name}", self.identity);
        self.board.note(call);
        if self.hangs.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(LockError::failed("down"));
        }
        Ok(())
    }
}

impl LeaseLock for MemoryLock {
    fn identity(&self) -> &str {
        self.identity
    }

    fn get(&self) -> BoxFuture<'_, Result<Option<(LeaseRecord, LeaseVersion)>, LockError>> {
        Box::pin(async move {
            self.call("get").await?;
            let lease = self.board.lease.lock().unwrap().clone();
            Ok(lease.map(|(record, version)| (record, version.to_string())))
        })
    }

    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<LeaseVersion, LockError>> {
        Box::pin(async move {
            self.call("create").await?;
            let mut lease = self.board.lease.lock().unwrap();
            if lease.is_some() {
                return Err(LockError::Conflict);
            }
            *lease = Some((record, 1));
            Ok("1".to_owned())
        })
    }

    fn update(
        &self,
        record: LeaseRecord,
        version: LeaseVersion,
    ) -> BoxFuture<'_, Result<LeaseVersion, LockError>> {
        Box::pin(async move {
            self.call("update").await?;
            if self.no_updates.load(Ordering::SeqCst) {
                return Err(LockError::failed("read only"));
            }
            let written = self.board.update(record, &version);
            if self.loses_answer.load(Ordering::SeqCst) {
                self.no_updates.store(true, Ordering::SeqCst);
                sleep(seconds(5)).await;
                return Err(LockError::failed("no answer"));
            }
            written
        })
    }
}

/// Records the callbacks of a candidate and the end of its work.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, word: &str) {
        self.0.lock().unwrap().push(word.to_owned());
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Records the end of the work when it is dropped. The lease must still be held then.
struct LeaderWork {
    diary: Diary,
    board: Arc<Board>,
}

impl Drop for LeaderWork {
    fn drop(&mut self) {
        if self.board.record().holder.is_empty() {
            self.diary.note("the lease was released before");
        }
        self.diary.note("work ended");
    }
}

/// How the leader's work behaves.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// Ends this long after it is asked to.
    Ends(Duration),
    /// Does not end when it is asked to.
    Stays,
    /// Ends by itself.
    EndsItself(Duration),
    Panics(Duration),
}

struct DiaryCallbacks {
    diary: Diary,
    manner: Manner,
    board: Arc<Board>,
}

impl LeaderCallbacks for DiaryCallbacks {
    fn on_started_leading(&mut self, stop: StopSignal) -> BoxFuture<'static, ()> {
        self.diary.note("started");
        let working = LeaderWork {
            diary: self.diary.clone(),
            board: Arc::clone(&self.board),
        };
        let manner = self.manner;
        Box::pin(async move {
            let asked = async {
                stop.wait().await;
                assert!(stop.is_raised());
                working.diary.note("asked");
            };
            match manner {
                Manner::Ends(after) => {
                    asked.await;
                    sleep(after).await;
                }
                Manner::Stays => {
                    asked.await;
                    pending::<()>().await;
                }
                Manner::EndsItself(after) => sleep(after).await,
                Manner::Panics(after) => {
                    sleep(after).await;
                    panic!("the work panics");
                }
            }
        })
    }

    fn on_stopped_leading(&mut self) {
        // Records the holder at this moment, to check the order of release and callback.
        let lease = self.board.lease.lock().unwrap();
        let holder = lease.as_ref().map_or("", |(record, _)| &record.holder);
        let holder = if holder.is_empty() { "nobody" } else { holder };
        self.diary.note(&format!("stopped, held by {holder}"));
    }

    fn on_new_leader(&mut self, identity: &str) {
        self.diary.note(&format!("new {identity}"));
    }
}

pub(crate) struct Stand {
    pub(crate) lock: Arc<MemoryLock>,
    pub(crate) diary: Diary,
    pub(crate) board: Arc<Board>,
    pub(crate) options: ElectionOptions,
    pub(crate) manner: Manner,
}

pub(crate) fn stand(identity: &'static str, board: &Arc<Board>) -> Stand {
    Stand {
        lock: Arc::new(MemoryLock {
            identity,
            board: Arc::clone(board),
            down: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            loses_answer: AtomicBool::new(false),
            no_updates: AtomicBool::new(false),
        }),
        diary: Diary::default(),
        board: Arc::clone(board),
        options: ElectionOptions::default().seed(7),
        manner: Manner::Ends(Duration::ZERO),
    }
}

impl Stand {
    fn candidate(&self) -> (LeaderElector<MemoryLock>, DiaryCallbacks) {
        let lock = Arc::clone(&self.lock);
        let elector = LeaderElector::new(lock, self.options.clone()).unwrap();
        let callbacks = DiaryCallbacks {
            diary: self.diary.clone(),
            manner: self.manner,
            board: Arc::clone(&self.board),
        };
        (elector, callbacks)
    }

    pub(crate) fn run(
        &self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ElectionEnd> + Send + 'static {
        let (elector, callbacks) = self.candidate();
        elector.run(callbacks, stop)
    }

    pub(crate) fn run_until_stopped(
        &self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (elector, callbacks) = self.candidate();
        elector.run_until_stopped(callbacks, stop)
    }

    pub(crate) fn spawn(&self) -> JoinHandle<ElectionEnd> {
        tokio::spawn(self.run(pending()))
    }

    pub(crate) fn leads(&self) -> bool {
        let words = self.diary.words();
        let count = |wanted| words.iter().filter(|word| *word == wanted).count();
        count("started") > count("work ended")
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A lease held by a candidate whose clock is far off.
pub(crate) fn held_by(holder: &str, renewals: u64) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        lease_duration_seconds: 15,
        acquire_time: SystemTime::UNIX_EPOCH,
        renew_time: SystemTime::UNIX_EPOCH + seconds(renewals),
        transitions: 4,
    }
}
