use std::net::IpAddr;

use super::*;

type Output = LookupOutput<&'static str>;
type TestLookup = Lookup<&'static str>;

const ONE: &str = "192.0.2.1";
const TWO: &str = "192.0.2.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn lookup(servers: &[&str], own: &[&str]) -> TestLookup {
    let list = |texts: &[&str]| texts.iter().map(|text| ip(text)).collect::<Vec<_>>();
    Lookup::new(LookupConfig::default(), &list(servers), &list(own))
}

fn drain(lookup: &mut TestLookup, now: Time) -> Vec<Output> {
    std::iter::from_fn(|| lookup.poll(now)).collect()
}

fn query(server: &str, family: Family, transport: Transport) -> Output {
    LookupOutput::Query { server: ip(server), family, transport, edns: Edns::Offered }
}

fn query_without_edns(server: &str, family: Family, transport: Transport) -> Output {
    LookupOutput::Query { server: ip(server), family, transport, edns: Edns::Omitted }
}

fn udp(server: &str) -> Vec<Output> {
    [Family::V4, Family::V6].map(|family| query(server, family, Transport::Udp)).into()
}

fn addresses(texts: &[&str]) -> QueryAnswer<&'static str> {
    QueryAnswer::Addresses(texts.iter().map(|text| ip(text)).collect())
}

#[test]
fn both_families_of_the_first_server_make_the_answer() {
    let mut lookup = lookup(&[ONE, TWO], &[]);
    assert_eq!(drain(&mut lookup, ms(0)), udp(ONE));
    lookup.handle(ms(20), Family::V6, addresses(&["2001:db8::1"]));
    assert_eq!(drain(&mut lookup, ms(20)), []);
    lookup.handle(ms(30), Family::V4, addresses(&["198.51.100.1"]));
    let both = vec![ip("198.51.100.1"), ip("2001:db8::1")];
    assert_eq!(drain(&mut lookup, ms(30)), [LookupOutput::Resolved(both)]);
    assert_eq!(lookup.next_wakeup(), None);
}

#[test]
fn the_second_family_is_waited_for_only_the_resolution_delay() {
    let mut lookup = lookup(&[ONE], &[]);
    drain(&mut lookup, ms(0));
    assert_eq!(lookup.next_wakeup(), Some(ms(1500)));
    lookup.handle(ms(100), Family::V4, addresses(&["198.51.100.1"]));
    assert_eq!(drain(&mut lookup, ms(100)), []);
    assert_eq!(lookup.next_wakeup(), Some(ms(350)));
    assert_eq!(drain(&mut lookup, ms(349)), []);
    let found = LookupOutput::Resolved(vec![ip("198.51.100.1")]);
    assert_eq!(drain(&mut lookup, ms(350)), [found]);
}

#[test]
fn a_family_without_addresses_does_not_hurry_the_other() {
    let mut lookup = lookup(&[ONE], &[]);
    drain(&mut lookup, ms(0));
    lookup.handle(ms(10), Family::V6, addresses(&[]));
    assert_eq!(lookup.next_wakeup(), Some(ms(1500)));
    lookup.handle(ms(1400), Family::V4, addresses(&[]));
    let none = LookupOutput::Failed(LookupFailure::NoAddress);
    assert_eq!(drain(&mut lookup, ms(1400)), [none]);
}

#[test]
fn only_families_of_the_path_are_queried() {
    let mut lookup = lookup(&[ONE], &["192.0.2.9"]);
    assert_eq!(drain(&mut lookup, ms(0)), [query(ONE, Family::V4, Transport::Udp)]);
    lookup.handle(ms(1), Family::V4, addresses(&["198.51.100.1"]));
    let found = LookupOutput::Resolved(vec![ip("198.51.100.1")]);
    assert_eq!(drain(&mut lookup, ms(1)), [found], "no second family is waited for");
}

#[test]
fn a_truncated_answer_is_queried_over_tcp_with_a_timeout_of_its_own() {
    let mut lookup = lookup(&[ONE], &["192.0.2.9"]);
    drain(&mut lookup, ms(0));
    lookup.handle(ms(1400), Family::V4, QueryAnswer::Truncated);
    assert_eq!(drain(&mut lookup, ms(1400)), [query(ONE, Family::V4, Transport::Tcp)]);
    assert_eq!(lookup.next_wakeup(), Some(ms(2900)));
    lookup.handle(ms(2000), Family::V4, QueryAnswer::Truncated);
    // The next round begins.
    assert_eq!(drain(&mut lookup, ms(2000)), [query(ONE, Family::V4, Transport::Udp)]);
    assert_eq!(lookup.next_wakeup(), Some(ms(4000)));
}

#[test]
fn a_server_that_rejects_edns_is_queried_once_more_without_it() {
    let mut lookup = lookup(&[ONE], &[]);
    let again = |family| query_without_edns(ONE, family, Transport::Udp);
    drain(&mut lookup, ms(0));
    lookup.handle(ms(10), Family::V4, QueryAnswer::EdnsError("format error"));
    assert_eq!(drain(&mut lookup, ms(10)), [again(Family::V4)]);
    lookup.handle(ms(20), Family::V6, QueryAnswer::EdnsError("format error"));
    assert_eq!(drain(&mut lookup, ms(20)), [again(Family::V6)]);
    lookup.handle(ms(30), Family::V6, QueryAnswer::EdnsError("server failure"));
    lookup.handle(ms(30), Family::V4, QueryAnswer::Truncated);
    let tcp = query_without_edns(ONE, Family::V4, Transport::Tcp);
    assert_eq!(drain(&mut lookup, ms(30)), [tcp]);
    lookup.handle(ms(40), Family::V4, QueryAnswer::EdnsError("server failure"));
    // The next round begins, and the server is known.
    assert_eq!(drain(&mut lookup, ms(40)), [again(Family::V4), again(Family::V6)]);
}

#[test]
fn a_silent_server_is_queried_without_edns_in_the_next_round() {
    let mut lookup = lookup(&[ONE, TWO], &["192.0.2.9"]);
    drain(&mut lookup, ms(0));
    let two = [query(TWO, Family::V4, Transport::Udp)];
    assert_eq!(drain(&mut lookup, ms(1500)), two, "another server may know EDNS");
    lookup.handle(ms(1600), Family::V4, QueryAnswer::Failed("refused"));
    let one = [query_without_edns(ONE, Family::V4, Transport::Udp)];
    assert_eq!(drain(&mut lookup, ms(1600)), one);
    assert_eq!(drain(&mut lookup, ms(3600)), two);
}

#[test]
fn silent_servers_are_queried_three_times_with_growing_timeouts() {
    let mut lookup = lookup(&[ONE, TWO], &["192.0.2.9"]);
    let (mut now, mut begun, mut end) = (ms(0), Vec::new(), None);
    while end.is_none() {
        for output in drain(&mut lookup, now) {
            match output {
                LookupOutput::Query { server, .. } => {
                    begun.push((now.since(ms(0)).as_nanos() / 1_000_000, server.to_string()));
                }
                other => end = Some(other),
            }
        }
        now = lookup.next_wakeup().unwrap_or(now);
    }
    let begun: Vec<(u64, &str)> = begun.iter().map(|(at, server)| (*at, server.as_str())).collect();
    let expected = [(0, ONE), (1500, TWO), (3000, ONE), (5000, TWO), (7000, ONE), (10_000, TWO)];
    assert_eq!(begun, expected);
    assert_eq!(now, ms(13_000));
    let last = ServerFailure::Timeout(Span::from_secs(3));
    let problems = vec![(ip(ONE), last.clone()), (ip(TWO), last)];
    assert_eq!(end, Some(LookupOutput::Failed(LookupFailure::NoAnswer(problems))));
}

#[test]
fn a_server_that_fails_is_left_at_once_and_its_last_problem_is_kept() {
    let mut lookup = lookup(&[ONE, TWO], &[]);
    drain(&mut lookup, ms(0));
    lookup.handle(ms(1), Family::V4, QueryAnswer::Failed("refused"));
    assert_eq!(drain(&mut lookup, ms(1)), []);
    lookup.handle(ms(2), Family::V6, QueryAnswer::Failed("unreachable"));
    assert_eq!(drain(&mut lookup, ms(2)), udp(TWO));
    lookup.handle(ms(3), Family::V6, QueryAnswer::NoSuchName);
    lookup.handle(ms(4), Family::V4, QueryAnswer::Failed("refused"));
    let missing = LookupOutput::Failed(LookupFailure::NoSuchName(ip(TWO)));
    assert_eq!(drain(&mut lookup, ms(4)), [missing]);
    lookup.handle(ms(5), Family::V4, addresses(&["198.51.100.1"]));
    assert_eq!(drain(&mut lookup, ms(5)), [], "a late answer changes nothing");
}

#[test]
fn addresses_of_one_family_count_more_than_a_problem_of_the_other() {
    let mut lookup = lookup(&[ONE], &[]);
    drain(&mut lookup, ms(0));
    lookup.handle(ms(1), Family::V6, QueryAnswer::NoSuchName);
    lookup.handle(ms(2), Family::V4, addresses(&["198.51.100.1"]));
    let found = LookupOutput::Resolved(vec![ip("198.51.100.1")]);
    assert_eq!(drain(&mut lookup, ms(2)), [found]);
}

#[test]
fn at_most_four_servers_are_queried_and_none_is_an_error() {
    let servers = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    let mut many = lookup(&servers, &["192.0.2.9"]);
    let mut queried = Vec::new();
    for at in 0..5 {
        for output in drain(&mut many, ms(at)) {
            let LookupOutput::Query { server, .. } = output else { panic!("{output:?}") };
            queried.push(server);
        }
        many.handle(ms(at), Family::V4, QueryAnswer::Failed("refused"));
    }
    assert_eq!(queried, ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.1"].map(ip));
    let none = LookupOutput::Failed(LookupFailure::NoServer);
    assert_eq!(drain(&mut lookup(&[], &[]), ms(0)), [none]);
}

#[test]
fn a_unique_local_source_does_not_lead_to_a_global_address() {
    let sorted = |source: &str, found: &[&str]| -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = found.iter().map(|text| ip(text)).collect();
        sort_by_source(&mut found, &[ip("192.0.2.2"), ip(source)]);
        found
    };
    let found = ["198.51.100.1", "2001:db8::1"];
    assert_eq!(sorted("2001:db8:7::2", &found), [ip("2001:db8::1"), ip("198.51.100.1")]);
    assert_eq!(sorted("fd00::2", &found), [ip("198.51.100.1"), ip("2001:db8::1")]);
    assert_eq!(sorted("fd00::2", &["10.0.0.1", "fd00:9::1"]), [ip("fd00:9::1"), ip("10.0.0.1")]);
}
