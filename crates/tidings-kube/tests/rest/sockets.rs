//! Over real connections of kube: how a lost connection looks, and that kube does not retry by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidings_api::ListOptions;
use tidings_kube::{RestClient, RestListWatch};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::script::{EMPTY, list, pods, watch};

/// A server that closes the first connection without an answer, answers lists, and is too busy for watches. Counts requests.
async fn busy_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.unwrap());
            }
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                continue;
            }
            let (head, body) = if request.windows(10).any(|part| part == b"watch=true") {
                ("503 Service Unavailable\r\nretry-after: 1", "")
            } else {
                ("200 OK", EMPTY)
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (format!("http://{address}"), asked)
}

#[tokio::test]
async fn b126_kubes_lost_connections_are_known_and_kube_does_not_retry() {
    let (address, asked) = busy_server().await;
    let config = kube::Config::new(address.parse().unwrap());
    let client = RestClient::from_config(config).unwrap();
    let pods = RestListWatch::new(&client, &pods(), "");
    let listing = list(&pods, ListOptions::default());
    let (_, listed) = timeout(Duration::from_secs(10), listing).await.unwrap();
    assert_eq!(listed.unwrap().resource_version, "7");
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    let watched = timeout(Duration::from_secs(10), watch(&pods)).await;
    let error = watched.unwrap().1.unwrap_err();
    assert_eq!(error.code(), Some(503));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}
