//! Round trips of echoes: loss, delay, jitter and order.

use manyways_unit::{Span, Time, quantile};

/// Echoes in the order of their sequence numbers, from 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RoundTrips {
    echoes: Vec<Echo>,
    /// Answers in the order of their arrival.
    arrivals: Vec<u64>,
    duplicates: u64,
}

/// One echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    pub sent: Time,
    /// `None` without an answer.
    pub round_trip: Option<Span>,
}

/// The result of the echoes. Without answers there is no delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoundTripSummary {
    pub sent: u64,
    pub received: u64,
    /// Share of the echoes without an answer; `None` if none was sent.
    pub loss: Option<f64>,
    /// Answers to echoes that had one already.
    pub duplicates: u64,
    /// Answers that arrived after that of a later echo (RFC 4737, 3.3).
    pub reordered: u64,
    pub min: Option<Span>,
    pub median: Option<Span>,
    pub mean: Option<Span>,
    pub p90: Option<Span>,
    pub max: Option<Span>,
    /// Mean difference between the round trips of two consecutive echoes, both answered (as in
    /// RFC 3393, selected by consecutive packets).
    pub jitter: Option<Span>,
}

impl RoundTrips {
    /// Notes an echo that is sent, and returns its sequence number.
    pub fn send(&mut self, now: Time) -> u64 {
        self.echoes.push(Echo { sent: now, round_trip: None });
        self.echoes.len() as u64 - 1
    }

    /// Notes the answer to the echo with this number. Returns its round trip if it is the first
    /// answer; an answer to an unknown echo is ignored.
    pub fn receive(&mut self, now: Time, sequence: u64) -> Option<Span> {
        let echo = usize::try_from(sequence).ok().and_then(|index| self.echoes.get_mut(index))?;
        if echo.round_trip.is_some() {
            self.duplicates += 1;
            return None;
        }
        let round_trip = now.since(echo.sent);
        echo.round_trip = Some(round_trip);
        self.arrivals.push(sequence);
        Some(round_trip)
    }

    pub fn echoes(&self) -> &[Echo] {
        &self.echoes
    }

    pub fn summary(&self) -> RoundTripSummary {
        let mut sorted: Vec<Span> = self.echoes.iter().filter_map(|echo| echo.round_trip).collect();
        sorted.sort_unstable();
        let (sent, received) = (self.echoes.len() as u64, sorted.len() as u64);
        let jitter = self.echoes.windows(2).filter_map(|pair| {
            let [before, after] = [pair[0].round_trip?, pair[1].round_trip?];
            Some(after.saturating_sub(before) + before.saturating_sub(after))
        });
        let jitter: Vec<Span> = jitter.collect();
        RoundTripSummary {
            sent,
            received,
            loss: (sent > 0).then(|| (sent - received) as f64 / sent as f64),
            duplicates: self.duplicates,
            reordered: reordered(&self.arrivals),
            min: sorted.first().copied(),
            median: quantile::of_sorted(&sorted, 0.5),
            mean: mean(&sorted),
            p90: quantile::of_sorted(&sorted, 0.9),
            max: sorted.last().copied(),
            jitter: mean(&jitter),
        }
    }
}

/// Number of packets that arrived after one with a greater sequence number: the reordered ones of
/// RFC 4737, 3.3, whose expected number is one more than the greatest that has arrived.
pub(super) fn reordered(arrivals: &[u64]) -> u64 {
    let mut expected = 0;
    let mut count = 0;
    for sequence in arrivals {
        if *sequence >= expected {
            expected = sequence + 1;
        } else {
            count += 1;
        }
    }
    count
}

pub(super) fn mean(spans: &[Span]) -> Option<Span> {
    let sum: u128 = spans.iter().map(|span| u128::from(span.as_nanos())).sum();
    let mean = sum.checked_div(spans.len() as u128)?;
    Some(Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
}

/// When echoes are sent, and how long each waits for its answer.
#[derive(Clone, Debug)]
pub struct EchoSchedule {
    count: u64,
    interval: Span,
    timeout: Span,
    round_trips: RoundTrips,
    next_send: Time,
    /// The echoes before this one have an answer, or their timeout is over.
    settled: usize,
}

/// The next action of an [`EchoSchedule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send the next echo.
    Send,
    /// Wait for answers until this time.
    Wait(Time),
    /// All echoes are sent, and no further answer counts.
    Done,
}

impl EchoSchedule {
    /// `count` echoes, one each `interval`, which does not wait for answers. An answer after
    /// `timeout` is a lost one.
    pub fn new(count: u64, interval: Span, timeout: Span) -> Self {
        Self {
            count,
            interval,
            timeout,
            round_trips: RoundTrips::default(),
            next_send: Time::ZERO,
            settled: 0,
        }
    }

    pub fn next(&mut self, now: Time) -> Next {
        let echoes = self.round_trips.echoes();
        let is_all = echoes.len() as u64 >= self.count;
        if !is_all && now >= self.next_send {
            return Next::Send;
        }
        let is_settled = |echo: &Echo| echo.round_trip.is_some() || echo.sent + self.timeout <= now;
        while echoes.get(self.settled).is_some_and(is_settled) {
            self.settled += 1;
        }
        let expiry = echoes.get(self.settled).map(|echo| echo.sent + self.timeout);
        let send = (!is_all).then_some(self.next_send);
        [expiry, send].into_iter().flatten().min().map_or(Next::Done, Next::Wait)
    }

    /// Notes an echo that is sent, and returns its sequence number.
    pub fn send(&mut self, now: Time) -> u64 {
        let is_first = self.round_trips.echoes().is_empty();
        // From the plan, so that one late echo does not delay all others.
        let planned = if is_first { now } else { self.next_send };
        self.next_send = (planned + self.interval).max(now);
        self.round_trips.send(now)
    }

    /// Notes the answer to an echo, unless it is too late. Returns its round trip if it is the first
    /// answer.
    pub fn receive(&mut self, now: Time, sequence: u64) -> Option<Span> {
        let index = usize::try_from(sequence).ok()?;
        let echo = self.round_trips.echoes().get(index)?;
        if now.since(echo.sent) > self.timeout {
            return None;
        }
        self.round_trips.receive(now, sequence)
    }

    /// The number of the latest echo with these low 16 bits, as ICMP carries them. Without such an
    /// echo, a number that none has.
    pub fn whole_number(&self, low: u16) -> u64 {
        let Some(last) = (self.round_trips.echoes().len() as u64).checked_sub(1) else {
            return u64::MAX;
        };
        let behind = (last as u16).wrapping_sub(low);
        last.checked_sub(u64::from(behind)).unwrap_or(u64::MAX)
    }

    pub fn round_trips(&self) -> &RoundTrips {
        &self.round_trips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn without_an_answer_there_is_no_delay() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.summary().loss, None);
        for second in 0..3 {
            trips.send(Time::from_millis(second * 1_000));
        }
        let summary = trips.summary();
        assert_eq!((summary.sent, summary.received, summary.loss), (3, 0, Some(1.0)));
        assert_eq!([summary.min, summary.median, summary.mean, summary.jitter], [None; 4]);
    }

    #[test]
    fn loss_order_and_jitter_follow_from_the_answers() {
        let mut trips = RoundTrips::default();
        for number in 0..5 {
            assert_eq!(trips.send(Time::from_millis(10 * number)), number);
        }
        // The answer to 3 is lost; that to 1 comes after that to 2, and twice.
        let answers = [(0, 20), (2, 45), (1, 50), (1, 51), (4, 70), (9, 71)];
        let measured = answers.map(|(number, at)| trips.receive(Time::from_millis(at), number));
        let expected =
            [Some(millis(20)), Some(millis(25)), Some(millis(40)), None, Some(millis(30)), None];
        assert_eq!(measured, expected);
        let summary = trips.summary();
        assert_eq!((summary.sent, summary.received, summary.loss), (5, 4, Some(0.2)));
        assert_eq!((summary.duplicates, summary.reordered), (1, 1));
        assert_eq!((summary.min, summary.max), (Some(millis(20)), Some(millis(40))));
        assert_eq!(summary.median, Some(millis(25)));
        assert_eq!(summary.mean, Some(Span::from_micros(28_750)));
        // From 20 to 40 ms, and from 40 to 25.
        assert_eq!(summary.jitter, Some(Span::from_micros(17_500)));
    }

    fn schedule() -> EchoSchedule {
        EchoSchedule::new(3, Span::from_millis(100), Span::from_millis(250))
    }

    /// Sends all echoes that are due, and returns the first other action.
    fn advance(schedule: &mut EchoSchedule, now: Time) -> Next {
        loop {
            match schedule.next(now) {
                Next::Send => schedule.send(now),
                other => return other,
            };
        }
    }

    #[test]
    fn echoes_are_sent_on_time_and_each_waits_for_its_answer() {
        let mut schedule = schedule();
        let ms = Time::from_millis;
        assert_eq!(advance(&mut schedule, ms(1_000)), Next::Wait(ms(1_100)));
        // The second echo is late; the third one is not.
        assert_eq!(advance(&mut schedule, ms(1_130)), Next::Wait(ms(1_200)));
        assert_eq!(schedule.receive(ms(1_140), 0), Some(Span::from_millis(140)));
        assert_eq!(advance(&mut schedule, ms(1_200)), Next::Wait(ms(1_380)));
        // Too late by a millisecond.
        assert_eq!(schedule.receive(ms(1_381), 1), None);
        assert_eq!(advance(&mut schedule, ms(1_381)), Next::Wait(ms(1_450)));
        assert_eq!(schedule.receive(ms(1_400), 2), Some(Span::from_millis(200)));
        assert_eq!(advance(&mut schedule, ms(1_400)), Next::Done);
        let summary = schedule.round_trips().summary();
        assert_eq!((summary.sent, summary.received), (3, 2));
    }

    #[test]
    fn a_sleeping_host_sends_the_missed_echoes_one_by_one() {
        let mut schedule = EchoSchedule::new(100, Span::from_millis(100), Span::from_secs(1));
        assert_eq!(
            advance(&mut schedule, Time::from_millis(1_000)),
            Next::Wait(Time::from_millis(1_100))
        );
        // Not a burst of all that were due meanwhile.
        let woken = Time::from_millis(60_000);
        assert_eq!(schedule.next(woken), Next::Send);
        schedule.send(woken);
        schedule.send(woken);
        assert_eq!(schedule.next(woken), Next::Wait(woken + Span::from_millis(100)));
    }

    #[test]
    fn sequence_numbers_continue_after_sixteen_bits() {
        let mut schedule = EchoSchedule::new(70_000, Span::from_millis(1), Span::from_secs(1));
        assert_eq!(schedule.whole_number(0), u64::MAX);
        for _ in 0..66_000 {
            schedule.send(Time::from_millis(1_000));
        }
        assert_eq!(schedule.whole_number(463), 65_999);
        assert_eq!(schedule.whole_number(0), 65_536);
        assert_eq!(schedule.whole_number(65_535), 65_535);
        assert_eq!(schedule.whole_number(464), 464);
    }
}
