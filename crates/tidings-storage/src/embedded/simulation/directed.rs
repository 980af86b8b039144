//! Tests of single failures that occurred once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::contract::{Error, Range, Revision, Write};
use crate::embedded::EmbeddedOptions;
use crate::embedded::disk::{Disk, Fault, SimulatedDisk};
use crate::embedded::engine::{Engine, HistoryToKeep};
use crate::embedded::watch::Backlog;

const DIRECTORY: &str = "/data";

/// A simulated disk and clock, and the options of a store on them.
struct DirectedWorld {
    disk: SimulatedDisk,
    options: EmbeddedOptions,
    clock_ms: Arc<AtomicU64>,
}

impl DirectedWorld {
    /// A store with segments of a thousand bytes and ten seconds of history.
    fn new() -> DirectedWorld {
        let disk = SimulatedDisk::new(7);
        let clock_ms = Arc::new(AtomicU64::new(5000));
        let options = EmbeddedOptions {
            history_age: Duration::from_secs(10),
            history_revisions_min: 2,
            segment_bytes_max: 1000,
            lifetimes: vec![("e/".into(), Duration::from_secs(60))],
            disk: Arc::new(disk.clone()),
            now: Arc::new({
                let clock_ms = clock_ms.clone();
                move || Duration::from_millis(clock_ms.load(Ordering::Relaxed))
            }),
            ..EmbeddedOptions::default()
        };
        DirectedWorld {
            disk,
            options,
            clock_ms,
        }
    }

    fn open(&mut self) -> Engine {
        self.disk = self.disk.next_process();
        self.options.disk = Arc::new(self.disk.clone());
        Engine::open(Path::new(DIRECTORY), self.options.clone()).unwrap()
    }

    /// Advances the clock in steps of a second.
    fn pass(&self, engine: &Engine, seconds: u64) {
        for _ in 0..seconds {
            self.clock_ms.fetch_add(1000, Ordering::Relaxed);
            engine.stats(false);
        }
    }
}

fn write(engine: &Engine, write: Write) -> Result<Revision, Error> {
    let (answer, mut done) = oneshot::channel();
    engine.commit(vec![(write, answer)]);
    done.try_recv().unwrap()
}

fn create(engine: &Engine, key: &str, bytes: usize) -> Revision {
    write(engine, Write::create(key.to_owned(), "x".repeat(bytes))).unwrap()
}

fn keys(engine: &Engine) -> Vec<String> {
    let found = engine.read(&Range::default()).unwrap();
    let keys = found.entries.iter();
    keys.map(|entry| String::from_utf8(entry.key.to_vec()).unwrap())
        .collect()
}

/// Updates one key until it has `bytes` bytes of history.
fn churn(engine: &Engine, key: &str, bytes: usize) {
    let mut at = create(engine, key, 100);
    for _ in 0..bytes / 150 {
        at = write(engine, Write::update(key.to_owned(), at, "y".repeat(100))).unwrap();
    }
}

#[test]
fn what_is_deleted_stays_deleted_when_its_segment_is_rewritten() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    // The values are in a segment that stays, the tombstones in one that is rewritten.
    for key in 0..20 {
        create(&engine, &format!("k{key:02}"), 20);
    }
    for key in 0..20 {
        if key % 4 == 0 {
            let at = engine
                .state()
                .index
                .current(format!("k{key:02}").as_bytes());
            write(&engine, Write::delete(format!("k{key:02}"), at.unwrap())).unwrap();
        }
    }
    churn(&engine, "busy", 20_000);
    world.pass(&engine, 60);
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    let kept = keys(&engine);
    assert_eq!(kept.len(), 16);
    assert!(engine.stats(true).tombstones > 0, "some are still needed");
    drop(engine);
    let engine = world.open();
    assert_eq!(keys(&engine), kept);
    // A key that is created again is reported as created.
    let after = engine.state().revision;
    create(&engine, "k04", 20);
    drop(engine);
    let engine = world.open();
    let mut backlog = Backlog::collect(&engine.state(), b"k04", after).unwrap();
    let told = backlog.read(&engine).unwrap().events;
    assert!(told.len() == 1 && told[0].created, "{told:?}");
}

#[test]
fn a_disk_full_of_history_frees_itself_and_is_used_again() {
    let mut world = DirectedWorld::new();
    world.options.history_revisions_min = 0;
    world.options.segment_bytes_max = 200_000;
    let engine = world.open();
    create(&engine, "kept", 100);
    churn(&engine, "busy", 8_000_000);
    engine.maintain();
    let wanted = engine.stats(true).disk.unwrap();
    assert!(wanted.reserve_bytes >= 100_000, "{wanted:?}");
    world.disk.set_capacity(Some(world.disk.used()));
    // No history is old enough, but it is dropped all the same: writes are more important than history.
    let at = engine.state().index.current(b"kept").unwrap();
    let written = write(&engine, Write::update("kept", at, "z".repeat(5000))).unwrap();
    let disk = engine.stats(true).disk.unwrap();
    assert!(disk.bytes < 500_000, "{disk:?}");
    engine.maintain();
    assert_eq!(engine.trouble(), None);
    assert!(engine.stats(true).disk.unwrap().reserve_bytes >= 100_000);
    drop(engine);
    let engine = world.open();
    assert_eq!(engine.state().index.current(b"kept"), Some(written));
}

#[test]
fn old_history_goes_from_a_full_disk_without_a_write() {
    let mut world = DirectedWorld::new();
    world.options.segment_bytes_max = 200_000;
    let engine = world.open();
    churn(&engine, "busy", 1_000_000);
    engine.maintain();
    world.disk.set_capacity(Some(world.disk.used()));
    world.pass(&engine, 60);
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    let disk = engine.stats(true).disk.unwrap();
    assert!(disk.bytes < 400_000, "{disk:?}");
}

#[test]
fn history_in_the_only_file_of_a_small_disk_is_freed_too() {
    let mut world = DirectedWorld::new();
    world.options.segment_bytes_max = 1 << 20;
    let engine = world.open();
    engine.maintain();
    world.disk.set_capacity(Some(world.disk.used() + 400_000));
    let mut at = create(&engine, "busy", 100);
    for number in 0..200 {
        let write = Write::update("busy", at, "y".repeat(10_000));
        at = self::write(&engine, write).unwrap_or_else(|error| panic!("{number}: {error}"));
        if number % 10 == 0 {
            engine.maintain();
        }
    }
    assert_eq!(keys(&engine), ["busy"]);
}

#[test]
fn a_reserve_that_cannot_grow_stays_as_it_is() {
    let mut world = DirectedWorld::new();
    world.options.segment_bytes_max = 16 << 20;
    let engine = world.open();
    engine.maintain();
    let reserve = |engine: &Engine| engine.stats(true).disk.unwrap().reserve_bytes;
    let least = reserve(&engine);
    assert!(least > 0);
    // With a closed segment the wanted reserve is larger, and there is no space for it.
    world.disk.set_capacity(Some(world.disk.used() + (6 << 20)));
    world.disk.crash(Fault::Kill);
    drop(engine);
    let log = Path::new("/data/log/00000000000000000001.seg");
    let engine = world.open();
    create(&engine, "a", 10);
    drop(engine);
    world
        .disk
        .edit(log, |bytes| bytes.extend_from_slice(b"torn"));
    let engine = world.open();
    create(&engine, "b", 10);
    let used = world.disk.used();
    engine.maintain();
    assert_eq!(reserve(&engine), least);
    assert_eq!(world.disk.used(), used, "nothing is written in vain");
    assert_eq!(engine.trouble(), None);
    world.disk.set_capacity(None);
    engine.maintain();
    assert!(reserve(&engine) > 8 << 20);
}

#[test]
fn compaction_that_fails_once_is_due_again() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    churn(&engine, "busy", 3000);
    world.pass(&engine, 60);
    world.disk.fail_after(0, Fault::Error);
    assert!(engine.compact(HistoryToKeep::Young, 1000).is_err());
    world.disk.heal();
    assert!(engine.compact_whole(HistoryToKeep::Young, false).unwrap() > Revision(0));
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_others_from_being_compacted() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    churn(&engine, "busy", 20_000);
    let log = Path::new("/data/log/00000000000000000003.seg");
    world.disk.edit(log, |bytes| bytes[200] ^= 1);
    world.pass(&engine, 60);
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    let disk = engine.stats(true).disk.unwrap();
    assert!(disk.segments < 5, "{disk:?}");
    assert!(
        world
            .disk
            .names(Path::new("/data/log"))
            .unwrap()
            .contains(&"00000000000000000003.seg".to_owned())
    );
}

#[test]
fn a_value_that_was_larger_than_it_may_be_may_become_smaller() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    let at = create(&engine, "a", 5000);
    drop(engine);
    world.options.value_bytes_max = 100;
    let engine = world.open();
    let update = |bytes| Write::update("a", at, "x".repeat(bytes));
    assert!(engine.check_size(&update(4000)).is_ok());
    assert!(engine.check_size(&update(5001)).is_err());
    assert!(
        engine
            .check_size(&Write::create("b", "x".repeat(200)))
            .is_err()
    );
}

#[test]
fn a_list_of_segments_without_contents_is_damage() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    create(&engine, "a", 10);
    drop(engine);
    world.disk.edit(Path::new("/data/log/SEGMENTS"), Vec::clear);
    let refused = Engine::open(Path::new(DIRECTORY), world.options.clone());
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("not a list of segments"), "{refused}");
    let names = world.disk.names(Path::new("/data/log")).unwrap();
    assert!(names.iter().any(|name| name.ends_with(".seg")), "{names:?}");
}

#[test]
fn a_hold_on_history_that_is_forgotten_ends() {
    let holds = crate::contract::HistoryHolds::default();
    let start = std::time::Instant::now();
    let hold = holds.hold();
    assert!(holds.any_at(start + Duration::from_secs(60)));
    assert!(
        !holds.any_at(start + Duration::from_secs(3600)),
        "somebody has stalled"
    );
    drop(hold);
    assert!(!holds.any_at(start));
}

#[test]
fn a_store_opens_and_serves_reads_with_no_byte_free() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    churn(&engine, "busy", 5_000);
    let listed = keys(&engine);
    // With and without an interrupted write at the end.
    for fault in [Fault::Kill, Fault::PowerLoss] {
        world.disk.set_capacity(None);
        let engine = world.open_again(fault);
        world.disk.set_capacity(Some(0));
        drop(engine);
        let engine = world.open();
        assert_eq!(keys(&engine), listed);
        let refused = write(&engine, Write::create("more", "x".repeat(500))).unwrap_err();
        assert!(matches!(refused, Error::Failed(_)), "{refused}");
        engine.maintain();
        let trouble = engine.trouble().unwrap();
        assert!(
            trouble.contains("full") || trouble.contains("no storage space"),
            "{trouble}"
        );
        // The store recovers when there is free space.
        world.disk.set_capacity(None);
        engine.maintain();
        engine.maintain();
        assert_eq!(engine.trouble(), None);
        drop(engine);
    }
}

impl DirectedWorld {
    fn open_again(&mut self, fault: Fault) -> Engine {
        self.disk.crash(fault);
        self.open()
    }
}

#[test]
fn a_compaction_that_fails_leaves_nothing_behind_when_it_is_tried_again() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    create(&engine, "kept", 50);
    churn(&engine, "busy", 20_000);
    world.pass(&engine, 60);
    for calls in 0..60 {
        world.disk.fail_after(calls, Fault::Error);
        let _ = engine.compact(HistoryToKeep::Young, 7);
        world.pass(&engine, 10);
    }
    let failures = engine.stats(true).failed_compactions;
    assert!(failures > 10, "{failures}");
    world.disk.heal();
    world.pass(&engine, 10);
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    engine.maintain();
    let stats = engine.stats(true);
    let disk = stats.disk.unwrap();
    let log = disk.bytes - disk.reserve_bytes;
    assert!(log < 4000, "{log} bytes are left of 20 000");
    let names = world.disk.names(Path::new("/data/log")).unwrap();
    let segments = names.iter().filter(|name| name.ends_with(".seg")).count();
    assert_eq!(
        segments as u64, disk.segments,
        "no file is left over: {names:?}"
    );
}

#[test]
fn a_write_that_may_be_there_after_a_restart_is_not_said_to_have_failed() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    let at = create(&engine, "a", 10);
    // The sync fails, and so does the undo of the write.
    for call in 1..6 {
        world.disk.fail_after(call, Fault::Error);
    }
    let unknown = write(&engine, Write::update("a", at, "maybe")).unwrap_err();
    assert!(matches!(unknown, Error::Uncertain(_)), "{unknown}");
    assert!(engine.trouble().unwrap().contains("failed"));
    // While the result is unknown, nothing else is written.
    for call in 0..20 {
        world.disk.fail_after(call, Fault::Error);
    }
    let refused = write(&engine, Write::update("a", at, "other")).unwrap_err();
    assert!(matches!(refused, Error::Failed(_)), "{refused}");
    // After the repair the write is known to be undone.
    world.disk.heal();
    engine.maintain();
    let again = write(&engine, Write::update("a", at, "again")).unwrap();
    assert_eq!(again.0, at.0 + 1);
    assert_eq!(engine.stats(true).failed_commits, 2);
    drop(engine);
    let engine = world.open_again(Fault::PowerLoss);
    let found = engine.read(&Range::default()).unwrap().entries;
    assert_eq!(found[0].value, "again");
}

#[test]
fn a_clock_that_jumps_neither_ends_history_nor_stops_its_end() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    let first = create(&engine, "e/event", 10);
    churn(&engine, "busy", 3000);
    // Three hours ahead, and back again.
    world.clock_ms.fetch_add(3 * 3600 * 1000, Ordering::Relaxed);
    engine.expire();
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    assert!(engine.state().oldest < first, "nothing has become old");
    assert_eq!(keys(&engine), ["busy", "e/event"], "no Event has ended");
    world.clock_ms.fetch_sub(3 * 3600 * 1000, Ordering::Relaxed);
    // Later writes become old at the normal rate.
    let at = engine.state().index.current(b"busy").unwrap();
    let at = write(&engine, Write::update("busy", at, "1")).unwrap();
    let at = write(&engine, Write::update("busy", at, "2")).unwrap();
    let at = write(&engine, Write::update("busy", at, "3")).unwrap();
    world.pass(&engine, 30);
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    assert_eq!(engine.state().oldest.0, at.0 - 2);
    world.pass(&engine, 60);
    engine.expire();
    assert_eq!(keys(&engine), ["busy"]);
}

#[test]
fn history_that_somebody_reads_does_not_end_by_age() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    churn(&engine, "busy", 3000);
    let hold = engine.hold_history();
    world.pass(&engine, 60);
    assert_eq!(
        engine.compact_whole(HistoryToKeep::Young, false).unwrap(),
        Revision(0)
    );
    drop(hold);
    assert!(engine.compact_whole(HistoryToKeep::Young, false).unwrap() > Revision(0));
}

#[test]
fn history_that_is_too_large_ends_although_somebody_reads_it() {
    let mut world = DirectedWorld::new();
    world.options.history_bytes_max = 1000;
    let engine = world.open();
    let _hold = engine.hold_history();
    churn(&engine, "busy", 3000);
    assert!(engine.compact_whole(HistoryToKeep::Young, false).unwrap() > Revision(0));
    assert!(engine.stats(false).history_bytes <= 1000);
}

#[test]
fn whoever_begins_to_read_history_while_it_is_compacted_keeps_it() {
    let mut world = DirectedWorld::new();
    let engine = Arc::new(world.open());
    churn(&engine, "busy", 3000);
    world.pass(&engine, 60);
    // A cache starts to read while compaction stores the new start of history.
    let reader: Arc<std::sync::Mutex<Option<_>>> = Arc::default();
    world.disk.call_after(0, {
        let (engine, reader) = (engine.clone(), reader.clone());
        move || {
            let hold = engine.hold_history();
            let oldest = engine.state().oldest;
            *reader.lock().unwrap() = Some((hold, oldest));
        }
    });
    engine.compact_whole(HistoryToKeep::Young, false).unwrap();
    let (hold, oldest) = reader.lock().unwrap().take().unwrap();
    let mut backlog = Backlog::collect(&engine.state(), b"", oldest).unwrap();
    assert!(backlog.read(&engine).unwrap().events.len() > 10);
    drop(hold);
    assert!(engine.compact_whole(HistoryToKeep::Young, false).unwrap() > oldest);
}

#[test]
fn a_watch_reads_the_records_of_its_prefix_and_no_others() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    for number in 0..200 {
        create(&engine, &format!("many/{number}"), 10);
    }
    create(&engine, "few/1", 10);
    let calls = |prefix: &[u8]| {
        let before = world.disk.calls();
        let mut backlog = Backlog::collect(&engine.state(), prefix, Revision(0)).unwrap();
        let events = backlog.read(&engine).unwrap().events.len();
        (events, world.disk.calls() - before)
    };
    assert_eq!(calls(b"none/"), (0, 0), "nothing is read for a new prefix");
    assert_eq!(calls(b"few/"), (1, 1));
    let (events, reads) = calls(b"many/");
    assert_eq!(events, 200);
    assert!(reads < 30, "{reads}: neighbours are read together");
}

#[test]
fn a_first_start_that_was_cut_off_anywhere_is_begun_again() {
    for calls in 0..40 {
        for fault in [Fault::PowerLoss, Fault::Kill] {
            let mut world = DirectedWorld::new();
            world.disk.fail_after(calls, fault);
            let first = Engine::open(Path::new(DIRECTORY), world.options.clone());
            drop(first);
            world.disk.crash(fault);
            let engine = world.open();
            create(&engine, "a", 10);
            drop(engine);
            let engine = world.open_again(Fault::PowerLoss);
            assert_eq!(keys(&engine), ["a"], "cut off at call {calls} by {fault:?}");
        }
    }
}

#[test]
fn damage_to_what_was_acknowledged_is_never_served_nor_ignored() {
    let mut world = DirectedWorld::new();
    let engine = world.open();
    churn(&engine, "busy", 5_000);
    drop(engine);
    let names = world.disk.names(Path::new("/data/log")).unwrap();
    let mut refused = 0;
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        let path = Path::new("/data/log").join(name);
        for at in (0..).step_by(37) {
            let mut kept = Vec::new();
            world.disk = world.disk.next_process();
            let mut inside = true;
            world.disk.edit(&path, |bytes| {
                kept.clone_from(bytes);
                // The mark at the end contains no acknowledged data.
                inside = at + 33 < bytes.len();
                if inside {
                    bytes[at] ^= 0x20;
                }
            });
            if !inside {
                break;
            }
            world.options.disk = Arc::new(world.disk.clone());
            let opened = Engine::open(Path::new(DIRECTORY), world.options.clone());
            assert!(opened.is_err(), "{name} with another byte {at}");
            refused += 1;
            world.disk.edit(&path, |bytes| *bytes = kept);
        }
    }
    assert!(refused > 100, "{refused}");
    world.open();
}
