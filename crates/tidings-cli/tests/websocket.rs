//! Watches over WebSockets, with an independent client (tokio-tungstenite).

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tidings_testing::{Server, StartOptions};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

type Socket = WebSocketStream<tokio_rustls::client::TlsStream<TcpStream>>;

async fn start(data_dir: &Path) -> Server {
    let start = StartOptions {
        binary: Path::new(env!("CARGO_BIN_EXE_tidings")),
        data_dir,
        arguments: &[],
    };
    Server::start(&start).await.unwrap()
}

/// Upgrades a GET of a path, with the given headers.
async fn open(
    server: &Server,
    path: &str,
    headers: &[(&'static str, String)],
) -> Result<(Socket, Response<Option<Vec<u8>>>), Error> {
    let mut request = format!("wss://localhost{path}").into_client_request()?;
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).unwrap();
        request.headers_mut().insert(*name, value);
    }
    let stream = server.client.stream().await.unwrap();
    tokio_tungstenite::client_async(request, stream).await
}

fn bearer(server: &Server) -> (&'static str, String) {
    ("authorization", format!("Bearer {}", server.client.token()))
}

async fn text(socket: &mut Socket) -> String {
    let message = tokio::time::timeout(Duration::from_secs(20), socket.next()).await;
    match message.unwrap().unwrap().unwrap() {
        Message::Text(text) => text.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

async fn create(server: &Server, name: &str) {
    let body = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
    let mut connection = server.client.connect().await.unwrap();
    let answer = connection
        .request("POST", CONFIGMAPS, body.as_bytes())
        .await;
    assert_eq!(answer.unwrap().code, 201);
}

#[tokio::test]
async fn w120_w122_one_event_a_frame() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    create(&server, "one").await;
    create(&server, "two").await;
    let path = format!("{CONFIGMAPS}?watch=true");
    let (mut socket, response) = open(&server, &path, &[bearer(&server)]).await.unwrap();
    // Deviation W121: a client that sends no Origin is welcome, too
    assert_eq!(response.status(), 101);
    for header in [
        "audit-id",
        "cache-control",
        "x-kubernetes-pf-flowschema-uid",
    ] {
        assert!(response.headers().get(header).is_none(), "W3: {header}");
    }
    create(&server, "three").await;
    for name in ["one", "two", "three"] {
        let event = text(&mut socket).await;
        assert!(event.ends_with("}\n") && event.matches('\n').count() == 1);
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    // Messages of the client are ignored, and a ping is answered.
    socket.send(Message::text("hello")).await.unwrap();
    socket.send(Message::Ping("x".into())).await.unwrap();
    let pong = socket.next().await.unwrap().unwrap();
    assert!(matches!(pong, Message::Pong(_)), "{pong:?}");
}

#[tokio::test]
async fn w117_w122_events_in_protobuf_are_binary_and_without_their_length() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    create(&server, "one").await;
    create(&server, "two").await;
    let path = format!("{CONFIGMAPS}?watch=true");
    let accept = "application/vnd.kubernetes.protobuf;stream=watch".to_owned();
    let headers = [bearer(&server), ("accept", accept)];
    let (mut socket, _) = open(&server, &path, &headers).await.unwrap();
    create(&server, "three").await;
    for name in ["one", "two", "three"] {
        let message = tokio::time::timeout(Duration::from_secs(20), socket.next()).await;
        let Message::Binary(event) = message.unwrap().unwrap().unwrap() else {
            panic!("an event is a binary message");
        };
        assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{event:?}");
        let named = [b"\x0a", &[name.len() as u8][..], name.as_bytes(), b"\x12\0"].concat();
        assert!(event.windows(named.len()).any(|part| part == named));
        assert_eq!(event.windows(4).filter(|part| part == b"k8s\0").count(), 1);
    }
}

#[tokio::test]
async fn w123_the_end_of_a_watch_is_a_close_frame() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let path = format!("{CONFIGMAPS}?watch=true&timeoutSeconds=1");
    let (mut socket, _) = open(&server, &path, &[bearer(&server)]).await.unwrap();
    match socket.next().await.unwrap().unwrap() {
        Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Normal),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn w124_what_is_no_watch_is_not_upgraded() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let code = async |path: &str| match open(&server, path, &[bearer(&server)]).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{:?}", other.map(|(_, response)| response)),
    };
    assert_eq!(code(CONFIGMAPS).await, 200, "a list");
    let bad = format!("{CONFIGMAPS}?watch=true&labelSelector=a%3D%3D%3D");
    assert_eq!(code(&bad).await, 400);
}

#[tokio::test]
async fn w125_the_token_may_be_a_subprotocol() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let path = format!("{CONFIGMAPS}?watch=true");
    let protocols = |token: &str, other: &str| {
        let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
        let offered = format!("base64url.bearer.authorization.k8s.io.{encoded}{other}");
        [("sec-websocket-protocol", offered)]
    };
    let right = protocols(server.client.token(), ", binary.k8s.io");
    let (_, response) = open(&server, &path, &right).await.unwrap();
    let echoed = response.headers().get("sec-websocket-protocol").unwrap();
    assert_eq!(echoed, "binary.k8s.io", "the token is not said back");
    let refused =
        async |offered: &[(&'static str, String)]| match open(&server, &path, offered).await {
            Err(Error::Http(response)) => response.status().as_u16(),
            other => panic!("{:?}", other.map(|(_, response)| response)),
        };
    assert_eq!(refused(&protocols("wrong", ", binary.k8s.io")).await, 401);
    let alone = protocols(server.client.token(), "");
    assert_eq!(
        refused(&alone).await,
        403,
        "another must be offered besides"
    );
}
