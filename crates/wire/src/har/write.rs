//! Writing a file.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;

use serde::{Serialize, Serializer};

use manyways_unit::Span;

use super::{base64, date, extra, head};
use crate::archive::{Archive, Body, Exchange, Field, Page, Protocol, Request, Response, Timings};

/// The content of a body in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Only its lengths.
    Omitted,
    /// The name of a file with the decoded body beside the HAR file, for example in the same zip.
    File(String),
    /// Embedded, as text if it is UTF-8, else in base64.
    Embedded {
        /// Without content coding, which viewers and other programs expect.
        decoded: Cow<'a, [u8]>,
        /// The bytes as recorded, with which the file reads back as an equal archive. Needed only
        /// if they differ from the decoded ones; without them, [`super::read`] drops the content
        /// coding.
        encoded: Option<Cow<'a, [u8]>>,
    },
}

/// Writes an archive as HAR 1.2, on one line. `content` gets each body with the fields
/// of its head, which contain the content coding: that of a request before that of its response, in the
/// order of the exchanges.
///
/// # Errors
/// Those of `out`.
pub fn write<'a>(
    archive: &Archive,
    content: impl FnMut(&Body, &[Field]) -> Content<'a>,
    mut out: impl io::Write,
) -> io::Result<()> {
    let entries = Entries { archive, content: RefCell::new(content) };
    let log = Log {
        version: "1.2",
        creator: Creator { name: "manyways", version: env!("CARGO_PKG_VERSION") },
        pages: archive.pages.iter().map(page).collect(),
        extra: extra::Log::of(archive),
        entries,
    };
    serde_json::to_writer(&mut out, &File { log })?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct File<L> {
    log: L,
}

#[derive(Serialize)]
struct Log<'a, E> {
    version: &'static str,
    creator: Creator,
    // Firefox requires the list.
    pages: Vec<JsonPage<'a>>,
    #[serde(rename = "_manyways")]
    extra: extra::Log,
    entries: E,
}

#[derive(Serialize)]
struct Creator {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonPage<'a> {
    started_date_time: String,
    id: &'a str,
    title: &'a str,
    page_timings: PageTimings,
    #[serde(rename = "_manyways")]
    extra: extra::Page,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageTimings {
    on_content_load: f64,
    on_load: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pageref: Option<&'a str>,
    started_date_time: String,
    time: f64,
    request: JsonRequest<'a>,
    response: JsonResponse<'a>,
    cache: Empty,
    timings: JsonTimings,
    #[serde(rename = "serverIPAddress", skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<String>,
    #[serde(rename = "_manyways")]
    extra: extra::Entry,
}

/// An object without fields.
#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonRequest<'a> {
    method: &'a str,
    url: &'a str,
    http_version: &'static str,
    cookies: Vec<Pair>,
    headers: Vec<extra::Field>,
    query_string: Vec<Pair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_data: Option<PostData>,
    headers_size: i64,
    body_size: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    mime_type: String,
    params: [Pair; 0],
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(rename = "_encoding", skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(rename = "_file", skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'a> {
    status: u16,
    status_text: &'a str,
    http_version: &'static str,
    cookies: Vec<Pair>,
    headers: Vec<extra::Field>,
    content: JsonContent,
    #[serde(rename = "redirectURL")]
    redirect_url: String,
    headers_size: i64,
    body_size: u64,
    // Viewers of Chromium add up headersSize and bodySize without it.
    #[serde(rename = "_transferSize")]
    transfer_size: u64,
    #[serde(rename = "_error", skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonContent {
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<i64>,
    mime_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(rename = "_file", skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
struct JsonTimings {
    blocked: f64,
    dns: f64,
    connect: f64,
    ssl: f64,
    send: f64,
    wait: f64,
    receive: f64,
}

/// A cookie or a parameter.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Pair {
    name: String,
    value: String,
}

/// Makes each entry when it is written, so that only one body is in memory.
struct Entries<'a, F> {
    archive: &'a Archive,
    content: RefCell<F>,
}

impl<'c, F: FnMut(&Body, &[Field]) -> Content<'c>> Serialize for Entries<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut content = self.content.borrow_mut();
        let entry = |exchange| entry(self.archive, exchange, &mut *content);
        serializer.collect_seq(self.archive.exchanges.iter().map(entry))
    }
}

fn page(page: &Page) -> JsonPage<'_> {
    JsonPage {
        started_date_time: date::format(page.started),
        id: &page.id,
        title: &page.title,
        page_timings: PageTimings {
            on_content_load: millis(page.content_loaded),
            on_load: millis(page.loaded),
        },
        extra: extra::Page::of(page),
    }
}

fn entry<'e, 'c>(
    archive: &Archive,
    exchange: &'e Exchange,
    content: &mut impl FnMut(&Body, &[Field]) -> Content<'c>,
) -> Entry<'e> {
    let Exchange { request, response, timings, .. } = exchange;
    let mut text = |body: Option<Body>, fields: &[Field]| {
        body.map_or_else(Text::default, |body| Text::of(content(&body, fields)))
    };
    let asked = text(request.body, &request.fields);
    let answered = match response {
        Some(response) => text(response.body, &response.fields),
        None => Text::default(),
    };
    let encoded = [asked.recorded.clone(), answered.recorded.clone()];
    let server = archive.connection_of(exchange).and_then(|connection| connection.server);
    let phases = [timings.blocked, timings.dns, timings.connect, timings.send, timings.wait];
    let time: Span = phases.into_iter().chain([timings.receive]).flatten().sum();
    Entry {
        pageref: exchange.page.as_deref(),
        started_date_time: date::format(exchange.started),
        time: time.as_millis_f64(),
        request: asked.into_request(request),
        response: match response {
            Some(response) => answered.into_response(response),
            None => no_response(request.protocol),
        },
        cache: Empty {},
        timings: json_timings(timings),
        server: server.map(|server| server.ip().to_string()),
        connection: exchange.connection.map(|index| (index + 1).to_string()),
        extra: extra::Entry::of(exchange, encoded),
    }
}

/// A body in the file.
#[derive(Default)]
struct Text {
    text: Option<String>,
    encoding: Option<&'static str>,
    file: Option<String>,
    /// The recorded bytes in base64, if they are others than those of the text.
    recorded: Option<String>,
}

impl Text {
    fn of(content: Content) -> Self {
        let (decoded, encoded) = match content {
            Content::Omitted => return Self::default(),
            Content::File(name) => return Self { file: Some(name), ..Self::default() },
            Content::Embedded { decoded, encoded } => (decoded, encoded),
        };
        let recorded = encoded.filter(|encoded| *encoded != decoded);
        let recorded = recorded.map(|bytes| base64::encode(&bytes));
        let (text, encoding) = match String::from_utf8(decoded.into_owned()) {
            Ok(text) => (text, None),
            Err(error) => (base64::encode(error.as_bytes()), Some("base64")),
        };
        Self { text: Some(text), encoding, file: None, recorded }
    }

    fn into_request(self, request: &Request) -> JsonRequest<'_> {
        let post_data = request.body.map(|_| PostData {
            mime_type: field_text(&request.fields, "content-type").unwrap_or_default(),
            params: [],
            text: self.text,
            encoding: self.encoding,
            file: self.file,
        });
        JsonRequest {
            method: &request.method,
            url: &request.url,
            http_version: extra::protocol_name(request.protocol),
            cookies: cookies(&request.fields),
            headers: request.fields.iter().map(extra::Field::of).collect(),
            query_string: query(&request.url),
            post_data,
            headers_size: -1,
            body_size: request.body.map_or(0, |body| body.length),
        }
    }

    fn into_response(self, response: &Response) -> JsonResponse<'_> {
        let length = response.body.map_or(0, |body| body.length);
        let decoded = response.body.and_then(|body| body.decoded_length);
        let saved = |decoded| i64::try_from(i128::from(decoded) - i128::from(length)).ok();
        let kind = field_text(&response.fields, "content-type");
        JsonResponse {
            status: response.status,
            status_text: &response.reason,
            http_version: extra::protocol_name(response.protocol),
            cookies: set_cookies(&response.fields),
            headers: response.fields.iter().map(extra::Field::of).collect(),
            content: JsonContent {
                size: decoded.unwrap_or(length),
                compression: decoded.and_then(saved),
                mime_type: kind.unwrap_or_else(|| "x-unknown".to_owned()),
                text: self.text,
                encoding: self.encoding,
                file: self.file,
            },
            redirect_url: field_text(&response.fields, "location").unwrap_or_default(),
            headers_size: -1,
            body_size: length,
            transfer_size: length,
            error: None,
        }
    }
}

/// As browsers write it.
fn no_response(protocol: Protocol) -> JsonResponse<'static> {
    JsonResponse {
        status: 0,
        status_text: "",
        http_version: extra::protocol_name(protocol),
        cookies: Vec::new(),
        headers: Vec::new(),
        content: JsonContent {
            size: 0,
            compression: None,
            mime_type: "x-unknown".to_owned(),
            text: None,
            encoding: None,
            file: None,
        },
        redirect_url: String::new(),
        headers_size: -1,
        body_size: 0,
        transfer_size: 0,
        error: Some("no response"),
    }
}

/// Milliseconds; -1 if unknown.
fn millis(span: Option<Span>) -> f64 {
    span.map_or(-1.0, Span::as_millis_f64)
}

fn json_timings(timings: &Timings) -> JsonTimings {
    // The standard forbids -1 in the last three.
    let required = |span: Option<Span>| span.unwrap_or_default().as_millis_f64();
    JsonTimings {
        blocked: millis(timings.blocked),
        dns: millis(timings.dns),
        connect: millis(timings.connect),
        ssl: millis(timings.tls),
        send: required(timings.send),
        wait: required(timings.wait),
        receive: required(timings.receive),
    }
}

fn field_text(fields: &[Field], name: &str) -> Option<String> {
    head::value(fields, name).map(str::to_owned)
}

fn named<'a>(fields: &'a [Field], name: &'static str) -> impl Iterator<Item = Cow<'a, str>> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| String::from_utf8_lossy(&field.value))
}

fn cookies(fields: &[Field]) -> Vec<Pair> {
    let pairs = |value: Cow<str>| value.split(';').filter_map(pair).collect::<Vec<_>>();
    named(fields, "cookie").flat_map(pairs).collect()
}

fn set_cookies(fields: &[Field]) -> Vec<Pair> {
    named(fields, "set-cookie").filter_map(|value| pair(value.split(';').next()?)).collect()
}

fn pair(text: &str) -> Option<Pair> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let name = name.trim().to_owned();
    (!name.is_empty()).then(|| Pair { name, value: value.trim().to_owned() })
}

/// The parameters of a URL, decoded.
fn query(url: &str) -> Vec<Pair> {
    let Some((_, query)) = url.split_once('?') else { return Vec::new() };
    let parameter = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Pair { name: unescaped(name), value: unescaped(value) }
    };
    query.split('&').filter(|text| !text.is_empty()).map(parameter).collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<2>().filter(|_| *first == b'%').and_then(|digits| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(digits[0])? << 4 | digit(digits[1])?).ok()
        });
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
        bytes.push(code.unwrap_or(if *first == b'+' { b' ' } else { *first }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(expected: &[(&str, &str)]) -> Vec<Pair> {
        expected
            .iter()
            .map(|(name, value)| Pair { name: (*name).into(), value: (*value).into() })
            .collect()
    }

    #[test]
    fn parameters_and_cookies_are_listed() {
        assert_eq!(
            query("http://a/?q=a+b%C3%A9%zz&x&&=1"),
            pairs(&[("q", "a bé%zz"), ("x", ""), ("", "1")])
        );
        let field = |name: &str, value: &str| Field { name: name.into(), value: value.into() };
        let fields = [
            field("Cookie", "a=b; c=d=e;"),
            field("cookie", "f"),
            field("Set-Cookie", "s=1; Path=/"),
        ];
        assert_eq!(cookies(&fields), pairs(&[("a", "b"), ("c", "d=e"), ("f", "")]));
        assert_eq!(set_cookies(&fields), pairs(&[("s", "1")]));
    }
}
