use super::*;

#[test]
fn an_answer_without_the_option_refuses() {
    let mut harness = Harness::new();
    harness.pass(1, Endpoint::Client, SYN, &[capable(1, &[], None)]);
    harness.ended(1, 1_010, [100, 200]);
    let row = harness.row();
    assert_eq!(row.fallback, Some(Fallback::Refused));
    assert_eq!(
        (row.subflows[0].is_accepted, row.share_of_primary(Endpoint::Client)),
        (Some(false), Some(1.0))
    );
}

#[test]
fn without_an_answer_nobody_knows() {
    let mut harness = Harness::new();
    harness.pass(1, Endpoint::Client, SYN, &[capable(1, &[], None)]);
    harness.connections.finish();
    assert_eq!(harness.row().fallback, None);
    // The options of the SYN/ACK were not captured completely.
    harness.pass(2, Endpoint::Client, SYN, &[capable(1, &[], None)]);
    harness.pass_cut(2, Endpoint::Server, SYN_ACK, &[capable(1, &KEYS[1..], None)], 4);
    harness.ended(2, 1_010, [100, 200]);
    let row = harness.row();
    assert_eq!((row.fallback, row.subflows[0].is_accepted), (None, None));
}

#[test]
fn a_client_that_says_no_more_is_not_confirmed() {
    let confirmed = |cut: Option<usize>| {
        let mut harness = Harness::new();
        harness.pass(1, Endpoint::Client, SYN, &[capable(1, &[], None)]);
        harness.pass(1, Endpoint::Server, SYN_ACK, &[capable(1, &KEYS[1..], None)]);
        if let Some(cut) = cut {
            harness.pass_cut(1, Endpoint::Client, ACK, &[capable(1, &KEYS, None)], cut);
        }
        harness.ended(1, 1_010, [100, 200]);
        harness.row().fallback
    };
    assert_eq!(confirmed(None), Some(Fallback::Unconfirmed));
    assert_eq!((confirmed(Some(0)), confirmed(Some(4))), (None, None));
}

#[test]
fn an_infinite_mapping_and_a_wrong_checksum() {
    let after = |options: &[(u8, Vec<u8>)]| {
        let mut harness = Harness::new();
        harness.begins(1, 1, KEYS);
        for (flags, option) in options {
            harness.pass(1, Endpoint::Server, *flags, std::slice::from_ref(option));
        }
        harness.ended(1, 1_010, [100, 200]);
        harness.row().fallback
    };
    let (infinite, fail) = (mapping(9, 1, 0), option(0x60, &[&[0; 9]]));
    assert_eq!(after(&[(ACK, mapping(9, 1, 1))]), None);
    assert_eq!(after(&[(ACK, infinite.clone())]), Some(Fallback::InfiniteMapping));
    assert_eq!(after(&[(ACK, fail.clone()), (ACK, infinite)]), Some(Fallback::Fail));
    assert_eq!(after(&[(RST, fail)]), None, "the others go on");
}

#[test]
fn a_join_that_is_refused_is_no_fallback() {
    let mut harness = Harness::new();
    harness.begins(1, 1, KEYS);
    harness.pass(2, Endpoint::Client, SYN, &[join_syn(derive_values(1, KEYS[1]).token)]);
    harness.pass(3, Endpoint::Client, SYN, &[join_syn(derive_values(1, KEYS[1]).token)]);
    harness.pass(3, Endpoint::Server, RST, &[option(0x80, &[&[3]])]);
    harness.ended(1, 1_010, [100, 300]);
    harness.ended(2, 1_040, [0, 0]);
    // The only response to this SYN is a reset.
    let handshake = Handshake { syn: Some(harness.now()), syns: 1, ..Handshake::default() };
    let summary = FlowSummary { started: harness.now(), handshake, bytes: [Some(0), None] };
    harness.connections.on_flow_end(3, &summary);
    let row = harness.row();
    assert_eq!(row.fallback, None);
    let accepted: Vec<Option<bool>> = row.subflows.iter().map(|s| s.is_accepted).collect();
    assert_eq!(accepted, [Some(true), Some(false), None]);
    assert_eq!((row.subflows[2].reset, row.subflows[2].bytes), (Some(3), [Some(0); 2]));
    assert_eq!((row.joined().count(), row.share_of_primary(Endpoint::Server)), (0, Some(1.0)));
}

#[test]
fn what_no_segment_told_stays_unknown() {
    // Only the client's direction was captured: the client continues after its SYN, so there was a
    // SYN/ACK.
    let mut harness = Harness::new();
    harness.pass(1, Endpoint::Client, SYN, &[capable(1, &[], None)]);
    harness.pass(1, Endpoint::Client, ACK, &[capable(1, &KEYS, None)]);
    let handshake = Handshake { syn: Some(harness.now()), syns: 1, ..Handshake::default() };
    let summary = FlowSummary { started: harness.now(), handshake, bytes: [Some(0), None] };
    harness.connections.on_flow_end(1, &summary);
    let row = harness.row();
    assert_eq!((row.bytes(Endpoint::Client), row.bytes(Endpoint::Server)), (Some(0), None));
    assert_eq!(row.share_of_primary_both(), None);
}
