use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn server(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 443))
}

fn servers(numbers: &[u8]) -> Vec<SocketAddr> {
    numbers.iter().map(|n| server(*n)).collect()
}

fn attempts() -> HappyEyeballs {
    HappyEyeballs::new(Config::default())
}

fn drain(attempts: &mut HappyEyeballs, now: Time) -> Vec<Output> {
    std::iter::from_fn(|| attempts.poll(now)).collect()
}

/// The addresses are known from the start.
fn connecting(numbers: &[u8], config: Config) -> HappyEyeballs {
    let mut attempts = HappyEyeballs::new(config);
    attempts.handle(ms(0), Input::OwnAddresses(servers(numbers)));
    attempts
}

fn timed() -> Config {
    Config { timeout: Some(Span::from_secs(15)), ..Config::default() }
}

fn connect(n: u8) -> Output {
    Output::Connect(server(n))
}

fn used(n: u8) -> Output {
    Output::Use(server(n))
}

#[test]
fn families_alternate_and_unreachable_ones_are_left_out() {
    let list = |text: &str| -> Vec<IpAddr> {
        text.split(' ').map(|address| address.parse().unwrap()).collect()
    };
    let config = Config::default();
    let mixed = config.select(&list("::1 ::2 ::3 1.1.1.1"), |_| true);
    assert_eq!(mixed, list("::1 1.1.1.1 ::2 ::3"));
    let v4 = config.select(&list("::1 1.1.1.1 ::2 2.2.2.2"), |address| address.is_ipv4());
    assert_eq!(v4, list("1.1.1.1 2.2.2.2"));
    assert_eq!(config.select(&vec![list("::1")[0]; 20], |_| true).len(), 8);
    assert!(config.select(&[], |_| true).is_empty());
}

#[test]
fn a_connected_speculation_ends_the_other_attempts() {
    let mut attempts = attempts();
    attempts.handle(ms(0), Input::OtherAddresses(servers(&[1, 2])));
    drain(&mut attempts, ms(0));
    drain(&mut attempts, ms(250));
    attempts.handle(ms(300), Input::Connected(server(2)));
    assert_eq!(drain(&mut attempts, ms(300)), [Output::Abandon(server(1))]);
    attempts.handle(ms(400), Input::OwnAddresses(servers(&[1])));
    assert_eq!(drain(&mut attempts, ms(400)), [Output::Abandon(server(2)), connect(1)]);
}

#[test]
fn each_address_is_tried_a_quarter_of_a_second_after_the_one_before() {
    let mut attempts = attempts();
    attempts.handle(ms(0), Input::OwnAddresses(servers(&[1, 2, 3])));
    assert_eq!(drain(&mut attempts, ms(0)), [connect(1)]);
    assert_eq!(attempts.next_wakeup(), Some(ms(250)));
    assert_eq!(drain(&mut attempts, ms(249)), []);
    assert_eq!(drain(&mut attempts, ms(250)), [connect(2)]);
    // A failure is not waited behind.
    attempts.handle(ms(260), Input::Failed(server(1)));
    assert_eq!(drain(&mut attempts, ms(260)), [connect(3)]);
    assert_eq!(attempts.next_wakeup(), None);
    attempts.handle(ms(300), Input::Connected(server(2)));
    assert_eq!(drain(&mut attempts, ms(300)), [used(2)]);
    attempts.handle(ms(301), Input::Connected(server(3)));
    assert_eq!(drain(&mut attempts, ms(301)), []);
}

#[test]
fn the_last_failure_ends_it() {
    let mut attempts = attempts();
    attempts.handle(ms(0), Input::OwnAddresses(servers(&[1, 2])));
    drain(&mut attempts, ms(250));
    drain(&mut attempts, ms(500));
    attempts.handle(ms(600), Input::Failed(server(2)));
    assert_eq!(drain(&mut attempts, ms(600)), []);
    attempts.handle(ms(700), Input::Failed(server(1)));
    assert_eq!(drain(&mut attempts, ms(700)), [Output::Exhausted]);
    let mut attempts = self::attempts();
    attempts.handle(ms(0), Input::OwnAddresses(Vec::new()));
    assert_eq!(drain(&mut attempts, ms(0)), [Output::Exhausted]);
}

#[test]
fn a_speculative_connection_is_used_once_the_own_addresses_confirm_it() {
    let mut attempts = attempts();
    assert_eq!(drain(&mut attempts, ms(0)), []);
    attempts.handle(ms(10), Input::OtherAddresses(servers(&[1])));
    assert_eq!(drain(&mut attempts, ms(10)), [connect(1)]);
    attempts.handle(ms(40), Input::Connected(server(1)));
    assert_eq!(drain(&mut attempts, ms(40)), []);
    attempts.handle(ms(90), Input::OwnAddresses(servers(&[2, 1])));
    assert_eq!(drain(&mut attempts, ms(90)), [used(1)]);
}

#[test]
fn a_speculative_attempt_goes_on_where_the_own_addresses_include_it() {
    let mut attempts = attempts();
    attempts.handle(ms(0), Input::OtherAddresses(servers(&[1, 2])));
    assert_eq!(drain(&mut attempts, ms(0)), [connect(1)]);
    attempts.handle(ms(90), Input::OwnAddresses(servers(&[3, 2, 1])));
    assert_eq!(drain(&mut attempts, ms(90)), []);
    assert_eq!(drain(&mut attempts, ms(250)), [connect(2)]);
    attempts.handle(ms(260), Input::Failed(server(1)));
    // Only now the other addresses are tried, from the first one on.
    attempts.handle(ms(270), Input::Failed(server(2)));
    assert_eq!(drain(&mut attempts, ms(270)), [connect(3)]);
    assert_eq!(drain(&mut attempts, ms(520)), [connect(2)]);
}

#[test]
fn servers_of_another_path_are_left_for_the_own_ones() {
    for connected in [false, true] {
        let mut attempts = attempts();
        attempts.handle(ms(0), Input::OtherAddresses(servers(&[1, 2])));
        assert_eq!(drain(&mut attempts, ms(0)), [connect(1)]);
        if connected {
            attempts.handle(ms(40), Input::Connected(server(1)));
        }
        attempts.handle(ms(90), Input::OwnAddresses(servers(&[2, 3])));
        let output = [Output::Abandon(server(1)), connect(2)];
        assert_eq!(drain(&mut attempts, ms(90)), output);
        attempts.handle(ms(120), Input::Connected(server(2)));
        assert_eq!(drain(&mut attempts, ms(120)), [used(2)]);
    }
}

#[test]
fn a_speculation_that_fails_is_forgotten() {
    let mut attempts = attempts();
    attempts.handle(ms(0), Input::OtherAddresses(servers(&[1])));
    drain(&mut attempts, ms(0));
    attempts.handle(ms(10), Input::Failed(server(1)));
    assert_eq!((drain(&mut attempts, ms(10)), attempts.next_wakeup()), (vec![], None));
    attempts.handle(ms(90), Input::OwnAddresses(servers(&[1])));
    assert_eq!(drain(&mut attempts, ms(90)), [connect(1)]);
}

#[test]
fn the_next_address_is_tried_after_the_delay_or_when_one_has_failed() {
    let mut race = connecting(&[1, 2, 3], timed());
    assert_eq!(drain(&mut race, ms(0)), [Output::Connect(server(1))]);
    assert_eq!(race.next_wakeup(), Some(ms(250)));
    assert_eq!(drain(&mut race, ms(249)), []);
    assert_eq!(drain(&mut race, ms(250)), [Output::Connect(server(2))]);
    race.handle(ms(300), Input::Failed(server(1)));
    assert_eq!(drain(&mut race, ms(300)), [Output::Connect(server(3))]);
    race.handle(ms(400), Input::Failed(server(2)));
    assert_eq!(drain(&mut race, ms(400)), []);
    race.handle(ms(500), Input::Failed(server(3)));
    assert_eq!(drain(&mut race, ms(500)), [Output::Exhausted]);
    assert_eq!((race.next_wakeup(), race.poll(ms(60_000))), (None, None));
}

#[test]
fn all_is_over_when_the_time_is() {
    let mut race = connecting(&[1], timed());
    assert_eq!(drain(&mut race, ms(0)), [Output::Connect(server(1))]);
    assert_eq!(race.next_wakeup(), Some(ms(15_000)));
    assert_eq!(drain(&mut race, ms(15_000)), [Output::TimedOut]);
}

#[test]
fn without_a_delay_one_address_follows_the_other() {
    let mut turns = connecting(&[1, 2], Config::sequential(Span::from_secs(3)));
    assert_eq!(drain(&mut turns, ms(0)), [Output::Connect(server(1))]);
    assert_eq!(drain(&mut turns, ms(2_999)), []);
    let next = [Output::Abandon(server(1)), Output::Connect(server(2))];
    assert_eq!(drain(&mut turns, ms(3_000)), next);
    turns.handle(ms(3_001), Input::Failed(server(1)));
    assert_eq!(drain(&mut turns, ms(3_001)), [], "that one was abandoned already");
    turns.handle(ms(3_002), Input::Failed(server(2)));
    assert_eq!(drain(&mut turns, ms(3_002)), [Output::Exhausted]);
}

#[test]
fn no_address_at_all_is_the_end() {
    assert_eq!(drain(&mut connecting(&[], timed()), ms(0)), [Output::Exhausted]);
}

proptest! {
    /// In any order of events, only an own address is used, and there is only one end.
    #[test]
    fn only_own_addresses_are_used(
        other in prop::collection::vec(0u8..4, 0..4),
        own in prop::collection::vec(0u8..4, 0..4),
        other_at in 0u64..2_000,
        own_at in 0u64..2_000,
        results in prop::collection::vec((any::<bool>(), 0u64..900), 4),
    ) {
        let mut attempts = attempts();
        let mut events: Vec<(Time, Input)> = vec![
            (ms(other_at), Input::OtherAddresses(servers(&other))),
            (ms(own_at), Input::OwnAddresses(servers(&own))),
        ];
        let mut end = None;
        while end.is_none() {
            let next = events.iter().map(|(at, _)| *at).chain(attempts.next_wakeup()).min();
            let now = next.expect("it does not end");
            if let Some(at) = events.iter().position(|(at, _)| *at <= now) {
                attempts.handle(now, events.swap_remove(at).1);
            }
            for output in drain(&mut attempts, now) {
                match output {
                    Output::Connect(address) => {
                        let n = (0..4).find(|n| server(*n) == address).unwrap();
                        let (works, after) = results[usize::from(n)];
                        let input = if works { Input::Connected } else { Input::Failed };
                        events.push((now + Span::from_millis(after), input(address)));
                    }
                    Output::Abandon(address) => events.retain(|(_, input)| {
                        !matches!(input, Input::Connected(to) | Input::Failed(to) if *to == address)
                    }),
                    output => {
                        prop_assert_eq!(&end, &None);
                        end = Some(output);
                    }
                }
            }
        }
        match end {
            Some(Output::Use(address)) => prop_assert!(servers(&own).contains(&address)),
            _ => prop_assert!(own.iter().all(|n| !results[usize::from(*n)].0)),
        }
    }

    /// Each address is tried once, the end is reported once, and until then there is a wakeup
    /// in the future or a running attempt.
    #[test]
    fn every_address_is_tried_once_and_then_it_ends(
        count in 0_u8..6,
        delay in prop::option::of(1_u64..500),
        attempt_timeout in prop::option::of(1_u64..2_000),
        timeout in prop::option::of(1_u64..5_000),
        fails in prop::collection::vec((0_u64..700, 0_u8..6), 0..20),
    ) {
        let span = |millis: Option<u64>| millis.map(Span::from_millis);
        let config = Config {
            attempt_delay: span(delay),
            attempt_timeout: span(attempt_timeout),
            timeout: span(timeout),
            ..Config::default()
        };
        let numbers: Vec<u8> = (0..count).collect();
        let mut race = connecting(&numbers, config);
        let (mut now, mut tried, mut under_way, mut ends) = (ms(0), 0, Vec::new(), 0);
        let mut fails = fails.into_iter();
        loop {
            while let Some(output) = race.poll(now) {
                prop_assert_eq!(ends, 0, "{:?} after the end", output);
                match output {
                    Output::Connect(address) => {
                        tried += 1;
                        under_way.push(address);
                    }
                    Output::Abandon(address) => {
                        prop_assert!(under_way.contains(&address));
                        under_way.retain(|other| *other != address);
                    }
                    Output::Exhausted => {
                        prop_assert!(under_way.is_empty() && tried == count);
                        ends += 1;
                    }
                    Output::TimedOut => ends += 1,
                    Output::Use(_) => prop_assert!(false, "nothing is connected"),
                }
            }
            prop_assert!(tried <= count);
            let wakeup = race.next_wakeup();
            prop_assert!(wakeup.is_none_or(|wakeup| wakeup > now));
            prop_assert!(ends == 1 || wakeup.is_some() || !under_way.is_empty());
            let event = fails.next().map(|(pause, last)| (now + Span::from_millis(pause), last));
            now = match (event, wakeup) {
                (Some((then, _)), Some(wakeup)) if wakeup < then => wakeup,
                (Some((then, last)), _) => {
                    race.handle(then, Input::Failed(server(last)));
                    under_way.retain(|other| *other != server(last));
                    then
                }
                (None, Some(wakeup)) => wakeup,
                (None, None) => break,
            };
        }
    }
}
