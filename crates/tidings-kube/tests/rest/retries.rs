//! When requests are retried, and how often.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use tidings_api::{ListOptions, Status};
use tidings_informer::{Lister, SourceError, Watcher};
use tidings_kube::{RequestLimiter, RestListWatch};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{EMPTY, ScriptStep, Server, answer, fail, list, list_error, open, pods, watch};

fn overloaded(code: u16, retry_after: &str) -> ScriptStep {
    answer(code, "").header("retry-after", retry_after)
}

#[tokio::test(start_paused = true)]
async fn b126_retry_after_is_waited_for_up_to_ten_times() {
    for code in [429, 500, 503] {
        let server = Server::new(move |_| overloaded(code, "7"));
        let start = Instant::now();
        let error = list_error(&server.pods()).await;
        assert_eq!(error.code(), Some(code));
        assert_eq!(server.count(), 11, "{code}");
        assert_eq!(start.elapsed().as_secs(), 70, "{code}");
    }

    let server = Server::script([
        overloaded(429, "3"),
        overloaded(503, "4"),
        answer(200, EMPTY),
    ]);
    let start = Instant::now();
    let (_, listed) = list(&server.pods(), ListOptions::default()).await;
    assert_eq!(listed.unwrap().resource_version, "7");
    assert_eq!(start.elapsed().as_secs(), 7);

    let server = Server::new(|_| overloaded(429, "1"));
    let client = server.client().retries(2);
    list_error(&RestListWatch::new(&client, &pods(), "")).await;
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn b126_without_a_readable_retry_after_there_is_no_retry() {
    let check = async |step: fn() -> ScriptStep| {
        let server = Server::new(move |_| step());
        assert!(list_error(&server.pods()).await.code().is_some());
        assert_eq!(server.count(), 1);
    };
    check(|| answer(429, "")).await;
    check(|| answer(503, "")).await;
    check(|| overloaded(503, "soon")).await;
    check(|| overloaded(503, "-1")).await;
    check(|| overloaded(404, "1")).await;
    check(|| overloaded(403, "1")).await;
}

#[tokio::test(start_paused = true)]
async fn b126_a_date_counts_from_the_servers_clock() {
    let server = Server::script([
        overloaded(503, "Sun, 06 Nov 1994 08:49:57 GMT")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        // A date in the past.
        overloaded(503, "Sun, 06 Nov 1994 08:49:37 GMT"),
        answer(200, EMPTY),
    ]);
    let start = Instant::now();
    list(&server.pods(), ListOptions::default())
        .await
        .1
        .unwrap();
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn b126_zero_seconds_retry_at_once_but_not_for_ever() {
    let server = Server::new(|_| overloaded(503, "0"));
    let start = Instant::now();
    list_error(&server.pods()).await;
    assert_eq!(server.count(), 11);
    assert!(start.elapsed() < Duration::from_millis(100));
}

/// The client does not wait for a long `Retry-After`: the reflector does, and shows it in its state.
#[tokio::test(start_paused = true)]
async fn b126_a_long_wait_is_left_to_who_asked() {
    let server = Server::new(|_| overloaded(503, "3600"));
    let start = Instant::now();
    let error = list_error(&server.pods()).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
    assert_eq!((server.count(), start.elapsed().as_secs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn b126_a_get_is_sent_again_when_the_connection_is_lost() {
    let lost = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
    let server = Server::script(lost.map(fail).into_iter().chain([answer(200, EMPTY)]));
    list(&server.pods(), ListOptions::default())
        .await
        .1
        .unwrap();
    assert_eq!(server.count(), 3);

    // A refused connection is not retried.
    let server = Server::new(|_| fail(ErrorKind::ConnectionRefused));
    let error = list_error(&server.pods()).await;
    assert!(matches!(error, SourceError::Transport(_)));
    assert!(
        error.story().contains("GET /api/v1/pods failed"),
        "{}",
        error.story()
    );
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn b126_other_methods_are_not_sent_again_when_the_connection_is_lost() {
    let post = || {
        let request = Request::builder().method(Method::POST).uri("/api/v1/pods");
        request.body(Bytes::from_static(b"{}")).unwrap()
    };
    let server = Server::new(|_| fail(ErrorKind::ConnectionReset));
    server.client().request(post()).await.unwrap_err();
    assert_eq!(server.count(), 1);

    // A server that answers with `Retry-After` did not process the request.
    let server = Server::script([overloaded(429, "1"), answer(201, "{}")]);
    server.client().request(post()).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].method, Method::POST);
}

#[tokio::test(start_paused = true)]
async fn b126_dropping_stops_at_once() {
    let server = Server::new(|_| overloaded(503, "30"));
    let pods = server.pods();
    let cut = timeout(Duration::from_secs(5), pods.list(ListOptions::default())).await;
    assert!(cut.is_err());
    sleep(Duration::from_secs(300)).await;
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn b126_the_error_names_that_of_the_attempt_before() {
    let busy = Status::too_many_requests("busy", 1).to_json();
    let broken = Status::internal("broken").to_json();
    let server = Server::script([
        answer(429, busy.clone()).header("retry-after", "1"),
        answer(500, broken),
    ]);
    let error = list_error(&server.pods()).await;
    assert_eq!(error.code(), Some(500));
    assert_eq!(
        error.story(),
        "Internal error occurred: broken - error from a previous attempt: busy"
    );

    let server = Server::script([
        answer(429, busy.clone()).header("retry-after", "1"),
        fail(ErrorKind::ConnectionRefused),
    ]);
    let story = list_error(&server.pods()).await.story();
    assert!(story.contains("previous attempt: busy"), "{story}");
    assert!(story.contains("connection refused"), "{story}");

    // Equal errors in a row are reported once.
    let server = Server::new(move |_| answer(429, busy.clone()).header("retry-after", "1"));
    assert_eq!(list_error(&server.pods()).await.story(), "busy");
}

/// Upstream sends eleven requests for a version that the server has not reached, before it uses another.
#[tokio::test(start_paused = true)]
async fn b126_a_version_that_is_not_reached_is_not_asked_for_again() {
    let body = Status::too_large_resource_version(9, 7).to_json();
    let server = Server::new(move |_| answer(504, body.clone()).header("retry-after", "1"));
    assert!(list_error(&server.pods()).await.version_is_unusable());
    assert_eq!(server.count(), 1);
}

/// kube retries the start of a watch for minutes without reporting it.
#[tokio::test(start_paused = true)]
async fn a_watch_is_sent_once() {
    let server = Server::script([overloaded(503, "5"), fail(ErrorKind::ConnectionReset)]);
    let start = Instant::now();
    let error = watch(&server.pods()).await.1.unwrap_err();
    assert_eq!(error.code(), Some(503));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(server.count(), 1);
    let error = watch(&server.pods()).await.1.unwrap_err();
    assert!(matches!(error, SourceError::Transport(_)));
    assert_eq!((server.count(), start.elapsed().as_secs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up() {
    let server = Server::new(|_| ScriptStep::Hang);
    let start = Instant::now();
    let error = list_error(&server.pods()).await;
    assert!(matches!(error, SourceError::Transport(_)));
    assert_eq!((server.count(), start.elapsed().as_secs()), (1, 120));
}

fn limited(server: &Server, qps: f64, burst: u32) -> RestListWatch {
    let client = server
        .client()
        .rate_limiter(RequestLimiter::new(qps, burst));
    RestListWatch::new(&client, &pods(), "")
}

#[tokio::test(start_paused = true)]
async fn the_limiter_delays_lists_and_retries() {
    let server = Server::new(|_| answer(200, EMPTY));
    let pods = limited(&server, 2.0, 3);
    let start = Instant::now();
    for _ in 0..5 {
        list(&pods, ListOptions::default()).await.1.unwrap();
    }
    assert_eq!(
        start.elapsed().as_millis(),
        1000,
        "three at once, two more in a second"
    );
    sleep(Duration::from_secs(60)).await;
    let start = Instant::now();
    for _ in 0..4 {
        list(&pods, ListOptions::default()).await.1.unwrap();
    }
    assert_eq!(start.elapsed().as_millis(), 500, "the bucket has a brim");

    let server = Server::new(|_| overloaded(503, "0"));
    let start = Instant::now();
    list_error(&limited(&server, 1.0, 1)).await;
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_never_delays_watches() {
    let server = Server::new(|asked| {
        if asked.is_watch() {
            open(200).1
        } else {
            answer(200, EMPTY)
        }
    });
    let pods = limited(&server, 0.1, 1);
    let start = Instant::now();
    list(&pods, ListOptions::default()).await.1.unwrap();
    for _ in 0..20 {
        assert!(pods.watch(ListOptions::default()).await.is_ok());
    }
    assert_eq!(start.elapsed().as_secs(), 0);
    list(&pods, ListOptions::default()).await.1.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10, "watches took tokens");
}

#[tokio::test(start_paused = true)]
async fn b130_a_wait_for_the_limiter_that_is_cut_is_a_timeout() {
    let server = Server::new(|_| answer(200, EMPTY));
    let limiter = RequestLimiter::new(0.1, 1);
    let client = server.client().rate_limiter(limiter.clone());
    let hasty = client.clone().timeout(Duration::from_secs(1));
    let hasty = RestListWatch::new(&hasty, &pods(), "");
    let start = Instant::now();
    list(&hasty, ListOptions::default()).await.1.unwrap();
    let story = list_error(&hasty).await.story();
    assert!(
        story.ends_with("the server sent nothing within 1 seconds"),
        "{story}"
    );
    assert_eq!((server.count(), start.elapsed().as_secs()), (1, 1));

    // A request that timed out took no token: the next token comes at its time.
    let patient = RestListWatch::new(&client, &pods(), "");
    list(&patient, ListOptions::default()).await.1.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10);

    // The timeout includes the waits of `Retry-After`.
    let server = Server::new(|_| overloaded(503, "5"));
    let client = server.client().timeout(Duration::from_secs(12));
    let start = Instant::now();
    let error = list_error(&RestListWatch::new(&client, &pods(), "")).await;
    assert!(matches!(error, SourceError::Transport(_)));
    assert_eq!((server.count(), start.elapsed().as_secs()), (3, 12));
}
