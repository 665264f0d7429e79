//! The recording as the plan and the requests need it.

use std::net::SocketAddr;

use bytes::Bytes;
use manyways_model::drive::{
    Completion, Connection as RecordedConnection, Exchange as RecordedExchange, Plan, Protocol,
    Recording,
};
use manyways_unit::{Size, Span, Time};
use manyways_wire::archive::{self, Abort, Archive, Connection, Exchange, Field};

use super::super::Layout;
use super::super::layout::authority;
use super::{Target, TlsTarget, is_http2};

/// A request to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) method: String,
    /// Absolute.
    pub(super) url: String,
    /// As recorded, without those that frame the message.
    pub(super) fields: Vec<Field>,
    /// `None` without one.
    pub(super) body: Option<Upload>,
    /// Whether it is an unconditional GET, which the server answered with the whole object.
    pub(super) is_whole_object: bool,
}

/// Bytes of a body that are sent at a time.
const PIECE: usize = 16 << 10;
/// Bytes in the place of those that were not recorded.
const FILLER: Bytes = Bytes::from_static(&[b'0'; PIECE]);

/// The body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Upload {
    /// As much of it as requests are compared by; empty if it was not recorded.
    pub(super) beginning: Bytes,
    pub(super) length: u64,
}

impl Upload {
    /// The recorded bytes, and others in the place of the rest.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Bytes> + use<> {
        let length = |left: u64| usize::try_from(left).unwrap_or(usize::MAX);
        let mut beginning = self.beginning.slice(..self.beginning.len().min(length(self.length)));
        let mut left = self.length;
        std::iter::from_fn(move || {
            let piece = match beginning.is_empty() {
                false => beginning.split_to(beginning.len().min(PIECE)),
                true => FILLER.slice(..FILLER.len().min(length(left))),
            };
            left -= piece.len() as u64;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// Fields of a connection and of framing, which the client sets itself.
const FRAMING: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Returns the plan of a recording, and the requests of its exchanges.
pub(super) fn read(archive: &Archive, bodies: &[Bytes]) -> (Plan, Vec<Message>) {
    let issued = issued(archive);
    let message = |(number, exchange)| message(exchange, bodies.get(number).cloned());
    (with(archive, Plan::new), issued.map(message).collect())
}

/// The exchanges that came over the network. In a HAR file of a browser, those from its cache have no
/// connection.
fn issued(archive: &Archive) -> impl Iterator<Item = (usize, &Exchange)> {
    let has_connections = archive.exchanges.iter().any(|exchange| exchange.connection.is_some());
    let exchanges = archive.exchanges.iter().enumerate();
    exchanges.filter(move |(_, exchange)| exchange.connection.is_some() || !has_connections)
}

/// Calls a function with the recorded traffic.
pub(super) fn with<T>(archive: &Archive, work: impl FnOnce(&Recording<'_>) -> T) -> T {
    let mut connections: Vec<RecordedConnection> =
        archive.connections.iter().map(connection).collect();
    for (_, exchange) in issued(archive) {
        let known = exchange.connection.and_then(|index| connections.get_mut(index));
        let (Some(known), Some(connect)) = (known, exchange.timings.connect) else { continue };
        // The first exchange of a connection has its handshakes.
        if known.ready.is_none() {
            known.ready = Some(match known.opened {
                Some(opened) => opened + connect,
                None => sent(exchange),
            });
        }
    }
    let exchanges: Vec<RecordedExchange<'_>> =
        issued(archive).map(|(_, exchange)| recorded(exchange)).collect();
    work(&Recording { connections: &connections, exchanges: &exchanges })
}

fn connection(one: &Connection) -> RecordedConnection {
    RecordedConnection {
        protocol: protocol(one.protocol),
        opened: one.opened,
        ready: None,
        closed: one.closed,
    }
}

fn protocol(one: archive::Protocol) -> Protocol {
    match one {
        archive::Protocol::Http10 | archive::Protocol::Http11 => Protocol::Http1,
        archive::Protocol::Http2 | archive::Protocol::Http3 => Protocol::Http2,
    }
}

/// When the first byte of the request was sent.
fn sent(exchange: &Exchange) -> Time {
    let timings = &exchange.timings;
    // Browsers count from when the page asked for it, the recorder from the first byte.
    match timings.blocked {
        Some(blocked) => {
            let rest = [timings.dns, timings.connect].into_iter().flatten();
            rest.fold(exchange.started + blocked, |time, span| time + span)
        }
        None => exchange.started,
    }
}

fn recorded(exchange: &Exchange) -> RecordedExchange<'_> {
    let timings = &exchange.timings;
    let sent = sent(exchange);
    let parts = [timings.send, timings.wait, timings.receive];
    let lasted = parts.into_iter().flatten().fold(Span::ZERO, |sum, span| sum + span);
    let downloaded = exchange.response.as_ref().and_then(|response| response.body);
    RecordedExchange {
        connection: exchange.connection,
        origin: origin(&exchange.request.url),
        protocol: protocol(exchange.request.protocol),
        // Numbers of connections in HAR files of browsers are not reliable: they can show pipelining
        // where there was none.
        started: if timings.blocked.is_some() { sent } else { exchange.started },
        sent: timings.blocked.is_none().then_some(sent),
        ended: (parts != [None; 3]).then_some(sent + lasted),
        uploaded: Size::from_bytes(exchange.request.body.map_or(0, |body| body.length)),
        downloaded: Size::from_bytes(downloaded.map_or(0, |body| body.length)),
        completion: match exchange.abort {
            Some(Abort::Client) => Completion::AbortedByClient,
            Some(Abort::Recorder) => Completion::Unfinished,
            Some(Abort::Server) => Completion::AbortedByServer,
            None if exchange.response.is_none() => Completion::AbortedByServer,
            None => Completion::Complete,
        },
    }
}

/// Scheme and authority of a URL.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// `beginning` is that of its body.
fn message(exchange: &Exchange, beginning: Option<Bytes>) -> Message {
    let is_framing = |field: &Field| {
        FRAMING.iter().any(|name| field.name.eq_ignore_ascii_case(name))
            // Pseudo fields in HAR files of browsers.
            || field.name.starts_with(':')
    };
    let request = &exchange.request;
    let is_conditional = |field: &Field| {
        let start = field.name.get(..3).unwrap_or_default();
        field.name.eq_ignore_ascii_case("range") || start.eq_ignore_ascii_case("if-")
    };
    Message {
        is_whole_object: request.method == "GET"
            && request.body.is_none()
            && exchange.response.as_ref().is_some_and(|response| response.status == 200)
            && exchange.abort != Some(Abort::Server)
            && !request.fields.iter().any(is_conditional),
        method: request.method.clone(),
        url: request.url.clone(),
        fields: request.fields.iter().filter(|field| !is_framing(field)).cloned().collect(),
        body: request
            .body
            .map(|body| Upload { beginning: beginning.unwrap_or_default(), length: body.length }),
    }
}

/// Returns the server of a connection, from the recorded connection or its first request.
pub(super) fn target(
    connection: Option<&Connection>,
    first: Option<&Message>,
    protocol: Protocol,
    layout: &Layout,
) -> Target {
    let url = first.map(|first| first.url.as_str()).unwrap_or_default();
    let (host, port) = authority(url).unwrap_or_default();
    let name = connection.and_then(|one| one.tls.as_ref()?.server_name.clone());
    let server = connection.and_then(|one| one.server);
    let address = server
        .and_then(|server| layout.address_of(server.ip()))
        .or_else(|| layout.address_named(name.as_deref().unwrap_or(&host)))
        .unwrap_or_else(|| std::net::Ipv4Addr::UNSPECIFIED.into());
    let port = server.map_or(port, |server| server.port());
    let is_secure = match connection {
        Some(connection) if first.is_none() => connection.tls.is_some(),
        _ => url.starts_with("https:"),
    };
    let tls =
        is_secure.then(|| TlsTarget { name: name.unwrap_or(host), is_http2: is_http2(protocol) });
    Target { address: SocketAddr::new(address, port), tls }
}

#[cfg(test)]
mod tests {
    use manyways_wire::archive::{Request, Timings, Tls};

    use super::*;

    fn exchange(connection: Option<usize>, timings: Timings) -> Exchange {
        Exchange {
            connection,
            stream: None,
            page: None,
            started: Time::from_millis(1_000),
            timings,
            request: Request {
                method: "GET".to_owned(),
                url: "https://a.example:444/x?y".to_owned(),
                protocol: archive::Protocol::Http2,
                fields: ["Host", "X-A", "content-length", ":path"].map(field).into(),
                body: None,
                trailers: Vec::new(),
            },
            response: None,
            think: None,
            abort: None,
        }
    }

    fn field(name: &str) -> Field {
        Field { name: name.to_owned(), value: b"v".to_vec() }
    }

    fn timings(blocked: Option<u64>) -> Timings {
        let span = |millis| Some(Span::from_millis(millis));
        Timings {
            blocked: blocked.map(Span::from_millis),
            connect: span(40),
            send: span(1),
            wait: span(20),
            receive: span(3),
            ..Timings::default()
        }
    }

    fn connection(opened: Option<u64>) -> Connection {
        Connection {
            server: "192.0.2.1:444".parse().ok(),
            client_port: None,
            protocol: archive::Protocol::Http2,
            tls: Some(Tls { server_name: Some("b.example".to_owned()), ..Tls::default() }),
            opened: opened.map(Time::from_millis),
            closed: None,
            rtt: None,
        }
    }

    #[test]
    fn recorders_and_browsers_count_from_different_times() {
        let archive = |connection, exchange| Archive {
            connections: vec![connection],
            exchanges: vec![exchange],
            ..Archive::default()
        };
        let own = archive(connection(Some(950)), exchange(Some(0), timings(None)));
        with(&own, |recording| {
            let one = recording.exchanges[0];
            assert_eq!((one.started, one.sent), (Time::from_millis(1_000), one.sent));
            assert_eq!(one.sent, Some(Time::from_millis(1_000)));
            assert_eq!(one.ended, Some(Time::from_millis(1_024)));
            assert_eq!(one.origin, "https://a.example:444");
            assert_eq!(one.completion, Completion::AbortedByServer);
            assert_eq!(recording.connections[0].ready, Some(Time::from_millis(990)));
        });
        let browsers = archive(connection(None), exchange(Some(0), timings(Some(5))));
        with(&browsers, |recording| {
            let one = recording.exchanges[0];
            assert_eq!((one.started, one.sent), (Time::from_millis(1_045), None));
            assert_eq!(one.ended, Some(Time::from_millis(1_069)));
            assert_eq!(recording.connections[0].ready, Some(Time::from_millis(1_045)));
        });
    }

    #[test]
    fn exchanges_of_a_cache_are_not_issued() {
        let none = || exchange(None, timings(Some(0)));
        let some = exchange(Some(0), timings(Some(0)));
        let archive = |exchanges| Archive {
            connections: vec![connection(None)],
            exchanges,
            ..Archive::default()
        };
        let count = |archive: &Archive| {
            let (plan, messages) = read(archive, &[]);
            assert_eq!(plan.exchanges().len(), messages.len());
            messages.len()
        };
        assert_eq!(count(&archive(vec![none(), some, none()])), 1);
        // A source without any connection.
        assert_eq!(count(&archive(vec![none(), none()])), 2);
    }

    #[test]
    fn a_request_has_its_own_fields_and_the_server_of_its_connection() {
        let request = message(&exchange(None, Timings::default()), None);
        assert_eq!((request.fields, request.body), (vec![field("X-A")], None));
        let archive = Archive {
            connections: vec![connection(None)],
            exchanges: vec![exchange(Some(0), Timings::default())],
            ..Archive::default()
        };
        let layout = Layout::new(&archive, false, |_| false);
        let first = message(&archive.exchanges[0], None);
        let found = target(archive.connections.first(), Some(&first), Protocol::Http2, &layout);
        assert_eq!(found.address, "198.18.128.1:444".parse().unwrap());
        let tls = TlsTarget { name: "b.example".to_owned(), is_http2: true };
        assert_eq!(found.tls, Some(tls));
        // Without a recorded connection, by the name of the URL.
        let found = target(None, Some(&first), Protocol::Http1, &layout);
        let tls = TlsTarget { name: "a.example".to_owned(), is_http2: false };
        assert_eq!((found.address.port(), found.tls), (444, Some(tls)));
    }

    #[test]
    fn an_upload_has_its_recorded_beginning_and_its_length() {
        let send = |beginning: &'static [u8], length| {
            let upload = Upload { beginning: Bytes::from_static(beginning), length };
            let pieces: Vec<Bytes> = upload.pieces().collect();
            assert!(pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
            pieces.concat()
        };
        assert_eq!(send(b"a=1", 3), b"a=1");
        assert_eq!(send(b"a=1", 5), b"a=100");
        assert_eq!(send(b"a=1", 2), b"a=");
        assert_eq!(send(b"", 0), b"");
        assert_eq!(send(b"", PIECE as u64 + 1), vec![b'0'; PIECE + 1]);
        let long: &[u8] = &[b'x'; 2 * PIECE + 1];
        assert_eq!(send(long, long.len() as u64), long);
    }
}
