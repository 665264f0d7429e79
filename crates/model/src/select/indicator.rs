//! Indicators of a network: signals that cost nothing, results of probes, and own traffic.

use manyways_unit::{Span, Time};

/// Time for which a burst shows more than traffic that may limit itself.
const BURST_TIME: Span = Span::from_secs(30);

/// A property of a network, as a number.
///
/// The first ones are those of table 3.2 in Deng's thesis. Not in that table are the rate of the burst
/// before, which shows a trend, and own traffic, which costs nothing and shows what an application
/// gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Indicator {
    /// Received signal strength in dBm.
    Rssi,
    /// Physical rate of the Wi-Fi link in Mbit/s.
    LinkRate,
    /// Number of visible access points.
    AccessPoints,
    /// Reference signal received power (LTE, NR) in dBm.
    Rsrp,
    /// Reference signal received quality in dB.
    Rsrq,
    /// Ratio of signal to noise in dB.
    Snr,
    /// Channel quality indicator, 0 to 15.
    Cqi,
    /// Seconds: smallest, greatest and mean round trip of ten pings, and their mean deviation.
    PingMin,
    PingMax,
    PingMean,
    PingDeviation,
    /// Seconds of a DNS query.
    DnsTime,
    /// Mbit/s of a burst of UDP.
    UdpRate,
    /// The same of the burst before, if that was not long ago.
    UdpRateBefore,
    /// Share of lost datagrams.
    UdpLoss,
    /// Seconds between datagrams of the burst: mean, median and 90th percentile.
    UdpGapMean,
    UdpGapMedian,
    UdpGapP90,
    /// Seconds: smoothed round trip of own connections.
    OwnRoundTrip,
    /// Mbit/s that own traffic got while it was not limited by itself.
    OwnRate,
}

/// Where the value of an indicator comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Signals: they cost nothing.
    Passive,
    /// Probes.
    Active,
    /// Traffic of applications.
    Own,
}

impl Indicator {
    pub const ALL: [Self; 20] = [
        Self::Rssi,
        Self::LinkRate,
        Self::AccessPoints,
        Self::Rsrp,
        Self::Rsrq,
        Self::Snr,
        Self::Cqi,
        Self::PingMin,
        Self::PingMax,
        Self::PingMean,
        Self::PingDeviation,
        Self::DnsTime,
        Self::UdpRate,
        Self::UdpRateBefore,
        Self::UdpLoss,
        Self::UdpGapMean,
        Self::UdpGapMedian,
        Self::UdpGapP90,
        Self::OwnRoundTrip,
        Self::OwnRate,
    ];

    /// Name in models, tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rssi => "rssi",
            Self::LinkRate => "link-rate",
            Self::AccessPoints => "access-points",
            Self::Rsrp => "rsrp",
            Self::Rsrq => "rsrq",
            Self::Snr => "snr",
            Self::Cqi => "cqi",
            Self::PingMin => "ping-min",
            Self::PingMax => "ping-max",
            Self::PingMean => "ping-mean",
            Self::PingDeviation => "ping-deviation",
            Self::DnsTime => "dns-time",
            Self::UdpRate => "udp-rate",
            Self::UdpRateBefore => "udp-rate-before",
            Self::UdpLoss => "udp-loss",
            Self::UdpGapMean => "udp-gap-mean",
            Self::UdpGapMedian => "udp-gap-median",
            Self::UdpGapP90 => "udp-gap-p90",
            Self::OwnRoundTrip => "own-round-trip",
            Self::OwnRate => "own-rate",
        }
    }

    /// The indicator with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether pings show it, which take few bytes.
    pub fn is_ping(self) -> bool {
        matches!(self, Self::PingMin | Self::PingMax | Self::PingMean | Self::PingDeviation)
    }

    pub fn source(self) -> Source {
        match self {
            Self::Rssi
            | Self::LinkRate
            | Self::AccessPoints
            | Self::Rsrp
            | Self::Rsrq
            | Self::Snr
            | Self::Cqi => Source::Passive,
            Self::OwnRoundTrip | Self::OwnRate => Source::Own,
            _ => Source::Active,
        }
    }
}

/// The last value of an indicator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    pub value: f64,
    pub at: Time,
}

/// The last values of a network's indicators.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Indicators {
    known: [Option<Known>; Indicator::ALL.len()],
}

impl Indicators {
    /// Sets a value. One that is not finite removes the last one: an interface may report anything.
    pub fn set(&mut self, at: Time, indicator: Indicator, value: f64) {
        self.known[indicator as usize] = value.is_finite().then_some(Known { value, at });
    }

    pub fn get(&self, indicator: Indicator) -> Option<Known> {
        self.known[indicator as usize]
    }

    pub fn value(&self, indicator: Indicator) -> Option<f64> {
        self.get(indicator).map(|known| known.value)
    }

    /// The indicators that a decision may use: without probes and own traffic that are older than
    /// `limit`, and with the newer one of probes and own traffic in the place of both.
    ///
    /// Models know the rate of a burst; own traffic that is newer shows the same rate better, if it takes
    /// what it gets, as a long download does (`is_greedy`). Other traffic may carry less than the network
    /// could: then a rate below that of a burst of the last 30 s shows nothing.
    pub fn current(&self, now: Time, limit: Span, is_greedy: bool) -> Self {
        let mut found = self.clone();
        let is_old = |known: &Known| now.since(known.at) > limit;
        for one in Indicator::ALL {
            if one.source() != Source::Passive && self.get(one).as_ref().is_some_and(is_old) {
                found.known[one as usize] = None;
            }
        }
        let newer = |own: Indicator, probe: Indicator| {
            let own = found.get(own)?;
            found.get(probe).is_none_or(|probe| probe.at < own.at).then_some(own)
        };
        let is_bound = |own: &Known| {
            let burst = found.get(Indicator::UdpRate);
            let is_fresh = |burst: &Known| now.since(burst.at) <= BURST_TIME;
            !is_greedy && burst.filter(is_fresh).is_some_and(|burst| own.value < burst.value)
        };
        let rate = newer(Indicator::OwnRate, Indicator::UdpRate).filter(|own| !is_bound(own));
        let round_trip = newer(Indicator::OwnRoundTrip, Indicator::PingMean);
        if let Some(rate) = rate {
            for one in [
                Indicator::UdpGapMean,
                Indicator::UdpGapMedian,
                Indicator::UdpGapP90,
                Indicator::UdpLoss,
            ] {
                found.known[one as usize] = None;
            }
            found.known[Indicator::UdpRate as usize] = Some(rate);
        } else {
            found.known[Indicator::OwnRate as usize] = None;
        }
        if let Some(round_trip) = round_trip {
            found.known[Indicator::PingMean as usize] = Some(round_trip);
        } else {
            found.known[Indicator::OwnRoundTrip as usize] = None;
        }
        found
    }

    /// The known indicators.
    pub fn iter(&self) -> impl Iterator<Item = (Indicator, Known)> {
        Indicator::ALL.into_iter().filter_map(|one| Some((one, self.get(one)?)))
    }

    /// Time since the newest value from this source; `None` without one.
    pub fn age(&self, now: Time, source: Source) -> Option<Span> {
        let of_source = self.iter().filter(|(one, _)| one.source() == source);
        of_source.map(|(_, known)| now.since(known.at)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    #[test]
    fn traffic_that_may_limit_itself_shows_no_less_than_a_young_burst() {
        let mut indicators = Indicators::default();
        indicators.set(at(10), Indicator::UdpRate, 20.0);
        indicators.set(at(20), Indicator::OwnRate, 3.0);
        let rate = |indicators: &Indicators, now| {
            let current = indicators.current(at(now), Span::from_secs(600), false);
            (current.value(Indicator::UdpRate), current.value(Indicator::OwnRate))
        };
        assert_eq!(rate(&indicators, 40), (Some(20.0), None));
        assert_eq!(rate(&indicators, 41), (Some(3.0), Some(3.0)));
        indicators.set(at(21), Indicator::OwnRate, 25.0);
        assert_eq!(rate(&indicators, 22), (Some(25.0), Some(25.0)));
    }

    #[test]
    fn the_newer_one_of_probe_and_own_traffic_counts_and_nothing_old_does() {
        let mut indicators = Indicators::default();
        indicators.set(at(0), Indicator::Rssi, -60.0);
        indicators.set(at(10), Indicator::UdpRate, 20.0);
        indicators.set(at(10), Indicator::UdpLoss, 0.5);
        indicators.set(at(20), Indicator::OwnRate, 3.0);
        let current = |indicators: &Indicators, now| {
            let current = indicators.current(at(now), Span::from_secs(60), true);
            let value = |one| current.value(one);
            [Indicator::UdpRate, Indicator::UdpLoss, Indicator::OwnRate, Indicator::Rssi].map(value)
        };
        assert_eq!(current(&indicators, 30), [Some(3.0), None, Some(3.0), Some(-60.0)]);
        indicators.set(at(25), Indicator::UdpRate, 9.0);
        assert_eq!(current(&indicators, 30), [Some(9.0), Some(0.5), None, Some(-60.0)]);
        assert_eq!(current(&indicators, 90), [None, None, None, Some(-60.0)]);
    }

    #[test]
    fn the_newer_round_trip_counts_and_of_the_same_time_that_of_pings() {
        let mut indicators = Indicators::default();
        indicators.set(at(10), Indicator::PingMin, 0.01);
        indicators.set(at(10), Indicator::PingMean, 0.02);
        let current = |indicators: &Indicators| {
            let current = indicators.current(at(30), Span::from_secs(20), true);
            [Indicator::PingMin, Indicator::PingMean, Indicator::OwnRoundTrip]
                .map(|one| current.value(one))
        };
        // Just as old as is allowed.
        assert_eq!(current(&indicators), [Some(0.01), Some(0.02), None]);
        indicators.set(at(11), Indicator::OwnRoundTrip, 0.05);
        assert_eq!(current(&indicators), [Some(0.01), Some(0.05), Some(0.05)]);
        indicators.set(at(12), Indicator::PingMin, 0.03);
        assert_eq!(current(&indicators), [Some(0.03), Some(0.05), Some(0.05)]);
        indicators.set(at(11), Indicator::PingMean, 0.04);
        assert_eq!(current(&indicators), [Some(0.03), Some(0.04), None]);
    }

    #[test]
    fn gaps_of_a_burst_do_not_outlive_its_rate() {
        let burst = [
            Indicator::UdpGapMean,
            Indicator::UdpGapMedian,
            Indicator::UdpGapP90,
            Indicator::UdpLoss,
        ];
        let mut indicators = Indicators::default();
        for one in burst {
            indicators.set(at(1), one, 0.1);
        }
        indicators.set(at(1), Indicator::UdpRate, 20.0);
        let known = |indicators: &Indicators| {
            let current = indicators.current(at(2), Span::from_secs(60), true);
            burst.into_iter().filter(|one| current.value(*one).is_some()).count()
        };
        indicators.set(at(1), Indicator::OwnRate, 5.0);
        assert_eq!(known(&indicators), 4, "the burst is as new");
        indicators.set(at(2), Indicator::OwnRate, 5.0);
        assert_eq!(known(&indicators), 0);
    }

    #[test]
    fn only_numbers_are_kept_and_the_newest_has_the_age_of_its_source() {
        let mut indicators = Indicators::default();
        indicators.set(at(1), Indicator::PingMean, 0.02);
        indicators.set(at(3), Indicator::DnsTime, 0.02);
        indicators.set(at(4), Indicator::Rssi, -60.0);
        let age = |indicators: &Indicators, source| indicators.age(at(9), source);
        assert_eq!(age(&indicators, Source::Active), Some(Span::from_secs(6)));
        assert_eq!(age(&indicators, Source::Own), None);
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            indicators.set(at(4), Indicator::Rssi, -60.0);
            indicators.set(at(5), Indicator::Rssi, value);
            assert_eq!(indicators.get(Indicator::Rssi), None, "{value}");
        }
        let pings: Vec<&str> =
            Indicator::ALL.into_iter().filter(|one| one.is_ping()).map(Indicator::name).collect();
        assert_eq!(pings, ["ping-min", "ping-max", "ping-mean", "ping-deviation"]);
    }
}
