//! Recorded responses, with the changes that do not depend on the time of the replay.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use manyways_unit::{Span, Time};
use manyways_wire::archive::{Abort, Archive, Digest, Exchange, Protocol, Response};

use super::super::dates::{self, DateAt};
use super::super::head::HeadField;
use super::super::hollow::Coding;

/// A recorded response.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(in super::super) status: u16,
    pub(in super::super) reason: String,
    pub(in super::super) protocol: Protocol,
    /// Each with the date in its value.
    pub(in super::super) fields: Vec<(HeadField, Option<DateAt>)>,
    pub(in super::super) interim: Arc<[InterimHead]>,
    pub(in super::super) trailers: Arc<[HeadField]>,
    pub(super) source: BodySource,
    /// Bytes of the body that can be sent.
    pub(in super::super) length: u64,
    pub(in super::super) end: End,
    /// Time of the recording. `None` if it is unknown.
    pub(in super::super) recorded: Option<Time>,
    /// Whether a hollow body lost its content coding.
    pub(super) is_uncoded: bool,
    /// Whether another exchange followed on its connection of HTTP/1.
    pub(in super::super) is_continued: bool,
}

/// An interim response.
#[derive(Clone, Debug)]
pub(in super::super) struct InterimHead {
    pub(in super::super) status: u16,
    pub(in super::super) fields: Vec<HeadField>,
    pub(in super::super) after: Span,
}

/// Source of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySource {
    None,
    Stored(Digest),
    Hollow { coding: Coding, is_text: bool },
}

/// The end of a response, after its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    /// The server closes the connection, or resets the stream.
    Abort,
    /// Nothing, until the client ends it.
    Open,
}

impl End {
    /// The end of a recorded exchange. If not the server ended it early, and its length was not
    /// announced, the response was still going on, and does so in the replay. If its length was
    /// announced, the other bytes are unknown.
    pub(in super::super) fn of(exchange: &Exchange) -> Self {
        let body = exchange.response.as_ref().map(|response| response.body);
        let is_announced = body.flatten().is_some_and(|body| body.is_length_announced);
        match (exchange.abort, body) {
            (None, Some(_)) => Self::Complete,
            (None, None) | (Some(Abort::Server), _) => Self::Abort,
            (Some(Abort::Client | Abort::Recorder), Some(_)) if is_announced => Self::Abort,
            (Some(Abort::Client | Abort::Recorder), _) => Self::Open,
        }
    }
}

/// Prepares the responses of all exchanges; `None` for those without one.
pub(super) fn all(archive: &Archive) -> Vec<Option<Prepared>> {
    let mut last: HashMap<usize, usize> = HashMap::new();
    for (number, exchange) in archive.exchanges.iter().enumerate() {
        if let Some(connection) = exchange.connection {
            last.insert(connection, number);
        }
    }
    let prepared = archive.exchanges.iter().enumerate().map(|(number, exchange)| {
        let is_continued =
            exchange.connection.is_some_and(|connection| last.get(&connection) > Some(&number));
        Some(prepare(exchange, exchange.response.as_ref()?, is_continued))
    });
    prepared.collect()
}

fn prepare(exchange: &Exchange, response: &Response, is_continued: bool) -> Prepared {
    let (source, length) = match response.body {
        None => (BodySource::None, 0),
        Some(body) => match body.digest {
            Some(digest) => (BodySource::Stored(digest), body.length),
            None => (hollow(response, body.length), body.length),
        },
    };
    let end = End::of(exchange);
    let is_coded = response.fields.iter().any(|field| is_coding(&field.name, &field.value));
    let is_uncoded = is_coded
        && length > 0
        && matches!(source, BodySource::Hollow { coding: Coding::Identity, .. });
    let has_body = exchange.request.method != "HEAD"
        && !matches!(response.status, 204 | 304)
        && end == End::Complete;
    let mut fields = Vec::with_capacity(response.fields.len());
    for field in &response.fields {
        let mut head_field = HeadField::recorded(field);
        if head_field.is("alt-svc") || is_uncoded && head_field.is("content-encoding") {
            continue;
        }
        let announced = || std::str::from_utf8(&field.value).ok()?.trim().parse::<u64>().ok();
        if has_body && head_field.is("content-length") && announced() != Some(length) {
            head_field.value = Bytes::from(length.to_string());
        }
        let date = date_of(&head_field);
        fields.push((head_field, date));
    }
    let recorded = recorded_time(exchange, response);
    let interim = response.interim.iter().map(|interim| InterimHead {
        status: interim.status,
        fields: interim
            .fields
            .iter()
            .map(HeadField::recorded)
            .filter(|field| !field.is("alt-svc"))
            .collect(),
        after: interim.after.unwrap_or(Span::ZERO),
    });
    Prepared {
        status: response.status,
        reason: response.reason.clone(),
        protocol: response.protocol,
        fields,
        interim: interim.collect(),
        trailers: response.trailers.iter().map(HeadField::recorded).collect(),
        source,
        length,
        end,
        recorded,
        is_uncoded,
        is_continued,
    }
}

fn is_coding(name: &str, value: &[u8]) -> bool {
    name.eq_ignore_ascii_case("content-encoding") && Coding::parse(value) != Some(Coding::Identity)
}

fn date_of(field: &HeadField) -> Option<DateAt> {
    if field.is("set-cookie") {
        return DateAt::of_cookie(&field.value);
    }
    let is_date = ["date", "expires", "last-modified"].iter().any(|name| field.is(name));
    if is_date { DateAt::whole(&field.value) } else { None }
}

/// The time of the request, else the field `Date`.
fn recorded_time(exchange: &Exchange, response: &Response) -> Option<Time> {
    if exchange.started > Time::ZERO {
        return Some(exchange.started);
    }
    let date = response.fields.iter().find(|field| field.name.eq_ignore_ascii_case("date"))?;
    Some(Time::ZERO + Span::from_secs(dates::seconds(&date.value)?))
}

/// Chooses the coding of a hollow body, and its bytes.
fn hollow(response: &Response, length: u64) -> BodySource {
    let value = |name: &str| {
        let mut fields =
            response.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        (fields.next().map(|field| field.value.as_slice()), fields.next().is_some())
    };
    let coding = match value("content-encoding") {
        (None, _) => Coding::Identity,
        (Some(_), true) => Coding::Identity,
        (Some(value), false) => Coding::parse(value).unwrap_or(Coding::Identity),
    };
    let coding = if length < coding.min_length() { Coding::Identity } else { coding };
    let kind = value("content-type").0.unwrap_or_default().to_ascii_lowercase();
    let is_text =
        [&b"text/"[..], b"application/javascript", b"application/json", b"application/xml"]
            .iter()
            .any(|start| kind.starts_with(start));
    BodySource::Hollow { coding, is_text }
}
