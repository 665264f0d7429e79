//! Entries of other programs as exchanges.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::body::{self, Bodies};
use super::head::{self, Head};
use super::read::Files;
use super::sizes::Sizes;
use super::url::Url;
use super::{MAX_HOLLOW_LENGTH, date, raw};
use crate::archive::{Arrival, Body, Exchange, Protocol, Request, Response, Timings};

/// An exchange without its connection, and what the entry states about that.
pub(super) struct Draft {
    pub(super) exchange: Exchange,
    pub(super) url: Url,
    /// Identifier of the connection, different for each kind of source.
    pub(super) identifier: Option<String>,
    /// Whether the file states bytes that came over the network.
    pub(super) is_transferred: bool,
    pub(super) server: Option<IpAddr>,
    pub(super) client_port: Option<u16>,
    pub(super) alpn: Option<String>,
    /// A measured round-trip time.
    pub(super) rtt: Option<Span>,
}

/// State of a conversion besides its exchange.
pub(super) struct Context<'a> {
    pub(super) bodies: &'a mut Bodies,
    pub(super) files: &'a mut Files<'a>,
    /// Sentences about the entry.
    pub(super) warnings: Vec<String>,
    /// Start of the entry before.
    pub(super) before: Time,
    /// Bodies that lost their content coding.
    pub(super) without_coding: usize,
}

/// # Errors
/// The reason why the entry is left out.
pub(super) fn read(entry: &raw::Entry, context: &mut Context) -> Result<Draft, String> {
    let request: raw::Request = raw::object(entry.request);
    let response: raw::Response = raw::object(entry.response);
    let url = raw::text(request.url).ok_or("it has no URL")?;
    let url = Url::parse(&url)?;
    let status = raw::number(response.status).unwrap_or(0.0) as i64;
    if status == 101 {
        return Err("its connection left HTTP (status 101)".to_owned());
    }
    let request_head = head::read(request.headers)?;
    let response_head = head::read(response.headers)?;
    let invalid = request_head.invalid + response_head.invalid;
    if invalid > 0 {
        let fields = manyways_unit::human::count_with_noun(invalid, "field");
        context.warnings.push(format!("{fields} with an invalid name left out"));
    }
    let protocols = protocols(entry, &request, &response, &request_head);
    let timings = timings(entry);
    let method = method(entry, &request, &request_head, context)?;
    let is_transferred = [response.body_size, response.transfer_size]
        .into_iter()
        .any(|size| raw::count(size).is_some_and(|size| size > 0));
    let response = match u16::try_from(status) {
        Ok(status @ 200..=599) => {
            Some(answer(entry, &response, response_head, status, protocols.1, &method, context))
        }
        _ => None,
    };
    let exchange = Exchange {
        connection: None,
        stream: raw::count(entry.stream).filter(|stream| *stream > 0),
        page: raw::text(entry.page),
        started: started(entry, context),
        timings,
        request: Request {
            body: request_body(&request, &request_head, context),
            method,
            url: url.text.clone(),
            protocol: protocols.0,
            fields: request_head.fields,
            trailers: Vec::new(),
        },
        response,
        think: None,
        abort: None,
    };
    let port = |raw| raw::count(raw).and_then(|port| u16::try_from(port).ok());
    Ok(Draft {
        identifier: identifier(entry, &url),
        is_transferred,
        server: address(entry),
        client_port: port(entry.client_port).filter(|port| *port > 0),
        alpn: raw::text(entry.alpn).filter(|alpn| !alpn.is_empty()),
        rtt: rtt(entry, &timings),
        url,
        exchange,
    })
}

fn started(entry: &raw::Entry, context: &mut Context) -> Time {
    let started = raw::text(entry.started).and_then(|text| date::parse(&text));
    started.unwrap_or_else(|| {
        context.warnings.push("it has no valid start; that of the entry before is used".to_owned());
        context.before
    })
}

pub(super) fn timings(entry: &raw::Entry) -> Timings {
    let timings: raw::Timings = raw::object(entry.timings);
    Timings {
        blocked: raw::millis(timings.blocked),
        dns: raw::millis(timings.dns),
        connect: raw::millis(timings.connect),
        tls: raw::millis(timings.tls),
        send: raw::millis(timings.send),
        wait: raw::millis(timings.wait),
        receive: raw::millis(timings.receive),
    }
}

/// A measured value, or the handshake of TCP, which takes one round-trip time.
fn rtt(entry: &raw::Entry, timings: &Timings) -> Option<Span> {
    let handshake = || Some(timings.connect?.saturating_sub(timings.tls.unwrap_or_default()));
    let measured = raw::millis(entry.server_rtt).filter(|rtt| !rtt.is_zero());
    measured.or_else(handshake).filter(|rtt| !rtt.is_zero())
}

fn identifier(entry: &raw::Entry, url: &Url) -> Option<String> {
    let of = |raw| raw::text(raw).filter(|text| !matches!(text.trim(), "" | "0" | "-1"));
    if let Some(socket) = of(entry.socket) {
        // Each run of WebPagetest, which is a page, counts its sockets from the beginning.
        return Some(format!("socket {socket} {}", raw::text(entry.page).unwrap_or_default()));
    }
    let connection = of(entry.connection)?;
    // HAR permits the port of the server here, which Firefox writes.
    (connection != url.port.to_string()).then(|| format!("connection {connection}"))
}

fn address(entry: &raw::Entry) -> Option<IpAddr> {
    let parse = |raw| raw::text(raw)?.trim().trim_matches(['[', ']']).parse().ok();
    parse(entry.wpt_address).or_else(|| parse(entry.server))
}

/// The versions of request and response. They differ only within HTTP/1.
fn protocols(
    entry: &raw::Entry,
    request: &raw::Request,
    response: &raw::Response,
    head: &Head,
) -> (Protocol, Protocol) {
    let parse = |raw| raw::text(raw).and_then(|text| protocol(&text));
    let [own, asked, answered] = [entry.protocol, request.version, response.version].map(parse);
    let has_stream = raw::count(entry.stream).is_some_and(|stream| stream > 0);
    let chosen = own.or(answered).or(asked).unwrap_or({
        if head.has_pseudo_fields || has_stream { Protocol::Http2 } else { Protocol::Http11 }
    });
    let is_first = |protocol: &Protocol| *protocol <= Protocol::Http11;
    if !is_first(&chosen) {
        return (chosen, chosen);
    }
    let of = |version: Option<Protocol>| version.filter(is_first).unwrap_or(chosen);
    (of(asked), of(answered))
}

/// Reads a version as browsers write it: `HTTP/1.1`, `h2`, `HTTP/2.0`, `spdy/3`, `h3-29`, `1.1`.
fn protocol(text: &str) -> Option<Protocol> {
    let text = text.trim().to_ascii_lowercase();
    if text.starts_with("spdy") {
        return Some(Protocol::Http2);
    }
    if text.contains("quic") {
        return Some(Protocol::Http3);
    }
    let version = text.strip_prefix("http/").or(text.strip_prefix('h')).unwrap_or(&text);
    match version.split('-').next()? {
        "1.0" => Some(Protocol::Http10),
        "1.1" => Some(Protocol::Http11),
        "2" | "2.0" | "2c" => Some(Protocol::Http2),
        "3" | "3.0" => Some(Protocol::Http3),
        _ => None,
    }
}

fn method(
    entry: &raw::Entry,
    request: &raw::Request,
    head: &Head,
    context: &mut Context,
) -> Result<String, String> {
    let method = raw::text(request.method)
        .or_else(|| raw::text(entry.method))
        .or_else(|| head.method.clone())
        .filter(|method| !method.is_empty());
    if let Some(method) = method {
        let is_method = head::is_token(&method) && method.len() <= 64;
        return if is_method { Ok(method) } else { Err("its method is invalid".to_owned()) };
    }
    let has = |name| head::value(&head.fields, name).is_some();
    let method = if has("access-control-request-method") {
        "OPTIONS"
    } else if has("content-length") || has("content-type") {
        "POST"
    } else {
        "GET"
    };
    context.warnings.push(format!("it has no method; {method} is assumed"));
    Ok(method.to_owned())
}

fn request_body(request: &raw::Request, head: &Head, context: &mut Context) -> Option<Body> {
    let body: raw::Body = raw::object(request.body);
    let encoding = body.encoding.or(body.own_encoding);
    let bytes = inline(body.text, encoding, body.file, context);
    let is_form = head::value(&head.fields, "content-type")
        .map_or_else(|| raw::text(body.mime_type), |kind| Some(kind.to_owned()))
        .is_some_and(|kind| kind.trim().starts_with("application/x-www-form-urlencoded"));
    let bytes = bytes.or_else(|| is_form.then(|| body::form(body.parameters)).flatten());
    let announced = head::announced_length(&head.fields);
    if let Some(bytes) = bytes {
        return Some(stored(bytes, announced.is_some(), context));
    }
    let known = |size: Option<u64>| size.filter(|size| *size > 0);
    let length = known(raw::count(body.size))
        .or(announced)
        .or_else(|| known(raw::count(request.body_size)))?;
    hollow(length, Some(length), announced.is_some(), context)
}

fn answer(
    entry: &raw::Entry,
    response: &raw::Response,
    mut head: Head,
    status: u16,
    protocol: Protocol,
    method: &str,
    context: &mut Context,
) -> Response {
    let body = if method == "HEAD" || matches!(status, 204 | 304) {
        None
    } else {
        response_body(entry, response, &mut head, context)
    };
    let arrivals = body.map_or_else(Vec::new, |body| arrivals(entry, body.length));
    let reason = raw::text(response.reason).unwrap_or_default();
    let reason = if protocol <= Protocol::Http11 { reason } else { String::new() };
    Response {
        status,
        reason: reason.chars().filter(|one| !one.is_control()).take(200).collect(),
        protocol,
        fields: head.fields,
        interim: Vec::new(),
        body,
        trailers: Vec::new(),
        arrivals,
    }
}

fn response_body(
    entry: &raw::Entry,
    response: &raw::Response,
    head: &mut Head,
    context: &mut Context,
) -> Option<Body> {
    let content: raw::Content = raw::object(response.content);
    let is_coded = head::is_coded(&head.fields);
    let announced = head::announced_length(&head.fields);
    if let Some(bytes) = inline(content.text, content.encoding, content.file, context) {
        let is_text = raw::text(content.encoding).is_none_or(|encoding| encoding.is_empty());
        warn_of_charset(head, is_text && !bytes.is_ascii(), context);
        if is_coded {
            head::remove_coding(&mut head.fields, bytes.len());
            context.without_coding += 1;
        }
        return Some(stored(bytes, announced.is_some(), context));
    }
    let sizes = Sizes {
        is_coded,
        content: raw::count(content.size),
        saved: raw::count(content.compression),
        body: raw::count(response.body_size),
        head: raw::count(response.head_size),
        transfer: raw::count(response.transfer_size),
        object: raw::count(entry.object_size),
        decoded_object: raw::count(entry.decoded_size),
        announced,
    };
    let (length, decoded) = sizes.lengths();
    if length == 0 {
        return None;
    }
    hollow(length, decoded, announced.is_some(), context)
}

/// HAR has the characters of a text, not its bytes.
fn warn_of_charset(head: &Head, is_affected: bool, context: &mut Context) {
    let kind = head::value(&head.fields, "content-type").unwrap_or_default().to_ascii_lowercase();
    let charset = kind.split_once("charset=").map(|(_, charset)| charset.trim_matches(['"', ' ']));
    if let Some(charset) = charset.filter(|charset| is_affected && !charset.starts_with("utf-8")) {
        let charset = manyways_unit::human::quoted(charset);
        context.warnings.push(format!("its body is stored as UTF-8, its type names {charset}"));
    }
}

/// The bytes that the file, or a file beside it, contains. An empty text means unknown: browsers
/// write it where they have discarded the body.
fn inline(
    text: Option<&serde_json::value::RawValue>,
    encoding: Option<&serde_json::value::RawValue>,
    file: Option<&serde_json::value::RawValue>,
    context: &mut Context,
) -> Option<Vec<u8>> {
    let bytes = match body::from_text(text, encoding) {
        Ok(bytes) => bytes.filter(|bytes| !bytes.is_empty()),
        Err(message) => {
            context.warnings.push(message);
            None
        }
    };
    let Some(name) = raw::text(file).filter(|_| bytes.is_none()) else { return bytes };
    let bytes = (context.files)(&name);
    if bytes.is_none() {
        let name = manyways_unit::human::quoted(&name);
        context.warnings.push(format!("the file `{name}` with its body is missing"));
    }
    bytes.filter(|bytes| !bytes.is_empty())
}

fn stored(bytes: Vec<u8>, is_length_announced: bool, context: &mut Context) -> Body {
    let length = bytes.len() as u64;
    let digest = Some(context.bodies.add(bytes));
    Body { length, decoded_length: Some(length), digest, is_length_announced }
}

fn hollow(
    length: u64,
    decoded_length: Option<u64>,
    is_length_announced: bool,
    context: &mut Context,
) -> Option<Body> {
    if length > MAX_HOLLOW_LENGTH {
        context.warnings.push(format!("its body of {length} bytes is too long and left out"));
        return None;
    }
    Some(Body { length, decoded_length, digest: None, is_length_announced })
}

/// Parts of the body, from WebPagetest.
fn arrivals(entry: &raw::Entry, length: u64) -> Vec<Arrival> {
    let list = raw::list::<100_000>(entry.chunks);
    let Some(first_byte) = raw::millis(entry.first_byte) else { return Vec::new() };
    let mut bytes = 0_u64;
    let mut arrivals: Vec<Arrival> = Vec::new();
    for value in list.values {
        let chunk: raw::Chunk = raw::object(Some(value));
        let (Some(time), Some(more)) = (raw::millis(chunk.time), raw::count(chunk.bytes)) else {
            return Vec::new();
        };
        bytes = bytes.saturating_add(more);
        let after = time.saturating_sub(first_byte);
        let latest = arrivals.last().map_or(Span::ZERO, |arrival| arrival.after);
        arrivals.push(Arrival { after: after.max(latest), bytes });
    }
    if bytes == length { arrivals } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_in_many_ways() {
        for (texts, expected) in [
            (&["HTTP/1.0", "http/1.0", "1.0"][..], Some(Protocol::Http10)),
            (&["HTTP/1.1", "http/1.1", "1.1", " h1.1"], Some(Protocol::Http11)),
            (
                &["h2", "HTTP/2", "HTTP/2.0", "2.0", "spdy", "spdy/3.1", "h2c", "h2-14"],
                Some(Protocol::Http2),
            ),
            (&["h3", "HTTP/3", "h3-29", "QUIC", "http/2+quic/46"], Some(Protocol::Http3)),
            (&["", "unknown", "us:", ": /", "me:", "2 2", "K", "data"], None),
        ] {
            for text in texts {
                assert_eq!(protocol(text), expected, "{text}");
            }
        }
    }
}
