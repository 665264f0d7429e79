use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Reason of a failed attempt in these tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum FailureCause {
    Broken,
    Refused,
    NoAnswer,
    WrongKey,
    UnknownSession,
    Forged,
}

impl Reason for FailureCause {
    fn kind(&self) -> FailureKind {
        match self {
            Self::Broken => FailureKind::Transient,
            Self::Refused => FailureKind::Refused,
            Self::NoAnswer => FailureKind::Timeout,
            Self::WrongKey => FailureKind::Permanent,
            Self::UnknownSession => FailureKind::UnknownSession,
            Self::Forged => FailureKind::Forged,
        }
    }
}

type TestOutput = Output<FailureCause, &'static str>;

const WIFI: PathId = PathId(0);
const LTE: PathId = PathId(1);
const TCP: CarrierTransport = CarrierTransport::Tcp;
const QUIC: CarrierTransport = CarrierTransport::Quic;

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4433))
}

fn dial(path: PathId, transport: CarrierTransport) -> TestOutput {
    Output::Dial { path, transport, packets: PacketSize::Normal }
}

fn suspect(carrier: CarrierId) -> Input<FailureCause, &'static str> {
    Input::Suspect { carrier, barren: None }
}

fn failed(path: PathId, cause: FailureCause) -> TestOutput {
    Output::Event(Event::Failed(path, Failure::Failed(cause)))
}

/// A dialer and the time.
struct Simulation {
    dialer: Dialer<FailureCause, &'static str>,
    now: Time,
    /// Outputs and their times in milliseconds.
    outputs: Vec<(u64, TestOutput)>,
}

impl Simulation {
    fn new(config: Config, paths: usize) -> Self {
        let mut dialer = Dialer::new(config, vec![address(1)]);
        for _ in 0..paths {
            dialer.add_path();
        }
        let mut simulation = Self { dialer, now: Time::ZERO, outputs: Vec::new() };
        simulation.poll();
        simulation
    }

    fn only(transport: CarrierTransport, paths: usize) -> Self {
        let transport = TransportChoice::Only(transport);
        Self::new(Config { transport, ..Config::default() }, paths)
    }

    fn poll(&mut self) {
        while let Some(output) = self.dialer.poll(self.now) {
            self.outputs.push((self.now.as_nanos() / 1_000_000, output));
        }
        let wakeup = self.dialer.next_wakeup();
        assert!(wakeup.is_none_or(|at| at > self.now), "{wakeup:?} at {}", self.now);
    }

    /// Runs until `millis`.
    fn until(&mut self, millis: u64) -> &mut Self {
        while let Some(wakeup) = self.dialer.next_wakeup().filter(|wakeup| *wakeup <= at(millis)) {
            self.now = wakeup;
            self.poll();
        }
        self.now = at(millis);
        self
    }

    fn input(&mut self, input: Input<FailureCause, &'static str>) -> &mut Self {
        self.dialer.handle(self.now, input);
        self.poll();
        self
    }

    fn fail(&mut self, path: PathId, cause: FailureCause) -> &mut Self {
        self.input(Input::Failed(path, cause))
    }

    /// The attempt of a path succeeds at once.
    fn connect(&mut self, path: PathId, carrier: u64) -> &mut Self {
        self.input(Input::Secured(path)).input(Input::Connected(path, CarrierId(carrier)))
    }

    fn lose(&mut self, carrier: u64, idle: bool, in_use: bool) -> &mut Self {
        let end = if idle { CarrierEnd::Idle } else { CarrierEnd::Broken };
        self.lose_by(carrier, end, in_use)
    }

    fn lose_by(&mut self, carrier: u64, end: CarrierEnd, in_use: bool) -> &mut Self {
        self.input(Input::Lost { carrier: CarrierId(carrier), reason: "ended", end, in_use })
    }

    /// Events since the last call.
    fn take(&mut self) -> Vec<TestOutput> {
        std::mem::take(&mut self.outputs).into_iter().map(|(_, output)| output).collect()
    }

    /// Times at which a path was dialled, and the transports.
    fn dials(&self, path: PathId) -> Vec<(u64, CarrierTransport)> {
        let dials = self.outputs.iter().filter_map(|(time, output)| match output {
            Output::Dial { path: dialled, transport, .. } if *dialled == path => {
                Some((*time, *transport))
            }
            _ => None,
        });
        dials.collect()
    }
}

#[test]
fn pauses_double_up_to_the_longest_and_news_ends_them() {
    let mut simulation = Simulation::only(TCP, 1);
    for _ in 0..10 {
        simulation.fail(WIFI, FailureCause::Broken);
        let next = simulation.dialer.next_wakeup().unwrap();
        simulation.until(next.as_nanos() / 1_000_000);
    }
    let times: Vec<u64> = simulation.dials(WIFI).into_iter().map(|(time, _)| time).collect();
    let pauses: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
    assert_eq!(
        simulation
            .take()
            .iter()
            .filter(|said| **said == failed(WIFI, FailureCause::Broken))
            .count(),
        1
    );
    simulation.fail(WIFI, FailureCause::Broken).input(Input::PathChanged(WIFI));
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
    let before = simulation.now.as_nanos() / 1_000_000;
    simulation.fail(WIFI, FailureCause::NoAnswer).until(before + 200);
    assert_eq!(simulation.take(), [failed(WIFI, FailureCause::NoAnswer), dial(WIFI, TCP)]);
}

#[test]
fn a_gateway_that_refuses_connections_is_tried_every_two_seconds() {
    let mut simulation = Simulation::only(TCP, 1);
    for _ in 0..8 {
        simulation.fail(WIFI, FailureCause::Refused);
        let next = simulation.dialer.next_wakeup().unwrap();
        simulation.until(next.as_nanos() / 1_000_000);
    }
    let times: Vec<u64> = simulation.dials(WIFI).into_iter().map(|(time, _)| time).collect();
    let pauses: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses, [200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000]);
}

#[test]
fn quic_after_a_refusal_takes_no_longer_than_the_pause() {
    let mut simulation = Simulation::new(Config::default(), 1);
    for second in [0, 2, 4] {
        simulation.until(1_000 * second).fail(WIFI, FailureCause::Refused);
    }
    simulation.until(6_500);
    let dials = simulation.dials(WIFI);
    let expected = [0, 2_000, 4_000].map(|time| [(time, TCP), (time, QUIC)]).concat();
    assert_eq!(dials, [&expected[..], &[(6_000, TCP)]].concat());
}

#[test]
fn data_to_send_ends_a_long_pause_if_no_path_works() {
    let mut simulation = Simulation::only(TCP, 2);
    let pause = |simulation: &mut Simulation| {
        for _ in 0..8 {
            simulation.fail(WIFI, FailureCause::Broken).fail(LTE, FailureCause::Broken);
            let next = simulation.dialer.next_wakeup().unwrap();
            simulation.until(next.as_nanos() / 1_000_000);
        }
        simulation.fail(WIFI, FailureCause::Broken);
        simulation.take();
    };
    pause(&mut simulation);
    let now = simulation.now.as_nanos() / 1_000_000;
    simulation.fail(LTE, FailureCause::Broken);
    let demand = || Input::Demand { in_use: true };
    assert!(simulation.dialer.heeds_demand());
    simulation.input(demand()).until(now + 1_999);
    assert_eq!(simulation.dials(WIFI), [], "not at once: it has just been tried");
    simulation.until(now + 2_000);
    assert_eq!(simulation.dials(WIFI), [(now + 2_000, TCP)]);
    simulation.fail(WIFI, FailureCause::Broken);
    simulation.connect(LTE, 1).take();
    assert!(!simulation.dialer.heeds_demand());
    simulation.input(demand()).until(now + 20_000);
    assert_eq!(simulation.dials(WIFI), [], "another path carries the data");
}

/// Carriers of a path connect and are suspect 200 ms later, before anything has passed. Returns the
/// dials with their times, until they pause.
fn dials_through_a_black_hole(
    simulation: &mut Simulation,
    carrier: &mut u64,
) -> Vec<(u64, CarrierTransport, PacketSize)> {
    let mut dials = Vec::new();
    for _ in 0..5 {
        let dialled = simulation.outputs.iter().find_map(|(time, output)| match output {
            Output::Dial { path: WIFI, transport, packets } => Some((*time, *transport, *packets)),
            _ => None,
        });
        let Some(dialled) = dialled else { break };
        dials.push(dialled);
        simulation.outputs.retain(|(_, output)| matches!(output, Output::Event(_)));
        *carrier += 1;
        simulation.connect(WIFI, *carrier);
        let now = simulation.now.as_nanos() / 1_000_000;
        let barren =
            Input::Suspect { carrier: CarrierId(*carrier), barren: Some(Direction::Receive) };
        simulation.until(now + 200).input(barren).until(now + 1_000);
    }
    dials
}

#[test]
fn where_only_handshakes_pass_packets_get_smaller_and_then_quic_is_tried() {
    let mut simulation = Simulation::new(Config::default(), 2);
    simulation.connect(LTE, 100);
    let mut carrier = 0;
    let dials = dials_through_a_black_hole(&mut simulation, &mut carrier);
    let expected = [
        (0, TCP, PacketSize::Normal),
        (1_000, TCP, PacketSize::Normal),
        (2_000, TCP, PacketSize::Small),
        (3_000, QUIC, PacketSize::Normal),
    ];
    assert_eq!(dials, expected);
    // The path is not said to be up again and again, and the other one is left alone.
    let barren = Output::Event(Event::Failed(WIFI, Failure::Barren));
    assert_eq!(simulation.take().into_iter().filter(|said| *said == barren).count(), 1);
    assert_eq!(simulation.dialer.state(LTE), PathState::Up);
    for pause in [200, 400, 800] {
        let now = simulation.now.as_nanos() / 1_000_000;
        simulation.until(now + pause);
        assert_eq!(dials_through_a_black_hole(&mut simulation, &mut carrier).len(), 4, "{pause}");
        assert_eq!(simulation.dialer.state(WIFI), PathState::Suspect);
        let events = simulation.take().into_iter().filter(|one| matches!(one, Output::Event(_)));
        assert_eq!(events.count(), 0, "nothing new");
    }
    let now = simulation.now.as_nanos() / 1_000_000;
    simulation.until(now + 1_600).connect(WIFI, 50).take();
    assert_eq!(simulation.dialer.state(WIFI), PathState::Suspect, "before data has passed");
    simulation.input(Input::Delivered(CarrierId(50), Direction::Receive));
    assert_eq!(simulation.take(), [Output::Event(Event::Up(WIFI, PacketSize::Normal))]);
    assert_eq!(simulation.dialer.state(WIFI), PathState::Up);
}

#[test]
fn packets_stay_small_where_they_heal_until_the_path_changes() {
    let mut simulation = Simulation::only(TCP, 1);
    let barren =
        |carrier| Input::Suspect { carrier: CarrierId(carrier), barren: Some(Direction::Receive) };
    simulation.connect(WIFI, 1).input(barren(1)).until(800);
    simulation.connect(WIFI, 2).input(barren(2)).until(1_600);
    simulation.take();
    simulation.connect(WIFI, 3).input(Input::Delivered(CarrierId(3), Direction::Receive));
    let up = Output::Event(Event::Up(WIFI, PacketSize::Small));
    assert_eq!(simulation.take(), [Output::Detach(CarrierId(2)), up]);
    let dialled = |simulation: &mut Simulation| {
        simulation.take().into_iter().find_map(|output| match output {
            Output::Dial { packets, .. } => Some(packets),
            _ => None,
        })
    };
    simulation.lose(3, false, false);
    assert_eq!(dialled(&mut simulation), Some(PacketSize::Small));
    simulation.connect(WIFI, 4).input(Input::PathChanged(WIFI)).lose(4, false, false);
    assert_eq!(dialled(&mut simulation), Some(PacketSize::Normal));
}

#[test]
fn a_network_that_is_silent_for_a_moment_keeps_its_packets() {
    let mut simulation = Simulation::only(TCP, 1);
    let barren = Input::Suspect { carrier: CarrierId(1), barren: Some(Direction::Receive) };
    simulation.connect(WIFI, 1).input(barren).until(800);
    simulation.take();
    simulation.connect(WIFI, 2).input(Input::Delivered(CarrierId(2), Direction::Receive));
    let again = Input::Suspect { carrier: CarrierId(2), barren: None };
    simulation.input(again).until(10_000);
    assert_eq!(simulation.take().last(), Some(&dial(WIFI, TCP)));
}

#[test]
fn what_passes_up_does_not_heal_what_is_lost_on_the_way_down() {
    let mut simulation = Simulation::only(TCP, 1);
    for carrier in 1..=2 {
        simulation.connect(WIFI, carrier);
        simulation.input(Input::Delivered(CarrierId(carrier), Direction::Send));
        let (carrier, barren) = (CarrierId(carrier), Some(Direction::Receive));
        let now = simulation.now.as_nanos() / 1_000_000;
        simulation.input(Input::Suspect { carrier, barren }).until(now + 800);
    }
    let small = Output::Dial { path: WIFI, transport: TCP, packets: PacketSize::Small };
    assert_eq!(simulation.take().last(), Some(&small));
}

#[test]
fn a_session_that_has_begun_again_is_another_one() {
    let mut simulation = Simulation::only(TCP, 2);
    assert_eq!(simulation.dialer.accept(7), Ok(()));
    simulation.connect(WIFI, 1);
    assert_eq!(simulation.dialer.accept(7), Ok(()), "another path of the same session");
    // A late welcome of a gateway that has restarted: the session of the carrier stays.
    assert_eq!(simulation.dialer.accept(8), Err(FailureKind::Transient));
    simulation.input(suspect(CarrierId(1)));
    assert_eq!(simulation.dialer.accept(8), Err(FailureKind::UnknownSession));
    simulation.take();
    simulation.fail(LTE, FailureCause::UnknownSession);
    let said = simulation.take();
    assert!(said.contains(&Output::RenewSession), "{said:?}");
    assert_eq!(simulation.dialer.accept(9), Ok(()));
}

#[test]
fn a_success_begins_the_pauses_and_the_messages_again() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation
        .fail(WIFI, FailureCause::Broken)
        .until(200)
        .fail(WIFI, FailureCause::Broken)
        .until(600);
    simulation.connect(WIFI, 1).lose(1, false, false);
    simulation.take();
    simulation.fail(WIFI, FailureCause::Broken).until(800);
    assert_eq!(simulation.take(), [failed(WIFI, FailureCause::Broken), dial(WIFI, TCP)]);
}

#[test]
fn quic_follows_where_tcp_has_no_answer() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.until(2_999);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
    simulation.until(3_000);
    assert_eq!(simulation.take(), [Output::Abandon(WIFI), dial(WIFI, QUIC)]);
    simulation.connect(WIFI, 7);
    assert_eq!(simulation.take(), [Output::Event(Event::Up(WIFI, PacketSize::Normal))]);
    assert!(simulation.dialer.is_connected() && simulation.dialer.resumes());
    assert_eq!(simulation.dialer.next_wakeup(), None);
}

#[test]
fn what_tcp_failed_for_is_told_where_quic_has_no_answer_either() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.fail(WIFI, FailureCause::Broken);
    assert_eq!(simulation.take(), [dial(WIFI, TCP), dial(WIFI, QUIC)]);
    simulation.until(6_000);
    assert_eq!(simulation.take(), [Output::Abandon(WIFI), failed(WIFI, FailureCause::Broken)]);
    simulation.until(6_200).fail(WIFI, FailureCause::Broken).fail(WIFI, FailureCause::WrongKey);
    let all = [dial(WIFI, TCP), dial(WIFI, QUIC), failed(WIFI, FailureCause::WrongKey)];
    assert_eq!(simulation.take(), all, "unless QUIC tells what is wrong for good");
}

#[test]
fn where_tcp_got_through_it_may_be_refused_four_times_before_quic_is_tried() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.connect(WIFI, 1).lose(1, false, false);
    simulation.take();
    for _ in 0..5 {
        simulation.fail(WIFI, FailureCause::Broken);
        let next = simulation.dialer.next_wakeup().unwrap();
        simulation.until(next.as_nanos() / 1_000_000);
    }
    let transports: Vec<CarrierTransport> =
        simulation.dials(WIFI).into_iter().map(|(_, over)| over).collect();
    assert_eq!(transports, [TCP, TCP, TCP, TCP, QUIC], "{:?}", simulation.outputs);
}

#[test]
fn a_session_of_a_gateway_that_does_not_run_ends_at_once() {
    let mut simulation = Simulation::only(TCP, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2);
    simulation.lose_by(1, CarrierEnd::Closed, true).lose_by(2, CarrierEnd::Closed, true);
    simulation.fail(WIFI, FailureCause::Refused);
    let gone = [Output::RenewSession, Output::Event(Event::GatewayGone)];
    assert!(!gone.iter().any(|one| simulation.take().contains(one)), "LTE may lead to it");
    simulation.fail(LTE, FailureCause::Refused);
    let all = simulation.take();
    assert!(gone.iter().all(|one| all.contains(one)), "{all:?}");
    assert!(!simulation.dialer.resumes());
    // The next attempts come as before, and nothing ends twice.
    simulation.until(199).fail(WIFI, FailureCause::Refused);
    assert_eq!(simulation.take(), []);
    simulation.until(200);
    assert_eq!(simulation.take(), [dial(WIFI, TCP), dial(LTE, TCP)]);
}

#[test]
fn a_refusal_does_not_end_a_session_whose_gateway_may_run() {
    let ends = |lost: CarrierEnd, other: FailureCause| {
        let mut simulation = Simulation::only(TCP, 2);
        simulation.connect(WIFI, 1).connect(LTE, 2);
        simulation.lose_by(1, lost, true).lose_by(2, lost, true);
        simulation.fail(WIFI, FailureCause::Refused).fail(LTE, other);
        simulation.take().contains(&Output::RenewSession)
    };
    assert!(ends(CarrierEnd::Closed, FailureCause::Refused));
    assert!(!ends(CarrierEnd::Broken, FailureCause::Refused), "a login page refuses, too");
    assert!(!ends(CarrierEnd::Closed, FailureCause::NoAnswer));
    // One path still has its carrier, or no network.
    let mut simulation = Simulation::only(TCP, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2).lose_by(1, CarrierEnd::Closed, true);
    simulation.fail(WIFI, FailureCause::Refused);
    assert!(!simulation.take().contains(&Output::RenewSession));
    simulation.input(Input::LinkDown(LTE)).until(200).fail(WIFI, FailureCause::Refused);
    assert!(simulation.take().contains(&Output::RenewSession));
}

#[test]
fn a_timeout_of_tcp_that_got_through_before_is_followed_by_quic_at_once() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.connect(WIFI, 1).lose(1, false, false);
    simulation.take();
    simulation.fail(WIFI, FailureCause::NoAnswer);
    assert_eq!(simulation.take(), [dial(WIFI, QUIC)]);
}

#[test]
fn a_failure_for_good_and_one_behind_the_connection_do_not_lead_to_quic() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.fail(WIFI, FailureCause::WrongKey);
    assert_eq!(simulation.take(), [dial(WIFI, TCP), failed(WIFI, FailureCause::WrongKey)]);
    simulation.until(200).input(Input::Secured(WIFI)).fail(WIFI, FailureCause::Broken);
    assert_eq!(simulation.take(), [dial(WIFI, TCP), failed(WIFI, FailureCause::Broken)]);
}

#[test]
fn an_attempt_ends_in_time_whatever_stage_it_is_in() {
    let mut simulation = Simulation::new(Config::default(), 1);
    simulation.until(2_000).input(Input::Secured(WIFI)).until(9_999);
    simulation.take();
    simulation.until(10_000);
    let late = Output::Event(Event::Failed(WIFI, Failure::TimedOut(Span::from_secs(10))));
    assert_eq!(simulation.take(), [Output::Abandon(WIFI), late]);
    let mut simulation = Simulation::only(QUIC, 1);
    simulation.until(10_000);
    assert_eq!(simulation.take().len(), 3);
}

#[test]
fn a_suspect_carrier_gets_a_successor_unless_it_recovers() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.connect(WIFI, 1);
    simulation.take();
    simulation.input(suspect(CarrierId(1)));
    assert_eq!(simulation.dialer.state(WIFI), PathState::Suspect);
    assert!(!simulation.dialer.is_connected());
    simulation.until(700).input(Input::Recovered(CarrierId(1))).until(60_000);
    assert_eq!(simulation.take(), []);
    assert_eq!(simulation.dialer.state(WIFI), PathState::Up);
    simulation.input(suspect(CarrierId(1))).until(60_799);
    assert_eq!(simulation.take(), []);
    simulation.until(60_800);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
    simulation.connect(WIFI, 2);
    let replaced =
        [Output::Detach(CarrierId(1)), Output::Event(Event::Up(WIFI, PacketSize::Normal))];
    assert_eq!(simulation.take(), replaced);
    simulation.lose(1, false, false);
    assert_eq!(simulation.take(), [], "that one was replaced");
}

#[test]
fn suspect_then_dead_then_dialled_again() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.connect(WIFI, 1).input(suspect(CarrierId(1))).until(300);
    simulation.take();
    simulation.lose(1, false, true);
    let down = Output::Event(Event::Down(WIFI, Loss::Ended("ended")));
    assert_eq!(simulation.take(), [down, dial(WIFI, TCP)]);
    assert_eq!(simulation.dialer.state(WIFI), PathState::Down);
}

#[test]
fn a_suspect_carrier_is_kept_while_its_successor_fails() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.connect(WIFI, 1).input(suspect(CarrierId(1))).until(800);
    simulation.fail(WIFI, FailureCause::NoAnswer).until(900);
    simulation.take();
    simulation.input(Input::Recovered(CarrierId(1))).until(60_000);
    assert_eq!(simulation.take(), [], "it needs none any more");
    simulation.input(suspect(CarrierId(1))).until(60_800);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
}

#[test]
fn a_link_that_is_down_is_told_to_the_gateway_and_dialled_when_it_works() {
    let mut simulation = Simulation::only(TCP, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2);
    simulation.take();
    simulation.input(Input::LinkDown(WIFI));
    let down = Output::Event(Event::Down(WIFI, Loss::LinkDown));
    let said = [Output::Detach(CarrierId(1)), Output::AnnounceLinkDown(WIFI), down];
    assert_eq!(simulation.take(), said);
    simulation.until(60_000).input(Input::LinkDown(WIFI));
    assert_eq!(simulation.take(), []);
    simulation.input(Input::PathChanged(WIFI)).input(Input::PathChanged(LTE));
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
}

#[test]
fn news_during_an_attempt_counts_when_it_fails() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.take();
    simulation.input(Input::PathChanged(WIFI));
    assert_eq!(simulation.take(), []);
    simulation.fail(WIFI, FailureCause::Broken);
    assert_eq!(simulation.take(), [failed(WIFI, FailureCause::Broken), dial(WIFI, TCP)]);
    simulation.fail(WIFI, FailureCause::Broken);
    assert_eq!(simulation.take(), [], "once");
}

#[test]
fn an_idle_path_sleeps_until_there_is_something_to_send() {
    let mut simulation = Simulation::only(QUIC, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2);
    simulation.take();
    simulation.lose(1, true, false).lose(2, true, false).until(20_000);
    assert_eq!(simulation.take(), []);
    assert_eq!(simulation.dialer.state(WIFI), PathState::Asleep);
    assert!(simulation.dialer.is_connected() && simulation.dialer.heeds_demand());
    simulation.input(Input::PathChanged(WIFI));
    assert_eq!(simulation.take(), [], "that is no reason to wake");
    simulation.input(Input::Demand { in_use: false });
    assert_eq!(simulation.take(), [dial(WIFI, QUIC), dial(LTE, QUIC)]);
    assert!(simulation.dialer.resumes(), "the gateway still knows the session");
}

#[test]
fn one_that_an_application_uses_does_not_sleep() {
    let mut simulation = Simulation::only(QUIC, 1);
    simulation.connect(WIFI, 1);
    simulation.take();
    simulation.lose(1, true, true);
    let down = Output::Event(Event::Down(WIFI, Loss::Ended("ended")));
    assert_eq!(simulation.take(), [down, dial(WIFI, QUIC)]);
}

#[test]
fn a_client_that_slept_for_long_begins_another_session() {
    let mut simulation = Simulation::only(QUIC, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2).lose(1, true, false).until(29_000);
    simulation.lose(2, true, false).until(59_000).take();
    simulation.input(Input::Demand { in_use: false });
    assert_eq!(simulation.take(), [dial(WIFI, QUIC), dial(LTE, QUIC)], "thirty seconds at most");
    simulation.connect(WIFI, 3).connect(LTE, 4).lose(3, true, false).lose(4, true, false);
    simulation.until(100_000).take();
    simulation.input(Input::Demand { in_use: false });
    assert_eq!(simulation.take(), [Output::RenewSession, dial(WIFI, QUIC), dial(LTE, QUIC)]);
    assert!(!simulation.dialer.resumes());
}

#[test]
fn a_gateway_that_restarted_gets_another_session_on_every_path() {
    let mut simulation = Simulation::only(TCP, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2).lose(1, false, true).lose(2, false, true);
    simulation.take();
    simulation.fail(WIFI, FailureCause::UnknownSession);
    let renewed = Output::Event(Event::Renewed);
    let said = [Output::RenewSession, Output::Abandon(LTE), renewed, dial(LTE, TCP)];
    assert_eq!(simulation.take(), said);
    simulation.until(50);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
    // A path that refuses repeatedly is dialled with a backoff.
    simulation.fail(WIFI, FailureCause::UnknownSession).until(99);
    assert_eq!(simulation.take(), []);
    simulation.until(100);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
}

#[test]
fn a_session_that_the_gateway_ends_begins_again() {
    let mut simulation = Simulation::only(TCP, 2);
    simulation.connect(WIFI, 1).connect(LTE, 2).input(suspect(CarrierId(2)));
    simulation.take();
    simulation.input(Input::SessionEnded);
    let renewed = [Output::RenewSession, Output::Event(Event::Renewed)];
    assert_eq!(simulation.take(), [&renewed[..], &[dial(WIFI, TCP), dial(LTE, TCP)]].concat());
    simulation.input(Input::SessionEnded);
    assert_eq!(simulation.take(), [], "that one never began");
}

#[test]
fn the_name_is_looked_up_when_no_path_finds_the_gateway() {
    let mut simulation = Simulation::new(
        Config {
            transport: TransportChoice::Only(TCP),
            has_name: true,
            first_backoff: Span::from_secs(60),
            ..Config::default()
        },
        2,
    );
    simulation.connect(WIFI, 1);
    simulation.take();
    simulation.fail(LTE, FailureCause::Broken);
    assert_eq!(simulation.take(), [failed(LTE, FailureCause::Broken)], "another path finds it");
    simulation.lose(1, false, false).take();
    simulation.fail(WIFI, FailureCause::Broken);
    assert_eq!(simulation.take(), [failed(WIFI, FailureCause::Broken), Output::LookUp]);
    simulation.input(Input::Resolved(vec![address(1)])).input(Input::PathChanged(WIFI));
    simulation.fail(WIFI, FailureCause::Broken).until(4_999);
    assert_eq!(simulation.take(), [dial(WIFI, TCP)]);
    simulation.until(5_000);
    assert_eq!(simulation.take(), [Output::LookUp], "five seconds later");
    simulation.input(Input::Resolved(Vec::new()));
    assert_eq!(simulation.take(), []);
    simulation
        .until(6_000)
        .input(Input::PathChanged(WIFI))
        .fail(WIFI, FailureCause::Broken)
        .until(10_000);
    simulation.take();
    let others = vec![address(2), address(1)];
    simulation.input(Input::Resolved(others.clone()));
    let moved = Output::Event(Event::Moved(others.clone()));
    assert_eq!(simulation.take(), [moved, dial(WIFI, TCP), dial(LTE, TCP)]);
    assert_eq!(simulation.dialer.gateway(), others);
}

#[test]
fn a_connection_that_was_given_up_is_not_used() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.until(10_000).take();
    simulation.input(Input::Connected(WIFI, CarrierId(9)));
    assert_eq!(simulation.take(), [Output::Detach(CarrierId(9))]);
}

/// Events of a client, in any order.
#[derive(Clone, Copy, Debug)]
enum RandomEvent {
    Fail(usize, FailureCause),
    Secure(usize),
    Connect(usize),
    Lose(usize, CarrierEnd, bool),
    Suspect(usize, bool),
    PathChanged(usize),
    LinkDown(usize),
    SessionEnded,
    Demand(bool),
    Resolved(u8),
    Nothing,
}

fn random_event() -> impl Strategy<Value = RandomEvent> {
    let path = || 0_usize..3;
    let why = prop_oneof![
        Just(FailureCause::Broken),
        Just(FailureCause::Refused),
        Just(FailureCause::NoAnswer),
        Just(FailureCause::WrongKey),
        Just(FailureCause::UnknownSession)
    ];
    let end = proptest::sample::select(vec![
        CarrierEnd::Idle,
        CarrierEnd::Closed,
        CarrierEnd::Broken,
        CarrierEnd::Forged,
    ]);
    prop_oneof![
        3 => (path(), why).prop_map(|(path, cause)| RandomEvent::Fail(path, cause)),
        2 => path().prop_map(RandomEvent::Secure),
        4 => path().prop_map(RandomEvent::Connect),
        2 => (path(), end, any::<bool>())
            .prop_map(|(path, end, used)| RandomEvent::Lose(path, end, used)),
        2 => (path(), any::<bool>()).prop_map(|(path, is)| RandomEvent::Suspect(path, is)),
        1 => path().prop_map(RandomEvent::PathChanged),
        1 => path().prop_map(RandomEvent::LinkDown),
        1 => Just(RandomEvent::SessionEnded),
        2 => any::<bool>().prop_map(RandomEvent::Demand),
        1 => (0_u8..3).prop_map(RandomEvent::Resolved),
        2 => Just(RandomEvent::Nothing),
    ]
}

/// State of a path in the shell.
#[derive(Default)]
struct ShellPath {
    /// The running attempt, and whether its peers are authenticated.
    attempt: Option<bool>,
    carrier: Option<CarrierId>,
    /// Whether the interface is down until it changes.
    waits_for_link: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// After any events: a path has at most one attempt, each attempt ends in time, a wakeup is in
    /// the future, and a path without carrier is dialled, asleep, or waits for its interface.
    #[test]
    fn a_path_has_one_attempt_at_most_and_is_never_forgotten(
        transport in prop_oneof![
            Just(TransportChoice::TcpThenQuic),
            Just(TransportChoice::Only(CarrierTransport::Tcp)),
            Just(TransportChoice::Only(CarrierTransport::Quic)),
        ],
        events in prop::collection::vec((0_u64..4_000, random_event()), 1..120),
    ) {
        let config = Config { transport, has_name: true, ..Config::default() };
        let mut dialer: Dialer<FailureCause, &str> = Dialer::new(config, vec![address(1)]);
        let mut seen: Vec<ShellPath> = (0..3).map(|_| ShellPath::default()).collect();
        let mut begun: BTreeMap<usize, Time> = BTreeMap::new();
        for at in 0..seen.len() {
            prop_assert_eq!(dialer.add_path(), PathId(at as u8));
        }
        let (mut now, mut next_carrier, mut looks_up) = (Time::ZERO, 0, false);
        let mut events = events.into_iter();
        loop {
            let mut outputs = 0;
            while let Some(output) = dialer.poll(now) {
                outputs += 1;
                prop_assert!(outputs < 100, "it does not come to an end");
                match output {
                    Output::Dial { path, transport: over, .. } => {
                        let path = usize::from(path.0);
                        prop_assert!(seen[path].attempt.is_none(), "two attempts at once");
                        seen[path].attempt = Some(false);
                        seen[path].waits_for_link = false;
                        if over == CarrierTransport::Tcp || transport != TransportChoice::TcpThenQuic {
                            begun.insert(path, now);
                        }
                    }
                    Output::Abandon(path) => {
                        let path = usize::from(path.0);
                        prop_assert!(seen[path].attempt.take().is_some(), "there is none");
                    }
                    Output::Detach(carrier) => {
                        for path in &mut seen {
                            path.carrier = path.carrier.filter(|own| *own != carrier);
                        }
                    }
                    Output::RenewSession => {
                        seen.iter_mut().for_each(|path| path.carrier = None);
                        prop_assert!(!dialer.resumes());
                    }
                    Output::LookUp => {
                        prop_assert!(!looks_up, "two look-ups at once");
                        looks_up = true;
                    }
                    Output::AnnounceLinkDown(path) => {
                        let path = &mut seen[usize::from(path.0)];
                        path.waits_for_link = path.attempt.is_none();
                    }
                    Output::Event(_) => {}
                }
            }
            let wakeup = dialer.next_wakeup();
            prop_assert!(wakeup.is_none_or(|wakeup| wakeup > now), "a busy loop");
            for (at, path) in seen.iter().enumerate() {
                if path.attempt.is_some() {
                    let late = wakeup.is_some_and(|wakeup| {
                        wakeup <= begun[&at] + config.attempt_timeout
                    });
                    prop_assert!(late, "the attempt on {at} may last for ever");
                }
                let is_idle = path.carrier.is_none() && path.attempt.is_none();
                let state = dialer.state(PathId(at as u8));
                prop_assert_eq!(path.carrier.is_some(), matches!(
                    state, PathState::Up | PathState::Suspect
                ));
                if is_idle && state == PathState::Down && !path.waits_for_link {
                    prop_assert!(wakeup.is_some(), "path {at} is forgotten");
                }
            }
            let event = events.next().map(|(pause, event)| (now + Span::from_millis(pause), event));
            let (then, event) = match (event, wakeup) {
                (Some((then, _)), Some(wakeup)) if wakeup < then => (wakeup, RandomEvent::Nothing),
                (Some(event), _) => event,
                // At most one more round; otherwise the loop is endless.
                (None, _) => break,
            };
            now = then;
            let path = |at: usize| PathId(at as u8);
            match event {
                // Only the gateway can report this, in the handshake.
                RandomEvent::Fail(at, FailureCause::UnknownSession) if seen[at].attempt != Some(true) => {}
                RandomEvent::Fail(at, why) if seen[at].attempt.is_some() => {
                    seen[at].attempt = None;
                    dialer.handle(now, Input::Failed(path(at), why));
                }
                RandomEvent::Secure(at) if seen[at].attempt.is_some() => {
                    seen[at].attempt = Some(true);
                    dialer.handle(now, Input::Secured(path(at)));
                }
                RandomEvent::Connect(at) if seen[at].attempt == Some(true) => {
                    seen[at].attempt = None;
                    next_carrier += 1;
                    // The old carrier is detached by its own output.
                    seen[at].carrier = Some(CarrierId(next_carrier));
                    dialer.handle(now, Input::Connected(path(at), CarrierId(next_carrier)));
                }
                RandomEvent::Lose(at, end, in_use) => {
                    if let Some(carrier) = seen[at].carrier.take() {
                        dialer.handle(now, Input::Lost { carrier, reason: "ended", end, in_use });
                    }
                }
                RandomEvent::Suspect(at, is) => {
                    if let Some(carrier) = seen[at].carrier {
                        dialer.handle(now, match is {
                            true => suspect(carrier),
                            false => Input::Recovered(carrier),
                        });
                    }
                }
                RandomEvent::PathChanged(at) => dialer.handle(now, Input::PathChanged(path(at))),
                RandomEvent::LinkDown(at) => dialer.handle(now, Input::LinkDown(path(at))),
                RandomEvent::SessionEnded => dialer.handle(now, Input::SessionEnded),
                RandomEvent::Demand(in_use) => dialer.handle(now, Input::Demand { in_use }),
                RandomEvent::Resolved(last) if looks_up => {
                    looks_up = false;
                    let found = (0..last).map(|_| address(last)).collect();
                    dialer.handle(now, Input::Resolved(found));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_lender_is_dialled_often_over_tcp_while_the_session_is_known() {
    let mut simulation = Simulation::new(Config::default(), 1);
    let phone = simulation.dialer.add_lender();
    simulation.until(1_000);
    assert_eq!(simulation.dials(phone), []);
    simulation.connect(WIFI, 1);
    // The address does not answer, or there is no host.
    for cause in [FailureCause::NoAnswer, FailureCause::Refused, FailureCause::NoAnswer] {
        simulation.fail(phone, cause);
        let now = simulation.now.as_nanos() / 1_000_000;
        simulation.until(now + 400);
    }
    let expected = [1_000, 1_400, 1_800, 2_200].map(|time| (time, TCP));
    assert_eq!(simulation.dials(phone), expected);
    // It does not answer at all.
    simulation.until(5_600);
    assert_eq!(simulation.dials(phone).last(), Some(&(5_600, TCP)));
    simulation.connect(phone, 2).take();
    assert_eq!(simulation.dialer.state(phone), PathState::Up);
    simulation.lose_by(2, CarrierEnd::Closed, true);
    assert_eq!(simulation.dials(phone), [(5_600, TCP)]);
    // It does not lend to this client: there is no hurry.
    simulation.take();
    for _ in 0..3 {
        simulation.fail(phone, FailureCause::WrongKey);
        let now = simulation.now.as_nanos() / 1_000_000;
        simulation.until(now + 1_000);
    }
    let times: Vec<u64> = simulation.dials(phone).into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [5_800, 7_000, 8_400]);
}

#[test]
fn a_lender_whose_network_is_silent_is_dialled_less_and_less() {
    let config = Config::default();
    let mut simulation = Simulation::new(config, 1);
    let phone = simulation.dialer.add_lender();
    simulation.connect(WIFI, 1).take();
    let mut pauses = Vec::new();
    let mut last = simulation.now;
    for _ in 0..4 {
        // It answers, and the gateway has given a ticket; then nothing comes.
        let ended = last + config.lender_timeout;
        simulation.input(Input::Secured(phone)).until(ended.as_nanos() / 1_000_000).take();
        simulation.poll();
        let mut millis = ended.as_nanos() / 1_000_000;
        while simulation.dials(phone).is_empty() {
            millis += 10;
            simulation.until(millis);
        }
        let (at, _) = simulation.dials(phone)[0];
        pauses.push(at - ended.as_nanos() / 1_000_000);
        last = Time::from_millis(at);
    }
    let doubles = pauses.windows(2).all(|pair| pair[1] >= pair[0] * 3 / 2);
    assert!(doubles && pauses[3] >= 4 * config.lender_pause.as_nanos() / 1_000_000, "{pauses:?}");
}

#[test]
fn a_forgotten_lender_is_not_dialled_until_it_is_paired_again() {
    let mut simulation = Simulation::only(TCP, 1);
    let phone = simulation.dialer.add_lender();
    simulation.connect(WIFI, 1).connect(phone, 2).take();
    simulation.input(Input::Forget(phone));
    assert!(simulation.take().contains(&Output::Detach(CarrierId(2))));
    simulation.until(10_000);
    assert_eq!(simulation.dials(phone), []);
    simulation.input(Input::PathChanged(phone));
    assert_eq!(simulation.dials(phone).len(), 1);
    // While it is dialled, and while it is away.
    simulation.input(Input::Forget(phone));
    assert!(simulation.take().contains(&Output::Abandon(phone)));
    simulation.input(Input::PathChanged(phone)).fail(phone, FailureCause::NoAnswer);
    simulation.input(Input::Forget(phone)).take();
    simulation.until(20_000);
    assert_eq!(simulation.dials(phone), []);
}

#[test]
fn a_lender_that_is_away_does_not_keep_a_lost_session() {
    let mut simulation = Simulation::only(TCP, 1);
    simulation.connect(WIFI, 1);
    let phone = simulation.dialer.add_lender();
    simulation.poll();
    simulation.fail(phone, FailureCause::NoAnswer);
    simulation.lose_by(1, CarrierEnd::Closed, true).take();
    simulation.fail(WIFI, FailureCause::Refused);
    assert!(simulation.take().contains(&Output::Event(Event::GatewayGone)));
}

#[test]
fn a_session_that_begins_again_asks_its_lenders_again() {
    let mut simulation = Simulation::only(TCP, 1);
    let phone = simulation.dialer.add_lender();
    simulation.connect(WIFI, 1).connect(phone, 2).take();
    simulation.input(Input::SessionEnded);
    assert_eq!(simulation.dials(phone), []);
    simulation.connect(WIFI, 3);
    assert_eq!(simulation.dials(phone).len(), 1);
}

fn forged(path: PathId, seconds: u64) -> TestOutput {
    Output::Event(Event::Down(path, Loss::Forged("ended", Span::from_secs(seconds))))
}

#[test]
fn a_lender_that_changes_messages_is_not_used_for_longer_each_time() {
    let mut simulation = Simulation::only(TCP, 1);
    let phone = simulation.dialer.add_lender();
    simulation.connect(WIFI, 1);
    for (pause, carrier) in [(30, 2), (60, 3), (120, 4), (240, 5), (300, 6), (300, 7)] {
        simulation.connect(phone, carrier).take();
        simulation.lose_by(carrier, CarrierEnd::Forged, true);
        assert_eq!(simulation.take(), [forged(phone, pause)]);
        // Neither data to send, nor a session that begins again, nor another address shortens it.
        let began = simulation.now.as_nanos() / 1_000_000;
        simulation.until(began + 10_000).input(Input::Demand { in_use: true });
        simulation.input(Input::Resolved(vec![address(carrier as u8)]));
        simulation.input(Input::SessionEnded).connect(WIFI, carrier + 10);
        simulation.until(began + pause * 1_000 - 1);
        assert_eq!(simulation.dials(phone), []);
        simulation.until(began + pause * 1_000);
        assert_eq!(simulation.dials(phone), [(began + pause * 1_000, TCP)]);
    }
    // It is paired again: its user has looked after it.
    simulation.connect(phone, 8).input(Input::Forget(phone)).input(Input::PathChanged(phone));
    simulation.connect(phone, 9).take();
    simulation.lose_by(9, CarrierEnd::Forged, true);
    assert_eq!(simulation.take(), [forged(phone, 30)]);
    simulation.input(Input::Forget(phone)).input(Input::PathChanged(phone));
    assert_eq!(simulation.dials(phone).len(), 1, "at once");
}

#[test]
fn a_gateway_may_notice_first_that_a_lender_changes_messages() {
    let mut simulation = Simulation::only(TCP, 1);
    let phone = simulation.dialer.add_lender();
    simulation.connect(WIFI, 1).connect(phone, 2).take();
    for _ in 0..2 {
        simulation.input(Input::Forged(phone, "ended"));
    }
    assert_eq!(simulation.take(), [Output::Detach(CarrierId(2)), forged(phone, 30)]);
    // The lender has ended the path before the report comes.
    simulation.until(30_000).connect(phone, 3).take();
    simulation.lose_by(3, CarrierEnd::Closed, true);
    assert_eq!(simulation.dials(phone).len(), 1);
    simulation.take();
    simulation.input(Input::Forged(phone, "ended"));
    assert_eq!(simulation.take(), [Output::Abandon(phone), forged(phone, 60)]);
    // It changes the first message.
    simulation.until(90_000).take();
    simulation.fail(phone, FailureCause::Forged);
    assert_eq!(simulation.take(), [failed(phone, FailureCause::Forged)]);
    simulation.until(209_999);
    assert_eq!(simulation.dials(phone), []);
    simulation.until(210_000);
    assert_eq!(simulation.dials(phone), [(210_000, TCP)]);
    // A report about one that is no longer paired, or about another path, has no effect.
    simulation.input(Input::Forget(phone)).take();
    simulation.input(Input::Forged(phone, "ended")).input(Input::Forged(WIFI, "ended"));
    assert_eq!(simulation.take(), []);
    assert_eq!(simulation.dialer.state(WIFI), PathState::Up);
}
