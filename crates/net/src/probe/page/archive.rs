//! The records of a load as an archive, which can be written as a HAR file.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use manyways_model::qoe::page::{Load, Request as Requested, Times};
use manyways_unit::{Size, Span, Time};
use manyways_wire::archive::{
    Archive, Body, Connection, Exchange, Field, Page, Protocol, Request, Response, Timings, Tls,
};
use serde_json::Value;

use super::protocol;
use super::recorder::{Record, Recorder, seconds};
use super::timings::PageName;
use crate::probe::report::{Measurement, Report};

const PAGE: &str = "page";

/// All loads of several networks as one archive, with a page for each load.
pub fn page_archive(reports: &[Report]) -> Archive {
    let mut all = Archive::default();
    for report in reports {
        let Some(Measurement::Page(page)) = &report.measurement else { continue };
        for (number, run) in page.runs.iter().enumerate() {
            let one = &run.archive;
            let (interface, number) = (&report.context.interface, number + 1);
            let id = format!("{interface}-{number}");
            let before = all.connections.len();
            all.creator.clone_from(&one.creator);
            all.connections.extend(one.connections.iter().cloned());
            all.pages.extend(one.pages.iter().map(|page| Page {
                id: id.clone(),
                title: format!("{} ({interface}, load {number})", page.title),
                ..page.clone()
            }));
            all.exchanges.extend(one.exchanges.iter().map(|exchange| Exchange {
                connection: exchange.connection.map(|index| index + before),
                page: Some(id.clone()),
                ..exchange.clone()
            }));
        }
    }
    all
}

impl Recorder {
    /// The requests and heads of responses of a load, without bodies. `shown` are the indices of
    /// its requests in [`Recorder::records`]. `is_proxied`: the browser knows the proxy instead of the
    /// servers.
    pub fn archive(
        &self,
        load: &Load,
        shown: &[usize],
        name: &PageName,
        is_proxied: bool,
    ) -> Archive {
        let mut archive = Archive {
            creator: concat!("manyways ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Archive::default()
        };
        let mut connections: HashMap<u64, usize> = HashMap::new();
        for (index, requested) in shown.iter().zip(&load.requests) {
            let record = &self.records[*index];
            let protocol = record.protocol();
            let connection = requested.connection.map(|number| {
                *connections.entry(number).or_insert_with(|| {
                    archive.connections.push(record.connection(protocol, requested, is_proxied));
                    archive.connections.len() - 1
                })
            });
            archive.exchanges.push(record.exchange(requested, protocol, connection));
        }
        let span = |mark: Option<Time>| mark.map(|time| time.since(Time::ZERO));
        let first = shown.first().map(|index| &self.records[*index].sent);
        // The navigation begins shortly before its request.
        let lead = load.requests.first().and_then(|request| span(request.times.issued));
        archive.pages.push(Page {
            id: PAGE.to_owned(),
            title: if name.title.is_empty() { name.url.clone() } else { name.title.clone() },
            started: first.map(|sent| seconds(sent.wall_time)).unwrap_or_default()
                - lead.unwrap_or_default(),
            content_loaded: span(load.marks.dom_content_loaded_end),
            loaded: span(load.marks.load_event_end),
        });
        archive
    }
}

impl Record {
    fn protocol(&self) -> Protocol {
        match self.response.as_ref().map(|response| response.protocol.as_str()) {
            Some("h2") => Protocol::Http2,
            Some("h3") => Protocol::Http3,
            Some("http/1.0") => Protocol::Http10,
            _ => Protocol::Http11,
        }
    }

    fn connection(
        &self,
        protocol: Protocol,
        requested: &Requested,
        is_proxied: bool,
    ) -> Connection {
        let server = self.response.as_ref().filter(|_| !is_proxied).and_then(|response| {
            let bare = response.remote_ip_address.trim_matches(['[', ']']);
            Some(SocketAddr::new(bare.parse().ok()?, response.remote_port as u16))
        });
        let is_secure = requested.origin.starts_with("https:");
        Connection {
            server,
            client_port: None,
            protocol,
            tls: is_secure.then(Tls::default),
            opened: None,
            closed: None,
            rtt: None,
        }
    }

    fn exchange(
        &self,
        requested: &Requested,
        protocol: Protocol,
        connection: Option<usize>,
    ) -> Exchange {
        let request = Request {
            method: self.sent.request.method.clone(),
            url: self.url().to_owned(),
            protocol,
            fields: fields(&self.sent.request.headers),
            body: None,
            trailers: Vec::new(),
        };
        let answered = self.response.as_ref().filter(|response| {
            let status = response.status;
            (200.0..600.0).contains(&status)
        });
        let response = answered.map(|response| Response {
            status: response.status as u16,
            reason: response.status_text.clone(),
            protocol,
            fields: fields(&response.headers),
            interim: Vec::new(),
            body: self.body(requested, response),
            trailers: Vec::new(),
            arrivals: Vec::new(),
        });
        Exchange {
            connection,
            stream: None,
            page: Some(PAGE.to_owned()),
            started: seconds(self.sent.wall_time),
            timings: self.timings(&requested.times),
            request,
            response,
            think: None,
            abort: None,
        }
    }

    fn body(&self, requested: &Requested, response: &protocol::Response) -> Option<Body> {
        let decoded = self.arrivals.last().map(|(_, bytes)| bytes.as_bytes());
        // A body from the cache was not transferred.
        let length = match requested.body {
            Size::ZERO => decoded.unwrap_or(0),
            body => body.as_bytes(),
        };
        let is_length_announced =
            response.headers.keys().any(|name| name.eq_ignore_ascii_case("content-length"));
        (length > 0).then_some(Body {
            length,
            decoded_length: decoded,
            digest: None,
            is_length_announced,
        })
    }

    fn timings(&self, times: &Times) -> Timings {
        let between =
            |from: Option<Time>, to: Option<Time>| from.zip(to).map(|(from, to)| to.since(from));
        let timing = self.response.as_ref().and_then(|response| response.timing);
        let send = timing.map(|timing| timing.send_end - timing.send_start);
        let send =
            send.filter(|millis| *millis >= 0.0).map(|millis| Span::from_secs_f64(millis / 1e3));
        let begin = times.dns_start.or(times.connect_start).or(times.sent);
        Timings {
            blocked: between(times.issued, begin.or(times.ended)),
            dns: between(times.dns_start, times.dns_end),
            connect: between(times.connect_start, times.connect_end),
            tls: between(times.tls_start, times.tls_end),
            send,
            wait: between(times.sent, times.first_byte)
                .map(|span| span.saturating_sub(send.unwrap_or_default())),
            receive: between(times.first_byte, times.ended),
        }
    }
}

/// Chromium joins the values of fields with the same name by line feeds.
fn fields(headers: &BTreeMap<String, Value>) -> Vec<Field> {
    let all = headers.iter().flat_map(|(name, value)| {
        let lines = value.as_str().unwrap_or_default().split('\n');
        lines.map(|line| Field { name: name.clone(), value: line.as_bytes().to_vec() })
    });
    all.collect()
}
