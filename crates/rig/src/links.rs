//! Emulated links, and the lower bound of the time in which they can deliver an object.

use std::path::{Path, PathBuf};

use manyways_trace::scenario::{
    CapacitySpec, Change, DelaySpec, DirectionSpec, Event, LinkSpec, LinkState,
};
use manyways_trace::{LinkTrace, Steps, trace_file};
use manyways_unit::{Rate, Size, Span};

/// Round-trip time with empty queues (MP-H2).
pub const WIFI_RTT: Span = Span::from_millis(28);
/// Round-trip time with empty queues (MP-H2).
pub const LTE_RTT: Span = Span::from_millis(65);
/// Minimum uplink rate, which leaves room for acknowledgements.
const MIN_UP: Rate = Rate::from_mbps(5);
/// Seconds after which a fluid-model transfer counts as never complete.
const MAX_TRANSFER_SECONDS: f64 = 3600.0;
/// Default folder of the recorded pairs, relative to the repository.
const PAIRS_FOLDER: &str = "../shared/traces/pairs";

/// A link with `mbps` Mbit/s downlink and half of it uplink. The queue is the default of
/// [`DirectionSpec`]: drop-tail, 150 ms.
pub fn constant(name: &str, mbps: u64, round_trip: Span) -> LinkSpec {
    let up = Rate::from_mbps(mbps.div_ceil(2)).max(MIN_UP);
    link(name, CapacitySpec::Constant(Rate::from_mbps(mbps)), up, round_trip)
}

/// A link whose downlink follows a trace.
fn traced(name: &str, source: &str, trace: LinkTrace, round_trip: Span) -> LinkSpec {
    let up = Rate::from_bps(trace.mean_rate().as_bps() / 2).max(MIN_UP);
    link(name, CapacitySpec::Trace { source: source.to_owned(), trace }, up, round_trip)
}

/// A link with the default queue of [`DirectionSpec`]: drop-tail, 150 ms.
pub fn link(name: &str, down: CapacitySpec, up: Rate, round_trip: Span) -> LinkSpec {
    let half = DelaySpec::Constant(Span::from_nanos(round_trip.as_nanos() / 2));
    let way = |capacity| DirectionSpec { capacity, delay: half.clone(), ..Default::default() };
    LinkSpec { down: way(down), up: way(CapacitySpec::Constant(up)), ..LinkSpec::new(name) }
}

/// Wi-Fi and LTE with these downlink rates in Mbit/s.
pub fn wifi_and_lte(wifi: u64, lte: u64) -> Vec<LinkSpec> {
    vec![constant("wifi", wifi, WIFI_RTT), constant("lte", lte, LTE_RTT)]
}

/// Mean downlink rate; 1 Gbit/s if the link has no limit.
pub fn mean_rate(link: &LinkSpec) -> Rate {
    match &link.down.capacity {
        CapacitySpec::Unlimited => Rate::from_mbps(1_000),
        CapacitySpec::Constant(rate) => *rate,
        CapacitySpec::Trace { trace, .. } => trace.mean_rate(),
    }
}

/// Sum of the mean downlink rates.
pub fn total_rate(links: &[LinkSpec]) -> Rate {
    links.iter().map(mean_rate).sum()
}

/// Round-trip time with empty queues; a delay trace counts as zero.
pub fn round_trip(link: &LinkSpec) -> Span {
    let one_way = |way: &DirectionSpec| match way.delay {
        DelaySpec::Constant(delay) => delay,
        DelaySpec::Trace { .. } => Span::ZERO,
    };
    one_way(&link.down) + one_way(&link.up)
}

/// Period of a link's downlink trace; `None` if the link follows no trace.
pub fn period(link: &LinkSpec) -> Option<Span> {
    match &link.down.capacity {
        CapacitySpec::Trace { trace, .. } => Some(trace.period()),
        _ => None,
    }
}

/// Describes a link: `wifi 10 Mbit/s, 28 ms`.
pub fn describe(link: &LinkSpec) -> String {
    let rate = match &link.down.capacity {
        CapacitySpec::Trace { source, .. } => {
            format!("as {source}, {:.1} Mbit/s on average", mean_rate(link).as_mbps_f64())
        }
        _ => mean_rate(link).to_string(),
    };
    format!("{} {rate}, {}", link.name, round_trip(link))
}

/// Wi-Fi and cellular traces that were recorded on the same walk.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Place and run, as in the file names.
    pub name: String,
    wifi: Steps<Rate>,
    cellular: Steps<Rate>,
}

impl Pair {
    /// The two links at the recorded rates.
    pub fn links(&self) -> Vec<LinkSpec> {
        self.scaled_by(1.0)
    }

    /// The two links, scaled by one factor so that their mean rates add up to `sum`.
    pub fn scaled_links(&self, sum: Rate) -> Vec<LinkSpec> {
        let links = self.links();
        self.scaled_by(sum.as_bps() as f64 / total_rate(&links).as_bps().max(1) as f64)
    }

    /// The two links, Wi-Fi first, with all rates multiplied by a factor.
    pub fn scaled_by(&self, factor: f64) -> Vec<LinkSpec> {
        let copy = |steps: &Steps<Rate>| {
            let scale = |rate: Rate| Rate::from_bps((rate.as_bps() as f64 * factor) as u64);
            let scaled = steps.steps().iter().map(|(at, rate)| (*at, scale(*rate))).collect();
            // The times are unchanged and formed a valid trace before.
            LinkTrace::Rates(Steps::new(scaled, steps.period()).unwrap_or_else(|_| steps.clone()))
        };
        let named = |network: &str| format!("{}_{network}", self.name);
        vec![
            traced("wifi", &named("wifi"), copy(&self.wifi), WIFI_RTT),
            traced("lte", &named("cellular"), copy(&self.cellular), LTE_RTT),
        ]
    }
}

/// Reads the recorded pairs for these parts of a benchmark. If the default folder is missing, the
/// result is empty and `left_out` gets a line.
///
/// # Errors
/// One sentence, if an explicitly configured folder has no readable pairs.
pub fn find_pairs(
    named: Option<&Path>,
    parts: &str,
    left_out: &mut Vec<String>,
) -> Result<Vec<Pair>, String> {
    let variable = std::env::var_os("MANYWAYS_PAIRS").map(PathBuf::from);
    let folder = named.map(Path::to_owned).or(variable);
    match (pairs(folder.as_deref().unwrap_or(Path::new(PAIRS_FOLDER))), folder) {
        (Ok(pairs), _) => Ok(pairs),
        (Err(why), Some(_)) => Err(why),
        (Err(_), None) => {
            let words = format!("({parts}): there are no recorded pairs in {PAIRS_FOLDER}");
            eprintln!("skipped: {words}");
            left_out.push(words);
            Ok(Vec::new())
        }
    }
}

/// Reads the pairs `NAME_wifi.csv` and `NAME_cellular.csv` of a folder, sorted by name.
///
/// # Errors
/// One sentence, if there are no pairs or a file is invalid.
fn pairs(folder: &Path) -> Result<Vec<Pair>, String> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix("_wifi.csv").map(String::from))
        .collect();
    names.sort();
    let read = |name: &str, network: &str| {
        let file = folder.join(format!("{name}_{network}.csv"));
        let wrong = |why: String| format!("{}: {why}", file.display());
        let bytes = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
        match trace_file::capacity(&bytes, Some(trace_file::Format::Bytes)) {
            Ok(LinkTrace::Rates(steps)) => Ok(steps),
            Ok(_) => Err(wrong("not a table of rates".to_owned())),
            Err(error) => Err(wrong(error.to_string())),
        }
    };
    let pairs: Vec<Pair> = names
        .into_iter()
        .map(|name| {
            let (wifi, cellular) = (read(&name, "wifi")?, read(&name, "cellular")?);
            Ok(Pair { name, wifi, cellular })
        })
        .collect::<Result<_, String>>()?;
    if pairs.is_empty() { Err(format!("{shown}: no file ends in _wifi.csv")) } else { Ok(pairs) }
}

/// Lower bound of a transfer time, in seconds: all links at full rate, plus the shortest round-trip
/// time. Traces start at `offset`; `events` count from the start of the transfer. `None` if the
/// transfer takes more than an hour.
pub fn fluid_bound(links: &[LinkSpec], offset: Span, events: &[Event], size: Size) -> Option<f64> {
    let request = links.iter().map(round_trip).min()?;
    let mut remaining = size.as_bytes() as f64 * 8.0;
    let mut now = Span::ZERO;
    while now.as_secs_f64() < MAX_TRANSFER_SECONDS {
        let rate: f64 = links.iter().map(|link| rate_at(link, offset, events, now)).sum();
        let change = links.iter().filter_map(|link| next_change(link, offset, now));
        let change = change.chain(events.iter().map(|event| event.at).filter(|at| *at > now)).min();
        let hold = change.map_or(f64::INFINITY, |at| (at - now).as_secs_f64());
        if rate > 0.0 && remaining <= rate * hold {
            return Some(now.as_secs_f64() + remaining / rate + request.as_secs_f64());
        }
        remaining -= rate * hold.min(MAX_TRANSFER_SECONDS);
        now = change?;
    }
    None
}

/// The downlink rate in bit/s at a time of the transfer.
fn rate_at(link: &LinkSpec, offset: Span, events: &[Event], now: Span) -> f64 {
    let over = events.iter().filter(|event| event.link == link.name && event.at <= now);
    let changes: Vec<&Change> = over.flat_map(|event| &event.change).collect();
    let mut link = link.clone();
    changes.into_iter().for_each(|change| link.apply(change));
    if link.state != LinkState::Up {
        return 0.0;
    }
    let rate = match &link.down.capacity {
        CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => *steps.at(offset + now),
        _ => mean_rate(&link),
    };
    rate.as_bps() as f64
}

/// Time of the next step of a link's trace.
fn next_change(link: &LinkSpec, offset: Span, now: Span) -> Option<Span> {
    let CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } = &link.down.capacity else {
        return None;
    };
    let within = Span::from_nanos((offset + now).as_nanos() % steps.period().as_nanos());
    let next = steps.steps().iter().map(|step| step.0).find(|at| *at > within);
    Some(now + (next.unwrap_or(steps.period()) - within))
}

/// An event that changes the downlink rate of a link.
pub fn rate_drop(link: &str, at: Span, to: Rate) -> Event {
    let change = vec![Change::Down(CapacitySpec::Constant(to))];
    Event { when: None, at, until: None, link: link.to_owned(), change }
}

/// An event after which a link discards all packets silently.
pub fn blackhole(link: &str, at: Span) -> Event {
    let change = vec![Change::State(LinkState::Silent)];
    Event { when: None, at, until: None, link: link.to_owned(), change }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn seconds(links: &[LinkSpec], offset: u64, events: &[Event], bytes: u64) -> f64 {
        fluid_bound(links, Span::from_secs(offset), events, Size::from_bytes(bytes)).unwrap()
    }

    fn steps(mbps: &[u64]) -> Steps<Rate> {
        let at = |second: usize| Span::from_secs(second as u64);
        let steps = mbps.iter().enumerate().map(|(s, rate)| (at(s), Rate::from_mbps(*rate)));
        Steps::new(steps.collect(), at(mbps.len())).unwrap()
    }

    fn pair() -> Pair {
        Pair { name: "7_1".into(), wifi: steps(&[8, 0, 16]), cellular: steps(&[8, 8, 8]) }
    }

    #[test]
    fn the_bound_is_all_links_at_full_rate_and_the_shortest_round_trip() {
        // 64 Mbit over 15 Mbit/s, and Wi-Fi's 28 ms.
        let bound = seconds(&wifi_and_lte(10, 5), 0, &[], 8 * MB);
        assert!((bound - (64.0 / 15.0 + 0.028)).abs() < 1e-9, "{bound}");
    }

    #[test]
    fn the_bound_follows_a_trace_from_its_offset_and_around_its_end() {
        let links = pair().links();
        // 16 Mbit in the first second, 8 in the second, 24 in the third.
        let bound = seconds(&links, 0, &[], 3 * MB);
        assert!((bound - 2.028).abs() < 1e-9, "{bound}");
        let bound = seconds(&links, 1, &[], 4 * MB);
        assert!((bound - 2.028).abs() < 1e-9, "{bound}");
        // From the third second into the first of the next period: 24 Mbit and 8 of its 16 Mbit.
        let bound = seconds(&links, 2, &[], 4 * MB);
        assert!((bound - 1.528).abs() < 1e-9, "{bound}");
    }

    #[test]
    fn the_bound_knows_what_happens_on_the_way() {
        let links = wifi_and_lte(8, 8);
        let drop = rate_drop("lte", Span::from_secs(1), Rate::ZERO);
        // 16 Mbit in the first second, 8 in each second after it.
        assert!((seconds(&links, 0, &[drop], 4 * MB) - 3.028).abs() < 1e-9);
        let death = blackhole("wifi", Span::from_millis(500));
        assert!((seconds(&links, 0, &[death], 2 * MB) - 1.528).abs() < 1e-9);
        let never = [blackhole("wifi", Span::ZERO), blackhole("lte", Span::ZERO)];
        assert_eq!(fluid_bound(&links, Span::ZERO, &never, Size::from_bytes(1)), None);
    }

    #[test]
    fn a_scaled_pair_keeps_its_shape() {
        let links = pair().scaled_links(Rate::from_mbps(4));
        let sum = total_rate(&links);
        assert!((sum.as_mbps_f64() - 4.0).abs() < 0.001, "{sum}");
        let bound = seconds(&links, 1, &[], 4 * MB / 4);
        assert!((bound - 2.028).abs() < 0.001, "{bound}");
    }
}
