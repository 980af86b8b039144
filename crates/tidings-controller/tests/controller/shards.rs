//! Replicas that share the keys: joined, handed over, taken over, told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tidings_api::ObjectKey;
use tidings_controller::{
    Action, BadShards, Cached, CauseKind, Context, Controller, ControllerHandle, ShardGroup,
    ShardOptions, Trigger,
};
use tidings_kube::{ObjectPath, Scope, SourceError, resource_of};

use crate::server::{Server, eventually, idle, make_three};

const OBJECTS: usize = 60;
const LEASE: Duration = Duration::from_secs(3);

fn options() -> ShardOptions {
    let [deadline, every] = [2_000, 300].map(Duration::from_millis);
    ShardOptions::default().times(LEASE, deadline, every)
}

/// What the replicas of a test did.
#[derive(Default)]
struct Seen {
    /// Which replica is at work on an object.
    acting: HashMap<String, &'static str>,
    /// The last replica that reconciled an object.
    last: BTreeMap<String, &'static str>,
    handed_over: usize,
    overlaps: Vec<String>,
}

type Shared = (&'static str, Arc<Mutex<Seen>>);

/// Takes a moment for each object, and notes if another replica is at work on it.
async fn reconcile(
    map: Arc<Cached<ConfigMap>>,
    ctx: Context<Shared>,
) -> Result<Action, SourceError> {
    let (replica, seen) = (**ctx.state()).clone();
    let name = map.name().to_owned();
    {
        let mut seen = seen.lock().unwrap();
        if let Some(other) = seen.acting.insert(name.clone(), replica) {
            seen.overlaps.push(format!("{name}: {other} and {replica}"));
        }
        seen.handed_over += usize::from(ctx.cause().what == CauseKind::HandedOver);
    }
    // Dropped with the reconcile, also when it is aborted.
    let _acting = Acting(name.clone(), Arc::clone(&seen));
    tokio::time::sleep(Duration::from_millis(2)).await;
    seen.lock().unwrap().last.insert(name, replica);
    Ok(Action::AwaitChange)
}

struct Acting(String, Arc<Mutex<Seen>>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.1.lock().unwrap().acting.remove(&self.0);
    }
}

struct Replica {
    group: ShardGroup,
    controller: ControllerHandle,
}

fn start(server: &Server, name: &'static str, seen: &Arc<Mutex<Seen>>) -> Replica {
    let cluster = server.cluster();
    let options = options().identity(name);
    let group = ShardGroup::join_with(&cluster, "default", "sites", options).unwrap();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default").labels("test=shards"))
        .sharded(&group)
        .start(reconcile, (name, Arc::clone(seen)));
    Replica { group, controller }
}

/// Changes every object, and waits until each was reconciled; returns how many each replica did.
async fn round(server: &Server, seen: &Arc<Mutex<Seen>>) -> BTreeMap<&'static str, usize> {
    seen.lock().unwrap().last.clear();
    let user = server.user();
    for number in 0..OBJECTS {
        let (resource, name) = (crate::server::config_maps(), format!("m{number}"));
        let path = tidings_kube::ObjectPath::new(&resource, "default", &name);
        let random = format!("{:?}", Instant::now());
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": random},
            "metadata": {"name": name, "labels": {"test": "shards"}}});
        user.apply_object(&path, "user", true, &map).await.unwrap();
    }
    eventually("all are reconciled", async || {
        seen.lock().unwrap().last.len() == OBJECTS
    })
    .await;
    let seen = seen.lock().unwrap();
    let mut counts = BTreeMap::new();
    for replica in seen.last.values() {
        *counts.entry(*replica).or_default() += 1;
    }
    counts
}

async fn settled(replicas: &[&Replica]) {
    eventually("the members agree", async || {
        let all: BTreeSet<_> = replicas
            .iter()
            .map(|replica| replica.group.status())
            .map(|status| (status.epoch, status.members.len(), status.waits_for))
            .collect();
        let agreed = all.iter().next().is_some_and(|(_, members, waits_for)| {
            *members == replicas.len() && waits_for.is_empty()
        });
        all.len() == 1 && agreed
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_keys_and_take_over_from_those_that_leave_or_crash() {
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let a = start(&server, "a", &seen);
    settled(&[&a]).await;
    assert_eq!(
        round(&server, &seen).await,
        BTreeMap::from([("a", OBJECTS)])
    );

    let (b, c) = (start(&server, "b", &seen), start(&server, "c", &seen));
    settled(&[&a, &b, &c]).await;
    let counts = round(&server, &seen).await;
    assert_eq!(counts.len(), 3, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 8), "{counts:?}");
    // Who owns what is told by each of them alike.
    let map = server
        .get(&crate::server::config_maps(), "m7")
        .await
        .unwrap();
    let uid = map["metadata"]["uid"].as_str().unwrap();
    let owner = a.group.owner_of(uid).unwrap();
    assert_eq!(b.group.owner_of(uid), Some(owner.clone()));
    let did = seen.lock().unwrap().last["m7"];
    assert!(owner.starts_with(&format!("sites-{did}-")), "{owner} {did}");

    // One leaves: others take over at once, and reconcile what they get.
    seen.lock().unwrap().last.clear();
    let left = Instant::now();
    b.controller.stop().await;
    b.group.leave().await;
    eventually("what b had is reconciled by the others", async || {
        let seen = seen.lock().unwrap();
        seen.last.len() >= counts["b"] && seen.last.values().all(|replica| *replica != "b")
    })
    .await;
    assert!(left.elapsed() < LEASE, "{:?}", left.elapsed());

    // One crashes: its Lease must expire first.
    settled(&[&a, &c]).await;
    let counts = round(&server, &seen).await;
    seen.lock().unwrap().last.clear();
    let crashed = Instant::now();
    drop(c.controller);
    drop(c.group);
    eventually("what c had is reconciled by a", async || {
        seen.lock().unwrap().last.len() == counts["c"]
    })
    .await;
    let took = crashed.elapsed();
    assert!(took > LEASE / 3, "the Lease had not expired after {took:?}");
    settled(&[&a]).await;
    assert_eq!(
        round(&server, &seen).await,
        BTreeMap::from([("a", OBJECTS)])
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.overlaps, Vec::<String>::new());
    assert!(seen.handed_over > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_cannot_renew_stops_and_joins_again() {
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let a = start(&server, "a", &seen);
    settled(&[&a]).await;
    round(&server, &seen).await;
    // Only the Leases cannot be reached: the server answers everything else.
    *server.switch().poisoned.lock().unwrap() = Some("/leases");
    eventually("its membership lapses", async || !a.group.status().is_fresh).await;
    seen.lock().unwrap().last.clear();
    let (resource, user) = (crate::server::config_maps(), server.user());
    let path = tidings_kube::ObjectPath::new(&resource, "default", "m1");
    let change = json!({"data": {"k": "changed"}});
    let changed = user.patch_object(&path, tidings_kube::PatchKind::Merge, &change);
    changed.await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(seen.lock().unwrap().last.len(), 0, "it may not act");
    *server.switch().poisoned.lock().unwrap() = None;
    eventually("it acts again", async || {
        a.group.status().is_fresh && seen.lock().unwrap().last.contains_key("m1")
    })
    .await;
    a.controller.stop().await;
    a.group.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_replica_before_wrote_is_seen() {
    let server = Server::start().await;
    for number in 0..OBJECTS {
        server
            .create(json!({"metadata": {"name": format!("m{number}")}}))
            .await;
    }
    let start = |name: &str| {
        let cluster = server.cluster();
        let options = options().identity(name);
        let group = ShardGroup::join_with(&cluster, "default", "sites", options).unwrap();
        let controller = Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("default"))
            .owns::<Secret>()
            .sharded(&group)
            .start(make_three, ());
        Replica { group, controller }
    };
    // A second replica joins in the middle of the work of the first.
    let a = start("a");
    eventually("the first is at work", async || {
        a.controller.stats().requeued > 20
    })
    .await;
    let b = start("b");
    settled(&[&a, &b]).await;
    idle(&a.controller).await;
    idle(&b.controller).await;
    let children = server.children_by_owner().await;
    assert_eq!(children.len(), OBJECTS);
    assert!(children.values().all(|count| *count == 3), "{children:?}");
    a.controller.stop().await;
    b.controller.stop().await;
}

#[tokio::test]
async fn bad_names_and_times_are_refused_with_what_to_change() {
    let server = Server::start().await;
    let cluster = server.cluster();
    let refused = |name: &str, options: ShardOptions| {
        ShardGroup::join_with(&cluster, "default", name, options).unwrap_err()
    };
    let error = refused("My_Group", ShardOptions::default());
    assert_eq!(error, BadShards::Name("My_Group".to_owned()));
    assert!(error.to_string().contains("lower-case letters"), "{error}");
    let second = Duration::from_secs(1);
    let error = refused(
        "g",
        ShardOptions::default().times(second, second, second / 4),
    );
    assert!(matches!(error, BadShards::Lease { .. }), "{error}");
    let error = refused(
        "g",
        ShardOptions::default().times(second * 3, second * 2, second * 2),
    );
    assert!(matches!(error, BadShards::Renewals { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_in_the_way_of_the_table_is_told_with_what_to_do() {
    let server = Server::start().await;
    let (leases, user) = (resource_of::<Lease>(), server.user());
    // Left by a leader election.
    let elected = json!({"metadata": {"name": "sites"}, "spec": {"holderIdentity": "somebody"}});
    user.create_object(&leases, "default", &elected)
        .await
        .unwrap();
    let cluster = server.cluster();
    let group = ShardGroup::join_with(&cluster, "default", "sites", options()).unwrap();
    eventually("it is told", async || group.status().problem.is_some()).await;
    let problem = group.status().problem.unwrap();
    assert!(problem.contains("delete it"), "{problem}");
    server.delete(&leases, "sites").await;
    eventually("the group has its table", async || {
        group.status().epoch > 0 && group.status().problem.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_joins_when_the_caches_of_its_controllers_have_their_state() {
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    *server.switch().poisoned.lock().unwrap() = Some("/configmaps");
    let waiting = start(&server, "waiting", &seen);
    // Without controllers it joins at once, and it is later than the other.
    let options = options().identity("quick");
    let quick = ShardGroup::join_with(&server.cluster(), "default", "sites", options).unwrap();
    eventually("one has joined", async || {
        let status = quick.status();
        status.epoch > 0 && status.waits_for.is_empty()
    })
    .await;
    assert_eq!(quick.status().members.len(), 1);
    assert_eq!(waiting.group.status().member, None);
    *server.switch().poisoned.lock().unwrap() = None;
    eventually("both have joined", async || {
        quick.status().members.len() == 2 && waiting.group.status().is_fresh
    })
    .await;
    assert!(waiting.controller.has_synced());
}

/// Never ends, in the replica that hangs.
async fn hang(map: Arc<Cached<ConfigMap>>, ctx: Context<Shared>) -> Result<Action, SourceError> {
    let (replica, seen) = (**ctx.state()).clone();
    seen.lock()
        .unwrap()
        .last
        .insert(map.name().to_owned(), replica);
    if replica == "hangs" {
        std::future::pending::<()>().await;
    }
    Ok(Action::AwaitChange)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_that_hangs_does_not_keep_what_belongs_to_another_replica() {
    let server = Server::start().await;
    for number in 0..8 {
        let name = format!("m{number}");
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let start = |name: &'static str| {
        let cluster = server.cluster();
        let options = options().identity(name);
        let options = options.hand_over_grace(Duration::from_millis(500));
        let group = ShardGroup::join_with(&cluster, "default", "sites", options).unwrap();
        let controller = Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("default"))
            .concurrency(8)
            .sharded(&group)
            .start(hang, (name, Arc::clone(&seen)));
        Replica { group, controller }
    };
    let hangs = start("hangs");
    eventually("all hang", async || seen.lock().unwrap().last.len() == 8).await;
    let other = start("other");
    let name = hangs.group.status().member;
    eventually("the other waits", async || {
        let waits_for = other.group.status().waits_for;
        waits_for.last() == name.as_ref()
    })
    .await;
    eventually("the other has its share", async || {
        let seen = seen.lock().unwrap();
        seen.last.values().any(|replica| *replica == "other")
    })
    .await;
    settled(&[&hangs, &other]).await;
    assert!(hangs.controller.stats().given_back > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_ends_with_the_lease_when_the_server_is_away() {
    let server = Server::start().await;
    let [lease, deadline, every] = [2_000, 1_000, 200].map(Duration::from_millis);
    let options = ShardOptions::default().times(lease, deadline, every);
    let cluster = server.cluster();
    let group = ShardGroup::join_with(&cluster, "default", "sites", options).unwrap();
    eventually("it has joined", async || group.status().epoch > 0).await;
    server.switch().cut();
    let left = tokio::time::timeout(lease * 4, group.leave()).await;
    assert!(left.is_ok(), "it waits for a server that is away");
    assert_eq!(group.status().member, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_says_whether_the_object_is_this_replicas() {
    let server = Server::start().await;
    for number in 0..20 {
        let name = format!("m{number}");
        server.create(json!({"metadata": {"name": name}})).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let start = |name: &'static str| {
        let cluster = server.cluster();
        let group = ShardGroup::join_with(&cluster, "default", "sites", options()).unwrap();
        let trigger = Trigger::new();
        let controller = Controller::<ConfigMap>::new(&cluster)
            .scope(Scope::namespace("default"))
            .triggered_by(&trigger)
            .sharded(&group)
            .start(reconcile, (name, Arc::clone(&seen)));
        (Replica { group, controller }, trigger)
    };
    let ((a, of_a), (b, of_b)) = (start("a"), start("b"));
    settled(&[&a, &b]).await;
    idle(&a.controller).await;
    idle(&b.controller).await;
    seen.lock().unwrap().last.clear();
    let mut owned = BTreeMap::new();
    for number in 0..20 {
        let name = format!("m{number}");
        let key = ObjectKey::new("default", &name);
        let owner = match (of_a.reconcile(&key), of_b.reconcile(&key)) {
            (true, false) => "a",
            (false, true) => "b",
            both => panic!("{name}: {both:?}"),
        };
        owned.insert(name, owner);
    }
    eventually("each is reconciled by its owner", async || {
        seen.lock().unwrap().last == owned
    })
    .await;
    assert!(!of_a.reconcile(&ObjectKey::new("default", "nobody")));
    // All of one replica are asked for.
    seen.lock().unwrap().last.clear();
    of_a.reconcile_all();
    owned.retain(|_, owner| *owner == "a");
    eventually("those of one are reconciled", async || {
        seen.lock().unwrap().last == owned
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_when_the_server_goes_away_while_the_caches_are_waited_for() {
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let cluster = server.cluster();
    let [lease, deadline, every] = [30, 20, 1].map(Duration::from_secs);
    let options = ShardOptions::default().times(lease, deadline, every);
    let group = ShardGroup::join_with(&cluster, "default", "sites", options).unwrap();
    let controller = Controller::<ConfigMap>::new(&cluster)
        .scope(Scope::namespace("default"))
        .own_write_wait(Duration::from_secs(2))
        .sharded(&group)
        .start(reconcile, ("a", Arc::clone(&seen)));
    eventually("it has joined", async || {
        group.status().epoch > 0 && group.status().waits_for.is_empty()
    })
    .await;
    // The watch goes on, but the list that confirms the cache fails: the reconcile waits for it.
    *server.switch().poisoned.lock().unwrap() = Some("/configmaps");
    server.create(json!({"metadata": {"name": "m1"}})).await;
    eventually("it waits", async || controller.stats().active == 1).await;
    server.switch().cut();
    let (resource, client) = (crate::server::config_maps(), cluster.client().clone());
    let path = ObjectPath::new(&resource, "default", "m1");
    assert!(client.retries(0).get_object(&path).await.is_err());
    eventually("the gate is shut", async || !cluster.is_reachable()).await;
    eventually("it waits no more", async || controller.stats().active == 0).await;
    assert_eq!(seen.lock().unwrap().last.len(), 0, "the server is away");
    server.switch().mend();
    *server.switch().poisoned.lock().unwrap() = None;
    eventually("it is reconciled", async || {
        seen.lock().unwrap().last.len() == 1
    })
    .await;
}
