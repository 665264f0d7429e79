use std::cell::RefCell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::policy::PathFacts;
use crate::sched::{PathId, PathSet};

fn target(port: u16) -> Destination {
    Destination::Address("192.0.2.1".parse().unwrap(), port)
}

fn tcp(port: u16) -> FlowFacts {
    FlowFacts::new(Protocol::Tcp, target(port))
}

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

/// A table, and the bytes of each stream.
struct Simulation {
    table: FlowTable,
    bytes: RefCell<HashMap<u64, u64>>,
}

impl Simulation {
    fn new(text: &str) -> Self {
        Self { table: FlowTable::new(policy(text)), bytes: RefCell::default() }
    }

    fn begin(&mut self, facts: FlowFacts) -> AppFlowId {
        let socket = SocketAddr::from(([127, 0, 0, 1], 1));
        self.table.begin(Time::ZERO, facts, (socket, socket))
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut FlowTable, &StreamBytes<'_>) -> R) -> R {
        let counts = &self.bytes;
        act(&mut self.table, &|_, number| counts.borrow().get(&number).copied())
    }

    fn evaluate(&mut self, id: AppFlowId) -> Routing {
        self.with(|table, bytes| table.evaluate(id, bytes));
        self.table.routing(id)
    }

    /// Decides about the flow, which becomes this stream.
    fn stream(&mut self, id: AppFlowId, number: u64) {
        self.evaluate(id);
        self.table.set_carriage(id, Carriage::Stream(StreamId(number), number));
        self.bytes.borrow_mut().insert(number, 0);
    }

    fn replace(&mut self, text: &str) {
        let policy = policy(text);
        self.with(|table, bytes| table.replace_policy(Time::from_millis(1), policy, bytes));
    }

    fn take(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.table.poll()).collect()
    }
}

fn define(id: u8, outputs: &[Output]) -> bool {
    outputs
        .iter()
        .any(|one| matches!(one, Output::DefineLabel { id: defined, .. } if *defined == id))
}

const WEB: &str = "[[rule]]\nname = \"web\"\nmatch = { port = 80 }\nuse = { priority = 2 }\n";

#[test]
fn each_rule_that_carries_something_has_a_label_of_its_own() {
    let mut simulation = Simulation::new(WEB);
    let [web, other, more] = [80, 443, 80].map(|port| simulation.begin(tcp(port)));
    assert_eq!(simulation.table.routing(web), Routing::Block, "nothing is decided yet");
    assert_eq!(simulation.evaluate(web), Routing::Bond(1));
    assert!(define(1, &simulation.take()));
    assert_eq!(simulation.evaluate(other), Routing::Bond(0));
    assert!(define(0, &simulation.take()));
    assert_eq!(simulation.evaluate(more), Routing::Bond(1));
    assert_eq!(simulation.take(), [], "the gateway knows that one");
    assert_eq!(simulation.table.stream_policy(1).map(|policy| policy.priority), Some(2));
    assert_eq!(simulation.table.get(web).unwrap().rule.as_deref(), Some("web"));
}

#[test]
fn a_stream_changes_its_label_before_the_label_changes_its_meaning() {
    let mut simulation = Simulation::new(WEB);
    let [web, other] = [80, 443].map(|port| simulation.begin(tcp(port)));
    simulation.stream(web, 0);
    simulation.stream(other, 1);
    simulation.take();
    simulation.replace(
        "[[rule]]\nname = \"web\"\nmatch = { port = 443 }\nuse = { priority = 5 }\n\
         [[rule]]\nname = \"old\"\nmatch = { port = 80 }\nuse = { priority = 2 }\n",
    );
    let outputs = simulation.take();
    let place = |wanted: &dyn Fn(&Output) -> bool| outputs.iter().position(wanted).unwrap();
    let assigned = |stream: u64, to: u8| {
        place(&|one| *one == Output::AssignLabel { stream: StreamId(stream), label: to })
    };
    let redefined = place(&|one| matches!(one, Output::DefineLabel { id: 1, .. }));
    let defined = place(&|one| matches!(one, Output::DefineLabel { id: 2, .. }));
    assert!(defined < assigned(0, 2) && assigned(0, 2) < redefined, "{outputs:?}");
    assert!(assigned(1, 1) < redefined, "{outputs:?}");
    assert_eq!(outputs.iter().filter(|one| matches!(one, Output::Decided(_))).count(), 2);
}

#[test]
fn what_is_under_way_stays_where_it_is() {
    let direct = "[default]\ndirect = true\n";
    let mut simulation = Simulation::new("");
    let [stream, datagrams] =
        [tcp(80), FlowFacts::new(Protocol::Udp, target(53))].map(|facts| simulation.begin(facts));
    simulation.stream(stream, 0);
    simulation.table.set_carriage(datagrams, Carriage::Datagrams(FlowId(0)));
    simulation.evaluate(datagrams);
    simulation.replace(direct);
    for id in [stream, datagrams] {
        assert_eq!(simulation.table.routing(id), Routing::Bond(0), "the bond carries it already");
    }
    let fresh =
        [tcp(80), FlowFacts::new(Protocol::Udp, target(53))].map(|facts| simulation.begin(facts));
    simulation.table.set_carriage(fresh[1], Carriage::Datagrams(FlowId(1)));
    assert_eq!(fresh.map(|id| simulation.evaluate(id)), [Routing::Direct; 2]);
    simulation.replace("");
    assert_eq!(
        simulation.table.routing(fresh[0]),
        Routing::Direct,
        "its connection is past the bond"
    );
    assert_eq!(
        simulation.table.routing(fresh[1]),
        Routing::Bond(0),
        "the next datagram may go anywhere"
    );
}

#[test]
fn a_rule_that_blocks_ends_streams_and_stops_datagrams() {
    let mut simulation = Simulation::new("");
    let [stream, datagrams] =
        [tcp(80), FlowFacts::new(Protocol::Udp, target(80))].map(|facts| simulation.begin(facts));
    simulation.stream(stream, 0);
    simulation.table.set_carriage(datagrams, Carriage::Datagrams(FlowId(0)));
    simulation.evaluate(datagrams);
    simulation.take();
    simulation.replace("[[rule]]\nname = \"no\"\nmatch = { port = 80 }\nuse = { block = true }\n");
    assert!(simulation.take().contains(&Output::EndStream(StreamId(0))));
    assert_eq!(simulation.table.routing(datagrams), Routing::Block);
    assert_eq!(simulation.table.routing(AppFlowId(99)), Routing::Block);
}

const LARGE: &str =
    "[[rule]]\nname = \"large\"\nmatch = { bytes = \">=1KB\" }\nuse = { priority = 0 }\n";

#[test]
fn a_flow_is_decided_about_again_when_it_has_grown() {
    let mut simulation = Simulation::new(LARGE);
    let [stream, datagrams] =
        [tcp(80), FlowFacts::new(Protocol::Udp, target(80))].map(|facts| simulation.begin(facts));
    simulation.stream(stream, 7);
    let threshold = |bytes| Output::SetThreshold { stream: StreamId(7), bytes };
    assert!(simulation.take().contains(&threshold(Some(1_000))));
    simulation.bytes.borrow_mut().insert(7, 1_000);
    let id = simulation.table.of_stream(7).unwrap();
    assert_eq!(simulation.evaluate(id), Routing::Bond(1));
    let outputs = simulation.take();
    assert!(outputs.contains(&threshold(None)) && outputs.contains(&Output::Decided(stream)));
    simulation.table.set_carriage(datagrams, Carriage::Datagrams(FlowId(0)));
    assert_eq!(simulation.evaluate(datagrams), Routing::Bond(0));
    assert!(!simulation.table.count_datagram(datagrams, 600, 399));
    assert!(simulation.table.count_datagram(datagrams, 1, 0));
    assert_eq!(simulation.table.routing(datagrams), Routing::Bond(1));
    assert!(!simulation.table.count_datagram(datagrams, 5_000, 0), "once");
}

#[test]
fn a_stream_that_is_over_is_left_alone() {
    let mut simulation = Simulation::new("");
    let id = simulation.begin(tcp(80));
    simulation.stream(id, 0);
    simulation.take();
    simulation.bytes.borrow_mut().clear();
    simulation.replace("[default]\nscheduler = \"redundant\"\n");
    assert_eq!(simulation.take(), []);
    simulation.table.end(id);
    assert_eq!((simulation.table.of_stream(0), simulation.table.flows().count()), (None, 0));
}

#[test]
fn a_delayed_flow_is_shown_and_decided_about_when_it_is_released() {
    let mut simulation = Simulation::new(WEB);
    let id = simulation.begin(tcp(80));
    assert_eq!(simulation.table.flows().count(), 0, "nothing is known of it yet");
    let (decision, rule) = simulation.table.preview(id);
    assert!(matches!(decision, Decision::Bond(_)));
    simulation.table.delay(id, rule);
    simulation.replace("[default]\nscheduler = \"single\"\n");
    assert_eq!(simulation.take(), [], "the gateway is told nothing of it");
    assert_eq!(
        simulation.table.flows().map(|(_, flow)| flow.is_delayed).collect::<Vec<_>>(),
        [true]
    );
    simulation.table.release(id);
    assert_eq!(simulation.evaluate(id), Routing::Bond(0));
    assert_eq!(simulation.table.get(id).unwrap().rule, None);
}

/// More rules than labels, each for one port.
fn many_rules() -> String {
    (1..=300)
        .map(|port| {
            format!("[[rule]]\nname = \"r{port}\"\nmatch = {{ port = {port} }}\nuse = {{}}\n")
        })
        .collect()
}

#[test]
fn where_all_labels_are_taken_further_rules_are_blocked_until_one_is_free() {
    let mut simulation = Simulation::new(&many_rules());
    let ids: Vec<AppFlowId> = (1..=255).map(|port| simulation.begin(tcp(port))).collect();
    for (label, id) in (1..=255).zip(&ids) {
        assert_eq!(simulation.evaluate(*id), Routing::Bond(label));
    }
    assert!(!simulation.take().contains(&Output::LabelsExhausted));
    let [one, two] = [256, 257].map(|port| simulation.begin(tcp(port)));
    assert_eq!([one, two].map(|id| simulation.evaluate(id)), [Routing::Block; 2]);
    assert_eq!(simulation.take(), [Output::LabelsExhausted], "once");
    let default = simulation.begin(tcp(9_999));
    assert_eq!(simulation.evaluate(default), Routing::Bond(0), "the default has its own");
    simulation.table.end(ids[41]);
    assert_eq!(simulation.evaluate(one), Routing::Bond(42));
    assert_eq!(simulation.evaluate(two), Routing::Block);
}

#[test]
fn the_next_look_at_the_paths_is_never_in_the_past() {
    let text =
        "[[rule]]\nname = \"far\"\nwhen = { wifi.rtt = \">100ms\" }\nuse = { block = true }\n";
    let mut simulation = Simulation::new(text);
    let environment = |rtt: u64| Environment {
        paths: vec![PathFacts {
            rtt: Some(Span::from_millis(rtt)),
            ..PathFacts::new(PathId(0), "wlan0", "wifi")
        }],
        ..Environment::default()
    };
    let id = simulation.begin(tcp(80));
    let observe = |world: &mut Simulation, millis: u64, rtt| {
        let now = Time::from_millis(millis);
        world.with(|table, bytes| table.observe(now, &environment(rtt), bytes));
        world.table.next_wakeup()
    };
    assert_eq!(observe(&mut simulation, 0, 50), None);
    simulation.stream(id, 0);
    let wakeup = observe(&mut simulation, 1_000, 200).unwrap();
    assert!(wakeup > Time::from_millis(1_000));
    // The value has persisted long enough only after this time.
    let late = wakeup.as_nanos() / 1_000_000;
    assert_eq!(observe(&mut simulation, late, 200), None);
    assert_eq!(simulation.table.routing(id), Routing::Block);
}

#[test]
fn a_changed_choice_redefines_the_label_of_running_streams_at_once() {
    let mut simulation = Simulation::new("[default]\npaths = \"auto\"\n");
    let id = simulation.begin(tcp(80));
    simulation.evaluate(id);
    simulation.stream(id, 0);
    simulation.take();
    let mut choose = |paths: &[&str]| {
        let path = |id, name: &str| PathFacts::new(PathId(id), name, "wifi");
        let chosen = paths.iter().map(|path| (*path).to_owned()).collect();
        let environment = Environment {
            paths: vec![path(0, "wlan0"), path(1, "wlan1")],
            choices: [("fast".to_owned(), chosen)].into(),
            ..Environment::default()
        };
        simulation.with(|table, bytes| table.observe(Time::ZERO, &environment, bytes));
        let labels = simulation.take().into_iter().filter_map(|output| match output {
            Output::DefineLabel { id: 0, stream_policy } => Some(stream_policy.paths),
            Output::SetThreshold { .. } => None,
            other => panic!("{other:?}"),
        });
        labels.collect::<Vec<_>>()
    };
    let only = |id| [PathId(id)].into_iter().collect::<PathSet>();
    assert_eq!(choose(&["wlan0"]), [only(0)]);
    assert_eq!(choose(&["wlan0"]), []);
    assert_eq!(choose(&["wlan1"]), [only(1)]);
    assert_eq!(choose(&[]), [PathSet::ALL]);
}

/// Labels as known by the session, to check the order of outputs.
#[derive(Default)]
struct Session {
    labels: HashMap<u8, StreamPolicy>,
    streams: HashMap<StreamId, u8>,
}

#[derive(Clone, Debug)]
enum RandomEvent {
    Begin(u16, bool),
    End(usize),
    Grow(usize, u64),
    Replace(usize),
    Delay(usize),
    Release(usize),
}

fn random_event() -> impl Strategy<Value = RandomEvent> {
    prop_oneof![
        4 => (1_u16..6, any::<bool>()).prop_map(|(port, udp)| RandomEvent::Begin(port, udp)),
        1 => (0_usize..20).prop_map(RandomEvent::End),
        2 => (0_usize..20, 1_u64..3_000).prop_map(|(at, bytes)| RandomEvent::Grow(at, bytes)),
        2 => (0_usize..4).prop_map(RandomEvent::Replace),
        1 => (0_usize..20).prop_map(RandomEvent::Delay),
        1 => (0_usize..20).prop_map(RandomEvent::Release),
    ]
}

proptest! {
    /// After any events, every stream has a defined label with the stream policy of its rule, and
    /// the flows of one rule share a label.
    #[test]
    fn labels_mean_what_the_policy_says(events in prop::collection::vec(random_event(), 1..60)) {
        let rule = |name: &str, port: u16, rest: &str| {
            format!("[[rule]]\nname = \"{name}\"\nmatch = {{ port = {port} }}\n{rest}\n")
        };
        let texts = [
            String::new(),
            rule("a", 1, "use = { priority = 3 }") + &rule("b", 2, "use = { priority = 4 }"),
            rule("b", 1, "use = { priority = 5 }") + &rule("a", 2, "use = { block = true }"),
            LARGE.to_owned() + &rule("c", 3, "use = { scheduler = \"redundant\" }"),
        ];
        let mut simulation = Simulation::new("");
        let mut session = Session::default();
        let mut flows: Vec<(AppFlowId, Option<u64>)> = Vec::new();
        for (number, event) in (0_u64..).zip(events) {
            match event {
                RandomEvent::Begin(port, udp) => {
                    let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
                    let id = simulation.begin(FlowFacts::new(protocol, target(port)));
                    let routing = simulation.evaluate(id);
                    if udp {
                        simulation.table.set_carriage(id, Carriage::Datagrams(FlowId(number as u32)));
                        flows.push((id, None));
                    } else if let Routing::Bond(label) = routing {
                        session.streams.insert(StreamId(number), label);
                        simulation.table.set_carriage(id, Carriage::Stream(StreamId(number), number));
                        simulation.bytes.borrow_mut().insert(number, 0);
                        flows.push((id, Some(number)));
                    } else {
                        simulation.table.end(id);
                    }
                }
                RandomEvent::End(at) if at < flows.len() => {
                    let (id, number) = flows.remove(at);
                    simulation.table.end(id);
                    if let Some(number) = number {
                        session.streams.remove(&StreamId(number));
                    }
                }
                RandomEvent::Grow(at, bytes) if at < flows.len() => {
                    match flows[at] {
                        (id, Some(number)) => {
                            *simulation.bytes.borrow_mut().entry(number).or_default() += bytes;
                            simulation.evaluate(id);
                        }
                        (id, None) => drop(simulation.table.count_datagram(id, bytes as usize, 0)),
                    }
                }
                RandomEvent::Replace(at) => simulation.replace(&texts[at]),
                RandomEvent::Delay(at) if at < flows.len() && flows[at].1.is_none() => {
                    simulation.table.delay(flows[at].0, None);
                }
                RandomEvent::Release(at) if at < flows.len() && flows[at].1.is_none() => {
                    simulation.table.release(flows[at].0);
                    simulation.evaluate(flows[at].0);
                }
                _ => {}
            }
            for output in simulation.take() {
                match output {
                    Output::DefineLabel { id, stream_policy } => {
                        session.labels.insert(id, stream_policy);
                    }
                    Output::AssignLabel { stream, label } => {
                        prop_assert!(session.labels.contains_key(&label), "{label} means nothing");
                        if let Some(known) = session.streams.get_mut(&stream) {
                            *known = label;
                        }
                    }
                    Output::EndStream(_) | Output::SetThreshold { .. } => {}
                    Output::Decided(id) => prop_assert!(simulation.table.get(id).is_some()),
                    Output::LabelsExhausted => prop_assert!(false, "there are enough"),
                }
            }
            let mut by_rule: HashMap<Option<String>, u8> = HashMap::new();
            for (_, flow) in simulation.table.flows().filter(|(_, flow)| !flow.is_delayed) {
                let Routing::Bond(label) = flow.routing else { continue };
                prop_assert_eq!(session.labels.get(&label).copied(), simulation.table.stream_policy(label));
                if let Carriage::Stream(stream, _) = flow.carriage {
                    prop_assert_eq!(session.streams[&stream], label);
                }
                let known = *by_rule.entry(flow.rule.clone()).or_insert(label);
                prop_assert_eq!(known, label);
            }
        }
    }
}
