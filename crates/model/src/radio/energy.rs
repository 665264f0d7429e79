//! Energy of a trace and its causes: states, owners, kinds of bursts, and time.

use std::collections::HashMap;

use manyways_unit::{Span, Time};

use super::burst::{Bursts, Kind, Period, Total};
use super::meter::{Account, Meter};
use super::policy::NEVER;
use super::timeline::{EnergySteps, Segment, Timeline};
use super::{App, EnergyShare, EnergyShares, Packet, Profile};

/// Owners to which energy is attributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Applications by their names in the trace.
    Application,
    /// Flows, or sessions if the trace has no flows.
    Flow,
}

impl By {
    /// Name of an owner.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Flow => "flow",
        }
    }
}

/// Maximum number of separate owners.
const MAX_OWNERS: usize = 50_000;
/// Steps of [`Energies::steps`], and their initial width.
const STEPS: (usize, Span) = (1_200, Span::from_millis(250));
/// Maximum length of [`Energies::head`].
const HEAD: usize = 400;

/// Accounts for the energy of a trace under the network's timers.
#[derive(Clone, Debug)]
pub struct Accounting {
    by: By,
    meter: Meter,
    shares: EnergyShares<u32>,
    bursts: Bursts,
    timeline: Timeline,
    steps: EnergySteps,
    head: Vec<Segment>,
    /// Times of the first and the last packet.
    times: Option<(Time, Time)>,
    /// Application and start of each flow.
    flows: HashMap<u32, (u16, Time)>,
}

/// Energy of a trace.
#[derive(Clone, Debug)]
pub struct Energies {
    pub account: Account,
    pub by: By,
    /// By energy, descending.
    pub owners: Vec<(String, EnergyShare)>,
    /// Sum of the owners beyond 50,000.
    pub others: EnergyShare,
    /// Joules of the released radio.
    pub idle: f64,
    pub bursts: [(Kind, Total); 5],
    /// By number of bursts, descending.
    pub periods: Vec<(String, Period)>,
    /// Energy over the whole trace.
    pub steps: EnergySteps,
    /// The first segments of the timeline.
    pub head: Vec<Segment>,
}

/// Capacity and voltage of the battery.
#[derive(Clone, Copy, Debug)]
pub struct Battery {
    /// In mAh; `None` if unknown.
    pub capacity: Option<f64>,
    pub volts: f64,
}

impl Battery {
    /// Converts joules to mAh at the battery's voltage.
    pub fn mah(&self, joules: f64) -> f64 {
        joules / self.volts / 3.6
    }

    /// Joules as a share of the capacity; `None` without a capacity.
    pub fn share(&self, joules: f64) -> Option<f64> {
        self.capacity.map(|mah| self.mah(joules) / mah)
    }
}

impl Accounting {
    /// `inputs` are the times of the user's inputs, in order.
    pub fn new(profile: &Profile, inputs: Vec<Time>, by: By) -> Self {
        Self {
            by,
            meter: Meter::new(profile),
            shares: EnergyShares::new(profile, MAX_OWNERS),
            bursts: Bursts::new(inputs),
            timeline: Timeline::new(profile),
            steps: EnergySteps::new(STEPS.0, STEPS.1),
            head: Vec::new(),
            times: None,
            flows: HashMap::new(),
        }
    }

    /// Adds a packet, and passes each segment of the timeline that is final to `each`.
    pub fn push(&mut self, packet: &Packet, mut each: impl FnMut(&Segment)) {
        let gap = self.times.map(|(_, last)| packet.at.since(last));
        let first = self.times.map_or(packet.at, |(first, _)| first);
        self.times = Some((first, packet.at));
        match gap {
            None => self.meter.push_first(packet),
            Some(gap) => {
                self.meter.push(packet, gap, NEVER);
            }
        }
        let owner = match self.by {
            By::Application => packet.app.into(),
            By::Flow => {
                if self.flows.len() < MAX_OWNERS {
                    self.flows.entry(packet.session).or_insert((packet.app, packet.at));
                }
                packet.session
            }
        };
        let (before, own) = self.shares.push(owner, packet, gap);
        self.bursts.push(packet, before, own);
        let Self { timeline, steps, head, .. } = self;
        timeline.push(packet, |segment| {
            take(steps, head, first, &segment);
            each(&segment);
        });
    }

    /// Ends the trace, and passes the remaining segments to `each`. `apps` are the applications of
    /// the trace, indexed by number.
    pub fn finish(mut self, apps: &[App], mut each: impl FnMut(&Segment)) -> Energies {
        self.meter.finish(NEVER);
        self.bursts.finish(self.shares.finish());
        if let Some((first, _)) = self.times {
            let Self { timeline, steps, head, .. } = &mut self;
            timeline.finish(|segment| {
                take(steps, head, first, &segment);
                each(&segment);
            });
        }
        let name = |app: u16| {
            let app = apps.get(usize::from(app)).filter(|app| !app.name.is_empty());
            app.map_or_else(|| "(no name)".to_owned(), |app| app.name.clone())
        };
        let mut periods: Vec<(String, Period)> =
            self.bursts.periods().iter().map(|(app, period)| (name(*app), *period)).collect();
        periods.sort_by(|one, other| {
            other.1.bursts.cmp(&one.1.bursts).then_with(|| one.0.cmp(&other.0))
        });
        Energies {
            account: self.meter.account().clone(),
            by: self.by,
            owners: self.owners(name),
            others: *self.shares.all().1,
            idle: self.shares.idle_energy(),
            bursts: self.bursts.totals(),
            periods,
            steps: self.steps,
            head: self.head,
        }
    }

    fn owners(&self, name: impl Fn(u16) -> String) -> Vec<(String, EnergyShare)> {
        let first = self.times.map(|(first, _)| first).unwrap_or_default();
        let mut owners: HashMap<String, EnergyShare> = HashMap::new();
        // Sorted, so that sums do not depend on the order of a hash map.
        let mut all: Vec<(&u32, &EnergyShare)> = self.shares.all().0.iter().collect();
        all.sort_by_key(|(owner, _)| **owner);
        for (owner, share) in all {
            let owner = match (self.by, self.flows.get(owner)) {
                (By::Application, _) => name(*owner as u16),
                (By::Flow, Some((app, at))) => {
                    format!("{} +{:.3} s #{owner}", name(*app), at.since(first).as_secs_f64())
                }
                (By::Flow, None) => format!("#{owner}"),
            };
            owners.entry(owner).or_default().add(share);
        }
        let mut owners: Vec<(String, EnergyShare)> = owners.into_iter().collect();
        owners.sort_by(|one, other| {
            other.1.total().total_cmp(&one.1.total()).then_with(|| one.0.cmp(&other.0))
        });
        owners
    }
}

fn take(steps: &mut EnergySteps, head: &mut Vec<Segment>, first: Time, segment: &Segment) {
    steps.add(segment.start.since(first), segment.end.since(first), segment.joules);
    if head.len() < HEAD {
        head.push(*segment);
    }
}

impl Energies {
    /// Parts of the energy: name, time if the part takes time, joules.
    pub fn parts(&self, profile: &Profile) -> Vec<(String, Option<Span>, f64)> {
        let account = &self.account;
        let mut parts = vec![
            ("sending".to_owned(), Some(account.transfer_time[0]), account.transfer_energy[0]),
            ("receiving".to_owned(), Some(account.transfer_time[1]), account.transfer_energy[1]),
        ];
        for (place, state) in profile.states.iter().enumerate() {
            let time = Some(account.state_time[place]);
            parts.push((state.name.clone(), time, account.state_energy[place]));
        }
        parts.push(("demotions".to_owned(), None, account.demotion_energy));
        parts.push(("promotions".to_owned(), None, account.promotion_energy));
        parts
    }

    /// The `top` owners, and the sum of all further ones as one row.
    pub fn top(&self, top: usize) -> Vec<(String, EnergyShare)> {
        let mut rows: Vec<(String, EnergyShare)> = self.owners.iter().take(top).cloned().collect();
        let rest = self.owners.iter().skip(top).map(|(_, share)| share).chain([&self.others]);
        let (mut others, mut count) = (EnergyShare::default(), 0);
        for share in rest.filter(|share| share.packets > 0) {
            count += 1;
            others.add(share);
        }
        if count > 0 {
            rows.push((format!("{count} others"), others));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;
    use crate::radio::{Apps, profiles, workload};

    #[test]
    fn every_division_adds_up_to_the_total() {
        let profile = profiles::named("lte").unwrap().unwrap();
        let mut workload = workload::mixed(3, Span::from_secs(20_000));
        let mut apps = Apps::default();
        for name in workload::Workload::names(&workload) {
            apps.number(name, None);
        }
        let packets: Vec<Packet> = workload.by_ref().collect();
        for by in [By::Application, By::Flow] {
            let mut accounting = Accounting::new(&profile, Vec::new(), by);
            let mut drawn = 0.0;
            for packet in &packets {
                accounting.push(packet, |segment| drawn += segment.joules);
            }
            let found = accounting.finish(apps.all(), |segment| drawn += segment.joules);
            let total = found.account.total();
            let near = |joules: f64| (joules / total - 1.0).abs() < 1e-9;
            let parts: f64 = found.parts(&profile).iter().map(|(_, _, joules)| joules).sum();
            let steps: f64 = found.steps.power().map(|(_, power)| power.as_watts()).sum();
            let owners: f64 = found.owners.iter().map(|(_, share)| share.total()).sum();
            let bursts: f64 = found.bursts.iter().map(|(_, total)| total.cost).sum();
            assert!(near(drawn) && near(parts), "{drawn} {parts} {total}");
            assert!(near(steps * found.steps.width().as_secs_f64()), "{steps} {total}");
            assert!(near(owners + found.others.total() + found.idle), "{owners} {total}");
            assert!(near(bursts + found.idle), "{bursts} {total}");
            assert!(found.owners.is_sorted_by(|a, b| a.1.total() >= b.1.total()));
            let top = found.top(2);
            assert_eq!(top.len(), 3);
            let of =
                |rows: &[(String, EnergyShare)]| rows.iter().map(|row| row.1.packets).sum::<u64>();
            assert_eq!(of(&top), packets.len() as u64);
            let name = &found.owners[0].0;
            assert_eq!(name.contains(" s #"), by == By::Flow, "{name}");
        }
    }

    #[test]
    fn a_battery_converts_joules() {
        let battery = Battery { capacity: Some(1_000.0), volts: 4.0 };
        assert_eq!((battery.mah(144.0), battery.share(144.0)), (10.0, Some(0.01)));
        assert_eq!(Battery { capacity: None, ..battery }.share(1.0), None);
    }
}
