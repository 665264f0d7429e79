use std::collections::{BTreeMap, BTreeSet};

use manyways_unit::{Random, Size, Span, Time};
use proptest::prelude::*;

use super::super::machine::{Action, Drive, Input};
use super::super::outcome::{Ending, Outcome};
use super::super::plan::{Cancellation, Plan, Predecessor};
use super::super::recording::{Completion, Connection, Exchange, Protocol, Recording};
use super::at;
use super::network::{Network, START, run};

const ORIGINS: [&str; 2] = ["https://a.example", "https://b.example"];

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Http1), Just(Protocol::Http2)]
}

/// Times of which many are equal, and some a second apart.
fn millis() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..12_u64, 2 => 0..200_u64, 1 => 0..5_000_u64]
}

fn some(time: impl Strategy<Value = u64>) -> impl Strategy<Value = Option<Time>> {
    prop::option::of(time.prop_map(at))
}

prop_compose! {
    /// Any connection, also with contradictions.
    fn connection()(
        protocol in protocol(),
        opened in some(millis()),
        ready in some(millis()),
        closed in some(millis()),
    ) -> Connection {
        Connection { protocol, opened, ready, closed }
    }
}

prop_compose! {
    fn exchange()(
        connection in prop::option::weighted(0.8, 0..5_usize),
        origin in 0..ORIGINS.len(),
        protocol in protocol(),
        started in millis(),
        sent in some(millis()),
        ended in some(millis()),
        bytes in prop_oneof![Just(0), 1..5_000_u64],
        completion in prop_oneof![
            6 => Just(Completion::Complete),
            1 => Just(Completion::AbortedByClient),
            1 => Just(Completion::AbortedByServer),
            1 => Just(Completion::Unfinished),
        ],
    ) -> Exchange<'static> {
        Exchange {
            connection,
            origin: ORIGINS[origin],
            protocol,
            started: at(started),
            sent,
            ended,
            uploaded: Size::ZERO,
            downloaded: Size::from_bytes(bytes),
            completion,
        }
    }
}

fn recording() -> impl Strategy<Value = (Vec<Connection>, Vec<Exchange<'static>>)> {
    (prop::collection::vec(connection(), 0..5), prop::collection::vec(exchange(), 0..40))
}

/// A recording without contradictions in its times. On HTTP/1 nothing is cut, because that closes the
/// connection.
fn consistent() -> impl Strategy<Value = (Vec<Connection>, Vec<Exchange<'static>>)> {
    recording().prop_map(|(connections, mut exchanges)| {
        for exchange in &mut exchanges {
            let sent = exchange.sent();
            let connection = exchange.connection.and_then(|place| connections.get(place));
            let protocol = connection.map_or(exchange.protocol, |known| known.protocol);
            let is_known = connection.is_some();
            exchange.sent = Some(sent);
            exchange.started = exchange.started.min(sent);
            exchange.ended = Some(sent + exchange.ended.unwrap_or_default().since(Time::ZERO));
            if protocol == Protocol::Http1 {
                exchange.completion = Completion::Complete;
                // Derived connections are too few for what they have to carry at a time.
                exchange.ended = if is_known { exchange.ended } else { Some(sent) };
            }
        }
        (connections, exchanges)
    })
}

/// Handshakes and exchanges take any time, and may fail at any time. The cut ones can be endless.
struct Hostile {
    random: Random,
    failures: f64,
    cancellations: Vec<Option<Cancellation>>,
}

impl Hostile {
    fn time(&mut self) -> Span {
        match self.random.up_to(2) {
            0 => Span::ZERO,
            _ => Span::from_millis(self.random.up_to(300)),
        }
    }
}

impl Network for Hostile {
    fn open(&mut self, connection: usize, _: u32) -> Vec<(Span, Input)> {
        let time = self.time();
        if self.random.chance(self.failures) {
            return vec![(time, Input::ConnectionFailed(connection))];
        }
        let mut events = vec![(time, Input::Opened(connection))];
        if self.random.chance(self.failures) {
            events.push((time + self.time(), Input::ConnectionFailed(connection)));
        }
        events
    }

    fn send(&mut self, exchange: usize) -> Vec<(Span, Input)> {
        let mut time = self.time();
        let mut events = vec![(time, Input::ResponseStarted(exchange))];
        let total = match self.cancellations[exchange] {
            Some(Cancellation::Received(limit)) => limit,
            _ => Size::from_bytes(self.random.up_to(9)),
        };
        time += self.time();
        events.push((time, Input::Received { exchange, total }));
        time += self.time();
        if self.random.chance(self.failures) {
            events.push((time, Input::Failed(exchange)));
        } else if self.cancellations[exchange].is_none() || self.random.chance(0.3) {
            events.push((time, Input::Ended(exchange)));
        }
        events
    }
}

/// The network of the recording, or one that takes no time.
struct Recorded<'a> {
    exchanges: &'a [Exchange<'static>],
    handshakes: Vec<Span>,
    is_instantaneous: bool,
}

impl<'a> Recorded<'a> {
    fn new(plan: &Plan, connections: &[Connection], exchanges: &'a [Exchange<'static>]) -> Self {
        let handshakes = plan.connections().iter().enumerate().map(|(place, planned)| {
            let Some(opened) = planned.opening.and_then(|_| connections[place].opened) else {
                return Span::ZERO;
            };
            let first =
                planned.exchanges.first().map_or(Time::MAX, |first| exchanges[*first].sent());
            let ready = connections[place].ready.filter(|ready| *ready <= first);
            ready.map_or(Span::ZERO, |ready| ready.since(opened))
        });
        Self { exchanges, handshakes: handshakes.collect(), is_instantaneous: false }
    }
}

impl Network for Recorded<'_> {
    fn open(&mut self, connection: usize, _: u32) -> Vec<(Span, Input)> {
        let takes = if self.is_instantaneous { Span::ZERO } else { self.handshakes[connection] };
        vec![(takes, Input::Opened(connection))]
    }

    fn send(&mut self, exchange: usize) -> Vec<(Span, Input)> {
        let recorded = &self.exchanges[exchange];
        let takes = match (self.is_instantaneous, recorded.ended) {
            (false, Some(ended)) => ended.since(recorded.sent()),
            _ => Span::ZERO,
        };
        let mut events = Vec::new();
        if !recorded.downloaded.is_zero() {
            events.push((takes, Input::Received { exchange, total: recorded.downloaded }));
        }
        if !recorded.is_cut() {
            events.push((takes, Input::Ended(exchange)));
        }
        events
    }
}

/// Times when the conditions of an exchange were met, without its connection.
fn conditions_met(plan: &Plan, outcome: &Outcome, place: usize) -> Time {
    let planned = plan.exchanges()[place];
    let end = |place: usize| outcome.exchanges[place].end.unwrap();
    let due = planned.after.map_or(START, end) + planned.gap;
    match planned.predecessor {
        Some(Predecessor::Ended(previous)) => due.max(end(previous)),
        Some(Predecessor::Sent(previous)) => {
            due.max(outcome.exchanges[previous].start.unwrap_or_else(|| end(previous)))
        }
        None => due,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_drive_ends_and_nothing_starts_before_its_conditions(
        (connections, exchanges) in recording(),
        seed: u64,
        failures in prop_oneof![Just(0.0), Just(0.1), Just(0.6), Just(1.0)],
    ) {
        let recording = Recording { connections: &connections, exchanges: &exchanges };
        let plan = Plan::new(&recording);
        let cancellations = plan.exchanges().iter().map(|one| one.cancellation).collect();
        let mut network = Hostile { random: Random::new(seed), failures, cancellations };
        let (drive, log) = run(plan.clone(), &mut network);
        let outcome = drive.outcome();

        let mut sent = BTreeMap::new();
        for (_, action) in &log {
            if let Action::Send(place) = action {
                *sent.entry(*place).or_insert(0) += 1;
            }
        }
        for (place, times) in outcome.exchanges.iter().enumerate() {
            let ending = times.ending.unwrap();
            prop_assert!(sent.get(&place) == times.start.map(|_| &1));
            prop_assert!(times.start.is_some() || ending == Ending::Failed);
            prop_assert!(failures > 0.0 || times.start.is_some());
            let due = conditions_met(&plan, &outcome, place);
            prop_assert_eq!(times.due, Some(due));
            prop_assert!(times.start.is_none_or(|start| start >= due));
            prop_assert!(times.end >= times.start.max(times.last_byte));
            prop_assert!(times.first_byte.is_none() || times.first_byte >= times.start);
        }
        for (times, planned) in outcome.connections.iter().zip(plan.connections()) {
            let is_used = planned.opening.is_some() || !planned.exchanges.is_empty();
            prop_assert_eq!(times.attempts > 0, is_used);
        }
        prop_assert!(outcome.last_byte_time() <= outcome.app_response_time());
    }

    #[test]
    fn the_network_of_the_recording_reproduces_its_starts(
        (connections, exchanges) in consistent(),
    ) {
        let recording = Recording { connections: &connections, exchanges: &exchanges };
        let plan = Plan::new(&recording);
        let mut network = Recorded::new(&plan, &connections, &exchanges);
        let (drive, _) = run(plan.clone(), &mut network);
        let opened = plan.connections().iter().zip(&connections)
            .filter_map(|(planned, recorded)| planned.opening.and(recorded.opened));
        let first = exchanges.iter().map(Exchange::sent).chain(opened).min().unwrap_or_default();
        for (recorded, times) in exchanges.iter().zip(drive.outcome().exchanges) {
            prop_assert_eq!(times.start.unwrap().since(START), recorded.sent().since(first));
            prop_assert!(times.ending != Some(Ending::Failed));
        }
    }

    #[test]
    fn an_instantaneous_network_reproduces_the_gaps(
        (connections, exchanges) in consistent(),
    ) {
        let recording = Recording { connections: &connections, exchanges: &exchanges };
        let plan = Plan::new(&recording);
        let mut network = Recorded::new(&plan, &connections, &exchanges);
        network.is_instantaneous = true;
        let (drive, _) = run(plan.clone(), &mut network);
        let outcome = drive.outcome();
        for (place, (planned, times)) in plan.exchanges().iter().zip(&outcome.exchanges).enumerate() {
            let ready = outcome.connections[planned.connection].ready.unwrap();
            let due = conditions_met(&plan, &outcome, place);
            prop_assert_eq!(times.start, Some(due.max(ready + planned.lag)));
            // Without a handshake in it, the gap is the recorded one.
            if let Some(after) = planned.after.filter(|_| planned.lag.is_zero())
                && connections.get(planned.connection).is_none_or(|known| known.ready.is_none())
            {
                let ended = exchanges[after].ended().unwrap();
                prop_assert_eq!(planned.gap, exchanges[place].sent().since(ended));
            }
        }
    }

    #[test]
    fn any_events_are_survived(
        (connections, exchanges) in recording(),
        events in prop::collection::vec((0..6_u8, 0..42_usize, millis(), any::<bool>()), 0..200),
    ) {
        let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
        let mut drive = Drive::new(plan, START);
        let mut sent = BTreeSet::new();
        let mut poll = |drive: &mut Drive, now| {
            while let Some(action) = drive.poll(now) {
                if let Action::Send(place) = action {
                    assert!(sent.insert(place), "{place} is sent again");
                }
            }
        };
        let input = |kind, number| match kind {
            0 => Input::Opened(number),
            1 => Input::ConnectionFailed(number),
            2 => Input::ResponseStarted(number),
            3 => Input::Received { exchange: number, total: Size::from_bytes(5_000) },
            4 => Input::Ended(number),
            _ => Input::Failed(number),
        };
        for (kind, number, later, polls) in events {
            // Also times before the last one.
            let now = drive.next_wakeup().unwrap_or(START) + Span::from_millis(later);
            drive.handle(now - Span::from_millis(100), input(kind, number));
            if polls {
                poll(&mut drive, now);
            }
        }
        // From here on, everything succeeds at once.
        for _ in 0..=4 * (exchanges.len() + connections.len()) {
            let now = drive.next_wakeup().unwrap_or(START);
            poll(&mut drive, now);
            for number in 0..42 {
                drive.handle(now, Input::Opened(number));
                poll(&mut drive, now);
                drive.handle(now, Input::Ended(number));
                poll(&mut drive, now);
            }
        }
        prop_assert!(drive.is_done());
        prop_assert!(drive.outcome().exchanges.iter().all(|times| times.ending.is_some()));
    }

    #[test]
    fn exchanges_wait_for_the_last_end_before_them((connections, exchanges) in recording()) {
        let plan = Plan::new(&Recording { connections: &connections, exchanges: &exchanges });
        for (place, (planned, exchange)) in plan.exchanges().iter().zip(&exchanges).enumerate() {
            let earlier = |other: &usize| {
                let one = &exchanges[*other];
                (one.sent(), *other) < (exchange.sent(), place) && !one.is_cut()
                    && one.ended().is_some_and(|ended| ended <= exchange.sent())
            };
            let ends = (0..exchanges.len()).filter(earlier).map(|other| exchanges[other].ended());
            let last = ends.max().flatten();
            prop_assert_eq!(planned.after.and_then(|after| exchanges[after].ended()), last);
        }
    }
}
