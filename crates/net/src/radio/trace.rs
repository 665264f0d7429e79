//! Packet traces: tables of `manyways flows --packets`, captures, CSV, and traces generated from a
//! seed.

mod long_gaps;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use manyways_flows::analysis::Settings;
use manyways_model::radio::csv::{self, CsvError};
use manyways_model::radio::workload::apps::APPS;
use manyways_model::radio::workload::{self, Workload};
use manyways_model::radio::{App, Apps, Direction, Packet, Sessions};
use manyways_record::table::{Batch, Kind, Value};
use manyways_sys::input::Input;
use manyways_unit::Prefix;
use manyways_unit::human::count_with_noun;
use manyways_unit::{Span, Time};
use manyways_wire::frame::SkipReason;
use thiserror::Error;

use manyways_capture::{
    CAPTURE_MAGIC, Folder, RunOptions, Source, SourceError, Tables, TablesError,
};

pub use self::long_gaps::LongGap;
use self::long_gaps::{LongGaps, MAX_GAP};
use super::lines::each_line;

/// Packets of tables and captures are sorted within a window of this many packets.
const REORDER_WINDOW: usize = 4_096;
/// Packets between two checks for a stop.
const STOP_CHECK_INTERVAL: u64 = 4_096;
/// Hint for a file of another format.
const FORMATS_HINT: &str =
    "give a capture, a packet table or its folder, a CSV file, or - for standard input";
/// First bytes of a Parquet file.
const PARQUET_MAGIC: [u8; 4] = *b"PAR1";
/// Name prefix of temporary folders for captures; the process number follows.
const TEMP_PREFIX: &str = "manyways-radio-";
const PACKET_TABLE: &str = "packets";

/// Selection of packets while reading a trace.
#[derive(Clone, Debug, Default)]
pub struct PacketSelection {
    /// Addresses of the device in captures. If empty, the device is the endpoint that starts a
    /// flow.
    pub local: Vec<Prefix>,
    /// Selects packets of one kind of network, if the trace has that information: `wifi`,
    /// `cellular`, `bluetooth` or `ethernet`.
    pub network: Option<&'static str>,
}

/// Progress of reading, and a request to stop.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Packets read so far.
    pub packets: Arc<AtomicU64>,
    /// If set, reading stops as if the trace ended there.
    pub stop: Arc<AtomicBool>,
}

/// Totals of a trace that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceStats {
    /// Packets passed to the caller.
    pub packets: u64,
    /// Packets of other kinds of networks.
    pub skipped: u64,
    pub first: Option<Time>,
    pub last: Option<Time>,
    /// Whether reading was stopped.
    pub is_stopped: bool,
}

impl TraceStats {
    /// Seconds from the first packet to the last.
    pub fn lasts(&self) -> f64 {
        let span = self.first.zip(self.last);
        span.map_or(0.0, |(first, last)| last.since(first).as_secs_f64())
    }
}

/// A trace that can be read repeatedly.
#[derive(Debug)]
pub struct Trace {
    name: String,
    format: TraceFormat,
    selection: PacketSelection,
    apps: Vec<App>,
    errors: Vec<String>,
    /// Packets of a capture that are not in the trace.
    undecoded: BTreeMap<SkipReason, u64>,
    long_gaps: LongGaps,
    is_empty: bool,
    /// Whether reading of a capture or stream was stopped; the trace ends there.
    is_stopped: bool,
}

#[derive(Debug)]
enum TraceFormat {
    Text { source: Source, _kept: Option<Spool> },
    Table { tables: Tables, _kept: TempFiles },
    Generated(TraceGenerator),
}

/// Temporary files that are removed with the trace.
#[derive(Debug)]
enum TempFiles {
    Nothing,
    Spool(#[allow(dead_code, reason = "keeps the file until drop")] Spool),
    Folder(#[allow(dead_code, reason = "keeps the folder until drop")] TempFolder),
}

/// Parameters of a generated trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceGenerator {
    /// `mixed-day`, or the name of an application.
    pub app: String,
    /// See [`workload::is_held_out`].
    pub seed: u64,
    pub duration: Span,
}

/// Reason why a trace cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{name}, {error}")]
    Line {
        name: String,
        #[source]
        error: CsvError,
    },
    #[error("cannot read {name}: {error}")]
    Read {
        name: String,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Tables(#[from] TablesError),
    #[error("{0} has no table of packets")]
    NoPackets(String),
    #[error("there is no packet in {0}")]
    Empty(String),
    /// None of a capture's packets can be decoded.
    #[error("cannot decode any packet of {name}: {}, {reason}", packet_count(.packets))]
    Undecoded {
        name: String,
        /// The most frequent reason, and the packets with it.
        reason: SkipReason,
        packets: u64,
    },
    /// All packets are of other kinds of networks than the selected one.
    #[error("{name} has no packet of a {network} network: {} of other networks", packet_count(.packets))]
    OtherNetworks { name: String, network: &'static str, packets: u64 },
    #[error("{name}: packet {number} is earlier than the packets before it")]
    Unsorted {
        name: String,
        /// From 1.
        number: u64,
    },
    #[error("{name}: packet {number} has no {value}")]
    MissingValue {
        name: String,
        /// From 1.
        number: u64,
        /// Name of the missing value.
        value: &'static str,
    },
    /// The analysis of a capture failed.
    #[error("cannot analyse {name}: {error}")]
    Capture {
        name: String,
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The application of a generated trace is unknown.
    #[error("there is no trace model `{0}`")]
    UnknownModel(String),
}

/// `1 packet`, `12 packets`.
fn packet_count(packets: &u64) -> String {
    count_with_noun(usize::try_from(*packets).unwrap_or(usize::MAX), "packet")
}

impl TraceError {
    pub fn hint(&self) -> String {
        match self {
            // The hint for captures would also name folders and patterns.
            Self::Source(SourceError::Compressed { .. }) => {
                "decompress the file first, or use gzip or zstd, which are read directly".to_owned()
            }
            Self::Source(_) => FORMATS_HINT.to_owned(),
            Self::Line { error, .. } => error.hint.clone().unwrap_or_else(|| {
                "the columns of a CSV trace are time,bytes,direction[,app][,port][,flow]".to_owned()
            }),
            Self::Read { .. } => FORMATS_HINT.to_owned(),
            Self::Tables(TablesError::Version { .. }) => {
                "write the tables again with this version of manyways".to_owned()
            }
            Self::Tables(_) => {
                "write the tables of the folder with: manyways flows CAPTURE -o DIR --packets"
                    .to_owned()
            }
            Self::NoPackets(_) => {
                "write one with: manyways flows CAPTURE -o DIR --packets".to_owned()
            }
            Self::Undecoded { reason, .. } => {
                let hint =
                    reason.hint().unwrap_or("give a capture with packets of IP or Bluetooth");
                hint.to_owned()
            }
            Self::OtherNetworks { .. } => {
                "give the profile of a radio of that network, or another trace".to_owned()
            }
            Self::Empty(_) => "give a trace with at least one packet".to_owned(),
            Self::Unsorted { .. } => "sort the trace by time first".to_owned(),
            Self::MissingValue { .. } => {
                "give each packet a time, a number of bytes and a direction".to_owned()
            }
            Self::Capture { .. } => "run manyways flows on the capture for details".to_owned(),
            Self::UnknownModel(_) => {
                let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
                format!("use mixed-day, or one of {}", names.join(", "))
            }
        }
    }
}

impl TraceGenerator {
    ///
    /// # Errors
    /// Fails if the application is unknown.
    pub fn workload(&self) -> Result<Workload, TraceError> {
        if self.app == "mixed-day" {
            return Ok(workload::mixed(self.seed, self.duration));
        }
        let app = APPS.iter().find(|app| app.name == self.app);
        let app = app.ok_or_else(|| TraceError::UnknownModel(self.app.clone()))?;
        Ok(workload::alone(app, self.seed, self.duration))
    }
}

impl Trace {
    /// Opens a file, a folder of `manyways flows -o`, or `-` for standard input. A capture is
    /// analysed at once.
    ///
    /// # Errors
    /// Fails if the format is unknown, or if the analysis of a capture fails.
    pub fn open(
        path: &Path,
        selection: &PacketSelection,
        progress: &Progress,
    ) -> Result<Self, TraceError> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let mut trace = Self {
            name: name.clone(),
            format: TraceFormat::Generated(TraceGenerator {
                app: String::new(),
                seed: 0,
                duration: Span::ZERO,
            }),
            selection: selection.clone(),
            apps: Vec::new(),
            errors: Vec::new(),
            undecoded: BTreeMap::new(),
            long_gaps: LongGaps::default(),
            is_empty: false,
            is_stopped: false,
        };
        if path.is_dir() {
            let tables = Tables::open(path)?;
            if !tables.has(PACKET_TABLE) {
                return Err(TraceError::NoPackets(name));
            }
            trace.format = TraceFormat::Table { tables, _kept: TempFiles::Nothing };
            trace.find_long_gaps(progress);
            return Ok(trace);
        }
        // Streams are stored, because they can be read only once.
        let is_stream = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let unread = |error| TraceError::Read { name: name.clone(), error };
        let input = match (is_stdin, is_stream) {
            (true, _) => Some(Input::stdin(&progress.stop)),
            (false, true) => Some(Input::open(path, &progress.stop)),
            (false, false) => None,
        };
        let spool = input.map(|input| input.and_then(Spool::store)).transpose().map_err(unread)?;
        // A stopped stream is a short trace, and all of it is read.
        trace.is_stopped = spool.is_some() && progress.stop.load(Ordering::Relaxed);
        let place = spool.as_ref().map_or(path.to_owned(), Spool::path);
        let length = fs::metadata(&place).map_or(0, |found| found.len());
        let source = Source::File { path: place.clone(), length };
        let mut magic = [0; 4];
        let mut read = source.open(&manyways_capture::Progress::default())?;
        let count = read_full(&mut read, &mut magic).map_err(unread)?;
        trace.format = match magic {
            PARQUET_MAGIC => TraceFormat::Table {
                tables: Tables::file(&place, PACKET_TABLE)?,
                _kept: spool.map_or(TempFiles::Nothing, TempFiles::Spool),
            },
            magic if count == 4 && CAPTURE_MAGIC.contains(&magic) => {
                let stop = if trace.is_stopped { Arc::default() } else { progress.stop.clone() };
                let AnalyzedCapture { folder, errors, undecoded } =
                    analyze_capture(&name, source, selection, stop)?;
                trace.undecoded = undecoded;
                // If a stream was stopped within a packet, the truncation is not a fault of the
                // capture.
                trace.errors = if trace.is_stopped { Vec::new() } else { errors };
                trace.is_stopped |= progress.stop.load(Ordering::Relaxed);
                match Tables::open(&folder.0) {
                    Ok(tables) if tables.has(PACKET_TABLE) => {
                        TraceFormat::Table { tables, _kept: TempFiles::Folder(folder) }
                    }
                    Ok(_) | Err(TablesError::Empty(_)) => return Err(trace.emptiness(0)),
                    Err(error) => return Err(error.into()),
                }
            }
            _ => TraceFormat::Text { source, _kept: spool },
        };
        trace.find_long_gaps(progress);
        Ok(trace)
    }

    /// Finds the gaps that do not count. Faults are left to the reader of the trace.
    fn find_long_gaps(&mut self, progress: &Progress) {
        let progress = Progress { stop: progress.stop.clone(), ..Progress::default() };
        if let TraceFormat::Table { tables, .. } = &self.format
            && table_span(tables).is_some_and(|span| span <= MAX_GAP)
        {
            return;
        }
        let (mut gaps, mut is_empty) = (LongGaps::default(), true);
        let _ = self.read(&progress, |packet| {
            is_empty = false;
            gaps.push(packet.at);
        });
        (self.long_gaps, self.is_empty) = (gaps.finish(), is_empty);
    }

    /// The reason why no packet was read, `left_out` of other kinds of networks.
    fn emptiness(&self, left_out: u64) -> TraceError {
        let name = self.name.clone();
        let most = self.undecoded.iter().max_by_key(|(_, packets)| **packets);
        match (self.selection.network, most) {
            (Some(network), _) if left_out > 0 => {
                TraceError::OtherNetworks { name, network, packets: left_out }
            }
            (_, Some((reason, packets))) => {
                TraceError::Undecoded { name, reason: *reason, packets: *packets }
            }
            _ => TraceError::Empty(name),
        }
    }

    /// A trace that is generated at each reading.
    ///
    /// # Errors
    /// Fails if the application is unknown.
    pub fn generated(generator: TraceGenerator) -> Result<Self, TraceError> {
        generator.workload()?;
        Ok(Self {
            name: format!("{}#{}", generator.app, generator.seed),
            format: TraceFormat::Generated(generator),
            selection: PacketSelection::default(),
            apps: Vec::new(),
            errors: Vec::new(),
            undecoded: BTreeMap::new(),
            long_gaps: LongGaps::default(),
            is_empty: false,
            is_stopped: false,
        })
    }

    /// Path or description for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the directions of the packets come from their addresses, because the trace is a
    /// capture.
    pub fn is_capture(&self) -> bool {
        matches!(self.format, TraceFormat::Table { _kept: TempFiles::Folder(_), .. })
    }

    /// Faults found by the analysis of a capture; packets before them are in the trace.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Packets of a capture that are not in the trace because their link type is not read, and a
    /// hint. If the trace has no packet, the error of [`Trace::read`] reports this.
    pub fn unread_links(&self) -> impl Iterator<Item = (String, Option<&'static str>)> {
        let links = self.undecoded.iter().filter(|_| !self.is_empty);
        let links = links.filter(|(reason, _)| matches!(reason, SkipReason::Link(_)));
        links.map(|(reason, packets)| {
            (format!("cannot decode {}: {reason}", packet_count(packets)), reason.hint())
        })
    }

    /// The gaps above 30 days. Of each, one minute counts; the part of the trace with the most
    /// packets keeps its times, and the others are moved next to it.
    pub fn long_gaps(&self) -> &[LongGap] {
        self.long_gaps.all()
    }

    /// Applications of the last reading, indexed by number.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    /// Passes all packets to the callback, in order from the first one.
    ///
    /// # Errors
    /// Returns the first fault; packets passed before are valid.
    pub fn read(
        &mut self,
        progress: &Progress,
        mut each: impl FnMut(&Packet),
    ) -> Result<TraceStats, TraceError> {
        let mut stats = TraceStats::default();
        let is_cut = self.is_stopped;
        let gaps = &self.long_gaps;
        let mut pass = |packet: &Packet| {
            let packet = Packet { at: gaps.counted(packet.at), ..*packet };
            stats.packets += 1;
            stats.first = stats.first.or(Some(packet.at));
            stats.last = Some(packet.at);
            each(&packet);
            if stats.packets.is_multiple_of(STOP_CHECK_INTERVAL) {
                progress.packets.fetch_add(STOP_CHECK_INTERVAL, Ordering::Relaxed);
                stats.is_stopped = !is_cut && progress.stop.load(Ordering::Relaxed);
            }
            !stats.is_stopped
        };
        let mut left_out = 0;
        match &self.format {
            TraceFormat::Generated(made) => {
                let mut made = made.workload()?;
                let names = made.names().iter();
                self.apps = names.map(|name| App { name: name.clone(), port: None }).collect();
                while let Some(packet) = made.next()
                    && pass(&packet)
                {}
            }
            TraceFormat::Text { source, .. } => {
                self.apps = read_csv(&self.name, source, is_cut, pass)?
            }
            TraceFormat::Table { tables, .. } => {
                let mut rows = TableReader::new(&self.name, tables, self.selection.network)?;
                rows.read(tables, pass)?;
                left_out = rows.skipped;
                self.apps = rows.apps.all().to_vec();
            }
        }
        progress.packets.fetch_add(stats.packets % STOP_CHECK_INTERVAL, Ordering::Relaxed);
        stats.skipped = left_out;
        stats.is_stopped |= is_cut;
        match stats.packets {
            0 => Err(self.emptiness(left_out)),
            _ => Ok(stats),
        }
    }
}

/// Reads until the buffer is full or the input ends.
fn read_full(read: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match read.read(&mut into[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn read_csv(
    name: &str,
    source: &Source,
    is_cut: bool,
    mut pass: impl FnMut(&Packet) -> bool,
) -> Result<Vec<App>, TraceError> {
    let mut reader: Option<csv::Reader> = None;
    each_line(name, source, &Arc::default(), is_cut, |line| match &mut reader {
        None => {
            reader = Some(csv::Reader::new(line)?);
            Ok(true)
        }
        Some(reader) => Ok(reader.line(line)?.is_none_or(|packet| pass(&packet))),
    })?;
    Ok(reader.map_or_else(Vec::new, |reader| reader.apps().to_vec()))
}

/// The time from the earliest packet of a table to the latest; `None` if it has none or cannot be read.
fn table_span(tables: &Tables) -> Option<Span> {
    let mut times: Option<(Time, Time)> = None;
    let read = tables.read(PACKET_TABLE, &["time"], |batch, kinds, _| {
        for row in batch.iter(kinds) {
            if let [Value::Time(at)] = row[..] {
                let (first, last) = times.unwrap_or((at, at));
                times = Some((first.min(at), last.max(at)));
            }
        }
        Ok(())
    });
    read.ok()?.ok()?;
    times.map(|(first, last)| last.since(first))
}

/// Reads a table of packets.
struct TableReader {
    name: String,
    network: Option<&'static str>,
    /// Server port of each flow.
    ports: HashMap<u64, u16>,
    apps: Apps,
    sessions: Sessions,
    number: u64,
    skipped: u64,
    last: Time,
    /// Packets read and not yet passed on, so that slightly late ones are put in order.
    reorder_buffer: BinaryHeap<Reverse<(Time, u64, Packet)>>,
}

impl TableReader {
    fn new(name: &str, tables: &Tables, network: Option<&'static str>) -> Result<Self, TraceError> {
        let mut ports = HashMap::new();
        for table in ["tcp", "udp"].into_iter().filter(|table| tables.has(table)) {
            let read = tables.read(table, &["flow", "server_port"], |batch, kinds, _| {
                for row in batch.iter(kinds) {
                    if let [Value::Count(flow), Value::Count(port)] = row[..]
                        && let Ok(port) = u16::try_from(port)
                    {
                        ports.insert(flow, port);
                    }
                }
                Ok(())
            })?;
            read.map_err(|error| TraceError::Read { name: name.to_owned(), error })?;
        }
        Ok(Self {
            name: name.to_owned(),
            network,
            ports,
            apps: Apps::default(),
            sessions: Sessions::default(),
            number: 0,
            skipped: 0,
            last: Time::ZERO,
            reorder_buffer: BinaryHeap::new(),
        })
    }

    fn read(
        &mut self,
        tables: &Tables,
        mut pass: impl FnMut(&Packet) -> bool,
    ) -> Result<(), TraceError> {
        const COLUMNS: [&str; 6] = ["time", "bytes", "direction", "network", "flow", "application"];
        let mut fault = None;
        let mut is_over = false;
        let read = tables.read(PACKET_TABLE, &COLUMNS, |batch, kinds, _| {
            match self.read_batch(batch, kinds, &mut pass) {
                Ok(true) => return Ok(()),
                Ok(false) => is_over = true,
                Err(error) => fault = Some(error),
            }
            Err(io::Error::other("enough"))
        })?;
        match (read, fault) {
            (_, Some(fault)) => return Err(fault),
            (Err(error), None) if !is_over => {
                return Err(TraceError::Read { name: self.name.clone(), error });
            }
            _ => {}
        }
        while !is_over && let Some(Reverse((_, _, packet))) = self.reorder_buffer.pop() {
            is_over = !pass(&self.with_session(packet));
        }
        Ok(())
    }

    /// Returns whether to continue.
    fn read_batch(
        &mut self,
        batch: &Batch,
        kinds: &[Kind],
        pass: &mut impl FnMut(&Packet) -> bool,
    ) -> Result<bool, TraceError> {
        for row in batch.iter(kinds) {
            self.number += 1;
            let lacks = |what| TraceError::MissingValue {
                name: self.name.clone(),
                number: self.number,
                value: what,
            };
            let [time, bytes, direction, network, flow, application] = &row[..] else {
                continue;
            };
            let text = |value: &Value<'_>| match value {
                Value::Text(text) => Some(text.clone().into_owned()),
                _ => None,
            };
            if let (Some(wanted), Some(network)) = (self.network, text(network))
                && network != wanted
            {
                self.skipped += 1;
                continue;
            }
            let Value::Time(at) = time else { return Err(lacks("time")) };
            let Value::Count(bytes) = bytes else { return Err(lacks("number of bytes")) };
            let direction = match text(direction).as_deref() {
                Some("up") => Direction::Up,
                Some("down") => Direction::Down,
                _ => return Err(lacks("direction")),
            };
            let flow = if let Value::Count(flow) = flow { Some(*flow) } else { None };
            let port = flow.and_then(|flow| self.ports.get(&flow).copied());
            let app = self.apps.number(&text(application).unwrap_or_default(), port);
            // The session number is assigned when the packet is passed on, because sessions depend
            // on the order of time.
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
            let session = flow.map_or(0, |flow| self.sessions.assign(*at, app, Some(flow)));
            if *at < self.last {
                let (name, number) = (self.name.clone(), self.number);
                return Err(TraceError::Unsorted { name, number });
            }
            let packet = Packet { at: *at, direction, bytes, app, session };
            self.reorder_buffer.push(Reverse((*at, self.number, packet)));
            if self.reorder_buffer.len() > REORDER_WINDOW
                && let Some(Reverse((at, _, packet))) = self.reorder_buffer.pop()
            {
                self.last = at;
                if !pass(&self.with_session(packet)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Without a flow, gaps separate sessions.
    fn with_session(&mut self, packet: Packet) -> Packet {
        match packet.session {
            0 => Packet { session: self.sessions.assign(packet.at, packet.app, None), ..packet },
            _ => packet,
        }
    }
}

/// Standard input, stored in an unnamed file so that it can be read repeatedly.
#[derive(Debug)]
struct Spool(File);

impl Spool {
    fn store(mut input: impl Read) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{TEMP_PREFIX}{}.in", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        io::copy(&mut input, &mut file)?;
        Ok(Self(file))
    }

    /// A path by which the file can be opened again.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// A temporary folder that is removed when dropped.
#[derive(Debug)]
struct TempFolder(PathBuf);

impl TempFolder {
    fn create() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let home = std::env::temp_dir();
        remove_stale_folders(&home);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(format!("{TEMP_PREFIX}{}-{count}", std::process::id()));
        // Private to this user.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes folders of killed processes.
fn remove_stale_folders(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMP_PREFIX)) else {
            continue;
        };
        let process = rest.split(['-', '.']).next().unwrap_or_default();
        let is_number = process.parse::<u32>().is_ok();
        if is_number && !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
}

/// The table of a capture's packets.
struct AnalyzedCapture {
    folder: TempFolder,
    /// Faults of the capture; packets before them are in the table.
    errors: Vec<String>,
    /// Packets that are not in the table.
    undecoded: BTreeMap<SkipReason, u64>,
}

/// Writes a capture's packets to a table.
fn analyze_capture(
    name: &str,
    source: Source,
    selection: &PacketSelection,
    stop: Arc<AtomicBool>,
) -> Result<AnalyzedCapture, TraceError> {
    let failed = |error| TraceError::Capture { name: name.to_owned(), error };
    let temp = TempFolder::create().map_err(|error| failed(error.into()))?;
    let mut folder = Folder::create(&temp.0, false).map_err(|error| failed(error.into()))?;
    let mut settings = Settings::default();
    settings.packets = true;
    settings.local.clone_from(&selection.local);
    let looking = manyways_capture::Progress { stop, ..manyways_capture::Progress::default() };
    let outcome = manyways_capture::run(
        &[source],
        &RunOptions::new(settings, 1),
        Some(&mut folder),
        &looking,
    )
    .map_err(|error| failed(error.into()))?;
    folder.finish("{}").map_err(|error| failed(error.into()))?;
    let errors = outcome.captures.into_iter().filter_map(|capture| capture.error).collect();
    let undecoded = outcome.counters.undecoded.iter().collect();
    Ok(AnalyzedCapture { folder: temp, errors, undecoded })
}

#[cfg(test)]
mod tests;
