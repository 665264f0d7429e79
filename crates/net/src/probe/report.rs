//! Results of probes.

use manyways_model::probe::cost::{Cost, LimitReached};
use manyways_model::probe::round_trips::{Echo, RoundTripSummary};
use manyways_unit::Span;
use std::net::IpAddr;

use super::contract::ProbeError;
use super::dns::DnsReport;
use super::exec::ExecReport;
use super::http::HttpReport;
use super::load::LoadReport;
use super::network::Traffic;
use super::page::PageReport;
use super::ping::PingMethod;
use super::portal::PortalReport;
use super::rrc::RrcReport;
use super::tcp::TcpReport;
use super::trace::TraceReport;
use super::udp::UdpReport;
use super::video::VideoReport;

/// The result of a probe on a network, also of one that ended early.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Name of the probe.
    pub probe: &'static str,
    pub target: String,
    pub context: Context,
    /// Start of the last attempt, as time since the Unix epoch.
    pub started: Span,
    /// Number of attempts; more than one only if other programs disturbed an isolated probe.
    pub attempts: u32,
    pub predicted: Cost,
    /// Of the last attempt.
    pub used: Cost,
    /// Traffic of other programs meanwhile; `None` if the counters could not be read.
    pub foreign: Option<Traffic>,
    pub ending: Ending,
    /// `None` if nothing was measured.
    pub measurement: Option<Measurement>,
}

/// Circumstances of a measurement.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Context {
    pub interface: String,
    /// Kind of network, for example `wifi`.
    pub kind: &'static str,
    pub is_metered: bool,
    pub has_ipv4: bool,
    pub has_ipv6: bool,
    /// Signal level of a wireless LAN.
    pub signal_dbm: Option<f64>,
    /// Whether packets passed shortly before, so that a radio was connected; known of cellular
    /// networks, and if a profile of the radio is given.
    pub is_active_before: Option<bool>,
}

/// How a probe ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ending {
    Complete,
    /// The prediction or the data limit was reached.
    Limit(LimitReached),
    /// The caller stopped the probe.
    Stopped,
    Failed(ProbeError),
}

/// The values that a probe measured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Measurement {
    Ping(PingReport),
    Dns(DnsReport),
    Trace(TraceReport),
    Http(HttpReport),
    Portal(PortalReport),
    Load(LoadReport),
    Tcp(TcpReport),
    Udp(UdpReport),
    Exec(ExecReport),
    Page(PageReport),
    Rrc(RrcReport),
    Video(VideoReport),
}

/// Result of a ping.
#[derive(Clone, Debug)]
pub struct PingReport {
    pub address: IpAddr,
    pub method: PingMethod,
    /// In the order of their sequence numbers.
    pub echoes: Vec<Echo>,
    pub summary: RoundTripSummary,
    /// Number of TCP connections that the target refused, which are answers too.
    pub refused: u64,
}
