//! Estimates of the network of a load: round trips, capacity, and the share of each response's time
//! that it spent at the bottleneck.
//!
//! Model: each request takes a round trip, the time of the server, and then the bottleneck. All transfers
//! share the capacity of the bottleneck equally. The time of a response that exceeds the server's
//! and that of its own bytes is divided by the utilization of the bottleneck in that time: a busy
//! one made the response wait, an idle one did not. Windows of TCP that are smaller than the path
//! holds (slow start) cost round trips.

use std::collections::{BTreeMap, BTreeSet};

use super::load::{Load, Protocol, Request};
use super::steps::Steps;
use crate::slow_start;

/// The capacity is the greatest rate over this part of the load, within limits: bytes that follow a
/// lost packet come to the browser together, and look faster than the bottleneck.
const CAPACITY_WINDOW: f64 = 1.0 / 3.0;
const CAPACITY_WINDOWS: (f64, f64) = (0.15, 1.0);
/// A bottleneck that delivers this part of its capacity to the browser is busy: the rest are headers,
/// retransmissions, and bytes that wait for a lost packet.
const BUSY: f64 = 0.7;
/// Responses that limit the time at the bottleneck: so many before and after, in this time.
const NEIGHBOURS: usize = 2;
const NEAR: f64 = 0.05;
/// A response that was read at once took at least this time.
const MIN_RECEPTION: f64 = 0.001;
/// Round trip if no request has one.
const DEFAULT_ROUND_TRIP: f64 = 0.001;

/// Connections to an origin.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub round_trip: f64,
    /// Typical time to open a connection.
    pub handshake: f64,
    pub multiplexed: bool,
    /// Connections that were open before a request needed them.
    pub spare: usize,
}

/// How a response came through the network. Times in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Carriage {
    pub origin: usize,
    pub round_trip: f64,
    pub server: f64,
    /// Time at the bottleneck before the first byte, if it had no other transfer.
    pub queued: f64,
    /// Parts of the body, in order; the ends of the parts are the request's arrivals.
    pub parts: Vec<Part>,
    pub bytes: f64,
    /// Bytes that the connection had carried before.
    pub carried: f64,
}

/// Reception of a part of a body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Windows that were too small: scales with the round trip.
    pub slow_start: f64,
    /// Neither the network's round trips nor the bottleneck.
    pub fixed: f64,
    /// Time that the bottleneck alone would need.
    pub link: f64,
}

pub(super) struct Network {
    pub origins: Vec<Origin>,
    /// One for each request.
    pub carriages: Vec<Carriage>,
    /// Bytes a second.
    pub capacity: f64,
}

impl Network {
    /// `arrivals` are the times, in order, at which a part of each request's body had arrived that
    /// something waited for.
    pub fn of(load: &Load, steps: &[Steps], arrivals: &[Vec<f64>]) -> Self {
        let arrived = Arrived::of(load, steps);
        let capacity = arrived.capacity();
        let (of_request, origins) = origins(load, steps);
        let carried = carried(load, steps);
        let excesses = steps.iter().zip(&of_request).map(|(steps, origin)| {
            let wait = steps.first_byte - steps.sent;
            wait - origins[*origin].round_trip.min(wait)
        });
        let excesses: Vec<f64> = excesses.collect();
        let queueing = queueing(steps, &excesses);
        let mut carriages = Vec::with_capacity(steps.len());
        // Times at the bottleneck, of all requests.
        let mut at_link: Vec<(f64, f64)> = Vec::new();
        for (index, steps) in steps.iter().enumerate() {
            let size = bytes(&load.requests[index]);
            let origin = of_request[index];
            let wait = steps.first_byte - steps.sent;
            let round_trip = origins[origin].round_trip.min(wait);
            let excess = excesses[index];
            let busy = arrived.utilization(steps.first_byte - excess, steps.first_byte, capacity);
            let queued = (excess * busy).min(queueing[index]);
            at_link.push((steps.first_byte - queued, steps.first_byte));

            let reception = steps.ended - steps.first_byte;
            let linked = arrived.utilization(steps.first_byte, steps.ended, capacity);
            let off_link = reception * (1.0 - linked);
            let slow = stalls(size, capacity, round_trip, carried[index]).min(off_link);
            let mut parts = Vec::with_capacity(arrivals[index].len() + 1);
            let mut last = steps.first_byte;
            for end in arrivals[index].iter().copied().chain([steps.ended]) {
                let end = end.clamp(last, steps.ended);
                let share = if reception > 0.0 { (end - last) / reception } else { 0.0 };
                let link = (end - last) * linked;
                at_link.push((end - link, end));
                parts.push(Part {
                    slow_start: slow * share,
                    fixed: (off_link - slow) * share,
                    link,
                });
                last = end;
            }
            carriages.push(Carriage {
                origin,
                round_trip,
                server: excess - queued,
                queued,
                parts,
                bytes: size,
                carried: carried[index],
            });
        }
        let sharing = Sharing::of(&at_link);
        for (carriage, steps) in carriages.iter_mut().zip(steps) {
            carriage.queued = sharing.alone(steps.first_byte - carriage.queued, steps.first_byte);
            let mut last = steps.first_byte;
            for part in &mut carriage.parts {
                last += part.slow_start + part.fixed + part.link;
                part.link = sharing.alone(last - part.link, last);
            }
        }
        Self { origins, carriages, capacity }
    }
}

impl Carriage {
    /// Factor of the time that small windows cost, if the capacity and the round trip change.
    pub fn slow_start_factor(&self, capacity: f64, rtt_factor: f64, rate_factor: f64) -> f64 {
        let before = stalls(self.bytes, capacity, self.round_trip, self.carried);
        let after =
            stalls(self.bytes, capacity * rate_factor, self.round_trip * rtt_factor, self.carried);
        if before > 0.0 { after / before } else { rtt_factor }
    }
}

/// The greatest time that each response can have waited at the bottleneck. Responses that come one after
/// the other have waited about as long, so that the least excess of them is the limit.
fn queueing(steps: &[Steps], excesses: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..steps.len()).filter(|index| steps[*index].timed).collect();
    order.sort_by(|a, b| steps[*a].first_byte.total_cmp(&steps[*b].first_byte));
    let mut queueing = vec![0.0; steps.len()];
    for (place, index) in order.iter().enumerate() {
        let around = place.saturating_sub(NEIGHBOURS)..(place + NEIGHBOURS + 1).min(order.len());
        let near = order[around]
            .iter()
            .filter(|other| (steps[**other].first_byte - steps[*index].first_byte).abs() <= NEAR);
        queueing[*index] = near.map(|other| excesses[*other]).fold(f64::INFINITY, f64::min);
    }
    queueing
}

/// Time in which a sender waits for ACKs in slow start.
fn stalls(bytes: f64, rate: f64, round_trip: f64, carried: f64) -> f64 {
    if rate <= 0.0 {
        return 0.0;
    }
    (slow_start::seconds_from(slow_start::INITIAL_WINDOW + carried, bytes, rate, round_trip)
        - bytes / rate)
        .max(0.0)
}

/// Bytes of a response.
fn bytes(request: &Request) -> f64 {
    request.body.as_bytes() as f64 + request.headers.as_bytes() as f64
}

/// Bytes that each request's connection had carried before.
fn carried(load: &Load, steps: &[Steps]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..steps.len()).filter(|index| steps[*index].timed).collect();
    order.sort_by(|a, b| steps[*a].sent.total_cmp(&steps[*b].sent));
    let mut totals: BTreeMap<u64, f64> = BTreeMap::new();
    let mut carried = vec![0.0; steps.len()];
    for index in order {
        let request = &load.requests[index];
        if let Some(connection) = request.connection {
            let total = totals.entry(connection).or_default();
            carried[index] = *total;
            *total += request.body.as_bytes() as f64;
        }
    }
    carried
}

/// The origin of each request, and the origins.
fn origins(load: &Load, steps: &[Steps]) -> (Vec<usize>, Vec<Origin>) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_request = Vec::with_capacity(steps.len());
    for request in &load.requests {
        let next = numbers.len();
        of_request.push(*numbers.entry(&request.origin).or_insert(next));
    }
    let mut handshakes = vec![Vec::new(); numbers.len()];
    let mut trips = vec![f64::INFINITY; numbers.len()];
    let mut waits = vec![f64::INFINITY; numbers.len()];
    let mut multiplexed = vec![false; numbers.len()];
    let spare = spare(load, steps, &of_request, numbers.len());
    for (index, steps) in steps.iter().enumerate().filter(|(_, steps)| steps.timed) {
        let origin = of_request[index];
        waits[origin] = waits[origin].min(steps.first_byte - steps.sent);
        multiplexed[origin] |= load.requests[index].protocol != Protocol::Http1;
        if steps.handshake > 0.0 && !load.requests[index].reused {
            handshakes[origin].push(steps.handshake);
            trips[origin] = trips[origin].min(steps.handshake - steps.tls);
        }
    }
    let least = trips.iter().chain(&waits).copied().fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { DEFAULT_ROUND_TRIP };
    let origin = |index: usize| {
        // The server may answer at once, or never.
        let trip = trips[index].min(waits[index]);
        let round_trip = if trip.is_finite() { trip } else { least };
        let times = &mut handshakes[index];
        times.sort_by(f64::total_cmp);
        let handshake = times.get(times.len() / 2).copied().unwrap_or(round_trip);
        Origin { round_trip, handshake, multiplexed: multiplexed[index], spare: spare[index] }
    };
    let origins = (0..numbers.len()).map(origin).collect();
    (of_request, origins)
}

/// Connections to each origin that a browser had opened in advance: those that were used although no
/// request had waited for their handshakes.
fn spare(load: &Load, steps: &[Steps], of_request: &[usize], origins: usize) -> Vec<usize> {
    // Times at which a connection was open, and at which one was used for the first time.
    let mut events: Vec<(f64, bool, usize)> = Vec::new();
    let mut order: Vec<usize> = (0..steps.len()).filter(|index| steps[*index].timed).collect();
    order.sort_by(|a, b| steps[*a].sent.total_cmp(&steps[*b].sent));
    let mut seen = BTreeSet::new();
    for index in order {
        let (request, steps) = (&load.requests[index], &steps[index]);
        if steps.handshake > 0.0 && !request.reused {
            events.push((steps.started + steps.dns + steps.handshake, false, of_request[index]));
        }
        if request.connection.is_some_and(|connection| seen.insert(connection)) {
            events.push((steps.sent, true, of_request[index]));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut unused = vec![0_usize; origins];
    let mut spare = vec![0; origins];
    for (_, is_use, origin) in events {
        if !is_use {
            unused[origin] += 1;
        } else if unused[origin] > 0 {
            unused[origin] -= 1;
        } else {
            spare[origin] += 1;
        }
    }
    spare
}

/// Bytes of all responses over time: points, between which the count grows steadily.
struct Arrived(Vec<(f64, f64)>);

impl Arrived {
    fn of(load: &Load, steps: &[Steps]) -> Self {
        // Changes of the rate.
        let mut changes = Vec::with_capacity(2 * steps.len());
        for (request, steps) in load.requests.iter().zip(steps).filter(|(_, steps)| steps.timed) {
            let size = bytes(request);
            let start = steps.first_byte.min(steps.ended - MIN_RECEPTION);
            let rate = size / (steps.ended - start);
            changes.push((start, rate));
            changes.push((steps.ended, -rate));
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut rate, mut bytes, mut last) = (0.0, 0.0, 0.0);
        let mut points = Vec::with_capacity(changes.len());
        for (time, change) in changes {
            bytes += f64::max(rate, 0.0) * (time - last);
            rate += change;
            last = time;
            points.push((time, bytes));
        }
        Self(points)
    }

    fn until(&self, time: f64) -> f64 {
        interpolated(&self.0, time)
    }

    /// Bytes a second.
    fn capacity(&self) -> f64 {
        let Some((first, last)) = self.0.first().zip(self.0.last()) else { return 0.0 };
        let window = (last.0 - first.0) * CAPACITY_WINDOW;
        let window = window.clamp(CAPACITY_WINDOWS.0, CAPACITY_WINDOWS.1);
        let rate = |start: f64| (self.until(start + window) - self.until(start)) / window;
        let rates = self.0.iter().map(|(time, _)| rate(*time).max(rate(*time - window)));
        rates.fold(0.0, f64::max)
    }

    /// How much of a time the bottleneck was busy.
    fn utilization(&self, start: f64, end: f64, capacity: f64) -> f64 {
        if end <= start || capacity <= 0.0 {
            return 0.0;
        }
        let bytes = self.until(end) - self.until(start);
        (bytes / (capacity * BUSY * (end - start))).clamp(0.0, 1.0)
    }
}

/// Time that a transfer would need alone, over time: its integral, where each of the transfers at the
/// bottleneck has an equal share.
struct Sharing(Vec<(f64, f64)>);

impl Sharing {
    fn of(intervals: &[(f64, f64)]) -> Self {
        let mut changes: Vec<(f64, i64)> = Vec::with_capacity(2 * intervals.len());
        for (start, end) in intervals.iter().filter(|(start, end)| end > start) {
            changes.extend([(*start, 1), (*end, -1)]);
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut active, mut alone, mut last) = (0_i64, 0.0, 0.0);
        let mut points = Vec::with_capacity(changes.len());
        for (time, change) in changes {
            if active > 0 {
                alone += (time - last) / active as f64;
            }
            active += change;
            last = time;
            points.push((time, alone));
        }
        Self(points)
    }

    fn alone(&self, start: f64, end: f64) -> f64 {
        if end <= start {
            return 0.0;
        }
        (interpolated(&self.0, end) - interpolated(&self.0, start)).max(0.0)
    }
}

/// The value at `x` of a line through points with ascending abscissas; level outside.
fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let index = points.partition_point(|point| point.0 <= x);
    let (Some(before), after) =
        (index.checked_sub(1).map(|index| points[index]), points.get(index))
    else {
        return points.first().map_or(0.0, |point| point.1);
    };
    match after {
        Some(after) => before.1 + (after.1 - before.1) * (x - before.0) / (after.0 - before.0),
        None => before.1,
    }
}
