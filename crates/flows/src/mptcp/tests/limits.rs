use super::*;

#[test]
fn many_connections_each_find_their_joins() {
    let mut harness = Harness::new();
    for number in 0..3_000 {
        harness.begins(number, 1, [number + 1, number + 1_000_000]);
    }
    for number in 0..3_000 {
        harness.joins(number + 3_000, 1, [number + 1, number + 1_000_000]);
    }
    for flow in 0..6_000 {
        harness.ended(flow, 1_010, [1, 2]);
    }
    let rows = harness.rows();
    assert_eq!((rows.len(), harness.connections.dropped()), (3_000, Dropped::default()));
    for row in rows {
        let [primary, joined] = &row.subflows[..] else { panic!("{row:?}") };
        assert_eq!(joined.flow, primary.flow + 3_000);
    }
    harness.connections.finish();
    assert!(harness.connections.is_drained());
}

#[test]
fn there_is_a_limit_of_connections() {
    let mut harness = Harness::with(Limits { connections: 10, ..Limits::default() });
    for number in 0..1_000 {
        harness.begins(number, 1, [number, number + 5_000]);
        assert!(harness.connections.len() <= 11);
    }
    assert_eq!((harness.connections.dropped().evicted, harness.rows().len()), (990, 990));
    // Ended connections leave no state, either.
    for number in 1_000..2_000 {
        harness.begins(number, 1, [number, number + 5_000]);
        harness.ended(number, 1_010, [1, 1]);
        assert!(
            harness.connections.queued_examinations() <= 32,
            "{}",
            harness.connections.queued_examinations()
        );
    }
    harness.connections.finish();
    assert!(harness.connections.is_drained());
}

#[test]
fn there_is_a_limit_of_subflows() {
    let limits =
        Limits { connections: 100, subflows: 60, subflows_per_connection: 4, ..Limits::default() };
    let mut harness = Harness::with(limits);
    harness.begins(0, 1, KEYS);
    for flow in 1..20 {
        harness.joins(flow, 1, KEYS);
        harness.pass(flow, Endpoint::Client, ACK, &[mapping(100, 1, 50)]);
    }
    assert_eq!((harness.connections.len(), harness.connections.dropped().subflows), (1, 16));
    for flow in 4..20 {
        harness.ended(flow, 1_010, [1, 1]);
    }
    assert!(harness.rows().is_empty());
    for flow in 0..4 {
        harness.ended(flow, 1_010, [1, 1]);
    }
    assert_eq!(harness.row().subflows.len(), 4);
    harness.connections.finish();
    assert!(harness.connections.is_drained());
    // Ignored subflows count, too.
    for number in 100..120 {
        harness.begins(number, 1, [number, number + 5_000]);
    }
    assert_eq!(harness.connections.dropped().evicted, 0);
    harness.begins(0, 1, KEYS);
    for flow in 1..42 {
        harness.joins(flow, 1, KEYS);
    }
    assert!(harness.connections.dropped().evicted > 0);
}

#[test]
fn who_is_silent_for_long_is_told() {
    let mut harness = Harness::with(Limits { idle: Span::from_secs(10), ..Limits::default() });
    harness.begins(1, 1, KEYS);
    harness.begins(2, 1, [3, 4]);
    harness.millis += 9_000;
    harness.pass(1, Endpoint::Client, ACK, &[mapping(100, 1, 50)]);
    harness.millis += 9_000;
    harness.begins(3, 1, [5, 6]);
    let row = harness.row();
    assert_eq!((row.subflows[0].flow, row.is_complete), (2, false));
    assert_eq!(harness.connections.dropped().idle, 1);
    // The end of its flow has no effect any longer.
    harness.ended(2, 1_010, [1, 1]);
    assert!(harness.rows().is_empty());
}

#[test]
fn a_connection_outlives_its_flows() {
    for idle in [1, 300, 3_600, 86_400].map(Span::from_secs) {
        assert!(Limits::with_flow_timeout(idle).idle > idle);
    }
    assert_eq!(Limits::with_flow_timeout(Span::from_secs(300)), Limits::default());
}

#[test]
fn there_is_a_limit_of_addresses_and_namesakes() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    for last in 0..20 {
        harness.pass(1, Endpoint::Server, ACK, &[option(0x30, &[&[last, 192, 0, 2, last]])]);
    }
    harness.ended(1, 1_010, [1, 1]);
    assert_eq!(harness.row().addresses.len(), MAX_ADDRESSES);
    assert_eq!(harness.connections.dropped().addresses, 4);
    for flow in 10..20 {
        harness.begins(flow, 1, [flow, KEYS[1]]);
    }
    assert_eq!(harness.connections.dropped().tokens, 6);
    harness.connections.finish();
    assert!(harness.connections.is_drained());
}
