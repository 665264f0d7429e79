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

fn dialer() -> Dialer {
    Dialer::new(DialConfig::default())
}

fn drain(dialer: &mut Dialer, now: Time) -> Vec<DialOutput> {
    std::iter::from_fn(|| dialer.poll(now)).collect()
}

fn connect(n: u8) -> DialOutput {
    DialOutput::Connect(server(n))
}

fn used(n: u8) -> DialOutput {
    DialOutput::Use(server(n))
}

#[test]
fn families_alternate_and_unreachable_ones_are_left_out() {
    let list = |text: &str| -> Vec<IpAddr> {
        text.split(' ').map(|address| address.parse().unwrap()).collect()
    };
    let config = DialConfig::default();
    let mixed = config.select(&list("::1 ::2 ::3 1.1.1.1"), |_| true);
    assert_eq!(mixed, list("::1 1.1.1.1 ::2 ::3"));
    let v4 = config.select(&list("::1 1.1.1.1 ::2 2.2.2.2"), |address| address.is_ipv4());
    assert_eq!(v4, list("1.1.1.1 2.2.2.2"));
    assert_eq!(config.select(&vec![list("::1")[0]; 20], |_| true).len(), 8);
    assert!(config.select(&[], |_| true).is_empty());
}

#[test]
fn each_address_is_tried_a_quarter_of_a_second_after_the_one_before() {
    let mut dialer = dialer();
    dialer.handle(ms(0), DialInput::OwnAddresses(servers(&[1, 2, 3])));
    assert_eq!(drain(&mut dialer, ms(0)), [connect(1)]);
    assert_eq!(dialer.next_wakeup(), Some(ms(250)));
    assert_eq!(drain(&mut dialer, ms(249)), []);
    assert_eq!(drain(&mut dialer, ms(250)), [connect(2)]);
    // A failure is not waited behind.
    dialer.handle(ms(260), DialInput::Failed(server(1)));
    assert_eq!(drain(&mut dialer, ms(260)), [connect(3)]);
    assert_eq!(dialer.next_wakeup(), None);
    dialer.handle(ms(300), DialInput::Connected(server(2)));
    assert_eq!(drain(&mut dialer, ms(300)), [used(2)]);
    dialer.handle(ms(301), DialInput::Connected(server(3)));
    assert_eq!(drain(&mut dialer, ms(301)), []);
}

#[test]
fn the_last_failure_ends_it() {
    let mut dialer = dialer();
    dialer.handle(ms(0), DialInput::OwnAddresses(servers(&[1, 2])));
    drain(&mut dialer, ms(250));
    drain(&mut dialer, ms(500));
    dialer.handle(ms(600), DialInput::Failed(server(2)));
    assert_eq!(drain(&mut dialer, ms(600)), []);
    dialer.handle(ms(700), DialInput::Failed(server(1)));
    assert_eq!(drain(&mut dialer, ms(700)), [DialOutput::Failed]);
    let mut dialer = self::dialer();
    dialer.handle(ms(0), DialInput::OwnAddresses(Vec::new()));
    assert_eq!(drain(&mut dialer, ms(0)), [DialOutput::Failed]);
}

#[test]
fn a_speculative_connection_is_used_once_the_own_addresses_confirm_it() {
    let mut dialer = dialer();
    assert_eq!(drain(&mut dialer, ms(0)), []);
    dialer.handle(ms(10), DialInput::OtherAddresses(servers(&[1])));
    assert_eq!(drain(&mut dialer, ms(10)), [connect(1)]);
    dialer.handle(ms(40), DialInput::Connected(server(1)));
    assert_eq!(drain(&mut dialer, ms(40)), []);
    dialer.handle(ms(90), DialInput::OwnAddresses(servers(&[2, 1])));
    assert_eq!(drain(&mut dialer, ms(90)), [used(1)]);
}

#[test]
fn a_speculative_attempt_goes_on_where_the_own_addresses_include_it() {
    let mut dialer = dialer();
    dialer.handle(ms(0), DialInput::OtherAddresses(servers(&[1, 2])));
    assert_eq!(drain(&mut dialer, ms(0)), [connect(1)]);
    dialer.handle(ms(90), DialInput::OwnAddresses(servers(&[3, 2, 1])));
    assert_eq!(drain(&mut dialer, ms(90)), []);
    assert_eq!(drain(&mut dialer, ms(250)), [connect(2)]);
    dialer.handle(ms(260), DialInput::Failed(server(1)));
    // Only now the other addresses are tried, from the first one on.
    dialer.handle(ms(270), DialInput::Failed(server(2)));
    assert_eq!(drain(&mut dialer, ms(270)), [connect(3)]);
    assert_eq!(drain(&mut dialer, ms(520)), [connect(2)]);
}

#[test]
fn servers_of_another_path_are_left_for_the_own_ones() {
    for connected in [false, true] {
        let mut dialer = dialer();
        dialer.handle(ms(0), DialInput::OtherAddresses(servers(&[1, 2])));
        assert_eq!(drain(&mut dialer, ms(0)), [connect(1)]);
        if connected {
            dialer.handle(ms(40), DialInput::Connected(server(1)));
        }
        dialer.handle(ms(90), DialInput::OwnAddresses(servers(&[2, 3])));
        assert_eq!(drain(&mut dialer, ms(90)), [DialOutput::Abort, connect(2)]);
        dialer.handle(ms(120), DialInput::Connected(server(2)));
        assert_eq!(drain(&mut dialer, ms(120)), [used(2)]);
    }
}

#[test]
fn a_speculation_that_fails_is_forgotten() {
    let mut dialer = dialer();
    dialer.handle(ms(0), DialInput::OtherAddresses(servers(&[1])));
    drain(&mut dialer, ms(0));
    dialer.handle(ms(10), DialInput::Failed(server(1)));
    assert_eq!((drain(&mut dialer, ms(10)), dialer.next_wakeup()), (vec![], None));
    dialer.handle(ms(90), DialInput::OwnAddresses(servers(&[1])));
    assert_eq!(drain(&mut dialer, ms(90)), [connect(1)]);
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
        let mut dialer = dialer();
        let mut events: Vec<(Time, DialInput)> = vec![
            (ms(other_at), DialInput::OtherAddresses(servers(&other))),
            (ms(own_at), DialInput::OwnAddresses(servers(&own))),
        ];
        let mut end = None;
        while end.is_none() {
            let next = events.iter().map(|(at, _)| *at).chain(dialer.next_wakeup()).min();
            let now = next.expect("it does not end");
            if let Some(at) = events.iter().position(|(at, _)| *at <= now) {
                dialer.handle(now, events.swap_remove(at).1);
            }
            for output in drain(&mut dialer, now) {
                match output {
                    DialOutput::Connect(address) => {
                        let n = (0..4).find(|n| server(*n) == address).unwrap();
                        let (works, after) = results[usize::from(n)];
                        let input = if works { DialInput::Connected } else { DialInput::Failed };
                        events.push((now + Span::from_millis(after), input(address)));
                    }
                    DialOutput::Abort => events.retain(|(_, input)| {
                        !matches!(input, DialInput::Connected(_) | DialInput::Failed(_))
                    }),
                    output => {
                        prop_assert_eq!(&end, &None);
                        end = Some(output);
                    }
                }
            }
        }
        match end {
            Some(DialOutput::Use(address)) => prop_assert!(servers(&own).contains(&address)),
            _ => prop_assert!(own.iter().all(|n| !results[usize::from(*n)].0)),
        }
    }
}
