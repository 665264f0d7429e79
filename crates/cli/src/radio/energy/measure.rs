//! Reads a trace once and computes all results of `radio energy`.

use std::collections::HashMap;

use anyhow::Result;
use manyways_model::radio::burst::{Bursts, Kind, Period, Total};
use manyways_model::radio::meter::{Account, Meter};
use manyways_model::radio::policy::NEVER;
use manyways_model::radio::timeline::{Phase, Segment, Steps, Timeline};
use manyways_model::radio::{Direction, Share, Shares};
use manyways_net::radio::trace::{Progress, Seen, Trace};
use manyways_unit::Time;

use crate::radio::known::Known;
use crate::radio::traces::failure;

/// Owners to which energy is attributed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Applications by their names in the trace
    Application,
    /// Flows, or sessions if the trace has no flows
    Flow,
}

pub struct Measured {
    pub trace: String,
    pub known: Known,
    pub seen: Seen,
    pub account: Account,
    /// By energy, descending.
    pub owners: Vec<(String, Share)>,
    /// Sum of owners beyond [`OWNERS`].
    pub others: Share,
    pub idle: f64,
    pub bursts: [(Kind, Total); 5],
    /// By number of bursts, descending.
    pub periods: Vec<(String, Period)>,
    /// Energy over the whole trace.
    pub steps: Steps,
    /// The first segments of the timeline.
    pub head: Vec<Segment>,
    pub by: By,
}

/// Maximum number of separate owners.
const OWNERS: usize = 50_000;
/// Steps of the report's timeline.
const STEPS: usize = 1_200;
/// Segments from the start that are drawn individually.
const HEAD: usize = 400;

impl Measured {
    /// Seconds from the first packet to the last.
    pub fn lasts(&self) -> f64 {
        let span = self.seen.first.zip(self.seen.last);
        span.map_or(0.0, |(first, last)| last.since(first).as_secs_f64())
    }

    /// Joules a day; `None` if the trace is too short.
    pub fn a_day(&self) -> Option<f64> {
        const SHORTEST: f64 = 600.0;
        let lasts = self.lasts();
        (lasts >= SHORTEST).then(|| self.account.total() / lasts * 86_400.0)
    }

    pub fn states(&self) -> Vec<String> {
        self.known.profile.states.iter().map(|state| state.name.clone()).collect()
    }

    /// Parts of the energy: name, seconds if the part takes time, joules.
    pub fn parts(&self) -> Vec<(String, Option<f64>, f64)> {
        let account = &self.account;
        let mut parts = vec![
            ("sending".to_owned(), Some(account.transfer_secs[0]), account.transfer[0]),
            ("receiving".to_owned(), Some(account.transfer_secs[1]), account.transfer[1]),
        ];
        for (place, state) in self.states().into_iter().enumerate() {
            parts.push((state, Some(account.state_secs[place]), account.states[place]));
        }
        parts.push(("demotions".to_owned(), None, account.demotions));
        parts.push(("promotions".to_owned(), None, account.promotions));
        parts
    }
}

/// Name of a phase.
pub fn phase(phase: Phase, states: &[String]) -> String {
    match phase {
        Phase::Transfer(Direction::Up) => "sending".to_owned(),
        Phase::Transfer(Direction::Down) => "receiving".to_owned(),
        Phase::State(place) => states.get(place).cloned().unwrap_or_default(),
        Phase::Promotion(_) => "promotion".to_owned(),
        Phase::Demotion(_) => "demotion".to_owned(),
    }
}

pub fn measure(
    known: &Known,
    trace: &mut Trace,
    inputs: &[Time],
    by: By,
    progress: &Progress,
    write: &mut dyn FnMut(&Segment, &[String]) -> Result<()>,
) -> Result<Measured> {
    let profile = &known.profile;
    let states: Vec<String> = profile.states.iter().map(|state| state.name.clone()).collect();
    let mut meter = Meter::new(profile);
    let mut shares: Shares<u32> = Shares::new(profile, OWNERS);
    let mut bursts = Bursts::new(inputs.to_vec());
    let mut timeline = Timeline::new(profile);
    let mut steps = Steps::new(STEPS, 0.25);
    let mut head = Vec::new();
    let mut fault = None;
    let mut first: Option<Time> = None;
    let mut last: Option<Time> = None;
    // Application and start of each flow.
    let mut flows: HashMap<u32, (u16, Time)> = HashMap::new();
    let mut take = |segment: Segment, first: Time| {
        let from = segment.begins.since(first).as_secs_f64();
        let to = segment.ends.since(first).as_secs_f64();
        steps.add(from, to, segment.joules);
        if head.len() < HEAD {
            head.push(segment);
        }
        if fault.is_none() {
            fault = write(&segment, &states).err();
        }
    };
    let seen = trace
        .read(progress, |packet| {
            let begin = *first.get_or_insert(packet.at);
            let gap = last.map(|last: Time| packet.at.since(last).as_secs_f64());
            match gap {
                None => meter.begin(packet),
                Some(gap) => {
                    meter.next(packet, gap, NEVER);
                }
            }
            let owner = match by {
                By::Application => packet.app.into(),
                By::Flow => {
                    if flows.len() < OWNERS {
                        flows.entry(packet.session).or_insert((packet.app, packet.at));
                    }
                    packet.session
                }
            };
            let (before, own) = shares.next(owner, packet, gap);
            bursts.next(packet, before, own);
            timeline.next(packet, |segment| take(segment, begin));
            last = Some(packet.at);
        })
        .map_err(failure)?;
    meter.end(NEVER);
    bursts.end(shares.end());
    if let Some(first) = first {
        timeline.end(|segment| take(segment, first));
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let name = |app: u16| {
        let app = trace.apps().get(usize::from(app));
        app.map(|app| app.name.clone()).filter(|name| !name.is_empty())
    };
    let unnamed = || "(no name)".to_owned();
    let mut owners: HashMap<String, Share> = HashMap::new();
    let (all, others) = shares.all();
    // Sorted, so that sums do not depend on the order of a hash map.
    let mut all: Vec<(&u32, &Share)> = all.iter().collect();
    all.sort_by_key(|(owner, _)| **owner);
    for (owner, share) in all {
        let owner = match by {
            By::Application => name(*owner as u16).unwrap_or_else(unnamed),
            By::Flow => match flows.get(owner) {
                Some((app, at)) => {
                    let since = at.since(first.unwrap_or_default()).as_secs_f64();
                    format!("{} +{since:.3} s #{owner}", name(*app).unwrap_or_else(unnamed))
                }
                None => format!("#{owner}"),
            },
        };
        let sum = owners.entry(owner).or_default();
        sum.packets += share.packets;
        sum.bytes[0] += share.bytes[0];
        sum.bytes[1] += share.bytes[1];
        sum.transfer += share.transfer;
        sum.tail += share.tail;
        sum.promotion += share.promotion;
        sum.switches += share.switches;
    }
    let mut owners: Vec<(String, Share)> = owners.into_iter().collect();
    owners.sort_by(|one, other| {
        other.1.total().total_cmp(&one.1.total()).then_with(|| one.0.cmp(&other.0))
    });
    let mut periods: Vec<(String, Period)> = bursts
        .periods()
        .iter()
        .map(|(app, period)| (name(*app).unwrap_or_else(unnamed), *period))
        .collect();
    periods
        .sort_by(|one, other| other.1.bursts.cmp(&one.1.bursts).then_with(|| one.0.cmp(&other.0)));
    Ok(Measured {
        trace: trace.name().to_owned(),
        known: known.clone(),
        seen,
        account: meter.account().clone(),
        owners,
        others: *others,
        idle: shares.idle(),
        bursts: bursts.totals(),
        periods,
        steps,
        head,
        by,
    })
}
