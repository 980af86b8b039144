//! Random histories of controllers on paused time: outages, lost requests and answers, 410, 429, 500, silent watches, conflicts, crashes of
//! the process, lapsed leases of replicas and of leaders, sleeping machines. A seed is a history.
//!
//! At rest: every object was reconciled after its last change, children are as the last spec says, finalizers have run, nothing is left
//! behind, and nothing spins. Always: one reconcile of an object at a time, over all replicas.

#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod api;
mod patches;
mod target;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::SimulatedApi;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};
use tidings_controller::{
    Action, Cached, Cluster, Context, Controller, ControllerHandle, Finalizing, Manager,
    ManagerError, ShardGroup,
};
use tidings_informer::ReflectorOptions;
use tidings_informer::leader::ElectionOptions;
use tidings_kube::{KubeLeaseLock, RestClient, Scope, SourceError};
use tokio::task::JoinSet;

const FINALIZER: &str = "example.com/unregister";
const NAMES: u64 = 12;

/// What is outside of the cluster, and what the replicas do.
#[derive(Default)]
struct World {
    /// Names that are registered somewhere else: the clean-up removes them.
    registered: BTreeSet<String>,
    /// Objects that are reconciled now, and by which process.
    acting: HashMap<String, u32>,
    overlaps: Vec<String>,
    reconciles: u64,
    cleanups: u64,
    /// Each object must have exactly one ticket. Not with several replicas: one whose watch is silent does not see what another made
    /// before it crashed.
    counts_tickets: bool,
}

#[derive(Clone)]
struct Process {
    number: u32,
    world: Arc<Mutex<World>>,
}

impl Process {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

/// Notes who reconciles an object, until it is dropped.
struct Acting {
    uid: String,
    process: Process,
}

impl Acting {
    fn begin(uid: &str, process: &Process) -> Acting {
        let mut world = process.world();
        world.reconciles += 1;
        if let Some(other) = world.acting.insert(uid.to_owned(), process.number) {
            let overlap = format!("{uid}: processes {other} and {}", process.number);
            world.overlaps.push(overlap);
        }
        Acting {
            uid: uid.to_owned(),
            process: process.clone(),
        }
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        self.process.world().acting.remove(&self.uid);
    }
}

async fn reconcile(
    map: Arc<Cached<ConfigMap>>,
    ctx: Context<Process>,
) -> Result<Action, SourceError> {
    let uid = map.value().metadata.uid.clone().unwrap_or_default();
    let _acting = Acting::begin(&uid, ctx.state());
    ctx.finalizer(&map, FINALIZER, async |finalizing| match finalizing {
        Finalizing::Apply => {
            ctx.world().registered.insert(uid.clone());
            let data = map.data.clone().unwrap_or_default();
            for (name, text) in &data {
                let mut child = Secret::default();
                child.metadata.name = Some(format!("{}-{name}", map.name()));
                let text = k8s_openapi::ByteString(text.clone().into_bytes());
                child.data = Some([("text".to_owned(), text)].into());
                ctx.apply(&map, &child).await?;
            }
            // A child whose name the server chooses: made once, whatever gets lost.
            let has_ticket = ctx.owned::<Secret>(&map).iter().any(|child| is_ticket(child));
            if !has_ticket {
                let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": map.name(), "uid": uid, "controller": true}]);
                let ticket = json!({"metadata": {"generateName": "ticket-", "labels": {"ticket": map.name()}, "ownerReferences": owner}});
                let secrets = tidings_kube::resource_of::<Secret>();
                ctx.client().create_object(&secrets, "default", &ticket).await?;
            }
            let is_wanted = |child: &Cached<Secret>| {
                if is_ticket(child) {
                    return true;
                }
                let name = child.name().strip_prefix(&format!("{}-", map.name()));
                name.is_some_and(|name| data.contains_key(name))
            };
            ctx.prune::<Secret>(&map, is_wanted).await?;
            Ok(Action::AwaitChange)
        }
        Finalizing::Cleanup => {
            let mut world = ctx.world();
            world.cleanups += 1;
            world.registered.remove(&uid);
            Ok(Action::AwaitChange)
        }
    })
    .await
}

fn is_ticket(child: &Cached<Secret>) -> bool {
    child.labels().get("ticket").is_some()
}

/// How the processes of the operator divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Division {
    /// There is only one.
    Alone,
    /// All work, each on its share.
    Sharded,
    /// One leads and works, the others wait.
    Elected,
}

impl Division {
    fn processes(self) -> usize {
        match self {
            Division::Alone => 1,
            Division::Sharded | Division::Elected => 3,
        }
    }
}

/// A process of the operator. Dropping it ends it at once.
struct Replica {
    number: u32,
    _group: Option<ShardGroup>,
    /// Without an election.
    controller: Option<ControllerHandle>,
    _manager: JoinSet<Result<(), ManagerError>>,
}

fn start(
    api: &SimulatedApi,
    number: u32,
    division: Division,
    world: &Arc<Mutex<World>>,
) -> Replica {
    let client = RestClient::new(kube::Client::new(api.process(number), "default"));
    let mut reflector = ReflectorOptions::default();
    reflector.seed = Some(u64::from(number));
    let cluster = Cluster::new(&client).reflector(reflector);
    let sharded = division == Division::Sharded;
    let group = sharded.then(|| ShardGroup::join(&cluster, "default", "maps").unwrap());
    let (world, shards) = (Arc::clone(world), group.clone());
    let start = move || {
        let mut controller = Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("default"))
            .owns::<Secret>()
            // Longer than a watch can be silent: what was written is seen in any case.
            .own_write_wait(Duration::from_secs(300))
            .concurrency(4);
        if let Some(shards) = &shards {
            controller = controller.sharded(shards);
        }
        let world = Arc::clone(&world);
        controller.start(reconcile, Process { number, world })
    };
    let mut replica = Replica {
        number,
        _group: group,
        controller: None,
        _manager: JoinSet::new(),
    };
    if division == Division::Elected {
        let lock = KubeLeaseLock::new(&client, "default", "maps", format!("process-{number}"));
        let mut election = ElectionOptions::default();
        election.seed = Some(u64::from(number));
        let manager = Manager::new().leader_election_with(lock, election);
        let manager = manager.stop_on(std::future::pending()).controller(start);
        replica._manager.spawn(manager.run());
    } else {
        replica.controller = Some(start());
    }
    replica
}

/// A user changes an object: creates, changes or deletes it.
fn change_something(api: &SimulatedApi, rng: &mut fastrand::Rng) {
    let name = format!("map-{}", rng.u64(..NAMES));
    match rng.u8(..6) {
        0 => api.delete("configmaps", &name),
        // Somebody changes a child by hand.
        5 => {
            let children = api.all("secrets");
            let child = children.iter().nth(rng.usize(..children.len().max(1)));
            if let Some((child, known)) = child.filter(|(_, known)| known["data"].is_object()) {
                let mut changed = known.clone();
                changed["data"]["text"] = "c3RyYXk=".into();
                api.put("secrets", child, changed);
            }
        }
        1 => {
            let children = api.all("secrets");
            let child = children.keys().nth(rng.usize(..children.len().max(1)));
            if let Some(child) = child {
                api.delete("secrets", child);
            }
        }
        _ => {
            let parts =
                (0..rng.u64(..4)).map(|part| (format!("p{part}"), rng.u32(..).to_string().into()));
            let data: serde_json::Map<String, Value> = parts.collect();
            api.put("configmaps", &name, json!({"data": data}));
        }
    }
}

/// True if all is as it should be.
fn is_right(api: &SimulatedApi, world: &World) -> Result<(), String> {
    let (maps, mut secrets) = (api.all("configmaps"), api.all("secrets"));
    let mut uids = BTreeSet::new();
    for (name, map) in &maps {
        if map["metadata"]["deletionTimestamp"].is_string() {
            return Err(format!("{name} is still being deleted"));
        }
        uids.insert(map["metadata"]["uid"].as_str().unwrap().to_owned());
        for (part, text) in map["data"].as_object().unwrap() {
            let child = secrets.remove(&format!("{name}-{part}"));
            let wanted = k8s_openapi::ByteString(text.as_str().unwrap().as_bytes().to_vec());
            let found = child.map(|child| child["data"]["text"].clone());
            if found != Some(serde_json::to_value(wanted).unwrap()) {
                return Err(format!("the child {part} of {name} is {found:?}"));
            }
        }
    }
    let tickets = secrets.extract_if(.., |_, secret| {
        secret["metadata"]["labels"]["ticket"].is_string()
    });
    let mut tickets: Vec<String> = tickets
        .map(|(_, ticket)| {
            ticket["metadata"]["labels"]["ticket"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    if world.counts_tickets {
        tickets.sort();
        if !tickets.iter().eq(maps.keys()) {
            return Err(format!("tickets of {tickets:?}, there: {:?}", maps.keys()));
        }
    }
    if !secrets.is_empty() {
        return Err(format!("left behind: {:?}", secrets.keys()));
    }
    match world.registered == uids {
        true => Ok(()),
        false => Err(format!(
            "registered: {:?}, there: {uids:?}",
            world.registered
        )),
    }
}

async fn history(seed: u64, division: Division, world: &Arc<Mutex<World>>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let api = SimulatedApi::new(seed);
    let mut started = 0;
    let mut running: Vec<Replica> = Vec::new();
    for _ in 0..rng.u32(..20) {
        change_something(&api, &mut rng);
    }
    api.set_trouble(rng.u32(..80));
    for step in 0..400_u32 {
        while running.len() < division.processes() {
            started += 1;
            running.push(start(&api, started, division, world));
        }
        match rng.u32(..200) {
            0 => api.go_away(Duration::from_millis(rng.u64(100..40_000))),
            1 => api.compact(),
            2..6 => api.disturb_watches(),
            6 => {
                let crashed = running.swap_remove(rng.usize(..running.len()));
                api.disconnect(crashed.number);
                drop(crashed); // ends everything at once, as a crash does
            }
            // The machine sleeps, or its clock jumps.
            7 => tokio::time::advance(Duration::from_secs(rng.u64(1..60))).await,
            _ => {}
        }
        if step % 100 == 99 {
            api.bookmark();
        }
        for _ in 0..rng.u32(..4) {
            change_something(&api, &mut rng);
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(10..1_500))).await;
    }
    api.set_trouble(0);
    // Backoffs of minutes, silent watches and expired leases end by then.
    let mut last = Err(String::new());
    // A key that failed all the time waits for up to twenty minutes before it is tried without trouble.
    for _ in 0..240 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        api.bookmark();
        last = is_right(&api, &world.lock().unwrap());
        if last.is_ok() {
            break;
        }
    }
    assert_eq!(last, Ok(()), "seed {seed}, {division:?}, at rest");
    let overlaps = world.lock().unwrap().overlaps.clone();
    assert_eq!(overlaps, Vec::<String>::new(), "seed {seed}, {division:?}");

    if world.lock().unwrap().counts_tickets {
        assert_eq!(api.made_twice(), 0, "seed {seed}: tickets were made twice");
    }
    // Keys that failed wait for up to twenty minutes.
    for _ in 0..22 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        api.bookmark();
    }
    // Nothing spins: in ten minutes without a change nothing is reconciled, and few requests are sent.
    let (reconciles, requests) = (world.lock().unwrap().reconciles, api.requests());
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        api.bookmark();
    }
    let more = world.lock().unwrap().reconciles - reconciles;
    assert_eq!(
        more, 0,
        "seed {seed}, {division:?}: reconciles without a change"
    );
    // Every two seconds, by each process: renewals, or looks at the Lease.
    let renewals = match division {
        Division::Alone => 0,
        Division::Sharded | Division::Elected => division.processes() as u64 * 301,
    };
    let requests = api.requests() - requests;
    assert!(
        requests <= renewals + 40,
        "seed {seed}: {requests} requests in ten quiet minutes"
    );
    for replica in running {
        if let Some(controller) = replica.controller {
            assert_eq!(controller.stats().panicked, 0, "seed {seed}");
            controller.stop().await;
        }
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let wanted = std::env::var("TIDINGS_SEEDS").ok();
    let wanted = wanted.and_then(|seeds| seeds.parse().ok());
    let first = std::env::var("TIDINGS_FIRST_SEED").ok();
    let first = first.and_then(|first| first.parse().ok()).unwrap_or(0);
    first..first + wanted.unwrap_or(default)
}

fn run(division: Division, default_seeds: u64) {
    let mut done = BTreeMap::from([("reconciles", 0), ("cleanups", 0)]);
    for seed in seeds(default_seeds) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let world = World {
            counts_tickets: division == Division::Alone,
            ..World::default()
        };
        let world = Arc::new(Mutex::new(world));
        runtime.block_on(history(seed, division, &world));
        let world = world.lock().unwrap();
        *done.get_mut("reconciles").unwrap() += world.reconciles;
        *done.get_mut("cleanups").unwrap() += world.cleanups;
    }
    assert!(
        done.values().all(|count| *count > 0),
        "nothing was tried: {done:?}"
    );
}

#[test]
fn kr1_one_process_comes_to_rest_after_any_trouble() {
    run(Division::Alone, 12);
}

#[test]
fn sharded_replicas_come_to_rest_after_any_trouble() {
    run(Division::Sharded, 6);
}

#[test]
fn elected_leaders_come_to_rest_after_any_trouble() {
    run(Division::Elected, 6);
}
