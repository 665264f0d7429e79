//! Indicators of a network at a decision: what probes in the two seconds before it measure, and its
//! signals. Nothing is read from the traces themselves.

use manyways_link::{Output, Packet, Pipe};
use manyways_model::select::Indicator;
use manyways_trace::scenario::LinkSpec;
use manyways_unit::quantile::interpolated;
use manyways_unit::{Rate, Size, Span, Time};

use super::place::Signals;

/// Time before the decision at which the probes begin: a DNS query, pings and a burst, one after the
/// other.
const LEAD: Span = Span::from_secs(2);
/// From the DNS query to the first ping.
const QUERY_TIME: Span = Span::from_millis(100);
/// Pings, and the time from one to the next (Delphi, table 3.2; the interval is made up).
const PINGS: u64 = 10;
const PING_INTERVAL: Span = Span::from_millis(100);
/// From the last ping to the burst.
const REST: Span = Span::from_millis(200);
/// Datagrams of the burst towards the device, their payload, and the rate at which they are sent.
/// Delphi's burst has 200 KB.
const DATAGRAMS: u64 = 50;
const PAYLOAD: Size = Size::from_bytes(1_200);
const BURST_RATE: Rate = Rate::from_mbps(60);
/// Headers of IPv4 and UDP.
const HEADERS: Size = Size::from_bytes(28);
/// A SYN or its answer with options, a DNS query and its answer (usual sizes).
const HANDSHAKE: Size = Size::from_bytes(60);
const QUERY: Size = Size::from_bytes(60);
const ANSWER: Size = Size::from_bytes(120);
/// IP bytes of a burst.
pub const BURST_BYTES: u64 = DATAGRAMS * (PAYLOAD.as_bytes() + HEADERS.as_bytes());
/// IP bytes of all probes of one network before one decision: 62,780.
pub const PROBE_BYTES: u64 =
    2 * PINGS * HANDSHAKE.as_bytes() + QUERY.as_bytes() + ANSWER.as_bytes() + BURST_BYTES;

/// Numbers of packets: the query, the pings, the datagrams.
const DNS: u64 = 0;
const FIRST_PING: u64 = 1;
const FIRST_DATAGRAM: u64 = FIRST_PING + PINGS;

/// The known indicators of a network at this time of its traces.
///
/// A ping or query without an answer until the decision is left out, and a datagram that has not
/// arrived until then is lost. A rate needs two datagrams, and is 0 if fewer have arrived.
pub fn indicators(link: &LinkSpec, signals: &Signals, decision: Span) -> Vec<(Indicator, f64)> {
    let arrivals = probe(link, decision.saturating_sub(LEAD));
    let round_trip = |number: u64| {
        let (_, at) = arrivals.iter().find(|(found, _)| *found == number)?;
        Some(at.since(sent_at(number)).as_secs_f64())
    };
    let mut found = signals.before(decision.as_nanos() / 1_000_000_000).to_vec();

    let pings: Vec<f64> = (FIRST_PING..FIRST_DATAGRAM).filter_map(round_trip).collect();
    if let Some(mean) = mean(&pings) {
        let deviations: Vec<f64> = pings.iter().map(|ping| (ping - mean).abs()).collect();
        found.push((Indicator::PingMin, pings.iter().copied().fold(f64::INFINITY, f64::min)));
        found.push((Indicator::PingMax, pings.iter().copied().fold(0.0, f64::max)));
        found.push((Indicator::PingMean, mean));
        found.extend(self::mean(&deviations).map(|mean| (Indicator::PingDeviation, mean)));
    }
    found.extend(round_trip(DNS).map(|seconds| (Indicator::DnsTime, seconds)));

    let burst: Vec<f64> = arrivals
        .iter()
        .filter(|(number, _)| *number >= FIRST_DATAGRAM)
        .map(|(_, at)| at.as_secs_f64())
        .collect();
    let mut gaps: Vec<f64> = burst.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let bits = PAYLOAD.as_bits() as f64 * gaps.len() as f64;
    let seconds: f64 = gaps.iter().sum();
    let rate = if seconds > 0.0 { bits / seconds / 1e6 } else { 0.0 };
    found.push((Indicator::UdpRate, rate));
    found.push((Indicator::UdpLoss, 1.0 - burst.len() as f64 / DATAGRAMS as f64));
    found.extend(mean(&gaps).map(|mean| (Indicator::UdpGapMean, mean)));
    found.extend(interpolated(&gaps, 0.5).map(|gap| (Indicator::UdpGapMedian, gap)));
    found.extend(interpolated(&gaps, 0.9).map(|gap| (Indicator::UdpGapP90, gap)));
    found
}

/// When a packet is sent, if the probes begin at the origin.
fn sent_at(number: u64) -> Time {
    let times = |span: Span, count: u64| Span::from_nanos(span.as_nanos() * count);
    let ping = |ping: u64| Time::ZERO + QUERY_TIME + times(PING_INTERVAL, ping);
    match number {
        DNS => Time::ZERO,
        FIRST_PING..FIRST_DATAGRAM => ping(number - FIRST_PING),
        _ => {
            let each = BURST_RATE.time_for(PAYLOAD);
            ping(PINGS - 1) + REST + times(each, number - FIRST_DATAGRAM)
        }
    }
}

/// Sends all probes when the traces are at `position`. Returns the arrivals at the device until the
/// decision, in their order: number of the packet and time.
fn probe(link: &LinkSpec, position: Span) -> Vec<(u64, Time)> {
    let end = Time::ZERO + LEAD;
    let [mut down, mut up] = [&link.down, &link.up].map(|way| {
        let mut pipe = Pipe::new(way, 1);
        pipe.restart(Time::ZERO, position);
        pipe
    });
    let mut arrivals = Vec::new();
    let mut next = DNS;
    loop {
        let sending = (next < FIRST_DATAGRAM + DATAGRAMS).then(|| sent_at(next));
        let now = [sending, up.next_wakeup(), down.next_wakeup()].into_iter().flatten().min();
        let Some(now) = now.filter(|now| *now <= end) else { return arrivals };
        while let Some(output) = up.poll(now) {
            if let Output::Deliver { id, .. } = output {
                let size = if id == DNS { ANSWER } else { HANDSHAKE };
                down.handle(now, Packet::single(id, size));
            }
        }
        while let Some(output) = down.poll(now) {
            if let Output::Deliver { at, id, .. } = output {
                arrivals.push((id, at));
            }
        }
        if sending.is_some_and(|at| at <= now) {
            match next {
                DNS => up.handle(now, Packet::single(next, QUERY)),
                FIRST_PING..FIRST_DATAGRAM => up.handle(now, Packet::single(next, HANDSHAKE)),
                _ => down.handle(now, Packet::single(next, PAYLOAD + HEADERS)),
            }
            next += 1;
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
