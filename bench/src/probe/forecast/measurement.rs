//! The measurement of `manyways probe compare` in virtual time: its order, its transfers and its
//! cores, over emulated links.

use std::collections::VecDeque;

use manyways_link::{Output, Packet, Pipe};
use manyways_model::probe::compare::{NetworkMeasurement, Transfer};
use manyways_model::probe::round_trips::{EchoSchedule, Next, RoundTripSummary};
use manyways_model::probe::throughput::Throughput;
use manyways_trace::scenario::{DirectionSpec, LinkSpec};
use manyways_unit::{Size, Span, Time};

use crate::virtual_tcp::{Growth, Order, Transferred, Way, transfer};

/// Bytes of each transfer.
pub const BYTES: usize = 1_000_000;
/// Maximum duration of a transfer, and the time beyond it for handshakes and the last bytes.
const DURATION: Span = Span::from_secs(30);
const GRACE: Span = Span::from_secs(15);
/// Control connection (TCP, TLS 1.3, order), and the handshake of the data connection.
const EXCHANGES: usize = 4;
/// Before each probe of a cellular network, the command looks for other traffic.
const LOOK: Span = Span::from_millis(200);
/// A SYN or its answer, with options.
const HANDSHAKE: Size = Size::from_bytes(60);

/// The measurements of a network.
#[derive(Clone, Debug)]
pub struct Measured {
    pub echoes: RoundTripSummary,
    /// `None` if the transfer did not succeed, as all that follow then.
    pub down: Option<Transfer>,
    pub up: Option<Transfer>,
    pub together: Option<Transfer>,
}

impl Measured {
    /// The input of the comparison; `None` if a part is missing.
    pub fn network(&self) -> Option<NetworkMeasurement> {
        NetworkMeasurement::of(&self.echoes, &self.down?, self.together.as_ref())
    }
}

/// Measures the networks one after the other, and then the downloads together. Returns the end of
/// the measurement too.
pub fn measure(links: &[LinkSpec], offset: Span) -> (Vec<Measured>, Time) {
    let mut now = Time::ZERO;
    let mut found = Vec::new();
    for link in links {
        let echoes = ping(link, offset, &mut now);
        let mut measured = Measured { echoes, down: None, up: None, together: None };
        measured.down = probe(link, offset, &mut now, Way::Down);
        if measured.down.is_some() {
            measured.up = probe(link, offset, &mut now, Way::Up);
        }
        found.push(measured);
    }
    if found.iter().all(|measured| measured.up.is_some()) {
        let begun = now;
        for (link, measured) in links.iter().zip(&mut found) {
            let mut end = begun;
            measured.together = probe(link, offset, &mut end, Way::Down);
            now = now.max(end);
        }
    }
    (found, now)
}

/// One transfer from `now` on; `None` if it does not succeed.
fn probe(link: &LinkSpec, offset: Span, now: &mut Time, way: Way) -> Option<Transfer> {
    let order = Order { way, bytes: BYTES, exchanges: EXCHANGES, growth: Growth::None };
    let begun = *now + look(link);
    *now = begun + DURATION + GRACE;
    let Transferred { requested, arrivals, .. } = transfer(link, offset, begun, order);
    let started = requested.filter(|started| *started < *now)?;
    let mut throughput = Throughput::new(started);
    let (mut bytes, mut last) = (0, started);
    for (at, count) in arrivals.into_iter().filter(|(at, _)| *at <= started + DURATION) {
        throughput.add(at, Size::from_bytes(count as u64));
        bytes += count;
        last = at;
    }
    *now = if bytes < BYTES { started + DURATION } else { last };
    let first_byte = throughput.first_byte().filter(|_| way == Way::Down);
    let (duration, estimate) = (last.since(started), throughput.estimate(last));
    Some(Transfer { bytes: Size::from_bytes(bytes as u64), duration, first_byte, estimate })
}

/// Ten handshakes of TCP from `now` on.
fn ping(link: &LinkSpec, offset: Span, now: &mut Time) -> RoundTripSummary {
    *now += look(link);
    let pipe = |way: &DirectionSpec| {
        let mut pipe = Pipe::new(way, 1);
        pipe.restart(*now, offset + now.since(Time::ZERO));
        pipe
    };
    let (mut down, mut up) = (pipe(&link.down), pipe(&link.up));
    let mut schedule = EchoSchedule::new(10, Span::from_millis(200), Span::from_secs(2));
    loop {
        for (at, sequence) in delivered(&mut up, *now) {
            down.handle(at, Packet::single(sequence, HANDSHAKE));
        }
        for (at, sequence) in delivered(&mut down, *now) {
            schedule.receive(at, sequence);
        }
        match schedule.next(*now) {
            Next::Send => up.handle(*now, Packet::single(schedule.send(*now), HANDSHAKE)),
            Next::Wait(until) => {
                let next = [up.next_wakeup(), down.next_wakeup(), Some(until)];
                let next = next.into_iter().flatten().min().unwrap_or(until);
                *now = next.max(*now + Span::from_nanos(1));
            }
            Next::Done => return schedule.round_trips().summary(),
        }
    }
}

fn look(link: &LinkSpec) -> Span {
    if link.name == "lte" { LOOK } else { Span::ZERO }
}

/// Packets that arrive until `now`.
fn delivered(pipe: &mut Pipe, now: Time) -> VecDeque<(Time, u64)> {
    let mut delivered = VecDeque::new();
    while let Some(output) = pipe.poll(now) {
        if let Output::Deliver { id, .. } = output {
            delivered.push_back((now, id));
        }
    }
    delivered
}
