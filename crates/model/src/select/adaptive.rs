//! Probes only where they tell something new.

use std::fmt;

use manyways_unit::{Size, Span, Time};

use super::indicator::{Indicator, Indicators, Source};

/// Least range of a round trip, as a share of it. On a link that was never busy, the greatest and
/// smallest round trips differ by less than a packet takes. Deviations have a range of their own: on
/// emulated links those of microseconds show that the rate has changed, and without them adaptive
/// probing had 1.2 times the regret.
const PING_RANGE: f64 = 0.5;
/// A burst that is older than this does not show the trend.
const TREND: Span = Span::from_secs(30);

/// When a network may be probed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProbeLimits {
    /// Th: the difference of the passive indicators (equation 3.1) above which a probe is due.
    pub threshold: f64,
    /// The same of pings, above which a burst follows them. The default is the smallest multiple of 0.1
    /// with which adaptive probing of generated walks takes at most 35 % of the bytes of probes each
    /// 5 s.
    pub ping_threshold: f64,
    /// A network whose passive indicators are not known is probed in this interval, and a burst
    /// follows unchanged pings in it.
    pub blind: Span,
    /// Shortest time between two probes; it doubles up to `max_interval` while the results are as
    /// predicted.
    pub min_interval: Span,
    pub max_interval: Span,
    /// Own traffic that is younger than this makes a probe unnecessary.
    pub fresh: Span,
    /// Bytes that may be spent in a month; `None` without a limit.
    pub monthly: Option<Size>,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        Self {
            threshold: 0.3,
            ping_threshold: 0.4,
            blind: Span::from_secs(20),
            min_interval: Span::from_secs(5),
            max_interval: Span::from_secs(600),
            fresh: Span::from_secs(3),
            monthly: None,
        }
    }
}

/// Whether a network is probed, and why.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum ProbeDecision {
    /// It was never probed.
    First,
    /// The passive indicators differ by this much (equation 3.1) from those at the last probe.
    Changed(f64),
    /// There are no passive indicators, and the last probe is this old.
    Blind(Span),
    /// Not: the indicators differ too little.
    Similar(f64),
    /// Not: own traffic shows what a probe would.
    OwnTraffic,
    /// Not before this time: results are as predicted.
    Wait(Time),
    /// Not: nothing is requested, and no user looks.
    Background,
    /// Not: it answers no ping.
    Silent,
    /// Not: the bytes of the month are spent.
    Spent,
}

impl ProbeDecision {
    pub fn is_probe(self) -> bool {
        matches!(self, Self::First | Self::Changed(_) | Self::Blind(_))
    }
}

impl fmt::Display for ProbeDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("it was never probed"),
            Self::Changed(by) => write!(f, "its signals changed by {by:.2}"),
            Self::Blind(age) => write!(f, "it has no signals, and was probed {age} ago"),
            Self::Similar(by) => write!(f, "its signals changed by {by:.2} only"),
            Self::OwnTraffic => f.write_str("its own traffic has just shown it"),
            Self::Wait(_) => f.write_str("the last results were as predicted"),
            Self::Background => f.write_str("nothing is requested"),
            Self::Silent => f.write_str("it answers no ping"),
            Self::Spent => f.write_str("the bytes of the month are spent"),
        }
    }
}

/// The indicators of a network, and the state of adaptive probing (§3.3.2 of the thesis).
///
/// As in the thesis, a probe is due if the passive indicators differ from those at the last probe,
/// and in the background only if a transfer is requested too. Different: indicators that never
/// changed have a range of 0 and are left out; own traffic counts as a probe; and while probes
/// confirm the predictions, the time between them doubles.
#[derive(Clone, Debug)]
pub struct Monitor {
    limits: ProbeLimits,
    indicators: Indicators,
    /// Smallest and greatest value of each passive indicator so far.
    ranges: [Option<(f64, f64)>; Indicator::ALL.len()],
    /// Time of the last probe, and the indicators then.
    probed: Option<(Time, Indicators)>,
    interval: Span,
}

impl Monitor {
    pub fn new(limits: ProbeLimits) -> Self {
        Self {
            limits,
            indicators: Indicators::default(),
            ranges: [None; Indicator::ALL.len()],
            probed: None,
            interval: limits.min_interval,
        }
    }

    /// Changes the bytes that may be spent in a month.
    pub fn set_monthly(&mut self, monthly: Option<Size>) {
        self.limits.monthly = monthly;
    }

    pub fn indicators(&self) -> &Indicators {
        &self.indicators
    }

    /// Notes a value. A rate of a burst makes the last one that before.
    pub fn set(&mut self, at: Time, indicator: Indicator, value: f64) {
        if indicator == Indicator::UdpRate {
            let before = self.indicators.get(Indicator::UdpRate);
            let before = before.filter(|known| at.since(known.at) <= TREND);
            let before = before.map_or(f64::NAN, |known| known.value);
            self.indicators.set(at, Indicator::UdpRateBefore, before);
        }
        self.indicators.set(at, indicator, value);
        if value.is_finite() {
            let range = &mut self.ranges[indicator as usize];
            let (low, high) = range.unwrap_or((value, value));
            *range = Some((low.min(value), high.max(value)));
        }
    }

    /// d of equation 3.1: the sum of the changes of the passive indicators since the last probe,
    /// each as a share of its range. `None` if none of them is known, or nothing was probed.
    pub fn difference(&self) -> Option<f64> {
        let (_, before) = self.probed.as_ref()?;
        self.change_of(before, |one| one.source() == Source::Passive)
    }

    fn change_of(&self, before: &Indicators, is_meant: impl Fn(Indicator) -> bool) -> Option<f64> {
        let change = |indicator: Indicator| {
            let (now, then) = (self.indicators.value(indicator)?, before.value(indicator)?);
            let (low, high) = self.ranges[indicator as usize]?;
            let least = if indicator.is_ping() { PING_RANGE * then } else { 0.0 };
            let range = (high - low).max(least);
            Some(if range > 0.0 { (now - then).abs() / range } else { 0.0 })
        };
        let meant = Indicator::ALL.into_iter().filter(|one| is_meant(*one));
        meant.filter_map(change).reduce(|sum, change| sum + change)
    }

    /// Whether the network is probed now. `spent` are the bytes of this month's probes, `cost` those
    /// of the next one. `is_waited_for`: a transfer is requested, or a user looks.
    pub fn decide(&self, now: Time, is_waited_for: bool, spent: Size, cost: Size) -> ProbeDecision {
        let limits = &self.limits;
        if limits.monthly.is_some_and(|monthly| spent + cost > monthly) {
            return ProbeDecision::Spent;
        }
        if !is_waited_for {
            return ProbeDecision::Background;
        }
        let Some((at, _)) = self.probed else { return ProbeDecision::First };
        let own = self.indicators.get(Indicator::OwnRate);
        if own.is_some_and(|own| now.since(own.at) < limits.fresh) {
            return ProbeDecision::OwnTraffic;
        }
        if now < at + self.interval {
            return ProbeDecision::Wait(at + self.interval);
        }
        match self.difference() {
            Some(by) if by > limits.threshold => ProbeDecision::Changed(by),
            Some(by) => ProbeDecision::Similar(by),
            None if now.since(at) >= limits.blind => ProbeDecision::Blind(now.since(at)),
            None => ProbeDecision::Wait(at + limits.blind),
        }
    }

    /// Whether a burst is due after pings, whose results were set: a probe in two stages. Pings take a
    /// fiftieth of the bytes of a burst, so that they may precede each decision, and the burst
    /// follows only if the network has changed. The thesis has one stage.
    ///
    /// The difference is that of equation 3.1 over the pings. Signals are left out: they explain less of
    /// a rate than packets that have just crossed the network, and their sum grows with their number.
    /// A network that answers no ping needs no burst: see [`Self::silent`]. A probe that is older than
    /// `blind` is repeated.
    pub fn decide_burst(&self, now: Time, blind: Span) -> ProbeDecision {
        let Some((at, before)) = &self.probed else { return ProbeDecision::First };
        let is_silent = |indicators: &Indicators| indicators.value(Indicator::PingMean).is_none();
        match (is_silent(before), is_silent(&self.indicators)) {
            (_, true) => return ProbeDecision::Silent,
            (true, false) => return ProbeDecision::Changed(f64::INFINITY),
            (false, false) => {}
        }
        match self.change_of(before, Indicator::is_ping) {
            Some(by) if by > self.limits.ping_threshold => ProbeDecision::Changed(by),
            _ if now.since(*at) >= blind => ProbeDecision::Blind(now.since(*at)),
            by => ProbeDecision::Similar(by.unwrap_or_default()),
        }
    }

    /// Notes that a network answers nothing: a burst would find nothing.
    pub fn silent(&mut self, now: Time) {
        self.set(now, Indicator::UdpRate, 0.0);
        self.set(now, Indicator::UdpLoss, 1.0);
        let is_unknown = |one: &Indicator| {
            use Indicator::{UdpGapMean, UdpGapMedian, UdpGapP90};
            one.is_ping() || matches!(one, UdpGapMean | UdpGapMedian | UdpGapP90)
        };
        for one in Indicator::ALL.into_iter().filter(is_unknown) {
            self.set(now, one, f64::NAN);
        }
        self.probed(now, false);
    }

    /// Notes that a probe has ended, whose results were set before. `is_as_predicted`: they
    /// were within the predicted interval.
    pub fn probed(&mut self, now: Time, is_as_predicted: bool) {
        self.probed = Some((now, self.indicators.clone()));
        self.interval = match is_as_predicted {
            true => (self.interval * 2).min(self.limits.max_interval),
            false => self.limits.min_interval,
        };
    }
}

/// e of equation 3.2: the sum of the relative errors of kept values. A value is divided by at least
/// `floor`, because a loss can be 0.
pub fn probing_error(kept_and_true: &[(f64, f64)], floor: f64) -> f64 {
    kept_and_true.iter().map(|(kept, truth)| (kept - truth).abs() / truth.abs().max(floor)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    fn probed() -> Monitor {
        let mut monitor = Monitor::new(ProbeLimits::default());
        for (at, rssi, cqi) in [(0, -80.0, 7.0), (1, -60.0, 7.0), (2, -70.0, 7.0)] {
            monitor.set(secs(at), Indicator::Rssi, rssi);
            monitor.set(secs(at), Indicator::Cqi, cqi);
        }
        monitor.probed(secs(2), false);
        monitor
    }

    fn decide(monitor: &Monitor, at: u64) -> ProbeDecision {
        monitor.decide(secs(at), true, Size::ZERO, Size::from_kib(200))
    }

    #[test]
    fn a_change_of_the_signals_causes_a_probe() {
        let mut monitor = probed();
        assert_eq!(decide(&monitor, 10), ProbeDecision::Similar(0.0));
        // The range is 20 dB; the other indicator never changed, and is left out.
        monitor.set(secs(10), Indicator::Rssi, -74.0);
        assert_eq!(decide(&monitor, 10), ProbeDecision::Similar(0.2));
        monitor.set(secs(11), Indicator::Rssi, -78.0);
        assert_eq!(decide(&monitor, 11), ProbeDecision::Changed(0.4));
        assert!(decide(&monitor, 11).is_probe());
        monitor.set(secs(11), Indicator::Rssi, f64::NAN);
        assert_eq!(decide(&monitor, 11), ProbeDecision::Similar(0.0));
    }

    #[test]
    fn a_network_without_signals_is_probed_in_an_interval() {
        let mut monitor = Monitor::new(ProbeLimits::default());
        assert_eq!(decide(&monitor, 0), ProbeDecision::First);
        monitor.probed(secs(0), false);
        assert_eq!(decide(&monitor, 19), ProbeDecision::Wait(secs(20)));
        assert_eq!(decide(&monitor, 20), ProbeDecision::Blind(Span::from_secs(20)));
    }

    #[test]
    fn own_traffic_and_nothing_to_send_cause_no_probe() {
        let mut monitor = probed();
        monitor.set(secs(20), Indicator::Rssi, -80.0);
        monitor.set(secs(20), Indicator::OwnRate, 12.0);
        assert_eq!(decide(&monitor, 22), ProbeDecision::OwnTraffic);
        assert_eq!(decide(&monitor, 25), ProbeDecision::Changed(0.5));
        let idle = monitor.decide(secs(25), false, Size::ZERO, Size::ZERO);
        assert_eq!(idle, ProbeDecision::Background);
    }

    #[test]
    fn probes_that_show_what_was_predicted_become_rare() {
        let mut monitor = probed();
        monitor.set(secs(3), Indicator::Rssi, -80.0);
        assert_eq!(decide(&monitor, 6), ProbeDecision::Wait(secs(7)));
        for (at, next) in [(10, 20), (30, 50), (60, 100), (200, 280)] {
            monitor.probed(secs(at), true);
            monitor.set(secs(at), Indicator::Rssi, if at % 20 == 0 { -60.0 } else { -80.0 });
            assert_eq!(decide(&monitor, at + 1), ProbeDecision::Wait(secs(next)));
        }
        for at in 1..10 {
            monitor.probed(secs(at * 1_000), true);
        }
        assert_eq!(decide(&monitor, 9_001), ProbeDecision::Wait(secs(9_600)));
        monitor.probed(secs(9_600), false);
        assert_eq!(decide(&monitor, 9_601), ProbeDecision::Wait(secs(9_605)));
    }

    #[test]
    fn pings_that_change_cause_a_burst_and_silence_none() {
        let mut monitor = Monitor::new(ProbeLimits::default());
        let mut pings = |at, round_trip: f64| {
            monitor.set(secs(at), Indicator::PingMean, round_trip);
            let decision = monitor.decide_burst(secs(at), Span::from_secs(20));
            match decision {
                ProbeDecision::Silent => monitor.silent(secs(at)),
                decision if decision.is_probe() => {
                    monitor.set(secs(at), Indicator::UdpRate, 20.0);
                    monitor.probed(secs(at), false);
                }
                _ => {}
            }
            (decision, monitor.indicators().value(Indicator::UdpRate))
        };
        assert_eq!(pings(0, 0.020), (ProbeDecision::First, Some(20.0)));
        assert!(matches!(pings(10, 0.060).0, ProbeDecision::Changed(by) if by == 1.0));
        assert!(matches!(pings(20, 0.062).0, ProbeDecision::Similar(by) if by < 0.1));
        assert_eq!(pings(25, f64::NAN), (ProbeDecision::Silent, Some(0.0)));
        assert_eq!(pings(30, 0.060), (ProbeDecision::Changed(f64::INFINITY), Some(20.0)));
        assert_eq!(pings(50, 0.060).0, ProbeDecision::Blind(Span::from_secs(20)));
        // Signals that change cause none.
        for (at, rssi) in [(51, -50.0), (52, -80.0)] {
            monitor.set(secs(at), Indicator::Rssi, rssi);
        }
        assert!(matches!(
            monitor.decide_burst(secs(52), Span::from_secs(20)),
            ProbeDecision::Similar(_)
        ));
    }

    #[test]
    fn pings_of_an_idle_link_that_differ_by_less_than_a_packet_takes_cause_no_burst() {
        let mut monitor = Monitor::new(ProbeLimits::default());
        monitor.set(secs(0), Indicator::PingMean, 0.0200);
        monitor.probed(secs(0), false);
        let mut decide = |at, round_trip| {
            monitor.set(secs(at), Indicator::PingMean, round_trip);
            match monitor.decide_burst(secs(at), Span::from_secs(20)) {
                ProbeDecision::Similar(by) => ("similar", (by * 1e3).round()),
                ProbeDecision::Changed(by) => ("changed", (by * 1e3).round()),
                other => panic!("{other}"),
            }
        };
        // A half of the round trip at the last probe is the range, until a greater one was seen.
        assert_eq!(decide(5, 0.0201), ("similar", 10.0));
        assert_eq!(decide(6, 0.0235), ("similar", 350.0));
        assert_eq!(decide(7, 0.0280), ("changed", 800.0));
        assert_eq!(decide(8, 0.0600), ("changed", 1_000.0));
        assert_eq!(decide(9, 0.0280), ("similar", 200.0));
    }

    #[test]
    fn silence_is_a_whole_loss_and_the_next_probe_is_early() {
        let mut monitor = probed();
        monitor.probed(secs(10), true);
        monitor.silent(secs(20));
        let known = |one| monitor.indicators().value(one);
        assert_eq!((known(Indicator::UdpRate), known(Indicator::UdpLoss)), (Some(0.0), Some(1.0)));
        assert_eq!(decide(&monitor, 21), ProbeDecision::Wait(secs(25)));
        assert_eq!(decide(&monitor, 25), ProbeDecision::Similar(0.0));
    }

    #[test]
    fn the_rate_of_the_burst_before_is_kept_for_a_while() {
        let mut monitor = Monitor::new(ProbeLimits::default());
        let mut after = |at, rate| {
            monitor.set(secs(at), Indicator::UdpRate, rate);
            monitor.indicators().value(Indicator::UdpRateBefore)
        };
        assert_eq!([after(0, 5.0), after(10, 7.0), after(41, 9.0)], [None, Some(5.0), None]);
    }

    #[test]
    fn the_bytes_of_a_month_are_a_limit() {
        let limits = ProbeLimits { monthly: Some(Size::from_bytes(500)), ..ProbeLimits::default() };
        let monitor = Monitor::new(limits);
        let decide =
            |spent| monitor.decide(secs(0), true, Size::from_bytes(spent), Size::from_bytes(200));
        assert_eq!(decide(300), ProbeDecision::First);
        assert_eq!(decide(301), ProbeDecision::Spent);
    }

    #[test]
    fn errors_are_relative_but_a_loss_of_zero_is_no_infinity() {
        let error = probing_error(&[(0.05, 0.04), (0.01, 0.0)], 0.01);
        assert!((error - 1.25).abs() < 1e-9, "{error}");
    }
}
