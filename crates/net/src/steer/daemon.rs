//! `manyways steer run`: chooses networks while it runs.
//!
//! One loop takes values of [`Sources`], results of probes, counters, changes of interfaces and requests,
//! passes them to a [`Steering`], and carries out its actions: probes in tasks of their own, choices by
//! `Egress` for new flows, and by requests to clients of bonds.

mod bonds;
mod networks;
mod routes;
mod wall;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use manyways_model::probe::portal::Verdict;
use manyways_model::radio::{Direction, Profile};
use manyways_model::select::model::Model;
use manyways_model::select::{
    Action, Goal, Lane, Override, ProbeLimits, Request, Settings, Sizes, Stage, StageResult,
    Steering, Supply, Unusable,
};
use manyways_proto::policy::Policy;
use manyways_record::event::Record;
use manyways_sys::egress;
use manyways_sys::interface::{self, Interface, Kind};
use manyways_sys::power;
use manyways_unit::{Size, Span, Time};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep_until};

use self::bonds::{BondReport, Bonds};
use self::networks::HostNetworks;
use self::routes::Routes;
use super::document::{
    ChoiceDocument, DecisionDocument, NetworkDocument, PreferenceDocument, SizesDocument,
    SteerPreference, SteerStatus, SteerWhy, flows,
};
use super::event::SteerEvent;
use super::probing::{self, Targets};
use super::protocol::{
    EndedTransfer, PreferRequest, SERVICE, SteerRequest, SteerResponse, TransferQuery,
};
use super::source::{Bus, SourceId, Sources};
use super::state::{Clocks, HistoryFile, MarksFile, OverridesFile, Preference};
use crate::control::{ControlServer, ControlSocketError, Reply};
use crate::host_watch::HostWatch;
use crate::probe::{self, Measurement, Network, Portal};

/// Interval of everything that rarely changes, such as the list of interfaces.
const SLOW: Span = Span::from_secs(5);
/// Interval of writing files.
const SAVE: Span = Span::from_secs(60);
/// Interval of portal checks, and of those while a login page answers.
const CHECK: Span = Span::from_secs(300);
const CHECK_PORTAL: Span = Span::from_secs(10);
/// Bytes of pings and a query, at most.
const PING_COST: Size = Size::from_bytes(3_000);
/// Time to let the addresses and routes of a changed interface settle.
const SETTLE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Debug)]
pub struct Options {
    pub goal: Goal,
    pub model: Option<Model>,
    /// Interfaces to choose from; empty: all that lead to the internet.
    pub via: Vec<String>,
    /// Data plans and metered networks.
    pub policy: Option<Policy>,
    /// Clients of bonds whose auto rules follow the choices.
    pub bonds: Vec<String>,
    pub new_flows: NewFlows,
    /// Whether streams of bonds never use two networks at once.
    pub one_network: bool,
    pub targets: Targets,
    /// Finds login pages.
    pub check: Option<Portal>,
    /// Prints indicators as lines of JSON.
    pub command: Vec<String>,
    /// Profile of the radio of cellular networks.
    pub profile: Option<Profile>,
    /// Bytes of probes in a month on a metered network.
    pub monthly: Size,
    /// Folder of the state; `None`: nothing is stored.
    pub state: Option<PathBuf>,
    /// Version of manyways, for the status.
    pub version: &'static str,
}

/// Treatment of new flows of programs that do not ask, outside bonds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewFlows {
    /// They use the chosen network, which needs root.
    Steered,
    /// Choices are reported, and nothing else.
    Reported,
    /// There are no choices for them.
    LeftAlone,
}

/// Reason why a run ends, or does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    #[error(transparent)]
    Egress(#[from] egress::Error),
    #[error("cannot list the networks of this host: {0}")]
    List(#[source] interface::ListError),
    #[error("cannot watch the networks of this host: {0}")]
    Watch(#[source] io::Error),
    #[error("cannot use the state of earlier runs: {0}")]
    State(#[source] io::Error),
    #[error("{0}")]
    Parameter(String),
    #[error("a task of this process has failed")]
    Task,
}

/// Receiver of events.
pub type Listener<'a> = dyn FnMut(Record<SteerEvent>) + 'a;

/// Chooses networks until `stop` is ready. Call it on a thread with local tasks.
///
/// # Errors
/// Another run of this user is running, or the host does not allow the changes. Nothing is left changed then.
pub async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
    listener: &mut Listener<'_>,
) -> Result<(), SteerError> {
    let (requests, mut received) = mpsc::channel(16);
    let _control = ControlServer::start(&SERVICE, None, move |request: SteerRequest| {
        let requests = requests.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let sent = requests.send((request, answer)).await.is_ok();
            let answer = if sent { answered.await.ok() } else { None };
            let ends =
                || SteerResponse::Refused { message: "this process ends".to_owned(), hint: None };
            Reply::from(answer.unwrap_or_else(ends))
        }
    })?;
    let mut daemon = Daemon::new(options)?;
    daemon.list().await?;
    for name in daemon.networks.absent() {
        let name = manyways_unit::human::quoted(name);
        tracing::warn!("there is no network `{name}`: it is used as soon as it appears");
    }
    daemon.set_overrides();
    daemon.start_routes().await?;
    let ended = daemon.serve(&mut received, stop, listener).await;
    daemon.finish(listener).await?;
    ended
}

type Requests = mpsc::Receiver<(SteerRequest, oneshot::Sender<SteerResponse>)>;

/// A result of a task.
enum Done {
    Stage { network: String, stage: Stage, result: probing::Stage },
    Checked { network: String, is_portal: Option<bool> },
    Bond(BondReport),
}

struct Daemon {
    options: Options,
    origin: Instant,
    steering: Steering,
    networks: HostNetworks,
    sources: Sources,
    /// Sources of each network.
    ids: BTreeMap<String, Vec<SourceId>>,
    routes: Option<Routes>,
    bonds: Bonds,
    history: HistoryFile,
    overrides: OverridesFile,
    marks: MarksFile,
    /// Time of the next portal check of each network.
    check_at: BTreeMap<String, Time>,
    done: mpsc::UnboundedSender<Done>,
    results: mpsc::UnboundedReceiver<Done>,
    /// The networks of the last events, and why they cannot be used.
    unusable: BTreeMap<String, Option<Unusable>>,
    events: Vec<Record<SteerEvent>>,
    faults: BTreeMap<&'static str, String>,
    slow_at: Time,
    save_at: Time,
}

impl Daemon {
    fn new(mut options: Options) -> Result<Self, SteerError> {
        let origin = Instant::now();
        let clocks = Clocks { wall: wall::seconds(), steady: Time::ZERO };
        let state = options.state.as_deref();
        let burst_cost = options.targets.burst_cost();
        let burst_cost = burst_cost.map_err(|error| SteerError::Parameter(error.to_string()))?;
        let settings = Settings {
            model: options.model.take(),
            goal: options.goal,
            limits: ProbeLimits::default(),
            ping_cost: PING_COST,
            burst_cost: (burst_cost > Size::ZERO).then_some(burst_cost),
            allows_both: !options.one_network,
            chooses_new_flows: options.new_flows != NewFlows::LeftAlone,
        };
        let (done, results) = mpsc::unbounded_channel();
        let networks = HostNetworks::new(
            options.via.clone(),
            options.policy.take(),
            options.profile.take(),
            options.monthly,
            wall::today(),
            state,
        );
        let mut sources = Sources::start(origin, SLOW);
        if !options.command.is_empty() {
            sources.add_command(&options.command, None);
        }
        Ok(Self {
            origin,
            steering: Steering::new(Time::ZERO, settings),
            networks,
            sources,
            ids: BTreeMap::new(),
            routes: None,
            bonds: Bonds::new(&options.bonds),
            history: HistoryFile::load(state).map_err(SteerError::State)?,
            overrides: OverridesFile::load(clocks, state),
            marks: MarksFile::load(state),
            check_at: BTreeMap::new(),
            done,
            results,
            unusable: BTreeMap::new(),
            events: Vec::new(),
            faults: BTreeMap::new(),
            slow_at: Time::ZERO,
            save_at: Time::ZERO + SAVE,
            options,
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.origin.elapsed())
    }

    fn clocks(&self) -> Clocks {
        Clocks { wall: wall::seconds(), steady: self.now() }
    }

    async fn serve(
        &mut self,
        requests: &mut Requests,
        stop: impl Future<Output = ()>,
        listener: &mut Listener<'_>,
    ) -> Result<(), SteerError> {
        let mut watch = HostWatch::open().map_err(SteerError::Watch)?;
        let mut stop = std::pin::pin!(stop);
        let (mut tick, mut settled) = (Instant::now(), None::<Instant>);
        loop {
            self.pump().await;
            self.events.drain(..).for_each(&mut *listener);
            let due = settled.map_or(tick, |settled| settled.min(tick));
            tokio::select! {
                () = &mut stop => return Ok(()),
                changes = watch.changes() => {
                    let changes = changes.map_err(SteerError::Watch)?;
                    for link in changes.iter().flat_map(|one| &one.links) {
                        if !link.is_operational() {
                            self.on_link_down(&link.name);
                        }
                    }
                    if !changes.is_empty() {
                        settled.get_or_insert(Instant::now() + SETTLE);
                    }
                }
                update = self.sources.next() => {
                    self.steering.on_reading(update.at, &update.network, update.indicator, update.value);
                }
                Some(done) = self.results.recv() => self.on_done(done),
                Some((request, answer)) = requests.recv() => {
                    let response = self.answer(request);
                    let _ = answer.send(response);
                }
                () = sleep_until(due) => {
                    if settled.take_if(|settled| *settled <= Instant::now()).is_some() {
                        // A list that fails is made again at the next slow tick.
                        let _ = self.list().await;
                        self.refresh_routes().await;
                    }
                    if tick <= Instant::now() {
                        self.tick().await;
                        let interval = self.steering.interval(self.now());
                        self.sources.set_interval(interval);
                        tick = Instant::now() + Duration::from(interval);
                    }
                }
            }
        }
    }

    /// The interface lost its carrier: flows leave it before the list of interfaces is complete.
    fn on_link_down(&mut self, name: &str) {
        self.networks.set_down(name);
        self.set_networks();
    }

    async fn list(&mut self) -> Result<(), SteerError> {
        let listed = spawn_blocking(interface::list).await.map_err(|_| SteerError::Task)?;
        self.networks.set_interfaces(listed.map_err(SteerError::List)?);
        self.fault("networks", self.networks.fault());
        self.set_networks();
        Ok(())
    }

    fn set_networks(&mut self) {
        let now = self.now();
        let facts = self.networks.facts(now);
        let present: Vec<Interface> = self.networks.interfaces().to_vec();
        let is_present = |name: &String| present.iter().any(|one| one.name == *name);
        let gone: Vec<String> = self.ids.keys().filter(|name| !is_present(name)).cloned().collect();
        for name in gone {
            for id in self.ids.remove(&name).unwrap_or_default() {
                self.sources.remove(id);
            }
        }
        for interface in &present {
            if !self.ids.contains_key(&interface.name) {
                let ids = self.add_sources(interface);
                self.ids.insert(interface.name.clone(), ids);
            }
        }
        self.steering.set_networks(now, facts);
    }

    /// Records which networks can be used, or why not, if that has changed: also by silence, which only the decisions
    /// know.
    fn record_networks(&mut self) {
        let networks = self.steering.decider().networks.iter();
        let now: BTreeMap<String, Option<Unusable>> = networks
            .filter(|one| self.networks.interface(&one.name).is_some())
            .map(|one| (one.name.clone(), one.unusable))
            .collect();
        if now == self.unusable {
            return;
        }
        let before = std::mem::replace(&mut self.unusable, now.clone());
        for (network, unusable) in &now {
            let known = before.get(network);
            if known == Some(unusable) {
                continue;
            }
            // A login page may have come, but not by silence alone.
            if unusable.is_none() && known != Some(&Some(Unusable::Silent)) {
                self.check_at.remove(network);
            }
            let unusable = unusable.map(|why| why.to_string());
            self.record(SteerEvent::SteerNetwork { network: network.clone(), unusable });
        }
        for network in before.into_keys().filter(|network| !now.contains_key(network)) {
            let unusable = Some("it is gone".to_owned());
            self.record(SteerEvent::SteerNetwork { network, unusable });
        }
    }

    fn add_sources(&mut self, interface: &Interface) -> Vec<SourceId> {
        let name = &interface.name;
        let mut ids = vec![self.sources.add_counters(name, name)];
        match interface.kind {
            Kind::Wifi => ids.push(self.sources.add_wifi(name, name)),
            Kind::Cellular => ids.push(self.sources.add_modem(name, name, Bus::default())),
            _ => {}
        }
        // Emulated interfaces have no radio; the lab may play one back.
        if std::env::var_os("LAB_DIR").is_some() {
            ids.push(self.sources.add_lab_signal(name, name));
        }
        ids
    }

    async fn start_routes(&mut self) -> Result<(), SteerError> {
        if self.options.new_flows == NewFlows::Steered {
            let networks = self.networks.egress(&mut self.marks.marks);
            self.routes = Some(Routes::start(networks).await?);
            self.save_marks();
        }
        Ok(())
    }

    /// At once: after a kill, running flows need the same marks.
    fn save_marks(&mut self) {
        let saved = self.marks.save();
        self.fault("marks", saved.err().map(|error| format!("cannot store the marks: {error}")));
    }

    async fn refresh_routes(&mut self) {
        let Some(routes) = &mut self.routes else { return };
        let networks = self.networks.egress(&mut self.marks.marks);
        let refreshed = routes.refresh(networks).await;
        let repeated = routes.repeat().await;
        self.fault("routes", refreshed.err().map(|error| error.to_string()));
        if let Some(repeated) = repeated {
            self.fault("choice", repeated.err().map(|error| error.to_string()));
        }
        self.save_marks();
    }

    fn fault(&mut self, topic: &'static str, fault: Option<String>) {
        match fault {
            None => {
                self.faults.remove(topic);
            }
            Some(fault) => {
                if self.faults.get(topic) != Some(&fault) {
                    tracing::warn!("{fault}");
                }
                self.faults.insert(topic, fault);
            }
        }
    }

    /// Everything that is polled.
    async fn tick(&mut self) {
        let now = self.now();
        self.networks.set_today(wall::today());
        let names: Vec<String> =
            self.networks.interfaces().iter().map(|one| one.name.clone()).collect();
        for name in names {
            if let Ok(Some(counters)) = interface::counters(&name) {
                self.networks.on_counters(now, &name, counters);
                let (received, sent) = (counters.received_bytes, counters.sent_packets);
                self.steering.on_counters(now, &name, received, sent);
            }
        }
        let is_slow = now >= self.slow_at;
        if is_slow {
            self.slow_at = now + SLOW;
            let _ = self.list().await;
            self.refresh_routes().await;
            self.set_supply();
            self.set_overrides();
            self.check_portals();
            let all = self.history.key(None, None, Direction::Down);
            self.steering.set_sizes(self.history.history.sizes(wall::now(), all, false));
        }
        if is_slow || self.steering.interval(now) < SLOW {
            self.bonds.ask(&self.done);
        }
        if now >= self.save_at {
            self.save_at = now + SAVE;
            self.save();
        }
        self.steering.on_interval();
    }

    fn set_supply(&mut self) {
        let power = power::read(std::path::Path::new(power::FOLDER));
        let supply = match (power.charging, power.battery) {
            // Without a battery, energy is as dear as the goal states.
            (_, None) => Supply::Unknown,
            (Some(true), Some(_)) => Supply::Mains,
            (_, Some(percent)) => Supply::Battery(f64::from(percent) / 100.0),
        };
        self.steering.set_supply(supply);
    }

    /// Preferences end by the wall clock, and decisions have another one.
    fn set_overrides(&mut self) {
        let clocks = self.clocks();
        let current = self.overrides.current(clocks).map(|(one, left)| Override {
            network: one.network.clone(),
            until: clocks.steady + left,
            app: one.app.clone(),
        });
        self.steering.set_overrides(current.collect());
    }

    fn check_portals(&mut self) {
        let now = self.now();
        let Some(check) = &self.options.check else { return };
        for interface in self.networks.interfaces().iter().filter(|one| one.usable.is_ok()) {
            if self.check_at.get(&interface.name).is_some_and(|at| now < *at) {
                continue;
            }
            self.check_at.insert(interface.name.clone(), now + CHECK);
            let (check, network) = (check.clone(), Network::new(interface.clone()));
            let (done, name) = (self.done.clone(), interface.name.clone());
            spawn_local(async move {
                let is_portal = is_portal_at(&check, &network).await;
                let _ = done.send(Done::Checked { network: name, is_portal });
            });
        }
    }

    fn on_done(&mut self, done: Done) {
        let now = self.now();
        match done {
            Done::Stage { network, stage, result } => {
                self.networks.add_probe(&network, result.used);
                let name = if stage == Stage::Pings { "pings" } else { "burst" };
                self.record(SteerEvent::SteerProbe {
                    network: network.clone(),
                    stage: name.to_owned(),
                    bytes: result.used.as_bytes(),
                    missing: result.missing.clone(),
                });
                let result = StageResult { values: result.values, missing: result.missing };
                self.steering.on_stage(now, &network, stage, result);
                let facts = self.networks.facts(now);
                self.steering.set_networks(now, facts);
            }
            Done::Checked { network, is_portal } => {
                // A network that has just come up may answer later, and a login may have succeeded.
                let interval = if is_portal == Some(false) { CHECK } else { CHECK_PORTAL };
                self.check_at.insert(network.clone(), now + interval);
                if let Some(is_portal) = is_portal {
                    self.networks.portals.insert(network, is_portal);
                    self.set_networks();
                }
            }
            Done::Bond(report) => self.on_bond(now, report),
        }
    }

    fn on_bond(&mut self, now: Time, report: BondReport) {
        for (network, round_trip) in &report.round_trips {
            let indicator = manyways_model::select::Indicator::OwnRoundTrip;
            self.steering.on_reading(now, network, indicator, *round_trip);
        }
        for network in &report.suspects {
            self.steering.on_stall(now, network);
        }
        for ended in &report.ended {
            self.add_ended(ended);
        }
        self.fault("bond", report.fault.clone());
        self.bonds.on_report(report);
        let goals = self.bonds.goals();
        self.steering.set_goals(now, &goals);
        for (goal, _) in &goals {
            self.steering.on_bytes(now, goal, self.bonds.carried(goal));
        }
        // The clients forget a choice that is not renewed.
        for lane in self.steering.lanes() {
            if let Lane::Streams(goal) = &lane.lane {
                self.bonds.renew(goal, &lane.networks);
            }
        }
    }

    fn add_ended(&mut self, ended: &EndedTransfer) {
        let direction = if ended.up { Direction::Up } else { Direction::Down };
        let key = self.history.key(ended.app.as_deref(), ended.host.as_deref(), direction);
        self.history.add(wall::now(), key, Size::from_bytes(ended.size));
    }

    async fn pump(&mut self) {
        while let Some(action) = self.steering.poll(self.now()) {
            // Before the choice that follows from it.
            self.record_networks();
            match action {
                Action::Probe { network, stage } => self.probe(network, stage),
                Action::Choose { lane, networks } => self.choose(lane, networks).await,
            }
        }
        self.record_networks();
    }

    fn probe(&mut self, network: String, stage: Stage) {
        let (spent, limit) = self.networks.probe_bytes(&network);
        let Some(interface) = self.networks.interface(&network) else {
            let missing = Some(format!("{network} is gone"));
            let result = StageResult { values: Vec::new(), missing };
            return self.steering.on_stage(self.now(), &network, stage, result);
        };
        let over = Network::new(interface.clone());
        let options = probe::Options { cap: limit, spent, ..probe::Options::default() };
        let (targets, done) = (self.options.targets.clone(), self.done.clone());
        spawn_local(async move {
            let measured = match stage {
                Stage::Pings => targets.first(&over, &options).await,
                Stage::Burst => targets.burst(&over, &options).await.map(Option::unwrap_or_default),
            };
            let result = measured.unwrap_or_else(|error| probing::Stage {
                missing: Some(error.to_string()),
                ..probing::Stage::default()
            });
            let _ = done.send(Done::Stage { network, stage, result });
        });
    }

    async fn choose(&mut self, lane: Lane, networks: Vec<String>) {
        let began = Instant::now();
        let applied = match &lane {
            Lane::NewFlows => match &mut self.routes {
                Some(routes) => {
                    let chosen = routes.select(networks.first().cloned()).await;
                    chosen.map(|()| true).map_err(|error| error.to_string())
                }
                None => Ok(false),
            },
            Lane::Streams(goal) => self.bonds.choose(goal, &networks).await.map(|()| true),
        };
        let seconds = began.elapsed().as_secs_f64();
        let is_applied = applied == Ok(true);
        let topic = if lane == Lane::NewFlows { "choice" } else { "bond-choice" };
        self.fault(topic, applied.err());
        let state = self.steering.lanes().iter().find(|state| state.lane == lane);
        let decision = state.and_then(|state| state.decision.as_ref());
        let decider = self.steering.decider();
        let decision = decision.map(|one| Box::new(DecisionDocument::new(decider, one)));
        self.record(SteerEvent::SteerChoice {
            flows: flows(&lane),
            networks,
            seconds: is_applied.then_some(seconds),
            decision,
        });
    }

    fn record(&mut self, event: SteerEvent) {
        self.events.push(Record { time: self.now(), event });
    }

    fn save(&mut self) {
        let counted = self.networks.save().err();
        let fault = counted.map(|error| format!("cannot store the bytes of this month: {error}"));
        self.fault("bytes", fault);
        let saved = self.history.save();
        self.fault("state", saved.err().map(|error| format!("cannot store the state: {error}")));
    }

    async fn finish(&mut self, listener: &mut Listener<'_>) -> Result<(), SteerError> {
        self.save();
        self.bonds.release().await;
        self.events.drain(..).for_each(listener);
        let sources = std::mem::replace(&mut self.sources, Sources::start(self.origin, SLOW));
        sources.stop().await;
        match self.routes.take() {
            Some(routes) => routes.remove().await,
            None => Ok(()),
        }
    }

    fn answer(&mut self, request: SteerRequest) -> SteerResponse {
        if let Err(refused) = request.check() {
            return refused;
        }
        let now = self.now();
        match request {
            SteerRequest::Status => {
                self.steering.on_request(now);
                SteerResponse::Status(Box::new(self.status()))
            }
            SteerRequest::Why(query) => {
                self.steering.on_request(now);
                SteerResponse::Why(Box::new(self.why(query)))
            }
            SteerRequest::Advise(query) => {
                self.steering.on_request(now);
                let (_, decision) = self.decide(&query);
                let networks = decision.map(|one| one.networks).unwrap_or_default();
                SteerResponse::Advice { networks }
            }
            SteerRequest::Ended(ended) => {
                self.add_ended(&ended);
                SteerResponse::Noted
            }
            SteerRequest::Prefer(prefer) => self.prefer(prefer),
        }
    }

    fn prefer(&mut self, request: PreferRequest) -> SteerResponse {
        let network = request.network.as_deref().map(|word| self.networks.named(word));
        let network = match network.transpose() {
            Ok(network) => network,
            Err(message) => {
                let hint = format!("the networks are {}", self.networks.names());
                return SteerResponse::Refused { message, hint: Some(hint) };
            }
        };
        let app = request.app.clone();
        let stored = match network.clone() {
            None => self.overrides.end(app.as_deref()),
            Some(network) => {
                let clocks = self.clocks();
                let until = clocks.wall + request.seconds.ceil() as u64;
                let preference = Preference { network, until, app };
                self.overrides.prefer(clocks, preference).map(|()| true)
            }
        };
        self.set_overrides();
        if matches!(stored, Ok(false)) {
            return SteerResponse::Refused {
                message: "no network is preferred".to_owned(),
                hint: Some("`manyways steer status` lists the preferences".to_owned()),
            };
        }
        // Without its file it holds all the same, until a restart.
        let warning = stored.err().map(|error| match &network {
            Some(_) => format!("the preference ends with this `steer run`: {error}"),
            None => format!("the preference returns with the next `steer run`: {error}"),
        });
        let seconds = if network.is_some() { request.seconds } else { 0.0 };
        self.record(SteerEvent::SteerPreference {
            network: network.clone().unwrap_or_default(),
            app: request.app.clone(),
            seconds,
        });
        SteerResponse::Preferred(SteerPreference { network, app: request.app, seconds, warning })
    }

    fn decide(&self, query: &TransferQuery) -> (Sizes, Option<DecisionDocument>) {
        let direction = if query.up { Direction::Up } else { Direction::Down };
        let key = self.history.key(query.app.as_deref(), query.host.as_deref(), direction);
        let sizes = match query.size {
            Some(size) => Sizes::known(Size::from_bytes(size)),
            None => self.history.history.sizes(wall::now(), key, false),
        };
        let app = query.app.as_deref();
        let kept = self.steering.kept(&query.followed);
        let request =
            Request { sizes: &sizes, app, kept, allows_both: query.both, goes_on: kept.is_some() };
        // A request with a wrong goal has been refused.
        let goal = query.stated_goal().unwrap_or_default();
        let decision = self.steering.decide(self.now(), goal, &request);
        let decider = self.steering.decider();
        let document = decision.map(|decision| DecisionDocument::new(decider, &decision));
        (sizes, document)
    }

    fn why(&self, query: TransferQuery) -> SteerWhy {
        let (sizes, decision) = self.decide(&query);
        let lanes = self.steering.lanes();
        let new_flows = lanes.iter().find(|one| one.lane == Lane::NewFlows);
        SteerWhy {
            sizes: SizesDocument::new(&sizes, query.size.is_some()),
            networks: self.network_documents(),
            decision,
            new_flows: new_flows.map(|one| one.networks.clone()).unwrap_or_default(),
            host: query.host,
            app: query.app,
        }
    }

    fn network_documents(&self) -> Vec<NetworkDocument> {
        // Of one that is gone, the indicators are kept, and nothing else.
        let networks = self.steering.decider().networks.iter().enumerate();
        let networks =
            networks.filter(|(_, network)| self.networks.interface(&network.name).is_some());
        let document = |(index, network): (usize, &manyways_model::select::Network)| {
            let (spent, limit) = self.networks.probe_bytes(&network.name);
            let sources = self.sources.status(&network.name);
            let limit = limit.map(|limit| limit.as_bytes());
            let (now, spent) = (self.now(), spent.as_bytes());
            NetworkDocument::new(now, &self.steering, index, &sources, spent, limit)
        };
        networks.map(document).collect()
    }

    fn status(&self) -> SteerStatus {
        let (now, clocks) = (self.now(), self.clocks());
        let decider = self.steering.decider();
        let preference = |(one, left): (&Preference, Span)| PreferenceDocument {
            network: one.network.clone(),
            app: one.app.clone(),
            remaining_seconds: left.as_secs_f64(),
        };
        let lanes = self.steering.lanes().iter();
        SteerStatus {
            version: self.options.version.to_owned(),
            uptime_seconds: now.since(Time::ZERO).as_secs_f64(),
            chooses_new_flows: self.routes.is_some(),
            networks: self.network_documents(),
            choices: lanes.map(|lane| ChoiceDocument::new(now, decider, lane)).collect(),
            preferences: self.overrides.current(clocks).map(preference).collect(),
            faults: self.faults.values().cloned().collect(),
        }
    }
}

/// Whether a login page answers; `None` if nothing answers.
async fn is_portal_at(check: &Portal, network: &Network) -> Option<bool> {
    let options = probe::Options::default();
    let silent = std::sync::Arc::new(|_: &Measurement| {});
    let report = probe::measure(check, network, &options, std::future::pending(), silent).await;
    match report.ok()?.measurement? {
        Measurement::Portal(portal) => match portal.verdict? {
            Verdict::Validated => Some(false),
            Verdict::Captive { .. } | Verdict::DnsLies => Some(true),
            _ => None,
        },
        _ => None,
    }
}
