//! A cheap HTTP/1.1 client over TLS.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The address and token of a server.
#[derive(Clone)]
pub struct Client {
    address: String,
    token: String,
    tls: TlsConnector,
}

/// One connection, with the bytes that were read ahead.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    head: String,
    buffer: Vec<u8>,
    /// Bytes of a watch that are not a complete line yet.
    lines: Vec<u8>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Client {
    /// A client for the server at an https URL.
    ///
    /// # Errors
    /// If the URL does not start with `https://`, or TLS cannot be set up.
    pub fn new(url: &str, token: &str) -> anyhow::Result<Client> {
        let address = url
            .strip_prefix("https://")
            .context("the URL must start with https://")?
            .trim_end_matches('/');
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        Ok(Client {
            address: address.to_owned(),
            token: token.to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = self.stream().await?;
        let head = format!(
            "host: {}\r\nauthorization: Bearer {}\r\naccept: application/json\r\n",
            self.address, self.token
        );
        Ok(Connection {
            stream,
            head,
            buffer: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// Opens a TLS stream without sending anything, for protocols that this client does not implement.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn stream(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        Ok(self.tls.connect(name, stream).await?)
    }

    /// Opens a TLS stream for HTTP/2, without sending anything.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn http2_stream(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::clone(self.tls.config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let tls = TlsConnector::from(Arc::new(config));
        Ok(tls.connect(name, stream).await?)
    }

    /// The address of the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The bearer token of this client.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Opens a watch and reads the head of its response.
    pub async fn watch(&self, path: &str) -> anyhow::Result<Connection> {
        let mut connection = self.connect().await?;
        connection.send("GET", path, b"").await?;
        let (code, _, _) = connection.read_head().await?;
        if code != 200 {
            bail!("GET {path}: {code}");
        }
        Ok(connection)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.address)
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub code: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// How the length of a body is given.
enum BodyLength {
    Known(usize),
    Chunked,
}

impl Connection {
    /// Accepts compressed answers from now on.
    pub fn accept_gzip(&mut self) {
        self.head.push_str("accept-encoding: gzip\r\n");
    }

    async fn send(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<()> {
        let head = &self.head;
        let length = body.len();
        let media_type = match method {
            "PATCH" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let mut request =
            format!("{method} {path} HTTP/1.1\r\n{head}content-type: {media_type}\r\ncontent-length: {length}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await?;
        Ok(self.stream.flush().await?)
    }

    async fn read_head(&mut self) -> anyhow::Result<(u16, BodyLength, String)> {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.more().await? == 0 {
                bail!("the connection was closed");
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let code = head
            .get(9..12)
            .and_then(|code| code.parse().ok())
            .context("no status code")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|text| text.trim().parse().ok());
        self.buffer.drain(..end + 4);
        Ok((
            code,
            length.map_or(BodyLength::Chunked, BodyLength::Known),
            head,
        ))
    }

    async fn more(&mut self) -> anyhow::Result<usize> {
        self.buffer.reserve(64 << 10);
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<Response> {
        self.send(method, path, body).await?;
        let (code, length, head) = self.read_head().await?;
        let mut body = Vec::new();
        match length {
            BodyLength::Known(length) => {
                while self.buffer.len() < length {
                    ensure!(self.more().await? > 0, "the connection was closed");
                }
                body.extend(self.buffer.drain(..length));
            }
            BodyLength::Chunked => while self.chunk(&mut body).await? {},
        }
        Ok(Response { code, head, body })
    }

    /// Reads one chunk of a chunked body. Returns false at its end.
    async fn chunk(&mut self, body: &mut Vec<u8>) -> anyhow::Result<bool> {
        let line = loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n") {
                break end;
            }
            ensure!(self.more().await? > 0, "the connection was closed");
        };
        let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line])?, 16)?;
        while self.buffer.len() < line + 2 + size + 2 {
            ensure!(self.more().await? > 0, "the connection was closed");
        }
        body.extend_from_slice(&self.buffer[line + 2..line + 2 + size]);
        self.buffer.drain(..line + 2 + size + 2);
        Ok(size > 0)
    }

    /// The next line of a watch; `None` at its regular end.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn line(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.lines) {
                let line = self.lines.drain(..=end).collect::<Vec<u8>>();
                return Ok(Some(String::from_utf8(line)?));
            }
            let mut lines = std::mem::take(&mut self.lines);
            let more = self.chunk(&mut lines).await;
            self.lines = lines;
            if !more? {
                return Ok(None);
            }
        }
    }

    /// Sends a request and reads the complete response without keeping it. Returns the code and the size of the body, including
    /// chunk headers.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn measure(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<(u16, usize)> {
        self.send(method, path, body).await?;
        let (code, length, _) = self.read_head().await?;
        let size = match length {
            BodyLength::Known(length) => {
                while self.buffer.len() < length {
                    if self.more().await? == 0 {
                        bail!("the connection was closed");
                    }
                }
                self.buffer.drain(..length);
                length
            }
            BodyLength::Chunked => self.skip_until(b"\r\n0\r\n\r\n").await?,
        };
        Ok((code, size))
    }

    /// Reads and discards bytes up to and including `mark`. Returns how many.
    ///
    /// The bytes are those of the wire: a mark that is longer than a byte can be split by the length of a chunk. See
    /// [`Connection::skip_until_either`].
    pub async fn skip_until(&mut self, mark: &[u8]) -> anyhow::Result<usize> {
        self.skip_until_either([mark, mark]).await
    }

    /// Reads and discards bytes up to and including the first of two marks: a chunk that splits one does not split the other.
    pub async fn skip_until_either(&mut self, marks: [&[u8]; 2]) -> anyhow::Result<usize> {
        let mut size = 0;
        loop {
            let ends = marks.map(|mark| {
                let at = memchr::memmem::find(&self.buffer, mark)?;
                Some(at + mark.len())
            });
            if let Some(end) = ends.into_iter().flatten().min() {
                self.buffer.drain(..end);
                return Ok(size + end);
            }
            let keep = marks.map(<[u8]>::len).into_iter().max();
            let keep = self.buffer.len().min(keep.unwrap_or_default());
            size += self.buffer.len() - keep;
            self.buffer.drain(..self.buffer.len() - keep);
            if self.more().await? == 0 {
                bail!("the connection was closed");
            }
        }
    }

    /// The next bytes of the stream, unparsed. Empty at its end.
    pub async fn next(&mut self) -> anyhow::Result<&[u8]> {
        self.buffer.clear();
        self.more().await?;
        Ok(&self.buffer)
    }
}

/// Accepts any certificate: the server runs on loopback and belongs to the test.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
