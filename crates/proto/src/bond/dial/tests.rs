use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Reason of a failed attempt in these tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
enum Why {
    Refused,
    NoAnswer,
    WrongKey,
    UnknownSession,
}

impl Reason for Why {
    fn kind(&self) -> FailureKind {
        match self {
            Self::Refused => FailureKind::Transient,
            Self::NoAnswer => FailureKind::Timeout,
            Self::WrongKey => FailureKind::Permanent,
            Self::UnknownSession => FailureKind::UnknownSession,
        }
    }
}

type Said = Output<Why, &'static str>;

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

fn dial(path: PathId, transport: CarrierTransport) -> Said {
    Output::Dial { path, transport }
}

fn failed(path: PathId, why: Why) -> Said {
    Output::Event(Event::Failed(path, Failure::Failed(why)))
}

/// A dialer and the time.
struct World {
    dialer: Dialer<Why, &'static str>,
    now: Time,
    /// Outputs and their times in milliseconds.
    said: Vec<(u64, Said)>,
}

impl World {
    fn new(config: Config, paths: usize) -> Self {
        let mut dialer = Dialer::new(config, vec![address(1)]);
        for _ in 0..paths {
            dialer.add_path();
        }
        let mut world = Self { dialer, now: Time::ZERO, said: Vec::new() };
        world.poll();
        world
    }

    fn only(transport: CarrierTransport, paths: usize) -> Self {
        let transport = TransportChoice::Only(transport);
        Self::new(Config { transport, ..Config::default() }, paths)
    }

    fn poll(&mut self) {
        while let Some(output) = self.dialer.poll(self.now) {
            self.said.push((self.now.as_nanos() / 1_000_000, output));
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

    fn tell(&mut self, input: Input<Why, &'static str>) -> &mut Self {
        self.dialer.handle(self.now, input);
        self.poll();
        self
    }

    fn fail(&mut self, path: PathId, why: Why) -> &mut Self {
        self.tell(Input::Failed(path, why))
    }

    /// The attempt of a path succeeds at once.
    fn connect(&mut self, path: PathId, carrier: u64) -> &mut Self {
        self.tell(Input::Secured(path)).tell(Input::Connected(path, CarrierId(carrier)))
    }

    fn lose(&mut self, carrier: u64, idle: bool, in_use: bool) -> &mut Self {
        self.tell(Input::Lost { carrier: CarrierId(carrier), reason: "ended", idle, in_use })
    }

    /// Events since the last call.
    fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said).into_iter().map(|(_, output)| output).collect()
    }

    /// Times at which a path was dialled, and the transports.
    fn dials(&self, path: PathId) -> Vec<(u64, CarrierTransport)> {
        let dials = self.said.iter().filter_map(|(time, output)| match output {
            Output::Dial { path: dialled, transport } if *dialled == path => {
                Some((*time, *transport))
            }
            _ => None,
        });
        dials.collect()
    }
}

#[test]
fn pauses_double_up_to_the_longest_and_news_ends_them() {
    let mut world = World::only(TCP, 1);
    for _ in 0..10 {
        world.fail(WIFI, Why::Refused);
        let next = world.dialer.next_wakeup().unwrap();
        world.until(next.as_nanos() / 1_000_000);
    }
    let times: Vec<u64> = world.dials(WIFI).into_iter().map(|(time, _)| time).collect();
    let pauses: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
    assert_eq!(world.take().iter().filter(|said| **said == failed(WIFI, Why::Refused)).count(), 1);
    world.fail(WIFI, Why::Refused).tell(Input::PathChanged(WIFI));
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
    let before = world.now.as_nanos() / 1_000_000;
    world.fail(WIFI, Why::NoAnswer).until(before + 200);
    assert_eq!(world.take(), [failed(WIFI, Why::NoAnswer), dial(WIFI, TCP)]);
}

#[test]
fn a_success_begins_the_pauses_and_the_messages_again() {
    let mut world = World::only(TCP, 1);
    world.fail(WIFI, Why::Refused).until(200).fail(WIFI, Why::Refused).until(600);
    world.connect(WIFI, 1).lose(1, false, false);
    world.take();
    world.fail(WIFI, Why::Refused).until(800);
    assert_eq!(world.take(), [failed(WIFI, Why::Refused), dial(WIFI, TCP)]);
}

#[test]
fn quic_follows_where_tcp_has_no_answer() {
    let mut world = World::new(Config::default(), 1);
    world.until(2_999);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
    world.until(3_000);
    assert_eq!(world.take(), [Output::Abandon(WIFI), dial(WIFI, QUIC)]);
    world.connect(WIFI, 7);
    assert_eq!(world.take(), [Output::Event(Event::Up(WIFI))]);
    assert!(world.dialer.is_connected() && world.dialer.resumes());
    assert_eq!(world.dialer.next_wakeup(), None);
}

#[test]
fn what_tcp_failed_for_is_told_where_quic_has_no_answer_either() {
    let mut world = World::new(Config::default(), 1);
    world.fail(WIFI, Why::Refused);
    assert_eq!(world.take(), [dial(WIFI, TCP), dial(WIFI, QUIC)]);
    world.until(6_000);
    assert_eq!(world.take(), [Output::Abandon(WIFI), failed(WIFI, Why::Refused)]);
    world.until(6_200).fail(WIFI, Why::Refused).fail(WIFI, Why::WrongKey);
    let all = [dial(WIFI, TCP), dial(WIFI, QUIC), failed(WIFI, Why::WrongKey)];
    assert_eq!(world.take(), all, "unless QUIC tells what is wrong for good");
}

#[test]
fn where_tcp_got_through_it_may_be_refused_four_times_before_quic_is_tried() {
    let mut world = World::new(Config::default(), 1);
    world.connect(WIFI, 1).lose(1, false, false);
    world.take();
    for _ in 0..5 {
        world.fail(WIFI, Why::Refused);
        let next = world.dialer.next_wakeup().unwrap();
        world.until(next.as_nanos() / 1_000_000);
    }
    let transports: Vec<CarrierTransport> =
        world.dials(WIFI).into_iter().map(|(_, over)| over).collect();
    assert_eq!(transports, [TCP, TCP, TCP, TCP, QUIC], "{:?}", world.said);
}

#[test]
fn a_timeout_of_tcp_that_got_through_before_is_followed_by_quic_at_once() {
    let mut world = World::new(Config::default(), 1);
    world.connect(WIFI, 1).lose(1, false, false);
    world.take();
    world.fail(WIFI, Why::NoAnswer);
    assert_eq!(world.take(), [dial(WIFI, QUIC)]);
}

#[test]
fn a_failure_for_good_and_one_behind_the_connection_do_not_lead_to_quic() {
    let mut world = World::new(Config::default(), 1);
    world.fail(WIFI, Why::WrongKey);
    assert_eq!(world.take(), [dial(WIFI, TCP), failed(WIFI, Why::WrongKey)]);
    world.until(200).tell(Input::Secured(WIFI)).fail(WIFI, Why::Refused);
    assert_eq!(world.take(), [dial(WIFI, TCP), failed(WIFI, Why::Refused)]);
}

#[test]
fn an_attempt_ends_in_time_whatever_stage_it_is_in() {
    let mut world = World::new(Config::default(), 1);
    world.until(2_000).tell(Input::Secured(WIFI)).until(9_999);
    world.take();
    world.until(10_000);
    let late = Output::Event(Event::Failed(WIFI, Failure::TimedOut(Span::from_secs(10))));
    assert_eq!(world.take(), [Output::Abandon(WIFI), late]);
    let mut world = World::only(QUIC, 1);
    world.until(10_000);
    assert_eq!(world.take().len(), 3);
}

#[test]
fn a_suspect_carrier_gets_a_successor_unless_it_recovers() {
    let mut world = World::only(TCP, 1);
    world.connect(WIFI, 1);
    world.take();
    world.tell(Input::Suspect(CarrierId(1)));
    assert_eq!(world.dialer.state(WIFI), PathState::Suspect);
    assert!(!world.dialer.is_connected());
    world.until(700).tell(Input::Recovered(CarrierId(1))).until(60_000);
    assert_eq!(world.take(), []);
    assert_eq!(world.dialer.state(WIFI), PathState::Up);
    world.tell(Input::Suspect(CarrierId(1))).until(60_799);
    assert_eq!(world.take(), []);
    world.until(60_800);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
    world.connect(WIFI, 2);
    let replaced = [Output::Detach(CarrierId(1)), Output::Event(Event::Up(WIFI))];
    assert_eq!(world.take(), replaced);
    world.lose(1, false, false);
    assert_eq!(world.take(), [], "that one was replaced");
}

#[test]
fn suspect_then_dead_then_dialled_again() {
    let mut world = World::only(TCP, 1);
    world.connect(WIFI, 1).tell(Input::Suspect(CarrierId(1))).until(300);
    world.take();
    world.lose(1, false, true);
    let down = Output::Event(Event::Down(WIFI, Loss::Ended("ended")));
    assert_eq!(world.take(), [down, dial(WIFI, TCP)]);
    assert_eq!(world.dialer.state(WIFI), PathState::Down);
}

#[test]
fn a_suspect_carrier_is_kept_while_its_successor_fails() {
    let mut world = World::only(TCP, 1);
    world.connect(WIFI, 1).tell(Input::Suspect(CarrierId(1))).until(800);
    world.fail(WIFI, Why::NoAnswer).until(900);
    world.take();
    world.tell(Input::Recovered(CarrierId(1))).until(60_000);
    assert_eq!(world.take(), [], "it needs none any more");
    world.tell(Input::Suspect(CarrierId(1))).until(60_800);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
}

#[test]
fn a_link_that_is_down_is_told_to_the_gateway_and_dialled_when_it_works() {
    let mut world = World::only(TCP, 2);
    world.connect(WIFI, 1).connect(LTE, 2);
    world.take();
    world.tell(Input::LinkDown(WIFI));
    let down = Output::Event(Event::Down(WIFI, Loss::LinkDown));
    let said = [Output::Detach(CarrierId(1)), Output::AnnounceLinkDown(WIFI), down];
    assert_eq!(world.take(), said);
    world.until(60_000).tell(Input::LinkDown(WIFI));
    assert_eq!(world.take(), []);
    world.tell(Input::PathChanged(WIFI)).tell(Input::PathChanged(LTE));
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
}

#[test]
fn news_during_an_attempt_counts_when_it_fails() {
    let mut world = World::only(TCP, 1);
    world.take();
    world.tell(Input::PathChanged(WIFI));
    assert_eq!(world.take(), []);
    world.fail(WIFI, Why::Refused);
    assert_eq!(world.take(), [failed(WIFI, Why::Refused), dial(WIFI, TCP)]);
    world.fail(WIFI, Why::Refused);
    assert_eq!(world.take(), [], "once");
}

#[test]
fn an_idle_path_sleeps_until_there_is_something_to_send() {
    let mut world = World::only(QUIC, 2);
    world.connect(WIFI, 1).connect(LTE, 2);
    world.take();
    world.lose(1, true, false).lose(2, true, false).until(20_000);
    assert_eq!(world.take(), []);
    assert_eq!(world.dialer.state(WIFI), PathState::Asleep);
    assert!(world.dialer.is_connected() && world.dialer.is_asleep());
    world.tell(Input::PathChanged(WIFI));
    assert_eq!(world.take(), [], "that is no reason to wake");
    world.tell(Input::Demand { in_use: false });
    assert_eq!(world.take(), [dial(WIFI, QUIC), dial(LTE, QUIC)]);
    assert!(world.dialer.resumes(), "the gateway still knows the session");
}

#[test]
fn one_that_an_application_uses_does_not_sleep() {
    let mut world = World::only(QUIC, 1);
    world.connect(WIFI, 1);
    world.take();
    world.lose(1, true, true);
    let down = Output::Event(Event::Down(WIFI, Loss::Ended("ended")));
    assert_eq!(world.take(), [down, dial(WIFI, QUIC)]);
}

#[test]
fn a_client_that_slept_for_long_begins_another_session() {
    let mut world = World::only(QUIC, 2);
    world.connect(WIFI, 1).connect(LTE, 2).lose(1, true, false).until(29_000);
    world.lose(2, true, false).until(59_000).take();
    world.tell(Input::Demand { in_use: false });
    assert_eq!(world.take(), [dial(WIFI, QUIC), dial(LTE, QUIC)], "thirty seconds at most");
    world.connect(WIFI, 3).connect(LTE, 4).lose(3, true, false).lose(4, true, false);
    world.until(100_000).take();
    world.tell(Input::Demand { in_use: false });
    assert_eq!(world.take(), [Output::RenewSession, dial(WIFI, QUIC), dial(LTE, QUIC)]);
    assert!(!world.dialer.resumes());
}

#[test]
fn a_gateway_that_restarted_gets_another_session_on_every_path() {
    let mut world = World::only(TCP, 2);
    world.connect(WIFI, 1).connect(LTE, 2).lose(1, false, true).lose(2, false, true);
    world.take();
    world.fail(WIFI, Why::UnknownSession);
    let renewed = Output::Event(Event::Renewed);
    let said = [Output::RenewSession, Output::Abandon(LTE), renewed, dial(LTE, TCP)];
    assert_eq!(world.take(), said);
    world.until(50);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
    // A path that refuses repeatedly is dialled with a backoff.
    world.fail(WIFI, Why::UnknownSession).until(99);
    assert_eq!(world.take(), []);
    world.until(100);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
}

#[test]
fn a_session_that_the_gateway_ends_begins_again() {
    let mut world = World::only(TCP, 2);
    world.connect(WIFI, 1).connect(LTE, 2).tell(Input::Suspect(CarrierId(2)));
    world.take();
    world.tell(Input::SessionEnded);
    let renewed = [Output::RenewSession, Output::Event(Event::Renewed)];
    assert_eq!(world.take(), [&renewed[..], &[dial(WIFI, TCP), dial(LTE, TCP)]].concat());
    world.tell(Input::SessionEnded);
    assert_eq!(world.take(), [], "that one never began");
}

#[test]
fn the_name_is_looked_up_when_no_path_finds_the_gateway() {
    let mut world = World::new(
        Config {
            transport: TransportChoice::Only(TCP),
            has_name: true,
            first_backoff: Span::from_secs(60),
            ..Config::default()
        },
        2,
    );
    world.connect(WIFI, 1);
    world.take();
    world.fail(LTE, Why::Refused);
    assert_eq!(world.take(), [failed(LTE, Why::Refused)], "another path finds it");
    world.lose(1, false, false).take();
    world.fail(WIFI, Why::Refused);
    assert_eq!(world.take(), [failed(WIFI, Why::Refused), Output::LookUp]);
    world.tell(Input::Resolved(vec![address(1)])).tell(Input::PathChanged(WIFI));
    world.fail(WIFI, Why::Refused).until(4_999);
    assert_eq!(world.take(), [dial(WIFI, TCP)]);
    world.until(5_000);
    assert_eq!(world.take(), [Output::LookUp], "five seconds later");
    world.tell(Input::Resolved(Vec::new()));
    assert_eq!(world.take(), []);
    world.until(6_000).tell(Input::PathChanged(WIFI)).fail(WIFI, Why::Refused).until(10_000);
    world.take();
    let others = vec![address(2), address(1)];
    world.tell(Input::Resolved(others.clone()));
    let moved = Output::Event(Event::Moved(others.clone()));
    assert_eq!(world.take(), [moved, dial(WIFI, TCP), dial(LTE, TCP)]);
    assert_eq!(world.dialer.gateway(), others);
}

#[test]
fn a_connection_that_was_given_up_is_not_used() {
    let mut world = World::only(TCP, 1);
    world.until(10_000).take();
    world.tell(Input::Connected(WIFI, CarrierId(9)));
    assert_eq!(world.take(), [Output::Detach(CarrierId(9))]);
}

/// Events of a client, in any order.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Fail(usize, Why),
    Secure(usize),
    Connect(usize),
    Lose(usize, bool, bool),
    Suspect(usize, bool),
    PathChanged(usize),
    LinkDown(usize),
    SessionEnded,
    Demand(bool),
    Resolved(u8),
    Nothing,
}

fn happens() -> impl Strategy<Value = Happens> {
    let path = || 0_usize..3;
    let why = prop_oneof![
        Just(Why::Refused),
        Just(Why::NoAnswer),
        Just(Why::WrongKey),
        Just(Why::UnknownSession)
    ];
    prop_oneof![
        3 => (path(), why).prop_map(|(path, why)| Happens::Fail(path, why)),
        2 => path().prop_map(Happens::Secure),
        4 => path().prop_map(Happens::Connect),
        2 => (path(), any::<bool>(), any::<bool>())
            .prop_map(|(path, idle, used)| Happens::Lose(path, idle, used)),
        2 => (path(), any::<bool>()).prop_map(|(path, is)| Happens::Suspect(path, is)),
        1 => path().prop_map(Happens::PathChanged),
        1 => path().prop_map(Happens::LinkDown),
        1 => Just(Happens::SessionEnded),
        2 => any::<bool>().prop_map(Happens::Demand),
        1 => (0_u8..3).prop_map(Happens::Resolved),
        2 => Just(Happens::Nothing),
    ]
}

/// State of a path in the shell.
#[derive(Default)]
struct Seen {
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
        events in prop::collection::vec((0_u64..4_000, happens()), 1..120),
    ) {
        let config = Config { transport, has_name: true, ..Config::default() };
        let mut dialer: Dialer<Why, &str> = Dialer::new(config, vec![address(1)]);
        let mut seen: Vec<Seen> = (0..3).map(|_| Seen::default()).collect();
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
                    Output::Dial { path, transport: over } => {
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
                (Some((then, _)), Some(wakeup)) if wakeup < then => (wakeup, Happens::Nothing),
                (Some(event), _) => event,
                // At most one more round; otherwise the loop is endless.
                (None, _) => break,
            };
            now = then;
            let path = |at: usize| PathId(at as u8);
            match event {
                // Only the gateway can report this, in the handshake.
                Happens::Fail(at, Why::UnknownSession) if seen[at].attempt != Some(true) => {}
                Happens::Fail(at, why) if seen[at].attempt.is_some() => {
                    seen[at].attempt = None;
                    dialer.handle(now, Input::Failed(path(at), why));
                }
                Happens::Secure(at) if seen[at].attempt.is_some() => {
                    seen[at].attempt = Some(true);
                    dialer.handle(now, Input::Secured(path(at)));
                }
                Happens::Connect(at) if seen[at].attempt == Some(true) => {
                    seen[at].attempt = None;
                    next_carrier += 1;
                    // The old carrier is detached by its own output.
                    seen[at].carrier = Some(CarrierId(next_carrier));
                    dialer.handle(now, Input::Connected(path(at), CarrierId(next_carrier)));
                }
                Happens::Lose(at, idle, in_use) => {
                    if let Some(carrier) = seen[at].carrier.take() {
                        dialer.handle(now, Input::Lost { carrier, reason: "ended", idle, in_use });
                    }
                }
                Happens::Suspect(at, is) => {
                    if let Some(carrier) = seen[at].carrier {
                        dialer.handle(now, match is {
                            true => Input::Suspect(carrier),
                            false => Input::Recovered(carrier),
                        });
                    }
                }
                Happens::PathChanged(at) => dialer.handle(now, Input::PathChanged(path(at))),
                Happens::LinkDown(at) => dialer.handle(now, Input::LinkDown(path(at))),
                Happens::SessionEnded => dialer.handle(now, Input::SessionEnded),
                Happens::Demand(in_use) => dialer.handle(now, Input::Demand { in_use }),
                Happens::Resolved(last) if looks_up => {
                    looks_up = false;
                    let found = (0..last).map(|_| address(last)).collect();
                    dialer.handle(now, Input::Resolved(found));
                }
                _ => {}
            }
        }
    }
}
