//! Whether a network reaches the internet, or only its login page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::probe::dns::{self, lie};
use manyways_model::probe::portal::{Answer, Resolution, Verdict, verdict};
use manyways_proto::resolve::{Edns, Family, Transport};
use manyways_unit::{Size, Span};
use tokio::time::timeout;

use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running};
use super::http::{Http, HttpReport, HttpVersion};
use super::report::Measurement;
use crate::fetch::Location;
use crate::path::tls::TlsError;
use crate::path::{Trust, socket, tls};
use crate::resolve::message::DnsAnswer;

/// A request for a known page over plain HTTP, and a TLS connection to the same host.
#[derive(Clone, Debug)]
pub struct Portal {
    /// The known page, at `http://`. No service is asked unless the user names it.
    pub location: Location,
    /// Its status; the page with status 204 has no body.
    pub status: u16,
    /// A second name server, with whose answers those of the network are compared.
    pub second: Option<IpAddr>,
    pub timeout: Span,
    pub trust: Trust,
}

/// Result of a portal probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortalReport {
    /// `None` until both connections have ended.
    pub verdict: Option<Verdict>,
    pub http: HttpReport,
    /// Whether the certificate of the host was right; `None` without a TLS connection.
    pub is_encrypted: Option<bool>,
    /// A wrong answer of the network's resolver.
    pub lie: Option<dns::Lie>,
}

impl Portal {
    const TLS_PORT: u16 = 443;

    pub fn new(location: Location) -> Self {
        Self {
            location,
            status: 204,
            second: None,
            timeout: Span::from_secs(10),
            trust: Trust::System,
        }
    }

    fn page(&self) -> Http {
        Http {
            version: HttpVersion::Http1,
            max_body: Size::from_bytes(64 << 10),
            timeout: self.timeout,
            ..Http::new(self.location.clone())
        }
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let mut part = run.wrapped(|measurement| {
            let http = match measurement {
                Measurement::Http(http) => http.clone(),
                _ => HttpReport::default(),
            };
            Measurement::Portal(PortalReport { verdict: None, http, is_encrypted: None, lie: None })
        });
        let limit = Duration::from(self.timeout);
        let (http, ended) = match timeout(limit, self.page().perform(&mut part)).await {
            Ok((http, ended)) => (Some(http), ended),
            // The part has the measurements until then.
            Err(_) => (None, Ok(())),
        };
        if let Err(error @ (ProbeError::Limit(_) | ProbeError::InterfaceLost(_))) = ended {
            return Err(error);
        }
        let http = match (http, part.measurement()) {
            (Some(http), _) => http,
            (None, Some(Measurement::Http(http))) => http,
            (None, _) => HttpReport::default(),
        };
        let lie = self.lie(run, &http.addresses).await?;
        let resolution = match (lie, http.addresses.is_empty()) {
            (Some(_), _) => Resolution::Lie,
            (None, true) => Resolution::Missing,
            (None, false) => Resolution::Plausible,
        };
        let answer = match http.status {
            None => Answer::Silent,
            Some(status) => Answer::Response {
                status,
                as_expected: status == self.status && (status != 204 || http.body == Size::ZERO),
                location: http.location.clone(),
            },
        };
        let is_encrypted = match http.server {
            Some(server) => self.encrypted(run, server.ip()).await?,
            None => None,
        };
        let verdict = Some(verdict(resolution, &answer, is_encrypted));
        run.report(Measurement::Portal(PortalReport { verdict, http, is_encrypted, lie }));
        Ok(())
    }

    /// Compares the answers of the network's resolver with those of the second one.
    async fn lie(&self, run: &mut Run, own: &[IpAddr]) -> Result<Option<dns::Lie>, ProbeError> {
        let host = &self.location.origin().host;
        let (Some(second), Err(_)) = (self.second, host.parse::<IpAddr>()) else {
            return Ok(None);
        };
        let Transfer { up, down, .. } = Self::second_query();
        run.spend(up, down)?;
        let resolver = run.network().resolver();
        let query = resolver.query(second, host, Family::V4, Transport::Udp, Edns::Offered);
        let response = timeout(Duration::from(self.timeout), query).await;
        let answer = response.ok().and_then(Result::ok).map(|response| response.answer);
        let second = match answer {
            Some(DnsAnswer::Addresses(addresses)) => dns::Answer::Addresses(addresses),
            Some(DnsAnswer::NoSuchName) => dns::Answer::NoName,
            _ => dns::Answer::Failure,
        };
        let own = match own.is_empty() {
            true => dns::Answer::Failure,
            false => dns::Answer::Addresses(own.to_vec()),
        };
        Ok(lie(&own, &second, None))
    }

    /// Whether the host proves its name; a portal cannot.
    async fn encrypted(&self, run: &mut Run, host: IpAddr) -> Result<Option<bool>, ProbeError> {
        let Transfer { up, down, .. } = self.tls();
        run.spend(up, down)?;
        let server = SocketAddr::new(host, Self::TLS_PORT);
        let path = run.path().clone();
        let connect = async { socket(&path, server)?.connect(server).await };
        let limit = Duration::from(self.timeout);
        let Ok(Ok(stream)) = timeout(limit, connect).await else { return Ok(None) };
        let config = tls::config(&self.trust, &[b"http/1.1"])
            .map_err(|error| ProbeError::Tls(error.to_string()))?;
        let name = &self.location.origin().host;
        let handshake = timeout(limit, tls::handshake(config, name, server, stream)).await;
        Ok(match handshake {
            Ok(Ok(_)) => Some(true),
            Ok(Err(TlsError::Certificate(..))) => Some(false),
            _ => None,
        })
    }

    fn second_query() -> Transfer {
        Transfer {
            start: Span::ZERO,
            duration: Span::ZERO,
            up: Size::from_bytes(400),
            down: Size::from_bytes(1_400),
        }
    }

    fn tls(&self) -> Transfer {
        Transfer {
            start: Span::ZERO,
            duration: self.timeout * 2,
            up: Size::from_bytes(8 << 10),
            down: Size::from_bytes(32 << 10),
        }
    }
}

impl Probe for Portal {
    fn name(&self) -> &'static str {
        "portal"
    }

    fn target(&self) -> String {
        self.page().target()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        if self.location.origin().secure {
            return Err(InvalidParameter(
                "a portal can answer only http:// and not https://".to_owned(),
            ));
        }
        let query = Transfer { duration: self.timeout, ..Self::second_query() };
        let rest = Plan::new(vec![query]).then(Span::ZERO, &Plan::new(vec![self.tls()]));
        Ok(self.page().plan()?.then(Span::ZERO, &rest))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
