//! Three long downloads by emulation: a bond that `manyways steer run` steers beside kernel MPTCP
//! with LTE as its backup, from the same second of the recordings.

use manyways_net::steer::event::SteerEvent;
use manyways_record::event::Record;
use manyways_rig::launch::DriveError;
use manyways_sys::signal::Termination;
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Span, Time};
use serde::Serialize;

use super::bond_lab::{BondLab, Way};
use super::data::Place;
use crate::bond::testbed::Programs;

/// When a download begins, in seconds of the recording as in virtual time, and how long it takes.
const START: u64 = 10;
const LENGTH: u64 = 40;
/// Seconds before it in which steer and the bond run.
const BEFORE: u64 = 5;
/// Seconds after its beginning at which the sockets are read.
const SAMPLE: u64 = 2;
/// Recordings.
const PLACES: usize = 3;
/// A network is the better one from this ratio of the rates on.
const CLEARLY: f64 = 2.0;
/// Mbit/s below which a download is slow, and from which a network is fast.
const SLOW: f64 = 1.0;
const FAST: f64 = 5.0;
/// Share of the payload of TCP in a packet of 1500 bytes, with the option of a timestamp.
const PAYLOAD: f64 = 1448.0 / 1500.0;
/// Tenths of a second in a second.
const TENTHS: usize = 10;

/// One of those that download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// A bond by `steer run --one-network`.
    OneNetwork,
    /// A bond by `steer run`.
    BothAllowed,
    /// Kernel MPTCP over Wi-Fi, with LTE as the backup.
    MptcpBackup,
}

impl Contender {
    pub const ALL: [Self; 3] = [Self::OneNetwork, Self::MptcpBackup, Self::BothAllowed];

    pub fn name(self) -> &'static str {
        match self {
            Self::OneNetwork => "bond, one network at a time",
            Self::BothAllowed => "bond, both allowed",
            Self::MptcpBackup => "kernel MPTCP, LTE as backup",
        }
    }
}

/// A download.
#[derive(Clone, Debug, Serialize)]
pub struct LabDownload {
    pub place: String,
    pub contender: Contender,
    /// Bytes / those that TCP gets over the better network in each second; `None` if it failed.
    pub of_oracle: Option<f64>,
    /// Longest time below 1 Mbit/s while a network offers at least 5, in seconds.
    pub slow_seconds: f64,
    /// Changes of the choice, and the share of the time in which it was both networks.
    pub switches: usize,
    pub both: f64,
    /// Bytes of each tenth of a second.
    pub tenths: Vec<f64>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// Downloads at the places of [`chosen`], one round each, into `all`.
///
/// # Errors
/// If a lab fails, or a signal ends the benchmark. The downloads before it are in `all`.
pub fn downloads(
    places: &[Place],
    programs: &Programs,
    termination: &Termination,
    all: &mut Vec<LabDownload>,
) -> Result<(), DriveError> {
    for place in chosen(places) {
        let lab = BondLab::start(&place.links, programs, termination)?;
        lab.set_backup()?;
        for contender in Contender::ALL {
            all.push(download(&lab, place, contender)?);
        }
    }
    Ok(())
}

/// Of each walk, the recording in which the networks take turns most often in the seconds of the
/// download; then those with most turns, at most [`PLACES`]. The first one if several have as many.
fn chosen(places: &[Place]) -> Vec<&Place> {
    let mut best: Vec<(usize, &Place)> = Vec::new();
    for place in places {
        let turns = turns(&offered(place));
        match best.iter_mut().find(|(_, known)| known.group == place.group) {
            Some(known) if known.0 < turns => *known = (turns, place),
            Some(_) => {}
            None => best.push((turns, place)),
        }
    }
    best.sort_by_key(|(turns, _)| std::cmp::Reverse(*turns));
    best.truncate(PLACES);
    best.into_iter().map(|(_, place)| place).collect()
}

/// How often the network changes that is [`CLEARLY`] the better one.
fn turns(offered: &[[f64; 2]]) -> usize {
    let clear = offered.iter().filter_map(|[wifi, lte]| match () {
        () if *wifi > CLEARLY * lte => Some(0),
        () if *lte > CLEARLY * wifi => Some(1),
        () => None,
    });
    let clear: Vec<u8> = clear.collect();
    clear.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Bytes a second of both networks in each second of the download.
fn offered(place: &Place) -> Vec<[f64; 2]> {
    let rate = |link: &LinkSpec, second: u64| match &link.down.capacity {
        CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => {
            steps.at(Span::from_secs(second)).as_bps() as f64 / 8.0
        }
        _ => 0.0,
    };
    let both = |second| [rate(&place.links[0], second), rate(&place.links[1], second)];
    (START..START + LENGTH).map(both).collect()
}

fn download(
    lab: &BondLab<'_>,
    place: &Place,
    contender: Contender,
) -> Result<LabDownload, DriveError> {
    let launcher = &lab.launcher;
    let (before, length) = (Span::from_secs(BEFORE), Span::from_secs(LENGTH));
    let zero = launcher.lab.restart(Span::from_secs(START - BEFORE), &[])?;
    let began = launcher.unix_seconds(zero) + before.as_secs_f64();
    let events = format!("events-{}", contender.name().replace([' ', ','], "-"));
    let options: &[&str] = match contender {
        Contender::OneNetwork => &["--bond", "default", "--bond-only", "--one-network"],
        Contender::BothAllowed => &["--bond", "default", "--bond-only"],
        Contender::MptcpBackup => &[],
    };
    let mut steer = match options {
        [] => None,
        options => Some(lab.steer(options, &events)?),
    };
    let way = if steer.is_some() { Way::Bond } else { Way::Mptcp };
    let mut load = lab.download(way, before, length)?;
    let is_early = launcher.has_ended(&mut load, before + Span::from_secs(SAMPLE))?;
    let subflows = if is_early { 0 } else { lab.subflows()? };
    let result = lab.result(load, length)?;
    if let Some(steer) = &mut steer {
        lab.end(steer)?;
    }
    launcher.drain()?;
    let mut done = LabDownload {
        place: place.name.clone(),
        contender,
        of_oracle: None,
        slow_seconds: 0.0,
        switches: 0,
        both: 0.0,
        tenths: Vec::new(),
        failure: None,
    };
    match result {
        Ok(_) if way == Way::Mptcp && subflows < 2 => {
            done.failure = Some(format!("the kernel made {subflows} MPTCP subflows"));
        }
        Ok(measured) => {
            let (share, slow) = evaluate(&measured.samples, &offered(place));
            (done.of_oracle, done.slow_seconds) = (Some(share), slow);
            done.tenths = measured.samples;
        }
        Err(reason) => done.failure = Some(reason),
    }
    if steer.is_some() {
        let log = lab.events(&events)?;
        let since = began - log.header.epoch;
        (done.switches, done.both) = choices(&log.records, since, since + LENGTH as f64);
    }
    Ok(done)
}

/// Bytes / those of the better network in each second, and the longest slow time in seconds.
fn evaluate(tenths: &[f64], offered: &[[f64; 2]]) -> (f64, f64) {
    let better = |both: &[f64; 2]| both[0].max(both[1]);
    let oracle: f64 = offered.iter().map(better).sum::<f64>() * PAYLOAD;
    let (mut row, mut longest) = (0, 0);
    for (index, bytes) in tenths.iter().enumerate() {
        let offers = offered.get(index / TENTHS).map_or(0.0, better) * 8e-6;
        let is_slow = bytes * 8e-6 * (TENTHS as f64) < SLOW && offers >= FAST;
        row = if is_slow { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    (tenths.iter().sum::<f64>() / oracle, f64::from(longest) / TENTHS as f64)
}

/// Number of changes of the choice for streams between two times of the log, and the share of
/// the time in which it was two networks.
fn choices(records: &[Record<SteerEvent>], since: f64, until: f64) -> (usize, f64) {
    let choice = |record: &Record<SteerEvent>| match &record.event {
        SteerEvent::SteerChoice { flows, networks, .. } if flows == "fast" => {
            Some((record.time.since(Time::ZERO).as_secs_f64(), networks.len()))
        }
        _ => None,
    };
    let all: Vec<(f64, usize)> = records.iter().filter_map(choice).collect();
    let switches = all.iter().filter(|(at, _)| (since..until).contains(at)).count();
    let ends = all.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let both = all.iter().zip(ends).filter(|((_, networks), _)| *networks > 1);
    let time = both.map(|((at, _), end)| (end.min(until) - at.max(since)).max(0.0));
    (switches, time.fold(0.0, |sum, one| sum + one) / (until - since))
}

#[cfg(test)]
mod tests {
    use manyways_trace::Steps;
    use manyways_unit::{Random, Rate};

    use super::*;

    fn place(name: &str, group: &str, wifi: &[u64]) -> Place {
        let length = START + LENGTH;
        let rates = |mbps: &[u64]| {
            let steps = (0..length).zip(mbps.iter().cycle());
            let steps = steps.map(|(at, mbps)| (Span::from_secs(at), Rate::from_mbps(*mbps)));
            let steps = Steps::new(steps.collect(), Span::from_secs(length)).unwrap();
            CapacitySpec::Trace { source: "test".into(), trace: LinkTrace::Rates(steps) }
        };
        let down = [rates(wifi), rates(&[10])];
        Place::new(name.into(), group.into(), length, down, &mut Random::for_purpose(1, 0))
    }

    #[test]
    fn the_recordings_are_those_with_most_turns_one_of_each_walk() {
        let places = [
            place("steady", "1", &[9]),
            place("slow-turns", "2", &[1, 1, 1, 1, 30, 30]),
            place("turns", "2", &[1, 30]),
            place("as-many", "2", &[30, 1]),
            // Better by less than a half is not clear.
            place("near", "3", &[9, 11]),
            place("some", "4", &[1, 1, 1, 1, 30, 30]),
        ];
        let names: Vec<&str> = chosen(&places).iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["turns", "some", "steady"]);
    }

    #[test]
    fn bytes_are_compared_with_those_of_the_better_network() {
        // 8 Mbit/s, then 16.
        let offered = [[1e6, 0.0], [1e6, 2e6]];
        let mut tenths = vec![1e5 * PAYLOAD; 20];
        let (share, slow) = evaluate(&tenths, &offered);
        assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
        assert_eq!(slow, 0.0);
        tenths[7..12].fill(0.0);
        assert_eq!(evaluate(&tenths, &offered).1, 0.5);
        assert_eq!(evaluate(&tenths, &[[5e5, 5e5], [5e5, 0.0]]).1, 0.0, "nothing offers more");
    }

    #[test]
    fn choices_before_the_download_count_for_the_time_only() {
        let choice = |seconds: u64, networks: &[&str]| Record {
            time: Time::from_millis(seconds * 1_000),
            event: SteerEvent::SteerChoice {
                flows: "fast".into(),
                networks: networks.iter().map(|one| (*one).to_owned()).collect(),
                seconds: None,
                decision: None,
            },
        };
        let records =
            [choice(1, &["wifi", "lte"]), choice(6, &["lte"]), choice(9, &["lte", "wifi"])];
        assert_eq!(choices(&records, 5.0, 10.0), (2, 0.4));
    }
}
