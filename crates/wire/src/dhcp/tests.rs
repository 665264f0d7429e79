use manyways_unit::Time;
use proptest::prelude::*;

use super::*;

const PHONE: [u8; 6] = [2, 0, 0, 0, 0, 9];
const LAPTOP: [u8; 6] = [2, 0, 0, 0, 0, 8];
const NINE: [u8; 4] = [192, 0, 2, 9];
const EIGHT: [u8; 4] = [192, 0, 2, 8];
const NONE: [u8; 4] = [0; 4];

/// A message with these options; the addresses are `ciaddr` and `yiaddr`.
fn message(
    kind: u8,
    exchange: u32,
    host: [u8; 6],
    [client, assigned]: [[u8; 4]; 2],
    options: &[(u8, &[u8])],
) -> Vec<u8> {
    let is_reply = matches!(kind, 2 | 5 | 6);
    let mut bytes = vec![1 + u8::from(is_reply), 1, 6, 0];
    bytes.extend(exchange.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([client, assigned, NONE, NONE].concat());
    bytes.extend(host);
    bytes.resize(236, 0);
    bytes.extend([99, 130, 83, 99, 53, 1, kind]);
    for (code, value) in options {
        bytes.extend([*code, value.len() as u8]);
        bytes.extend_from_slice(value);
    }
    bytes.push(255);
    bytes
}

fn read(bytes: &[u8]) -> Option<Message> {
    Message::read(bytes, bytes.len())
}

fn pass(leases: &mut Leases, now: u64, bytes: &[u8]) {
    leases.handle(seconds(now), &read(bytes).unwrap());
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn drain(leases: &mut Leases) -> Vec<Lease> {
    std::iter::from_fn(|| leases.poll()).collect()
}

fn all(mut leases: Leases) -> Vec<Lease> {
    leases.finish();
    drain(&mut leases)
}

const ASKS: [(u8, &[u8]); 3] =
    [(55, &[1, 3, 6, 15, 26, 252]), (60, b"android-dhcp-14"), (12, b"Phone of mine")];

fn discover(host: [u8; 6], exchange: u32) -> Vec<u8> {
    message(1, exchange, host, [NONE; 2], &[ASKS[0], ASKS[1], ASKS[2], (50, &NINE)])
}

fn request(host: [u8; 6], exchange: u32, address: [u8; 4]) -> Vec<u8> {
    message(3, exchange, host, [NONE; 2], &[(50, &address), ASKS[0]])
}

fn ack(host: [u8; 6], exchange: u32, address: [u8; 4], lease: u32) -> Vec<u8> {
    message(5, exchange, host, [NONE, address], &[(51, &lease.to_be_bytes())])
}

fn phone() -> ClientInfo {
    ClientInfo {
        fingerprint: Some("1,3,6,15,26,252".into()),
        vendor: Some("android-dhcp-14".into()),
        hostname: Some("Phone of mine".into()),
    }
}

#[test]
fn a_client_reports_facts_about_itself() {
    let said = read(&discover(PHONE, 7)).unwrap();
    assert_eq!((said.is_reply, said.kind, said.transaction_id), (false, Some(Kind::Discover), 7));
    assert_eq!(
        (said.client_address, said.assigned, said.requested),
        (None, None, Some(NINE.into()))
    );
    assert_eq!((said.client_info, said.lease, said.is_truncated), (phone(), None, false));
    assert_eq!((said.hardware.mac(), said.hardware.as_bytes()), (Some(PHONE), &PHONE[..]));
    assert_eq!(said.hardware.to_string(), "02:00:00:00:00:09");
    let said = read(&ack(PHONE, 7, NINE, 3_600)).unwrap();
    assert_eq!((said.is_reply, said.kind), (true, Some(Kind::Ack)));
    assert_eq!((said.assigned, said.lease), (Some(NINE.into()), Some(Span::from_secs(3_600))));
    assert_eq!(read(&ack(PHONE, 7, NINE, u32::MAX)).unwrap().lease, Some(Span::MAX));
    assert_eq!(read(&message(13, 7, PHONE, [NONE; 2], &[])).unwrap().kind, Some(Kind::Other(13)));
}

#[test]
fn texts_are_escaped() {
    let odd: [(u8, &[u8]); 3] = [(12, b"J\xc3\xbcrgen\\\n\0\0"), (60, b"\0\0"), (55, b"")];
    let said = read(&message(1, 7, PHONE, [NONE; 2], &odd)).unwrap().client_info;
    assert_eq!(said.hostname.as_deref(), Some("J\\195\\188rgen\\\\\\010"));
    assert_eq!((said.vendor, said.fingerprint), (None, None));
    let full: [(u8, &[u8]); 4] =
        [(12, &[7; 255]), (12, &[7; 255]), (55, &[200; 255]), (55, &[200; 255])];
    let said = read(&message(1, 7, PHONE, [NONE; 2], &full)).unwrap().client_info;
    assert_eq!(said.hostname.map(|text| text.len()), Some(1_020));
    assert_eq!(said.fingerprint.map(|text| text.len()), Some(1_019));
}

#[test]
fn options_may_be_split_and_may_overload_other_fields() {
    let parts: [(u8, &[u8]); 3] = [(55, &[1, 3]), (0, b""), (55, &[6])];
    let mut bytes = message(1, 7, PHONE, [NONE; 2], &parts);
    assert_eq!(read(&bytes).unwrap().client_info.fingerprint.as_deref(), Some("1,3,6"));
    // First in the field `file`, then in `sname`.
    bytes.pop();
    bytes.extend([52, 1, 3, 255]);
    bytes[108..112].copy_from_slice(&[55, 1, 15, 255]);
    bytes[44..48].copy_from_slice(&[55, 1, 42, 255]);
    let said = read(&bytes).unwrap();
    assert_eq!(said.client_info.fingerprint.as_deref(), Some("1,3,6,15,42"));
    assert!(!said.is_truncated);
    let at = bytes.len() - 2;
    for (overload, list) in [(1, "1,3,6,15"), (2, "1,3,6,42"), (0, "1,3,6")] {
        bytes[at] = overload;
        assert_eq!(read(&bytes).unwrap().client_info.fingerprint.as_deref(), Some(list));
    }
    // The field has no END option.
    bytes[at] = 2;
    bytes[44..48].copy_from_slice(&[55, 80, 42, 255]);
    let said = read(&bytes).unwrap();
    assert_eq!((said.client_info.fingerprint.as_deref(), said.is_truncated), (Some("1,3,6"), true));
}

/// The message type in `file` or `sname` is used only after complete options.
#[test]
fn overloaded_fields_are_ignored_after_missing_options() {
    let mut bytes = message(1, 7, PHONE, [NONE; 2], &[]);
    bytes.truncate(240);
    bytes.extend([52, 1, 1, 53, 1, 3, 255]);
    bytes[108..112].copy_from_slice(&[53, 1, 5, 255]);
    let kind = |there: usize| Message::read(&bytes[..there], bytes.len()).and_then(|m| m.kind);
    assert_eq!(kind(bytes.len()), Some(Kind::Request));
    assert_eq!(
        (240..bytes.len()).map(kind).collect::<Vec<_>>(),
        [None, None, None, None, None, None, Some(Kind::Request)]
    );
}

#[test]
fn a_truncated_message_is_read_as_far_as_possible() {
    let bytes = discover(PHONE, 7);
    let whole = read(&bytes).unwrap();
    for cut in 0..bytes.len() {
        let said = Message::read(&bytes[..cut], bytes.len());
        assert_eq!(said.is_some(), cut >= 44, "{cut}");
        let Some(message) = said else { continue };
        assert!(message.is_truncated);
        assert_eq!((message.hardware, message.transaction_id), (whole.hardware, 7));
        let found = |is: bool, at: usize| assert_eq!(is, cut >= at, "{cut}");
        found(message.kind == whole.kind, 243);
        found(message.client_info.fingerprint == whole.client_info.fingerprint, 243 + 8);
        found(message.client_info.vendor == whole.client_info.vendor, 243 + 8 + 17);
        found(message.client_info.hostname == whole.client_info.hostname, 243 + 8 + 17 + 15);
        // The same bytes as a complete message are broken or not DHCP.
        assert_eq!(read(&bytes[..cut]).is_some(), cut >= 240);
    }
}

#[test]
fn other_messages_are_rejected() {
    let good = discover(PHONE, 7);
    for (at, value) in [(0, 0), (0, 3), (2, 17), (236, 0), (239, 0)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(read(&bad), None, "{value} at {at}");
    }
    // Not Ethernet, and an address of another length.
    for (at, value) in [(1, 6), (2, 8)] {
        let mut other = good.clone();
        other[at] = value;
        let message = read(&other).unwrap();
        assert_eq!(message.hardware.mac(), None);
        assert_ne!(message.hardware, read(&good).unwrap().hardware);
    }
}

#[test]
fn a_host_and_its_address_are_joined() {
    let mut leases = Leases::default();
    pass(&mut leases, 10, &discover(PHONE, 7));
    let offer = message(2, 7, PHONE, [NONE, EIGHT], &[(51, &[0, 0, 1, 0])]);
    pass(&mut leases, 10, &offer);
    assert_eq!(leases.holder(seconds(11), EIGHT.into()), None);
    pass(&mut leases, 11, &request(PHONE, 7, NINE));
    // Of another exchange, and of another host in the same exchange.
    pass(&mut leases, 11, &discover(LAPTOP, 8));
    pass(&mut leases, 12, &ack(PHONE, 7, NINE, 100));
    pass(&mut leases, 12, &ack(LAPTOP, 7, EIGHT, 100));
    let expected = Lease {
        address: NINE.into(),
        granted_at: seconds(12),
        expires_at: Some(seconds(112)),
        hardware: read(&discover(PHONE, 7)).unwrap().hardware,
        client_info: phone(),
        is_confirmed: true,
    };
    for (then, is) in [(11, false), (12, true), (111, true), (112, false)] {
        let holder = leases.holder(seconds(then), NINE.into());
        assert_eq!(holder, is.then_some(&expected), "{then}");
    }
    assert_eq!(
        leases.holder(seconds(12), EIGHT.into()).unwrap().client_info,
        ClientInfo::default()
    );
    let all = all(leases);
    assert_eq!((all.len(), &all[0]), (2, &expected));
}

#[test]
fn a_lease_is_renewed_until_it_ends() {
    let mut leases = Leases::default();
    pass(&mut leases, 0, &discover(PHONE, 7));
    pass(&mut leases, 0, &ack(PHONE, 7, NINE, 100));
    // With fewer facts, and from a server whose client was not captured.
    pass(&mut leases, 50, &message(3, 8, PHONE, [NINE, NONE], &[(55, &[1, 2])]));
    pass(&mut leases, 50, &ack(PHONE, 8, NINE, 100));
    pass(&mut leases, 150, &ack(PHONE, 9, NINE, 100));
    let lease = leases.holder(seconds(200), NINE.into()).unwrap();
    assert_eq!((lease.granted_at, lease.expires_at), (seconds(0), Some(seconds(250))));
    let facts = ClientInfo { fingerprint: Some("1,2".into()), ..phone() };
    assert_eq!(lease.client_info, facts);
    // Another host cannot release the address; after its end, a lease starts again.
    pass(&mut leases, 200, &message(7, 9, LAPTOP, [NINE, NONE], &[]));
    assert_eq!(leases.poll(), None);
    pass(&mut leases, 300, &ack(PHONE, 10, NINE, 100));
    assert_eq!(drain(&mut leases)[0].expires_at, Some(seconds(250)));
    pass(&mut leases, 350, &message(7, 11, PHONE, [NINE, NONE], &[]));
    assert_eq!(drain(&mut leases)[0].expires_at, Some(seconds(350)));
    // Another host receives the address before the end of the lease.
    pass(&mut leases, 400, &ack(PHONE, 12, NINE, u32::MAX));
    assert_eq!(leases.holder(seconds(401), NINE.into()).unwrap().expires_at, Some(Time::MAX));
    pass(&mut leases, 410, &ack(LAPTOP, 13, NINE, 100));
    assert_eq!(drain(&mut leases)[0].expires_at, Some(seconds(410)));
    // The host finds that the address is in use.
    pass(&mut leases, 411, &message(4, 14, LAPTOP, [NONE; 2], &[(50, &NINE)]));
    assert_eq!(drain(&mut leases)[0].expires_at, Some(seconds(411)));
    assert_eq!(all(leases), []);
}

#[test]
fn a_dhcpinform_adds_facts_and_no_lease_time() {
    let mut leases = Leases::default();
    pass(&mut leases, 0, &message(8, 7, PHONE, [NINE, NONE], &ASKS));
    // An ACK that assigns no address has no lease time, whatever its options.
    pass(&mut leases, 1, &message(5, 7, PHONE, [NINE, NONE], &[(51, &[0, 0, 0, 9])]));
    let lease = leases.holder(seconds(1_000), NINE.into()).unwrap();
    assert_eq!(
        (lease.granted_at, lease.expires_at, &lease.client_info),
        (seconds(1), None, &phone())
    );
    // An ACK like this neither ends a lease nor extends it.
    pass(&mut leases, 10, &ack(PHONE, 8, NINE, 100));
    pass(&mut leases, 20, &message(5, 9, PHONE, [NINE, NONE], &[]));
    let lease = leases.holder(seconds(20), NINE.into()).unwrap();
    assert_eq!((lease.granted_at, lease.expires_at), (seconds(1), Some(seconds(110))));
}

#[test]
fn an_unanswered_request_counts_as_a_lease_and_a_refused_one_does_not() {
    let mut leases = Leases::default();
    pass(&mut leases, 0, &discover(PHONE, 7));
    pass(&mut leases, 1, &request(PHONE, 7, NINE));
    pass(&mut leases, 2, &discover(LAPTOP, 8));
    pass(&mut leases, 61, &request(LAPTOP, 9, EIGHT));
    assert_eq!(leases.holder(seconds(61), NINE.into()), None);
    pass(&mut leases, 62, &message(6, 9, LAPTOP, [NONE; 2], &[]));
    let lease = leases.holder(seconds(61), NINE.into()).unwrap();
    assert_eq!((lease.granted_at, lease.expires_at, lease.is_confirmed), (seconds(1), None, false));
    assert_eq!(lease.client_info, phone());
    // The server's ACK, later.
    pass(&mut leases, 70, &ack(PHONE, 10, NINE, 100));
    let lease = leases.holder(seconds(70), NINE.into()).unwrap();
    assert_eq!(
        (lease.granted_at, lease.expires_at, lease.is_confirmed),
        (seconds(1), Some(seconds(170)), true)
    );
    // The host requests an extension and is refused.
    pass(&mut leases, 80, &message(3, 11, PHONE, [NINE, NONE], &[]));
    pass(&mut leases, 81, &message(6, 11, PHONE, [NONE; 2], &[]));
    let all = all(leases);
    assert_eq!((all.len(), all[0].expires_at), (1, Some(seconds(81))));
}

#[test]
fn limits_bound_exchanges_and_leases() {
    let limits = LeaseLimits { exchanges: 10, leases: 20, ..LeaseLimits::default() };
    let mut leases = Leases::new(limits);
    let mut came = 0;
    for number in 0..200 {
        pass(&mut leases, 0, &request(PHONE, number, [192, 0, 2, number as u8]));
        assert!(leases.exchanges.len() <= 10 && leases.leases.len() <= 20);
        came += drain(&mut leases).len();
    }
    assert_eq!((leases.exchanges.len(), leases.leases.len(), came), (10, 20, 170));
    assert_eq!(all(leases).len(), 30);
}

proptest! {
    #[test]
    fn any_changed_or_truncated_message_is_read(
        changes in prop::collection::vec((0_usize..300, any::<u8>()), 0..8),
        cut in 0_usize..300,
        kind in 0_u8..9,
    ) {
        let mut bytes = message(kind, 7, PHONE, [NINE, EIGHT], &ASKS);
        for (at, to) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        let there = &bytes[..cut.min(bytes.len())];
        if let Some(said) = Message::read(there, bytes.len()) {
            let ClientInfo { fingerprint, vendor, hostname } = said.client_info.clone();
            for text in [fingerprint, vendor, hostname].into_iter().flatten() {
                prop_assert!(text.len() <= 1_020 && text.is_ascii());
            }
            let mut leases = Leases::default();
            leases.handle(seconds(1), &said);
            leases.handle(seconds(2), &said);
            prop_assert!(all(leases).len() <= 1);
        }
    }
}
