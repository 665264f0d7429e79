//! Generated conversations, in pieces of any size.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::frames::{integer, string};
use super::*;

/// A message: its interim heads, its head, the parts of its body, and its trailers.
#[derive(Clone, Debug)]
struct Message {
    interim: Vec<Fields>,
    fields: Fields,
    parts: Vec<Vec<u8>>,
    trailers: Option<Fields>,
}

type Fields = Vec<(String, String)>;

/// An encoder that adds each second new field to the table.
#[derive(Default)]
struct Encoder {
    /// The newest first.
    entries: VecDeque<(String, String)>,
    size: usize,
    turn: usize,
}

impl Encoder {
    fn block(&mut self, pseudo: &[(&str, &str)], fields: &Fields) -> Vec<u8> {
        let pseudo = pseudo.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        pseudo.chain(fields.iter().cloned()).flat_map(|field| self.field(field)).collect()
    }

    fn field(&mut self, field: (String, String)) -> Vec<u8> {
        let index = |at: usize| 62 + at;
        if let Some(at) = self.entries.iter().position(|entry| *entry == field) {
            return integer(0x80, 7, index(at));
        }
        self.turn += 1;
        let is_added = self.turn.is_multiple_of(2);
        let (representation, bits) = if is_added { (0x40, 6) } else { (0x10, 4) };
        let known = self.entries.iter().position(|entry| entry.0 == field.0);
        let mut bytes = integer(representation, bits, known.map_or(0, index));
        if known.is_none() {
            bytes.extend(string(field.0.as_bytes()));
        }
        bytes.extend(string(field.1.as_bytes()));
        if is_added {
            self.size += field.0.len() + field.1.len() + 32;
            self.entries.push_front(field);
            while self.size > 4_096 {
                let (name, value) = self.entries.pop_back().unwrap();
                self.size -= name.len() + value.len() + 32;
            }
        }
        bytes
    }
}

fn fields() -> impl Strategy<Value = Fields> {
    let name = prop_oneof![Just("a".to_owned()), Just("b-c".to_owned()), "[a-z]{1,3}"];
    // Long values fill the table.
    let long = (b'a'..=b'z', 300_usize..900)
        .prop_map(|(letter, length)| char::from(letter).to_string().repeat(length));
    let value = prop_oneof![Just(String::new()), "[ -~]{0,9}", long];
    prop::collection::vec((name, value), 0..5)
}

fn message() -> impl Strategy<Value = Message> {
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4);
    let interim = prop::collection::vec(fields(), 0..3);
    (interim, fields(), parts, prop::option::of(fields()))
        .prop_map(|(interim, fields, parts, trailers)| Message { interim, fields, parts, trailers })
}

/// A block in frames with at most `max` bytes of it.
fn head(stream: u32, flags: u8, block: &[u8], max: usize) -> Vec<Vec<u8>> {
    let mut parts: Vec<_> = block.chunks(max).collect();
    let first = if parts.is_empty() { &[][..] } else { parts.remove(0) };
    let complete = |is_last| if is_last { END_HEADERS } else { 0 };
    let mut frames = vec![frame(1, flags | complete(parts.is_empty()), stream, first)];
    for (index, part) in parts.iter().enumerate() {
        frames.push(continuation(stream, complete(index + 1 == parts.len()), part));
    }
    frames
}

/// The next step of a message; each is passed at once, between steps of other messages.
#[derive(Debug)]
enum Step {
    Head { is_interim: bool, fields: Fields, is_last: bool },
    Body { part: Vec<u8>, is_last: bool },
    Trailers(Fields),
}

fn steps(message: Message, from: Endpoint) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    if from == Server {
        let interim = |fields| Step::Head { is_interim: true, fields, is_last: false };
        steps.extend(message.interim.into_iter().map(interim));
    }
    let count = message.parts.len();
    let is_last = count == 0 && message.trailers.is_none();
    steps.push_back(Step::Head { is_interim: false, fields: message.fields, is_last });
    for (index, part) in message.parts.into_iter().enumerate() {
        let is_last = index + 1 == count && message.trailers.is_none();
        steps.push_back(Step::Body { part, is_last });
    }
    steps.extend(message.trailers.map(Step::Trailers));
    steps
}

/// Writes exchanges as a conversation in which they alternate by `turns`. Returns also the events
/// of each message.
fn write(
    exchanges: Vec<(Message, Message)>,
    turns: &[usize],
    max: usize,
) -> (Conversation, BTreeMap<(StreamId, Endpoint), Vec<Seen>>) {
    let mut passing = vec![(Client, preface()), (Server, settings(&[(3, 100)]))];
    let mut expected = BTreeMap::<_, Vec<Seen>>::new();
    let mut encoders = [Encoder::default(), Encoder::default()];
    let mut waiting: VecDeque<_> = (0_u32..).map(|index| 2 * index + 1).zip(exchanges).collect();
    let mut active = Vec::new();
    let mut turns = turns.iter().cycle();
    loop {
        let turn = *turns.next().unwrap();
        let mut index = turn.checked_rem(active.len()).unwrap_or_default();
        if (active.is_empty() || turn.is_multiple_of(3))
            && let Some((id, (request, response))) = waiting.pop_front()
        {
            // The client opens streams in their order, and before the server answers.
            index = active.len();
            active.push((id, Client, steps(request, Client)));
            active.push((id, Server, steps(response, Server)));
        }
        let Some((id, from, steps)) = active.get_mut(index) else { return (passing, expected) };
        let (id, from) = (*id, *from);
        let step = steps.pop_front().unwrap();
        if steps.is_empty() {
            active.remove(index);
        }
        let frames = frames(&step, id, from, &mut encoders[from as usize], max);
        passing.extend(frames.into_iter().map(|frame| (from, frame)));
        report(step, id.into(), from, expected.entry((id.into(), from)).or_default());
    }
}

const PSEUDO_FIELDS: [(&str, &str); 3] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/x")];

fn frames(step: &Step, id: u32, from: Endpoint, encoder: &mut Encoder, max: usize) -> Vec<Vec<u8>> {
    let end_if = |is_last: bool| if is_last { END_STREAM } else { 0 };
    match step {
        Step::Head { is_interim, fields, is_last } => {
            let pseudo = match (from, is_interim) {
                (Client, _) => &PSEUDO_FIELDS[..],
                (Server, true) => &[(":status", "103")],
                (Server, false) => &[(":status", "200")],
            };
            head(id, end_if(*is_last), &encoder.block(pseudo, fields), max)
        }
        Step::Body { part, is_last } if part.len() % 2 == 1 => {
            vec![padded(0, end_if(*is_last), id, part.len() as u8, part)]
        }
        Step::Body { part, is_last } => vec![data(id, end_if(*is_last), part)],
        Step::Trailers(fields) => head(id, END_STREAM, &encoder.block(&[], fields), max),
    }
}

fn report(step: Step, id: StreamId, from: Endpoint, events: &mut Vec<Seen>) {
    let lines = |fields: Fields| -> Vec<String> {
        fields
            .into_iter()
            .map(|(name, value)| format!("{name}: {}", value.escape_default()))
            .collect()
    };
    match step {
        Step::Head { is_interim, fields, is_last } => {
            let fields = lines(fields);
            events.push(match (from, is_interim) {
                (Client, _) => Seen::Request(id, "GET /x".to_owned(), fields),
                (Server, true) => Seen::Interim(id, 103, fields),
                (Server, false) => Seen::Response(id, 200, fields),
            });
            events.extend(is_last.then(|| end(id, from)));
        }
        Step::Body { part, is_last } => {
            match events.last_mut() {
                Some(Seen::Body(.., body)) => body.extend(part),
                _ if part.is_empty() => {}
                _ => events.push(body(id, from, &part)),
            }
            events.extend(is_last.then(|| end(id, from)));
        }
        Step::Trailers(fields) => events.push(Seen::End(id, from, lines(fields))),
    }
}

/// The events of each message, with the pieces of bodies joined.
fn by_message(seen: &[Seen]) -> BTreeMap<(StreamId, Endpoint), Vec<Seen>> {
    let mut messages = BTreeMap::<_, Vec<Seen>>::new();
    for event in seen {
        let key = match event {
            Seen::Request(id, ..) => (*id, Client),
            Seen::Interim(id, ..) | Seen::Response(id, ..) | Seen::Upgraded(id) => (*id, Server),
            Seen::Body(id, from, _) | Seen::End(id, from, _) | Seen::Abort(id, from) => {
                (*id, *from)
            }
        };
        let events = messages.entry(key).or_default();
        match (events.last_mut(), event) {
            (Some(Seen::Body(.., body)), Seen::Body(.., more)) => body.extend(more),
            _ => events.push(event.clone()),
        }
    }
    messages
}

/// Joins the bytes of an endpoint that follow each other, and cuts them into pieces of these
/// lengths.
fn in_pieces(conversation: &Conversation, lengths: &[usize]) -> Conversation {
    let mut joined = Conversation::new();
    for (from, bytes) in conversation {
        match joined.last_mut() {
            Some((last, before)) if last == from => before.extend(bytes),
            _ => joined.push((*from, bytes.clone())),
        }
    }
    let (mut pieces, mut lengths) = (Conversation::new(), lengths.iter().cycle());
    for (from, bytes) in &joined {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = *lengths.next().unwrap();
            pieces.push((*from, rest.split_off(..length.min(rest.len())).unwrap().to_vec()));
        }
    }
    pieces
}

/// Checks the order of the events of each stream.
fn check_order(seen: &[Seen]) {
    #[derive(Default)]
    struct Stream {
        has_response: bool,
        ended: Vec<Endpoint>,
        is_over: bool,
    }
    let mut streams = BTreeMap::<StreamId, Stream>::new();
    for event in seen {
        if let Seen::Request(id, ..) = event {
            assert!(streams.insert(*id, Stream::default()).is_none(), "{seen:?}");
            continue;
        }
        let (Seen::Interim(id, ..)
        | Seen::Response(id, ..)
        | Seen::Upgraded(id)
        | Seen::Body(id, ..)
        | Seen::End(id, ..)
        | Seen::Abort(id, _)
        | Seen::Request(id, ..)) = event;
        let stream = streams.get_mut(id).unwrap();
        assert!(!stream.is_over, "{seen:?}");
        match event {
            Seen::Request(..) => {}
            Seen::Interim(..) => assert!(!stream.has_response, "{seen:?}"),
            Seen::Response(..) => assert!(!std::mem::replace(&mut stream.has_response, true)),
            Seen::Body(_, from, _) => assert!(!stream.ended.contains(from), "{seen:?}"),
            Seen::End(_, from, _) => {
                assert!(!stream.ended.contains(from) && (*from == Client || stream.has_response));
                stream.ended.push(*from);
                stream.is_over = stream.ended.len() == 2;
            }
            Seen::Abort(..) | Seen::Upgraded(_) => stream.is_over = true,
        }
    }
    assert!(streams.values().all(|stream| stream.is_over), "{seen:?}");
}

/// Frames that may be wrong, and other bytes.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let block = || {
        let ok = block(&[(":status", "200")]);
        let blocks = [
            GET.to_vec(),
            [&ok[..], &[0x40, 1, b'a', 1, b'b']].concat(),
            [&ok[..], &[0xbe]].concat(),
            block(&[(":status", "103")]),
            block(&[(":method", "CONNECT"), (":authority", "a")]),
            block(&[("a", "b")]),
            vec![0x20],
        ];
        prop_oneof![
            9 => prop::sample::select(blocks.to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..9)
        ]
    };
    let id = || prop_oneof![9 => 1_u32..5, 1 => any::<u32>()];
    let end = || prop::sample::select(vec![0, END_STREAM]);
    prop_oneof![
        4 => (id(), end(), block()).prop_map(|(id, end, block)| headers(id, end, &block)),
        1 => (id(), 0..6_u8, block()).prop_map(|(id, flags, block)| frame(1, flags, id, &block)),
        1 => (id(), 0..6_u8, block())
            .prop_map(|(id, flags, block)| continuation(id, flags, &block)),
        2 => (id(), end(), 0..9_usize)
            .prop_map(|(id, end, length)| data(id, end, &vec![7; length])),
        1 => (id(), 0..9_u8).prop_map(|(id, padding)| padded(0, 0, id, padding, b"abc")),
        1 => (id(), id(), block()).prop_map(|(id, other, block)| promise(id, other, &block)),
        1 => id().prop_map(|id| reset(id, 0)),
        1 => id().prop_map(|id| goaway(id, 0)),
        1 => (0..7_u16, any::<u32>()).prop_map(|(id, value)| settings(&[(id, value)])),
        1 => Just(frame(4, ACK, 0, &[])),
        1 => (any::<u8>(), any::<u8>(), id())
            .prop_map(|(kind, flags, id)| frame(kind, flags, id, &[0; 6])),
        1 => prop::collection::vec(any::<u8>(), 0..9),
    ]
}

proptest! {
    #[test]
    fn conversations_are_reported_as_written_in_any_pieces(
        exchanges in prop::collection::vec((message(), message()), 0..4),
        turns in prop::collection::vec(any::<usize>(), 1..30),
        max in 1_usize..200,
        lengths in prop::collection::vec(1_usize..60, 1..9),
    ) {
        let (passing, expected) = write(exchanges, &turns, max);
        let whole = observe(&passing, usize::MAX);
        check_order(&whole);
        prop_assert_eq!(by_message(&whole), expected);
        prop_assert_eq!(observe(&in_pieces(&passing, &lengths), usize::MAX), whole);
    }

    #[test]
    fn any_frames_in_any_pieces_give_the_same_events(
        passing in prop::collection::vec((any::<bool>(), any_bytes()), 0..20),
        lengths in prop::collection::vec(1_usize..20, 1..9),
    ) {
        let endpoint = |is_client| if is_client { Client } else { Server };
        let passing = passing.into_iter().map(|(is_client, bytes)| (endpoint(is_client), bytes));
        let passing: Conversation = passing.collect();
        let run = |conversation: &Conversation| {
            let (mut harness, mut faults) = (Harness::new(), Vec::new());
            for (from, bytes) in conversation {
                faults.extend(harness.passes(*from, bytes).err());
            }
            harness.ends(Server);
            (harness.seen, faults, harness.observer.is_busy())
        };
        let whole = run(&passing);
        check_order(&whole.0);
        prop_assert!(!whole.2 && whole.1.len() <= 1);
        prop_assert_eq!(run(&in_pieces(&passing, &lengths)), whole);
    }
}
