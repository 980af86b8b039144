//! Random histories on a simulated server with random faults, and handlers that come and go. At the end every store equals the
//! server, and what each handler was told replays to the store. A failure names its seed; `TIDINGS_SEED=n` runs that one
//! alone, `TIDINGS_SEEDS=n` that many.

use std::collections::BTreeMap;
use std::time::Duration;

use tidings_api::{Object, Status};
use tidings_informer::*;

use crate::support::server::{Fault, Server};
use crate::support::*;

/// What a handler knows, checked with every event.
struct Follower {
    subscription: Subscription<Object>,
    known: BTreeMap<String, (u64, Uid)>,
    synced: bool,
    name: String,
    /// How many events it takes when it is its turn.
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

    /// Takes what is there, up to its pace.
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

fn fault(chance: &mut fastrand::Rng) -> Fault {
    match chance.u8(..8) {
        0 => Fault::Refused,
        1 => Fault::Status(Box::new(expired())),
        2 => Fault::Status(Box::new(Status::too_many_requests(
            "slow down",
            u32::from(chance.u8(..3)),
        ))),
        3 => Fault::Cut(chance.usize(..2000)),
        4 => Fault::End(chance.usize(..5)),
        5 => Fault::Error(
            chance.usize(..5),
            Box::new(if chance.bool() {
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

/// The store is a state that the server had. With a queue that coalesces it may hold some objects that are newer than its
/// version says, never older ones.
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
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut server = Server::new();
    if chance.u8(..4) == 0 {
        server = server.without_bookmarks();
    }
    if chance.u8(..4) == 0 {
        server = server.without_initial_events();
    }
    for _ in 0..chance.u8(..30) {
        server.put(&format!("n{}", chance.u8(..40)));
    }
    let mut options = ReflectorOptions::default();
    options.seed = Some(seed);
    options.page_size = (chance.u8(..3) == 0).then(|| chance.usize(1..10));
    if chance.bool() {
        options.initial_state = InitialState::Streamed;
    }
    let queue_bytes = [0, 2000, QUEUE_BYTES_MAX][chance.usize(..3)];
    let informer = SharedInformer::builder(server.source(), Decode::bytes())
        .name(format!("seed {seed}"))
        .reflector(options)
        .queue_bytes_max(queue_bytes)
        .log(LogOptions::new(chance.usize(1..50), 1 << 20))
        .build();
    let mut followers: Vec<Follower> = Vec::new();
    let mut joined = 0;
    let mut started = false;
    let mut restored = false;
    let regressions = chance.u8(..5) == 0;
    for _ in 0..chance.usize(50..200) {
        check_state(&informer, &server, queue_bytes, seed);
        match chance.u8(..40) {
            0..16 => {
                server.put(&format!("n{}", chance.u8(..40)));
            }
            16..22 => {
                server.delete(&format!("n{}", chance.u8(..40)));
            }
            22 => {
                server.tick();
            }
            23 => server.compact(),
            24 if regressions => {
                let back = server.revision().saturating_sub(u64::from(chance.u8(..20)));
                server.restore(back.max(1));
                restored = true;
                for follower in &mut followers {
                    follower.went_back = true;
                }
                // A server that has come past the lost versions again looks like one that lost nothing: nobody could tell.
                if started {
                    server.heal();
                    eventually("noticed", || contents(&informer) == server.contents()).await;
                }
            }
            25 | 26 => server.fail_watch(fault(&mut chance)),
            27 => server.fail_list(fault(&mut chance)),
            28 | 29 if followers.len() < 6 => {
                joined += 1;
                let overflow = [Overflow::Coalesce, Overflow::DropToSnapshot][chance.usize(..2)];
                let mut handler = HandlerOptions::default().overflow(overflow);
                if chance.u8(..3) == 0 {
                    handler = handler.resync(Duration::from_secs(chance.u64(1..5)));
                }
                followers.push(Follower {
                    subscription: informer.subscribe(&handler).unwrap(),
                    known: BTreeMap::new(),
                    synced: false,
                    name: format!("seed {seed}, handler {joined}"),
                    pace: chance.usize(1..20),
                    went_back: restored,
                });
            }
            30 if !followers.is_empty() => {
                let leaving = chance.usize(..followers.len());
                followers.swap_remove(leaving);
            }
            31 => tokio::time::sleep(Duration::from_secs(chance.u64(..40))).await,
            32..34 => tokio::task::yield_now().await,
            _ => {
                if !started && chance.bool() {
                    informer.start();
                    started = true;
                }
                for follower in &mut followers {
                    if chance.bool() {
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
    // A stream that hangs is noticed within the hour, even if the server never sends bookmarks.
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
        follower.subscription.stop_resync(); // they would never end
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
