//! What the world looks like to a policy: the paths of a client and its battery, looked at again
//! and again.

use std::collections::HashMap;
use std::path::Path;

use manyways_proto::bond::path::PathState;
use manyways_proto::estimate::{Look, Losses, Offer};
use manyways_proto::mux::CarrierId;
use manyways_proto::policy::{PathFacts, Policy, Surroundings};
use manyways_proto::sched::PathId;
use manyways_sys::interface::Interface;
use manyways_sys::power;
use manyways_unit::{Rate, Size, Span, Time};

use super::session::Session;
use super::tally::Share;
use super::usage::{Day, Usage};

/// A path that does not get through for so long is down.
const SUSPICION: Span = Span::from_secs(1);
/// One that slept gets so long to wake up.
const WAKING: Span = Span::from_secs(3);
/// The month's count is written so often at most.
const SAVE: Span = Span::from_secs(60);
/// The battery is looked at so often.
const POWER: Span = Span::from_secs(10);
/// What flows is measured over this.
const SPEED: Span = Span::from_millis(900);

/// What is known of a path beside the facts for a policy.
#[derive(Clone, Debug)]
pub(super) struct PathView {
    pub(super) facts: PathFacts,
    pub(super) state: PathState,
    /// What carries it: `tcp`, `quic`.
    pub(super) carrier: Option<&'static str>,
    /// What came and went in all.
    pub(super) traffic: Share,
    pub(super) down: Rate,
    pub(super) up: Rate,
    /// What waits in the kernel here, and what is on its way.
    pub(super) unsent: Size,
    pub(super) in_flight: Size,
    pub(super) left: Option<Size>,
}

/// Who looks.
pub(super) struct Watch {
    usage: Usage,
    saved: Time,
    power: Option<(Time, power::Power)>,
    paths: HashMap<PathId, Watched>,
}

#[derive(Default)]
struct Watched {
    offer: Offer,
    losses: Losses,
    carrier: Option<CarrierId>,
    suspect_since: Option<Time>,
    slept: Option<Time>,
    counted: u64,
    speed: Option<(Time, Share)>,
    flows: (Rate, Rate),
    rtt: Option<Span>,
    least_rtt: Option<Span>,
}

impl Watch {
    pub(super) fn new(usage: Usage) -> Self {
        Self { usage, saved: Time::ZERO, power: None, paths: HashMap::new() }
    }

    /// Looks at everything.
    pub(super) fn look(
        &mut self,
        known: &[(PathId, Interface)],
        session: &mut Session,
        policy: &Policy,
        asleep: impl Fn(PathId) -> bool,
    ) -> (Surroundings, Vec<PathView>) {
        let now = session.now();
        let today = Day::today();
        let traffic = session.traffic();
        let states = session.vitals();
        let status = session.status();
        let mut views = Vec::with_capacity(known.len());
        for (id, interface) in known {
            let kind = interface.kind.word();
            let name = interface.name.as_str();
            let plan = policy.plan(name, kind);
            let from_day = plan.map_or(1, |plan| plan.from_day);
            let share = traffic.get(id).copied().unwrap_or_default();
            let bytes = share.sent + share.received;
            let watched = self.paths.entry(*id).or_default();
            self.usage.add(name, from_day, today, bytes.saturating_sub(watched.counted));
            watched.counted = bytes;
            // Those that are replaced have a newer one beside them for a moment.
            let carriers = status.iter().filter(|(_, status)| status.path == *id);
            let suspect = carriers.clone().next().is_some()
                && carriers.clone().all(|(_, status)| status.suspect);
            watched.suspect_since =
                if suspect { watched.suspect_since.or(Some(now)) } else { None };
            let state = match carriers.clone().next() {
                None if asleep(*id) => PathState::Asleep,
                None => PathState::Down,
                Some(_) if suspect => PathState::Suspect,
                Some(_) => PathState::Up,
            };
            let given_up = watched.suspect_since.is_some_and(|at| now.since(at) >= SUSPICION);
            let newest = carriers.clone().next_back().map(|(_, status)| status);
            let condition = newest.and_then(|status| status.condition);
            if state == PathState::Asleep {
                watched.slept = Some(now);
            }
            if let Some((carrier, vitals)) = states.get(id) {
                if watched.carrier != Some(*carrier) {
                    watched.losses = Losses::default();
                    watched.least_rtt = None;
                    watched.carrier = Some(*carrier);
                }
                watched.losses.look(vitals.packets, vitals.lost);
                watched.rtt = vitals.rtt.or(watched.rtt);
                let seen = watched.least_rtt.into_iter().chain(vitals.rtt).min();
                watched.least_rtt = vitals.least_rtt.or(seen);
                let look = Look {
                    bytes: Size::from_bytes(bytes),
                    rtt: vitals.rtt,
                    least_rtt: watched.least_rtt,
                    backlog: vitals.backlog,
                };
                watched.offer.look(now, look);
            }
            watched.measure(now, share);
            let used = self.usage.used(name, from_day, today);
            let facts = PathFacts {
                up: match state {
                    PathState::Up | PathState::Asleep => true,
                    PathState::Suspect => !given_up,
                    PathState::Down => watched.slept.is_some_and(|at| now.since(at) < WAKING),
                },
                metered: interface.metered.is_metered(),
                used: Some(used),
                rate: watched.offer.rate(),
                load: watched.offer.load(),
                rtt: watched.rtt,
                loss: watched.losses.share(),
                ..PathFacts::new(*id, name, kind)
            };
            views.push(PathView {
                facts,
                state,
                carrier: newest.map(|status| status.kind),
                traffic: share,
                down: watched.flows.0,
                up: watched.flows.1,
                unsent: condition.map(|condition| condition.unsent).unwrap_or_default(),
                in_flight: condition.map(|condition| condition.flying()).unwrap_or_default(),
                left: plan.map(|plan| plan.monthly.saturating_sub(used)),
            });
        }
        if now.since(self.saved) >= SAVE {
            self.saved = now;
            self.save();
        }
        let power = self.power(now);
        let surroundings = Surroundings {
            paths: views.iter().map(|view| view.facts.clone()).collect(),
            battery: power.battery,
            charging: power.charging,
        };
        (surroundings, views)
    }

    /// Writes down what flowed this month.
    pub(super) fn save(&mut self) {
        if let Err(error) = self.usage.save() {
            tracing::warn!("what flowed this month cannot be written down: {error}");
        }
    }

    fn power(&mut self, now: Time) -> power::Power {
        match self.power {
            Some((at, power)) if now.since(at) < POWER => power,
            _ => {
                let power = power::read(Path::new(power::FOLDER));
                self.power = Some((now, power));
                power
            }
        }
    }
}

impl Watched {
    fn measure(&mut self, now: Time, share: Share) {
        let Some((then, before)) = self.speed else {
            self.speed = Some((now, share));
            return;
        };
        let span = now.since(then);
        if span < SPEED {
            return;
        }
        let rate = |now: u64, before: u64| Rate::of(Size::from_bytes(now - before), span);
        self.flows = (rate(share.received, before.received), rate(share.sent, before.sent));
        self.speed = Some((now, share));
    }
}
