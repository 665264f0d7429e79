//! Simpler rules to compare with: those of other systems, in their own terms.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use manyways_unit::{Size, Span};
use thiserror::Error;

use super::Choice;
use super::indicator::{Indicator, Indicators};

/// A rule that selects a network without a prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// The first Wi-Fi network, always.
    Wifi,
    /// The first cellular network, always.
    Lte,
    /// All at once, beginning on Wi-Fi.
    Both,
    /// Android: of the networks with Internet access, the one of the preferred kind.
    Android,
    /// mwan3: pings every 5 s; a network is down after three that fail, and up after three that
    /// succeed. The first one that is up is used.
    Mwan3,
    /// The one on which the last transfer was fastest; each is tried first (the thesis, §3.8.2).
    RecentBest,
    /// The one with the greatest rate that was measured last.
    LastRate,
}

/// A name that no baseline has.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0} is not a policy")]
pub struct UnknownBaseline(String);

/// Kind of a network, as these rules distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkKind {
    Ethernet,
    Wifi,
    Cellular,
    Other,
}

impl NetworkKind {
    /// Name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Wifi => "wifi",
            Self::Cellular => "cellular",
            Self::Other => "other",
        }
    }
}

/// A network that is up.
#[derive(Clone, Copy, Debug)]
pub struct NetworkView<'a> {
    pub kind: NetworkKind,
    /// Whether a probe reached the Internet.
    pub is_validated: bool,
    pub indicators: &'a Indicators,
}

/// A baseline and its memory.
#[derive(Clone, Debug)]
pub struct BaselinePolicy {
    baseline: Baseline,
    pings: BTreeMap<usize, PingTrack>,
    /// Bytes a second of the last transfer on each choice.
    rates: BTreeMap<Choice, f64>,
}

/// The pings of mwan3.
#[derive(Clone, Copy, Debug)]
struct PingTrack {
    is_up: bool,
    /// Pings in a row that contradict `is_up`.
    against: u32,
}

impl Baseline {
    const NAMES: [(&'static str, Self); 7] = [
        ("wifi", Self::Wifi),
        ("lte", Self::Lte),
        ("both", Self::Both),
        ("android", Self::Android),
        ("mwan3", Self::Mwan3),
        ("recent-best", Self::RecentBest),
        ("last-rate", Self::LastRate),
    ];

    /// All of them, with their names.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.iter().map(|(_, one)| *one)
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, one)| one == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Baseline {
    type Err = UnknownBaseline;

    fn from_str(text: &str) -> Result<Self, UnknownBaseline> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, one)| *one).ok_or_else(|| UnknownBaseline(text.to_owned()))
    }
}

impl BaselinePolicy {
    /// Interval of the pings of mwan3, and the round trip above which one counts as failed.
    pub const PING_INTERVAL: Span = Span::from_secs(5);
    const MAX_ROUND_TRIP: Span = Span::from_millis(500);
    /// Pings in a row that change the state of a network.
    const IN_A_ROW: u32 = 3;

    pub fn new(baseline: Baseline) -> Self {
        Self { baseline, pings: BTreeMap::new(), rates: BTreeMap::new() }
    }

    /// Notes a ping of a network; `None` if no answer came.
    pub fn pinged(&mut self, network: usize, round_trip: Option<Span>) {
        let track = self.pings.entry(network).or_insert(PingTrack { is_up: true, against: 0 });
        let is_good = round_trip.is_some_and(|time| time <= Self::MAX_ROUND_TRIP);
        track.against = if is_good == track.is_up { 0 } else { track.against + 1 };
        if track.against >= Self::IN_A_ROW {
            *track = PingTrack { is_up: is_good, against: 0 };
        }
    }

    /// Notes a transfer that has ended.
    pub fn transferred(&mut self, choice: Choice, size: Size, seconds: f64) {
        self.rates.insert(choice, size.as_bytes() as f64 / seconds.max(1e-9));
    }

    /// Selects; `None` without networks.
    pub fn choose(&self, networks: &[NetworkView<'_>]) -> Option<Choice> {
        let of_kind = |kind| networks.iter().position(|network| network.kind == kind);
        let first = (!networks.is_empty()).then_some(0);
        let (wifi, lte) = (of_kind(NetworkKind::Wifi), of_kind(NetworkKind::Cellular));
        let one = match self.baseline {
            Baseline::Wifi => wifi.or(first),
            Baseline::Lte => lte.or(first),
            Baseline::Both => {
                if let (Some(wifi), Some(lte)) = (wifi, lte) {
                    return Some(Choice::Both(wifi, lte));
                }
                first
            }
            Baseline::Android => {
                let ranked = (0..networks.len())
                    .min_by_key(|index| (!networks[*index].is_validated, networks[*index].kind));
                ranked.or(first)
            }
            Baseline::Mwan3 => {
                let is_up = |index: &usize| self.pings.get(index).is_none_or(|track| track.is_up);
                let mut ranked: Vec<usize> = (0..networks.len()).collect();
                ranked.sort_by_key(|index| networks[*index].kind);
                ranked.iter().copied().find(is_up).or(ranked.first().copied())
            }
            Baseline::RecentBest => {
                let rate = |index: &usize| self.rates.get(&Choice::Only(*index)).copied();
                let untried = (0..networks.len()).find(|index| rate(index).is_none());
                untried.or_else(|| greatest(networks.len(), |index| rate(&index)))
            }
            Baseline::LastRate => greatest(networks.len(), |index| {
                let indicators = networks[index].indicators;
                let known = [Indicator::OwnRate, Indicator::UdpRate].map(|one| indicators.get(one));
                known.into_iter().flatten().max_by_key(|known| known.at).map(|known| known.value)
            })
            .or(first),
        };
        one.map(Choice::Only)
    }
}

/// The index with the greatest known value.
fn greatest(count: usize, value: impl Fn(usize) -> Option<f64>) -> Option<usize> {
    let known = (0..count).filter_map(|index| Some((index, value(index)?)));
    // The first one of equal ones.
    known.rev().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;

    use super::*;

    const WIFI: Option<Choice> = Some(Choice::Only(0));
    const LTE: Option<Choice> = Some(Choice::Only(1));

    fn with_rate(at: u64, indicator: Indicator, mbps: f64) -> Indicators {
        let mut indicators = Indicators::default();
        indicators.set(Time::from_millis(at), indicator, mbps);
        indicators
    }

    fn view(kind: NetworkKind, is_validated: bool, indicators: &Indicators) -> NetworkView<'_> {
        NetworkView { kind, is_validated, indicators }
    }

    #[test]
    fn fixed_rules_take_their_kind() {
        let none = Indicators::default();
        let networks =
            [NetworkKind::Wifi, NetworkKind::Cellular].map(|kind| view(kind, true, &none));
        let choose = |name: &str| BaselinePolicy::new(name.parse().unwrap()).choose(&networks);
        assert_eq!((choose("wifi"), choose("lte")), (WIFI, LTE));
        assert_eq!(choose("both"), Some(Choice::Both(0, 1)));
        let lte = BaselinePolicy::new(Baseline::Wifi).choose(&networks[1..]);
        assert_eq!(lte, Some(Choice::Only(0)));
        assert_eq!(BaselinePolicy::new(Baseline::Android).choose(&[]), None);
        assert_eq!("fast".parse::<Baseline>().unwrap_err().to_string(), "fast is not a policy");
        assert!(Baseline::all().all(|one| one.to_string().parse() == Ok(one)));
    }

    #[test]
    fn android_asks_for_internet_access_first() {
        let none = Indicators::default();
        let choose = |wifi, lte| {
            let networks =
                [view(NetworkKind::Wifi, wifi, &none), view(NetworkKind::Cellular, lte, &none)];
            BaselinePolicy::new(Baseline::Android).choose(&networks)
        };
        assert_eq!(
            (choose(true, true), choose(false, true), choose(false, false)),
            (WIFI, LTE, WIFI)
        );
    }

    #[test]
    fn three_pings_in_a_row_change_the_network() {
        let none = Indicators::default();
        let networks =
            [NetworkKind::Wifi, NetworkKind::Cellular].map(|kind| view(kind, true, &none));
        let mut policy = BaselinePolicy::new(Baseline::Mwan3);
        let good = Some(Span::from_millis(30));
        let mut after = |pings: &[Option<Span>]| {
            for ping in pings {
                policy.pinged(0, *ping);
            }
            policy.choose(&networks)
        };
        assert_eq!(after(&[None, None, good, None, None]), WIFI);
        assert_eq!(after(&[Some(Span::from_millis(900))]), LTE);
        assert_eq!(after(&[good, good, None, good, good]), LTE);
        assert_eq!(after(&[good]), WIFI);
    }

    #[test]
    fn the_last_rate_may_be_that_of_a_probe_or_of_traffic() {
        let mut wifi = with_rate(1, Indicator::UdpRate, 30.0);
        let lte = with_rate(2, Indicator::UdpRate, 20.0);
        let policy = BaselinePolicy::new(Baseline::LastRate);
        let choose = |wifi: &Indicators| {
            let networks =
                [view(NetworkKind::Wifi, true, wifi), view(NetworkKind::Cellular, true, &lte)];
            policy.choose(&networks)
        };
        assert_eq!(choose(&wifi), WIFI);
        wifi.set(Time::from_millis(3), Indicator::OwnRate, 10.0);
        assert_eq!(choose(&wifi), LTE);
        assert_eq!(choose(&Indicators::default()), LTE);
    }

    #[test]
    fn each_network_is_tried_before_the_best_one_is_known() {
        let none = Indicators::default();
        let networks =
            [NetworkKind::Wifi, NetworkKind::Cellular].map(|kind| view(kind, true, &none));
        let mut policy = BaselinePolicy::new(Baseline::RecentBest);
        assert_eq!(policy.choose(&networks), WIFI);
        policy.transferred(Choice::Only(0), Size::from_mib(1), 2.0);
        assert_eq!(policy.choose(&networks), LTE);
        policy.transferred(Choice::Only(1), Size::from_mib(1), 3.0);
        assert_eq!(policy.choose(&networks), WIFI);
        policy.transferred(Choice::Only(0), Size::from_mib(1), 4.0);
        assert_eq!(policy.choose(&networks), LTE);
    }
}
