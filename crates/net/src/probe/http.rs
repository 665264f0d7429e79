//! An HTTP request, and the time of each of its phases.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use manyways_model::probe::cost::{Plan, Transfer};
use manyways_proto::happy_eyeballs::Config;
use manyways_unit::{Size, Span, Time};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, lookup};
use super::report::Measurement;
use crate::fetch::Location;
use crate::path::{RaceError, Trust, race, socket, tls};

/// A GET request.
#[derive(Clone, Debug)]
pub struct Http {
    pub location: Location,
    pub version: HttpVersion,
    /// The body is read up to this size.
    pub max_body: Size,
    pub timeout: Span,
    pub trust: Trust,
}

/// Versions of HTTP that a probe may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpVersion {
    /// That which the server selects; HTTP/1.1 without TLS.
    Any,
    Http1,
    Http2,
}

/// Result of a request. A phase that was not completed has no time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HttpReport {
    pub server: Option<SocketAddr>,
    /// Addresses of the name, in the order of the name server.
    pub addresses: Vec<IpAddr>,
    /// `h2` or `http/1.1`.
    pub protocol: Option<&'static str>,
    pub status: Option<u16>,
    pub location: Option<String>,
    pub phases: Phases,
    /// Bytes of the body, also of one that is not complete.
    pub body: Size,
    /// Whether the whole body was read.
    pub is_complete: bool,
}

/// Durations of the phases of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases {
    /// Look-up of the name; absent for an address.
    pub lookup: Option<Span>,
    /// Handshake of TCP, with the attempts at other addresses before (RFC 8305).
    pub connect: Option<Span>,
    /// Handshake of TLS; absent without TLS.
    pub tls: Option<Span>,
    /// From the request to the end of the response's head.
    pub first_byte: Option<Span>,
    /// From there to the end of the body.
    pub body: Option<Span>,
    /// From the start of the look-up to the end of the last completed phase.
    pub total: Option<Span>,
}

impl Http {
    /// Bytes of the handshakes and heads, at most: a chain of certificates, and a head of a response.
    const OVERHEAD_UP: u64 = 32 << 10;
    const OVERHEAD_DOWN: u64 = 96 << 10;
    /// Bytes that a server may send before it learns that no more are wanted.
    const RECEIVE_WINDOW: u64 = 256 << 10;

    pub fn new(location: Location) -> Self {
        Self {
            location,
            version: HttpVersion::Any,
            max_body: Size::from_bytes(1_000_000),
            timeout: Span::from_secs(30),
            trust: Trust::System,
        }
    }

    fn protocols(&self) -> &'static [&'static [u8]] {
        match self.version {
            HttpVersion::Any => &[b"h2", b"http/1.1"],
            HttpVersion::Http1 => &[b"http/1.1"],
            HttpVersion::Http2 => &[b"h2"],
        }
    }

    /// Sends the request. The result is also returned if a phase fails.
    pub(super) async fn perform(&self, run: &mut Run) -> (HttpReport, Result<(), ProbeError>) {
        let mut report = HttpReport::default();
        let started = run.now();
        let mut stopwatch = Stopwatch { run, started, phase: started };
        let ended = self.measure(&mut stopwatch, &mut report).await;
        (report, ended)
    }

    async fn measure(
        &self,
        stopwatch: &mut Stopwatch<'_>,
        report: &mut HttpReport,
    ) -> Result<(), ProbeError> {
        let origin = self.location.origin();
        let literal: Option<IpAddr> = origin.host.parse().ok();
        let addresses = match literal {
            Some(address) => vec![address],
            None => stopwatch.run.resolve_all(&origin.host).await?,
        };
        if literal.is_none() {
            report.phases.lookup = Some(stopwatch.lap());
        }
        report.addresses.clone_from(&addresses);
        let path = stopwatch.run.path().clone();
        let config = Config::default();
        let own = config.select(&addresses, |address| path.has_family(address));
        let own: Vec<SocketAddr> =
            own.into_iter().map(|address| SocketAddr::new(address, origin.port)).collect();
        let first = own.first().copied();
        let first = first.ok_or_else(|| stopwatch.run.no_address(&origin.host))?;
        report.server = Some(first);
        stopwatch.report(report);
        stopwatch
            .run
            .spend(Size::from_bytes(Self::OVERHEAD_UP), Size::from_bytes(Self::OVERHEAD_DOWN))?;
        // Reading the trusted certificates takes some milliseconds, which are in no phase.
        let trust = match origin.secure {
            true => Some(
                tls::config(&self.trust, self.protocols())
                    .map_err(|error| ProbeError::Tls(error.to_string()))?,
            ),
            false => None,
        };
        stopwatch.lap();
        let attempt = |server| {
            let path = &path;
            async move { socket(path, server)?.connect(server).await }
        };
        let ready = std::future::ready(Ok(own));
        let connected = race(config, ready, std::future::pending(), attempt, |_| false).await;
        let (stream, server) = connected.map_err(|error| {
            let error = match error {
                RaceError::Failed(Some(error)) => error,
                _ => io::ErrorKind::TimedOut.into(),
            };
            ProbeError::connect(&path, first, error)
        })?;
        report.server = Some(server);
        // Requests are small and must not be delayed. A failure costs only time.
        let _ = stream.set_nodelay(true);
        report.phases.connect = Some(stopwatch.lap());
        stopwatch.report(report);
        let Some(trust) = trust else {
            let is_http2 = self.version == HttpVersion::Http2;
            return self.exchange(stream, is_http2, stopwatch, report).await;
        };
        let stream = tls::handshake(trust, &origin.host, server, stream).await;
        let stream = stream.map_err(|error| ProbeError::Tls(error.to_string()))?;
        report.phases.tls = Some(stopwatch.lap());
        stopwatch.report(report);
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.exchange(stream, is_http2, stopwatch, report).await
    }

    async fn exchange<S>(
        &self,
        stream: S,
        is_http2: bool,
        stopwatch: &mut Stopwatch<'_>,
        report: &mut HttpReport,
    ) -> Result<(), ProbeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        report.protocol = Some(if is_http2 { "h2" } else { "http/1.1" });
        let failed = |error: &dyn std::fmt::Display| ProbeError::Http(error.to_string());
        let (head, mut body, _driver) = match is_http2 {
            true => self.http2(stream).await.map_err(|error| failed(&error))?,
            false => self.http1(stream).await.map_err(|error| failed(&error))?,
        };
        report.phases.first_byte = Some(stopwatch.lap());
        report.status = Some(head.status.as_u16());
        let location = head.fields.get(header::LOCATION);
        report.location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
        stopwatch.report(report);
        loop {
            let piece = body.next().await.map_err(|error| failed(&error))?;
            let Some(piece) = piece else { break };
            let length = Size::from_bytes(piece.len() as u64);
            report.body += length;
            stopwatch.run.spend(Size::from_bytes(piece.len() as u64 / 20), packets(length))?;
            stopwatch.report(report);
            if report.body >= self.max_body {
                return Ok(());
            }
        }
        report.phases.body = Some(stopwatch.lap());
        report.is_complete = true;
        stopwatch.report(report);
        Ok(())
    }

    fn request(&self, version: Version) -> Result<Request<Empty<Bytes>>, http::Error> {
        let builder = Request::builder()
            .method(Method::GET)
            .version(version)
            .header(header::USER_AGENT, concat!("manyways/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "*/*");
        let target = self.location.target();
        let authority = self.location.origin().authority();
        let builder = match version {
            Version::HTTP_2 => {
                builder.uri(format!("{}://{authority}{target}", self.location.origin().scheme()))
            }
            _ => builder.uri(target).header(header::HOST, authority),
        };
        builder.body(Empty::new())
    }

    async fn http1<S>(&self, stream: S) -> Result<Exchange, BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = Driver(tokio::spawn(async move { drop(connection.await) }).abort_handle());
        let response = sender.send_request(self.request(Version::HTTP_11)?).await?;
        let (parts, body) = response.into_parts();
        let head = Head { status: parts.status, fields: parts.headers };
        // The connection ends with its sender.
        Ok((head, Body::Http1 { body, _sender: sender }, driver))
    }

    async fn http2<S>(&self, stream: S) -> Result<Exchange, BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(Self::RECEIVE_WINDOW as u32)
            .initial_connection_window_size(Self::RECEIVE_WINDOW as u32)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await?;
        let driver = Driver(tokio::spawn(async move { drop(connection.await) }).abort_handle());
        let mut ready = sender.ready().await?;
        let request = self.request(Version::HTTP_2)?.map(|_| ());
        let (response, _) = ready.send_request(request, true)?;
        let (parts, body) = response.await?.into_parts();
        let head = Head { status: parts.status, fields: parts.headers };
        Ok((head, Body::Http2 { body, _sender: ready }, driver))
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A response, and its connection.
type Exchange = (Head, Body, Driver);

/// Bytes of a body with the headers of its packets.
fn packets(body: Size) -> Size {
    Size::from_bytes(body.as_bytes() + (body.as_bytes() / 1_200 + 1) * 72)
}

struct Head {
    status: StatusCode,
    fields: HeaderMap,
}

/// A body, and the sender that keeps its connection.
enum Body {
    Http1 {
        body: hyper::body::Incoming,
        _sender: hyper::client::conn::http1::SendRequest<Empty<Bytes>>,
    },
    Http2 {
        body: h2::RecvStream,
        _sender: h2::client::SendRequest<Bytes>,
    },
}

impl Body {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::Http1 { body, .. } => loop {
                match body.frame().await.transpose().map_err(io::Error::other)? {
                    None => return Ok(None),
                    Some(frame) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
            Self::Http2 { body, .. } => {
                let Some(data) = body.data().await else { return Ok(None) };
                let data = data.map_err(io::Error::other)?;
                // This fails only if the stream has ended, which the next call reports.
                let _ = body.flow_control().release_capacity(data.len());
                Ok(Some(data))
            }
        }
    }
}

/// Ends the task of a connection.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Measures phases one after the other.
struct Stopwatch<'a> {
    run: &'a mut Run,
    started: Time,
    phase: Time,
}

impl Stopwatch<'_> {
    /// Ends a phase, and returns its duration.
    fn lap(&mut self) -> Span {
        let now = self.run.now();
        let duration = now.since(self.phase);
        self.phase = now;
        duration
    }

    fn report(&mut self, report: &mut HttpReport) {
        report.phases.total = Some(self.phase.since(self.started));
        self.run.report(Measurement::Http(report.clone()));
    }
}

impl Probe for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn target(&self) -> String {
        format!(
            "{}://{}{}",
            self.location.origin().scheme(),
            self.location.origin().authority(),
            self.location.target()
        )
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        if self.timeout.is_zero() {
            return Err(InvalidParameter("the timeout is zero".to_owned()));
        }
        if self.version == HttpVersion::Http2 && self.max_body.as_bytes() > u64::MAX / 4 {
            return Err(InvalidParameter("the body is too large".to_owned()));
        }
        let body = Size::from_bytes(self.max_body.as_bytes().saturating_add(Self::RECEIVE_WINDOW));
        let transfer = Transfer {
            start: Span::ZERO,
            duration: self.timeout,
            up: Size::from_bytes(Self::OVERHEAD_UP + body.as_bytes() / 20),
            down: Size::from_bytes(Self::OVERHEAD_DOWN) + packets(body),
        };
        let host = &self.location.origin().host;
        Ok(Plan::new(vec![lookup(host)]).then(Span::ZERO, &Plan::new(vec![transfer])))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(async move { self.perform(run).await.1 })
    }
}

#[cfg(test)]
mod tests;
