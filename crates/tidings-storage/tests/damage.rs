//! Damaged, foreign and busy data directories: no acknowledged write is lost, and no wrong data is served.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidings_storage::{Embedded, EmbeddedOptions, OpenError, Range, Revision, Storage, Write};

fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, EmbeddedOptions::default())
}

fn segment(path: &Path) -> PathBuf {
    path.join("log/00000000000000000001.seg")
}

/// A closed store with `count` records.
async fn filled(count: u64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    for number in 0..count {
        store
            .write(Write::create(
                format!("key{number}"),
                format!("value{number}"),
            ))
            .await
            .unwrap();
    }
    directory
}

async fn values(store: &Embedded) -> Vec<String> {
    let entries = store.range(Range::default()).await.unwrap().entries;
    entries
        .iter()
        .map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
        .collect()
}

/// The segment without the closing mark, as before the store was closed.
fn unclosed(path: &Path) -> Vec<u8> {
    let whole = fs::read(segment(path)).unwrap();
    whole[..whole.len() - MARK].to_vec()
}

/// The size of the closing mark.
const MARK: usize = 33;

#[tokio::test]
async fn a_log_cut_off_anywhere_keeps_every_whole_record() {
    let directory = filled(3).await;
    let whole = unclosed(directory.path());
    let record = (whole.len() - 8) / 3;
    // The header is durable before the list of segments names the file.
    for cut in 8..=whole.len() {
        let copy = tempfile::tempdir().unwrap();
        fs::create_dir(copy.path().join("log")).unwrap();
        for file in ["FORMAT", "log/SEGMENTS"] {
            fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
        }
        fs::write(segment(copy.path()), &whole[..cut]).unwrap();
        let store = open(copy.path()).unwrap();
        let kept = cut.saturating_sub(8) / record;
        assert_eq!(
            values(&store).await,
            (0..kept)
                .map(|number| format!("value{number}"))
                .collect::<Vec<_>>(),
            "cut at {cut}"
        );
        // New writes follow the last whole record.
        let revision = store.write(Write::create("next", "v")).await.unwrap();
        assert_eq!(revision, Revision(kept as u64 + 1));
        drop(store);
        assert_eq!(
            values(&open(copy.path()).unwrap()).await.len(),
            kept + 1,
            "cut at {cut}"
        );
    }
}

#[tokio::test]
async fn a_flipped_byte_in_a_closed_store_is_refused_and_nothing_is_changed() {
    let directory = filled(3).await;
    let whole = fs::read(segment(directory.path())).unwrap();
    for at in 0..whole.len() - MARK {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        fs::write(segment(directory.path()), &damaged).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "byte {at}: {error}"
        );
        assert!(error.to_string().contains("Nothing was changed"), "{error}");
        assert_eq!(
            fs::read(segment(directory.path())).unwrap(),
            damaged,
            "byte {at}"
        );
    }
}

#[tokio::test]
async fn what_a_crash_left_at_the_end_is_ignored_not_deleted() {
    let directory = filled(2).await;
    let path = segment(directory.path());
    let mut torn = fs::read(&path).unwrap();
    let end = torn.len();
    torn.extend_from_slice(b"tdr2 half a record");
    fs::write(&path, &torn).unwrap();
    let store = open(directory.path()).unwrap();
    assert_eq!(values(&store).await.len(), 2);
    // New writes go to a new segment; the bytes that were never acknowledged stay after the end of the old one.
    store.write(Write::create("next", "v")).await.unwrap();
    drop(store);
    let kept = fs::read(&path).unwrap();
    assert_eq!(&kept[end..], b"tdr2 half a record");
    assert_eq!(values(&open(directory.path()).unwrap()).await.len(), 3);
}

#[tokio::test]
async fn a_directory_of_someone_else_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.doc"), "precious").unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Foreign { found, .. } if found == "thesis.doc"));
    assert!(
        error
            .to_string()
            .contains("choose an empty or a new directory"),
        "{error}"
    );
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        1,
        "nothing was written there"
    );
}

#[tokio::test]
async fn a_directory_of_a_later_version_is_refused() {
    let directory = filled(1).await;
    fs::write(
        directory.path().join("FORMAT"),
        "tidings data directory, format 4\n",
    )
    .unwrap();
    assert!(matches!(
        open(directory.path()).unwrap_err(),
        OpenError::Format { .. }
    ));
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(
        error
            .to_string()
            .contains("stop that one, or choose another directory"),
        "{error}"
    );
    drop(first);
    open(directory.path()).unwrap();
}

#[tokio::test]
async fn segments_that_became_useless_are_reclaimed() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = EmbeddedOptions::default();
    options.history_age = Duration::ZERO;
    options.history_revisions_min = 10;
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
    options.now = std::sync::Arc::new({
        let clock = clock.clone();
        move || Duration::from_millis(clock.load(std::sync::atomic::Ordering::Relaxed))
    });
    options.clock_step_max = Duration::MAX;
    let store = Embedded::open(directory.path(), options.clone()).unwrap();
    let kept = store.write(Write::create("kept", "k")).await.unwrap();
    let value = "x".repeat(1 << 20);
    let mut at = store
        .write(Write::create("busy", value.clone()))
        .await
        .unwrap();
    for _ in 0..80 {
        at = store
            .write(Write::update("busy", at, value.clone()))
            .await
            .unwrap();
    }
    clock.fetch_add(60_000, std::sync::atomic::Ordering::Relaxed);
    store.compact().await.unwrap();
    let bytes: u64 = fs::read_dir(directory.path().join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(
        bytes < 48 << 20,
        "{bytes} bytes are left of 80 MiB written, 11 MiB of them needed"
    );
    let oldest = store.oldest().await.unwrap();
    drop(store);
    let store = Embedded::open(directory.path(), options).unwrap();
    assert_eq!(
        store.oldest().await.unwrap(),
        oldest,
        "where history starts survives the rewriting"
    );
    let found = store.range(Range::default()).await.unwrap().entries;
    let found: Vec<_> = found
        .iter()
        .map(|entry| (&entry.key[..], entry.revision))
        .collect();
    assert_eq!(found, [(&b"busy"[..], at), (&b"kept"[..], kept)]);
}

#[tokio::test]
async fn a_segment_that_is_missing_is_noticed() {
    let directory = filled(1).await;
    fs::remove_file(segment(directory.path())).unwrap();
    let error = open(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("0001.seg is damaged at byte 0: it is missing"),
        "{error}"
    );
    fs::remove_dir_all(directory.path().join("log")).unwrap();
    let error = open(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("SEGMENTS is damaged at byte 0: it is missing"),
        "{error}"
    );
}

#[tokio::test]
async fn only_the_owner_can_read_what_is_stored() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open(&directory).unwrap();
    store.write(Write::create("secret", "value")).await.unwrap();
    for (path, mode) in [
        (directory.clone(), 0o700),
        (directory.join("log"), 0o700),
        (segment(&directory), 0o600),
    ] {
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            mode,
            "{}",
            path.display()
        );
    }
}
