//! Data directories of an earlier version (format 2): they open, are converted, and `check` reports doubtful keys.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use tidings_storage::check::check;
use tidings_storage::{Embedded, EmbeddedOptions, OpenError, Range, Revision, Storage, Write};

/// A frame in format 1, which directories of format 2 have: magic, length, checksum of length and body, body.
fn frame(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(body);
    let crc = hasher.finalize().to_le_bytes();
    [b"tdr1", &length[..], &crc, body].concat()
}

fn record(revision: u64, key: &str, value: Option<&str>) -> Vec<u8> {
    let mut body = vec![if value.is_some() { 1 } else { 2 }];
    body.extend_from_slice(&revision.to_le_bytes());
    body.extend_from_slice(&1_700_000_000_000_u64.to_le_bytes());
    body.extend_from_slice(&(key.len() as u32).to_le_bytes());
    body.extend_from_slice(key.as_bytes());
    body.extend_from_slice(value.unwrap_or_default().as_bytes());
    frame(&body)
}

fn mark(kind: u8, revision: u64) -> Vec<u8> {
    frame(&[&[kind][..], &revision.to_le_bytes()].concat())
}

const OLDEST: u8 = 3;
const CLOSED: u8 = 4;

fn segment(frames: &[Vec<u8>]) -> Vec<u8> {
    [&b"tidings1"[..], &frames.concat()].concat()
}

fn directory(segments: &[(u64, Vec<u8>)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    fs::create_dir(&log).unwrap();
    fs::write(
        directory.path().join("FORMAT"),
        "tidings data directory, format 2\n",
    )
    .unwrap();
    fs::write(directory.path().join("LOCK"), "").unwrap();
    let list: String = segments.iter().map(|(id, _)| format!("{id}\n")).collect();
    fs::write(log.join("SEGMENTS"), list).unwrap();
    for (id, bytes) in segments {
        fs::write(log.join(format!("{id:020}.seg")), bytes).unwrap();
    }
    directory
}

fn open(path: &Path) -> Result<Embedded, OpenError> {
    let mut options = EmbeddedOptions::default();
    options.segment_bytes_max = 300;
    options.history_revisions_min = 0;
    options.history_age = std::time::Duration::ZERO;
    Embedded::open(path, options)
}

async fn state(store: &Embedded) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entries = store.range(Range::default()).await.unwrap().entries;
    let pairs = entries.iter();
    pairs
        .map(|entry| (text(&entry.key), text(&entry.value)))
        .collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[tokio::test]
async fn a_directory_of_format_2_opens_and_is_converted() {
    let first = segment(&[
        record(1, "a", Some("1")),
        record(2, "b", Some("1")),
        record(3, "a", Some("2")),
    ]);
    let second = segment(&[
        mark(OLDEST, 3),
        record(4, "b", None),
        record(5, "c", Some("1")),
        mark(CLOSED, 0),
    ]);
    let directory = directory(&[(1, first), (2, second)]);
    let store = open(directory.path()).unwrap();
    let expected = [pair("a", "2"), pair("c", "1")];
    assert_eq!(state(&store).await, expected);
    assert_eq!(store.oldest().await.unwrap(), Revision(3));
    let next = store.write(Write::create("d", "1")).await.unwrap();
    assert_eq!(next, Revision(6));
    drop(store);
    let format = fs::read_to_string(directory.path().join("FORMAT")).unwrap();
    assert_eq!(format, "tidings data directory, format 3\n");
    let store = open(directory.path()).unwrap();
    assert_eq!(state(&store).await[..2], expected);
    drop(store);
    assert_eq!(check(directory.path()).unwrap().damage, []);
}

#[tokio::test]
async fn what_a_crash_of_the_earlier_version_left_is_understood() {
    // It was killed while it joined two segments, so there are duplicate records. Its last write is torn.
    let joined = segment(&[
        mark(OLDEST, 2),
        record(2, "a", Some("2")),
        record(4, "c", Some("1")),
    ]);
    let copied = segment(&[record(3, "b", Some("1")), record(4, "c", Some("1"))]);
    let mut last = segment(&[record(5, "b", None), record(6, "c", None)]);
    last.extend_from_slice(&record(7, "d", Some("torn"))[..20]);
    let directory = directory(&[(1, joined), (2, copied), (3, last)]);
    let expected = [pair("a", "2")];
    let mut store = open(directory.path()).unwrap();
    assert_eq!(state(&store).await, expected);
    // Compaction and rewriting bring no deleted key back, in any order of segments.
    for round in 0..30 {
        let key = format!("k{}", round % 3);
        let found = state(&store).await.into_iter().any(|(name, _)| name == key);
        if !found {
            store
                .write(Write::create(key, "x".repeat(80)))
                .await
                .unwrap();
        } else {
            let range = Range {
                prefix: key.clone().into(),
                ..Range::default()
            };
            let at = store.range(range).await.unwrap().entries[0].revision;
            store.write(Write::delete(key, at)).await.unwrap();
        }
        store.compact().await.unwrap();
        if round % 5 == 0 {
            drop(store);
            store = open(directory.path()).unwrap();
        }
        let others: Vec<_> = state(&store).await;
        let others: Vec<_> = others
            .iter()
            .filter(|(key, _)| !key.starts_with('k'))
            .collect();
        assert_eq!(others, [&expected[0]], "round {round}");
    }
}

#[test]
fn check_names_what_may_have_come_back() {
    // "gone" was deleted at revision 4, and the segment with its tombstone was rewritten without it.
    let first = segment(&[
        record(1, "gone", Some("1")),
        record(2, "kept", Some("1")),
        record(3, "busy", Some("1")),
    ]);
    let second = segment(&[
        mark(OLDEST, 5),
        record(5, "busy", Some("2")),
        mark(CLOSED, 0),
    ]);
    let directory = directory(&[(1, first), (2, second)]);
    let report = check(directory.path()).unwrap();
    assert_eq!((report.format, report.keys, report.records), (2, 3, 4));
    assert_eq!((report.oldest, report.revision), (Revision(5), Revision(5)));
    let doubtful: Vec<_> = report.doubtful.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(doubtful, [&b"gone"[..], b"kept"]);
    // The doubt remains after the conversion, but not for keys that this version has written.
    let store = open(directory.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let written = runtime.block_on(async {
        store.write(Write::create("new", "1")).await?;
        store.write(Write::update("kept", Revision(2), "2")).await
    });
    written.unwrap();
    drop(store);
    let report = check(directory.path()).unwrap();
    let doubtful: Vec<_> = report.doubtful.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!((report.format, doubtful), (3, vec![&b"gone"[..]]));
    // Deletions by this version cause no doubt about other keys.
    let store = open(directory.path()).unwrap();
    runtime.block_on(async {
        store
            .write(Write::delete("busy", Revision(5)))
            .await
            .unwrap();
        store.compact().await.unwrap();
    });
    drop(store);
    assert_eq!(check(directory.path()).unwrap().doubtful.len(), 1);
}

#[test]
fn a_list_of_segments_that_lost_its_contents_is_damage() {
    let directory = directory(&[(1, segment(&[record(1, "a", Some("1"))]))]);
    fs::write(directory.path().join("log/SEGMENTS"), "").unwrap();
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(
        refused.contains("it names no segments, and there are some"),
        "{refused}"
    );
    assert!(
        directory
            .path()
            .join("log/00000000000000000001.seg")
            .exists()
    );
    let report = check(directory.path()).unwrap();
    assert_eq!(report.damage.len(), 1);
}

#[test]
fn what_is_left_of_a_restore_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("log")).unwrap();
    fs::write(
        directory.path().join("log/00000000000000000001.seg"),
        "tidings2",
    )
    .unwrap();
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(
        refused.contains("a restore that was interrupted: delete it"),
        "{refused}"
    );
}

#[tokio::test]
async fn check_reads_everything_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let missing = check(directory.path()).unwrap_err();
    assert!(matches!(missing, OpenError::Missing { .. }), "{missing}");
    let store = open(directory.path()).unwrap();
    for number in 0..20 {
        store
            .write(Write::create(format!("k{number:02}"), "x".repeat(50)))
            .await
            .unwrap();
    }
    let busy = check(directory.path()).unwrap_err();
    assert!(matches!(busy, OpenError::InUse { .. }), "{busy}");
    drop(store);
    // A copy of a directory may have no lock file.
    fs::remove_file(directory.path().join("LOCK")).unwrap();
    let whole = check(directory.path()).unwrap();
    assert!(!directory.path().join("LOCK").exists());
    assert_eq!((whole.format, whole.keys, whole.records), (3, 20, 20));
    assert!(whole.segments > 3 && whole.damage.is_empty() && whole.doubtful.is_empty());
    // Both damaged files are reported.
    let log = directory.path().join("log");
    let names = fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = names
        .filter(|path| path.extension().is_some_and(|it| it == "seg"))
        .collect();
    segments.sort();
    for path in &segments[1..3] {
        let mut bytes = fs::read(path).unwrap();
        bytes[40] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let before: Vec<_> = segments
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();
    let report = check(directory.path()).unwrap();
    let damaged: Vec<_> = report.damage.iter().map(|damage| &damage.path).collect();
    assert_eq!(damaged, segments[1..3].iter().collect::<Vec<_>>());
    let after: Vec<_> = segments
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();
    assert_eq!(before, after);
    let refused = open(directory.path()).unwrap_err().to_string();
    assert!(
        refused.contains("`tidings check` lists all damage"),
        "{refused}"
    );
}
