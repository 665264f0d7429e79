use std::collections::HashMap;

use manyways_trace::scenario::{CapacitySpec, DelaySpec, DirectionSpec};
use manyways_unit::{Rate, Size};
use proptest::prelude::*;

use super::*;
use crate::{Output, Packet, Pipe};

const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));
const FAR: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2606, 0x2800, 0x220, 0, 0, 0, 0, 1));

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

#[test]
fn both_ways_together_are_the_round_trip() {
    let odd = Span::from_nanos(40_000_001);
    let distances = Distances::new([(NEAR, Span::ZERO), (FAR, odd)]);
    assert_eq!(distances.to_host(FAR) + distances.to_link(FAR), odd);
    assert_eq!(distances.to_host(FAR), Span::from_millis(20));
    let unknown = IpAddr::from([192, 0, 2, 1]);
    for address in [NEAR, unknown] {
        assert!(distances.to_host(address).is_zero() && distances.to_link(address).is_zero());
    }
}

#[test]
fn addresses_without_a_delay_are_not_looked_up() {
    assert!(Distances::new([(NEAR, Span::ZERO)]).is_empty());
    assert!(!Distances::new([(NEAR, Span::ZERO), (FAR, Span::from_millis(1))]).is_empty());
}

/// Sends packets alternately to both addresses over one link, and returns when each reaches its
/// host: (time, id).
fn arrivals(distances: &Distances, count: u64) -> Vec<(Time, u64)> {
    let spec = DirectionSpec {
        // One packet in 10 ms.
        capacity: CapacitySpec::Constant(Rate::from_bps(1_200_000)),
        delay: DelaySpec::Constant(Span::from_millis(5)),
        ..DirectionSpec::default()
    };
    let (mut pipe, mut transit) = (Pipe::new(&spec, 1), Transit::default());
    let size = Size::from_bytes(1500);
    for id in 0..count {
        pipe.handle(at(0), Packet { id, segments: 1, segment: size, last: size });
    }
    let mut arrivals = Vec::new();
    while let Some(now) = pipe.next_wakeup().into_iter().chain(transit.next_wakeup()).min() {
        while let Some(output) = pipe.poll(now) {
            let Output::Deliver { at, id, .. } = output else { panic!("{output:?}") };
            let host = if id % 2 == 0 { FAR } else { NEAR };
            transit.push(at + distances.to_host(host), id);
        }
        while let Some((due, id)) = transit.poll(now) {
            assert_eq!(due, now);
            arrivals.push((due, id));
        }
    }
    arrivals
}

#[test]
fn a_distance_delays_one_host_and_leaves_the_link_as_it_is() {
    let together = arrivals(&Distances::default(), 4);
    assert_eq!(together, [(at(15), 0), (at(25), 1), (at(35), 2), (at(45), 3)]);
    let apart = arrivals(&Distances::new([(FAR, Span::from_millis(50))]), 4);
    // The packets of the near host leave the bottleneck when they did before, and overtake.
    assert_eq!(apart, [(at(25), 1), (at(40), 0), (at(45), 3), (at(60), 2)]);
}

proptest! {
    /// Items of one host depart in the order of time.
    #[test]
    fn items_arrive_on_time_and_those_of_one_host_in_order(
        departures in prop::collection::vec((0_u64..3, 0_usize..5), 0..200),
        distances in prop::array::uniform5(0_u64..20),
    ) {
        let (mut transit, mut clock) = (Transit::default(), 0);
        let mut expected = Vec::new();
        for (rank, (pause, host)) in departures.into_iter().enumerate() {
            clock += pause;
            let due = at(clock + distances[host]);
            transit.push(due, (host, rank));
            expected.push((due, host, rank));
        }
        let mut last_of: HashMap<usize, usize> = HashMap::new();
        let mut arrived = Vec::new();
        while let Some(now) = transit.next_wakeup() {
            if let Some(before) = now.as_nanos().checked_sub(1) {
                prop_assert!(transit.poll(Time::from_nanos(before)).is_none());
            }
            while let Some((due, (host, rank))) = transit.poll(now) {
                prop_assert_eq!(due, now);
                prop_assert!(last_of.insert(host, rank).is_none_or(|last| last < rank));
                arrived.push((due, host, rank));
            }
        }
        expected.sort_by_key(|(due, _, rank)| (*due, *rank));
        prop_assert_eq!(arrived, expected);
    }
}
