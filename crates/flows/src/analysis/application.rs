//! What a TCP flow carries, as its row tells it.

use manyways_unit::{Span, Time};

use super::HttpTransaction;
use super::reads::{Reader, Reads};
use crate::device::{self, Sight};
use manyways_unit::Samples;
use manyways_wire::http;
use manyways_wire::tls::{Offer, Session};

/// What a TCP flow carries.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// `http`, `tls`, `dns` or `other`; none where it carries nothing.
    pub protocol: Option<&'static str>,
    /// Of HTTP.
    pub http: Option<http::Summary>,
    /// Of TLS.
    pub tls: Option<Box<Session>>,
    /// What its user agents tell of the client.
    pub agent: Option<Sight>,
    /// The host of its first request.
    pub host: Option<String>,
    /// It has a request that is no GET.
    pub has_others: bool,
    /// Times to responses, inferred ones included.
    pub response_times: Samples,
}

/// What is known of it while it goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    agent: Option<Sight>,
    host: Option<Box<str>>,
    has_others: bool,
    pub(super) response_times: Samples,
}

impl Learned {
    /// What a request tells of the client.
    pub(super) fn learn(&mut self, row: &HttpTransaction) {
        let Some(request) = &row.transaction.request else { return };
        self.has_others |= request.method != "GET";
        if self.host.is_none() {
            self.host = row.host().map(String::into_boxed_str);
        }
        let sight = request.agent.as_deref().and_then(device::user_agent);
        self.agent = match (self.agent.take(), sight) {
            (Some(one), Some(other)) => Sight::agreed(&[one, other]),
            (one, other) => one.or(other),
        };
    }
}

impl Application {
    pub(super) fn conclude(learned: Learned, reads: Reads) -> Self {
        let (protocol, http, tls) = match reads.into_reader() {
            Reader::Waiting => (None, None, None),
            Reader::Http(transactions) => {
                let is_http = transactions.is_http() == Some(true);
                let summary = *transactions.summary();
                (Some(if is_http { "http" } else { "other" }), is_http.then_some(summary), None)
            }
            Reader::Tls(session) => (Some("tls"), None, Some(session)),
            Reader::Dns(_) => (Some("dns"), None, None),
            Reader::Other(_) => (Some("other"), None, None),
        };
        let Learned { agent, host, has_others, response_times } = learned;
        let host = host.map(String::from);
        Self { protocol, http, tls, agent, host, has_others, response_times }
    }

    /// The client's hello.
    pub fn offer(&self) -> Option<&Offer> {
        self.tls.as_ref()?.offer()
    }

    /// The server's name in that.
    pub fn server_name(&self) -> Option<&str> {
        Some(self.offer()?.server_name.as_ref()?.as_str())
    }

    /// What the client's hello tells of it.
    pub fn tls_sight(&self) -> Option<Sight> {
        device::ja4(self.offer()?.ja4.as_deref()?)?.sight
    }

    /// From the end of the handshake to the first request, between a response and the next request,
    /// and from the last response to the first FIN: `T_S`, `T_G` and `T_F` of the paper on campus
    /// Wi-Fi (4).
    pub(super) fn waits(&self, done: Option<Time>, fin: Option<Time>) -> [Option<Span>; 3] {
        let Some(http) = &self.http else { return [None; 3] };
        let start = done.zip(http.first_request).map(|(done, first)| first.since(done));
        let end = http.last_data.zip(fin).map(|(last, fin)| fin.since(last));
        [start, (http.answered > 0).then_some(http.between), end]
    }
}
