//! The networks of new flows, and of the streams of each goal, while networks change.
//!
//! [`Steering`] takes indicators, results of probes and counters of the interfaces. [`Steering::poll`]
//! returns the probe that is due, or a choice that has changed.

use std::fmt;

use manyways_unit::{Size, Span, Time};

use super::adaptive::{Monitor, ProbeDecision, ProbeLimits};
use super::decider::{Decider, Decision, Network, Override, Request, Unusable};
use super::energy::TransferEnergy;
use super::history::Sizes;
use super::indicator::Indicator;
use super::keeper::Keeper;
use super::objective::{Goal, Supply};
use super::selector::{DWELL, Kept};
use super::{Choice, NetworkKind};

mod fall;
mod stall;

use self::fall::FallMeter;
use self::stall::StallMeter;

/// Networks that are known at a time; the one that is gone for longest makes room.
pub const MAX_NETWORKS: usize = 16;
/// Shortest time between the pings of a network.
const PING_INTERVAL: Span = Span::from_secs(5);
/// The same for one that fell silent this long ago: it may return soon.
const SILENT_INTERVAL: Span = Span::from_secs(2);
const SILENT_TIME: Span = Span::from_secs(30);
/// Time after a request, traffic or a new network in which probes are sent.
const WAIT: Span = Span::from_secs(10);
/// Time between polls of indicators while something is transferred, and while nothing is (§3.6.1 of
/// the thesis: 500 ms).
const BUSY_INTERVAL: Span = Span::from_millis(500);
const IDLE_INTERVAL: Span = Span::from_secs(5);
/// Streams that have carried nothing for this long are idle.
const IDLE: Span = Span::from_secs(5);
/// Seconds that a stream loses by a change: a handshake and a first window.
const STREAM_COST: f64 = 0.2;
/// A transfer has at least these bytes between two polls of the counters.
const BUSY_BYTES: u64 = 16 << 10;
/// Time for which an answer does not show that a network works that has stood still twice, without a
/// transfer in between: its gateway may answer pings without a way to the internet. It doubles up to
/// `MAX_HOLD`.
const HOLD: Span = Span::from_secs(10);
const MAX_HOLD: Span = Span::from_secs(60);
/// Share of the bytes of streams that bursts may take while they run: where bytes pass, a network that
/// is not known well costs more than a burst.
const BURST_SHARE: f64 = 0.02;
/// While streams have paid for a burst, it follows unchanged pings after this time.
const STREAM_BLIND: Span = Span::from_secs(5);
/// Time after which a network that cannot answer pings is tried again.
const TRIAL: Span = Span::from_secs(30);

/// The flows for which networks are chosen.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// New flows of any application, of unknown size. One network carries them.
    NewFlows,
    /// The streams of a bond whose rules have this goal; two networks at once can carry them, if
    /// [`Settings::allows_both`].
    Streams(String),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewFlows => f.write_str("new flows"),
            Self::Streams(goal) => write!(f, "bond ({goal})"),
        }
    }
}

/// A part of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Pings and a query of a name server.
    Pings,
    /// A burst of UDP.
    Burst,
}

/// The result of a [`Stage`].
#[derive(Clone, PartialEq, Default, Debug)]
pub struct StageResult {
    /// NaN where nothing was measured. Empty: nothing was sent.
    pub values: Vec<(Indicator, f64)>,
    /// Why something is missing: one sentence.
    pub missing: Option<String>,
}

/// A step that the caller takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Probe a network; [`Steering::on_stage`] takes the result.
    Probe { network: String, stage: Stage },
    /// These networks carry the flows from now on, the first one first. None: no network can be used,
    /// and the host's own routes apply.
    Choose { lane: Lane, networks: Vec<String> },
}

/// A network as the host lists it.
#[derive(Clone, Debug)]
pub struct NetworkFacts {
    pub name: String,
    pub kind: NetworkKind,
    /// `None` if it can be used.
    pub unusable: Option<Unusable>,
    pub energy: TransferEnergy,
    pub price: f64,
    /// Used share of the data plan, and elapsed share of its month.
    pub plan: Option<(f64, f64)>,
    /// Bytes of probes that were spent this month.
    pub spent: Size,
    /// Bytes of probes that may be spent in a month.
    pub monthly: Option<Size>,
}

/// The parameters of a [`Steering`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// A model of completion times; without one, the closed form predicts.
    pub model: Option<super::model::Model>,
    /// Goal for new flows.
    pub goal: Goal,
    pub limits: ProbeLimits,
    /// Bytes of pings, and of a burst: `None` if no server sends one.
    pub ping_cost: Size,
    pub burst_cost: Option<Size>,
    /// Whether two networks at once may carry the streams of a bond.
    pub allows_both: bool,
    /// Whether networks are chosen for new flows, too.
    pub chooses_new_flows: bool,
}

/// The choice for a [`Lane`].
#[derive(Clone, Debug)]
pub struct LaneState {
    pub lane: Lane,
    pub goal: Goal,
    /// `None` before the first decision, and while no network can be used.
    pub decision: Option<Decision>,
    /// The networks in use, and since when; empty before the first decision, and while no network
    /// can be used.
    pub networks: Vec<String>,
    pub since: Time,
    has_chosen: bool,
    /// Whether the choice was reported.
    is_reported: bool,
    /// Of streams that are not idle, with the time of the last byte.
    keeper: Option<(Keeper, Time)>,
    /// Bytes of streams so far.
    total: Size,
}

/// The state of a network's probes.
#[derive(Clone, Debug)]
struct State {
    /// As listed: without silence.
    listed: Option<Unusable>,
    /// Its place in the last list.
    rank: usize,
    spent: Size,
    monthly: Option<Size>,
    pinged: Option<Time>,
    running: Option<Stage>,
    wants_burst: bool,
    /// Whether a burst is to show why much less arrives than before.
    wants_check: bool,
    /// Whether it has ever answered: without that, silence proves nothing.
    has_answered: bool,
    is_silent: bool,
    silent_since: Time,
    /// Until then only a transfer shows that it works.
    held_until: Time,
    /// When it is used again without an answer, if it has never given one.
    trial_at: Time,
    /// The next hold.
    hold: Span,
    missing: Option<String>,
    /// The last decision about a burst.
    last: Option<ProbeDecision>,
    stall: StallMeter,
    fall: FallMeter,
    gone: Option<Time>,
}

/// Decides for all lanes, and when to probe.
#[derive(Clone, Debug)]
pub struct Steering {
    decider: Decider,
    settings: Settings,
    states: Vec<State>,
    lanes: Vec<LaneState>,
    sizes: Sizes,
    waits_until: Time,
    busy_until: Time,
    /// Bytes of bursts that streams have paid for: two bursts at most, and one at the beginning.
    paid: Size,
    /// Whether something has changed since the last decisions.
    is_due: bool,
}

impl Steering {
    pub fn new(now: Time, settings: Settings) -> Self {
        let decider = Decider {
            goal: settings.goal,
            supply: Supply::Unknown,
            model: settings.model.clone(),
            networks: Vec::new(),
            overrides: Vec::new(),
            switching_cost: 0.0,
        };
        let mut steering = Self {
            decider,
            states: Vec::new(),
            lanes: Vec::new(),
            sizes: Sizes::unknown(false),
            waits_until: now + WAIT,
            busy_until: now,
            paid: settings.burst_cost.unwrap_or_default(),
            is_due: true,
            settings,
        };
        if steering.settings.chooses_new_flows {
            steering.add_lane(now, Lane::NewFlows, steering.settings.goal);
        }
        steering
    }

    /// The networks, the goal and the model for decisions about single transfers.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    pub fn lanes(&self) -> &[LaneState] {
        &self.lanes
    }

    /// Why the last probe of a network has no result; one sentence.
    pub fn missing(&self, network: &str) -> Option<&str> {
        self.states.get(self.index(network)?)?.missing.as_deref()
    }

    /// Whether a network is probed now, and why.
    pub fn probing(&self, now: Time, network: &str) -> Option<ProbeDecision> {
        let index = self.index(network)?;
        let state = &self.states[index];
        if state.is_silent {
            return Some(ProbeDecision::Silent);
        }
        let decision = self.decide_pings(now, index);
        let is_refusal = matches!(decision, ProbeDecision::Spent | ProbeDecision::Background);
        Some(state.last.filter(|_| !is_refusal).unwrap_or(decision))
    }

    /// Time until the indicators are to be polled again.
    pub fn interval(&self, now: Time) -> Span {
        if now < self.busy_until { BUSY_INTERVAL } else { IDLE_INTERVAL }
    }

    /// A decision about one transfer; `None` if no network can be used.
    pub fn decide(&self, now: Time, goal: Option<Goal>, request: &Request<'_>) -> Option<Decision> {
        let goal = goal.unwrap_or(self.decider.goal);
        let switching_cost = if request.kept.is_some() { STREAM_COST } else { 0.0 };
        Decider { goal, switching_cost, ..self.decider.clone() }.decide(now, request)
    }

    /// The choice of a transfer that goes on, used for long enough to leave it; `None` without such networks.
    pub fn kept(&self, names: &[String]) -> Option<Kept> {
        let choice = self.choice_of(names)?;
        let stands_still = choice.networks().all(|index| self.states[index].is_silent);
        Some(Kept { choice, since: Time::ZERO, stands_still, dwell: DWELL })
    }

    /// Notes that a transfer is requested, or that a user looks: networks are probed for a while.
    pub fn on_request(&mut self, now: Time) {
        self.waits_until = now + WAIT;
    }

    /// Replaces the sizes of new flows.
    pub fn set_sizes(&mut self, sizes: Sizes) {
        self.is_due |= sizes != self.sizes;
        self.sizes = sizes;
    }

    pub fn set_supply(&mut self, supply: Supply) {
        self.is_due |= supply != self.decider.supply;
        self.decider.supply = supply;
    }

    /// Replaces the preferences of the user, which apply at once.
    pub fn set_overrides(&mut self, overrides: Vec<Override>) {
        self.is_due |= overrides != self.decider.overrides;
        self.decider.overrides = overrides;
    }

    /// Replaces the goals of streams.
    pub fn set_goals(&mut self, now: Time, goals: &[(String, Goal)]) {
        self.lanes.retain(|lane| match &lane.lane {
            Lane::NewFlows => true,
            Lane::Streams(goal) => goals.iter().any(|(name, _)| name == goal),
        });
        for (name, goal) in goals {
            let lane = Lane::Streams(name.clone());
            if !self.lanes.iter().any(|known| known.lane == lane) {
                self.add_lane(now, lane, *goal);
            }
        }
    }

    fn add_lane(&mut self, now: Time, lane: Lane, goal: Goal) {
        self.lanes.push(LaneState {
            lane,
            goal,
            decision: None,
            networks: Vec::new(),
            since: now,
            has_chosen: false,
            is_reported: false,
            keeper: None,
            total: Size::ZERO,
        });
        self.is_due = true;
    }

    /// Takes the networks of the host, in its own order of preference. One that is not listed is down;
    /// its indicators are kept for its return.
    pub fn set_networks(&mut self, now: Time, mut facts: Vec<NetworkFacts>) {
        // More would take the places of each other again and again.
        facts.truncate(MAX_NETWORKS);
        for (state, network) in self.states.iter_mut().zip(&self.decider.networks) {
            if !facts.iter().any(|one| one.name == network.name) {
                state.listed = Some(Unusable::Down);
                state.gone.get_or_insert(now);
            }
        }
        for (rank, one) in facts.into_iter().enumerate() {
            let index = self.index(&one.name).unwrap_or_else(|| self.add_network(now, &one));
            let (network, state) = (&mut self.decider.networks[index], &mut self.states[index]);
            if state.listed.is_some() && one.unusable.is_none() {
                // It may be another network under the same name, and a request may wait for it.
                state.pinged = None;
                state.has_answered = false;
                state.is_silent = false;
                (state.held_until, state.hold) = (now, Span::ZERO);
                self.waits_until = self.waits_until.max(now + WAIT);
            }
            state.listed = one.unusable;
            state.rank = rank;
            state.gone = None;
            (state.spent, state.monthly) = (one.spent, one.monthly);
            (network.kind, network.energy) = (one.kind, one.energy);
            (network.price, network.plan) = (one.price, one.plan);
            network.monitor.set_monthly(one.monthly);
        }
        self.is_due = true;
    }

    fn add_network(&mut self, now: Time, facts: &NetworkFacts) -> usize {
        if self.states.len() >= MAX_NETWORKS {
            // The lanes name networks, so that the places of others may change.
            let oldest = (0..self.states.len()).min_by_key(|index| {
                self.states[*index].gone.map_or((1, Time::ZERO), |gone| (0, gone))
            });
            if let Some(oldest) = oldest {
                self.states.remove(oldest);
                self.decider.networks.remove(oldest);
                self.forget_decisions();
            }
        }
        self.decider.networks.push(Network {
            name: facts.name.clone(),
            kind: facts.kind,
            monitor: Monitor::new(self.settings.limits),
            unusable: facts.unusable,
            energy: facts.energy,
            price: facts.price,
            plan: facts.plan,
        });
        self.states.push(State {
            listed: Some(Unusable::Down),
            rank: usize::MAX,
            spent: facts.spent,
            monthly: facts.monthly,
            pinged: None,
            running: None,
            wants_burst: false,
            wants_check: false,
            has_answered: false,
            is_silent: false,
            silent_since: now,
            held_until: now,
            trial_at: now,
            hold: Span::ZERO,
            missing: None,
            last: None,
            stall: StallMeter::new(now),
            fall: FallMeter::default(),
            gone: None,
        });
        self.states.len() - 1
    }

    /// Decisions name networks by their places.
    fn forget_decisions(&mut self) {
        for lane in &mut self.lanes {
            (lane.decision, lane.keeper) = (None, None);
        }
    }

    /// Notes the bytes that streams with this goal have carried since their bond began.
    pub fn on_bytes(&mut self, now: Time, goal: &str, total: Size) {
        let is_meant = |lane: &LaneState| matches!(&lane.lane, Lane::Streams(own) if own == goal);
        let Some(place) = self.lanes.iter().position(is_meant) else { return };
        let choice = self.choice_of(&self.lanes[place].networks);
        let lane = &mut self.lanes[place];
        let has_passed = total > lane.total;
        let passed = total.saturating_sub(lane.total);
        lane.total = total;
        if let Some(cost) = self.settings.burst_cost {
            let share = Size::from_bytes((passed.as_bytes() as f64 * BURST_SHARE) as u64);
            self.paid = (self.paid + share).min(cost + cost);
        }
        let is_idle = |(_, last): &(Keeper, Time)| now.since(*last) > IDLE;
        if has_passed && lane.keeper.as_ref().is_none_or(is_idle) {
            lane.keeper = choice.map(|choice| (Keeper::new(now, choice, total), now));
        }
        if let Some((keeper, last)) = &mut lane.keeper {
            keeper.received(now, total);
            if has_passed {
                *last = now;
            }
        }
    }

    /// Takes a value of an indicator. One of a network that is not listed is dropped.
    pub fn on_reading(&mut self, at: Time, network: &str, indicator: Indicator, value: f64) {
        let Some(index) = self.index(network) else { return };
        let monitor = &mut self.decider.networks[index].monitor;
        let ping = monitor.indicators().value(Indicator::PingMin);
        let value = match (indicator, ping) {
            // Own data wait in a queue of their own, which no ping before them met.
            (Indicator::OwnRoundTrip, Some(ping)) if value > ping => ping,
            _ => value,
        };
        monitor.set(at, indicator, value);
        // A rate may be that of an upload without answers.
        if indicator == Indicator::OwnRoundTrip && value.is_finite() {
            self.states[index].has_answered = true;
            self.states[index].is_silent = false;
        }
        self.is_due = true;
    }

    /// Takes the counters of a network's interface: bytes and packets since its creation.
    pub fn on_counters(&mut self, now: Time, network: &str, received: u64, sent_packets: u64) {
        let Some(index) = self.index(network) else { return };
        let state = &mut self.states[index];
        let passed = state.stall.on_counters(now, received, sent_packets);
        let is_still = state.stall.is_still(now);
        if passed >= BUSY_BYTES || is_still || state.stall.is_doubtful(now) {
            self.busy_until = self.busy_until.max(now + IDLE_INTERVAL);
            self.waits_until = self.waits_until.max(now + WAIT);
        }
        let is_transfer = passed >= BUSY_BYTES;
        if is_transfer {
            (state.held_until, state.hold) = (now, Span::ZERO);
        }
        state.fall.on_counters(now, received);
        self.check_fall(now, index);
        let state = &mut self.states[index];
        if !state.is_silent {
            if is_still {
                self.on_standstill(now, index);
            }
            return;
        }
        let is_lively = passed > 0 && state.stall.is_lively() && now >= state.held_until;
        let is_tried = !state.has_answered && now >= state.trial_at;
        if is_lively || is_transfer || is_tried {
            state.is_silent = false;
            state.pinged = None;
            state.stall.reset(now);
            self.is_due = true;
        }
    }

    /// Wants a burst if much less arrives than before over a network that streams use: it may be slow
    /// now, or the streams have less to carry.
    fn check_fall(&mut self, now: Time, index: usize) {
        let (network, state) = (&self.decider.networks[index], &mut self.states[index]);
        let is_running = |lane: &LaneState| {
            lane.keeper.as_ref().is_some_and(|(_, last)| now.since(*last) <= IDLE)
                && lane.networks.contains(&network.name)
        };
        let indicators = network.monitor.indicators();
        let burst = indicators.get(Indicator::UdpRate);
        let known = indicators
            .get(Indicator::OwnRate)
            .filter(|own| now.since(own.at) <= IDLE && burst.is_none_or(|burst| burst.at < own.at));
        let Some(known) = known else { return };
        let can_pay = |cost: Size| {
            self.paid >= cost && state.monthly.is_none_or(|most| state.spent + cost <= most)
        };
        state.wants_check |= state.fall.has_fallen(known.value)
            && state.running.is_none()
            && self.settings.burst_cost.is_some_and(can_pay)
            && self.lanes.iter().any(is_running);
    }

    /// Packets of applications or bonds are not answered, which pings may be.
    fn on_standstill(&mut self, now: Time, index: usize) {
        let state = &mut self.states[index];
        state.held_until = now + state.hold;
        state.trial_at = now + TRIAL.max(state.hold);
        state.hold = (state.hold * 2).clamp(HOLD, MAX_HOLD);
        self.on_silence(now, index);
    }

    /// Notes that own connections over a network do not get through.
    pub fn on_stall(&mut self, now: Time, network: &str) {
        if let Some(index) = self.index(network)
            && !self.states[index].is_silent
        {
            self.on_standstill(now, index);
        }
    }

    fn on_silence(&mut self, now: Time, index: usize) {
        let state = &mut self.states[index];
        if !std::mem::replace(&mut state.is_silent, true) {
            state.silent_since = now;
        }
        let monitor = &mut self.decider.networks[index].monitor;
        monitor.silent(now);
        // The traffic before the silence does not show what pings would show now.
        for own in [Indicator::OwnRate, Indicator::OwnRoundTrip] {
            monitor.set(now, own, f64::NAN);
        }
        self.is_due = true;
    }

    /// Takes the result of a stage that [`Action::Probe`] asked for.
    pub fn on_stage(&mut self, now: Time, network: &str, stage: Stage, result: StageResult) {
        let Some(index) = self.index(network) else { return };
        let state = &mut self.states[index];
        state.running = None;
        state.missing = result.missing;
        if result.values.is_empty() {
            return;
        }
        let before = self.decider.predict_alone(now, index);
        let monitor = &mut self.decider.networks[index].monitor;
        let has_answer = result.values.iter().any(|(_, value)| value.is_finite());
        for (indicator, value) in result.values {
            monitor.set(now, indicator, value);
        }
        self.is_due = true;
        if stage == Stage::Burst {
            let after = self.decider.predict_alone(now, index);
            let is_as_predicted = (before.low..=before.high).contains(&after.seconds);
            return self.decider.networks[index].monitor.probed(now, is_as_predicted);
        }
        let fresh = self.settings.limits.fresh;
        let has_traffic = monitor
            .indicators()
            .get(Indicator::OwnRoundTrip)
            .is_some_and(|known| now.since(known.at) < fresh)
            || state.stall.has_carried(now, fresh);
        let state = &mut self.states[index];
        if (has_answer || has_traffic) && state.is_silent && now < state.held_until {
            state.has_answered |= has_answer;
            monitor.silent(now);
            return;
        }
        if has_answer || has_traffic {
            let was_silent = std::mem::take(&mut state.is_silent);
            state.has_answered |= has_answer;
            state.stall.reset(now);
            if was_silent && self.settings.burst_cost.is_none() {
                // Nothing else removes the rate of the silence.
                monitor.set(now, Indicator::UdpRate, f64::NAN);
                monitor.set(now, Indicator::UdpLoss, f64::NAN);
            }
        } else if state.has_answered {
            return self.on_silence(now, index);
        }
        let Some(cost) = self.settings.burst_cost else { return monitor.probed(now, false) };
        let is_paid = self.paid >= cost;
        let blind = self.settings.limits.blind;
        let blind = if is_paid { blind.min(STREAM_BLIND) } else { blind };
        let decision = monitor.decide_burst(now, blind);
        let is_spent = state.monthly.is_some_and(|most| state.spent + cost > most);
        state.wants_burst = decision.is_probe() && !is_spent;
        state.last = Some(if is_spent { ProbeDecision::Spent } else { decision });
    }

    /// The next action; call it until it returns `None`, after each input and each interval.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.choice_due(now).or_else(|| self.probe_due(now))
    }

    fn probe_due(&mut self, now: Time) -> Option<Action> {
        for index in 0..self.states.len() {
            // A burst beside own traffic would measure what that leaves.
            let is_busy = self.states[index].wants_burst
                && self.decide_pings(now, index) == ProbeDecision::OwnTraffic;
            self.states[index].wants_burst &= !is_busy;
            let state = &self.states[index];
            if state.running.is_some() || state.listed.is_some() {
                continue;
            }
            let is_burst = state.wants_burst || state.wants_check;
            let interval = match state.is_silent && now < state.silent_since + SILENT_TIME {
                true => SILENT_INTERVAL,
                false => PING_INTERVAL,
            };
            let is_early = state.pinged.is_some_and(|pinged| now < pinged + interval);
            let wants_pings = || {
                use ProbeDecision::{Background, OwnTraffic, Spent};
                !matches!(self.decide_pings(now, index), Background | OwnTraffic | Spent)
            };
            if !is_burst && (is_early || !wants_pings()) {
                continue;
            }
            let stage = if is_burst { Stage::Burst } else { Stage::Pings };
            let state = &mut self.states[index];
            state.running = Some(stage);
            (state.wants_burst, state.wants_check) = (false, false);
            match self.settings.burst_cost.filter(|_| is_burst) {
                Some(cost) => self.paid = self.paid.saturating_sub(cost),
                None => state.pinged = Some(now),
            }
            let network = self.decider.networks[index].name.clone();
            return Some(Action::Probe { network, stage });
        }
        None
    }

    fn decide_pings(&self, now: Time, index: usize) -> ProbeDecision {
        let (state, monitor) = (&self.states[index], &self.decider.networks[index].monitor);
        let is_waited_for = now < self.waits_until;
        monitor.decide(now, is_waited_for, state.spent, self.settings.ping_cost)
    }

    fn choice_due(&mut self, now: Time) -> Option<Action> {
        // Time alone changes decisions too: indicators grow old, and overrides and dwelling end.
        self.update_usable();
        if self.is_due {
            self.is_due = false;
            for place in 0..self.lanes.len() {
                self.decide_lane(now, place);
            }
        }
        let lane = self.lanes.iter_mut().find(|lane| lane.has_chosen && !lane.is_reported)?;
        lane.is_reported = true;
        Some(Action::Choose { lane: lane.lane.clone(), networks: lane.networks.clone() })
    }

    /// Notes that an interval has passed: decisions are made again.
    pub fn on_interval(&mut self) {
        self.is_due = true;
    }

    /// A network that answers nothing is not used while another one answers.
    fn update_usable(&mut self) {
        let has_other = self.states.iter().any(|state| state.listed.is_none() && !state.is_silent);
        for (state, network) in self.states.iter().zip(&mut self.decider.networks) {
            let silent = (state.is_silent && has_other).then_some(Unusable::Silent);
            let unusable = state.listed.or(silent);
            self.is_due |= network.unusable != unusable;
            network.unusable = unusable;
        }
    }

    fn decide_lane(&mut self, now: Time, place: usize) {
        let lane = &self.lanes[place];
        let is_stream = lane.lane != Lane::NewFlows;
        let horizon = Sizes::known(self.decider.horizon(now));
        let own = || (!is_stream).then(|| self.host_choice()).flatten();
        let kept = self.choice_of(&lane.networks).map(|choice| (choice, lane.since));
        let kept = kept.or_else(|| own().map(|choice| (choice, Time::ZERO)));
        let kept = kept.map(|(choice, since)| Kept {
            choice,
            since,
            stands_still: choice.networks().all(|index| self.states[index].is_silent),
            dwell: lane.keeper.as_ref().map_or(DWELL, |(keeper, _)| keeper.kept(now).dwell),
        });
        let request = Request {
            sizes: if is_stream { &horizon } else { &self.sizes },
            app: None,
            kept,
            allows_both: is_stream && self.settings.allows_both,
            goes_on: is_stream,
        };
        (self.decider.goal, self.decider.switching_cost) =
            (lane.goal, if is_stream { STREAM_COST } else { 0.0 });
        let decision = self.decider.decide(now, &request);
        (self.decider.goal, self.decider.switching_cost) = (self.settings.goal, 0.0);
        let name = |index: usize| self.decider.networks[index].name.clone();
        let networks: Vec<String> = decision
            .as_ref()
            .map(|decision| decision.best().choice.networks().map(name).collect())
            .unwrap_or_default();
        let choice = decision.as_ref().map(|decision| decision.best().choice);
        let lane = &mut self.lanes[place];
        lane.decision = decision;
        if lane.networks != networks || !lane.has_chosen {
            if let (Some((keeper, _)), Some(choice)) = (&mut lane.keeper, choice) {
                keeper.changed(now, choice);
            }
            (lane.networks, lane.since) = (networks, now);
            (lane.has_chosen, lane.is_reported) = (true, false);
        }
    }

    /// The network that the host's own routes use.
    fn host_choice(&self) -> Option<Choice> {
        let usable = (0..self.states.len()).filter(|index| self.states[*index].listed.is_none());
        usable.min_by_key(|index| self.states[*index].rank).map(Choice::Only)
    }

    fn choice_of(&self, names: &[String]) -> Option<Choice> {
        match names {
            [one] => Some(Choice::Only(self.index(one)?)),
            [first, second] => Some(Choice::Both(self.index(first)?, self.index(second)?)),
            _ => None,
        }
    }

    fn index(&self, network: &str) -> Option<usize> {
        self.decider.networks.iter().position(|one| one.name == network)
    }
}

#[cfg(test)]
mod tests;
