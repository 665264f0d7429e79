use super::*;
use manyways_record::table::Data;
use manyways_unit::Span;

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

/// The source ports and payload bytes of the UDP flows.
fn udp_flows(analysis: &mut Analysis) -> Vec<(u16, [u64; 2])> {
    let records = std::iter::from_fn(|| analysis.poll());
    let mut flows: Vec<_> = records
        .filter_map(|record| match record {
            Record::Udp(flow) => Some((flow.client.port(), flow.payload())),
            _ => None,
        })
        .collect();
    flows.sort_unstable();
    flows
}

#[test]
fn fragments_of_udp_and_of_another_protocol_with_one_number_are_two_packets() {
    let datagram = [&[0x9c, 0x40, 0x10, 0, 0, 24, 0, 0][..], &[7; 16]].concat();
    let [first, last] = [(0, true, &datagram[..16]), (16, false, &datagram[16..])].map(
        |(offset, has_more, bytes)| {
            let udp = fragment(1, offset, has_more, bytes);
            let mut icmp = fragment(1, offset, has_more, &[0xee; 8][..bytes.len().min(8)]);
            icmp[14 + 9] = 1;
            [icmp, udp]
        },
    );
    let mut analysis = analysis("");
    for (at, frame) in (0..).zip(first.iter().chain(&last)) {
        pass(&mut analysis, at, frame, 0);
    }
    analysis.finish();
    assert_eq!(udp_flows(&mut analysis), [(40_000, [16, 0])]);
    assert_eq!((analysis.counters().udp, analysis.counters().fragments), (1, 4));
}

/// A datagram of any payload: QUIC, DNS or others.
fn datagram(from: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    let head = [&from.to_be_bytes()[..], &443_u16.to_be_bytes(), &length, &[0; 2]].concat();
    fragment(1, 0, false, &[&head[..], payload].concat())
}

/// Two captures in one file, the second of which is the earlier one.
#[test]
fn packets_in_another_order_than_that_of_time_have_the_same_seconds() {
    let of = |order: &[u64]| {
        let settings = Settings { overview: true, ..Settings::default() };
        let mut aggregator = Aggregator::new(&settings);
        let mut analysis = Analysis::new(settings);
        for at in order {
            segment(&mut analysis, at * 1_000, true, [*at as u32 / 5, 500], 0x10, 100);
        }
        analysis.finish();
        let mut seconds = std::collections::BTreeMap::new();
        for record in std::iter::from_fn(|| analysis.poll()) {
            if let Record::Second(FlowSecond { begins, bytes, .. }) = record {
                *seconds.entry(begins).or_insert(0) += bytes[0];
            }
            aggregator.add(record);
        }
        let mut rows = 0;
        aggregator.flush(true, |schema, batch| {
            rows += if schema.table == "seconds" { batch.rows() } else { 0 };
        });
        assert_eq!(rows, seconds.len(), "one row for each second");
        (seconds, analysis.counters().clone())
    };
    let sorted: Vec<u64> = (0..95).map(|step| 1_000 + step * 500).collect();
    let (seconds, counters) = of(&sorted);
    assert_eq!(seconds.len(), 48);
    for cut in [1, 40, 41, 94] {
        let (early, late) = sorted.split_at(cut);
        let (other_seconds, other) = of(&[late, early].concat());
        assert_eq!(other_seconds, seconds, "{cut}");
        assert_eq!((other.first, other.last), (counters.first, counters.last));
        assert_eq!(other.timeline, counters.timeline);
    }
}

#[test]
fn the_idle_timeout_is_the_same_for_tcp_udp_and_quic() {
    // An Initial packet that cannot be decrypted, and a packet with a short header.
    let quic = [&[0xc0, 0, 0, 0, 1, 8][..], &[3; 8], &[0, 0, 0x44, 0x98], &[5; 1_176]].concat();
    let payloads = [&quic[..], b"a call"];
    for (idle, pause, flows) in
        [(300, 299, 1), (300, 301, 2), (10, 9, 1), (10, 11, 2), (900, 899, 1)]
    {
        let limits = flow::Limits { idle: Span::from_secs(idle), ..flow::Limits::default() };
        let of = |pause: u64| {
            let mut analysis = Analysis::new(Settings { limits, ..Settings::default() });
            for at in [0, pause] {
                for (port, payload) in (5_000..).zip(payloads) {
                    pass(&mut analysis, at * 1_000, &datagram(port, payload), 0);
                }
                segment(&mut analysis, at * 1_000_000, true, [100, 500], 0x10, 300);
            }
            analysis
        };
        let mut ended = of(pause);
        ended.finish();
        let records: Vec<Record> = std::iter::from_fn(|| ended.poll()).collect();
        let count = |is: fn(&Record) -> bool| records.iter().filter(|one| is(one)).count();
        let tcp = count(|one| matches!(one, Record::Tcp(_)));
        let udp = count(|one| matches!(one, Record::Udp(_)));
        assert_eq!((tcp, udp), (flows, 2 * flows), "{idle} {pause}");
        // A live capture without packets.
        let mut live = of(0);
        live.advance(Time::from_millis(pause * 1_000));
        assert_eq!(live.active_flows(), if flows == 2 { 0 } else { 3 }, "{idle} {pause}");
    }
    assert_eq!(Settings::default().limits.idle, Span::from_secs(300), "as in docs/flows.md");
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
    segment_with(analysis, micros, is_up, numbers, flags, length, &[]);
}

/// Passes a segment of which the beginning of the payload is captured.
fn segment_with(
    analysis: &mut Analysis,
    micros: u64,
    is_up: bool,
    numbers: [u32; 2],
    flags: u8,
    length: u16,
    captured: &[u8],
) {
    let (from, to) = if is_up { (PHONE, SERVER) } else { (SERVER, PHONE) };
    let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + length).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([from.0, to.0].concat());
    frame.extend([from.1, to.1].map(u16::to_be_bytes).concat());
    frame.extend(numbers.map(u32::to_be_bytes).concat());
    frame.extend([0x50, flags, 0x80, 0, 0, 0, 0, 0]);
    let whole = frame.len() + usize::from(length);
    frame.extend(captured);
    let packet = Packet {
        at: Time::from_nanos(micros * 1_000),
        interface: 0,
        bytes: &frame,
        length: whole,
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

/// A text column of the table `tcp`, empty if absent, of one connection whose client sends `payload`.
fn tcp_column(payload: &[u8], column: &str) -> String {
    let mut analysis = Analysis::new(Settings::default());
    segment(&mut analysis, 0, true, [99, 0], 0x02, 0);
    segment(&mut analysis, 10, false, [499, 100], 0x12, 0);
    segment(&mut analysis, 20, true, [100, 500], 0x10, 0);
    let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([PHONE.0, SERVER.0].concat());
    frame.extend([PHONE.1, SERVER.1].map(u16::to_be_bytes).concat());
    frame.extend([100_u32, 500].map(u32::to_be_bytes).concat());
    frame.extend([0x50, 0x18, 0x80, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    pass(&mut analysis, 1, &frame, 0);
    analysis.finish();
    let mut aggregator = Aggregator::new(&Settings::default());
    std::iter::from_fn(|| analysis.poll()).for_each(|record| aggregator.add(record));
    let mut values = String::new();
    aggregator.flush(true, |schema, batch| {
        if schema.table == "tcp" {
            assert_eq!(batch.rows(), 1);
            let at = schema.columns.iter().position(|(name, ..)| *name == column).unwrap();
            if let Data::Text(text, _) = &batch.columns()[at].data {
                values.clone_from(text);
            }
        }
    });
    values
}

#[test]
fn an_address_or_a_name_with_a_port_is_not_the_name_of_a_server() {
    use crate::sample::{alpn, message, records, sni};
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let hello = |name: &str| records(&message(&[sni(name.as_bytes()), alpn(&["h2"])]), 1 << 14);
    for (payload, name) in [
        (get("Shop.example:8080"), "shop.example"),
        (get("192.0.2.1"), ""),
        (get("192.0.2.1:8080"), ""),
        (get("[2001:db8::1]:8080"), ""),
        (get("shop.example:80:80"), ""),
        (hello("Shop.example"), "shop.example"),
        (hello("192.0.2.1"), ""),
        (hello("2001:db8::1"), ""),
        (hello("shop.example:443"), ""),
        (hello("127.1"), ""),
    ] {
        let found = ["name", "domain"].map(|column| tcp_column(&payload, column));
        assert_eq!(found, [name, name], "{}", String::from_utf8_lossy(&payload));
    }
    for name in ["shop.example:443", "::1"] {
        assert_eq!(tcp_column(&hello(name), "sni"), name);
    }
}

/// A proxy beside the phone acknowledges at once; the server is 60 ms away. Data that passes 2 ms
/// after the second request was in flight then.
#[test]
fn acknowledgments_of_a_proxy_make_no_response() {
    assert_eq!(exchanges_behind_a_proxy(false), [(65.0, 2_000), (65.0, 500)]);
    assert_eq!(exchanges_behind_a_proxy(true), [(65.0, 2_000), (65.0, 500)]);
}

/// Returns the response times in milliseconds, and the bytes of the responses.
fn exchanges_behind_a_proxy(has_tls: bool) -> Vec<(f64, u64)> {
    let mut analysis = Analysis::new(Settings::default());
    let mut pass = |micros, is_up, numbers, flags, length: u16| {
        let [high, low] = length.saturating_sub(5).to_be_bytes();
        let record = [23, 3, 3, high, low];
        let captured = if has_tls && length > 0 { &record[..] } else { &[] };
        segment_with(&mut analysis, micros, is_up, numbers, flags, length, captured);
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
    exchanges.map(|one| (one.response_time().as_millis_f64(), one.response.as_bytes())).collect()
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
    assert_eq!(analysis.counters().undecoded.get(SkipReason::Link(link)), 1);
}
