use super::*;
use manyways_wire::capture::LinkType;

const LINK: LinkType = LinkType::ETHERNET;

fn interface() -> Interface {
    Interface { link: LINK, snap_length: 0, name: String::new(), dropped: 0 }
}

/// An Ethernet frame with a fragment of an IPv4 packet that contains UDP to port 53.
fn fragment(id: u8, offset: u16, has_more: bool, bytes: &[u8]) -> Vec<u8> {
    let more = if has_more { 0x2000 } else { 0 };
    let place = (offset / 8 + more).to_be_bytes();
    let length = (20 + bytes.len() as u16).to_be_bytes();
    let header = [&[0x45, 0][..], &length, &[0, id], &place, &[64, 17, 0, 0]].concat();
    [&[0; 12][..], &[8, 0], &header, &[10, 0, 0, 1, 10, 0, 0, 2], bytes].concat()
}

fn pass(analysis: &mut Analysis, millis: u64, frame: &[u8], lost_before: u64) {
    let packet = Packet {
        at: Time::from_millis(millis),
        interface: 0,
        bytes: frame,
        length: frame.len(),
        is_sent: None,
        dropped_before: lost_before,
        is_out_of_order: false,
    };
    analysis.handle_packet(&interface(), &packet);
}

fn analysis(filter: &str) -> Analysis {
    let filter = (!filter.is_empty()).then(|| Arc::new(filter.parse().unwrap()));
    Analysis::new(Settings { filter, overview: true, ..Settings::default() })
}

/// Counters of a DNS query in two fragments, half of another query, and an ARP broadcast.
fn counted(filter: &str) -> (Counters, usize) {
    let question = [&[0x9c, 0x40, 0, 53, 0, 24, 0, 0][..], &[7; 16]].concat();
    let mut analysis = analysis(filter);
    pass(&mut analysis, 1, &fragment(1, 0, true, &question[..16]), 0);
    pass(&mut analysis, 2, &fragment(2, 0, true, &question[..16]), 3);
    pass(&mut analysis, 3, &[&[0xff; 12][..], &[8, 6], &[0; 28]].concat(), 0);
    pass(&mut analysis, 4, &fragment(1, 16, false, &question[16..]), 0);
    analysis.finish();
    let flows = std::iter::from_fn(|| analysis.poll()).count();
    (analysis.counters().clone(), flows)
}

#[test]
fn packets_in_fragments_are_matched_when_they_are_whole() {
    let frames = 2 * 34 + 24;
    for filter in ["port 53", "udp", "host 10.0.0.1 and not arp", &format!("ip and len = {frames}")]
    {
        let (counters, flows) = counted(filter);
        assert_eq!(
            (counters.packets, counters.bytes, counters.fragments),
            (2, frames, 2),
            "{filter}"
        );
        assert_eq!((counters.udp, flows), (1, 1), "{filter}");
        assert_eq!(counters.first, Some(Time::from_millis(4)));
        // Independent of the filter: the lost packets may have matched.
        assert_eq!(counters.dropped, 3);
        let passed: u64 = counters.timeline.bins().map(|(_, volume)| volume.all).sum();
        assert_eq!(passed, frames);
    }
    for filter in ["port 54", "tcp", "src host 10.0.0.2", "len < 60 and ip"] {
        let (counters, flows) = counted(filter);
        assert_eq!((counters.packets, counters.fragments, flows), (0, 0, 0), "{filter}");
    }
    let (counters, flows) = counted("not port 54");
    assert_eq!((counters.packets, counters.fragments, flows), (3, 2, 1));
    let (counters, flows) = counted("");
    assert_eq!((counters.packets, counters.fragments, flows), (4, 3, 1));
    assert_eq!(counters.bytes, frames + 50 + 42);
}

#[test]
fn a_packet_in_fragments_has_the_bytes_of_all() {
    let mut analysis = Analysis::new(Settings { packets: true, ..Settings::default() });
    let question = [&[0x9c, 0x40, 0, 53, 0, 24, 0, 0][..], &[7; 16]].concat();
    pass(&mut analysis, 1, &fragment(1, 0, true, &question[..16]), 0);
    pass(&mut analysis, 2, &fragment(1, 16, false, &question[16..]), 0);
    let Some(Record::Packet(packet)) = analysis.poll() else { panic!("no packet came out") };
    assert_eq!(packet.length, 2 * 20 + 24);
}

/// Queries with numbers that begin with each significant bit of QUIC, a truncated response to one
/// of them, and other data to the same port.
#[test]
fn a_flow_with_rows_of_dns_is_dns() {
    let question = |id: u8| -> Vec<u8> {
        [&[id, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x04test\0\0\x01\0\x01"].concat()
    };
    let of = |payloads: &[Vec<u8>]| -> (Vec<&str>, usize) {
        let mut analysis = analysis("");
        for (at, payload) in (0..).zip(payloads) {
            let length = (8 + payload.len() as u16).to_be_bytes();
            let datagram = [&[0x9c, 0x40, 0, 53][..], &length, &[0; 2], payload].concat();
            pass(&mut analysis, at, &fragment(1, 0, false, &datagram), 0);
        }
        analysis.finish();
        let (mut protocols, mut rows) = (Vec::new(), 0);
        while let Some(record) = analysis.poll() {
            match record {
                Record::Udp(flow) => protocols.push(flow.protocol()),
                Record::Lookup(_) => rows += 1,
                _ => {}
            }
        }
        (protocols, rows)
    };
    for id in [0x00, 0x40, 0x80, 0xc3, 0xff] {
        assert_eq!(of(&[question(id)]), (vec!["dns"], 1), "{id:x}");
        let junk = [&[id, 0, 0x78][..], &[0; 37]].concat();
        assert_eq!(of(&[junk, question(id)]), (vec!["dns"], 1), "{id:x}");
    }
    assert_eq!(of(&[vec![0x80; 40]]), (vec!["other"], 0));
}

const PHONE: ([u8; 4], u16) = ([10, 0, 0, 9], 40_000);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 443);

/// Passes a TCP segment of which only the headers are captured. `numbers` are sequence number and
/// acknowledgment number.
fn segment(
    analysis: &mut Analysis,
    micros: u64,
    is_up: bool,
    numbers: [u32; 2],
    flags: u8,
    length: u16,
) {
    let (from, to) = if is_up { (PHONE, SERVER) } else { (SERVER, PHONE) };
    let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + length).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([from.0, to.0].concat());
    frame.extend([from.1, to.1].map(u16::to_be_bytes).concat());
    frame.extend(numbers.map(u32::to_be_bytes).concat());
    frame.extend([0x50, flags, 0x80, 0, 0, 0, 0, 0]);
    let packet = Packet {
        at: Time::from_nanos(micros * 1_000),
        interface: 0,
        bytes: &frame,
        length: frame.len() + usize::from(length),
        is_sent: None,
        dropped_before: 0,
        is_out_of_order: false,
    };
    analysis.handle_packet(&interface(), &packet);
}

/// A client confirms data every few milliseconds while a download arrives in bursts of merged
/// segments. The next burst is then already in flight and is not a response.
#[test]
fn what_passes_right_behind_a_question_was_sent_before_it() {
    let mut analysis = Analysis::new(Settings::default());
    let mut pass = |micros, is_up, numbers, flags, length| {
        segment(&mut analysis, micros, is_up, numbers, flags, length);
    };
    // The handshake includes a promotion of the radio.
    pass(0, true, [99, 0], 0x02, 0);
    pass(240_000, false, [499, 100], 0x12, 0);
    pass(240_200, true, [100, 500], 0x10, 0);
    pass(240_400, true, [100, 500], 0x18, 300);
    pass(281_000, false, [500, 400], 0x10, 0);
    let (mut seq, mut asked) = (500, vec![(240_400, 400)]);
    for burst in 0..40_u64 {
        let at = 290_000 + 6_000 * burst;
        // The client's data that the server had received when it sent this burst, 40 ms away.
        let had = asked.iter().rev().find(|(sent, _)| sent + 40_000 <= at);
        let ack = had.map_or(100, |(_, end)| *end);
        pass(at, false, [seq, ack], 0x18, 11_104);
        seq += 11_104;
        let (_, end) = *asked.last().unwrap();
        pass(at + 90, true, [end, seq], 0x10, 0);
        if burst % 4 == 1 {
            pass(at + 110, true, [end, seq], 0x18, 35);
            asked.push((at + 110, end + 35));
        }
    }
    analysis.finish();
    let records = std::iter::from_fn(|| analysis.poll());
    let exchanges: Vec<_> = records
        .filter_map(|record| match record {
            Record::Exchange(one) => Some(one.exchange),
            _ => None,
        })
        .collect();
    let times: Vec<_> = exchanges.iter().map(Exchange::response_time).collect();
    assert!(times.len() >= 8, "{times:?}");
    assert!(times.iter().all(|time| time.as_millis_f64() >= 40.0), "{times:?}");
    let bytes: u64 = exchanges.iter().map(|one| one.response.as_bytes()).sum();
    assert_eq!(bytes, 40 * 11_104, "each byte is of one response");
}

/// A proxy beside the phone acknowledges at once; the server is 60 ms away. Data that passes 2 ms
/// after the second request was in flight then.
#[test]
fn acknowledgments_of_a_proxy_make_no_response() {
    let mut analysis = Analysis::new(Settings::default());
    let mut pass = |micros, is_up, numbers, flags, length| {
        segment(&mut analysis, micros, is_up, numbers, flags, length);
    };
    pass(0, true, [99, 0], 0x02, 0);
    pass(60_000, false, [499, 100], 0x12, 0);
    pass(60_100, true, [100, 500], 0x10, 0);
    pass(60_200, true, [100, 500], 0x18, 300);
    pass(61_200, false, [500, 400], 0x10, 0);
    pass(125_200, false, [500, 400], 0x18, 1_000);
    pass(125_300, true, [400, 1_500], 0x18, 35);
    pass(126_300, false, [1_500, 435], 0x10, 0);
    pass(127_300, false, [1_500, 435], 0x18, 1_000);
    pass(190_300, false, [2_500, 435], 0x18, 500);
    analysis.finish();
    let records = std::iter::from_fn(|| analysis.poll());
    let exchanges = records.filter_map(|record| match record {
        Record::Exchange(one) => Some(one.exchange),
        _ => None,
    });
    let told: Vec<_> = exchanges
        .map(|one| (one.response_time().as_millis_f64(), one.response.as_bytes()))
        .collect();
    assert_eq!(told, [(65.0, 2_000), (65.0, 500)]);
}

#[test]
fn a_link_that_is_not_read_is_said_whatever_is_asked_for() {
    let mut analysis = analysis("port 53");
    let link = LinkType(999);
    let packet = Packet {
        at: Time::ZERO,
        interface: 0,
        bytes: &[1, 2, 3],
        length: 3,
        is_sent: None,
        dropped_before: 0,
        is_out_of_order: false,
    };
    analysis.handle_packet(&Interface { link, ..interface() }, &packet);
    assert_eq!(analysis.counters().undecoded.get(&SkipReason::Link(link)), Some(&1));
}
