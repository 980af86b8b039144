//! Faults of connections and servers, over a simulated server: points B133 to B148.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tidings_api::{Object, Reason, Status};
use tidings_informer::*;

use crate::support::server::{Fault, Server};
use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

fn over(server: &Server) -> InformerBuilder<Object> {
    SharedInformer::builder(server.source(), Decode::bytes())
}

fn streamed() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.initial_state = InitialState::Streamed;
    options
}

fn contents(informer: &SharedInformer<Object>) -> Vec<String> {
    let snapshot = informer.store().snapshot();
    snapshot
        .iter()
        .map(|object| format!("{}@{}", object.key(), object.version()))
        .collect()
}

async fn follows(informer: &SharedInformer<Object>, server: &Server) {
    eventually("the store equals the server", || {
        contents(informer) == server.contents()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn b133_a_server_that_restarts_between_pages_is_listed_as_a_whole() {
    let script = Script::new()
        .list(page("10", &[object("a", 1), object("stale", 2)], "next"))
        .list_fails(refused())
        .list(page("12", &[object("a", 1), object("b", 12)], "next"))
        .list(list("12", &[object("c", 3)]));
    let informer = SharedInformer::builder(script.source(), Decode::bytes()).start();
    informer.wait_synced().await.unwrap();
    assert_eq!(
        contents(&informer),
        ["default/a@1", "default/b@12", "default/c@3"]
    );
    assert_eq!(
        script.asked()[..4],
        [
            r#"list "0" 500"#,
            "page next 500",
            r#"list "0" 500"#,
            "page next 500"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn b134_a_storm_of_expired_answers_is_answered_by_waiting() {
    let server = Server::new();
    server.put("a");
    for _ in 0..20 {
        server.fail_list(Fault::Status(Box::new(expired())));
    }
    let informer = over(&server).start();
    tokio::time::sleep(60 * SECOND).await;
    let in_a_minute = server.requests().len();
    assert!(in_a_minute < 12, "{in_a_minute} requests in a minute");
    follows(&informer, &server).await;
}

#[tokio::test(start_paused = true)]
async fn b136_an_initial_stream_may_be_cut_at_every_byte() {
    let server = Server::new();
    for name in ["a", "b", "c"] {
        server.put(name);
    }
    let length = 3 * 230 + 200;
    for cut in 0..length {
        server.heal();
        server.fail_watch(Fault::Cut(cut));
        let informer = over(&server).reflector(streamed()).build();
        let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
        informer.start();
        let told = words(&mut events, 4).await;
        assert_eq!(told, ["+a@1!", "+b@2!", "+c@3!", "synced"], "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn b136_a_watch_may_be_cut_at_every_byte() {
    for cut in 0..500 {
        let server = Server::new();
        server.put("a");
        server.fail_watch(Fault::Cut(cut));
        let informer = over(&server).build();
        let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
        informer.start();
        informer.wait_synced().await.unwrap();
        server.put("b");
        server.put("a");
        assert_eq!(
            words(&mut events, 4).await,
            ["+a@1!", "synced", "+b@2", "~a@1>3"],
            "cut at {cut}"
        );
        let lists = server
            .requests()
            .iter()
            .filter(|asked| asked.starts_with("list"))
            .count();
        assert_eq!(lists, 1, "resumed");
    }
}

#[tokio::test(start_paused = true)]
async fn b137_what_is_said_twice_is_told_once() {
    let server = Server::new();
    server.fail_watch(Fault::Stutter);
    let informer = over(&server).build();
    let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
    informer.start();
    informer.wait_synced().await.unwrap();
    server.put("a");
    server.put("a");
    server.put("b");
    server.delete("a");
    server.put("c");
    assert_eq!(
        words(&mut events, 6).await,
        ["synced", "+a@1", "~a@1>2", "+b@3", "-a@4", "+c@5"]
    );
    assert!(quiet(&mut events, SECOND).await);
    follows(&informer, &server).await;
}

#[tokio::test(start_paused = true)]
async fn b144_a_resource_that_goes_away_and_comes_back_is_followed_again() {
    let server = Server::new();
    server.put("old");
    let informer = over(&server).start();
    let mut events = informer.subscribe(&HandlerOptions::default()).unwrap();
    assert_eq!(words(&mut events, 2).await, ["+old@1!", "synced"]);
    let gone = || {
        Box::new(Status::failure(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        ))
    };
    for _ in 0..3 {
        server.fail_watch(Fault::Status(gone()));
    }
    server.delete("old");
    server.put("new");
    server.compact(); // ends the watch that is open
    follows(&informer, &server).await;
    assert_eq!(words(&mut events, 2).await, ["-old@1?", "+new@3"]);
}

#[tokio::test(start_paused = true)]
async fn b146_d14_a_hundred_relists_leave_nothing_behind() {
    let server = Server::new();
    for index in 0..500 {
        server.put(&format!("n{index}"));
    }
    let informer = over(&server).start();
    informer.wait_synced().await.unwrap();
    let before = informer.stats();
    let kept = informer.store().get("default", "n7").unwrap();
    for _ in 0..100 {
        let revision = server.tick();
        server.compact();
        informer
            .wait_for(ServerVersion::new(&revision.to_string()))
            .await
            .unwrap();
    }
    let relists = informer.reflector_stats().lists(RelistReason::Expired);
    assert!(relists >= 50, "{relists}");
    let after = informer.stats();
    assert_eq!(
        (
            after.objects,
            after.object_bytes,
            after.queued,
            after.logged
        ),
        (before.objects, before.object_bytes, 0, 0)
    );
    assert!(Arc::ptr_eq(
        &kept,
        &informer.store().get("default", "n7").unwrap()
    ));
    drop(informer);
    eventually("let go", || Arc::strong_count(&kept) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn b148_a_reflector_may_be_stopped_at_every_await() {
    for polls in 0..200 {
        let server = Server::new();
        server.put("a");
        server.fail_list(Fault::Refused);
        server.fail_watch(Fault::End(0));
        let informer = over(&server).build();
        let task = tokio::spawn({
            let informer = informer.clone();
            async move {
                informer.start();
                let Ok(mut events) = informer.subscribe(&HandlerOptions::default()) else {
                    return; // stopped before
                };
                while events.next().await.is_some() {}
            }
        });
        for _ in 0..polls {
            tokio::task::yield_now().await;
            if polls % 3 == 0 {
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        }
        informer.stop().await;
        task.await.unwrap();
        assert!(informer.is_stopped());
    }
    // Dropping the future of a pop or a wait loses nothing.
    let queue: DeltaFifo<Object> = DeltaFifo::new(QUEUE_BYTES_MAX);
    {
        let mut waiting = pin!(queue.pop_batch());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    queue.push(Delta::Bookmark(ServerVersion::new("1")));
    assert_eq!(queue.pop_batch().await.unwrap().deltas.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn b80_a_streamed_state_equals_a_list_at_its_version() {
    let server = Server::new();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..300 {
        let name = format!("n{}", rng.u8(..60));
        if rng.u8(..4) == 0 {
            server.delete(&name)
        } else {
            server.put(&name)
        };
    }
    let by_stream = over(&server).reflector(streamed()).start();
    let by_list = over(&server).start();
    by_stream.wait_synced().await.unwrap();
    by_list.wait_synced().await.unwrap();
    assert_eq!(
        by_stream.last_sync_resource_version(),
        by_list.last_sync_resource_version()
    );
    assert_eq!(contents(&by_stream), contents(&by_list));
    assert_eq!(contents(&by_stream), server.contents());
}
