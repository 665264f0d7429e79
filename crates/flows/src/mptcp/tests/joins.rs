use super::*;

/// A connection with a joined subflow: 3,000 and 50,000 bytes in the primary subflow, 1,000 and
/// 150,000 in the joined one.
fn two_subflows(version: u8) -> Connection {
    let mut harness = Harness::new();
    harness.begins(1, version, KEYS);
    harness.joins(2, version, KEYS);
    harness.ended(1, 1_010, [3_000, 50_000]);
    assert!(harness.rows().is_empty(), "a subflow is there yet");
    harness.ended(2, 1_040, [1_000, 150_000]);
    harness.row()
}

#[test]
fn a_token_joins_in_both_versions() {
    for version in [0, 1] {
        let row = two_subflows(version);
        assert_eq!((row.version, row.fallback, row.is_complete), (Some(version), None, true));
        assert_eq!(row.tokens, KEYS.map(|key| Some(derive_values(version, key).token)));
        let [primary, joined] = &row.subflows[..] else { panic!("{row:?}") };
        assert_eq!([primary.role, joined.role], [Role::Primary, Role::Joined]);
        assert_eq!([primary.flow, joined.flow], [1, 2]);
        assert_eq!([primary.is_accepted, joined.is_accepted], [Some(true); 2]);
        assert_eq!([primary.is_verified, joined.is_verified], [None, Some(true)]);
        assert_eq!(joined.addresses, [Some(7), Some(9)]);
        assert_eq!(row.joined().count(), 1);
    }
}

#[test]
fn shares_and_delays() {
    let row = two_subflows(1);
    assert_eq!(
        [Endpoint::Client, Endpoint::Server].map(|end| row.bytes(end)),
        [Some(4_000), Some(200_000)]
    );
    assert_eq!(row.share_of_primary(Endpoint::Client), Some(0.75));
    assert_eq!(row.share_of_primary(Endpoint::Server), Some(0.25));
    assert_eq!(row.share_of_primary_both(), Some(53_000.0 / 204_000.0));
    let joined = &row.subflows[1];
    assert_eq!(joined.handshake_delay(), Some(Span::from_millis(50)));
    assert_eq!(row.join_delay(joined), Some(Span::from_millis(30)));
}

#[test]
fn an_end_of_a_capture_ends_all() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    harness.joins(2, 1, KEYS);
    harness.ended(1, 1_010, [1, 2]);
    harness.connections.finish();
    let row = harness.row();
    assert!(!row.is_complete && harness.connections.is_drained());
    assert_eq!((row.subflows[0].bytes, row.subflows[1].bytes), ([Some(1), Some(2)], [None; 2]));
    assert_eq!(row.share_of_primary(Endpoint::Client), None, "it is not known of one");
}

#[test]
fn a_wrong_token_joins_nothing_and_the_same_one_is_one_connection() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    // Two joins of a connection that began before the capture, and one of another.
    for (flow, token) in [(2, 5), (3, 5), (4, 6)] {
        harness.pass(flow, Endpoint::Client, SYN, &[join_syn(token)]);
        harness.pass(flow, Endpoint::Server, SYN_ACK, &[join_syn_ack(1, KEYS)]);
    }
    harness.connections.finish();
    let flows: Vec<Vec<u64>> = harness
        .rows()
        .iter()
        .map(|row| row.subflows.iter().map(|subflow| subflow.flow).collect())
        .collect();
    assert_eq!(flows, [vec![1], vec![2, 3], vec![4]]);
}

#[test]
fn a_join_without_its_connection_has_no_primary() {
    let mut harness = Harness::new();
    harness.joins(2, 1, KEYS);
    harness.ended(2, 1_010, [10, 20]);
    let row = harness.row();
    assert_eq!((row.version, row.tokens[0]), (None, None));
    assert_eq!(row.tokens[1], Some(derive_values(1, KEYS[1]).token));
    assert_eq!((row.subflows[0].role, row.subflows[0].is_verified), (Role::Joined, None));
    assert_eq!((row.primary(), row.share_of_primary(Endpoint::Client)), (None, None));
    assert_eq!(row.bytes(Endpoint::Server), Some(20));
}

#[test]
fn what_began_before_the_capture_is_alone() {
    let mut harness = Harness::new();
    harness.pass(1, Endpoint::Client, ACK, &[mapping(100, 1, 50)]);
    harness.pass(2, Endpoint::Client, ACK, &[option(0x10, &[&[0], &[5; 20]])]);
    harness.connections.finish();
    let roles: Vec<Role> = harness.rows().iter().map(|row| row.subflows[0].role).collect();
    assert_eq!(roles, [Role::Unknown, Role::Joined]);
}

#[test]
fn one_direction_is_enough() {
    // Only the client's direction: the third segment of its handshake has both keys.
    for version in [0, 1] {
        let mut harness = Harness::new();
        harness.pass(
            1,
            Endpoint::Client,
            SYN,
            &[capable(version, &KEYS[..1 - usize::from(version)], None)],
        );
        harness.pass(1, Endpoint::Client, ACK, &[capable(version, &KEYS, None)]);
        harness.pass(2, Endpoint::Client, SYN, &[join_syn(derive_values(version, KEYS[1]).token)]);
        harness.connections.finish();
        assert_eq!(harness.row().subflows.len(), 2);
        // Only the server's direction: the token of the join never passes.
        let mut harness = Harness::new();
        harness.pass(1, Endpoint::Server, SYN_ACK, &[capable(version, &KEYS[1..], None)]);
        harness.pass(2, Endpoint::Server, SYN_ACK, &[join_syn_ack(version, KEYS)]);
        harness.connections.finish();
        assert_eq!(harness.rows().len(), 2);
    }
}

#[test]
fn the_server_may_speak_a_lower_version() {
    let mut harness = Harness::new();
    harness.pass(1, Endpoint::Client, SYN, &[capable(1, &[], None)]);
    harness.pass(1, Endpoint::Server, SYN_ACK, &[capable(0, &KEYS[1..], None)]);
    harness.pass(1, Endpoint::Client, ACK, &[capable(0, &KEYS, None)]);
    harness.joins(2, 0, KEYS);
    harness.connections.finish();
    let row = harness.row();
    assert_eq!((row.version, row.subflows.len()), (Some(0), 2));
    assert_eq!(row.subflows[1].is_verified, Some(true));
}

#[test]
fn a_server_may_join_its_client() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    let [client, server] = KEYS;
    // The server of the connection is the client of this flow.
    harness.joins(2, 1, [server, client]);
    harness.pass(2, Endpoint::Client, ACK, &[mapping(500, 1, 70)]);
    harness.ended(1, 1_010, [30, 100]);
    harness.ended(2, 1_040, [300, 10]);
    let row = harness.row();
    let joined = &row.subflows[1];
    assert!(joined.is_reversed && joined.is_verified == Some(true));
    assert_eq!((joined.addresses, joined.bytes), ([Some(9), Some(7)], [Some(10), Some(300)]));
    assert_eq!((joined.is_accepted, row.data), (Some(true), [None, Some(70)]));
    assert_eq!(row.share_of_primary(Endpoint::Server), Some(0.25));
}

/// Two keys with the same token in version 0, found by search.
const SAME_TOKEN_KEYS: [u64; 2] = [61024, 82149];

#[test]
fn of_two_with_the_same_token_the_answer_tells() {
    let [one, other] = SAME_TOKEN_KEYS;
    assert_eq!(derive_values(0, one).token, derive_values(0, other).token);
    for is_reversed in [false, true] {
        let mut harness = Harness::new();
        harness.begins(1, 0, if is_reversed { [one, 77] } else { [77, one] });
        harness.begins(2, 0, [88, other]);
        harness.joins(3, 0, [77, one]);
        harness.joins(4, 0, [88, other]);
        // A join with an invalid HMAC stays with the latest connection.
        harness.joins(5, 0, [99, other]);
        harness.connections.finish();
        let rows = harness.rows();
        let of = |row: &Connection| row.subflows.iter().map(|s| s.flow).collect::<Vec<_>>();
        assert_eq!([of(&rows[0]), of(&rows[1])], [vec![1, 3], vec![2, 4, 5]]);
        let verified = rows[1].subflows.iter().map(|s| s.is_verified).collect::<Vec<_>>();
        assert_eq!(verified, [None, Some(true), Some(false)]);
        let moved = &rows[0].subflows[1];
        assert_eq!((moved.is_verified, moved.is_reversed), (Some(true), is_reversed));
        let addresses = if is_reversed { [Some(9), Some(7)] } else { [Some(7), Some(9)] };
        assert_eq!(moved.addresses, addresses);
        assert!(harness.connections.is_drained());
    }
}

#[test]
fn a_backup_may_be_wanted_later() {
    let is_backup = |options: &[(Endpoint, Vec<u8>)]| {
        let mut harness = Harness::new();
        harness.begins(1, 1, KEYS);
        harness.pass(2, Endpoint::Client, SYN, &[join_syn(derive_values(1, KEYS[1]).token)]);
        for (end, option) in options {
            harness.pass(2, *end, ACK, std::slice::from_ref(option));
        }
        harness.connections.finish();
        harness.row().subflows.iter().map(|s| s.is_backup).collect::<Vec<_>>()
    };
    let wanted = option(0x51, &[]);
    assert_eq!(is_backup(&[]), [false, false]);
    assert_eq!(is_backup(&[(Endpoint::Client, wanted.clone())]), [false, true]);
    let no_more = [(Endpoint::Client, wanted.clone()), (Endpoint::Client, option(0x50, &[]))];
    assert_eq!(is_backup(&no_more), [false, false]);
    let of_other = [(Endpoint::Client, wanted), (Endpoint::Server, option(0x50, &[]))];
    assert_eq!(is_backup(&of_other), [false, true], "the other end wants it yet");
    assert_eq!(is_backup(&[(Endpoint::Client, option(0x51, &[&[7]]))]), [false, true]);
    assert_eq!(is_backup(&[(Endpoint::Client, option(0x51, &[&[8]]))]), [false, false]);
}

#[test]
fn addresses_come_and_go() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    let add = |low: u8, id: u8, last: u8| option(0x30 | low, &[&[id, 192, 0, 2, last], &[1, 187]]);
    harness.pass(1, Endpoint::Server, ACK, &[add(0, 2, 8), add(0, 3, 9)]);
    harness.pass(1, Endpoint::Client, ACK, &[add(1, 2, 8)]);
    harness.pass(1, Endpoint::Server, ACK, &[option(0x40, &[&[2]])]);
    harness.pass(1, Endpoint::Server, ACK, &[add(0, 2, 8)]);
    harness.pass(1, Endpoint::Client, ACK, &[option(0x40, &[&[2]])]);
    harness.pass(1, Endpoint::Server, ACK, &[option(0x40, &[&[3, 4]])]);
    harness.connections.finish();
    let [eight, nine] = &harness.row().addresses[..] else { panic!() };
    assert_eq!((eight.end, eight.id, eight.port), (Endpoint::Server, 2, Some(443)));
    assert_eq!(eight.address.to_string(), "192.0.2.8");
    assert_eq!([eight.is_withdrawn, nine.is_withdrawn], [false, true]);
}

#[test]
fn bytes_count_once_however_often_they_are_sent() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    harness.joins(2, 1, KEYS);
    let first = derive_values(1, KEYS[0]).idsn;
    // The first bytes arrive with the keys, and once more.
    for _ in 0..2 {
        harness.pass(1, Endpoint::Client, ACK, &[capable(1, &KEYS, Some(100))]);
    }
    harness.pass(1, Endpoint::Client, ACK, &[mapping(first + 100, 101, 200)]);
    // The same mapping in each of its segments; then the bytes that the other subflow lost.
    for _ in 0..3 {
        harness.pass(2, Endpoint::Client, ACK, &[mapping(first + 300, 1, 400)]);
    }
    harness.pass(2, Endpoint::Client, ACK, &[mapping(first + 100, 401, 200)]);
    let mut last = mapping(first + 700, 0, 1);
    last[3] |= 0x10;
    harness.pass(1, Endpoint::Client, ACK, &[last]);
    harness.connections.finish();
    let row = harness.row();
    assert_eq!((row.data, row.reinjected), ([Some(700), None], [Some(200), None]));
    assert_eq!(row.subflows[0].mapped, [Some(300), None]);
    assert_eq!(row.subflows[1].mapped, [Some(600), None]);
}

/// A reinjection needs another subflow: an endpoint may also map the same data again as new bytes of
/// the only one.
#[test]
fn one_subflow_reinjects_nothing() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    harness.pass(1, Endpoint::Server, ACK, &[mapping(1_000, 1, 500)]);
    harness.pass(1, Endpoint::Server, ACK, &[mapping(1_000, 501, 500)]);
    harness.connections.finish();
    let row = harness.row();
    assert_eq!(row.reinjected, [None, Some(0)]);
    assert_eq!(row.data[1], row.subflows[0].mapped[1]);
}

/// Above the limit of gaps the lowest are forgotten; what then fills them was not reinjected.
#[test]
fn forgotten_gaps_are_not_reinjected() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    harness.joins(2, 1, KEYS);
    let maps = |harness: &mut Harness, flow, first: u64| {
        harness.pass(flow, Endpoint::Server, ACK, &[mapping(first, first as u32, 10)]);
    };
    (0..200).for_each(|step| maps(&mut harness, 1, 2_000 + 20 * step));
    (0..200).for_each(|step| maps(&mut harness, 2, 2_010 + 20 * step));
    harness.connections.finish();
    assert_eq!(harness.row().reinjected, [None, Some(0)]);
}

#[test]
fn short_numbers_wrap() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    let short = |data: u32, subflow: u32| {
        let numbers = [data.to_be_bytes(), subflow.to_be_bytes()].concat();
        option(0x20, &[&[0x04], &numbers, &[0, 100]])
    };
    let begin = u32::MAX - 149;
    for number in 0..3 {
        harness.pass(
            1,
            Endpoint::Server,
            ACK,
            &[short(begin.wrapping_add(number * 100), 1 + number * 100)],
        );
    }
    harness.pass(1, Endpoint::Server, ACK, &[mapping((5 << 32) + 50, 201, 150)]);
    harness.connections.finish();
    assert_eq!(harness.row().data, [None, Some(350)]);
}
