//! The walk of an event in ARCHITECTURE.md is the one that events take.

use std::sync::Arc;

use futures_util::StreamExt;
use tidings_api::{ListMetadata, Object, WatchEvent};
use tidings_informer::{
    Decode, Event, EventStream, HandlerOptions, List, ListFunc, ListWatch, SharedInformer,
    WatchFunc,
};
use tidings_testing::{WalkRecorder, check_walk};

fn object(version: u64) -> Object {
    let json = format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"{version}"}}}}"#);
    Object::parse(json).expect("an object")
}

#[tokio::test]
async fn an_event_walks_as_architecture_md_says() {
    let recorder = WalkRecorder::install();
    let list: ListFunc = Arc::new(|_| {
        Box::pin(async {
            let metadata = ListMetadata {
                resource_version: "1".into(),
                ..ListMetadata::default()
            };
            let items = vec![object(1)];
            Ok(List { items, metadata }.into_stream())
        })
    });
    let (send, events) = tokio::sync::mpsc::unbounded_channel::<WatchEvent>();
    let events = std::sync::Mutex::new(Some(events));
    let watch: WatchFunc = Arc::new(move |_| {
        let events = events.lock().unwrap().take();
        let stream = futures_util::stream::unfold(events, |events| async {
            let mut events = events?;
            let event = events.recv().await?;
            Some((Ok(vec![event]), Some(events)))
        });
        let stream = stream.chain(futures_util::stream::pending());
        Box::pin(async { Ok(Box::pin(stream) as EventStream) })
    });
    let source = ListWatch::new(list, watch).without_initial_events();
    let informer = SharedInformer::builder(Arc::new(source), Decode::bytes()).start();
    let mut subscription = informer.subscribe(&HandlerOptions::default()).unwrap();
    while !matches!(subscription.next().await, Some(Event::Synced)) {}

    recorder.take();
    send.send(WatchEvent::Modified(object(2))).unwrap();
    let event = subscription.next().await;
    assert!(matches!(event, Some(Event::Updated { .. })), "{event:?}");
    check_walk("informer", &recorder.take());
}
