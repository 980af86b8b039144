//! A server that only writes prepared bytes: what connections, encryption and the network cost any server. It keeps nothing but the number of
//! objects that were created, and checks nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use clap::Parser;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

#[derive(Debug, Parser)]
#[command(name = "floor")]
struct Arguments {
    /// The port on the loopback interface
    #[arg(long)]
    port: u16,
}

/// The object that every request is answered with.
const OBJECT: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"o","namespace":"default","uid":"3c2d7d2b-8e0f-4a53-9f7c-5b1f0f6f1e11","resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"sent":"1700000000000000","fill":""#;
const OBJECT_BYTES: usize = 1800;
/// How many events a watch may be behind.
const BEHIND_MAX: usize = 1 << 14;

struct Floor {
    object: Bytes,
    created: AtomicUsize,
    /// The list of as many objects.
    list: Mutex<(usize, Bytes)>,
    events: broadcast::Sender<Bytes>,
}

/// A request, as far as the floor looks at it.
struct FloorRequest {
    method: String,
    path: String,
    body: Bytes,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await?;
    let mut object = OBJECT.to_owned();
    let fill = OBJECT_BYTES.saturating_sub(object.len() + 3);
    object.extend((0..fill).map(|at| char::from(b'a' + (at % 23) as u8)));
    object.push_str("\"}}");
    let floor = Arc::new(Floor {
        object: object.into(),
        created: AtomicUsize::new(0),
        list: Mutex::default(),
        events: broadcast::channel(BEHIND_MAX).0,
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, floor) = (acceptor.clone(), Arc::clone(&floor));
        // A client that leaves ends its task.
        tokio::spawn(async move { serve(acceptor, stream, &floor).await });
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, floor: &Floor) -> anyhow::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut buffer = BytesMut::with_capacity(8 << 10);
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        if request.path.contains("watch=1") {
            return watch(stream, floor).await;
        }
        let (code, body) = answer(floor, &request);
        let head = format!(
            "HTTP/1.1 {code} OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn read(
    stream: &mut TlsStream<TcpStream>,
    buffer: &mut BytesMut,
) -> anyhow::Result<Option<FloorRequest>> {
    let head_end = loop {
        if let Some(at) = memmem::find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(buffer.split_to(head_end).to_vec())?;
    let mut words = head.split(' ').map(str::to_owned);
    let method = words.next().context("no method")?;
    let path = words.next().context("no path")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    let length: usize = length.unwrap_or_default();
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(FloorRequest {
        method,
        path,
        body: buffer.split_to(length).freeze(),
    }))
}

fn answer(floor: &Floor, request: &FloorRequest) -> (u16, Bytes) {
    match &*request.method {
        "POST" => {
            floor.created.fetch_add(1, Ordering::Relaxed);
            (201, floor.object.clone())
        }
        "PUT" => {
            let event = [
                b"{\"type\":\"MODIFIED\",\"object\":",
                &*request.body,
                b"}\n",
            ]
            .concat();
            let chunk = [format!("{:x}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat();
            // Without watches nobody hears it.
            let _ = floor.events.send(chunk.into());
            (200, floor.object.clone())
        }
        _ if request.path.contains('?') => {
            let items = floor.created.load(Ordering::Relaxed);
            let mut list = floor.list.lock().unwrap_or_else(PoisonError::into_inner);
            if list.0 != items || list.1.is_empty() {
                let objects = vec![&*floor.object; items].join(&b","[..]);
                *list = (items, [b"{\"items\":[", &*objects, b"]}"].concat().into());
            }
            (200, list.1.clone())
        }
        _ => (200, floor.object.clone()),
    }
}

async fn watch(mut stream: TlsStream<TcpStream>, floor: &Floor) -> anyhow::Result<()> {
    let mut events = floor.events.subscribe();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    loop {
        let event = events.recv().await?;
        stream.write_all(&event).await?;
        stream.flush().await?;
    }
}
