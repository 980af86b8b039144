//! Scripts of events, times and answers, and the writes that follow from them; then random ones.

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::events::event::NewEvent;

fn event(label: &str, seconds: f64) -> EventParts {
    let (name, reason) = label.split_once('/').unwrap_or((label, "R"));
    let regarding = ObjectReference {
        // Every event sees another version of its object.
        resource_version: seconds.to_string(),
        ..ObjectReference::new("v1", "ConfigMap", "ns", name)
    };
    let time = Timestamp::UNIX_EPOCH + Duration::from_secs_f64(seconds);
    EventParts::new(regarding, NewEvent::normal(reason, "note"), time)
}

fn label(event: &EventParts) -> String {
    match &*event.reason {
        "R" => event.regarding.name.clone(),
        reason => format!("{}/{reason}", event.regarding.name),
    }
}

/// A write as text: `create a`, `create a 3`, `patch a 3`; with its series the time of the last event.
fn told(write: &EventWrite) -> String {
    let verb = if write.is_patch { "patch" } else { "create" };
    let label = label(&write.event.parts);
    match write.series {
        None => format!("{verb} {label}"),
        Some(EventSeries {
            count,
            last_observed,
        }) => format!("{verb} {label} {count} @{}", last_observed.as_second()),
    }
}

/// Runs a script: one line for each time, `<seconds>: <command>, <command>`. Commands are `record <label> [<times>]`, `tick`,
/// `<label> <answer>` for the write that is in flight. Returns the writes that were due after each line.
fn run(options: EventOptions, script: &str) -> (Vec<String>, EventStats) {
    let start = Instant::now();
    let mut correlator = Correlator::new(options);
    let mut in_flight: HashMap<String, EventWrite> = HashMap::new();
    let mut writes = Vec::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (seconds, commands) = line.split_once(": ").unwrap();
        let seconds: f64 = seconds.parse().unwrap();
        let now = start + Duration::from_secs_f64(seconds);
        for command in commands.split(", ") {
            let words: Vec<&str> = command.split(' ').collect();
            let answer = match words.as_slice() {
                ["tick"] => {
                    correlator.tick(now);
                    continue;
                }
                ["end"] => {
                    let left = correlator.end_series(now);
                    if left > 0 {
                        writes.push(format!("{seconds}: {left} left"));
                    }
                    continue;
                }
                ["record", label] => {
                    correlator.record(event(label, seconds), now);
                    continue;
                }
                ["record", label, times] => {
                    for _ in 0..times.parse().unwrap() {
                        correlator.record(event(label, seconds), now);
                    }
                    continue;
                }
                [_, "written"] => WriteAnswer::Written,
                [_, "exists"] => WriteAnswer::Exists,
                [_, "missing"] => WriteAnswer::Missing,
                [_, "refused"] => WriteAnswer::Refused,
                [_, "unanswered"] => WriteAnswer::Unanswered { outage: false },
                [_, "outage"] => WriteAnswer::Unanswered { outage: true },
                other => panic!("{other:?}"),
            };
            let write = in_flight.remove(words[0]).expect(line);
            let kept = correlator.settle(&write, answer, now, 0.0);
            if !kept {
                writes.push(format!("{seconds}: gave up {}", words[0]));
            }
        }
        while let Some(write) = correlator.next_write(now) {
            writes.push(format!("{seconds}: {}", told(&write)));
            in_flight.insert(label(&write.event.parts), write);
        }
    }
    (writes, correlator.stats())
}

/// Runs a script with the default options and compares the writes.
fn check(script: &str, expected: &str) -> EventStats {
    check_with(EventOptions::default(), script, expected)
}

fn check_with(options: EventOptions, script: &str, expected: &str) -> EventStats {
    let (writes, stats) = run(options, script);
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    let expected: Vec<&str> = expected
        .into_iter()
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(writes, expected);
    stats
}

fn tiny(entries_max: usize, writes_max: usize) -> EventOptions {
    EventOptions {
        entries_max,
        writes_max,
        ..EventOptions::default()
    }
}

#[test]
fn the_first_is_created_the_second_makes_a_series_and_later_ones_only_count() {
    let stats = check(
        "0: record a
         0: a written
         1: record a
         1: a written
         2: record a 198",
        "0: create a
         1: patch a 2 @1",
    );
    assert_eq!((stats.created, stats.series), (1, 199));
}

#[test]
fn at_the_end_every_count_that_is_owed_is_written_once_and_as_there_is_room() {
    // Three series that owe counts, one of them with a write on its way, and one event without repeats. There is room for two writes.
    let stats = check_with(
        tiny(10, 2),
        "0: record a 2
         0: a written
         0: record b 2
         0: b written
         0: record c 2
         0: c written
         0: record d
         0: d written
         1: record a 5, record b 6, record c 7
         2: end
         3: end
         3: a written, b refused
         4: end
         4: c written, end",
        "0: create a 2 @0
         0: create b 2 @0
         0: create c 2 @0
         0: create d
         2: 1 left
         2: patch a 7 @1
         2: patch b 8 @1
         3: 1 left
         3: gave up b
         4: patch c 9 @1",
    );
    assert_eq!(stats.lost, 6, "those of the series that was given up");
}

#[test]
fn times_without_an_end_do_not_overflow() {
    let options = EventOptions {
        finish_after: Duration::MAX,
        refresh_every: Duration::MAX,
        retry_after: Duration::MAX,
        refill: Duration::MAX,
        ..EventOptions::default()
    };
    check_with(
        options,
        "0: record a, record b
         0: a written, b unanswered
         1: record a, tick
         1: a written, tick",
        "0: create a
         0: create b
         1: patch a 2 @1",
    );
}

#[test]
fn other_objects_and_reasons_are_other_events() {
    check(
        "0: record a, record b, record a/X, record a",
        "0: create a 2 @0
         0: create b
         0: create a/X",
    );
}

#[test]
fn a_repeat_while_the_first_is_on_its_way_is_written_after_it() {
    check(
        "0: record a
         1: record a 4
         2: a written
         3: a written, tick",
        "0: create a
         2: patch a 5 @1",
    );
}

#[test]
fn a_series_is_written_every_half_hour_and_when_it_has_ended() {
    let script = "
        0: record a
        0: a written
        1: record a
        1: a written
        300: record a, tick
        600: record a, tick
        900: record a, tick
        1200: record a, tick
        1500: record a, tick
        1800: record a, tick
        1801: tick
        1801: a written, tick
        2100: record a 3, tick
        2459: tick
        2460: tick
        2460: a written, tick
        2461: record a";
    let stats = check(
        script,
        "0: create a
         1: patch a 2 @1
         1801: patch a 8 @1800
         2460: patch a 11 @2100
         2461: create a",
    );
    assert_eq!((stats.created, stats.lost), (1, 0));
}

#[test]
fn a_series_that_the_server_has_ends_without_a_write() {
    check(
        "0: record a 2
         0: a written
         360: tick
         360: record a",
        "0: create a 2 @0
         360: create a",
    );
}

#[test]
fn an_event_that_does_not_repeat_is_forgotten_after_six_minutes() {
    check(
        "0: record a, record b
         0: a written, b written
         359: tick, record a
         360: tick, record b",
        "0: create a
         0: create b
         359: patch a 2 @359
         360: create b",
    );
}

#[test]
fn a_repeat_revives_a_series_whose_last_write_is_on_its_way() {
    check(
        "0: record a 2
         0: a written
         1: record a
         361: tick
         362: record a
         362: a written, tick
         722: tick",
        "0: create a 2 @0
         361: patch a 3 @1
         722: patch a 4 @362",
    );
}

#[test]
fn an_event_that_the_server_has_deleted_is_created_again_with_its_count() {
    let stats = check(
        "0: record a 2
         0: a written
         1: record a 5
         1801: record a, tick
         1801: a missing
         1801: a written, tick",
        "0: create a 2 @0
         1801: patch a 8 @1801
         1801: create a 8 @1801",
    );
    assert_eq!(stats.failed, 0);
}

#[test]
fn a_create_whose_answer_was_lost_is_done_if_the_event_exists() {
    let stats = check(
        "0: record a, record b
         0: a unanswered, b unanswered
         9: tick
         10: record b
         10: a exists, b exists
         10: b written",
        "0: create a
         0: create b
         10: create a
         10: create b 2 @10
         10: patch b 2 @10",
    );
    assert_eq!((stats.created, stats.failed), (2, 0));
}

#[test]
fn an_event_that_exists_already_is_given_up() {
    let stats = check(
        "0: record a
         0: a exists
         360: tick",
        "0: create a
         0: gave up a",
    );
    assert_eq!((stats.created, stats.failed, stats.lost), (0, 1, 1));
}

#[test]
fn an_event_that_is_gone_and_exists_is_tried_again_later() {
    check(
        "0: record a 2
         0: a written
         1: record a
         361: tick
         361: a missing
         361: a exists
         371: tick
         371: a written",
        "0: create a 2 @0
         361: patch a 3 @1
         361: create a 3 @1
         371: patch a 3 @1",
    );
}

#[test]
fn a_write_without_an_answer_is_tried_twelve_times() {
    let mut script = "0: record a\n".to_owned();
    let mut expected = "0: create a\n".to_owned();
    for attempt in 1..12 {
        let time = attempt * 10;
        let before = time - 10;
        script += &format!("{before}: a unanswered\n{}: tick\n{time}: tick\n", time - 1);
        expected += &format!("{time}: create a\n");
    }
    script += "110: a unanswered\n120: tick\n359: tick\n360: tick";
    expected += "110: gave up a";
    let stats = check(&script, &expected);
    assert_eq!((stats.failed, stats.lost), (1, 1));
}

#[test]
fn attempts_while_the_server_is_away_do_not_count() {
    let mut script = "0: record a\n".to_owned();
    script += &"0: a outage\n".repeat(50);
    script += "7: record a 3, a written, tick, record b, tick\n7: a written";
    let mut expected = "0: create a\n".repeat(51);
    expected += "7: patch a 4 @7\n7: create b";
    // What waits longer than a series lasts is not forgotten either.
    check(&script, &expected);
    check(
        "0: record a
         0: a outage
         4000: tick
         4000: a written",
        "0: create a
         0: create a",
    );
}

#[test]
fn a_refused_event_is_tried_again_with_its_first_repeat_and_when_it_is_refreshed() {
    let stats = check(
        "0: record a
         0: a refused
         1: record a
         1: a refused
         300: record a, tick
         600: record a, tick
         900: record a, tick
         1200: record a, tick
         1500: record a, tick
         1801: record a, tick
         1801: a refused
         2161: tick
         2161: a refused, tick",
        "0: create a
         0: gave up a
         1: create a 2 @1
         1: gave up a
         1801: create a 8 @1801
         1801: gave up a
         2161: create a 8 @1801
         2161: gave up a",
    );
    assert_eq!((stats.failed, stats.lost), (4, 8));
}

#[test]
fn new_events_about_one_object_are_limited_and_repeats_are_not() {
    let options = EventOptions {
        burst: 2,
        ..EventOptions::default()
    };
    let stats = check_with(
        options,
        "0: record a/A, record a/B, record a/C, record b
         1: record a/A 5
         301: record a/C, record a/D",
        "0: create a/A
         0: create a/B
         0: create b
         301: create a/C",
    );
    assert_eq!((stats.limited, stats.series), (2, 5));
}

#[test]
fn of_too_many_events_the_oldest_goes_and_its_count_is_written_before() {
    let stats = check_with(
        tiny(2, 1000),
        "0: record a 2, record b
         0: a written, b written
         1: record a 3
         2: record b
         2: b written
         3: record c
         3: a written, c written
         4: record a",
        "0: create a 2 @0
         0: create b
         2: patch b 2 @2
         3: patch a 5 @1
         3: create c
         4: create a",
    );
    assert_eq!((stats.dropped, stats.lost), (0, 0));
}

#[test]
fn an_event_that_makes_room_while_its_write_is_on_its_way_is_written_to_the_end() {
    let stats = check_with(
        tiny(1, 1000),
        "0: record a
         1: record a, record b
         2: a unanswered, b written
         12: tick
         12: a exists
         12: a written
         13: record b",
        "0: create a
         1: create b
         12: create a 2 @1
         12: patch a 2 @1
         13: patch b 2 @13",
    );
    assert_eq!((stats.created, stats.lost), (2, 0));
}

#[test]
fn events_that_find_too_many_writes_are_dropped_and_repeats_still_count() {
    let stats = check_with(
        tiny(100, 2),
        "0: record a, record b, record c, record a
         1: a outage, b outage, record c, record a
         2: a written, b written, record c
         2: c written, tick",
        "0: create a 2 @0
         0: create b
         1: create a 3 @1
         1: create b
         2: create c",
    );
    assert_eq!((stats.dropped, stats.series, stats.created), (2, 2, 3));
}

#[test]
fn a_series_that_found_no_room_is_written_by_the_next_tick() {
    check_with(
        tiny(100, 2),
        "0: record a
         0: a written, record b, record c
         1: record a
         2: b written, c written
         3: tick",
        "0: create a
         0: create b
         0: create c
         3: patch a 2 @1",
    );
}

#[test]
fn names_differ_even_at_one_time() {
    let mut correlator = Correlator::new(EventOptions::default());
    let now = Instant::now();
    for reason in ["a/X", "a/Y"] {
        correlator.record(event(reason, 1.0), now);
    }
    let writes = std::iter::from_fn(|| correlator.next_write(now));
    let names: Vec<String> = writes.map(|write| write.event.name.clone()).collect();
    assert_eq!(names, ["a.3b9aca00", "a.3b9aca01"]);
}

/// A random number below `below` (splitmix64).
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below
}

/// A server that has Events, loses answers, refuses, and deletes Events.
#[derive(Default)]
struct ModelServer {
    events: HashMap<String, u32>,
    /// The highest count that was ever written, by name.
    highest: HashMap<String, u32>,
    /// The highest count that was ever confirmed, by name.
    confirmed: HashMap<String, u32>,
}

impl ModelServer {
    fn answer(&mut self, write: &EventWrite, fate: u64) -> WriteAnswer {
        let name = &write.event.name;
        let exists = self.events.contains_key(name);
        match fate {
            0 => return WriteAnswer::Unanswered { outage: true },
            1 => return WriteAnswer::Unanswered { outage: false },
            2 => return WriteAnswer::Refused,
            _ if exists && !write.is_patch => {
                self.confirmed.entry(name.clone()).or_insert(1);
                return WriteAnswer::Exists;
            }
            _ if !exists && write.is_patch => return WriteAnswer::Missing,
            _ => {}
        }
        let count = write.series.map_or(1, |series| series.count);
        self.events.insert(name.clone(), count);
        let highest = self.highest.entry(name.clone()).or_default();
        assert!(count >= *highest, "{name} went from {highest} to {count}");
        *highest = count;
        match fate {
            3 => WriteAnswer::Unanswered { outage: false }, // done, but the answer is lost
            _ => {
                self.confirmed.insert(name.clone(), count);
                WriteAnswer::Written
            }
        }
    }
}

/// Every recorded event is counted by an Event on the server, or is dropped, limited or lost, and known to be.
fn no_event_is_uncounted(seed: u64) {
    let state = &mut { seed };
    let options = EventOptions {
        entries_max: 1 + random(state, 6) as usize,
        writes_max: 2 + random(state, 6) as usize,
        burst: 1 + random(state, 20) as u32,
        tries_max: 1 + random(state, 4) as u32,
        ..EventOptions::default()
    };
    let (entries_max, writes_max) = (options.entries_max, options.writes_max);
    let mut correlator = Correlator::new(options);
    let mut server = ModelServer::default();
    let mut in_flight: Vec<EventWrite> = Vec::new();
    let mut now = Instant::now();
    let (start, mut recorded) = (now, 0);
    for step in 0..400 {
        let is_over = step >= 300;
        match random(state, if is_over { 1 } else { 8 }) {
            0 => now += Duration::from_secs(random(state, 400)),
            1 => {
                let gone = server.events.keys().next().cloned();
                gone.map(|gone| server.events.remove(&gone));
            }
            2..5 => {
                let label = format!("o{}/R{}", random(state, 4), random(state, 3));
                let seconds = (now - start).as_secs_f64();
                correlator.record(event(&label, seconds), now);
                recorded += 1;
            }
            _ => {}
        }
        correlator.tick(now);
        while let Some(write) = correlator.next_write(now) {
            in_flight.push(write);
        }
        while !in_flight.is_empty() && (is_over || random(state, 2) == 0) {
            let write = in_flight.swap_remove(random(state, in_flight.len() as u64) as usize);
            let fate = if is_over { 9 } else { random(state, 10) };
            let answer = server.answer(&write, fate);
            correlator.settle(&write, answer, now, 0.5);
        }
        assert!(correlator.entries.len() <= entries_max);
        assert!(correlator.pending() <= writes_max);
        assert!(correlator.detached.len() <= correlator.pending());
    }
    assert_eq!((correlator.entries.len(), correlator.pending()), (0, 0));
    let sum = |counts: &HashMap<String, u32>| counts.values().map(|count| u64::from(*count)).sum();
    let (written, highest): (u64, u64) = (sum(&server.confirmed), sum(&server.highest));
    assert!(written <= highest);
    let EventStats {
        dropped,
        limited,
        lost,
        ..
    } = correlator.stats();
    assert_eq!(written + dropped + limited + lost, recorded);
}

#[test]
fn no_event_is_uncounted_whatever_the_server_does() {
    for seed in 0..1000 {
        let result = std::panic::catch_unwind(|| no_event_is_uncounted(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
