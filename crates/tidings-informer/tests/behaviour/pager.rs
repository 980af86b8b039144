//! Lists page by page: points B45 to B48.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidings_api::{ListOptions, ListSplitter, Object, ResourceVersionMatch, SplitOptions};
use tidings_informer::*;

use crate::support::*;

/// Reads a scripted list with pages of two. Returns the received items and the requests.
async fn read(pages: Vec<List>, options: ListOptions) -> (Vec<String>, Listed, Script) {
    let script = pages.into_iter().fold(Script::new(), Script::list);
    let mut names = Vec::new();
    let listed = Pager::new(&script)
        .page_size(2)
        .list(options, |part| match part {
            Paged::Items(items) => names.extend(items.iter().map(|item| item.name().into_owned())),
            Paged::Restart => names.clear(),
        })
        .await
        .unwrap();
    (names, listed, script)
}

#[tokio::test]
async fn b45_pages_of_every_number_are_one_list_with_the_version_of_the_first() {
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| object(name, 1));
    let (names, listed, _) = read(vec![list("7", &[])], ListOptions::default()).await;
    assert_eq!(
        (names.len(), listed.paginated, &*listed.resource_version),
        (0, false, "7")
    );
    let (names, listed, _) = read(
        vec![list("7", &[a.clone(), b.clone()])],
        ListOptions::default(),
    )
    .await;
    assert_eq!((names.join(""), listed.paginated), ("ab".into(), false));
    let two = vec![
        page("7", &[a.clone(), b.clone()], "1"),
        list("8", std::slice::from_ref(&c)),
    ];
    let (names, listed, script) = read(two, ListOptions::default()).await;
    assert_eq!(
        (names.join(""), listed.paginated, &*listed.resource_version),
        ("abc".into(), true, "7")
    );
    assert_eq!(script.asked(), [r#"list "" 2"#, "page 1 2"]);
    let three = vec![
        page("7", &[a, b], "1"),
        page("7", &[c, d], "2"),
        list("7", &[e]),
    ];
    let (names, ..) = read(three, ListOptions::default()).await;
    assert_eq!(names.join(""), "abcde");
}

#[tokio::test]
async fn b46_d25_the_version_is_not_repeated_with_a_continue_token() {
    let options = ListOptions {
        resource_version: "5".into(),
        resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
        label_selector: "app=web".into(),
        ..ListOptions::default()
    };
    let pages = || {
        vec![
            page("7", &[object("a", 1), object("b", 1)], "1"),
            list("7", &[]),
        ]
    };
    let (_, _, script) = read(pages(), options.clone()).await;
    let each = pages().into_iter().fold(Script::new(), Script::list);
    Pager::each_item(each.source(), options, 2, |_| Ok::<_, SourceError>(()))
        .await
        .unwrap();
    for script in [script, each] {
        let requests = script.requests();
        let versions: Vec<&str> = requests
            .iter()
            .map(|request| &*request.options.resource_version)
            .collect();
        assert_eq!(versions, ["5", ""]);
        assert!(requests[1].options.resource_version_match.is_none());
        assert_eq!(requests[1].options.label_selector, "app=web");
    }
}

#[tokio::test(start_paused = true)]
async fn b47_pages_are_fetched_ahead_within_a_bound_and_not_after_an_error() {
    let mut script = Script::new();
    for number in 0..100 {
        script = script.list(page("7", &[object(&format!("n{number}"), 1)], "next"));
    }
    let mut taken = 0;
    let outcome = Pager::each_item(script.source(), ListOptions::default(), 1, |_| {
        taken += 1;
        if taken == 3 {
            Err(SourceError::Unexpected("enough".into()))
        } else {
            Ok(())
        }
    })
    .await;
    assert!(matches!(outcome, Err(SourceError::Unexpected(_))));
    let fetched = script.lists();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(script.lists(), fetched, "nothing is fetched any more");

    // A consumer that is aborted before it has read all pages.
    let mut script = Script::new();
    for number in 0..100 {
        script = script.list(page("7", &[object(&format!("n{number}"), 1)], "next"));
    }
    let source = script.source();
    let reading = tokio::spawn(async move {
        let stuck = Arc::new(AtomicUsize::new(0));
        Pager::each_item(source, ListOptions::default(), 1, move |_| {
            stuck.fetch_add(1, Ordering::Relaxed);
            // Does not block; the pages that are fetched ahead are bounded by the channel.
            Ok::<_, SourceError>(())
        })
        .await
    });
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    reading.abort();
    let _ = reading.await;
    let fetched = script.lists();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(script.lists(), fetched, "who is dropped fetches no more");
}

#[test]
fn b48_an_object_of_a_page_does_not_keep_the_page_alive() {
    let items: Vec<String> = (0..500)
        .map(|index| {
            format!(
                r#"{{"metadata":{{"name":"n{index}","resourceVersion":"1"}},"data":{{"x":"{}"}}}}"#,
                "x".repeat(1000)
            )
        })
        .collect();
    let body = format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
        items.join(",")
    );
    let mut survivor: Option<Object> = None;
    let mut splitter = ListSplitter::new(SplitOptions::default());
    splitter
        .feed(body.as_bytes(), |object| survivor = Some(object))
        .unwrap();
    let survivor = survivor.unwrap();
    assert!(
        survivor.memory_bytes() < items[499].len() + 512,
        "{} bytes for {}",
        survivor.memory_bytes(),
        items[499].len()
    );
}

#[tokio::test(start_paused = true)]
async fn b47_the_next_page_is_asked_for_before_the_one_before_it_has_come() {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// A page that ends only after the next one was requested.
    struct Waits {
        script: Script,
        parts: std::vec::IntoIter<ListPart>,
    }
    impl futures_core::Stream for Waits {
        type Item = Result<ListPart, SourceError>;

        fn poll_next(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Self::Item>> {
            if self.parts.len() == 1 && self.script.lists() < 2 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.parts.next().map(Ok))
        }
    }
    struct Paged(Script);
    impl Lister for Paged {
        fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListStream, SourceError>> {
            Box::pin(async move {
                let first = options.continue_token.is_empty();
                let stream = Lister::list(&self.0, options).await?;
                if !first {
                    return Ok(stream);
                }
                let metadata = page("7", &[], "next").metadata;
                let parts = vec![
                    ListPart::Begin(metadata.clone()),
                    ListPart::Items(vec![object("a", 1)]),
                    ListPart::End(metadata),
                ];
                let script = self.0.clone();
                Ok(Box::pin(Waits {
                    script,
                    parts: parts.into_iter(),
                }) as ListStream)
            })
        }
    }
    let script = Script::new()
        .list(list("7", &[]))
        .list(list("7", &[object("b", 2)]));
    let mut names = Vec::new();
    let lister = Paged(script.clone());
    let pager = Pager::new(&lister).page_size(1);
    let listing = pager.list(ListOptions::default(), |part| {
        if let tidings_informer::Paged::Items(items) = part {
            names.extend(items.iter().map(|item| item.name().into_owned()));
        }
    });
    let listed = tokio::time::timeout(Duration::from_secs(10), listing)
        .await
        .expect("asked ahead")
        .unwrap();
    assert!(listed.paginated);
    assert_eq!(names, ["a", "b"]);
    assert_eq!(script.lists(), 2, "and once");
}
