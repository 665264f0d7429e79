//! The objects `_manyways`: everything of an archive that HAR lacks. [`super::SCHEMA`] is their
//! version. Times are whole nanoseconds.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use manyways_unit::{Span, Time};

use super::base64;
use crate::archive::{
    self, Abort, Arrival, Certificate, Digest, KeyKind, Protocol, TunnelReason, Tunnelled,
};

const PROTOCOLS: [(Protocol, &str); 4] = [
    (Protocol::Http10, "HTTP/1.0"),
    (Protocol::Http11, "HTTP/1.1"),
    (Protocol::Http2, "HTTP/2"),
    (Protocol::Http3, "HTTP/3"),
];
const ABORTS: [(Abort, &str); 3] =
    [(Abort::Client, "client"), (Abort::Server, "server"), (Abort::Recorder, "recorder")];
const REASONS: [(TunnelReason, &str); 7] = [
    (TunnelReason::NotHttp, "not-http"),
    (TunnelReason::Pinned, "pinned"),
    (TunnelReason::EncryptedHello, "encrypted-hello"),
    (TunnelReason::ClientCertificate, "client-certificate"),
    (TunnelReason::Upgraded, "upgraded"),
    (TunnelReason::Incompatible, "incompatible"),
    (TunnelReason::Bypassed, "bypassed"),
];

/// Of the log.
#[derive(Serialize, Deserialize)]
pub(super) struct Log {
    pub(super) schema: String,
    pub(super) creator: String,
    pub(super) connections: Vec<Connection>,
    pub(super) tunnelled: Vec<Tunnel>,
}

/// Of a page.
#[derive(Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) started: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_loaded: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loaded: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Connection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<SocketAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_port: Option<u16>,
    protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opened: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rtt: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Tls {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alpn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<Chain>,
}

#[derive(Serialize, Deserialize)]
struct Chain {
    names: Vec<String>,
    /// `rsa-2048` (bits of the modulus), `p-256`, `p-384` or `ed25519`.
    key: String,
    chain_length: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Tunnel {
    server: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
    opened: u64,
    reason: String,
    sent: u64,
    received: u64,
}

/// Of an entry.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connection: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<u64>,
    pub(super) started: u64,
    pub(super) timings: Timings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) think: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abort: Option<String>,
    pub(super) request: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<Response>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Timings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocked: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connect: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ssl: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    send: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receive: Option<u64>,
}

/// Common part of a request and a response.
#[derive(Serialize, Deserialize)]
pub(super) struct Message {
    protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Body>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) trailers: Vec<Field>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Response {
    #[serde(flatten)]
    pub(super) message: Message,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) interim: Vec<Interim>,
    /// Times after the first byte of the response, and bytes so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arrivals: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Interim {
    pub(super) status: u16,
    pub(super) fields: Vec<Field>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Body {
    length: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decoded_length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    announced: bool,
    /// The encoded bytes in base64, where the decoded ones are embedded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) encoded: Option<String>,
}

/// A field of a head, also in the lists of HAR.
#[derive(Serialize, Deserialize)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) value: String,
    /// The bytes of a value that is not UTF-8.
    #[serde(rename = "_base64", default, skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

/// Returns the name of a value.
fn name<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(known, _)| known == value).map_or("", |(_, name)| name)
}

/// # Errors
/// A sentence with the unknown name.
fn named<T: Copy>(table: &[(T, &str)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(_, known)| *known == name);
    let quoted = || manyways_unit::human::quoted(name);
    found.map(|(value, _)| *value).ok_or_else(|| format!("`{}` is unknown", quoted()))
}

/// Returns the name of a version, also for `httpVersion`.
pub(super) fn protocol_name(protocol: Protocol) -> &'static str {
    name(&PROTOCOLS, &protocol)
}

fn nanos(span: Option<Span>) -> Option<u64> {
    span.map(Span::as_nanos)
}

fn span(nanos: Option<u64>) -> Option<Span> {
    nanos.map(Span::from_nanos)
}

impl Log {
    pub(super) fn of(archive: &archive::Archive) -> Self {
        Self {
            schema: super::SCHEMA.to_owned(),
            creator: archive.creator.clone(),
            connections: archive.connections.iter().map(Connection::of).collect(),
            tunnelled: archive.tunnelled.iter().map(Tunnel::of).collect(),
        }
    }
}

impl Connection {
    fn of(connection: &archive::Connection) -> Self {
        Self {
            server: connection.server,
            client_port: connection.client_port,
            protocol: protocol_name(connection.protocol).to_owned(),
            tls: connection.tls.as_ref().map(|tls| Tls {
                server_name: tls.server_name.clone(),
                alpn: tls.alpn.clone(),
                certificate: tls.certificate.as_ref().map(|certificate| Chain {
                    names: certificate.names.clone(),
                    key: key_name(certificate.key),
                    chain_length: certificate.chain_length,
                }),
            }),
            opened: connection.opened.map(Time::as_nanos),
            closed: connection.closed.map(Time::as_nanos),
            rtt: nanos(connection.rtt),
        }
    }

    pub(super) fn read(self) -> Result<archive::Connection, String> {
        let tls = self.tls.map(|tls| {
            let certificate = tls.certificate.map(|chain| {
                let Chain { names, key, chain_length } = chain;
                let key = key_named(&key).ok_or_else(|| {
                    format!("the key `{}` is unknown", manyways_unit::human::quoted(&key))
                })?;
                Ok::<_, String>(Certificate { names, key, chain_length })
            });
            let certificate = certificate.transpose()?;
            let Tls { server_name, alpn, .. } = tls;
            Ok::<_, String>(archive::Tls { server_name, alpn, certificate })
        });
        Ok(archive::Connection {
            server: self.server,
            client_port: self.client_port,
            protocol: named(&PROTOCOLS, &self.protocol)?,
            tls: tls.transpose()?,
            opened: self.opened.map(Time::from_nanos),
            closed: self.closed.map(Time::from_nanos),
            rtt: span(self.rtt),
        })
    }
}

fn key_name(key: KeyKind) -> String {
    match key {
        KeyKind::Rsa(bits) => format!("rsa-{bits}"),
        KeyKind::P256 => "p-256".to_owned(),
        KeyKind::P384 => "p-384".to_owned(),
        KeyKind::Ed25519 => "ed25519".to_owned(),
    }
}

fn key_named(name: &str) -> Option<KeyKind> {
    match name {
        "p-256" => Some(KeyKind::P256),
        "p-384" => Some(KeyKind::P384),
        "ed25519" => Some(KeyKind::Ed25519),
        _ => Some(KeyKind::Rsa(name.strip_prefix("rsa-")?.parse().ok()?)),
    }
}

impl Tunnel {
    fn of(tunnel: &Tunnelled) -> Self {
        Self {
            server: tunnel.server,
            server_name: tunnel.server_name.clone(),
            opened: tunnel.opened.as_nanos(),
            reason: name(&REASONS, &tunnel.reason).to_owned(),
            sent: tunnel.sent,
            received: tunnel.received,
        }
    }

    pub(super) fn read(self) -> Result<Tunnelled, String> {
        Ok(Tunnelled {
            server: self.server,
            server_name: self.server_name,
            opened: Time::from_nanos(self.opened),
            reason: named(&REASONS, &self.reason)?,
            sent: self.sent,
            received: self.received,
        })
    }
}

impl Page {
    pub(super) fn of(page: &archive::Page) -> Self {
        Self {
            started: page.started.as_nanos(),
            content_loaded: nanos(page.content_loaded),
            loaded: nanos(page.loaded),
        }
    }
}

impl Entry {
    /// `encoded`: the bytes in base64 of the bodies of request and response.
    pub(super) fn of(exchange: &archive::Exchange, encoded: [Option<String>; 2]) -> Self {
        let [of_request, of_response] = encoded;
        let archive::Request { protocol, body, trailers, .. } = &exchange.request;
        let request = Message::of(*protocol, *body, trailers, of_request);
        let response = exchange.response.as_ref().map(|response| Response {
            message: Message::of(response.protocol, response.body, &response.trailers, of_response),
            interim: response.interim.iter().map(Interim::of).collect(),
            arrivals: response
                .arrivals
                .iter()
                .map(|arrival| (arrival.after.as_nanos(), arrival.bytes))
                .collect(),
        });
        Self {
            connection: exchange.connection,
            stream: exchange.stream,
            started: exchange.started.as_nanos(),
            timings: Timings::of(&exchange.timings),
            think: nanos(exchange.think),
            abort: exchange.abort.map(|abort| name(&ABORTS, &abort).to_owned()),
            request,
            response,
        }
    }

    pub(super) fn abort(&self) -> Result<Option<Abort>, String> {
        self.abort.as_deref().map(|name| named(&ABORTS, name)).transpose()
    }
}

impl Timings {
    fn of(timings: &archive::Timings) -> Self {
        Self {
            blocked: nanos(timings.blocked),
            dns: nanos(timings.dns),
            connect: nanos(timings.connect),
            ssl: nanos(timings.tls),
            send: nanos(timings.send),
            wait: nanos(timings.wait),
            receive: nanos(timings.receive),
        }
    }

    pub(super) fn read(&self) -> archive::Timings {
        archive::Timings {
            blocked: span(self.blocked),
            dns: span(self.dns),
            connect: span(self.connect),
            tls: span(self.ssl),
            send: span(self.send),
            wait: span(self.wait),
            receive: span(self.receive),
        }
    }
}

impl Message {
    fn of(
        protocol: Protocol,
        body: Option<archive::Body>,
        trailers: &[archive::Field],
        encoded: Option<String>,
    ) -> Self {
        Self {
            protocol: protocol_name(protocol).to_owned(),
            body: body.map(|body| Body {
                length: body.length,
                decoded_length: body.decoded_length,
                digest: body.digest.map(|digest| digest.to_string()),
                announced: body.is_length_announced,
                encoded,
            }),
            trailers: trailers.iter().map(Field::of).collect(),
        }
    }

    pub(super) fn protocol(&self) -> Result<Protocol, String> {
        named(&PROTOCOLS, &self.protocol)
    }
}

impl Response {
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        let arrival =
            |&(after, bytes): &(u64, u64)| Arrival { after: Span::from_nanos(after), bytes };
        self.arrivals.iter().map(arrival).collect()
    }
}

impl Interim {
    fn of(interim: &archive::Interim) -> Self {
        Self {
            status: interim.status,
            fields: interim.fields.iter().map(Field::of).collect(),
            after: nanos(interim.after),
        }
    }
}

impl Body {
    pub(super) fn read(&self) -> Result<archive::Body, String> {
        let digest = match &self.digest {
            Some(text) => Some(Digest::parse(text).ok_or("the digest of its body is damaged")?),
            None => None,
        };
        Ok(archive::Body {
            length: self.length,
            decoded_length: self.decoded_length,
            digest,
            is_length_announced: self.announced,
        })
    }
}

impl Field {
    pub(super) fn of(field: &archive::Field) -> Self {
        let value = String::from_utf8_lossy(&field.value);
        let bytes =
            std::str::from_utf8(&field.value).is_err().then(|| base64::encode(&field.value));
        Self { name: field.name.clone(), value: value.into_owned(), bytes }
    }

    /// # Errors
    /// A sentence: a name or a value that a head cannot contain.
    pub(super) fn read(self) -> Result<archive::Field, String> {
        let value = match &self.bytes {
            Some(text) => base64::decode(text).ok_or("the value of a field is not base64")?,
            None => self.value.into_bytes(),
        };
        if !super::head::is_token(&self.name)
            || value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))
        {
            let name = manyways_unit::human::quoted(&self.name);
            return Err(format!("the field `{name}` has an invalid name or value"));
        }
        Ok(archive::Field { name: self.name, value })
    }
}
