//! Random histories: a converted cache has what converting every change would give it, with logs that drop events soon and a converter that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidings_api::{EventType, Object, ResourceVersion, ServedObject, WatchEvent};
use tidings_informer::{ReflectorStore, ServerVersion};

use crate::cache::Cache;
use crate::converted::{ConvertError, ConvertedCache, Converter};
use crate::fill::CacheFiller;
use crate::log::FellBehind;
use crate::scopes::{Narrowing, WatchScope};

#[derive(Debug, thiserror::Error)]
#[error("cannot convert today")]
struct Refused;

fn object(name: u32, version: &str, revision: u64) -> Object {
    let json = format!(
        r#"{{"apiVersion":"{version}","metadata":{{"name":"o{name}","uid":"u"}},"written":{revision}}}"#
    );
    let revision = ResourceVersion::new(revision);
    Object::stamped(json.as_bytes(), revision, EventType::Modified).unwrap()
}

fn in_v2(object: &Object) -> Object {
    let json = String::from_utf8_lossy(object.as_bytes()).replace("v1", "v2");
    Object::stamped(json.as_bytes(), object.revision(), EventType::Modified).unwrap()
}

/// A converter that can be told to fail, and counts what it was given.
#[derive(Default)]
struct Converting {
    fails: AtomicBool,
    given: AtomicUsize,
    calls: AtomicUsize,
}

impl Converting {
    fn converter(self: &Arc<Self>) -> Converter {
        let this = self.clone();
        Arc::new(move |objects: Vec<Object>| {
            let this = this.clone();
            Box::pin(async move {
                tokio::task::yield_now().await;
                this.calls.fetch_add(1, Ordering::Relaxed);
                this.given.fetch_add(objects.len(), Ordering::Relaxed);
                match this.fails.load(Ordering::Relaxed) {
                    true => Err(Arc::new(Refused) as ConvertError),
                    false => Ok(objects.iter().map(in_v2).collect()),
                }
            })
        })
    }
}

fn open(source: &Arc<Cache>, converting: &Arc<Converting>, log_bytes: usize) -> ConvertedCache {
    ConvertedCache::open(
        source.clone(),
        converting.converter(),
        log_bytes,
        2,
        Arc::default(),
    )
}

fn everything() -> WatchScope {
    WatchScope {
        namespace: None,
        narrowed: Narrowing::None,
    }
}

/// The events that a watch of a cache is sent from a cursor on: type, name, revision and version.
fn read(
    cache: &Cache,
    cursor: &mut crate::cursor::Cursor,
) -> Result<Vec<(EventType, String, u64, bool)>, FellBehind> {
    let mut events = Vec::new();
    loop {
        let read = cache.read(cursor)?;
        for (position, event) in read.events() {
            cursor.pass(position);
            if let Some((kind, object)) = event.seen_by(|_| true) {
                let (name, revision) = (object.name().into_owned(), event.revision.get());
                events.push((kind, name, revision, object.api_version() == "v2"));
            }
        }
        if cursor.pass_all(&read).is_some() {
            return Ok(events);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn w183_a_converted_cache_follows_every_change_of_the_other_one() {
    let (mut failures, mut compared) = (0, 0);
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let log_bytes = 1000 << random.u32(0..8);
        let source = Cache::new(log_bytes, 2, Arc::default(), None);
        let mut filler = CacheFiller::new(source.clone());
        let (mut revision, mut alive) = (1, std::collections::BTreeSet::new());
        filler.replace(&ServerVersion::from(ResourceVersion::new(revision)));
        let converting = Arc::new(Converting::default());
        let converted = open(&source, &converting, 1 << 20);
        converted
            .reach(ResourceVersion::new(revision))
            .await
            .unwrap();
        let (_, mut of_source) = source.follow(everything());
        let (_, mut of_converted) = converted.cache().follow(everything());
        for _ in 0..random.u32(1..30) {
            let mut events = Vec::new();
            for _ in 0..random.u32(1..8) {
                revision += 1;
                let name = random.u32(..5);
                let object = object(name, "v1", revision);
                events.push(match (random.u32(..4), alive.contains(&name)) {
                    (0, true) => {
                        alive.remove(&name);
                        WatchEvent::Deleted(object)
                    }
                    (_, true) => WatchEvent::Modified(object),
                    (_, false) => {
                        alive.insert(name);
                        WatchEvent::Added(object)
                    }
                });
            }
            converting
                .fails
                .store(random.u32(..4) == 0, Ordering::Relaxed);
            filler.apply(events);
            let wanted = ResourceVersion::new(revision);
            if let Err(error) = converted.reach(wanted).await {
                failures += 1;
                assert_eq!(error.to_string(), "cannot convert today");
                assert!(converted.cache().reached() < Some(wanted));
                converting.fails.store(false, Ordering::Relaxed);
                converted.reach(wanted).await.unwrap();
            }
            let (state, converted_state) = (source.snapshot(), converted.cache().snapshot());
            assert_eq!(state.revision, converted_state.revision, "seed {seed}");
            let meant: Vec<Object> = state
                .state
                .iter()
                .map(|(_, object)| in_v2(object))
                .collect();
            let is: Vec<Object> = converted_state
                .state
                .iter()
                .map(|(_, one)| one.clone())
                .collect();
            assert_eq!(is, meant, "seed {seed}");
            // A log that was trimmed past the converted cache makes it begin again: its watches have to as well.
            match (
                read(&source, &mut of_source),
                read(converted.cache(), &mut of_converted),
            ) {
                (Ok(mut should), Ok(is)) => {
                    should.iter_mut().for_each(|event| event.3 = true);
                    assert_eq!(is, should, "seed {seed}");
                    compared += is.len();
                }
                _ => {
                    (_, of_source) = source.follow(everything());
                    (_, of_converted) = converted.cache().follow(everything());
                }
            }
        }
    }
    assert!(failures > 50 && compared > 2000, "{failures} {compared}");
}

#[tokio::test(start_paused = true)]
async fn w183_many_objects_are_converted_in_one_call_and_each_once() {
    let source = Cache::new(1 << 20, 2, Arc::default(), None);
    let mut filler = CacheFiller::new(source.clone());
    let added = (0..10).map(|name| WatchEvent::Added(object(name, "v1", 5)));
    filler.collect(added.collect());
    filler.replace(&ServerVersion::from(ResourceVersion::new(9)));
    let converting = Arc::new(Converting::default());
    let converted = open(&source, &converting, 1 << 20);
    converted.reach(ResourceVersion::new(9)).await.unwrap();
    assert_eq!(converting.given.load(Ordering::Relaxed), 10);
    assert_eq!(
        converting.calls.load(Ordering::Relaxed),
        4,
        "three at a time"
    );
}

#[tokio::test(start_paused = true)]
async fn w183_the_history_of_the_other_cache_is_converted_too() {
    let source = Cache::new(1 << 20, 2, Arc::default(), None);
    let mut filler = CacheFiller::new(source.clone());
    filler.replace(&ServerVersion::from(ResourceVersion::new(1)));
    filler.apply(vec![
        WatchEvent::Added(object(0, "v1", 2)),
        WatchEvent::Modified(object(0, "v1", 3)),
    ]);
    let converted = open(&source, &Arc::default(), 1 << 20);
    converted.reach(ResourceVersion::new(3)).await.unwrap();
    let after = converted
        .cache()
        .follow_after(ResourceVersion::new(2), everything());
    let events = read(converted.cache(), &mut after.unwrap()).unwrap();
    assert_eq!(events, [(EventType::Modified, "o0".to_owned(), 3, true)]);
}

#[tokio::test(start_paused = true)]
async fn w183_watches_of_a_converted_cache_end_with_it() {
    let source = Cache::new(1 << 20, 2, Arc::default(), None);
    let converted = open(&source, &Arc::default(), 1 << 20);
    let cache = converted.cache().clone();
    assert!(!cache.is_closed());
    // The source is never filled.
    let (waited, ()) = tokio::join!(converted.reach(ResourceVersion::new(1)), async {
        tokio::task::yield_now().await;
        converted.close();
    });
    assert!(waited.unwrap_err().to_string().contains("has changed"));
    assert!(converted.reach(ResourceVersion::new(1)).await.is_err());
    assert!(cache.is_closed());
}
