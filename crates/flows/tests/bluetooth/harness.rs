//! A phone and a watch: streams in both directions over RFCOMM, with credits and their true
//! properties; and the analysis of their capture.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};
use manyways_wire::bluetooth::{Control, Counts, Direction, Event, Host, StreamId, StreamSummary};
use manyways_wire::capture::{Reader, Step};

use crate::generator::Generator;

pub const WATCH: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
pub const HANDLE: u16 = 0x0b;
/// Channel IDs of the phone and of the watch.
pub const PHONE_CID: u16 = 0x40;
pub const WATCH_CID: u16 = 0x51;
/// Server channel 3; the watch is the server.
pub const DLCI: u8 = 6;
pub const UIH: u8 = 0xef;

pub fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_micros(micros)
}

/// Stream, PSM, time, captured bytes, and original length.
pub type Piece = (StreamId, Option<u16>, Time, Vec<u8>, u64);

/// Result of the analysis of a capture.
#[derive(Default)]
pub struct Analysed {
    pub pieces: Vec<Piece>,
    pub controls: Vec<Control>,
    pub streams: Vec<StreamSummary>,
    pub counts: Counts,
}

pub fn read(file: &[u8]) -> Analysed {
    let (mut reader, mut host, mut rest) = (Reader::default(), Host::default(), file);
    let mut analysed = Analysed::default();
    loop {
        match reader.step(rest) {
            Ok(Step::Packet(packet, length)) => {
                let interface = &reader.interfaces()[packet.interface];
                host.handle(interface, &packet, |data| analysed.push_piece(data));
                rest = &rest[length..];
            }
            Ok(Step::Other(length)) => rest = &rest[length..],
            Ok(Step::More(_)) | Err(_) => break,
        }
    }
    host.finish(|data| analysed.push_piece(data));
    while let Some(event) = host.poll() {
        match event {
            Event::Control(control) => analysed.controls.push(control),
            Event::Stream(stream) => analysed.streams.push(stream),
        }
    }
    analysed.counts = *host.counts();
    analysed
}

impl Analysed {
    fn push_piece(&mut self, data: manyways_wire::bluetooth::Data<'_>) {
        let piece = data.piece;
        assert!(piece.bytes.len() as u64 <= piece.length);
        let bytes = piece.bytes.to_vec();
        self.pieces.push((data.stream, data.psm, piece.at, bytes, piece.length));
    }

    /// Returns the stream of a channel, by the channel ID of its packets.
    pub fn stream(&self, direction: Direction, cid: u16, dlci: Option<u8>) -> &StreamSummary {
        let is_it = |id: &StreamId| (id.direction, id.cid, id.dlci) == (direction, cid, dlci);
        let mut all = self.streams.iter().filter(|stream| is_it(&stream.id));
        let stream = all.next().unwrap();
        assert!(all.next().is_none(), "there are two");
        stream
    }

    pub fn bytes(&self, of: &StreamSummary) -> Vec<u8> {
        let is_it = |piece: &&Piece| piece.0 == of.id;
        self.pieces.iter().filter(is_it).flat_map(|piece| piece.3.clone()).collect()
    }

    pub fn times(&self, of: &StreamSummary) -> Vec<Time> {
        self.pieces.iter().filter(|piece| piece.0 == of.id).map(|piece| piece.2).collect()
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.controls.iter().map(|control| control.name).collect()
    }

    pub fn control(&self, name: &str) -> &Control {
        self.controls.iter().find(|control| control.name == name).unwrap()
    }
}

/// True properties of one direction.
#[derive(Clone, Debug, Default)]
pub struct GroundTruth {
    pub bytes: Vec<u8>,
    /// Time of each packet's last part.
    pub times: Vec<Time>,
    /// Times at which the sender received credits (positive) and used them (negative).
    pub credits: BTreeMap<u64, i64>,
    pub opened: u64,
    pub ended: u64,
}

impl GroundTruth {
    /// Number and total duration of the times without credits.
    pub fn stalls(&self) -> (u64, Span) {
        let (mut balance, mut stalls, mut stalled) = (0, 0, 0);
        let mut since = None;
        for (at, change) in self.credits.iter().map(|(at, change)| (*at, *change)) {
            balance += change;
            assert!(balance >= 0, "the generator sends without credits");
            match (balance, since) {
                (0, None) => {
                    since = Some(at);
                    stalls += 1;
                }
                (1.., Some(before)) => {
                    stalled += at - before;
                    since = None;
                }
                _ => {}
            }
        }
        let remaining = since.map_or(0, |since| self.ended - since);
        (stalls, Span::from_micros(stalled + remaining))
    }
}

/// Pseudorandom numbers with a fixed sequence.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, max: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % max
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// The phone opens a channel.
pub fn open_channel(generator: &mut Generator, psm: u16, own: u16, theirs: u16) {
    let id = own as u8;
    generator.signal(true, 0x02, id, &[psm, own]);
    generator.signal(false, 0x03, id, &[theirs, own, 1, 2]);
    generator.signal(false, 0x03, id, &[theirs, own, 0, 0]);
    // Each endpoint announces its MTU.
    generator.signal(true, 0x04, id + 1, &[theirs, 0, 0x0201, 990]);
    generator.signal(false, 0x05, id + 1, &[own, 0, 0]);
    generator.signal(false, 0x04, id + 2, &[own, 0, 0x0201, 1010]);
    generator.signal(true, 0x05, id + 2, &[theirs, 0, 0]);
}

/// Opens the stream; the phone begins with 5 credits, the watch with 7. Returns the time.
pub fn open_stream(generator: &mut Generator) -> u64 {
    let [low, high] = 330_u16.to_le_bytes();
    generator.frame(true, WATCH_CID, (0, 0x3f, None), &[]);
    generator.frame(false, PHONE_CID, (0, 0x73, None), &[]);
    generator.frame(
        true,
        WATCH_CID,
        (0, UIH, None),
        &[0x83, 0x11, DLCI, 0xf0, 7, 0, low, high, 0, 7],
    );
    generator.frame(
        false,
        PHONE_CID,
        (0, UIH, None),
        &[0x81, 0x11, DLCI, 0xe0, 7, 0, low, high, 0, 5],
    );
    generator.frame(true, WATCH_CID, (DLCI, 0x3f, None), &[]);
    let opened = generator.frame(false, PHONE_CID, (DLCI, 0x73, None), &[]);
    generator.frame(true, WATCH_CID, (0, UIH, None), &[0xe3, 0x05, DLCI << 2 | 3, 0x8d]);
    generator.frame(false, PHONE_CID, (0, UIH, None), &[0xe1, 0x05, DLCI << 2 | 3, 0x8d]);
    opened
}

/// A complete session, and the true properties of both directions.
pub fn session(seed: u64, steps: usize) -> (Generator, [GroundTruth; 2]) {
    let mut generator = Generator::new(HANDLE);
    generator.command(0x0405, &[0x55, 0x44, 0x33, 0x22, 0x11, 0x02, 0x18, 0xcc, 2, 0, 0, 0, 1]);
    generator.wait(90_000);
    generator.connected(WATCH);
    generator.wait(1_000);
    open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
    let opened = open_stream(&mut generator);
    generator.wait(20_000);
    let mut truth = [GroundTruth::default(), GroundTruth::default()];
    let mut balance = [5_i64, 7];
    for (ground_truth, balance) in truth.iter_mut().zip(balance) {
        ground_truth.opened = opened;
        ground_truth.credits.insert(opened, balance);
    }
    let mut rng = Rng(seed);
    for _ in 0..steps {
        let side = rng.below(2) as usize;
        let cid = if side == 0 { WATCH_CID } else { PHONE_CID };
        let grants = (rng.below(4) == 0 || balance[1 - side] == 0).then(|| rng.below(6));
        // More than a length of one byte can express, in several parts.
        let max = [60, 330][rng.below(2) as usize];
        let length = if balance[side] > 0 { 1 + rng.below(max) as usize } else { 0 };
        if length > 0 || grants.is_some() {
            let info = rng.bytes(length);
            let passed =
                generator.frame(side == 0, cid, (DLCI, UIH, grants.map(|n| n as u8)), &info);
            if length > 0 {
                balance[side] -= 1;
                truth[side].credits.insert(passed, -1);
                truth[side].bytes.extend(info);
                truth[side].times.push(at(passed));
            }
            let count = grants.unwrap_or(0) as i64;
            balance[1 - side] += count;
            truth[1 - side].credits.insert(passed, count);
        }
        generator.wait(rng.below(30_000));
    }
    generator.frame(true, WATCH_CID, (DLCI, 0x53, None), &[]);
    let ended = generator.frame(false, PHONE_CID, (DLCI, 0x73, None), &[]);
    truth.iter_mut().for_each(|ground_truth| ground_truth.ended = ended);
    generator.signal(true, 0x06, 9, &[WATCH_CID, PHONE_CID]);
    generator.signal(false, 0x07, 9, &[WATCH_CID, PHONE_CID]);
    generator.wait(50_000);
    generator.disconnected(0x16);
    (generator, truth)
}
