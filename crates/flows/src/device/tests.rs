use std::net::IpAddr;

use manyways_unit::{Span, Time};
use proptest::prelude::*;

use super::*;

const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 16_5 like Mac OS X) Mobile/15E148";
const LAPTOP: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/120.0.0.0";
const APP: &str = "Example/100 CFNetwork/1410.0.3 Darwin/22.6.0";
const ROBOT: &str = "Mozilla/5.0 (Linux; Android 6.0.1) Mobile (compatible; Googlebot/2.1)";

fn at(secs: u64) -> Time {
    Time::from_millis(secs * 1_000)
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

/// A flow of the address that ends in `last`; times are in seconds.
fn flow(last: u8, started: u64, ended: u64, agent: &str) -> Flow {
    let agent = user_agent(agent);
    Flow { address: address(last), started: at(started), ended: at(ended), agent, tls: None }
}

fn pool(text: &str, handheld: bool) -> Pool {
    Pool { prefix: text.parse().unwrap(), handheld: Some(handheld), system: None }
}

fn lease(last: u8, from: u64, until: u64, hardware: u8, list: &str) -> Lease {
    Lease {
        address: address(last),
        from: at(from),
        until: at(until),
        hardware: Some([hardware, 0, 0, 0, 0, 1]),
        device: dhcp(Some(list), None),
    }
}

const MAC: &str = "1,121,3,6,15,119,252,95,44,46";
const ANDROID: &str = "1,3,6,15,26,28,51,58,59,43";

fn handheld(class: &Classification) -> Option<(bool, Evidence)> {
    class.handheld.map(|found| (found.value, found.evidence))
}

fn system(class: &Classification) -> Option<(System, Evidence)> {
    class.system.map(|found| (found.value, found.evidence))
}

#[test]
fn sights_of_one_flow_agree_or_leave_it_open() {
    let properties = |agents: &[&str]| {
        let all: Vec<_> = agents.iter().filter_map(|text| user_agent(text)).collect();
        DeviceProperties::combine(&all)
    };
    let phone = properties(&[APP, PHONE, APP]).unwrap();
    assert_eq!((phone.system, phone.handheld), (Some(System::Ios), Some(true)));
    // Darwin's version is not the version of iOS.
    assert_eq!((phone.version, phone.confidence), (Some((16, 5)), 0.9));
    let both = properties(&[PHONE, LAPTOP, PHONE]).unwrap();
    assert_eq!((both.system, both.handheld, both.version), (None, None, None));
    let tablets = properties(&["Android 12; Mobile", "Android 13; Mobile"]).unwrap();
    assert_eq!((tablets.system, tablets.version), (Some(System::Android), None));
    assert_eq!(properties(&[ROBOT, LAPTOP]).unwrap().system, Some(System::Windows));
    assert!(properties(&[ROBOT, ROBOT]).unwrap().robot);
    assert_eq!(properties(&[]), None);
}

#[test]
fn a_flow_is_what_its_user_agent_says() {
    let pools = [pool("192.0.2.0/24", false)];
    let leases = [lease(1, 0, 100, 0, MAC)];
    let class = classify(&[flow(1, 10, 20, PHONE)], &pools, &leases)[0];
    assert_eq!(handheld(&class), Some((true, Evidence::UserAgent)));
    assert_eq!(system(&class), Some((System::Ios, Evidence::UserAgent)));
    assert_eq!(class.handheld.unwrap().confidence, 0.95);
    assert_eq!((class.version, class.shared), (Some((16, 5)), false));
}

#[test]
fn a_flow_takes_over_what_is_said_beside_it() {
    let flows = [
        flow(1, 10, 20, PHONE),
        flow(1, 20, 30, ""),
        flow(1, 5, 10, ""),
        flow(1, 21, 30, ""),
        flow(1, 5, 9, ""),
        flow(2, 10, 20, ""),
        flow(1, 0, 100, ""),
        flow(1, 12, 13, APP),
    ];
    let classes = classify(&flows, &[], &[]);
    for (index, beside) in [(1, true), (2, true), (3, false), (4, false), (5, false), (6, true)] {
        let expected = beside.then_some((true, Evidence::Concurrent));
        assert_eq!(handheld(&classes[index]), expected, "flow {index}");
    }
    assert_eq!(system(&classes[1]), Some((System::Ios, Evidence::Concurrent)));
    assert!((classes[1].handheld.unwrap().confidence - 0.9 * 0.95).abs() < 1e-9);
    // An unknown system of Apple is refined.
    assert_eq!(system(&classes[7]), Some((System::Ios, Evidence::Concurrent)));
    assert_eq!(handheld(&classes[7]), Some((true, Evidence::Concurrent)));
    assert_eq!(classes[7].version, None);
}

#[test]
fn where_flows_contradict_each_other_many_share_the_address() {
    let flows = [
        flow(1, 10, 20, PHONE),
        flow(1, 15, 25, LAPTOP),
        flow(1, 17, 18, ""),
        flow(1, 22, 23, ""),
        flow(1, 30, 40, ""),
    ];
    let leases = [lease(1, 0, 100, 0, ANDROID)];
    let classes = classify(&flows, &[], &leases);
    let shared: Vec<_> = classes.iter().map(|class| class.shared).collect();
    assert_eq!(shared, [true, true, true, false, false]);
    // Evidence in the flow itself still counts.
    assert_eq!(handheld(&classes[0]), Some((true, Evidence::UserAgent)));
    assert_eq!(handheld(&classes[1]), Some((false, Evidence::UserAgent)));
    assert_eq!(handheld(&classes[2]), None);
    assert_eq!(handheld(&classes[3]), Some((false, Evidence::Concurrent)));
    assert_eq!(system(&classes[4]), Some((System::Android, Evidence::Dhcp)));
    let pooled = classify(&flows, &[pool("192.0.2.1", true)], &leases);
    assert_eq!(handheld(&pooled[2]), Some((true, Evidence::Pool)));
    assert_eq!(pooled[2].handheld.unwrap().confidence, 0.45);
    assert_eq!(pooled[4].handheld.unwrap().confidence, 0.9);
}

#[test]
fn two_phones_of_different_make_are_two_as_well() {
    let flows =
        [flow(1, 10, 20, PHONE), flow(1, 10, 20, "Android 13; Mobile"), flow(1, 11, 12, "")];
    let class = classify(&flows, &[], &[])[2];
    assert!(class.shared && class.handheld.is_none() && class.system.is_none());
}

#[test]
fn a_phone_and_a_television_are_two_though_their_system_is_one() {
    let television = "Android 9; BRAVIA 4K";
    let flows =
        [flow(1, 10, 20, television), flow(1, 10, 20, "Android 13; Mobile"), flow(1, 11, 12, "")];
    let class = classify(&flows, &[], &[])[2];
    assert!(class.shared && class.handheld.is_none() && class.system.is_none());
}

#[test]
fn robots_are_nobody() {
    let classes = classify(&[flow(1, 10, 20, ROBOT), flow(1, 10, 20, "")], &[], &[]);
    assert_eq!(classes, [Classification::default(); 2]);
}

#[test]
fn the_longest_pool_counts_and_the_lease_fills_in_what_it_leaves_open() {
    let pools = [pool("192.0.2.0/28", true), pool("192.0.2.0/24", false), pool("192.0.2.7", false)];
    let leases = [lease(1, 0, 100, 0, ANDROID), lease(7, 0, 100, 0, ANDROID)];
    let flows = [flow(1, 1, 2, ""), flow(7, 1, 2, ""), flow(100, 1, 2, "")];
    let classes = classify(&flows, &pools, &leases);
    assert_eq!(handheld(&classes[0]), Some((true, Evidence::Pool)));
    assert_eq!(system(&classes[0]), Some((System::Android, Evidence::Dhcp)));
    // The lease contradicts the pool on handheld: the lease is ignored as a whole.
    assert_eq!(handheld(&classes[1]), Some((false, Evidence::Pool)));
    assert_eq!(system(&classes[1]), None);
    assert_eq!(handheld(&classes[2]), Some((false, Evidence::Pool)));
}

#[test]
fn a_lease_holds_for_its_time_and_until_the_next() {
    let leases = [lease(1, 50, 60, 2, ANDROID), lease(1, 0, 100, 1, MAC), lease(3, 0, 9, 3, MAC)];
    let flows = [10, 50, 60, 61].map(|start| flow(1, start, start, ""));
    let found: Vec<_> = classify(&flows, &[], &leases).iter().map(system).collect();
    let mac = Some((System::MacOs, Evidence::Dhcp));
    let android = Some((System::Android, Evidence::Dhcp));
    assert_eq!(found, [mac, android, android, None]);
    assert_eq!(system(&classify(&[flow(2, 5, 6, "")], &[], &leases)[0]), None);
}

#[test]
fn the_hello_counts_last() {
    let hello = ja4("t13d2014h2_a09f3c656075_14788d8d241b").unwrap().device;
    let of = |leases: &[Lease]| {
        let flow = Flow { tls: hello, ..flow(1, 1, 2, "") };
        system(&classify(&[flow], &[], leases)[0])
    };
    assert_eq!(of(&[]), Some((System::Apple, Evidence::Tls)));
    assert_eq!(of(&[lease(1, 0, 9, 0, MAC)]), Some((System::MacOs, Evidence::Dhcp)));
    assert_eq!(of(&[lease(1, 0, 9, 0, ANDROID)]), Some((System::Android, Evidence::Dhcp)));
}

fn rows(flows: &[Flow], leases: &[Lease]) -> Vec<Device> {
    devices(flows, &classify(flows, &[], leases), leases, Gaps::default())
}

/// Start and end in seconds, and system, of each row.
fn spans(flows: &[Flow], leases: &[Lease]) -> Vec<(u64, u64, Option<System>)> {
    let secs = |time: Time| time.as_nanos() / 1_000_000_000;
    rows(flows, leases)
        .iter()
        .map(|row| (secs(row.first), secs(row.last), row.system.map(|found| found.value)))
        .collect()
}

#[test]
fn a_device_is_an_address_for_a_time() {
    let ios = Some(System::Ios);
    let flows = [
        flow(1, 1_000, 1_010, ""),
        flow(1, 10, 900, PHONE),
        flow(1, 20, 30, APP),
        // After 1 800 s, and after 1 801 s.
        flow(1, 2_810, 2_820, ""),
        flow(1, 4_621, 4_622, ""),
        flow(2, 15, 16, PHONE),
    ];
    assert_eq!(spans(&flows, &[]), [(10, 2_820, ios), (4_621, 4_622, None), (15, 16, ios)]);
    let first = &rows(&flows, &[])[0];
    assert_eq!((first.flows, first.shared), (4, false));
    assert_eq!(first.handheld.map(|found| found.evidence), Some(Evidence::UserAgent));
    // The concurrent flow determines the system of Apple on which the application runs.
    assert_eq!(first.evidence, [1, 1, 0, 0, 0]);
}

#[test]
fn a_contradiction_after_a_silence_is_somebody_else() {
    let (ios, windows) = (Some(System::Ios), Some(System::Windows));
    let later = [flow(1, 10, 20, PHONE), flow(1, 50, 60, LAPTOP)];
    assert_eq!(spans(&later, &[]), [(10, 20, ios), (50, 60, windows)]);
    let sooner = [flow(1, 10, 21, PHONE), flow(1, 50, 60, LAPTOP), flow(1, 55, 58, PHONE)];
    assert_eq!(spans(&sooner, &[]), [(10, 60, None)]);
    assert!(rows(&sooner, &[])[0].shared);
    // Two flows without overlap, too close for a new owner of the address.
    let turns = [flow(1, 10, 20, PHONE), flow(1, 30, 40, LAPTOP)];
    let shared = &rows(&turns, &[])[0];
    assert!(shared.shared && shared.handheld.is_none() && shared.flows == 2);
}

#[test]
fn other_hardware_is_somebody_else() {
    let leases = [lease(1, 0, 100, 2, ANDROID), lease(1, 100, 200, 4, MAC)];
    let flows = [flow(1, 90, 99, ""), flow(1, 100, 110, ""), flow(1, 250, 260, "")];
    let rows = rows(&flows, &leases);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].system.map(|found| found.value), Some(System::Android));
    assert_eq!(rows[0].hardware, Some([2, 0, 0, 0, 0, 1]));
    assert!(rows[0].hardware_is_local() && !rows[1].hardware_is_local());
    assert_eq!((rows[1].flows, rows[1].last), (2, at(260)));
}

#[test]
fn better_evidence_decides_for_a_device() {
    let leases = [lease(1, 0, 100, 0, ANDROID)];
    let flows = [flow(1, 10, 20, ""), flow(1, 30, 40, PHONE)];
    let row = &rows(&flows, &leases)[0];
    let found = row.system.unwrap();
    assert_eq!((found.value, found.evidence), (System::Ios, Evidence::UserAgent));
    assert_eq!(row.evidence, [1, 0, 0, 1, 0]);
    assert_eq!(devices(&[], &[], &[], Gaps { idle: Span::ZERO, changed: Span::ZERO }), []);
}

proptest! {
    /// Reference implementation: compares each flow with each concurrent flow.
    #[test]
    fn it_is_what_comparing_each_with_each_gives(
        drawn in prop::collection::vec((0_u8..2, 0_u64..40, 0_u64..10, 0_usize..5), 0..30),
    ) {
        let agents = [PHONE, LAPTOP, APP, "", ""];
        let flows: Vec<_> = drawn
            .iter()
            .map(|(last, start, life, agent)| flow(*last, *start, start + life, agents[*agent]))
            .collect();
        let classes = classify(&flows, &[], &[]);
        for (one, class) in flows.iter().zip(&classes) {
            let beside = || flows.iter().filter(|other| {
                other.address == one.address
                    && other.started <= one.ended
                    && other.ended >= one.started
            });
            let says = |agent: &str| beside().any(|other| other.agent == user_agent(agent));
            let (phone, laptop, app) = (says(PHONE), says(LAPTOP), says(APP));
            prop_assert_eq!(class.shared, laptop && (phone || app));
            let own = one.agent.and_then(|properties| properties.handheld);
            let taken = match (phone, laptop) {
                _ if class.shared => None,
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            };
            prop_assert_eq!(class.handheld.map(|found| found.value), own.or(taken));
        }
        let rows = devices(&flows, &classes, &[], Gaps::default());
        prop_assert_eq!(rows.iter().map(|row| row.flows).sum::<u64>(), flows.len() as u64);
        prop_assert!(rows.iter().all(|row| row.first <= row.last));
    }
}
