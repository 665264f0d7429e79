//! Numbers of other incarnations of a connection, of forged packets and of gaps of a capture: what
//! does not fit counts nowhere, and what begins another connection counts there.

mod harness;
mod properties;

use harness::{ACK, Conversation, FIN, PSH, Passed, RST, Rows, SYN, rows};

/// How far the numbers of another incarnation are.
const FAR: u32 = 1_607_310_063;

/// A connection with one request, whose client and server begin with these numbers.
fn request(millis: u64, numbers: [u32; 2]) -> Vec<Passed> {
    let mut talk = Conversation::new(millis, numbers);
    talk.handshake();
    talk.exchange("/", 1_000);
    talk.close();
    talk.packets
}

/// Puts packets into a connection behind the request.
fn amid(mut packets: Vec<Passed>, odd: &[Passed]) -> Vec<Passed> {
    let at = packets[3].millis;
    packets.splice(4..4, odd.iter().map(|odd| Passed { millis: at, ..odd.clone() }));
    packets
}

fn odd(is_up: bool, numbers: [u32; 2], flags: u8, length: usize) -> Passed {
    Passed { millis: 0, is_up, numbers, flags, window: 65_000, payload: vec![b'x'; length] }
}

/// The rows of one connection with a request, in spite of packets that do not belong to it.
fn check_one(packets: &[Passed], refused: u32, what: &str) -> Rows {
    let rows = rows(packets);
    assert_eq!((rows.flows.len(), rows.requests.len()), (1, 1), "{what}: {rows:?}");
    let flow = &rows.flows[0];
    assert_eq!(flow.unique, [35, 1_041], "{what}");
    assert_eq!(flow.uncaptured, [0, 0], "{what}");
    assert!(flow.in_flight_max.into_iter().all(|most| most <= 1_043), "{what}: {flow:?}");
    assert_eq!((flow.lost, flow.retransmitted), (0, 0), "{what}");
    assert_eq!(flow.refused + flow.refused_acks, refused, "{what}");
    rows
}

#[test]
fn a_stray_packet_counts_nowhere() {
    let isns = [1_000, 5_000];
    let next = [1_036, 5_001];
    let plain = request(1_000, isns);
    check_one(&plain, 0, "nothing");
    for (odd, what) in [
        (odd(true, [next[0], next[1].wrapping_add(FAR)], ACK, 0), "an ACK far ahead"),
        (odd(true, [next[0].wrapping_sub(FAR), next[1].wrapping_add(FAR)], ACK, 0), "an ACK"),
        (odd(false, [5_000_u32.wrapping_add(FAR), 1_001], SYN | ACK, 0), "a second SYN/ACK"),
        (odd(true, [1_000_u32.wrapping_add(FAR), 0], SYN, 0), "a SYN"),
        (odd(true, [1_000 + 3_000, 0], SYN, 0), "a SYN within the window"),
        (odd(false, [next[1].wrapping_add(FAR), next[0]], ACK | PSH, 500), "data ahead"),
        (odd(false, [next[1].wrapping_sub(FAR), next[0]], ACK | PSH, 500), "data behind"),
        (odd(false, [next[1].wrapping_add(1 << 20), 7], ACK | PSH, 500), "data beyond the window"),
        (odd(false, [next[1].wrapping_add(FAR), next[0]], ACK | FIN, 0), "a FIN"),
        (odd(true, [FAR, 0], RST, 0), "an RST"),
    ] {
        check_one(&amid(plain.clone(), &[odd]), 1, what);
    }
    // Two that do not agree with each other, or of which the other endpoint knows nothing.
    let stray = |ahead: u32| odd(false, [5_001_u32.wrapping_add(ahead), 1_036], ACK, 400);
    check_one(&amid(plain.clone(), &[stray(FAR), stray(FAR + (1 << 24))]), 2, "two");
    check_one(&amid(plain, &[stray(FAR), stray(FAR + 400)]), 2, "two that agree");
}

#[test]
fn an_answer_to_another_connection_does_not_begin_the_stream() {
    let (numbers, mut packets) = ([1_000, 5_000], Vec::new());
    let talk = request(1_000, numbers);
    packets.push(talk[0].clone());
    // The server still has the connection before, and answers the SYN with a challenge ACK.
    packets.push(Passed { millis: 1_005, ..odd(false, [FAR, 77_000], ACK, 0) });
    packets.push(Passed { millis: 1_006, ..odd(true, [77_000, 0], RST, 0) });
    packets.extend(talk[1..].iter().cloned());
    let rows = check_one(&packets, 2, "a challenge ACK");
    assert!(rows.flows[0].is_valid, "{rows:?}");
    // A SYN/ACK for another SYN.
    let mut packets = request(1_000, numbers);
    packets.insert(1, Passed { millis: 1_005, ..odd(false, [FAR, 77_001], SYN | ACK, 0) });
    check_one(&packets, 1, "a SYN/ACK for another SYN");
}

#[test]
fn the_server_that_the_client_talks_to_is_the_one_that_counts() {
    // Two servers behind a load balancer answer the SYN; the client acknowledges one of them first,
    // and goes on with the other.
    for is_first_acked in [true, false] {
        let mut talk = Conversation::new(1_000, [1_000, 5_000_u32.wrapping_add(FAR)]);
        talk.handshake();
        talk.exchange("/", 1_000);
        talk.close();
        let mut packets = talk.packets;
        packets.insert(1, Passed { millis: 1_015, ..odd(false, [5_000, 1_001], SYN | ACK, 0) });
        if is_first_acked {
            packets[3].numbers[1] = 5_001;
            packets[4].numbers[1] = 5_001;
        }
        let rows = rows(&packets);
        assert_eq!((rows.flows.len(), rows.requests.len()), (1, 1), "{rows:?}");
        let flow = &rows.flows[0];
        assert_eq!((flow.unique, flow.uncaptured, flow.lost), ([35, 1_041], [0, 0], 0));
    }
}

#[test]
fn a_port_that_is_used_again_is_another_connection() {
    let first = request(1_000, [1_000, 5_000]);
    let second = request(9_000, [FAR, 3 * (FAR / 2)]);
    let without_end = &first[..first.len() - 3];
    for (packets, what) in [
        ([&first[..], &second].concat(), "after its end"),
        ([without_end, &second].concat(), "without an end"),
        ([without_end, &second[1..]].concat(), "without a captured SYN"),
        ([without_end, &second[2..]].concat(), "without both SYNs"),
        ([without_end, &second[3..]].concat(), "from the request on"),
        ([&first[1..first.len() - 3], &second].concat(), "the first without a SYN"),
        ([&first[3..first.len() - 3], &second[3..]].concat(), "both without a SYN"),
    ] {
        let rows = rows(&packets);
        assert_eq!((rows.flows.len(), rows.requests.len()), (2, 2), "{what}: {rows:?}");
        for flow in &rows.flows {
            assert_eq!((flow.unique, flow.uncaptured), ([35, 1_041], [0, 0]), "{what}");
            assert_eq!((flow.lost, flow.refused), (0, 0), "{what}");
        }
        let packets: u64 = rows.flows.iter().map(|flow| flow.packets).sum();
        assert_eq!(packets, rows.segments, "{what}");
    }
    // A SYN that is refused is a connection, too.
    let mut refused = Conversation::new(9_000, [FAR, 0]);
    refused.up(SYN, b"");
    refused.down(RST | ACK, b"");
    let rows = rows(&[without_end, &refused.packets].concat());
    assert_eq!(rows.flows.len(), 2, "{rows:?}");
    assert!(!rows.flows[1].is_valid && rows.flows[1].packets == 2, "{rows:?}");
}

#[test]
fn in_a_capture_of_one_direction_too() {
    let one = |is_up: bool, packets: &[Passed]| -> Vec<Passed> {
        packets.iter().filter(|packet| packet.is_up == is_up).cloned().collect()
    };
    let first = request(1_000, [1_000, 5_000]);
    for numbers in [[FAR, 3 * (FAR / 2)], [9_000, 8_000]] {
        let second = request(9_000, numbers);
        for is_up in [true, false] {
            let begun = one(is_up, &first[..first.len() - 3]);
            let rows = rows(&[begun, one(is_up, &second)].concat());
            assert_eq!(rows.flows.len(), 2, "{is_up} {rows:?}");
            assert_eq!(rows.flows[1].unique, rows.flows[0].unique);
        }
    }
    let mut packets = one(false, &first);
    packets.insert(2, Passed { millis: 1_040, ..odd(false, [FAR, 1_036], ACK, 400) });
    let rows = rows(&packets);
    assert_eq!((rows.flows.len(), rows.flows[0].refused), (1, 1), "{rows:?}");
    assert_eq!(rows.flows[0].unique, [0, 1_041]);
}

#[test]
fn a_syn_is_part_of_its_connection_whenever_it_is_recorded() {
    let plain = request(1_000, [1_000, 5_000]);
    for (from, to) in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 6)] {
        let mut packets = plain.clone();
        let late = packets.remove(from);
        packets.insert(to, Passed { millis: packets[to - 1].millis, ..late });
        let rows = check_one(&packets, 0, &format!("{from} at {to}"));
        assert!(rows.flows[0].has_syn, "{from} at {to}");
    }
    for syn in [0, 1] {
        for place in syn + 1..=plain.len() {
            let mut packets = plain.clone();
            let copy = Passed { millis: packets[place - 1].millis, ..packets[syn].clone() };
            packets.insert(place, copy);
            check_one(&packets, 0, &format!("a copy of {syn} at {place}"));
        }
    }
}

#[test]
fn a_gap_of_the_capture_is_no_other_connection() {
    // 20 MB, of which 15 MB are not in the capture: beyond any window, but not beyond the time.
    for has_syn in [true, false] {
        let mut talk = Conversation::new(1_000, [1_000, 4_000_000_000]);
        talk.handshake();
        talk.up(ACK | PSH, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let part = vec![b'x'; 50_000];
        for number in 0..400 {
            let before = talk.packets.len();
            talk.millis += 20;
            talk.down(ACK, &part);
            talk.up(ACK, b"");
            if (50..350).contains(&number) {
                talk.packets.truncate(before);
            }
        }
        let packets = &talk.packets[if has_syn { 0 } else { 3 }..];
        let rows = rows(packets);
        assert_eq!(rows.flows.len(), 1, "{rows:?}");
        let flow = &rows.flows[0];
        assert_eq!(flow.uncaptured, [0, 300 * 50_000], "{has_syn}");
        assert_eq!((flow.unique[1], flow.lost, flow.refused), (100 * 50_000, 0, 0), "{has_syn}");
    }
}
