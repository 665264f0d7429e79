use super::*;

#[test]
fn many_connections_each_find_their_joins() {
    let mut passing = Passing::new();
    for number in 0..3_000 {
        passing.begins(number, 1, [number + 1, number + 1_000_000]);
    }
    for number in 0..3_000 {
        passing.joins(number + 3_000, 1, [number + 1, number + 1_000_000]);
    }
    for flow in 0..6_000 {
        passing.ended(flow, 1_010, [1, 2]);
    }
    let rows = passing.rows();
    assert_eq!((rows.len(), passing.connections.dropped()), (3_000, Dropped::default()));
    for row in rows {
        let [primary, joined] = &row.subflows[..] else { panic!("{row:?}") };
        assert_eq!(joined.flow, primary.flow + 3_000);
    }
    passing.connections.finish();
    assert!(passing.connections.holds_nothing());
}

#[test]
fn there_is_a_limit_of_connections() {
    let mut passing = Passing::with(Limits { connections: 10, ..Limits::default() });
    for number in 0..1_000 {
        passing.begins(number, 1, [number, number + 5_000]);
        assert!(passing.connections.len() <= 11);
    }
    assert_eq!((passing.connections.dropped().evicted, passing.rows().len()), (990, 990));
    // Ended connections leave no state, either.
    for number in 1_000..2_000 {
        passing.begins(number, 1, [number, number + 5_000]);
        passing.ended(number, 1_010, [1, 1]);
        assert!(passing.connections.turns() <= 32, "{}", passing.connections.turns());
    }
    passing.connections.finish();
    assert!(passing.connections.holds_nothing());
}

#[test]
fn there_is_a_limit_of_subflows() {
    let limits = Limits { connections: 100, subflows: 60, each: 4, ..Limits::default() };
    let mut passing = Passing::with(limits);
    passing.begins(0, 1, KEYS);
    for flow in 1..20 {
        passing.joins(flow, 1, KEYS);
        passing.pass(flow, End::Client, ACK, &[maps(100, 1, 50)]);
    }
    assert_eq!((passing.connections.len(), passing.connections.dropped().subflows), (1, 16));
    for flow in 4..20 {
        passing.ended(flow, 1_010, [1, 1]);
    }
    assert!(passing.rows().is_empty());
    for flow in 0..4 {
        passing.ended(flow, 1_010, [1, 1]);
    }
    assert_eq!(passing.row().subflows.len(), 4);
    passing.connections.finish();
    assert!(passing.connections.holds_nothing());
    // Ignored subflows count, too.
    for number in 100..120 {
        passing.begins(number, 1, [number, number + 5_000]);
    }
    assert_eq!(passing.connections.dropped().evicted, 0);
    passing.begins(0, 1, KEYS);
    for flow in 1..42 {
        passing.joins(flow, 1, KEYS);
    }
    assert!(passing.connections.dropped().evicted > 0);
}

#[test]
fn who_is_silent_for_long_is_told() {
    let mut passing = Passing::with(Limits { idle: Span::from_secs(10), ..Limits::default() });
    passing.begins(1, 1, KEYS);
    passing.begins(2, 1, [3, 4]);
    passing.millis += 9_000;
    passing.pass(1, End::Client, ACK, &[maps(100, 1, 50)]);
    passing.millis += 9_000;
    passing.begins(3, 1, [5, 6]);
    let row = passing.row();
    assert_eq!((row.subflows[0].flow, row.is_complete), (2, false));
    assert_eq!(passing.connections.dropped().idle, 1);
    // The end of its flow has no effect any longer.
    passing.ended(2, 1_010, [1, 1]);
    assert!(passing.rows().is_empty());
}

#[test]
fn there_is_a_limit_of_addresses_and_namesakes() {
    let mut passing = Passing::new();
    passing.begins(1, 1, KEYS);
    for last in 0..20 {
        passing.pass(1, End::Server, ACK, &[option(0x30, &[&[last, 192, 0, 2, last]])]);
    }
    passing.ended(1, 1_010, [1, 1]);
    assert_eq!(passing.row().addresses.len(), ADDRESSES);
    assert_eq!(passing.connections.dropped().addresses, 4);
    for flow in 10..20 {
        passing.begins(flow, 1, [flow, KEYS[1]]);
    }
    assert_eq!(passing.connections.dropped().tokens, 6);
    passing.connections.finish();
    assert!(passing.connections.holds_nothing());
}
