//! How a reflector lists, and when it relists.

use super::*;
use crate::support::*;
use std::sync::{Arc, Mutex};
use tidings_api::{Reason, Status};
use tidings_informer::*;

#[tokio::test(start_paused = true)]
async fn b38_the_first_list_is_of_any_state_and_paged_and_the_watch_goes_on_from_it() {
    let script = Script::new()
        .list(list("10", &[object("a", 4)]))
        .watch(Watch::of(vec![added("b", 11)]));
    let recorder = run_for(&script, options(), SECOND).await;
    assert_eq!(script.asked(), [r#"list "0" 500"#, "watch 10"]);
    let requests = script.requests();
    assert!(!requests[0].options.allow_watch_bookmarks);
    assert!(requests[1].options.allow_watch_bookmarks);
    assert_eq!(recorder.words(), ["replace 10 [a@4]", "+b@11"]);
}

#[tokio::test(start_paused = true)]
async fn b39_a_relist_is_at_the_last_version_and_not_paged() {
    let script = Script::new()
        .list(list("10", &[object("a", 4)]))
        .watch(Watch::of(vec![modified("a", 12), error(expired())]))
        .list(list("20", &[object("b", 15)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked(),
        [r#"list "0" 500"#, "watch 10", r#"list "12" 0"#, "watch 20"]
    );
    assert_eq!(
        recorder.words(),
        ["replace 10 [a@4]", "~a@12", "replace 20 [b@15]"]
    );
}

#[tokio::test(start_paused = true)]
async fn b40_d29_an_expired_relist_is_repeated_at_once_at_the_newest_version_and_paged() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch_fails(expired())
        .list_fails(expired())
        .list(list("20", &[]));
    run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked(),
        [
            r#"list "0" 500"#,
            "watch 10",
            r#"list "10" 0"#,
            r#"list "" 500"#,
            "watch 20"
        ]
    );
    let requests = script.requests();
    assert_eq!(
        requests[2].at, requests[3].at,
        "the second list does not wait"
    );
}

#[tokio::test(start_paused = true)]
async fn b41_k7_pages_that_expire_are_followed_by_the_whole_list_at_the_first_version() {
    let four = [
        object("a", 1),
        object("b", 1),
        object("c", 1),
        object("d", 1),
    ];
    let script = Script::new()
        .list(list("10", &four))
        .watch_fails(expired())
        .list(page("10", &four, "next"))
        .list_fails(Status::continue_expired(String::new()))
        .list(list("11", &[object("a", 1), object("z", 11)]));
    let mut options = options();
    options.page_size = Some(4);
    let recorder = run_for(&script, options, MINUTE).await;
    let versions: Vec<String> = script
        .requests()
        .iter()
        .filter(|request| !request.options.watch)
        .map(|request| request.options.resource_version.clone())
        .collect();
    assert_eq!(versions, ["0", "10", "", "10"]);
    assert_eq!(
        script.requests().last().unwrap().options.resource_version,
        "11"
    );
    assert_eq!(
        recorder.words()[1],
        "replace 11 [a@1 z@11]",
        "the first page is void"
    );
}

#[tokio::test(start_paused = true)]
async fn b42_a_version_that_the_server_has_not_reached_is_given_up_in_all_three_wordings() {
    let by_cause = Status::too_large_resource_version(30, 20);
    let mut by_text_of_cause = Status::failure(504, Reason::Timeout, "Timeout: x");
    by_text_of_cause = by_text_of_cause.with_cause(tidings_api::Cause {
        message: "Too large resource version".into(),
        ..Default::default()
    });
    let by_message = Status::failure(
        504,
        Reason::Timeout,
        "Too large resource version: 30, current: 20",
    );
    for status in [by_cause, by_text_of_cause, by_message] {
        let script = Script::new()
            .list(list("10", &[]))
            .watch_fails(expired())
            .list_fails(status)
            .list(list("20", &[]));
        run_for(&script, options(), MINUTE).await;
        assert_eq!(script.asked()[2..4], [r#"list "10" 0"#, r#"list "" 500"#]);
    }
}

#[tokio::test(start_paused = true)]
async fn b43_a_server_that_pages_any_state_is_paged_from_then_on() {
    let script = Script::new()
        .list(page("10", &[object("a", 1)], "next"))
        .list(list("10", &[object("b", 1)]))
        .watch_fails(expired())
        .list(list("20", &[]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked()[..4],
        [
            r#"list "0" 500"#,
            "page next 500",
            "watch 10",
            r#"list "10" 500"#
        ]
    );
    assert_eq!(recorder.words()[0], "replace 10 [a@1 b@1]");
}

#[tokio::test(start_paused = true)]
async fn b44_a_page_size_that_is_set_holds_for_every_list() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch_fails(expired())
        .list(list("20", &[]));
    let mut options = options();
    options.page_size = Some(7);
    run_for(&script, options, MINUTE).await;
    assert_eq!(
        script.asked()[..3],
        [r#"list "0" 7"#, "watch 10", r#"list "10" 7"#]
    );
}

#[tokio::test(start_paused = true)]
async fn b49_b66_errors_of_lists_and_watches_reach_the_problem_handler_with_their_cause() {
    let denied = Status::failure(403, Reason::Forbidden, "Access Denied");
    let script = Script::new()
        .list_fails(denied)
        .list(list("10", &[]))
        .watch_fails(SourceError::transport(std::io::Error::other("no route")));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.story()))
        .start();
    eventually("both", || problems.lock().unwrap().len() == 2).await;
    let problems = problems.lock().unwrap();
    assert!(problems[0].contains("Access Denied"), "{problems:?}");
    assert!(problems[1].contains("no route"), "{problems:?}");
    drop(informer);
}

#[tokio::test(start_paused = true)]
async fn b61_an_object_that_the_server_cannot_read_is_left_to_a_new_list() {
    let unreadable = Status::failure(
        500,
        Reason::StorageReadError,
        "corrupt object has been deleted",
    );
    let script = Script::new()
        .list(list("10", &[object("a", 1), object("b", 2)]))
        .watch(Watch::of(vec![error(unreadable)]))
        .list(list("20", &[object("a", 1)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        recorder.words(),
        ["replace 10 [a@1 b@2]", "replace 20 [a@1]"]
    );
}

#[tokio::test(start_paused = true)]
async fn d8_an_answer_that_cannot_be_read_is_resumed_and_listed_only_when_it_stays() {
    let broken = || SourceError::from(tidings_api::SplitError::Shape("something else"));
    let mut script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 11)]).end(End::Break(broken())))
        .watch(Watch::of(vec![added("b", 12)]).close_after(2 * SECOND));
    for _ in 0..5 {
        script = script.watch(Watch::silent().end(End::Break(broken())));
    }
    script = script.list(list("20", &[]));
    run_for(&script, options(), 10 * MINUTE).await;
    let asked = script.asked();
    assert_eq!(
        asked[..4],
        [r#"list "0" 500"#, "watch 10", "watch 11", "watch 12"]
    );
    assert_eq!(asked.iter().filter(|asked| *asked == "watch 12").count(), 5);
    assert_eq!(asked[8..10], [r#"list "12" 0"#, "watch 20"]);
}

#[tokio::test(start_paused = true)]
async fn b137_events_that_are_older_than_what_came_before_lead_to_a_consistent_list() {
    let script = Script::new()
        .list(list("10", &[]))
        .watch(Watch::of(vec![added("a", 15), added("b", 12)]))
        .list(list("20", &[object("a", 15), object("b", 12)]));
    let recorder = run_for(&script, options(), MINUTE).await;
    assert_eq!(
        script.asked()[..3],
        [r#"list "0" 500"#, "watch 10", r#"list "" 500"#]
    );
    assert_eq!(
        recorder.words(),
        ["replace 10 []", "+a@15", "replace 20 [a@15 b@12]"]
    );
}

#[tokio::test(start_paused = true)]
async fn b142_d13_a_server_whose_version_goes_back_is_noticed_and_reloaded_without_trust() {
    let script = Script::new()
        .list(list("100", &[object("a", 90)]))
        .watch_fails(Status::too_large_resource_version(100, 50))
        .list_fails(Status::too_large_resource_version(100, 50))
        .list(list("50", &[object("a", 40)]))
        .list(list("50", &[object("a", 40)]));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&problems);
    let informer = SharedInformer::builder(script.source(), Decode::bytes())
        .on_problem(move |problem| noted.lock().unwrap().push(problem.to_string()))
        .start();
    eventually("reloaded", || {
        informer.last_sync_resource_version().text() == "50"
    })
    .await;
    assert_eq!(
        script.asked()[3..6],
        [r#"list "" 500"#, r#"list "" 500"#, "watch 50"]
    );
    let problems = problems.lock().unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem == "the server's version went back from 100 to 50"),
        "{problems:?}"
    );
    assert_eq!(informer.store().get("default", "a").unwrap().version(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_long_is_traced_step_by_step() {
    let logged = crate::support::logged::Logged::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let list_func: ListFunc = Arc::new(|_| {
        Box::pin(async {
            tokio::time::sleep(12 * SECOND).await;
            Ok(list("10", &[object("a", 1)]).into_stream())
        })
    });
    let watch_func: WatchFunc = Arc::new(|_| Box::pin(std::future::pending()));
    let source = Arc::new(ListWatch::new(list_func, watch_func));
    let reflector = Reflector::new("test", source, Recorder::default(), options());
    let _ = tokio::time::timeout(20 * SECOND, reflector.run()).await;
    let said = logged.messages();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("a list took 12"), "{said:?}");
    assert!(
        said[0].contains("receiving 12.0s (1 objects)") && said[0].contains("replacing"),
        "{said:?}"
    );
}
