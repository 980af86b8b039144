//! Responses of servers: errors, content types, warnings.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tidings_api::{ListOptions, Reason, Status};
use tidings_informer::SourceError;
use tidings_kube::RestListWatch;
use tokio::time::Instant;

use crate::script::{
    EMPTY, Logs, ScriptStep, Server, answer, fail, list, list_error, open, pods, watch,
};

#[tokio::test(start_paused = true)]
async fn b127_codes_become_reasons_without_a_status() {
    let cases = [
        (400, Reason::BadRequest),
        (401, Reason::Unauthorized),
        (403, Reason::Forbidden),
        (404, Reason::NotFound),
        (405, Reason::MethodNotAllowed),
        (406, Reason::NotAcceptable),
        (410, Reason::Expired),
        (415, Reason::UnsupportedMediaType),
        (429, Reason::TooManyRequests),
        (500, Reason::InternalError),
        (502, Reason::InternalError),
        (503, Reason::ServiceUnavailable),
        (504, Reason::Timeout),
        (302, Reason::Unknown),
    ];
    let bodies = [
        "<html>hunter2</html>",
        "",
        r#"{"kind":"Secret","data":"hunter2"}"#,
        r#"{"message":"hunter2","code":1}"#,
        r#"{"kind":"Status","status":"Fail"#,
    ];
    for (code, reason) in cases {
        for body in bodies {
            let server =
                Server::new(move |_| answer(code, body).header("content-type", "text/plain"));
            for error in [
                list_error(&server.pods()).await,
                watch(&server.pods()).await.1.unwrap_err(),
            ] {
                let status = error.status().unwrap();
                assert_eq!((status.code, status.reason), (code, Some(reason)));
                assert_eq!(error.is_expired(), code == 410);
                assert!(!format!("{error:?} {}", error.story()).contains("hunter2"));
                assert!(error.story().contains("GET /api/v1/pods"), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b127_a_status_is_kept() {
    let status = Status::expired("too old resource version: 1 (5)");
    let body = status.to_json();
    let server = Server::new(move |_| answer(410, body.clone()));
    assert_eq!(list_error(&server.pods()).await.status(), Some(&status));
    assert!(watch(&server.pods()).await.1.unwrap_err().is_expired());

    // Upstream sends this one without a kind.
    let status = Status::request_timeout();
    let body = status.to_json();
    let server = Server::new(move |_| answer(504, body.clone()));
    assert_eq!(list_error(&server.pods()).await.story(), status.message);
}

#[tokio::test(start_paused = true)]
async fn b127_the_header_says_when_to_retry_if_the_status_does_not() {
    let check = async |in_body: u32, header: &'static str, expected: u64| {
        let body = Status::too_many_requests("busy", in_body).to_json();
        let server = Server::new(move |_| answer(403, body.clone()).header("retry-after", header));
        let error = list_error(&server.pods()).await;
        assert_eq!(error.retry_after(), Some(Duration::from_secs(expected)));
    };
    check(0, "8", 8).await;
    check(5, "8", 5).await;
    check(0, "99999999999", u64::from(u32::MAX)).await;
}

/// Upstream turns these errors into an empty watch, which its reflector reports as a very short one. Here the error is returned.
#[tokio::test(start_paused = true)]
async fn b127_a_watch_that_cannot_be_opened_says_so() {
    for kind in [ErrorKind::UnexpectedEof, ErrorKind::TimedOut] {
        let server = Server::new(move |_| fail(kind));
        let (events, outcome) = watch(&server.pods()).await;
        assert!(events.is_empty());
        assert!(matches!(outcome, Err(SourceError::Transport(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn error_bodies_are_read_up_to_a_bound() {
    let message = "x".repeat(64 << 10);
    let body = Status::bad_request(message).to_json();
    let server = Server::new(move |_| answer(400, body.clone()));
    let error = list_error(&server.pods()).await;
    assert_eq!(error.code(), Some(400));
    assert!(error.story().len() < 200);

    let endless = Arc::new(Mutex::new(Vec::new()));
    let senders = Arc::clone(&endless);
    let server = Server::new(move |_| {
        let (sender, step) = open(403);
        sender
            .send(Ok(Frame::data(Bytes::from_static(b"{"))))
            .unwrap();
        senders.lock().unwrap().push(sender);
        step
    });
    let start = Instant::now();
    let error = list_error(&server.pods()).await;
    assert_eq!((error.code(), start.elapsed().as_secs()), (Some(403), 10));
}

#[tokio::test(start_paused = true)]
async fn b128_content_that_is_not_json_is_refused() {
    let check = async |content_type: &'static str, good: bool| {
        let server = Server::new(move |_| answer(200, EMPTY).header("content-type", content_type));
        let listed = list(&server.pods(), ListOptions::default()).await.1;
        assert_eq!(listed.is_ok(), good, "{content_type}");
        let server = Server::new(move |_| answer(200, "").header("content-type", content_type));
        let watched = watch(&server.pods()).await.1;
        assert_eq!(watched.is_ok(), good, "{content_type}");
        if !good {
            assert!(matches!(listed, Err(SourceError::Unexpected(_))));
            assert!(matches!(watched, Err(SourceError::Unexpected(_))));
            let shown = content_type.split(';').next().unwrap();
            assert!(listed.unwrap_err().story().contains(shown));
        }
    };
    check("application/json", true).await;
    check("Application/JSON; charset=utf-8", true).await;
    check("application/json;stream=watch", true).await;
    check("application/cbor-seq", false).await;
    check("text/html; charset=utf-8", false).await;
    check("application/jsonlines", false).await;
}

#[tokio::test(start_paused = true)]
async fn b128_content_that_says_nothing_of_its_type_is_tried() {
    let server = Server::new(|_| {
        let ScriptStep::Answer(mut response) = answer(200, EMPTY) else {
            unreachable!()
        };
        response.headers_mut().remove("content-type");
        ScriptStep::Answer(response)
    });
    assert!(list(&server.pods(), ListOptions::default()).await.1.is_ok());
}

fn warning_server() -> Server {
    Server::new(|asked| {
        let body = if asked.is_watch() { "" } else { EMPTY };
        answer(200, body).header("warning", r#"299 - "say \"v2\"", 199 - "not for people""#)
    })
}

#[tokio::test(start_paused = true)]
async fn b129_warnings_reach_the_handler_of_their_client() {
    let server = warning_server();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let handled = |name: &'static str| {
        let seen = Arc::clone(&seen);
        let client = server.client().warning_handler(move |warning| {
            let text = format!("{name} {} {} {}", warning.code, warning.agent, warning.text);
            seen.lock().unwrap().push(text);
        });
        RestListWatch::new(&client, &pods(), "")
    };
    list(&handled("a"), ListOptions::default()).await.1.unwrap();
    watch(&handled("b")).await.1.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            r#"a 299 - say "v2""#,
            "a 199 - not for people",
            r#"b 299 - say "v2""#,
            "b 199 - not for people"
        ]
    );

    // Failed responses can have warnings too.
    let server = Server::new(|_| answer(404, "").header("warning", r#"299 - "gone""#));
    let logs = Logs::capture();
    list_error(&server.pods()).await;
    assert!(logs.text().contains("gone"));
}

#[tokio::test(start_paused = true)]
async fn b129_each_warning_is_logged_once() {
    let server = warning_server();
    let logs = Logs::capture();
    let pods = server.pods();
    for _ in 0..3 {
        list(&pods, ListOptions::default()).await.1.unwrap();
    }
    assert_eq!(
        logs.text().matches("the API server sent a warning").count(),
        1
    );
    assert!(!logs.text().contains("not for people"));
}
