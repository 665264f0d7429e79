mod auto;
mod decisions;
mod examples;
mod lint;
mod parsing;
mod random;

use manyways_unit::{Rate, Size, Span, Time};

use super::*;
use crate::sched::{PathId, PathSet, StreamPolicy};

const WIFI: PathId = PathId(0);
const LTE: PathId = PathId(1);

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn set<const N: usize>(ids: [PathId; N]) -> PathSet {
    ids.into_iter().collect()
}

/// A phone with Wi-Fi and LTE, with all values known and good.
fn phone_environment() -> Environment {
    let path = |id, name: &str, kind: &str, mbps, rtt| PathFacts {
        rate: Some(Rate::from_mbps(mbps)),
        load: Some(0.1),
        rtt: Some(Span::from_millis(rtt)),
        loss: Some(0.0),
        ..PathFacts::new(id, name, kind)
    };
    let mut lte = path(LTE, "wwan0", "cellular", 20, 60);
    lte.metered = true;
    lte.plan_used = Some(Size::from_bytes(1_000_000_000));
    Environment {
        paths: vec![path(WIFI, "wlan0", "wifi", 50, 20), lte],
        battery: Some(80),
        charging: Some(false),
        ..Environment::default()
    }
}

fn engine(text: &str) -> Engine {
    let mut engine = Engine::new(Policy::parse(text).unwrap());
    engine.observe(Time::ZERO, &phone_environment());
    engine
}

fn stream_policy(decision: Decision) -> StreamPolicy {
    match decision {
        Decision::Bond(treatment) => treatment,
        other => panic!("{other:?}"),
    }
}

fn web<'a>(domain: &'a str) -> Flow<'a> {
    Flow { domain: Some(domain), ..Flow::new(Protocol::Tcp, 443) }
}
