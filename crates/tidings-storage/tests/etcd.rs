//! Tests with a real etcd: outages, restores, several servers, certificates.

#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tidings_storage::{
    Change, Error, Etcd, EtcdOpenError, EtcdOptions, EtcdTls, Event, Range, Revision, Storage,
    WatchStream, Write,
};
use tidings_testing::EtcdFiles;

const LONGEST: Duration = Duration::from_secs(20);

fn options(etcd: &tidings_testing::Etcd) -> EtcdOptions {
    EtcdOptions::new(etcd.endpoints())
}

async fn open(etcd: &tidings_testing::Etcd) -> Etcd {
    Etcd::open(options(etcd)).await.unwrap()
}

async fn events(watch: &mut WatchStream, count: usize) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = poll_fn(|context| watch.as_mut().poll_next(context));
        let batch = tokio::time::timeout(LONGEST, next).await;
        events.extend(batch.expect("events come in time").unwrap()?.events);
    }
    Ok(events)
}

async fn has(store: &Etcd, key: &'static str) -> bool {
    let range = Range {
        prefix: key.into(),
        ..Range::default()
    };
    !store.range(range).await.unwrap().entries.is_empty()
}

/// Retries a write until the outage is over.
async fn write_at_last(store: &Etcd, key: &str) -> Revision {
    let started = Instant::now();
    loop {
        match store.write(Write::create(key.to_owned(), "v")).await {
            Ok(revision) => return revision,
            // An earlier attempt was done after all.
            Err(Error::Conflict {
                current: Some(revision),
            }) => return revision,
            Err(error) => assert!(started.elapsed() < LONGEST, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn keys_with_a_lifetime_go_when_it_is_over() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let mut options = options(&etcd);
    options.lifetimes = vec![("brief/".into(), Duration::from_secs(1))];
    let store = Etcd::open(options).await.unwrap();
    let after = store.revision().await.unwrap();
    let mut watch = store.watch("".into(), after).await.unwrap();
    for key in ["brief/a", "brief/b", "long/c"] {
        store.write(Write::create(key, "v")).await.unwrap();
    }
    let seen = events(&mut watch, 5).await.unwrap();
    let mut gone: Vec<_> = seen[3..].iter().map(|event| &event.key[..]).collect();
    gone.sort_unstable();
    assert_eq!(gone, [b"brief/a", b"brief/b"]);
    assert!(seen[3..].iter().all(|event| event.change == Change::Delete));
    assert_eq!(seen[3].revision, seen[4].revision, "they share a lease");
    assert!(has(&store, "long/c").await);
}

#[tokio::test]
async fn an_outage_is_told_at_once_and_a_watch_goes_on_after_it() {
    let mut etcd = tidings_testing::Etcd::start().unwrap();
    let store = open(&etcd).await;
    let first = store.write(Write::create("a", "1")).await.unwrap();
    let mut watch = store.watch("".into(), first).await.unwrap();
    let second = store.write(Write::update("a", first, "2")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap()[0].revision, second);
    assert_eq!(store.trouble(), None);

    etcd.kill(0).unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let started = Instant::now();
        let refused = store.write(Write::update("a", second, "x")).await;
        let refused = refused.unwrap_err();
        slowest = slowest.max(started.elapsed());
        let told = matches!(refused, Error::Unavailable(_) | Error::Uncertain(_));
        assert!(told, "{refused}");
        assert!(matches!(store.revision().await, Err(Error::Unavailable(_))));
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let trouble = store.trouble().unwrap();
    assert!(trouble.what.contains(&etcd.endpoints()[0]), "{trouble:?}");
    assert!(!trouble.needs_restart, "it gets better by itself");

    etcd.restart(0).unwrap();
    let third = write_at_last(&store, "b").await;
    assert_eq!(events(&mut watch, 1).await.unwrap()[0].revision, third);
    assert_eq!(store.trouble(), None);
}

#[tokio::test]
async fn a_silent_etcd_is_given_up_and_told_soon_after() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let store = open(&etcd).await;
    let pid = etcd.pid(0).unwrap();
    tidings_testing::pause(pid).unwrap();
    let started = Instant::now();
    let first = store.write(Write::create("a", "1")).await.unwrap_err();
    assert!(matches!(first, Error::Uncertain(_)), "{first}");
    assert!(started.elapsed() < Duration::from_secs(5));
    let _ = store.revision().await.unwrap_err();
    let started = Instant::now();
    let later = store.write(Write::create("b", "1")).await.unwrap_err();
    assert!(matches!(later, Error::Uncertain(_) | Error::Unavailable(_)));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    tidings_testing::resume(pid).unwrap();
    write_at_last(&store, "c").await;
}

#[tokio::test]
async fn a_restored_backup_is_noticed_and_everything_that_was_seen_is_void() {
    let mut etcd = tidings_testing::Etcd::start().unwrap();
    let backup = tempfile::tempdir().unwrap();
    let store = open(&etcd).await;
    let kept = store.write(Write::create("kept", "1")).await.unwrap();
    etcd.kill(0).unwrap();
    etcd.back_up(backup.path()).unwrap();
    etcd.restart(0).unwrap();
    let mut at = write_at_last(&store, "lost").await;
    let mut watch = store.watch("".into(), at).await.unwrap();
    for value in 0..20 {
        at = store
            .write(Write::update("lost", at, value.to_string()))
            .await
            .unwrap();
    }
    events(&mut watch, 20).await.unwrap();
    etcd.kill(0).unwrap();
    etcd.restore(backup.path()).unwrap();
    etcd.restart(0).unwrap();
    let error = events(&mut watch, 1).await.unwrap_err();
    assert!(
        matches!(error, Error::WentBack { from, to } if from == at && to < at),
        "{error}"
    );
    let revision = store.revision().await.unwrap();
    assert!(kept <= revision && revision < at);
    assert!(!has(&store, "lost").await);
    assert_eq!(store.stats().remote.unwrap().went_back, 1);
    // The store works again.
    let mut watch = store.watch("".into(), revision).await.unwrap();
    let written = store.write(Write::create("new", "1")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap()[0].revision, written);
}

#[tokio::test]
async fn a_value_that_etcd_does_not_take_is_said_to_be_too_large() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let store = open(&etcd).await;
    for bytes in [1_600_000, 2_900_000] {
        let refused = store.write(Write::create("a", vec![b'x'; bytes])).await;
        let refused = refused.unwrap_err();
        let said =
            matches!(refused, Error::TooLarge { bytes: said, .. } if said == bytes as u64 + 1);
        assert!(said, "{bytes}: {refused}");
    }
    // etcd's own limit applies too; and a write of the documented maximum succeeds.
    let mut options = options(&etcd);
    options.value_bytes_max = 4 << 20;
    let lenient = Etcd::open(options).await.unwrap();
    let refused = lenient
        .write(Write::create("a", vec![b'x'; 1_600_000]))
        .await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::TooLarge {
                bytes: 1_600_001,
                bytes_max: None
            }
        ),
        "{refused}"
    );
    let key = "k".repeat(600);
    let largest = vec![b'x'; tidings_storage::VALUE_BYTES_MAX - key.len()];
    store.write(Write::create(key, largest)).await.unwrap();
    assert_eq!(store.trouble(), None);
}

#[tokio::test]
async fn two_servers_see_each_others_writes_and_one_ends_history_for_both() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let with_clock = || {
        let clock = clock.clone();
        let mut options = options(&etcd);
        options.history_revisions_min = 5;
        options.now = Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        options.clock_step_max = Duration::MAX;
        options
    };
    let (one, two) = (
        Etcd::open(with_clock()).await.unwrap(),
        Etcd::open(with_clock()).await.unwrap(),
    );
    let start = one.revision().await.unwrap();
    let mut watch = two.watch("".into(), start).await.unwrap();
    let mut at = one.write(Write::create("a", "0")).await.unwrap();
    for value in 1..30 {
        at = one
            .write(Write::update("a", at, value.to_string()))
            .await
            .unwrap();
        assert!(two.revision().await.unwrap() >= at, "it was acknowledged");
    }
    assert_eq!(events(&mut watch, 30).await.unwrap()[29].revision, at);
    let conflict = two.write(Write::update("a", start, "x")).await.unwrap_err();
    assert!(matches!(conflict, Error::Conflict { current } if current == Some(at)));

    clock.fetch_add(3_600_000, Ordering::Relaxed);
    let oldest = one.compact().await.unwrap();
    assert!(oldest > start);
    // The other server does not know of the compaction until its old watch fails.
    let mut late = two.watch("".into(), start).await.unwrap();
    let gone = events(&mut late, 1).await.unwrap_err();
    assert!(matches!(gone, Error::Compacted { .. }), "{gone}");
    assert_eq!(two.oldest().await.unwrap(), oldest);
    let refused = two.watch("".into(), start).await;
    assert!(matches!(refused, Err(Error::Compacted { .. })));
    // A server that starts later knows it too.
    let third = Etcd::open(with_clock()).await.unwrap();
    assert_eq!(third.oldest().await.unwrap(), oldest);
    // A watch that was up to date goes on.
    let next = one.write(Write::update("a", at, "next")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap()[0].revision, next);
}

#[tokio::test]
async fn a_prefix_of_kube_apiserver_is_refused_and_another_prefix_is_not() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let theirs = open(&etcd).await;
    theirs
        .write(Write::create("aaa/custom", "{}"))
        .await
        .unwrap();
    let binary = &b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace"[..];
    theirs
        .write(Write::create("namespaces/default", binary))
        .await
        .unwrap();
    let refused = Etcd::open(options(&etcd)).await.unwrap_err();
    assert!(matches!(refused, EtcdOpenError::Foreign { .. }));
    let text = refused.to_string();
    assert!(text.contains("/registry/namespaces/default"), "{text}");

    let mut ours = options(&etcd);
    ours.prefix = "/tidings".to_owned();
    let ours = Etcd::open(ours).await.unwrap();
    let found = ours.range(tidings_storage::Range::default()).await.unwrap();
    assert!(found.entries.is_empty());
}

#[tokio::test]
async fn endpoints_and_prefixes_that_cannot_be_are_explained() {
    let explained = async |options: EtcdOptions| {
        let error = Etcd::open(options).await.unwrap_err();
        error.to_string()
    };
    let of = |endpoint: &str| EtcdOptions::new([endpoint.to_owned()]);
    assert_eq!(
        explained(of("127.0.0.1:2379")).await,
        "127.0.0.1:2379 is no endpoint of etcd: write it as http://HOST:PORT or https://HOST:PORT"
    );
    assert_eq!(
        explained(EtcdOptions::new([])).await,
        "no endpoint of etcd is given"
    );
    let mut tls = of("http://127.0.0.1:2379");
    tls.tls = Some(EtcdTls::default());
    assert!(explained(tls).await.contains("certificates are for https"));
    let mut prefix = of("http://127.0.0.1:2379");
    prefix.prefix = "registry/".to_owned();
    assert!(explained(prefix).await.contains("must begin with /"));
}

/// A certificate authority, and a certificate and key for members and clients.
fn certificates(directory: &std::path::Path) -> (EtcdFiles, EtcdTls) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut member = CertificateParams::new(Vec::new()).unwrap();
    member
        .subject_alt_names
        .push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().unwrap();
    let certificate = member.signed_by(&key, &issuer).unwrap().pem();
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let key = key.serialize_pem();
    let files = EtcdFiles {
        authority: write("ca.crt", &authority_pem),
        certificate: write("member.crt", &certificate),
        key: write("member.key", &key),
    };
    let tls = EtcdTls {
        authority: Some(authority_pem.into_bytes()),
        identity: Some((certificate.into_bytes(), key.into_bytes())),
    };
    (files, tls)
}

#[tokio::test]
async fn certificates_are_shown_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (files, tls) = certificates(directory.path());
    let etcd = tidings_testing::Etcd::cluster(1, Some(&files)).unwrap();
    let mut right = options(&etcd);
    right.tls = Some(tls.clone());
    let store = Etcd::open(right).await.unwrap();
    store.write(Write::create("a", "1")).await.unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let (_, strangers) = certificates(elsewhere.path());
    let mut wrong = options(&etcd);
    wrong.tls = Some(strangers);
    let error = Etcd::open(wrong).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("certificate"), "{cause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_no_event_is_lost_or_told_twice() {
    let mut etcd = tidings_testing::Etcd::cluster(3, None).unwrap();
    let store = Arc::new(open(&etcd).await);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("k/".into(), start).await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let mut acknowledged = Vec::new();
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let key = format!("k/{number}");
                if let Ok(revision) = store.write(Write::create(key, "v")).await {
                    acknowledged.push(revision);
                } else {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            acknowledged
        }
    });
    for index in [0, 1, 2, 0] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        etcd.kill(index).unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        etcd.restart(index).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let acknowledged = writer.await.unwrap();
    let last = write_at_last(&store, "k/last").await;
    let mut seen: Vec<Revision> = Vec::new();
    while seen.last() != Some(&last) {
        let next = events(&mut watch, 1).await.unwrap();
        seen.extend(next.iter().map(|event| event.revision));
    }
    assert!(
        seen.is_sorted_by(|before, after| before < after),
        "{seen:?}"
    );
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    for revision in &acknowledged {
        assert!(
            seen.binary_search(revision).is_ok(),
            "{revision} is missing"
        );
    }
}

#[tokio::test]
async fn a_server_with_a_wrong_clock_ends_no_history_for_others() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let mut wrong = options(&etcd);
    wrong.history_revisions_min = 5;
    wrong.now = Arc::new({
        let clock = clock.clone();
        move || Duration::from_millis(clock.load(Ordering::Relaxed))
    });
    let (wrong, right) = (Etcd::open(wrong).await.unwrap(), open(&etcd).await);
    let first = right.write(Write::create("a", "0")).await.unwrap();
    let mut at = first;
    for value in 1..30 {
        let update = Write::update("a", at, value.to_string());
        at = right.write(update).await.unwrap();
        wrong.revision().await.unwrap();
    }
    // The clock jumps three hours ahead, and the server compacts.
    clock.fetch_add(3 * 3600 * 1000, Ordering::Relaxed);
    assert!(wrong.compact().await.unwrap() <= first);
    let mut watch = right.watch("a".into(), first).await.unwrap();
    assert_eq!(events(&mut watch, 29).await.unwrap().len(), 29);
}

#[test]
fn a_task_that_has_ended_is_noticed() {
    let etcd = tidings_testing::Etcd::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(open(&etcd));
    assert_eq!(store.trouble(), None);
    // The tasks of the store end with their runtime.
    runtime.shutdown_timeout(LONGEST);
    let started = Instant::now();
    let trouble = loop {
        match store.trouble() {
            Some(trouble) => break trouble,
            None => assert!(started.elapsed() < LONGEST),
        }
        std::thread::yield_now();
    };
    assert!(
        trouble.needs_restart && trouble.what.contains("follows etcd"),
        "{trouble:?}"
    );
}
