//! The application layer of a TCP flow, for its row.

use manyways_unit::{Span, Time};

use super::HttpTransaction;
use super::reads::{Reader, Reads};
use crate::device::{self, Sight};
use manyways_unit::Samples;
use manyways_wire::http;
use manyways_wire::tls::{Offer, Session};

/// Application layer of a TCP flow.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// `http`, `tls`, `dns` or `other`; `None` without payload.
    pub protocol: Option<&'static str>,
    /// `None` if the protocol is not HTTP.
    pub http: Option<http::Summary>,
    /// `None` if the protocol is not TLS.
    pub tls: Option<Box<Session>>,
    /// The client's device, from the user agents of its requests.
    pub agent: Option<Sight>,
    /// Host of the first request that has one.
    pub host: Option<String>,
    /// Whether a request has another method than GET.
    pub has_others: bool,
    /// Response times, including those of inferred exchanges.
    pub response_times: Samples,
}

/// Properties collected during the flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    agent: Option<Sight>,
    host: Option<Box<str>>,
    has_others: bool,
    pub(super) response_times: Samples,
}

impl Learned {
    /// Updates the properties from a request.
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

    /// Returns the ClientHello.
    pub fn offer(&self) -> Option<&Offer> {
        self.tls.as_ref()?.offer()
    }

    /// Returns the server name of the ClientHello (SNI).
    pub fn server_name(&self) -> Option<&str> {
        Some(self.offer()?.server_name.as_ref()?.as_str())
    }

    /// Returns the client's device, from the JA4 fingerprint of the ClientHello.
    pub fn tls_sight(&self) -> Option<Sight> {
        device::ja4(self.offer()?.ja4.as_deref()?)?.sight
    }

    /// Returns the times from the end of the handshake to the first request, between a response and
    /// the next request, and from the last response to the first FIN: `T_S`, `T_G` and `T_F` of the
    /// campus Wi-Fi paper (4).
    pub(super) fn waits(&self, done: Option<Time>, fin: Option<Time>) -> [Option<Span>; 3] {
        let Some(http) = &self.http else { return [None; 3] };
        let start = done.zip(http.first_request).map(|(done, first)| first.since(done));
        let end = http.last_data.zip(fin).map(|(last, fin)| fin.since(last));
        [start, (http.answered > 0).then_some(http.between), end]
    }
}
