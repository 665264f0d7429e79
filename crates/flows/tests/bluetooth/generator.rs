//! Generator of a phone's HCI captures: the caller chooses messages and times, so that all
//! properties of the capture are known.
//!
//! Messages are split into the controller's packets; the controller reports each sent packet as
//! completed after [`Generator::controller_delay`]. Records are sorted by time. Times are
//! microseconds since the Unix epoch, the resolution of btsnoop.

/// The Unix epoch in microseconds since the year 0.
const EPOCH: u64 = 0x00dc_ddb3_0f2f_8000;

/// File formats of HCI captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// btsnoop with link type 1001: the flags of a record contain its type.
    Flags,
    /// btsnoop with link type 1002 (Android): the first byte of a record is its type.
    H4,
    /// btsnoop with link type 2001: Linux's monitor.
    Monitor,
    /// pcap with link type 201.
    PcapH4,
    /// pcap with link type 254: Linux's monitor.
    PcapMonitor,
}

pub const FORMATS: [Format; 5] =
    [Format::Flags, Format::H4, Format::Monitor, Format::PcapH4, Format::PcapMonitor];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Command = 1,
    Acl = 2,
    Event = 4,
}

#[derive(Clone, Debug)]
pub struct Record {
    pub at: u64,
    pub adapter: u16,
    pub kind: Kind,
    pub is_sent: bool,
    pub bytes: Vec<u8>,
}

pub struct Generator {
    pub records: Vec<Record>,
    /// Time of the next message.
    pub at: u64,
    /// Time between the packets of a message.
    pub packet_gap: u64,
    /// Maximum length of a packet for the controller.
    pub max_packet_len: usize,
    /// Time that the controller holds a packet.
    pub controller_delay: u64,
    pub adapter: u16,
    pub handle: u16,
}

impl Generator {
    pub fn new(handle: u16) -> Self {
        let records = Vec::new();
        Self {
            records,
            at: 1_000_000,
            packet_gap: 300,
            max_packet_len: 200,
            controller_delay: 7_500,
            adapter: 0,
            handle,
        }
    }

    pub fn record(&mut self, at: u64, kind: Kind, is_sent: bool, bytes: Vec<u8>) {
        self.records.push(Record { at, adapter: self.adapter, kind, is_sent, bytes });
    }

    pub fn wait(&mut self, micros: u64) {
        self.at += micros;
    }

    pub fn command(&mut self, code: u16, parameters: &[u8]) {
        let header = [&code.to_le_bytes()[..], &[parameters.len() as u8]].concat();
        self.record(self.at, Kind::Command, true, [&header, parameters].concat());
    }

    pub fn event(&mut self, code: u8, parameters: &[u8]) {
        self.event_at(self.at, code, parameters);
    }

    fn event_at(&mut self, at: u64, code: u8, parameters: &[u8]) {
        let header = [code, parameters.len() as u8];
        self.record(at, Kind::Event, false, [&header, parameters].concat());
    }

    /// Opens a BR/EDR connection; the address is in text order.
    pub fn connected(&mut self, mut address: [u8; 6]) {
        address.reverse();
        let [low, high] = self.handle.to_le_bytes();
        self.event(0x03, &[&[0, low, high], &address[..], &[1, 0]].concat());
    }

    /// Opens an LE connection.
    pub fn connected_le(&mut self, mut address: [u8; 6]) {
        address.reverse();
        let [low, high] = self.handle.to_le_bytes();
        let timing = [24, 0, 2, 0, 200, 0, 0];
        self.event(0x3e, &[&[1, 0, low, high, 0, 1], &address[..], &timing].concat());
    }

    pub fn disconnected(&mut self, reason: u8) {
        let [low, high] = self.handle.to_le_bytes();
        self.event(0x05, &[0, low, high, reason]);
    }

    /// Adds an L2CAP packet. Returns the time of its last part; the next message follows it.
    pub fn l2cap(&mut self, is_sent: bool, cid: u16, payload: &[u8]) -> u64 {
        let header = [payload.len() as u16, cid].map(u16::to_le_bytes).concat();
        let whole = [&header, payload].concat();
        let mut last = self.at;
        for (index, part) in whole.chunks(self.max_packet_len).enumerate() {
            last = self.at;
            let boundary: u16 = match (index, is_sent) {
                (0, true) => 0,
                (0, false) => 2,
                _ => 1,
            };
            let header = [self.handle | boundary << 12, part.len() as u16];
            let bytes = [&header.map(u16::to_le_bytes).concat(), part].concat();
            self.record(last, Kind::Acl, is_sent, bytes);
            if is_sent {
                let done = [self.handle, 1].map(u16::to_le_bytes).concat();
                self.event_at(last + self.controller_delay, 0x13, &[&[1], &done[..]].concat());
            }
            self.at += self.packet_gap;
        }
        last
    }

    /// Adds an L2CAP signal over BR/EDR.
    pub fn signal(&mut self, is_sent: bool, code: u8, id: u8, says: &[u16]) -> u64 {
        self.signal_on(1, is_sent, code, id, says)
    }

    pub fn signal_on(&mut self, cid: u16, is_sent: bool, code: u8, id: u8, says: &[u16]) -> u64 {
        let says: Vec<u8> = says.iter().flat_map(|number| number.to_le_bytes()).collect();
        let header = [&[code, id], &(says.len() as u16).to_le_bytes()[..]].concat();
        self.l2cap(is_sent, cid, &[header, says].concat())
    }

    /// Adds an RFCOMM frame; a frame with credits has the bit for credits.
    pub fn frame(
        &mut self,
        is_sent: bool,
        cid: u16,
        frame: (u8, u8, Option<u8>),
        info: &[u8],
    ) -> u64 {
        let (dlci, control, credits) = frame;
        let address = dlci << 2 | 0b11;
        let control = if credits.is_some() { control | 0x10 } else { control };
        let mut bytes = vec![address, control];
        match u8::try_from(info.len() << 1 | 1) {
            Ok(short) => bytes.push(short),
            Err(_) => bytes.extend([(info.len() << 1) as u8, (info.len() >> 7) as u8]),
        }
        // The checksum of UIH frames does not cover the length (TS 07.10, 5.2.1.6).
        let checked = if control & 0xef == 0xef { 2 } else { bytes.len() };
        let sum = check_sum(&bytes[..checked]);
        bytes.extend(credits);
        bytes.extend(info);
        bytes.push(sum);
        self.l2cap(is_sent, cid, &bytes)
    }

    /// Returns the file with all records, each truncated to `snap` bytes.
    pub fn file(&self, format: Format, snap: usize) -> Vec<u8> {
        self.file_with_losses(format, snap, &|_| 0)
    }

    /// The same, with a number of lost packets before each time.
    pub fn file_with_losses(
        &self,
        format: Format,
        snap: usize,
        lost: &dyn Fn(u64) -> u32,
    ) -> Vec<u8> {
        let mut records: Vec<&Record> = self.records.iter().collect();
        records.sort_by_key(|record| record.at);
        let mut file = match format {
            Format::PcapH4 | Format::PcapMonitor => {
                let link = if format == Format::PcapH4 { 201 } else { 254 };
                [0xa1b2_c3d4_u32, 2 << 16 | 4, 0, 0, 1 << 16, link].map(u32::to_be_bytes).concat()
            }
            _ => {
                let link: u32 = match format {
                    Format::Flags => 1001,
                    Format::H4 => 1002,
                    _ => 2001,
                };
                [&b"btsnoop\0"[..], &[1, link].map(u32::to_be_bytes).concat()].concat()
            }
        };
        for record in records {
            let Record { at, adapter, kind, is_sent, ref bytes } = *record;
            let is_control = kind != Kind::Acl;
            let opcode: u16 = match (kind, is_sent) {
                (Kind::Command, _) => 2,
                (Kind::Event, _) => 3,
                (Kind::Acl, true) => 4,
                (Kind::Acl, false) => 5,
            };
            let before = match format {
                Format::Flags | Format::Monitor => vec![],
                Format::H4 => vec![kind as u8],
                Format::PcapH4 => vec![0, 0, 0, u8::from(!is_sent), kind as u8],
                Format::PcapMonitor => [adapter, opcode].map(u16::to_be_bytes).concat(),
            };
            let whole = [before, bytes.clone()].concat();
            let there = &whole[..whole.len().min(snap)];
            let lengths = [whole.len(), there.len()].map(|length| length as u32);
            match format {
                Format::PcapH4 | Format::PcapMonitor => {
                    let time = [(at / 1_000_000) as u32, (at % 1_000_000) as u32];
                    let header = [time, [lengths[1], lengths[0]]].concat();
                    file.extend(header.into_iter().flat_map(u32::to_be_bytes));
                }
                _ => {
                    let flags = match format {
                        Format::Monitor => u32::from(adapter) << 16 | u32::from(opcode),
                        _ => u32::from(!is_sent) | u32::from(is_control) << 1,
                    };
                    let header = [lengths[0], lengths[1], flags, lost(at)];
                    file.extend(header.into_iter().flat_map(u32::to_be_bytes));
                    file.extend((at + EPOCH).to_be_bytes());
                }
            }
            file.extend(there);
        }
        file
    }
}

/// Checksum of a frame (TS 07.10, 5.2.1.6 and annex B).
fn check_sum(bytes: &[u8]) -> u8 {
    let step = |sum: u8| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0xe0 };
    0xff - bytes.iter().fold(0xff, |sum, byte| (0..8).fold(sum ^ byte, |sum, _| step(sum)))
}
