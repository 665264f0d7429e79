//! A server on loopback whose responses the test controls byte by byte.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::fetch::Trust;

/// A request, as received by the server.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Source address, which identifies the path.
    pub from: IpAddr,
    /// Number of earlier requests from that address.
    pub index: usize,
    pub target: String,
    /// Half-open; `None` as the end means the end of the object.
    pub range: Option<(u64, Option<u64>)>,
    pub headers: Vec<(String, String)>,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Action of an HTTP/2 server before the response head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeforeHead {
    Nothing,
    /// Send an informational response with this status.
    Informational(u16),
    /// Reset the stream, instead of a response.
    Reset(h2::Reason),
    /// End the connection, instead of a response.
    GoAway(h2::Reason),
}

/// Action after the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterBody {
    /// Wait for the next request.
    KeepOpen,
    Close,
    /// TCP RST, or RST_STREAM over HTTP/2.
    Reset,
    /// GOAWAY; over HTTP/1.1 the same as `Close`.
    GoAway,
    /// Keep the connection open and send nothing.
    Stall,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub before_head: BeforeHead,
    pub body: Vec<u8>,
    /// Number of body bytes that are sent.
    pub sent_length: usize,
    pub after_body: AfterBody,
    /// Number of body bytes after which the response waits for this semaphore.
    pub gate: Option<(usize, Arc<Semaphore>)>,
}

impl Reply {
    pub fn plain(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Self {
            status,
            headers: headers
                .chain([("content-length".to_owned(), body.len().to_string())])
                .collect(),
            before_head: BeforeHead::Nothing,
            body: body.to_vec(),
            sent_length: body.len(),
            after_body: AfterBody::KeepOpen,
            gate: None,
        }
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub fn remove(&mut self, name: &str) {
        self.headers.retain(|(own, _)| own != name);
    }
}

/// The response of a correct server.
pub fn correct_reply(request: &ReceivedRequest, object: &[u8], etag: &str) -> Reply {
    let fresh = request.header("if-range").is_none_or(|wanted| wanted == etag);
    let headers = [("accept-ranges", "bytes"), ("etag", etag)];
    match request.range {
        Some((start, end)) if fresh && (start as usize) < object.len() => {
            let end = end.unwrap_or(u64::MAX).min(object.len() as u64);
            let mut reply = Reply::plain(206, &headers, &object[start as usize..end as usize]);
            reply.set("content-range", &format!("bytes {start}-{}/{}", end - 1, object.len()));
            reply
        }
        _ => Reply::plain(200, &headers, object),
    }
}

type Script = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

/// Runs as long as the test's runtime.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

#[derive(Clone)]
struct RequestHandler {
    script: Arc<Script>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// Creates a certificate for `names` with a new authority. Returns the authority's PEM and the
/// server's configuration.
pub fn certificate(names: &[&str], h2: bool) -> (String, Arc<rustls::ServerConfig>) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new([]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let mut config = serve(leaf.der().clone(), &key);
    if h2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    (pem, Arc::new(config))
}

/// A client's trust in the authority with this PEM, and the folder of the file.
pub fn trust_in(pem: String) -> (TempDir, Trust) {
    let folder = TempDir::new().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, pem).unwrap();
    (folder, Trust::File(authority))
}

/// Creates a self-signed certificate with CA rights, like `openssl req -x509`.
pub fn self_signed(
    names: &[&str],
    from_year: i32,
    to_year: i32,
) -> (String, Arc<rustls::ServerConfig>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(from_year, 1, 1);
    params.not_after = rcgen::date_time_ymd(to_year, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), Arc::new(serve(certificate.der().clone(), &key)))
}

fn serve(certificate: CertificateDer<'static>, key: &rcgen::KeyPair) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap()
}

impl Server {
    pub async fn start(script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", None, script).await
    }

    pub async fn start_at(
        address: &str,
        tls: Option<Arc<rustls::ServerConfig>>,
        script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asks = Arc::new(Mutex::new(Vec::new()));
        let handler = RequestHandler { script: Arc::new(script), requests: Arc::clone(&asks) };
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (handler, tls) = (handler.clone(), tls.clone());
                tokio::spawn(async move {
                    let from = peer.ip();
                    match tls {
                        None => handler.http1(stream, from).await,
                        Some(config) => {
                            let accepted = TlsAcceptor::from(config).accept(stream).await;
                            let Ok(stream) = accepted else { return };
                            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                                handler.http2(stream, from).await;
                            } else {
                                handler.http1(stream, from).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests: asks }
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }
}

impl RequestHandler {
    fn reply(&self, from: IpAddr, target: &str, headers: Vec<(String, String)>) -> Reply {
        let headers: HashMap<String, String> = headers.into_iter().collect();
        let range = headers.get("range").map(|range| {
            let (start, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            let end = (!last.is_empty()).then(|| last.parse::<u64>().unwrap() + 1);
            (start.parse().unwrap(), end)
        });
        let request = {
            let mut asks = self.requests.lock().unwrap();
            let nth = asks.iter().filter(|ask: &&ReceivedRequest| ask.from == from).count();
            let headers = headers.into_iter().collect();
            let request =
                ReceivedRequest { from, index: nth, target: target.to_owned(), range, headers };
            asks.push(request.clone());
            request
        };
        (self.script)(&request)
    }

    async fn http1<S: AsyncRead + AsyncWrite + Unpin + Aborts>(&self, mut stream: S, from: IpAddr) {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let head = String::from_utf8(head).unwrap();
            let mut lines = head.lines();
            let target = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            let headers = lines.filter_map(|line| line.split_once(": "));
            let headers = headers.map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
            let reply = self.reply(from, &target, headers);
            let mut text = format!("HTTP/1.1 {} X\r\n", reply.status);
            for (name, value) in &reply.headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
            let (first, rest) = parts(&reply);
            if stream.write_all(first).await.is_err() {
                return;
            }
            wait(&reply).await;
            if stream.write_all(rest).await.is_err() {
                return;
            }
            match reply.after_body {
                AfterBody::KeepOpen => {}
                AfterBody::Close | AfterBody::GoAway => return,
                AfterBody::Reset => return stream.abort(),
                AfterBody::Stall => std::future::pending().await,
            }
        }
    }

    async fn http2<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, from: IpAddr) {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        let (goaway, mut told) = tokio::sync::mpsc::unbounded_channel();
        loop {
            let accepted = tokio::select! {
                accepted = connection.accept() => accepted,
                Some(reason) = told.recv() => {
                    connection.abrupt_shutdown(reason);
                    continue;
                }
            };
            let Some(Ok((request, mut respond))) = accepted else { return };
            let headers = request.headers().iter();
            let headers =
                headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect();
            let reply = self.reply(from, request.uri().path(), headers);
            let goaway = goaway.clone();
            tokio::spawn(async move {
                match reply.before_head {
                    BeforeHead::Nothing => {}
                    BeforeHead::Informational(status) => {
                        let head = http::Response::builder().status(status).body(()).unwrap();
                        respond.send_informational(head).unwrap();
                    }
                    BeforeHead::Reset(reason) => return respond.send_reset(reason),
                    BeforeHead::GoAway(reason) => {
                        let _ = goaway.send(reason);
                        return std::future::pending().await;
                    }
                }
                let mut response = http::Response::builder().status(reply.status);
                for (name, value) in &reply.headers {
                    response = response.header(name, value);
                }
                let Ok(mut body) = respond.send_response(response.body(()).unwrap(), false) else {
                    return;
                };
                let (first, rest) = parts(&reply);
                if !send(&mut body, first).await {
                    return;
                }
                wait(&reply).await;
                if !send(&mut body, rest).await {
                    return;
                }
                match reply.after_body {
                    AfterBody::KeepOpen | AfterBody::Close => {
                        let _ = body.send_data(bytes::Bytes::new(), true);
                    }
                    AfterBody::Reset => body.send_reset(h2::Reason::INTERNAL_ERROR),
                    AfterBody::GoAway => {
                        let _ = goaway.send(h2::Reason::ENHANCE_YOUR_CALM);
                        std::future::pending().await
                    }
                    AfterBody::Stall => std::future::pending().await,
                }
            });
        }
    }
}

fn parts(reply: &Reply) -> (&[u8], &[u8]) {
    let body = &reply.body[..reply.sent_length];
    body.split_at(reply.gate.as_ref().map_or(0, |(at, _)| *at).min(body.len()))
}

async fn wait(reply: &Reply) {
    if let Some((_, gate)) = &reply.gate {
        gate.acquire().await.unwrap().forget();
    }
}

async fn send(stream: &mut h2::SendStream<bytes::Bytes>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return false;
        };
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        if stream.send_data(bytes::Bytes::copy_from_slice(now), false).is_err() {
            return false;
        }
        bytes = later;
    }
    true
}

/// Closes the connection so that the peer receives a reset.
trait Aborts {
    fn abort(self);
}

impl Aborts for TcpStream {
    fn abort(self) {
        socket2::SockRef::from(&self).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl Aborts for tokio_rustls::server::TlsStream<TcpStream> {
    fn abort(self) {
        self.into_inner().0.abort();
    }
}
