use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;

use manyways_model::probe::cost::LimitReached;
use manyways_sys::interface;

use super::*;
use crate::probe::{Ending, Measurement, Network, Options, Report, measure};

fn loopback() -> Network {
    let all = interface::list().unwrap();
    Network::new(all.into_iter().find(|one| one.name == "lo").unwrap())
}

fn tcp(port: u16, count: u64) -> Ping {
    let interval = Ping::MIN_INTERVAL;
    Ping { method: PingMethod::Tcp(port), count, interval, ..Ping::new("127.0.0.1") }
}

async fn measured(ping: &Ping, options: &Options) -> Report {
    let network = loopback();
    measure(ping, &network, options, pending(), Arc::new(|_| {})).await.unwrap()
}

fn result(report: &Report) -> &PingReport {
    match &report.measurement {
        Some(Measurement::Ping(ping)) => ping,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_handshake_is_counted_and_costs_no_more_than_predicted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ping = tcp(listener.local_addr().unwrap().port(), 5);
    let report = measured(&ping, &Options::default()).await;
    assert!(matches!(report.ending, Ending::Complete), "{report:?}");
    let found = result(&report);
    assert_eq!((found.summary.sent, found.summary.received, found.refused), (5, 5, 0));
    assert!(report.used.up <= report.predicted.up && report.used.down <= report.predicted.down);
    assert_eq!((report.context.interface.as_str(), report.context.kind), ("lo", "loopback"));
}

#[tokio::test]
async fn a_refusal_is_an_answer() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let report = measured(&tcp(port, 3), &Options::default()).await;
    let found = result(&report);
    assert_eq!((found.summary.received, found.refused), (3, 3));
}

/// The packets before the limit remain.
#[tokio::test]
async fn a_data_limit_ends_the_probe_and_keeps_its_result() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ping = tcp(listener.local_addr().unwrap().port(), 50);
    let one = ping.one(ping.literal());
    let cap = Size::from_bytes(2 * (one.up + one.down).as_bytes() + 1);
    let ending = measured(&ping, &Options { cap: Some(cap), ..Options::default() }).await;
    assert!(matches!(ending.ending, Ending::Limit(LimitReached::Cap(_))), "{ending:?}");
    assert!(ending.used.up + ending.used.down <= cap);
}

#[tokio::test]
async fn the_caller_stops_a_probe_that_waits_for_its_turn() {
    let network = loopback();
    let _first = crate::probe::queue::turn(network.interface()).await;
    let ping = tcp(9, 1);
    let stop = async {};
    let report = measure(&ping, &network, &Options::default(), stop, Arc::new(|_| {})).await;
    let report = report.unwrap();
    assert!(matches!(report.ending, Ending::Stopped) && report.measurement.is_none());
    assert_eq!(report.attempts, 0);
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let valid = Ping::new("192.0.2.1");
    assert!(valid.plan().is_ok());
    for invalid in [
        Ping { count: 0, ..valid.clone() },
        Ping { count: Ping::MAX_COUNT + 1, ..valid.clone() },
        Ping { interval: Span::from_millis(1), ..valid.clone() },
        Ping { timeout: Span::ZERO, ..valid.clone() },
        Ping { timeout: Span::from_secs(3_600), interval: Ping::MIN_INTERVAL, ..valid.clone() },
    ] {
        assert!(invalid.plan().is_err(), "{invalid:?}");
    }
}

#[test]
fn an_address_of_six_has_larger_packets_and_a_name_is_looked_up() {
    let up = |target: &str| Ping::new(target).plan().unwrap().cost(None).up.as_bytes();
    assert_eq!(up("192.0.2.1"), 10 * 84);
    assert_eq!(up("2001:db8::1"), 10 * 104);
    assert_eq!(up("example.org"), 10 * 104 + 8 * 320);
}
