//! Recordings for tests.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use manyways_model::matching::Rule;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use manyways_wire::archive::container::Writer;
use manyways_wire::archive::{
    Abort, Body, Connection, Digest, Exchange, Field, Interim, Protocol, Request, Response,
    Timings, Tls,
};
use manyways_wire::har::{Content, Import};

use super::alarm::Alarm;
use super::log::Log;
use super::service::{Peer, Service};
use super::{Contents, Options, Responder};

/// When all samples were recorded.
pub(super) const RECORDED: Time = Time::from_millis(1_700_000_000_000);
/// The same time, in a field.
pub(super) const RECORDED_DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

/// A recording that is made by calls.
#[derive(Debug, Default)]
pub(super) struct Sample(pub(super) Import);

/// An exchange of a sample, to be changed.
pub(super) type Change<'c> = &'c dyn Fn(&mut Exchange, &mut Response);

impl Sample {
    /// Adds GET of an URL and its response with a body, if it is not empty.
    pub(super) fn get(
        mut self,
        url: &str,
        fields: &[(&str, &str)],
        body: &[u8],
        change: Change<'_>,
    ) -> Self {
        let body = self.body(body);
        let protocol = Protocol::Http11;
        let mut response = Response {
            status: 200,
            reason: "OK".to_owned(),
            protocol,
            fields: fields.iter().map(|(name, value)| field(name, value)).collect(),
            interim: Vec::new(),
            body,
            trailers: Vec::new(),
            arrivals: Vec::new(),
        };
        let request = Request {
            method: "GET".to_owned(),
            url: url.to_owned(),
            protocol,
            fields: Vec::new(),
            body: None,
            trailers: Vec::new(),
        };
        let mut exchange = Exchange {
            connection: None,
            stream: None,
            page: None,
            started: RECORDED,
            timings: Timings::default(),
            request,
            response: None,
            think: None,
            abort: None,
        };
        change(&mut exchange, &mut response);
        exchange.response.get_or_insert(response);
        self.0.archive.exchanges.push(exchange);
        self
    }

    /// Adds a connection to a server, with TLS and this protocol if a name is given.
    pub(super) fn connection(mut self, server: &str, name: Option<(&str, &str)>) -> Self {
        let tls = name.map(|(name, alpn)| Tls {
            server_name: Some(name.to_owned()),
            alpn: Some(alpn.to_owned()),
            certificate: None,
        });
        self.0.archive.connections.push(Connection {
            server: Some(server.parse().unwrap()),
            client_port: None,
            protocol: match name {
                Some((_, "h2")) => Protocol::Http2,
                _ => Protocol::Http11,
            },
            tls,
            opened: None,
            closed: None,
            rtt: None,
        });
        self
    }

    /// Stores bytes.
    pub(super) fn body(&mut self, bytes: &[u8]) -> Option<Body> {
        if bytes.is_empty() {
            return None;
        }
        let digest = Digest::of(bytes);
        if self.0.bodies.iter().all(|(other, _)| *other != digest) {
            self.0.bodies.push((digest, bytes.to_vec()));
        }
        let length = bytes.len() as u64;
        Some(Body {
            length,
            decoded_length: None,
            digest: Some(digest),
            is_length_announced: false,
        })
    }

    pub(super) fn contents(self) -> Arc<Contents> {
        Arc::new(Contents::of_import(self.0, Rule::Ours).unwrap())
    }

    pub(super) fn responder(self, options: Options) -> Responder {
        Responder::new(self.contents(), options, RECORDED)
    }
}

/// No change.
pub(super) fn same(_: &mut Exchange, _: &mut Response) {}

pub(super) fn field(name: &str, value: &str) -> Field {
    Field { name: name.to_owned(), value: value.as_bytes().to_vec() }
}

pub(super) fn interim(status: u16, fields: &[(&str, &str)], after: Span) -> Interim {
    let fields = fields.iter().map(|(name, value)| field(name, value)).collect();
    Interim { status, fields, after: Some(after) }
}

pub(super) fn hollow(length: u64) -> Option<Body> {
    Some(Body { length, decoded_length: None, digest: None, is_length_announced: false })
}

/// The exchange ended after the bytes of its body.
pub(super) fn aborted(by: Abort) -> impl Fn(&mut Exchange, &mut Response) {
    move |exchange, _| exchange.abort = Some(by)
}

/// Writes an archive and its bodies as a file of this program.
pub(super) fn write_file(import: &Import, path: &Path) {
    let cut = |file: &mut File, length| file.set_len(length);
    let mut writer = Writer::new(File::create(path).unwrap(), cut);
    for (_, body) in &import.bodies {
        writer.add_body(body).unwrap();
    }
    let mut har = Vec::new();
    manyways_wire::har::write(&import.archive, |_, _| Content::Omitted, &mut har).unwrap();
    writer.finish(|_| String::from_utf8(har.clone()).unwrap()).unwrap();
}

/// Shared state of connections, whose alarm runs on the current runtime.
pub(super) fn service(responder: Responder) -> Arc<Service> {
    let clock = Clock::start();
    let (alarm, ring) = Alarm::new(clock).unwrap();
    tokio::spawn(ring);
    let epoch = RECORDED.since(Time::ZERO);
    Arc::new(Service { responder, alarm, clock, epoch, log: Log::default() })
}

pub(super) fn peer(scheme: &'static str) -> Peer {
    Peer { number: 0, server: "192.0.2.1:443".parse().unwrap(), scheme }
}

/// Runs a test on one thread.
pub(super) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
