//! Encoding of messages.

use std::net::IpAddr;

use manyways_unit::Span;
use proptest::prelude::*;

use crate::mux::message::MAX_DATA_HEADER;
use crate::mux::{
    DecodeError, Destination, FlowId, Hello, Label, LoanMessage, MAX_MESSAGE, MAX_PAYLOAD, Message,
    RefuseCode, ResetCode, Seed, StreamId, TicketId, VERSION, Welcome,
};
use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

type Owned = Message<Vec<u8>>;

/// Numbers that the wire format can contain.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..70, 0x3ff0u64..0x4010, 0x3fff_fff0u64..0x4000_0010, 0u64..1 << 62]
}

fn small() -> impl Strategy<Value = u32> {
    number().prop_map(|number| number as u32)
}

fn stream() -> impl Strategy<Value = StreamId> {
    number().prop_map(StreamId)
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..64),
        1 => (0..=MAX_PAYLOAD, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9.-]{0,40}", "[a-zäöü€]{0,60}", "[a-z.]{250,255}"]
}

fn destination() -> impl Strategy<Value = Destination> {
    prop_oneof![
        (any::<IpAddr>(), any::<u16>()).prop_map(|(host, port)| Destination::Address(host, port)),
        (text(), any::<u16>()).prop_map(|(host, port)| Destination::Name(host, port)),
    ]
}

fn label() -> impl Strategy<Value = Label> {
    let path = prop::option::of((0..PathId::LIMIT).prop_map(PathId));
    (any::<u8>(), number(), 0..SchedulerKind::ALL.len(), any::<u32>(), path, any::<u8>()).prop_map(
        |(id, version, kind, paths, primary, priority)| {
            let (scheduler, paths) = (SchedulerKind::ALL[kind], PathSet::from_bits(paths));
            Label {
                id,
                version,
                stream_policy: StreamPolicy { scheduler, paths, primary, priority },
            }
        },
    )
}

fn reset_code() -> impl Strategy<Value = ResetCode> {
    use ResetCode::*;
    prop::sample::select(vec![
        Aborted,
        Refused,
        Unreachable,
        Timeout,
        NameNotFound,
        Forbidden,
        Limit,
        SessionEnded,
    ])
}

fn handshake() -> BoxedStrategy<Owned> {
    use RefuseCode::*;
    let refusal = prop::sample::select(vec![Version, Limit, Closing, UnknownSession]);
    prop_oneof![
        (any::<[u8; 16]>(), 0..PathId::LIMIT, any::<bool>(), number(), number()).prop_map(
            |(session, path, resumes, credit, stream_credit)| {
                let path = PathId(path);
                let version = VERSION;
                Message::Hello(Hello { version, session, path, resumes, credit, stream_credit })
            }
        ),
        (number(), number(), number(), any::<[bool; 3]>(), any::<u64>()).prop_map(
            |(credit, stream_credit, streams, [v4, v6, lends], instance)| {
                Message::Welcome(Welcome {
                    version: VERSION,
                    credit,
                    stream_credit,
                    streams,
                    v4,
                    v6,
                    lends,
                    instance,
                })
            }
        ),
        (refusal, text()).prop_map(|(code, words)| Message::Refuse(code, words)),
    ]
    .boxed()
}

fn of_a_stream() -> BoxedStrategy<Owned> {
    prop_oneof![
        (stream(), label(), destination(), any::<bool>(), payload()).prop_map(
            |(stream, label, destination, confirm, data)| {
                Message::Open { stream, label, destination, confirm, data }
            }
        ),
        stream().prop_map(|stream| Message::Opened { stream }),
        (stream(), number(), any::<bool>(), payload())
            .prop_map(|(stream, offset, fin, data)| Message::Data { stream, offset, fin, data }),
        (stream(), reset_code(), number()).prop_map(|(stream, code, end)| Message::Reset {
            stream,
            code,
            end
        }),
        (stream(), number())
            .prop_map(|(stream, max_offset)| Message::StreamCredit { stream, max_offset }),
        (stream(), any::<u8>(), small())
            .prop_map(|(stream, label, revision)| { Message::Assign { stream, label, revision } }),
    ]
    .boxed()
}

fn of_a_flow() -> BoxedStrategy<Owned> {
    let flow = || small().prop_map(FlowId);
    prop_oneof![
        (flow(), small(), any::<u8>(), destination(), payload()).prop_map(
            |(flow, number, label, peer, data)| Message::Datagram {
                flow,
                number,
                label,
                peer,
                data
            }
        ),
        (flow(), small(), 2..=64_u8, any::<u8>(), destination(), payload()).prop_map(
            |(flow, number, count, label, peer, data)| Message::Part {
                flow,
                number,
                index: label % count,
                count,
                label,
                peer,
                data
            }
        ),
        flow().prop_map(|flow| Message::CloseFlow { flow }),
        (0..PathId::LIMIT).prop_map(|path| Message::PathDown { path: PathId(path) }),
    ]
    .boxed()
}

fn loan() -> BoxedStrategy<LoanMessage> {
    let path = || (0..PathId::LIMIT).prop_map(PathId);
    let rtt = || any::<u32>().prop_map(|micros| Span::from_micros(micros.into()));
    let ticket = || any::<[u8; 16]>().prop_map(TicketId);
    prop_oneof![
        (path(), any::<[u8; 32]>(), rtt()).prop_map(|(path, lender, rtt)| LoanMessage::Request {
            path,
            lender,
            rtt
        }),
        (path(), ticket(), any::<u32>(), any::<[u8; 32]>()).prop_map(
            |(path, ticket, join, seed)| LoanMessage::Ticket {
                path,
                ticket,
                join,
                seed: Seed(seed)
            }
        ),
        (path(), text()).prop_map(|(path, reason)| LoanMessage::Refused { path, reason }),
        ticket().prop_map(|ticket| LoanMessage::Redeem { ticket }),
        Just(LoanMessage::Redeemed),
        (ticket(), any::<bool>())
            .prop_map(|(ticket, holds_acks)| LoanMessage::Join { ticket, holds_acks }),
        rtt().prop_map(|rtt| LoanMessage::Joined { rtt }),
        path().prop_map(|path| LoanMessage::Forged { path }),
    ]
    .boxed()
}

fn message() -> BoxedStrategy<Owned> {
    prop_oneof![
        3 => handshake(),
        5 => of_a_stream(),
        3 => of_a_flow(),
        1 => number().prop_map(|max_total| Message::Credit { max_total }),
        1 => number().prop_map(|count| Message::Ack { count }),
        1 => (any::<u32>(), number()).prop_map(|(join, count)| Message::AckOf { join, count }),
        1 => (any::<u32>(), number())
            .prop_map(|(join, count)| Message::DatagramsOf { join, count }),
        2 => loan().prop_map(Message::Loan),
        1 => (number(), number())
            .prop_map(|(first, last)| Message::Recalled { first, last }),
        1 => label().prop_map(Message::Relabel),
        1 => small().prop_map(|number| Message::Ping { number }),
        1 => small().prop_map(|number| Message::Pong { number }),
        1 => Just(Message::Bye),
    ]
    .boxed()
}

fn encoded(message: &Owned) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Option<(Owned, usize)>, DecodeError> {
    let read = Message::decode(bytes)?;
    Ok(read.map(|(message, length)| (message.map(<[u8]>::to_vec), length)))
}

proptest! {
    #[test]
    fn what_was_written_is_read_whatever_follows(
        message in message(),
        after in prop::collection::vec(any::<u8>(), 0..32),
    ) {
        let mut bytes = encoded(&message);
        let length = bytes.len();
        prop_assert!(length <= MAX_MESSAGE);
        bytes.extend(after);
        prop_assert_eq!(decoded(&bytes), Ok(Some((message, length))));
    }

    #[test]
    fn the_beginning_of_a_message_asks_for_more(message in message()) {
        let bytes = encoded(&message);
        // A long payload need not be tried byte by byte.
        let lengths = (0..bytes.len()).filter(|length| *length < 400 || length % 997 == 0);
        for length in lengths.chain([bytes.len() - 1]) {
            prop_assert_eq!(decoded(&bytes[..length]), Ok(None), "{} of {}", length, bytes.len());
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(
        message in message(),
        changes in prop::collection::vec((0usize..300, any::<u8>()), 1..6),
    ) {
        let mut bytes = encoded(&message);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        // A decoded message is encoded and decoded to the same message; numbers may get shorter.
        if let Ok(Some((message, length))) = decoded(&bytes) {
            prop_assert!(length <= bytes.len());
            let known = match &message {
                Message::Hello(hello) => hello.version == VERSION,
                Message::Welcome(welcome) => welcome.version == VERSION,
                _ => true,
            };
            if known {
                let again = encoded(&message);
                prop_assert!(again.len() <= length);
                prop_assert_eq!(decoded(&again), Ok(Some((message, again.len()))));
            }
        }
    }

    #[test]
    fn bulk_costs_less_than_a_hundredth(stream in stream(), offset in number(), fin: bool) {
        let message = Message::Data { stream, offset, fin, data: vec![0; 4_000] };
        let head = encoded(&message).len() - 4_000;
        prop_assert!(head <= MAX_DATA_HEADER, "{} bytes", head);
        prop_assert!(head < 40);
    }
}

#[test]
fn an_ordinary_bulk_message_costs_a_thousandth() {
    // The first gigabyte of an early stream.
    let (stream, offset) = (StreamId(50), (1 << 30) - 1);
    let message = Message::Data { stream, offset, fin: false, data: vec![0; MAX_PAYLOAD] };
    assert_eq!(encoded(&message).len() - MAX_PAYLOAD, 8);
}

#[test]
fn what_nobody_says_is_an_error_at_once() {
    use DecodeError::*;
    let long_payload = [0x11, 0, 0, 0x40, 0x01];
    let wrong: [(&[u8], DecodeError); 14] = [
        (b"GET / HTTP/1.1\r\n", UnknownType(b'G')),
        (b"mwaz", WrongProtocol),
        (b"mw\n", WrongProtocol),
        (b"mway\x02\x20\0", InvalidField("path")),
        (&[0x03], UnknownType(3)),
        (&long_payload, TooLong),
        (&[0x13, 8], InvalidField("reset code")),
        (&[0x02, 5], InvalidField("refusal")),
        (&[0x1e, 8], InvalidField("kind of loan message")),
        (&[0x10, 0, 0, 9, 0, 0], InvalidField("scheduler")),
        (&[0x10, 0, 0, 0, 32, 0], InvalidField("primary path")),
        (&[0x10, 0, 0, 0, 255, 1, 3, 0, 5, 0, 80], InvalidField("kind of address")),
        (&[0x02, 0, 3, b'a', 0x1b, b'c'], InvalidField("text")),
        (&[0x23, 0xc0, 0, 0, 1, 0, 0, 0, 0], InvalidField("number")),
    ];
    for (bytes, error) in wrong {
        assert_eq!(decoded(bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn text_of_no_encoding_is_refused() {
    assert_eq!(decoded(&[0x02, 0, 2, 0xff, 0xfe]), Err(DecodeError::InvalidField("text")));
}

#[test]
fn another_version_is_told_apart_from_another_protocol() {
    // Any bytes after the version.
    for rest in [&b""[..], b"\xff\xff\xff\xff\xff\xff\xff\xff", &[7; 100]] {
        let bytes = [b"mway\x09", rest].concat();
        let read = decoded(&bytes);
        let Ok(Some((Message::Hello(hello), length))) = read else { panic!("{read:?}") };
        assert_eq!((hello.version, length), (9, bytes.len()));
        // A gateway of version 1 sends fewer bytes than one of today.
        let bytes = [&[0x01, 1], rest].concat();
        let read = decoded(&bytes);
        let Ok(Some((Message::Welcome(welcome), length))) = read else { panic!("{read:?}") };
        assert_eq!((welcome.version, length), (1, bytes.len()));
    }
}

#[test]
fn a_refusal_is_cut_between_letters() {
    // 200 letters of two bytes each.
    let long = "é".repeat(200);
    let bytes = encoded(&Message::Refuse(RefuseCode::Limit, long));
    let read = decoded(&bytes).unwrap().unwrap().0;
    assert_eq!(read, Message::Refuse(RefuseCode::Limit, "é".repeat(127)));
}
