//! A recording of HTTP traffic: connections and the exchanges on them, with all that a server needs
//! to answer the same requests again.
//!
//! The values are those of the wire: fields of a head in their order and case, bodies in their
//! content coding. What a source does not tell is `None`, not zero; HAR files of browsers lack
//! connections, times of arrival and often bodies.

pub mod container;

use std::fmt;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};
use sha2::{Digest as _, Sha256};

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// Program that recorded the traffic, with its version.
    pub creator: String,
    pub pages: Vec<Page>,
    pub connections: Vec<Connection>,
    /// In the order of their requests.
    pub exchanges: Vec<Exchange>,
    /// Connections whose content was not recorded.
    pub tunnelled: Vec<Tunnelled>,
}

/// A page of a browser, to which exchanges belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub id: String,
    pub title: String,
    pub started: Time,
    /// Time from the start to the event `DOMContentLoaded`.
    pub content_loaded: Option<Span>,
    /// Time from the start to the event `load`.
    pub loaded: Option<Span>,
}

/// A connection to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Address of the server. The port is that of the URL if the source has only the address.
    pub server: Option<SocketAddr>,
    /// Port of the client, which distinguishes connections to one server.
    pub client_port: Option<u16>,
    pub protocol: Protocol,
    /// `None` without TLS.
    pub tls: Option<Tls>,
    pub opened: Option<Time>,
    pub closed: Option<Time>,
    /// Minimum round-trip time to the server.
    pub rtt: Option<Span>,
}

/// Version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Http10,
    Http11,
    Http2,
    Http3,
}

/// Values of a TLS handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Server name in the ClientHello. `None` if it had none.
    pub server_name: Option<String>,
    /// Application protocol that the server chose.
    pub alpn: Option<String>,
    /// Certificate of the server; `None` if the source does not have it.
    pub certificate: Option<Certificate>,
}

/// Properties of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Names and addresses for which it is valid (subjectAltName), such as `*.example.org`.
    pub names: Vec<String>,
    pub key: KeyKind,
    /// Length of all certificates of the chain, in bytes.
    pub chain_length: u32,
}

/// Kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA, with the length of its modulus in bits.
    Rsa(u16),
    /// ECDSA on the curve P-256.
    P256,
    /// ECDSA on the curve P-384.
    P384,
    Ed25519,
}

/// A request and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Index in [`Archive::connections`]. `None` if the source does not tell.
    pub connection: Option<usize>,
    /// Number of the stream of HTTP/2 or HTTP/3.
    pub stream: Option<u64>,
    /// [`Page::id`] of its page.
    pub page: Option<String>,
    /// First byte of the request, or, in archives of browsers, when the page asked for it.
    pub started: Time,
    pub timings: Timings,
    pub request: Request,
    /// `None` if no response came.
    pub response: Option<Response>,
    /// From the last byte of the request to the first byte of the response at the server: the time
    /// at the capture point without the minimum round-trip time.
    pub think: Option<Span>,
    /// The side that ended the exchange before the response was complete.
    pub abort: Option<Abort>,
}

/// Phases of an exchange, as HAR defines them. `None`: did not happen, or is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Waiting for a connection.
    pub blocked: Option<Span>,
    pub dns: Option<Span>,
    /// Connecting, with the TLS handshake.
    pub connect: Option<Span>,
    /// The TLS handshake, a part of `connect`.
    pub tls: Option<Span>,
    pub send: Option<Span>,
    pub wait: Option<Span>,
    pub receive: Option<Span>,
}

/// A field of a head or of trailers, with the name as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Usually text, but not always UTF-8.
    pub value: Vec<u8>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Absolute URL without fragment.
    pub url: String,
    pub protocol: Protocol,
    /// Without the pseudo fields of HTTP/2.
    pub fields: Vec<Field>,
    /// `None` if the request has no body, not even an empty one.
    pub body: Option<Body>,
    pub trailers: Vec<Field>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 200 to 599.
    pub status: u16,
    /// Reason phrase of HTTP/1; empty in HTTP/2.
    pub reason: String,
    pub protocol: Protocol,
    pub fields: Vec<Field>,
    /// Interim responses before it (1xx), in their order.
    pub interim: Vec<Interim>,
    /// Empty bodies are `None`, too.
    pub body: Option<Body>,
    pub trailers: Vec<Field>,
    /// When parts of the body arrived.
    pub arrivals: Vec<Arrival>,
}

/// An interim response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interim {
    /// 100 to 199.
    pub status: u16,
    pub fields: Vec<Field>,
    /// Time from the last byte of the request.
    pub after: Option<Span>,
}

/// A body in its content coding, or only its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Encoded bytes, without the framing of the transfer. If the exchange was aborted, those that
    /// arrived.
    pub length: u64,
    /// Length after the content coding is removed. `None` if it is unknown.
    pub decoded_length: Option<u64>,
    /// SHA-256 of the encoded bytes, by which the archive stores them. `None` if it has only the
    /// length: the body is hollow.
    pub digest: Option<Digest>,
    /// Whether the sender announced the length (`Content-Length`).
    pub is_length_announced: bool,
}

/// A part of a body had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time from the first byte of the response.
    pub after: Span,
    /// Bytes of the body so far.
    pub bytes: u64,
}

/// The end of an exchange that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The client closed the connection or reset the stream.
    Client,
    /// The server did.
    Server,
    /// The recording ended.
    Recorder,
}

/// A connection that was passed on without being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnelled {
    pub server: SocketAddr,
    pub server_name: Option<String>,
    pub opened: Time,
    pub reason: TunnelReason,
    /// Bytes from the client.
    pub sent: u64,
    /// Bytes from the server.
    pub received: u64,
}

/// Why a connection was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelReason {
    /// Its first bytes are neither TLS nor HTTP.
    NotHttp,
    /// The client accepts only a certificate of its own choice.
    Pinned,
    /// The client's ClientHello is encrypted (ECH).
    EncryptedHello,
    /// The server asks for a certificate of the client.
    ClientCertificate,
    /// The client left HTTP by `Upgrade` or `CONNECT`, for example to WebSocket.
    Upgraded,
    /// The server and the recorder have no version of TLS or no cipher suite in common.
    Incompatible,
    /// The user asked for it.
    Bypassed,
}

/// SHA-256 of a body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of the encoded bytes of a body.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .chars()
            .map(|digit| digit.to_digit(16).map(|value| value as u8))
            .collect::<Option<_>>()?;
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Fields that contain credentials, or with which a server demands or confirms them (RFC 6265,
/// RFC 9110, 11, RFC 7615), in lower case. `WWW-Authenticate` stays: without it a response 401 has
/// no meaning, and it contains nothing of the user.
const CREDENTIALS: [&str; 9] = [
    "authentication-info",
    "authorization",
    "cookie",
    "cookie2",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
    "set-cookie2",
];

/// Removes the fields with credentials from all heads and trailers, and returns their number. URLs
/// and bodies can contain credentials too; they stay.
pub fn without_credentials(archive: &mut Archive) -> usize {
    let mut removed = 0;
    for exchange in &mut archive.exchanges {
        let request = &mut exchange.request;
        let mut lists = vec![&mut request.fields, &mut request.trailers];
        if let Some(response) = &mut exchange.response {
            lists.extend([&mut response.fields, &mut response.trailers]);
            lists.extend(response.interim.iter_mut().map(|interim| &mut interim.fields));
        }
        for fields in lists {
            let before = fields.len();
            fields.retain(|field| {
                !CREDENTIALS.iter().any(|name| field.name.eq_ignore_ascii_case(name))
            });
            removed += before - fields.len();
        }
    }
    removed
}

impl Archive {
    /// Returns the connection of an exchange; `None` if the source does not tell.
    pub fn connection_of(&self, exchange: &Exchange) -> Option<&Connection> {
        self.connections.get(exchange.connection?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Field {
        Field { name: name.to_owned(), value: b"secret".to_vec() }
    }

    #[test]
    fn credentials_are_removed_from_heads_and_trailers() {
        let protocol = Protocol::Http11;
        let request = Request {
            method: "GET".to_owned(),
            url: "https://a.example/".to_owned(),
            protocol,
            fields: ["Cookie", "Host", "authorization", "COOKIE", "Proxy-Authorization"]
                .map(field)
                .into(),
            body: None,
            trailers: vec![field("cookie")],
        };
        let interim =
            Interim { status: 103, fields: ["Link", "Set-Cookie"].map(field).into(), after: None };
        let response = Response {
            status: 401,
            reason: String::new(),
            protocol,
            fields: ["Proxy-Authenticate", "set-cookie", "WWW-Authenticate"].map(field).into(),
            interim: vec![interim],
            body: None,
            trailers: ["Authentication-Info", "Digest"].map(field).into(),
            arrivals: Vec::new(),
        };
        let exchange = Exchange {
            connection: None,
            stream: None,
            page: None,
            started: Time::ZERO,
            timings: Timings::default(),
            request,
            response: Some(response),
            think: None,
            abort: None,
        };
        let mut archive = Archive { exchanges: vec![exchange], ..Archive::default() };
        assert_eq!(without_credentials(&mut archive), 9);
        let Exchange { request, response, .. } = archive.exchanges.remove(0);
        let response = response.unwrap();
        assert_eq!((request.fields, request.trailers), (vec![field("Host")], vec![]));
        assert_eq!(response.fields, [field("WWW-Authenticate")]);
        assert_eq!(response.interim[0].fields, [field("Link")]);
        assert_eq!(response.trailers, [field("Digest")]);
    }

    #[test]
    fn a_digest_is_64_digits() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest = Digest::parse(text).unwrap();
        assert_eq!((digest.to_string(), digest.0[0]), (text.into(), 0xe3));
        assert_eq!(Digest::of(b""), digest);
        assert_eq!(Digest::parse(&text.to_uppercase()), Some(digest));
        for wrong in ["", "e3", &text[1..], &text.replace('e', "g"), &format!("{text}00")] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
