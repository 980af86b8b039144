//! Random histories: watches in all kinds of scopes get what a reading of every event gives them, with a log that drops events soon.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tidings_api::{
    EventType, Facet, FieldFacet, FieldPaths, Object, ObjectKey, ResourceVersion, ServedObject,
    WatchEvent,
};
use tidings_informer::{ReflectorStore, ServerVersion};

use crate::cache::Cache;
use crate::cursor::Cursor;
use crate::fill::CacheFiller;
use crate::log::{FellBehind, LoggedEvent};
use crate::scopes::{Narrowing, ObjectTest, WatchScope};

/// How many histories are tried.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("TIDINGS_SEEDS").ok();
    0..count.and_then(|count| count.parse().ok()).unwrap_or(300)
}

fn object(random: &mut fastrand::Rng, revision: u64) -> Object {
    let [namespace, name, app, node] = [2, 3, 3, 3].map(|most| random.u32(..most));
    // Sometimes without labels, and without the field.
    let labels = match app {
        0 => String::new(),
        app => format!(r#","labels":{{"app":"a{app}"}}"#),
    };
    let spec = match node {
        0 => String::new(),
        node => format!(r#","spec":{{"nodeName":"n{node}"}}"#),
    };
    let json = format!(
        r#"{{"metadata":{{"name":"o{name}","namespace":"ns{namespace}","uid":"u"{labels}}}{spec}}}"#
    );
    let revision = ResourceVersion::new(revision);
    Object::stamped(json.as_bytes(), revision, EventType::Modified).unwrap()
}

fn node() -> Facet {
    let paths = FieldPaths::new([["spec", "nodeName"]]);
    Facet::Field(FieldFacet::new(&paths, [0], ""))
}

fn scope(random: &mut fastrand::Rng) -> WatchScope {
    let namespace = random
        .bool()
        .then(|| format!("ns{}", random.u32(..2)).into());
    let value = |letter: char, number: u32| format!("{letter}{number}").into();
    let number = random.u32(1..4);
    let narrowed = match random.u32(..6) {
        0 => Narrowing::None,
        1 => Narrowing::Value(Facet::Name, value('o', number - 1)),
        2 => Narrowing::Value(Facet::Label("app".into()), value('a', number)),
        3 => Narrowing::Value(node(), value('n', number)),
        4 => Narrowing::Value(node(), "".into()),
        _ => {
            let test = |object: &Object| object.labels().get("app") != Some("a1");
            Narrowing::Test(ObjectTest::new("app!=a1", test))
        }
    };
    WatchScope {
        namespace,
        narrowed,
    }
}

/// What a scope means.
fn selects(scope: &WatchScope, object: &Object) -> bool {
    let namespace = scope.namespace.as_deref();
    namespace.is_none_or(|namespace| object.namespace() == *namespace)
        && match &scope.narrowed {
            Narrowing::None => true,
            Narrowing::Value(facet, value) => facet.value(object).as_deref() == Some(value),
            Narrowing::Test(_) => object.labels().get("app") != Some("a1"),
        }
}

/// A watch, what it was sent, and what it should have been sent.
struct Watched {
    scope: WatchScope,
    cursor: Option<Cursor>,
    sent: Vec<(EventType, u64)>,
    expected: Vec<(EventType, u64)>,
}

impl Watched {
    fn note(events: &mut Vec<(EventType, u64)>, scope: &WatchScope, event: &LoggedEvent) {
        let seen = event.seen_by(|object| selects(scope, object));
        events.extend(seen.map(|(kind, _)| (kind, event.revision.get())));
    }

    /// Reads up to a number of events, as the body of a watch does. Ends the watch if it has fallen behind.
    fn read(&mut self, cache: &Cache, most: usize) {
        let Some(cursor) = &mut self.cursor else {
            return;
        };
        let mut count = 0;
        loop {
            let read = match cache.read(cursor) {
                Ok(read) => read,
                Err(FellBehind { .. }) => {
                    self.cursor = None;
                    return;
                }
            };
            for (position, event) in read.events() {
                cursor.pass(position);
                Self::note(&mut self.sent, &self.scope, event);
                count += 1;
                if count == most {
                    return;
                }
            }
            if cursor.pass_all(&read).is_some() {
                assert_eq!(self.sent, self.expected, "{:?}", self.scope);
                return;
            }
        }
    }
}

#[tokio::test]
async fn w91_a_watch_of_a_part_gets_what_reading_everything_would_give_it() {
    let (mut fell_behind, mut sent) = (0, 0);
    for seed in seeds() {
        let (behind, events) = history(&mut fastrand::Rng::with_seed(seed));
        fell_behind += behind;
        sent += events;
    }
    assert!(fell_behind > 0 && sent > 1000, "{fell_behind} {sent}");
}

/// One history. Returns how many watches fell behind, and how many events were sent.
fn history(random: &mut fastrand::Rng) -> (usize, usize) {
    let log_bytes = 1000 << random.u32(0..8);
    let cache = Cache::new(log_bytes, 2, Arc::default(), None);
    let mut filler = CacheFiller::new(cache.clone());
    let mut revision = 10;
    filler.replace(&ServerVersion::new("10"));
    // The revisions at which a watch can start, and every event since.
    let mut events: Vec<Arc<LoggedEvent>> = Vec::new();
    let mut watches: Vec<Watched> = Vec::new();
    for _ in 0..random.usize(10..200) {
        match random.u32(..10) {
            0 if watches.len() < 12 => {
                let scope = scope(random);
                let back = random.usize(..=events.len().min(40));
                let past = &events[events.len() - back..];
                let start = past
                    .first()
                    .map_or(revision, |event| event.revision.get() - 1);
                let cursor = cache.follow_after(ResourceVersion::new(start), scope.clone());
                let Ok(cursor) = cursor else { continue };
                let mut expected = Vec::new();
                for event in past {
                    Watched::note(&mut expected, &scope, event);
                }
                watches.push(Watched {
                    scope,
                    cursor: Some(cursor),
                    sent: Vec::new(),
                    expected,
                });
            }
            1 if !watches.is_empty() => {
                let at = random.usize(..watches.len());
                watches[at].read(&cache, random.usize(1..20));
            }
            2 if !watches.is_empty() => {
                let left = watches.swap_remove(random.usize(..watches.len()));
                drop(left);
            }
            3 if random.u32(..10) == 0 => {
                cache.forget_before(ResourceVersion::new(revision));
            }
            4 if random.u32(..20) == 0 => {
                // A relist: every watch has fallen behind.
                revision += 1;
                filler.replace(&ServerVersion::new(&revision.to_string()));
                events.clear();
                for watch in &mut watches {
                    if let Some(cursor) = &watch.cursor {
                        assert!(cache.read(cursor).is_err());
                    }
                }
                watches.clear();
            }
            _ => {
                let mut batch = Vec::new();
                for _ in 0..random.usize(1..4) {
                    revision += 1;
                    let object = object(random, revision);
                    let is_known = |event: &WatchEvent| match event {
                        WatchEvent::Modified(known) | WatchEvent::Deleted(known) => {
                            known.key() == object.key()
                        }
                        _ => false,
                    };
                    if batch.iter().any(is_known) {
                        continue;
                    }
                    let previous = cache.get(&object.key());
                    let deleted = random.u32(..4) == 0;
                    let logged = match (&previous, deleted) {
                        (None, true) => continue,
                        (Some(last), true) => last.restamped(object.revision(), EventType::Deleted),
                        (_, false) => object.clone(),
                    };
                    let event = Arc::new(LoggedEvent::new(logged, previous, deleted));
                    for watch in &mut watches {
                        Watched::note(&mut watch.expected, &watch.scope, &event);
                    }
                    events.push(event);
                    batch.push(match deleted {
                        true => WatchEvent::Deleted(object),
                        false => WatchEvent::Modified(object),
                    });
                }
                filler.apply(batch);
            }
        }
    }
    for watch in &mut watches {
        watch.read(&cache, usize::MAX);
    }
    let behind = watches
        .iter()
        .filter(|watch| watch.cursor.is_none())
        .count();
    let sent = watches.iter().map(|watch| watch.sent.len()).sum();
    drop(watches);
    let stats = cache.stats();
    assert_eq!(
        (stats.watches, stats.scopes, stats.listed_events),
        (0, 0, 0)
    );
    (behind, sent)
}

#[tokio::test]
async fn a_quiet_watch_does_not_fall_behind_events_of_others() {
    let cache = Cache::new(4000, 2, Arc::default(), None);
    let mut filler = CacheFiller::new(cache.clone());
    filler.replace(&ServerVersion::new("10"));
    let quiet = WatchScope {
        namespace: None,
        narrowed: Narrowing::Value(node(), "quiet".into()),
    };
    let start = ResourceVersion::new(10);
    let mut selected = cache.follow_after(start, quiet).unwrap();
    let everything = cache.follow_after(start, WatchScope::default()).unwrap();
    let random = &mut fastrand::Rng::with_seed(1);
    for revision in 11..1000 {
        filler.apply(vec![WatchEvent::Modified(object(random, revision))]);
    }
    assert!(cache.read(&everything).is_err());
    let read = cache.read(&selected).unwrap();
    assert_eq!(read.events().count(), 0);
    assert_eq!(selected.pass_all(&read).unwrap().get(), 999);
    assert_eq!(cache.stats().listed_events, 0);
}

#[tokio::test]
async fn an_index_has_the_objects_that_a_walk_finds() {
    for seed in seeds() {
        let random = &mut fastrand::Rng::with_seed(seed);
        let cache = Cache::new(4000, 2, Arc::default(), None);
        let mut filler = CacheFiller::new(cache.clone());
        filler.replace(&ServerVersion::new("10"));
        let facets = [node(), Facet::Label("app".into()), Facet::Name];
        // An index that is being made while objects change.
        let mut making: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
        for revision in 11..random.u64(40..80) {
            let object = object(random, revision);
            let event = match random.u32(..4) {
                0 => WatchEvent::Deleted(object),
                _ => WatchEvent::Modified(object),
            };
            filler.apply(vec![event]);
            if let Some(index) = &mut making {
                let is_made = index.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if is_made.is_ready() {
                    making = None;
                }
            } else if random.u32(..4) == 0 {
                let (cache, facet) = (cache.clone(), facets[random.usize(..3)].clone());
                making = Some(Box::pin(async move { cache.index(&facet).await }));
            }
            let back = random.u64(..3).min(revision - 11);
            let Ok(snapshot) = cache.snapshot_at(ResourceVersion::new(revision - back)) else {
                continue;
            };
            let facet = &facets[random.usize(..3)];
            let start = std::ops::Bound::Included(ObjectKey::from_joined("ns0/o1"));
            for value in ["", "n1", "n2", "a1", "a2", "o0", "o1", "none"] {
                let Some(found) = snapshot.state.with_value(facet, value, &start) else {
                    continue;
                };
                let found: Vec<_> = found.map(|(key, _)| key.clone()).collect();
                let all = snapshot.state.range(ObjectKey::from_joined("ns0/o1")..);
                let expected =
                    all.filter(|(_, object)| facet.value(object).as_deref() == Some(value));
                let expected: Vec<_> = expected.map(|(key, _)| key.clone()).collect();
                assert_eq!(found, expected, "{facet:?}={value}");
            }
            assert!(cache.stats().indexes <= 2);
        }
    }
}
