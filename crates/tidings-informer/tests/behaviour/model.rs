//! Random histories on a simulated server with random faults, and handlers that are added and removed. At the end every store
//! must equal the server, and the events of each handler must replay to the store. A failure names its seed; `TIDINGS_SEED=n`
//! runs only that seed, `TIDINGS_SEEDS=n` runs n seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use tidings_api::{Object, Status};
use tidings_informer::*;

use crate::support::server::{Fault, Server};
use crate::support::*;

/// A handler that checks every event against the objects that it knows.
struct Follower {
    subscription: Subscription<Object>,
    known: BTreeMap<String, (u64, Uid)>,
    synced: bool,
    name: String,
    /// Events that it takes in one turn.
    pace: usize,
    went_back: bool,
}

impl Follower {
    fn take(&mut self, event: Event<Object>) {
        let name = &self.name;
        match event {
            Event::Added { object, initial } => {
                assert_eq!(
                    initial, !self.synced,
                    "{name}: initial means before synced, {object:?}"
                );
                let state = (object.version(), object.uid());
                let before = self.known.insert(object.key().to_string(), state);
                assert!(before.is_none(), "{name}: {object:?} was added twice");
            }
            Event::Updated { old, new } => {
                assert_eq!(old.uid(), new.uid(), "{name}: an update is of one object");
                let before = self
                    .known
                    .insert(new.key().to_string(), (new.version(), new.uid()));
                assert_eq!(
                    before,
                    Some((old.version(), old.uid())),
                    "{name}: {new:?} updates what it was told"
                );
                assert!(
                    new.version() > old.version() || self.went_back,
                    "{name}: {new:?} goes back from {old:?}"
                );
            }
            Event::Deleted {
                last,
                final_state_known,
            } => {
                let before = self.known.remove(last.key().as_str());
                let (version, uid) =
                    before.unwrap_or_else(|| panic!("{name}: {last:?} was not there"));
                assert_eq!(uid, last.uid(), "{name}: {last:?} is another object");
                if !final_state_known {
                    assert_eq!(
                        version,
                        last.version(),
                        "{name}: {last:?} is what it was told last"
                    );
                }
            }
            Event::Resync { object } => {
                let known = self.known.get(object.key().as_str());
                assert_eq!(
                    known,
                    Some(&(object.version(), object.uid())),
                    "{name}: a resync is no news"
                );
            }
            Event::Synced => {
                assert!(!self.synced, "{name}: synced twice");
                self.synced = true;
            }
            _ => panic!("{name}: unknown"),
        }
    }

    /// Takes the events that are ready, up to its pace.
    async fn turn(&mut self) {
        for _ in 0..self.pace {
            match tokio::time::timeout(Duration::from_millis(1), self.subscription.next()).await {
                Ok(Some(event)) => self.take(event),
                _ => return,
            }
        }
    }

    async fn finish(&mut self) {
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_secs(5), self.subscription.next()).await
        {
            self.take(event);
        }
    }
}

fn fault(rng: &mut fastrand::Rng) -> Fault {
    match rng.u8(..8) {
        0 => Fault::Refused,
        1 => Fault::Status(Box::new(expired())),
        2 => Fault::Status(Box::new(Status::too_many_requests(
            "slow down",
            u32::from(rng.u8(..3)),
        ))),
        3 => Fault::Cut(rng.usize(..2000)),
        4 => Fault::End(rng.usize(..5)),
        5 => Fault::Error(
            rng.usize(..5),
            Box::new(if rng.bool() {
                expired()
            } else {
                Status::internal("broken")
            }),
        ),
        6 => Fault::Stutter,
        _ => Fault::Hang,
    }
}

fn contents(informer: &SharedInformer<Object>) -> Vec<String> {
    let snapshot = informer.store().snapshot();
    let say =
        |object: &std::sync::Arc<Cached<Object>>| format!("{}@{}", object.key(), object.version());
    snapshot.iter().map(say).collect()
}

/// Checks that the store is a state that the server had. If the queue coalesces, some objects may be newer than the version of
/// the store, never older.
fn check_state(informer: &SharedInformer<Object>, server: &Server, queue_bytes: usize, seed: u64) {
    let snapshot = informer.store().snapshot();
    let Some(version) = snapshot.version().number() else {
        return;
    };
    let Some(expected) = server.contents_at(version) else {
        return;
    };
    let found = contents(informer);
    if queue_bytes == QUEUE_BYTES_MAX {
        assert_eq!(found, expected, "seed {seed}: the state at {version}");
        return;
    }
    for said in &expected {
        let (key, version) = said.split_once('@').unwrap();
        let version: u64 = version.parse().unwrap();
        let newer = snapshot
            .get_by_key(key)
            .is_none_or(|object| object.version() >= version);
        assert!(newer, "seed {seed}: {said} is older in {found:?}");
    }
}

async fn history(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut server = Server::new();
    if rng.u8(..4) == 0 {
        server = server.without_bookmarks();
    }
    if rng.u8(..4) == 0 {
        server = server.without_initial_events();
    }
    for _ in 0..rng.u8(..30) {
        server.put(&format!("n{}", rng.u8(..40)));
    }
    let mut options = ReflectorOptions::default();
    options.seed = Some(seed);
    options.page_size = (rng.u8(..3) == 0).then(|| rng.usize(1..10));
    if rng.bool() {
        options.initial_state = InitialState::Streamed;
    }
    let queue_bytes = [0, 2000, QUEUE_BYTES_MAX][rng.usize(..3)];
    let informer = SharedInformer::builder(server.source(), Decode::bytes())
        .name(format!("seed {seed}"))
        .reflector(options)
        .queue_bytes_max(queue_bytes)
        .log(LogOptions::new(rng.usize(1..50), 1 << 20))
        .build();
    let mut followers: Vec<Follower> = Vec::new();
    let mut joined = 0;
    let mut started = false;
    let mut restored = false;
    let regressions = rng.u8(..5) == 0;
    for _ in 0..rng.usize(50..200) {
        check_state(&informer, &server, queue_bytes, seed);
        match rng.u8(..40) {
            0..16 => {
                server.put(&format!("n{}", rng.u8(..40)));
            }
            16..22 => {
                server.delete(&format!("n{}", rng.u8(..40)));
            }
            22 => {
                server.tick();
            }
            23 => server.compact(),
            24 if regressions => {
                let back = server.revision().saturating_sub(u64::from(rng.u8(..20)));
                server.restore(back.max(1));
                restored = true;
                for follower in &mut followers {
                    follower.went_back = true;
                }
                // Let the informer notice now: once the server has reused the lost versions, no client can tell that it went
                // back.
                if started {
                    server.heal();
                    eventually("noticed", || contents(&informer) == server.contents()).await;
                }
            }
            25 | 26 => server.fail_watch(fault(&mut rng)),
            27 => server.fail_list(fault(&mut rng)),
            28 | 29 if followers.len() < 6 => {
                joined += 1;
                let overflow = [Overflow::Coalesce, Overflow::DropToSnapshot][rng.usize(..2)];
                let mut handler = HandlerOptions::default().overflow(overflow);
                if rng.u8(..3) == 0 {
                    handler = handler.resync(Duration::from_secs(rng.u64(1..5)));
                }
                followers.push(Follower {
                    subscription: informer.subscribe(&handler).unwrap(),
                    known: BTreeMap::new(),
                    synced: false,
                    name: format!("seed {seed}, handler {joined}"),
                    pace: rng.usize(1..20),
                    went_back: restored,
                });
            }
            30 if !followers.is_empty() => {
                let leaving = rng.usize(..followers.len());
                followers.swap_remove(leaving);
            }
            31 => tokio::time::sleep(Duration::from_secs(rng.u64(..40))).await,
            32..34 => tokio::task::yield_now().await,
            _ => {
                if !started && rng.bool() {
                    informer.start();
                    started = true;
                }
                for follower in &mut followers {
                    if rng.bool() {
                        follower.turn().await;
                    }
                }
            }
        }
    }
    informer.start();
    check_state(&informer, &server, queue_bytes, seed);
    server.heal();
    server.put("the-end");
    // A stream that hangs is noticed within an hour, even if the server never sends bookmarks.
    eventually(&format!("seed {seed}: the store equals the server"), || {
        contents(&informer) == server.contents()
    })
    .await;
    let state: BTreeMap<String, (u64, Uid)> = informer
        .store()
        .list()
        .iter()
        .map(|object| (object.key().to_string(), (object.version(), object.uid())))
        .collect();
    for follower in &mut followers {
        follower.subscription.stop_resync(); // resyncs would never end
        follower.finish().await;
        assert!(follower.synced, "{}", follower.name);
        assert_eq!(
            follower.known, state,
            "{}: what it was told replays to the store",
            follower.name
        );
    }
    let (logged, queued) = (informer.stats().logged, informer.stats().queued);
    assert_eq!(
        (logged, queued),
        (0, 0),
        "seed {seed}: nothing is left behind"
    );
    informer.stop().await;
}

#[test]
fn random_histories_end_in_the_state_of_the_server() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds = match number("TIDINGS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDINGS_SEEDS").unwrap_or(400),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(history(seed));
    }
}
