//! Results of probes as rows of a table.

use std::io;
use std::path::Path;

use manyways_model::qoe::player::Session;
use manyways_record::columns;
use manyways_record::table::{Batch, Column, Row, Schema};
use manyways_unit::{Rate, Span, Time};

use super::dns::DnsReport;
use super::http::HttpReport;
use super::load::{LoadReport, LoadedDirection};
use super::page::PageReport;
use super::peer::message::Direction;
use super::portal::PortalReport;
use super::report::{Measurement, PingReport, Report};
use super::tcp::TcpReport;
use super::trace::TraceReport;
use super::udp::UdpReport;
use super::video::VideoReport;

/// Defines a method for each kind of measurement.
macro_rules! of_kind {
    ($($name:ident $variant:ident $report:ty;)*) => {
        impl Report {
            $(fn $name(&self) -> Option<&$report> {
                match &self.measurement {
                    Some(Measurement::$variant(report)) => Some(report),
                    _ => None,
                }
            })*
        }
    };
}

of_kind! {
    ping Ping PingReport;
    dns Dns DnsReport;
    trace Trace TraceReport;
    portal Portal PortalReport;
    tcp Tcp TcpReport;
    udp Udp UdpReport;
    load Load LoadReport;
    page Page PageReport;
    video Video VideoReport;
}

impl Report {
    /// The exchange of an HTTP or portal probe.
    fn http(&self) -> Option<&HttpReport> {
        match &self.measurement {
            Some(Measurement::Http(http)) => Some(http),
            Some(Measurement::Portal(portal)) => Some(&portal.http),
            _ => None,
        }
    }

    fn loaded(&self, direction: Direction) -> Option<&LoadedDirection> {
        self.load()?.directions.iter().find(|one| one.direction == direction)
    }

    fn loss(&self) -> Option<f64> {
        match (self.ping(), self.udp()) {
            (Some(ping), _) => ping.summary.loss,
            (_, Some(udp)) => udp.summary.loss,
            _ => None,
        }
    }

    fn reordered(&self) -> Option<u64> {
        match (self.ping(), self.udp()) {
            (Some(ping), _) => Some(ping.summary.reordered),
            (_, Some(udp)) => Some(udp.summary.reordered),
            _ => None,
        }
    }

    fn direction(&self) -> Option<&'static str> {
        let direction = self.tcp().map(|tcp| tcp.direction);
        let direction = direction.or_else(|| Some(self.udp()?.direction))?;
        Some(match direction {
            Direction::Up => "up",
            Direction::Down => "down",
        })
    }

    /// Longest time of an answered query of DNS.
    fn slowest_query(&self) -> Option<Span> {
        self.dns()?.queries.iter().filter(|query| !query.is_second).filter_map(|one| one.time).max()
    }

    fn rate_loaded(&self, direction: Direction) -> Option<u64> {
        self.loaded(direction)?.rate.map(Rate::as_bps)
    }

    fn session(&self) -> Option<&Session> {
        self.video()?.session.as_ref()
    }

    fn queueing(&self, direction: Direction) -> Option<Span> {
        self.loaded(direction)?.summary.map(|summary| summary.queueing())
    }
}

impl Row for Report {
    const TABLE: &'static str = "probes";
    const SCHEMA: &'static str = "manyways-probe/1";
    const ABOUT: &'static str = "A probe on a network.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "started" Time "Start of the last attempt." |report| Time::ZERO + report.started;
        "probe" Text "Name of the probe." |report| report.probe;
        "target" Name "The measured object." |report| report.target.as_str();
        "interface" Text "Interface of the network." |report| report.context.interface.as_str();
        "kind" Text "Kind of network, for example `wifi`." |report| report.context.kind;
        "metered" Flag "Whether the network costs by volume." |report| report.context.is_metered;
        "ipv4" Flag "Whether the interface has an IPv4 address." |report| report.context.has_ipv4;
        "ipv6" Flag "Whether the interface has an IPv6 address." |report| report.context.has_ipv6;
        "signal" Number "Signal level in dBm." |report| report.context.signal_dbm;
        "active_before" Flag "Whether packets passed shortly before."
            |report| report.context.is_active_before;
        "ending" Text "`complete`, `data-limit`, `prediction`, `stopped` or `failed`."
            |report| report.ending.name();
        "message" Text "Reason of an early end." |report| report.ending.message();
        "attempts" Count "Number of attempts." |report| u64::from(report.attempts);
        "predicted_up" Count "Maximum bytes sent." |report| report.predicted.up.as_bytes();
        "predicted_down" Count "Maximum bytes received." |report| report.predicted.down.as_bytes();
        "predicted_duration" Span "Maximum duration." |report| report.predicted.duration;
        "predicted_energy" Number "Maximum energy of the radio in joules."
            |report| report.predicted.energy.map(|energy| energy.as_joules());
        "used_up" Count "Bytes sent." |report| report.used.up.as_bytes();
        "used_down" Count "Bytes received." |report| report.used.down.as_bytes();
        "duration" Span "Duration of the last attempt." |report| report.used.duration;
        "foreign_up" Count "Bytes that other programs sent meanwhile."
            |report| report.foreign.map(|foreign| foreign.up.as_bytes());
        "foreign_down" Count "Bytes that other programs received meanwhile."
            |report| report.foreign.map(|foreign| foreign.down.as_bytes());
        "disturbed" Flag "Whether other programs can have changed the result."
            |report| report.foreign.map(|foreign| foreign.is_noticeable());
        "round_trip" Span "Median round trip of `ping`."
            |report| report.ping().and_then(|ping| ping.summary.median);
        "round_trip_min" Span "Minimum round trip of `ping`."
            |report| report.ping().and_then(|ping| ping.summary.min);
        "round_trip_p90" Span "90th percentile of the round trips of `ping`."
            |report| report.ping().and_then(|ping| ping.summary.p90);
        "jitter" Span "Mean difference of consecutive round trips of `ping`."
            |report| report.ping().and_then(|ping| ping.summary.jitter);
        "loss" Number "Lost share of the packets of `ping` or `udp`." |report| report.loss();
        "reordered" Count "Reordered packets of `ping` or `udp`." |report| report.reordered();
        "direction" Text "Direction of `tcp` or `udp`." |report| report.direction();
        "rate" Count "Throughput of `tcp` without slow start, in bits a second."
            |report| report.tcp().and_then(|tcp| tcp.estimate).map(|one| one.rate.as_bps());
        "rate_error" Number "Relative error of the rate."
            |report| report.tcp().and_then(|tcp| tcp.estimate?.error);
        "variation" Span "90th percentile of the delay variation of `udp`."
            |report| report.udp().and_then(|udp| udp.summary.p90_variation);
        "rate_loaded_down" Count "Throughput of `load` down, in bits a second."
            |report| report.rate_loaded(Direction::Down);
        "rate_loaded_up" Count "Throughput of `load` up, in bits a second."
            |report| report.rate_loaded(Direction::Up);
        "queueing_down" Span "Increase of the round trip under load down."
            |report| report.queueing(Direction::Down);
        "queueing_up" Span "Increase of the round trip under load up."
            |report| report.queueing(Direction::Up);
        "query" Span "Longest time of an answered query of `dns`." |report| report.slowest_query();
        "lie" Text "Wrong answer of the name server." |report| match (report.dns(), report.portal()) {
            (Some(dns), _) => dns.lie.map(|lie| lie.name()),
            (_, Some(portal)) => portal.lie.map(|lie| lie.name()),
            _ => None,
        };
        "rewrites_missing_names" Flag "Whether the name server made up an address."
            |report| report.dns().and_then(|dns| dns.rewrites_missing_names);
        "hops" Count "Hops of `trace`." |report| report.trace().map(|trace| trace.hops.len() as u64);
        "delay_hop" Count "Hop of `trace` where the delay begins."
            |report| report.trace().and_then(|trace| trace.delay).map(|one| one.hop as u64);
        "loss_hop" Count "Hop of `trace` where loss begins."
            |report| report.trace().and_then(|trace| trace.loss).map(|one| one.hop as u64);
        "status" Count "Status of the HTTP response."
            |report| report.http().and_then(|http| http.status).map(u64::from);
        "lookup" Span "Look-up of the name by `http`."
            |report| report.http().and_then(|http| http.phases.lookup);
        "connect" Span "TCP handshake of `http`."
            |report| report.http().and_then(|http| http.phases.connect);
        "tls" Span "TLS handshake of `http`."
            |report| report.http().and_then(|http| http.phases.tls);
        "first_byte" Span "From the request of `http` to the first byte."
            |report| report.http().and_then(|http| http.phases.first_byte);
        "total" Span "Whole exchange of `http`."
            |report| report.http().and_then(|http| http.phases.total);
        "page_interactive" Span "Median page-interactive time (PIT) of `page`."
            |report| report.page().and_then(|page| page.medians().interactive);
        "page_load" Span "Median page load time (PLT) of `page`."
            |report| report.page().and_then(|page| page.medians().load);
        "first_contentful_paint" Span "Median first contentful paint of `page`."
            |report| report.page().and_then(|page| page.medians().first_contentful_paint);
        "largest_contentful_paint" Span "Median largest contentful paint of `page`."
            |report| report.page().and_then(|page| page.medians().largest_contentful_paint);
        "objects" Count "Median number of requests of `page`."
            |report| report.page().map(|page| page.medians().objects);
        "runs" Count "Loads of `page`." |report| report.page().map(|page| page.runs.len() as u64);
        "verdict" Text "`validated`, `captive`, `dns-lies` or `no-internet`."
            |report| report.portal().and_then(|portal| portal.verdict.as_ref()).map(|one| one.name());
        "startup" Span "Time until the first picture of `video`."
            |report| report.session().and_then(|session| session.startup);
        "played" Span "Duration of the film that `video` played."
            |report| report.session().map(|session| session.played);
        "bitrate" Count "Mean bitrate of `video` in bits a second."
            |report| report.video().and_then(VideoReport::bitrate).map(|rate| rate.as_bps());
        "stalls" Count "Stalls of `video`."
            |report| report.session().map(|session| session.stalls.len() as u64);
        "stalled" Span "Duration of all stalls of `video`."
            |report| report.session().map(|session| session.stalled());
        "switches" Count "Changes of the bitrate of `video`."
            |report| report.session().map(|session| session.switches() as u64);
    };
}

/// Writes a Parquet table with a row for each result.
///
/// # Errors
/// The file cannot be written.
pub fn write_table(path: &Path, reports: &[Report]) -> io::Result<()> {
    let mut batch = Batch::of::<Report>();
    for report in reports {
        batch.push(report, None);
    }
    manyways_capture::write_table(path, &Schema::of::<Report>(), &batch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_columns_are_unique() {
        let names: Vec<&str> = Report::COLUMNS.iter().map(|column| column.name).collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(unique.len(), names.len());
    }
}
