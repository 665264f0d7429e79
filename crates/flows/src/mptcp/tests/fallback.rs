use super::*;

#[test]
fn an_answer_without_the_option_refuses() {
    let mut passing = Passing::new();
    passing.pass(1, End::Client, SYN, &[capable(1, &[], None)]);
    passing.ended(1, 1_010, [100, 200]);
    let row = passing.row();
    assert_eq!(row.fallback, Some(Fallback::Refused));
    assert_eq!(
        (row.subflows[0].is_accepted, row.share_of_primary(End::Client)),
        (Some(false), Some(1.0))
    );
}

#[test]
fn without_an_answer_nobody_knows() {
    let mut passing = Passing::new();
    passing.pass(1, End::Client, SYN, &[capable(1, &[], None)]);
    passing.connections.finish();
    assert_eq!(passing.row().fallback, None);
    // The options of the SYN/ACK were not captured completely.
    passing.pass(2, End::Client, SYN, &[capable(1, &[], None)]);
    passing.pass_cut(2, End::Server, SYN_ACK, &[capable(1, &KEYS[1..], None)], 4);
    passing.ended(2, 1_010, [100, 200]);
    let row = passing.row();
    assert_eq!((row.fallback, row.subflows[0].is_accepted), (None, None));
}

#[test]
fn a_client_that_says_no_more_is_not_confirmed() {
    let confirmed = |cut: Option<usize>| {
        let mut passing = Passing::new();
        passing.pass(1, End::Client, SYN, &[capable(1, &[], None)]);
        passing.pass(1, End::Server, SYN_ACK, &[capable(1, &KEYS[1..], None)]);
        if let Some(cut) = cut {
            passing.pass_cut(1, End::Client, ACK, &[capable(1, &KEYS, None)], cut);
        }
        passing.ended(1, 1_010, [100, 200]);
        passing.row().fallback
    };
    assert_eq!(confirmed(None), Some(Fallback::Unconfirmed));
    assert_eq!((confirmed(Some(0)), confirmed(Some(4))), (None, None));
}

#[test]
fn an_infinite_mapping_and_a_wrong_checksum() {
    let after = |options: &[(u8, Vec<u8>)]| {
        let mut passing = Passing::new();
        passing.begins(1, 1, KEYS);
        for (flags, option) in options {
            passing.pass(1, End::Server, *flags, std::slice::from_ref(option));
        }
        passing.ended(1, 1_010, [100, 200]);
        passing.row().fallback
    };
    let (infinite, fail) = (maps(9, 1, 0), option(0x60, &[&[0; 9]]));
    assert_eq!(after(&[(ACK, maps(9, 1, 1))]), None);
    assert_eq!(after(&[(ACK, infinite.clone())]), Some(Fallback::InfiniteMapping));
    assert_eq!(after(&[(ACK, fail.clone()), (ACK, infinite)]), Some(Fallback::Fail));
    assert_eq!(after(&[(RST, fail)]), None, "the others go on");
}

#[test]
fn a_join_that_is_refused_is_no_fallback() {
    let mut passing = Passing::new();
    passing.begins(1, 1, KEYS);
    passing.pass(2, End::Client, SYN, &[ask(hashed(1, KEYS[1]).token)]);
    passing.pass(3, End::Client, SYN, &[ask(hashed(1, KEYS[1]).token)]);
    passing.pass(3, End::Server, RST, &[option(0x80, &[&[3]])]);
    passing.ended(1, 1_010, [100, 300]);
    passing.ended(2, 1_040, [0, 0]);
    // The only response to this SYN is a reset.
    let handshake = Handshake { syn: Some(passing.now()), syns: 1, ..Handshake::default() };
    let summary = Summary { started: passing.now(), handshake, bytes: [Some(0), None] };
    passing.connections.ended(3, &summary);
    let row = passing.row();
    assert_eq!(row.fallback, None);
    let accepted: Vec<Option<bool>> = row.subflows.iter().map(|s| s.is_accepted).collect();
    assert_eq!(accepted, [Some(true), Some(false), None]);
    assert_eq!((row.subflows[2].reset, row.subflows[2].bytes), (Some(3), [Some(0); 2]));
    assert_eq!((row.joined().count(), row.share_of_primary(End::Server)), (0, Some(1.0)));
}

#[test]
fn what_no_segment_told_stays_unknown() {
    // Only the client's direction was captured: the client continues after its SYN, so there was a
    // SYN/ACK.
    let mut passing = Passing::new();
    passing.pass(1, End::Client, SYN, &[capable(1, &[], None)]);
    passing.pass(1, End::Client, ACK, &[capable(1, &KEYS, None)]);
    let handshake = Handshake { syn: Some(passing.now()), syns: 1, ..Handshake::default() };
    let summary = Summary { started: passing.now(), handshake, bytes: [Some(0), None] };
    passing.connections.ended(1, &summary);
    let row = passing.row();
    assert_eq!((row.bytes(End::Client), row.bytes(End::Server)), (Some(0), None));
    assert_eq!(row.share_of_primary_both(), None);
}
