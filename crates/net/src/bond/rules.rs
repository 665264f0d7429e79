//! What becomes of each connection and flow of an application: the policy's engine, told of
//! everything that it asks about, and what it says carried out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use manyways_proto::bond::path::PathState;
use manyways_proto::mux::{Counters, FlowId, Input, StreamId, Target};
use manyways_proto::policy::{Decision, Engine, Policy, Protocol};
use manyways_proto::sched::{PathId, Treatment};
use manyways_sys::process;
use manyways_unit::{Span, Time};
use manyways_wire::dns::{self, Names};
use manyways_wire::quic::Initials;
use manyways_wire::{HostName, Peek};
use tokio::sync::{Notify, mpsc};

use super::carrier::Chunk;
use super::client::{Client, TrafficEvent};
use super::facts::{Facts, name_in};
use super::hold::{Gate, Hold, HoldError, Holding, Waiting};
use super::journal::{self, Journal};
use super::labels::{Labels, News};
use super::networks::Networks;
use super::session::Session;
use super::surroundings::{PathView, Watch};
use super::tally::Counted;
use super::usage::Usage;
use super::whose::Whose;

/// The surroundings are looked at so often.
const LOOK: Duration = Duration::from_millis(500);
/// Questions to name servers whose answers may still come.
const QUESTIONS: usize = 256;

/// What becomes of a connection or flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It goes through the bond with this label.
    Bond(u8),
    /// It goes past the bond.
    Direct,
    /// It does not go.
    Block,
}

/// How traffic is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Not yet, or past the bond.
    None,
    /// As a stream, with its number among the client's.
    Stream(StreamId, u64),
    /// As a part of a flow.
    Flow(FlowId),
}

/// A connection, or the datagrams between the same two ends.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) facts: RefCell<Facts>,
    pub(super) rule: RefCell<Option<String>>,
    pub(super) fate: Cell<Fate>,
    pub(super) way: Cell<Way>,
    pub(super) since: Time,
    /// The ends of the application's socket, to find out whose it is.
    pub(super) socket: (SocketAddr, SocketAddr),
    /// Of datagrams: what went and came, and when to decide again.
    pub(super) bytes: Cell<(u64, u64)>,
    ask_at: Cell<Option<u64>>,
    /// Somebody holds it back.
    pub(super) is_held: Cell<bool>,
}

/// The policy at work; cheap to clone.
#[derive(Clone)]
pub struct Rules(Rc<Inner>);

struct Inner {
    client: Client,
    networks: Networks,
    engine: RefCell<Engine>,
    labels: RefCell<Labels>,
    watch: RefCell<Watch>,
    views: RefCell<Vec<PathView>>,
    whose: Whose,
    names: RefCell<Names>,
    /// Questions that passed on their way to name servers: the flow, the number and the name.
    questions: RefCell<VecDeque<(FlowId, u16, HostName)>>,
    streams: RefCell<BTreeMap<u64, Rc<Traffic>>>,
    others: RefCell<Vec<Weak<Traffic>>>,
    gate: Gate,
    /// Told when the surroundings are to be looked at now.
    look: Rc<Notify>,
    journal: Journal,
    full: Cell<bool>,
}

/// What the other end is to hear: before what depends on it, and after.
#[derive(Default)]
struct Inputs {
    first: Vec<Input<Chunk>>,
    last: Vec<Input<Chunk>>,
    end: Vec<StreamId>,
}

impl Rules {
    /// Follows a policy for the traffic of `client`. Runs on the calling thread's local tasks.
    pub fn follow(
        client: Client,
        networks: Networks,
        policy: Policy,
        usage: Usage,
        journal: Journal,
    ) -> Self {
        let (noted, notes) = mpsc::unbounded_channel();
        client.subscribe_traffic(noted);
        let rules = Self(Rc::new(Inner {
            client,
            networks,
            engine: RefCell::new(Engine::new(policy)),
            labels: RefCell::default(),
            watch: RefCell::new(Watch::new(usage)),
            views: RefCell::default(),
            whose: Whose::new(),
            names: RefCell::default(),
            questions: RefCell::default(),
            streams: RefCell::default(),
            others: RefCell::default(),
            gate: Gate::default(),
            look: Rc::default(),
            journal,
            full: Cell::new(false),
        }));
        rules.look();
        tokio::task::spawn_local(rules.clone().listen(notes));
        tokio::task::spawn_local(rules.clone().keep_looking());
        rules
    }

    /// Follows another policy from now on, also for what is under way.
    pub fn replace(&self, policy: Policy) {
        let now = self.now();
        let rules: Vec<String> = policy.rules().map(str::to_owned).collect();
        self.0.engine.borrow_mut().replace(now, policy);
        // Whoever holds back others than there are hears of it, and may ask again.
        self.0.gate.keep_to(&rules);
        self.decide_all();
        self.0.look.notify_one();
    }

    /// Somebody holds back new connections under some rules.
    ///
    /// # Errors
    /// Where the policy has no such rule, or somebody else does already.
    pub fn hold(&self, hold: &Hold) -> Result<Holding, HoldError> {
        let rules: Vec<String> =
            self.with_engine(|engine| engine.policy().rules().map(str::to_owned).collect());
        if let Some(name) = hold.rules.iter().find(|name| !rules.contains(name)) {
            return Err(HoldError::Rule { name: name.clone(), rules });
        }
        self.0.gate.hold(hold)
    }

    /// The client has ended: writes down what is to be remembered, and lets whoever keeps a log
    /// hear the last of it.
    pub async fn finish(&self) {
        self.look();
        self.0.watch.borrow_mut().save();
        // What is told goes from task to task, each of which is ready.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(super) fn with_engine<R>(&self, act: impl FnOnce(&Engine) -> R) -> R {
        act(&self.0.engine.borrow())
    }

    pub(super) fn views(&self) -> Vec<PathView> {
        self.0.views.borrow().clone()
    }

    pub(super) fn counters(&self) -> Counters {
        self.0.client.handle().with(|session| session.mux.counters())
    }

    pub(super) fn treatment(&self, label: u8) -> Option<Treatment> {
        self.0.labels.borrow().treatment(label)
    }

    /// All that is under way, the oldest first: streams, then the rest.
    pub(super) fn traffic(&self) -> Vec<Rc<Traffic>> {
        let streams = self.0.streams.borrow();
        let others = self.0.others.borrow();
        streams.values().cloned().chain(others.iter().filter_map(Weak::upgrade)).collect()
    }

    pub(super) fn now(&self) -> Time {
        self.0.client.handle().with(|session| session.now())
    }

    /// Whether more of a connection's first bytes would say more of it.
    pub(super) fn wants_more(&self, to: &Target, first: &[u8]) -> bool {
        matches!(to, Target::Address(..))
            && self.0.engine.borrow().policy().asks_for_domain()
            && matches!(name_in(first), Peek::More(_))
    }

    /// A connection of the application at `from`, which talks to `via`. `first` are its first bytes.
    /// It is not decided about yet.
    pub(super) async fn connection(
        &self,
        from: SocketAddr,
        via: SocketAddr,
        to: &Target,
        first: &[u8],
    ) -> Rc<Traffic> {
        let traffic = self.begin(Protocol::Tcp, (from, via), to);
        if let Peek::Complete(Some(name)) = name_in(first) {
            traffic.facts.borrow_mut().domain.get_or_insert(name);
        }
        self.find_name(&traffic);
        self.find_owner(&traffic).await;
        traffic
    }

    /// Decides about a connection.
    pub(super) fn judge_connection(&self, traffic: &Rc<Traffic>) {
        self.decide(traffic);
        if !matches!(traffic.fate.get(), Fate::Bond(_)) {
            self.0.journal.tell(self.now(), || journal::decision(None, traffic));
        }
    }

    /// What a connection has to wait for before it is decided about, where somebody holds it back.
    /// The other end is told nothing of it until then, as that would go over the very networks that
    /// are to have their rest.
    pub(super) fn held_back(&self, traffic: &Traffic) -> Option<Waiting> {
        if !self.0.gate.is_held() {
            return None;
        }
        let (decision, rule) = self.first_verdict(traffic);
        let waiting = match decision {
            Decision::Block => None,
            _ => self.0.gate.begins(rule.as_deref()),
        };
        traffic.rule.replace(rule);
        waiting
    }

    /// What the policy says of it before it has carried anything.
    pub(super) fn first_verdict(&self, traffic: &Traffic) -> (Decision, Option<String>) {
        let engine = self.0.engine.borrow();
        let facts = traffic.facts.borrow();
        let verdict = engine.decide(&facts.flow(0));
        (verdict.decision, verdict.rule.map(str::to_owned))
    }

    /// It waits. False where the application has `gone`.
    pub(super) async fn wait(
        &self,
        traffic: &Rc<Traffic>,
        waiting: Waiting,
        gone: impl Future<Output = ()>,
    ) -> bool {
        traffic.is_held.set(true);
        self.keep(traffic);
        let passes = waiting.pass(gone).await;
        traffic.is_held.set(false);
        let is_another =
            |other: &Weak<Traffic>| !std::ptr::eq(other.as_ptr(), &raw const **traffic);
        self.0.others.borrow_mut().retain(is_another);
        passes
    }

    /// A connection that was decided about is a stream now.
    pub(super) fn carried(&self, traffic: Rc<Traffic>, stream: StreamId, number: u64) {
        traffic.way.set(Way::Stream(stream, number));
        let ask_at = traffic.ask_at.get();
        self.0.client.handle().with(|session| session.tally.ask_at(stream, ask_at));
        self.0.journal.tell(self.now(), || journal::open(number, &traffic));
        self.0.streams.borrow_mut().insert(number, traffic);
    }

    /// Something that is under way, but no stream.
    pub(super) fn keep(&self, traffic: &Rc<Traffic>) {
        let mut others = self.0.others.borrow_mut();
        if others.len() == others.capacity() {
            others.retain(|other| other.strong_count() > 0);
        }
        others.push(Rc::downgrade(traffic));
    }

    /// Datagrams of an application to somewhere that it did not send to before. They are not
    /// decided about yet.
    pub(super) fn datagrams(
        &self,
        flow: FlowId,
        from: SocketAddr,
        via: SocketAddr,
        to: &Target,
    ) -> Rc<Traffic> {
        let traffic = self.begin(Protocol::Udp, (from, via), to);
        traffic.way.set(Way::Flow(flow));
        self.keep(&traffic);
        traffic
    }

    /// What the next datagram of those says of them, while that is not clear.
    pub(super) fn peek(&self, traffic: &Traffic, initials: &mut Option<Initials>, data: &[u8]) {
        let Some(peeking) = initials else { return };
        let found = match peeking.datagram(data) {
            Peek::More(_) => return,
            Peek::Complete(hello) => hello.server_name,
            Peek::No => None,
        };
        *initials = None;
        if let Some(name) = found {
            let known = traffic.facts.borrow().domain.is_some();
            if !known {
                traffic.facts.borrow_mut().domain = Some(name);
            }
        }
    }

    /// Finds out what else is to be known of datagrams, and decides about them.
    pub(super) async fn judge(&self, traffic: &Rc<Traffic>) {
        self.find_owner(traffic).await;
        self.judge_now(traffic);
    }

    /// The same without what takes time.
    pub(super) fn judge_now(&self, traffic: &Rc<Traffic>) {
        self.find_name(traffic);
        self.decide(traffic);
    }

    /// Whether finding out whose something is may change what becomes of it.
    pub(super) fn asks_whose(&self) -> bool {
        self.0.engine.borrow().policy().asks_whose()
    }

    /// A datagram went, or came.
    pub(super) fn passed(&self, traffic: &Rc<Traffic>, up: usize, down: usize) {
        let (before_up, before_down) = traffic.bytes.get();
        let bytes = (before_up + up as u64, before_down + down as u64);
        traffic.bytes.set(bytes);
        if traffic.ask_at.get().is_some_and(|at| bytes.0 + bytes.1 >= at) {
            self.decide(traffic);
        }
    }

    /// A datagram to a name server: its answer will tell a name.
    pub(super) fn asked(&self, flow: FlowId, data: &[u8]) {
        if let Some(asked) = dns::question(data) {
            let mut questions = self.0.questions.borrow_mut();
            questions.push_back((flow, asked.id, asked.name));
            if questions.len() > QUESTIONS {
                questions.pop_front();
            }
        }
    }

    /// A datagram from a name server.
    pub(super) fn answered(&self, flow: FlowId, data: &[u8]) {
        let Some(answered) = dns::answer(data) else { return };
        let mut questions = self.0.questions.borrow_mut();
        let asked = questions.iter().position(|(asker, id, name)| {
            *asker == flow && *id == answered.id && *name == answered.name
        });
        // What nobody asked for may say anything.
        if asked.and_then(|at| questions.remove(at)).is_some() {
            let now = self.now();
            self.0.names.borrow_mut().learn(now, &answered);
        }
    }

    /// The name by which an address was asked for last.
    pub(super) fn name_of(&self, address: std::net::IpAddr) -> Option<HostName> {
        let now = self.now();
        self.0.names.borrow().newest(now, address).cloned()
    }

    /// Whose traffic is of which that was not asked yet: as many as are told in `patience`.
    pub async fn find_owners(&self, patience: Duration) {
        let unknown: Vec<Rc<Traffic>> =
            self.traffic().into_iter().filter(|one| one.facts.borrow().uid.is_none()).collect();
        let asking = async {
            for traffic in unknown {
                self.owner(&traffic).await;
            }
        };
        let _ = tokio::time::timeout(patience, asking).await;
    }

    fn begin(
        &self,
        protocol: Protocol,
        socket: (SocketAddr, SocketAddr),
        to: &Target,
    ) -> Rc<Traffic> {
        Rc::new(Traffic {
            facts: RefCell::new(Facts::new(protocol, to.clone())),
            rule: RefCell::default(),
            fate: Cell::new(Fate::Block),
            way: Cell::new(Way::None),
            since: self.now(),
            socket,
            bytes: Cell::default(),
            ask_at: Cell::default(),
            is_held: Cell::default(),
        })
    }

    /// Where the application shows no name, the one that it asked a name server for.
    fn find_name(&self, traffic: &Traffic) {
        let address = match &*traffic.facts.borrow() {
            Facts { domain: None, to: Target::Address(address, _), .. } => *address,
            _ => return,
        };
        let name = self.name_of(address);
        traffic.facts.borrow_mut().domain = name;
    }

    async fn find_owner(&self, traffic: &Traffic) {
        if self.asks_whose() {
            self.owner(traffic).await;
        }
    }

    async fn owner(&self, traffic: &Traffic) {
        let protocol = match traffic.facts.borrow().protocol {
            Protocol::Tcp => process::Protocol::Tcp,
            Protocol::Udp => process::Protocol::Udp,
        };
        let (local, remote) = traffic.socket;
        if let Some(owner) = self.0.whose.find(local, remote, protocol).await {
            let user = self.0.whose.user(owner.uid);
            traffic.facts.borrow_mut().belongs(owner, user);
        }
    }

    /// Decides about one, and tells the other end.
    fn decide(&self, traffic: &Rc<Traffic>) {
        let mut inputs = Inputs::default();
        self.settle(traffic, &mut inputs);
        self.carry_out(inputs);
    }

    fn decide_all(&self) {
        let mut inputs = Inputs::default();
        for traffic in self.traffic() {
            self.settle(&traffic, &mut inputs);
        }
        self.carry_out(inputs);
    }

    fn carry_out(&self, inputs: Inputs) {
        let Inputs { first, last, end } = inputs;
        if !first.is_empty() || !last.is_empty() {
            self.0.client.handle().with(|session: &mut Session| {
                session.handle_all(first.into_iter().chain(last));
            });
        }
        for stream in end {
            self.0.client.handle().end(stream);
        }
    }

    fn settle(&self, traffic: &Rc<Traffic>, inputs: &mut Inputs) {
        if traffic.is_held.get() {
            return;
        }
        let bytes = match traffic.way.get() {
            Way::Stream(stream, number) => {
                let counted = self.0.client.handle().with(|session| {
                    let counted = session.tally.stream(stream);
                    counted.filter(|one| one.number == number).map(Counted::bytes)
                });
                // One of a session that is over, though its end was not told yet.
                let Some(bytes) = counted else { return };
                bytes
            }
            _ => traffic.bytes.get().0 + traffic.bytes.get().1,
        };
        let (decision, rule, ask_at) = {
            let engine = self.0.engine.borrow();
            let facts = traffic.facts.borrow();
            let flow = facts.flow(bytes);
            let verdict = engine.decide(&flow);
            let ask_at = engine.ask_again_at(&flow).map(manyways_unit::Size::as_bytes);
            (verdict.decision, verdict.rule.map(str::to_owned), ask_at)
        };
        traffic.ask_at.set(ask_at);
        if let Way::Stream(stream, _) = traffic.way.get() {
            self.0.client.handle().with(|session| session.tally.ask_at(stream, ask_at));
        }
        let old = traffic.fate.get();
        let fate = match decision {
            Decision::Block => Fate::Block,
            // What the bond carries stays there.
            Decision::Direct => match (traffic.way.get(), old) {
                (Way::Stream(..), _) => old,
                (Way::Flow(_), Fate::Bond(_)) => old,
                _ => Fate::Direct,
            },
            Decision::Bond(treatment) => {
                let given = self.0.labels.borrow_mut().give(rule.as_deref(), treatment, || {
                    let fates = self.traffic().into_iter().map(|other| other.fate.get());
                    let labels = fates.filter_map(|fate| match fate {
                        Fate::Bond(label) => Some(label),
                        _ => None,
                    });
                    labels.collect::<BTreeSet<u8>>()
                });
                match given {
                    Some(given) => {
                        let relabel = Input::Relabel { id: given.id, treatment };
                        match given.news {
                            News::None => {}
                            News::New => inputs.first.push(relabel),
                            News::Changed => inputs.last.push(relabel),
                        }
                        Fate::Bond(given.id)
                    }
                    None => {
                        if !self.0.full.replace(true) {
                            tracing::warn!(
                                "more than 255 rules carry something: what more there is waits \
                                 for none of them and is refused"
                            );
                        }
                        Fate::Block
                    }
                }
            }
        };
        // A connection that goes past the bond is not to be had back.
        if old == Fate::Direct && traffic.facts.borrow().protocol == Protocol::Tcp {
            traffic.rule.replace(rule);
            return;
        }
        if let Way::Stream(stream, _) = traffic.way.get() {
            match fate {
                Fate::Bond(label) if fate != old => {
                    inputs.first.push(Input::Assign { stream, label });
                }
                Fate::Block => inputs.end.push(stream),
                _ => {}
            }
        }
        traffic.fate.set(fate);
        let changed = *traffic.rule.borrow() != rule || (old != fate && bytes > 0);
        traffic.rule.replace(rule);
        if changed && let Way::Stream(_, number) = traffic.way.get() {
            self.0.journal.tell(self.now(), || journal::decision(Some(number), traffic));
        }
    }

    /// Looks at the surroundings, and decides anew where they are others.
    fn look(&self) {
        let known = self.0.networks.known();
        let policy = self.0.engine.borrow().policy().clone();
        let (now, counters, (surroundings, views)) = self.0.client.handle().with(|session| {
            let looked = self.0.watch.borrow_mut().look(&known, session, &policy, |id| {
                self.0.client.path_state(id) == PathState::Asleep
            });
            (session.now(), session.mux.counters(), looked)
        });
        self.0.journal.paths(now, &views);
        self.0.journal.counters(now, counters);
        self.0.views.replace(views);
        let differs = self.0.engine.borrow_mut().observe(now, &surroundings);
        if differs {
            self.decide_all();
        }
    }

    async fn keep_looking(self) {
        loop {
            let now = self.now();
            let wakeup = self.0.engine.borrow().next_wakeup();
            let wait = wakeup.map_or(LOOK, |at| {
                Duration::from(at.since(now).max(Span::from_millis(1))).min(LOOK)
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.0.look.notified() => {}
            }
            self.look();
        }
    }

    async fn listen(self, mut notes: mpsc::UnboundedReceiver<TrafficEvent>) {
        while let Some(noted) = notes.recv().await {
            match noted {
                TrafficEvent::PathsChanged => self.look(),
                TrafficEvent::ByteThreshold(number) => {
                    let traffic = self.0.streams.borrow().get(&number).cloned();
                    if let Some(traffic) = traffic {
                        self.decide(&traffic);
                    }
                }
                TrafficEvent::StreamClosed(counted) => {
                    let closed = self.0.streams.borrow_mut().remove(&counted.number);
                    if let Some(traffic) = closed {
                        let names = self.0.client.paths();
                        let name =
                            |id: PathId| names.get(usize::from(id.0)).cloned().unwrap_or_default();
                        let now = self.now();
                        self.0.journal.tell(now, || journal::close(now, &traffic, &counted, name));
                    }
                }
            }
        }
    }
}
