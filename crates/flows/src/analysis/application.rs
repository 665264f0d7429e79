//! The application layer of a TCP flow, for its row.

use manyways_unit::{Span, Time};

use super::HttpTransaction;
use super::app_reader::{AppParser, AppReader};
use crate::device::{self, DeviceProperties};
use manyways_unit::Samples;
use manyways_wire::http;
use manyways_wire::tls::{ClientHelloDetails, Session};

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
    pub agent: Option<DeviceProperties>,
    /// Host of the first request that has a host name, not only an address.
    pub host: Option<String>,
    /// Whether a request has another method than GET.
    pub has_other_methods: bool,
    /// Response times, including those of inferred exchanges.
    pub response_times: Samples,
}

/// Properties collected during the flow.
#[derive(Clone, Debug, Default)]
pub(super) struct AppProperties {
    agent: Option<DeviceProperties>,
    host: Option<Box<str>>,
    has_other_methods: bool,
    pub(super) response_times: Samples,
}

impl AppProperties {
    /// Updates the properties from a request.
    pub(super) fn add_request(&mut self, row: &HttpTransaction) {
        let Some(request) = &row.transaction.request else { return };
        self.has_other_methods |= request.method != "GET";
        if self.host.is_none() {
            self.host = row.host_name().map(|name| name.as_str().into());
        }
        let properties = request.user_agent.as_deref().and_then(device::user_agent);
        self.agent = match (self.agent.take(), properties) {
            (Some(one), Some(other)) => DeviceProperties::combine(&[one, other]),
            (one, other) => one.or(other),
        };
    }
}

impl Application {
    pub(super) fn from_reader(properties: AppProperties, reads: AppReader) -> Self {
        let (protocol, http, tls) = match reads.into_parser() {
            AppParser::Waiting => (None, None, None),
            AppParser::Http(transactions) => {
                let is_http = transactions.is_http() == Some(true);
                let summary = *transactions.summary();
                (Some(if is_http { "http" } else { "other" }), is_http.then_some(summary), None)
            }
            AppParser::Tls(session) => (Some("tls"), None, Some(session)),
            AppParser::Dns(_) => (Some("dns"), None, None),
            AppParser::Other(_) => (Some("other"), None, None),
        };
        let AppProperties { agent, host, has_other_methods: has_others, response_times } =
            properties;
        let host = host.map(String::from);
        Self { protocol, http, tls, agent, host, has_other_methods: has_others, response_times }
    }

    /// Returns the ClientHello.
    pub fn client_hello(&self) -> Option<&ClientHelloDetails> {
        self.tls.as_ref()?.client_hello()
    }

    /// Returns the server name of the ClientHello (SNI) if it is a host name.
    pub fn server_name(&self) -> Option<&str> {
        Some(self.client_hello()?.server_name.as_ref()?.as_str())
    }

    /// Returns the client's device, from the JA4 fingerprint of the ClientHello.
    pub fn tls_device(&self) -> Option<DeviceProperties> {
        device::ja4(self.client_hello()?.ja4.as_deref()?)?.device
    }

    /// Returns the times from the end of the handshake to the first request, between a response and
    /// the next request, and from the last response to the first FIN: `T_S`, `T_G` and `T_F` of the
    /// campus Wi-Fi paper (4).
    pub(super) fn user_waits(&self, done: Option<Time>, fin: Option<Time>) -> [Option<Span>; 3] {
        let Some(http) = &self.http else { return [None; 3] };
        let start = done.zip(http.first_request).map(|(done, first)| first.since(done));
        let end = http.last_data.zip(fin).map(|(last, fin)| fin.since(last));
        [start, (http.answered > 0).then_some(http.idle_time), end]
    }
}
