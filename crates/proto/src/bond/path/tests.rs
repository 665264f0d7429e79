use super::*;
use crate::mux::{Input, Mux, Role};

const TODAY: Day = Day(19_796);
const LTE: PathId = PathId(1);

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn carrier(id: u64) -> CarrierSample {
    CarrierSample {
        id: CarrierId(id),
        transport: CarrierTransport::Tcp,
        is_suspect: false,
        transport_info: None,
        view: None,
        stats: Some(TransportStats::default()),
    }
}

fn suspect(id: u64) -> CarrierSample {
    CarrierSample { is_suspect: true, ..carrier(id) }
}

/// The path `wwan0` with these carriers, and these sent and received bytes.
fn path(carriers: &[CarrierSample], sent: u64, received: u64) -> PathSample {
    PathSample {
        id: LTE,
        name: "wwan0".to_owned(),
        kind: "cellular",
        is_metered: true,
        lender: None,
        is_asleep: false,
        bytes: PathBytes { sent, received },
        carriers: carriers.to_vec(),
    }
}

struct Simulation {
    monitor: PathMonitor,
    policy: Policy,
}

impl Simulation {
    fn new() -> Self {
        let monitor = PathMonitor::new(Time::ZERO, Config::default(), Usage::default());
        Self { monitor, policy: Policy::default() }
    }

    fn sample(&mut self, millis: u64, path: PathSample) -> PathSnapshot {
        let (environment, mut all) = self.monitor.sample(at(millis), TODAY, &self.policy, &[path]);
        assert_eq!(environment.paths, [all[0].facts.clone()]);
        all.remove(0)
    }

    /// The state of the path, and whether a policy counts it as up.
    fn state(&mut self, millis: u64, path: PathSample) -> (PathState, bool) {
        let snapshot = self.sample(millis, path);
        (snapshot.state, snapshot.facts.up)
    }
}

#[test]
fn a_suspect_path_counts_as_down_after_a_second_and_as_up_when_it_recovers() {
    let mut simulation = Simulation::new();
    assert_eq!(simulation.state(0, path(&[carrier(1)], 0, 0)), (PathState::Up, true));
    assert_eq!(simulation.state(500, path(&[suspect(1)], 0, 0)), (PathState::Suspect, true));
    assert_eq!(simulation.state(1_499, path(&[suspect(1)], 0, 0)), (PathState::Suspect, true));
    assert_eq!(simulation.state(1_500, path(&[suspect(1)], 0, 0)), (PathState::Suspect, false));
    assert_eq!(simulation.state(1_600, path(&[carrier(1)], 0, 0)), (PathState::Up, true));
    // The timeout restarts.
    assert_eq!(simulation.state(1_700, path(&[suspect(1)], 0, 0)), (PathState::Suspect, true));
    assert_eq!(simulation.state(2_800, path(&[suspect(1)], 0, 0)), (PathState::Suspect, false));
}

#[test]
fn a_suspect_carrier_beside_its_successor_is_no_suspect_path() {
    let mut simulation = Simulation::new();
    assert_eq!(simulation.state(0, path(&[suspect(1), carrier(2)], 0, 0)), (PathState::Up, true));
    assert_eq!(simulation.state(9_000, path(&[], 0, 0)), (PathState::Down, false));
}

#[test]
fn a_path_that_slept_counts_as_up_while_it_connects() {
    let mut simulation = Simulation::new();
    let asleep = || PathSample { is_asleep: true, ..path(&[], 0, 0) };
    assert_eq!(simulation.state(0, asleep()), (PathState::Asleep, true));
    assert_eq!(simulation.state(60_000, asleep()), (PathState::Asleep, true));
    assert_eq!(simulation.state(62_999, path(&[], 0, 0)), (PathState::Down, true));
    assert_eq!(simulation.state(63_000, path(&[], 0, 0)), (PathState::Down, false));
}

#[test]
fn throughput_is_measured_over_most_of_a_second() {
    let mut simulation = Simulation::new();
    let rates = |snapshot: PathSnapshot| (snapshot.up.as_bps(), snapshot.down.as_bps());
    assert_eq!(rates(simulation.sample(0, path(&[carrier(1)], 1_000, 5_000))), (0, 0));
    assert_eq!(rates(simulation.sample(899, path(&[carrier(1)], 9_000, 9_000))), (0, 0));
    let after = simulation.sample(1_000, path(&[carrier(1)], 2_000, 130_000));
    assert_eq!(rates(after), (8_000, 1_000_000));
    // The carriers' counters never decrease, but a shell may be wrong.
    assert_eq!(rates(simulation.sample(2_000, path(&[carrier(1)], 0, 0))), (0, 0));
}

#[test]
fn losses_and_the_smallest_round_trip_are_those_of_the_newest_carrier() {
    let mut simulation = Simulation::new();
    let with = |id, rtt: u64, sent_packets, retransmitted_packets| CarrierSample {
        stats: Some(TransportStats {
            rtt: Some(Span::from_millis(rtt)),
            sent_packets,
            retransmitted_packets,
            ..TransportStats::default()
        }),
        ..carrier(id)
    };
    let facts = simulation.sample(0, path(&[with(1, 40, 100, 50)], 0, 0)).facts;
    assert_eq!((facts.rtt, facts.loss), (Some(Span::from_millis(40)), Some(0.5)));
    let facts = simulation.sample(500, path(&[with(2, 90, 100, 0)], 0, 0)).facts;
    assert_eq!((facts.rtt, facts.loss), (Some(Span::from_millis(90)), Some(0.0)));
    assert_eq!(simulation.monitor.paths[&LTE].min_rtt, Some(Span::from_millis(90)));
    // A carrier without statistics does not change the known values.
    let silent = CarrierSample { stats: None, ..carrier(3) };
    let facts = simulation.sample(1_000, path(&[with(2, 90, 100, 0), silent], 0, 0)).facts;
    assert_eq!(facts.rtt, Some(Span::from_millis(90)));
}

#[test]
fn a_path_over_a_lender_has_two_hops() {
    let mut simulation = Simulation::new();
    let mut mux: Mux<Vec<u8>> = Mux::new(crate::mux::Config::new(Role::Client));
    let (id, info) = (CarrierId(1), TransportInfo::initial(Span::from_millis(6)));
    mux.handle(at(0), Input::Attach { carrier: id, path: LTE, transport_info: info });
    let stats = |rtt| TransportStats {
        rtt: Some(Span::from_millis(rtt)),
        min_rtt: Some(Span::from_millis(rtt)),
        ..TransportStats::default()
    };
    let sample = |mux: &Mux<Vec<u8>>| CarrierSample {
        view: mux.path_view(at(0), id),
        stats: Some(stats(6)),
        ..carrier(1)
    };
    let own = simulation.sample(0, path(&[sample(&mux)], 0, 0));
    assert_eq!((own.facts.rtt, own.lender), (Some(Span::from_millis(6)), None));
    assert_eq!(own.delivery, Some(Span::from_millis(3)));

    let rtt = Span::from_millis(60);
    mux.handle(at(0), Input::Lend { carrier: id, join: 0, rtt });
    let address = "10.64.3.1:4434".parse().ok();
    let lent = |carriers: &[CarrierSample]| PathSample { lender: address, ..path(carriers, 0, 0) };
    let snapshot = simulation.sample(500, lent(&[sample(&mux)]));
    assert_eq!(snapshot.facts.rtt, Some(Span::from_millis(66)));
    assert_eq!(simulation.monitor.paths[&LTE].min_rtt, Some(Span::from_millis(6)));
    assert_eq!(snapshot.delivery, Some(Span::from_millis(33)));
    let lender = LenderSnapshot {
        address,
        first_hop_rtt: Some(Span::from_millis(6)),
        second_hop_rtt: Some(rtt),
        second_hop_rate: None,
        backlog: Some(Size::ZERO),
    };
    assert_eq!(snapshot.lender, Some(lender));

    // Nothing is predicted while nothing gets through.
    let silent = CarrierSample { is_suspect: true, ..sample(&mux) };
    assert_eq!(simulation.sample(1_000, lent(&[silent])).delivery, None);
    let away = simulation.sample(1_500, lent(&[]));
    assert_eq!(away.delivery, None);
    assert_eq!(away.lender, Some(LenderSnapshot { address, ..LenderSnapshot::default() }));
    assert_eq!(away.facts.rtt, Some(Span::from_millis(66)));
}

#[test]
fn what_is_left_of_a_data_plan_is_told() {
    let mut simulation = Simulation::new();
    assert_eq!(simulation.sample(0, path(&[], 10, 20)).plan_remaining, None);
    simulation.policy = Policy::parse("[paths.wwan0]\nmonthly = \"1KB\"\n").unwrap();
    let snapshot = simulation.sample(500, path(&[], 100, 200));
    assert_eq!(snapshot.facts.plan_used, Some(Size::from_bytes(300)));
    assert_eq!(snapshot.plan_remaining, Some(Size::from_bytes(700)));
    let snapshot = simulation.sample(1_000, path(&[], 1_000, 2_000));
    assert_eq!(snapshot.plan_remaining, Some(Size::ZERO));
}

#[test]
fn samples_battery_and_usage_are_due_in_time_and_never_at_once_again() {
    let mut monitor = PathMonitor::new(at(0), Config::default(), Usage::default());
    let mut outputs = Vec::new();
    let mut now = at(0);
    while now < at(61_000) {
        while let Some(output) = monitor.poll(now) {
            outputs.push((now, output));
        }
        let wakeup = monitor.next_wakeup();
        assert!(wakeup > now);
        now = wakeup;
    }
    let count = |wanted: Output| outputs.iter().filter(|(_, output)| *output == wanted).count();
    assert_eq!(count(Output::Sample), 122);
    assert_eq!(count(Output::ReadBattery), 7);
    assert_eq!(count(Output::SaveUsage), 1);
    assert_eq!(outputs[..2], [(at(0), Output::ReadBattery), (at(0), Output::Sample)]);
    monitor.sample_now(now);
    assert_eq!(monitor.poll(now), Some(Output::Sample), "something has changed");
    assert_eq!(monitor.poll(now), None);
}

#[test]
fn the_battery_is_told_with_the_paths() {
    let mut simulation = Simulation::new();
    simulation.monitor.set_battery(Battery { level: Some(20), is_charging: Some(false) });
    let (environment, paths) = simulation.monitor.sample(at(0), TODAY, &simulation.policy, &[]);
    assert_eq!((environment.battery, environment.charging), (Some(20), Some(false)));
    assert!(paths.is_empty());
}
