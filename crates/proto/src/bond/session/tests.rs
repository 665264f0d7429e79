use proptest::prelude::*;

use super::*;

type Id = SessionId<u8>;

fn at(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

fn id(key: u8, number: u8) -> Id {
    SessionId { key, number: [number; 16] }
}

fn limits(sessions: u32) -> ClientLimits {
    ClientLimits { sessions, ..ClientLimits::default() }
}

struct Simulation {
    sessions: Sessions<u8>,
    now: u64,
}

impl Simulation {
    fn new() -> Self {
        let mut sessions = Sessions::new(at(0), Config::default());
        assert_eq!(sessions.poll(at(0)), Some(Output::Review));
        Self { sessions, now: 0 }
    }

    fn admit(&mut self, id: Id, resumes: bool, max: u32) -> Admission {
        self.sessions.admit(at(self.now), id, resumes, limits(max))
    }

    /// A session with a carrier.
    fn live(&mut self, id: Id) {
        assert_eq!(self.admit(id, false, 4), Admission::Begin);
        self.handle(Input::Attached(id));
    }

    fn handle(&mut self, input: Input<u8>) {
        self.sessions.handle(at(self.now), input);
    }

    /// Actions except reviews, in which all keys except `removed` are authorized.
    fn until(&mut self, secs: u64, removed: &[u8]) -> Vec<(u64, Output<u8>)> {
        let mut outputs = Vec::new();
        loop {
            while let Some(output) = self.sessions.poll(at(self.now)) {
                match output {
                    Output::Review => self
                        .sessions
                        .review(at(self.now), |key| (!removed.contains(key)).then(|| limits(4))),
                    output => outputs.push((self.now, output)),
                }
            }
            let wakeup = self.sessions.next_wakeup();
            assert!(wakeup > at(self.now));
            if wakeup > at(secs) {
                self.now = secs;
                return outputs;
            }
            self.now = wakeup.as_nanos() / 1_000_000_000;
        }
    }
}

#[test]
fn carriers_join_their_session_and_an_unknown_one_is_refused() {
    let mut simulation = Simulation::new();
    assert_eq!(simulation.admit(id(1, 1), false, 4), Admission::Begin);
    assert_eq!(simulation.admit(id(1, 1), false, 4), Admission::Resume, "its second path");
    assert_eq!(simulation.admit(id(1, 1), true, 4), Admission::Resume);
    let unknown = Admission::Refuse(Refusal::UnknownSession);
    assert_eq!(simulation.admit(id(1, 2), true, 4), unknown, "as after a restart");
    assert_eq!(simulation.admit(id(2, 1), true, 4), unknown, "the session of another key");
    simulation.handle(Input::Ended(id(1, 1)));
    assert_eq!(simulation.admit(id(1, 1), true, 4), unknown);
    assert!(!simulation.sessions.contains(id(1, 1)) && simulation.sessions.keys().is_empty());
}

#[test]
fn a_session_without_carriers_is_kept_for_a_while() {
    let mut simulation = Simulation::new();
    simulation.live(id(1, 1));
    simulation.handle(Input::Attached(id(1, 1)));
    simulation.handle(Input::Detached(id(1, 1)));
    assert_eq!(simulation.until(300, &[]), [], "one is left");
    simulation.handle(Input::Detached(id(1, 1)));
    assert_eq!(simulation.until(340, &[]), []);
    simulation.handle(Input::Attached(id(1, 1)));
    assert_eq!(simulation.until(400, &[]), []);
    simulation.handle(Input::Detached(id(1, 1)));
    // More than 45 s, plus the delay of the review.
    assert_eq!(simulation.until(500, &[]), [(450, Output::End(id(1, 1), EndReason::Absent))]);
}

#[test]
fn a_session_whose_first_carrier_never_came_ends() {
    let mut simulation = Simulation::new();
    simulation.admit(id(1, 1), false, 4);
    assert_eq!(simulation.until(60, &[]), [(50, Output::End(id(1, 1), EndReason::Absent))]);
}

#[test]
fn a_key_that_is_removed_ends_its_sessions_at_the_second_review() {
    let mut simulation = Simulation::new();
    simulation.live(id(1, 1));
    simulation.live(id(2, 1));
    simulation.until(7, &[]);
    assert_eq!(simulation.until(13, &[1]), []);
    assert_eq!(simulation.until(18, &[]), [], "a file that was empty for a moment");
    let ended = simulation.until(40, &[1]);
    assert_eq!(ended, [(25, Output::End(id(1, 1), EndReason::KeyRemoved))]);
    assert_eq!(simulation.sessions.keys(), BTreeSet::from([2]));
}

#[test]
fn the_session_that_was_left_first_makes_room() {
    let mut simulation = Simulation::new();
    for number in 1..=3 {
        simulation.live(id(1, number));
    }
    simulation.live(id(2, 9));
    simulation.handle(Input::Detached(id(2, 9)));
    simulation.until(1, &[]);
    simulation.handle(Input::Detached(id(1, 2)));
    simulation.until(2, &[]);
    simulation.handle(Input::Detached(id(1, 1)));
    assert_eq!(simulation.admit(id(1, 4), false, 3), Admission::Begin);
    assert_eq!(simulation.until(2, &[]), [(2, Output::End(id(1, 2), EndReason::Evicted))]);
    simulation.handle(Input::Attached(id(1, 4)));
    assert_eq!(simulation.admit(id(1, 5), false, 3), Admission::Begin);
    assert_eq!(simulation.until(2, &[]), [(2, Output::End(id(1, 1), EndReason::Evicted))]);
}

#[test]
fn clients_that_give_no_sign_of_life_make_room() {
    let mut simulation = Simulation::new();
    simulation.live(id(1, 1));
    simulation.live(id(1, 2));
    let full = Admission::Refuse(Refusal::TooManySessions(2));
    assert_eq!(simulation.admit(id(1, 3), false, 2), full);
    let asked = [1, 2].map(|number| (0, Output::RequestLiveness(id(1, number))));
    assert_eq!(simulation.until(0, &[]), asked);
    simulation.handle(Input::Received(id(1, 1), 500));
    simulation.handle(Input::Received(id(1, 2), 700));
    simulation.until(1, &[]);
    assert_eq!(simulation.admit(id(1, 3), false, 2), full);
    assert_eq!(simulation.until(4, &[]), [], "they were asked already");
    let counted = [1, 2].map(|number| (5, Output::CountReceived(id(1, number))));
    assert_eq!(simulation.until(5, &[]), counted);
    simulation.handle(Input::Received(id(1, 1), 500));
    simulation.handle(Input::Received(id(1, 2), 701));
    assert_eq!(simulation.until(5, &[]), [(5, Output::End(id(1, 1), EndReason::Silent))]);
    assert_eq!(simulation.admit(id(1, 3), false, 2), Admission::Begin);
}

#[test]
fn new_limits_hold_for_what_they_can() {
    let mut simulation = Simulation::new();
    simulation.live(id(1, 1));
    let rate = Some(Rate::from_mbps(8));
    let mut review = |limits: ClientLimits| {
        simulation.sessions.review(at(5), |_| Some(limits));
        std::iter::from_fn(|| simulation.sessions.poll(at(0))).collect::<Vec<_>>()
    };
    assert_eq!(review(limits(4)), []);
    let faster = ClientLimits { rate, ..limits(4) };
    assert_eq!(review(faster), [Output::SetRate(id(1, 1), rate)]);
    let fewer = ClientLimits { streams: 3, ..faster };
    assert_eq!(review(fewer), [Output::LimitsDeferred(id(1, 1))]);
    assert_eq!(review(limits(4)).len(), 2);
}

#[derive(Clone, Copy, Debug)]
enum RandomEvent {
    Hello(u8, u8, bool),
    Lose(u8, u8),
    Bye(u8, u8),
}

fn random_event() -> impl Strategy<Value = RandomEvent> {
    prop_oneof![
        4 => (0_u8..3, 0_u8..6, any::<bool>()).prop_map(|(key, n, r)| RandomEvent::Hello(key, n, r)),
        3 => (0_u8..3, 0_u8..6).prop_map(|(key, n)| RandomEvent::Lose(key, n)),
        1 => (0_u8..3, 0_u8..6).prop_map(|(key, n)| RandomEvent::Bye(key, n)),
    ]
}

proptest! {
    /// After any events: no key exceeds its limit of sessions, shell and core have the same
    /// sessions, and no session with a live client is ended.
    #[test]
    fn no_key_has_too_many_sessions_and_none_is_lost(
        events in prop::collection::vec((0_u64..20, random_event()), 1..120),
    ) {
        let mut sessions: Sessions<u8> = Sessions::new(at(0), Config::default());
        // State of the shell: the carriers of each session.
        let mut shell: BTreeMap<Id, u32> = BTreeMap::new();
        let mut now = 0;
        for (pause, event) in events {
            let then = now + pause;
            loop {
                let mut outputs = 0;
                while let Some(output) = sessions.poll(at(now)) {
                    outputs += 1;
                    prop_assert!(outputs < 100, "it does not come to an end");
                    match output {
                        Output::Review => sessions.review(at(now), |_| Some(limits(2))),
                        Output::End(id, reason) => {
                            let carriers = shell.remove(&id);
                            prop_assert!(carriers.is_some(), "{:?} is not there", id);
                            let is_live = carriers > Some(0);
                            prop_assert!(!is_live || reason == EndReason::Silent);
                            // Clients with an odd number are alive.
                            prop_assert!(!is_live || id.number[0] % 2 == 0);
                        }
                        Output::RequestLiveness(id) => {
                            sessions.handle(at(now), Input::Received(id, 0));
                        }
                        Output::CountReceived(id) => {
                            let bytes = u64::from(id.number[0] % 2);
                            sessions.handle(at(now), Input::Received(id, bytes));
                        }
                        Output::SetRate(..) | Output::LimitsDeferred(_) => {
                            prop_assert!(false, "the limits are the same");
                        }
                    }
                }
                let wakeup = sessions.next_wakeup();
                prop_assert!(wakeup > at(now), "a busy loop");
                if wakeup > at(then) {
                    break;
                }
                now = wakeup.as_nanos() / 1_000_000_000;
            }
            now = then;
            match event {
                RandomEvent::Hello(key, number, resumes) => {
                    let id = id(key, number);
                    match sessions.admit(at(now), id, resumes, limits(2)) {
                        Admission::Resume => prop_assert!(shell.contains_key(&id)),
                        Admission::Begin => prop_assert_eq!(shell.insert(id, 0), None),
                        Admission::Refuse(_) => {
                            prop_assert!(!shell.contains_key(&id));
                            continue;
                        }
                    }
                    *shell.get_mut(&id).unwrap() += 1;
                    sessions.handle(at(now), Input::Attached(id));
                }
                RandomEvent::Lose(key, number) => {
                    let id = id(key, number);
                    if let Some(carriers) = shell.get_mut(&id).filter(|carriers| **carriers > 0) {
                        *carriers -= 1;
                        sessions.handle(at(now), Input::Detached(id));
                    }
                }
                RandomEvent::Bye(key, number) => {
                    if shell.remove(&id(key, number)).is_some() {
                        sessions.handle(at(now), Input::Ended(id(key, number)));
                    }
                }
            }
            for key in 0..3 {
                // An evicted session is ended at the next poll of the shell.
                let known = (0..6).filter(|n| sessions.contains(id(key, *n))).count();
                prop_assert!(known <= 2, "{} sessions of one key", known);
            }
        }
    }
}
