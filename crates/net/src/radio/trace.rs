//! Packet traces: tables of `manyways flows --packets`, captures, CSV, and traces generated from a
//! seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
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
use manyways_unit::{Span, Time};
use thiserror::Error;

use manyways_capture::{CAPTURES, Folder, Plan, Source, SourceError, Tables, TablesError};

/// Packets of tables and captures are sorted within a window of this many packets.
const WINDOW: usize = 4_096;
/// Packets between two checks for a stop.
const LOOK: u64 = 4_096;
/// Hint for a file of another format.
const FORMS: &str =
    "give a capture, a packet table or its folder, a CSV file, or - for standard input";
/// First bytes of a Parquet file.
const PARQUET: [u8; 4] = *b"PAR1";
/// Name prefix of temporary folders for captures; the process number follows.
const FOLDER: &str = "manyways-radio-";
const PACKETS: &str = "packets";

/// Selection of packets while reading a trace.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
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
pub struct Seen {
    /// Packets passed to the caller.
    pub packets: u64,
    /// Packets of other kinds of networks.
    pub left_out: u64,
    pub first: Option<Time>,
    pub last: Option<Time>,
    /// Whether reading was stopped.
    pub is_stopped: bool,
}

/// A trace that can be read repeatedly.
#[derive(Debug)]
pub struct Trace {
    name: String,
    form: Form,
    wanted: Wanted,
    apps: Vec<App>,
    faults: Vec<String>,
    /// Whether reading of a capture or stream was stopped; the trace ends there.
    is_cut: bool,
}

#[derive(Debug)]
enum Form {
    Text { source: Source, _kept: Option<Spool> },
    Table { tables: Tables, _kept: Kept },
    Made(Made),
}

/// Temporary files that are removed with the trace.
#[derive(Debug)]
enum Kept {
    Nothing,
    Spool(#[allow(dead_code, reason = "keeps the file until drop")] Spool),
    Folder(#[allow(dead_code, reason = "keeps the folder until drop")] TempFolder),
}

/// Parameters of a generated trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// `mixed-day`, or the name of an application.
    pub app: String,
    /// See [`workload::is_held_back`].
    pub seed: u64,
    pub lasts: Span,
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
    #[error("{name}: packet {number} is earlier than the packets before it")]
    Unsorted {
        name: String,
        /// From 1.
        number: u64,
    },
    #[error("{name}: packet {number} has no {what}")]
    Lacks {
        name: String,
        /// From 1.
        number: u64,
        /// Name of the missing value.
        what: &'static str,
    },
    /// The analysis of a capture failed.
    #[error("cannot analyse {name}: {why}")]
    Capture { name: String, why: String },
    /// The application of a generated trace is unknown.
    #[error("there is no trace model `{0}`")]
    Unknown(String),
}

impl TraceError {
    pub fn hint(&self) -> String {
        match self {
            // The hint for captures would also name folders and patterns.
            Self::Source(SourceError::Compressed { .. }) => {
                "decompress the file first, or use gzip or zstd, which are read directly".to_owned()
            }
            Self::Source(_) => FORMS.to_owned(),
            Self::Line { error, .. } => error.hint.clone().unwrap_or_else(|| {
                "the columns of a CSV trace are time,bytes,direction[,app][,port][,flow]".to_owned()
            }),
            Self::Read { .. } => FORMS.to_owned(),
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
            Self::Empty(_) => "give a trace with at least one packet".to_owned(),
            Self::Unsorted { .. } => "sort the trace by time first".to_owned(),
            Self::Lacks { .. } => {
                "give each packet a time, a number of bytes and a direction".to_owned()
            }
            Self::Capture { .. } => "run manyways flows on the capture for details".to_owned(),
            Self::Unknown(_) => {
                let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
                format!("use mixed-day, or one of {}", names.join(", "))
            }
        }
    }
}

impl Made {
    ///
    /// # Errors
    /// Fails if the application is unknown.
    pub fn begin(&self) -> Result<Workload, TraceError> {
        if self.app == "mixed-day" {
            return Ok(workload::mixed(self.seed, self.lasts));
        }
        let app = APPS.iter().find(|app| app.name == self.app);
        let app = app.ok_or_else(|| TraceError::Unknown(self.app.clone()))?;
        Ok(workload::alone(app, self.seed, self.lasts))
    }
}

impl Trace {
    /// Opens a file, a folder of `manyways flows -o`, or `-` for standard input. A capture is
    /// analysed at once.
    ///
    /// # Errors
    /// Fails if the format is unknown, or if the analysis of a capture fails.
    pub fn open(path: &Path, wanted: &Wanted, progress: &Progress) -> Result<Self, TraceError> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let mut trace = Self {
            name: name.clone(),
            form: Form::Made(Made { app: String::new(), seed: 0, lasts: Span::ZERO }),
            wanted: wanted.clone(),
            apps: Vec::new(),
            faults: Vec::new(),
            is_cut: false,
        };
        if path.is_dir() {
            let tables = Tables::open(path)?;
            if !tables.has(PACKETS) {
                return Err(TraceError::NoPackets(name));
            }
            trace.form = Form::Table { tables, _kept: Kept::Nothing };
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
        let spool = input.map(|input| input.and_then(Spool::take)).transpose().map_err(unread)?;
        // A stopped stream is a short trace, and all of it is read.
        trace.is_cut = spool.is_some() && progress.stop.load(Ordering::Relaxed);
        let place = spool.as_ref().map_or(path.to_owned(), Spool::path);
        let length = fs::metadata(&place).map_or(0, |found| found.len());
        let source = Source::File { path: place.clone(), length };
        let mut magic = [0; 4];
        let mut read = source.open(&manyways_capture::Progress::default())?;
        let count = fill(&mut read, &mut magic).map_err(unread)?;
        trace.form = match magic {
            PARQUET => Form::Table {
                tables: Tables::file(&place, PACKETS)?,
                _kept: spool.map_or(Kept::Nothing, Kept::Spool),
            },
            magic if count == 4 && CAPTURES.contains(&magic) => {
                let stop = if trace.is_cut { Arc::default() } else { progress.stop.clone() };
                let (folder, faults) = look_through(&name, source, wanted, stop)?;
                // If a stream was stopped within a packet, the truncation is not a fault of the
                // capture.
                trace.faults = if trace.is_cut { Vec::new() } else { faults };
                trace.is_cut |= progress.stop.load(Ordering::Relaxed);
                match Tables::open(&folder.0) {
                    Ok(tables) if tables.has(PACKETS) => {
                        Form::Table { tables, _kept: Kept::Folder(folder) }
                    }
                    Ok(_) | Err(TablesError::Empty(_)) => return Err(TraceError::Empty(name)),
                    Err(error) => return Err(error.into()),
                }
            }
            _ => Form::Text { source, _kept: spool },
        };
        Ok(trace)
    }

    /// A trace that is generated at each reading.
    ///
    /// # Errors
    /// Fails if the application is unknown.
    pub fn made(made: Made) -> Result<Self, TraceError> {
        made.begin()?;
        Ok(Self {
            name: format!("{}#{}", made.app, made.seed),
            form: Form::Made(made),
            wanted: Wanted::default(),
            apps: Vec::new(),
            faults: Vec::new(),
            is_cut: false,
        })
    }

    /// Path or description for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Faults found by the analysis of a capture; packets before them are in the trace.
    pub fn faults(&self) -> &[String] {
        &self.faults
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
    ) -> Result<Seen, TraceError> {
        let mut seen = Seen::default();
        let is_cut = self.is_cut;
        let mut pass = |packet: &Packet| {
            seen.packets += 1;
            seen.first = seen.first.or(Some(packet.at));
            seen.last = Some(packet.at);
            each(packet);
            if seen.packets.is_multiple_of(LOOK) {
                progress.packets.fetch_add(LOOK, Ordering::Relaxed);
                seen.is_stopped = !is_cut && progress.stop.load(Ordering::Relaxed);
            }
            !seen.is_stopped
        };
        let mut left_out = 0;
        match &self.form {
            Form::Made(made) => {
                let mut made = made.begin()?;
                let names = made.names().iter();
                self.apps = names.map(|name| App { name: name.clone(), port: None }).collect();
                while let Some(packet) = made.next()
                    && pass(&packet)
                {}
            }
            Form::Text { source, .. } => self.apps = lines(&self.name, source, is_cut, pass)?,
            Form::Table { tables, .. } => {
                let mut rows = Rows::new(&self.name, tables, self.wanted.network)?;
                rows.all(tables, pass)?;
                left_out = rows.left_out;
                self.apps = rows.apps.all().to_vec();
            }
        }
        progress.packets.fetch_add(seen.packets % LOOK, Ordering::Relaxed);
        seen.left_out = left_out;
        seen.is_stopped |= is_cut;
        match seen.packets {
            0 => Err(TraceError::Empty(self.name.clone())),
            _ => Ok(seen),
        }
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(read: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
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

fn lines(
    name: &str,
    source: &Source,
    is_cut: bool,
    mut pass: impl FnMut(&Packet) -> bool,
) -> Result<Vec<App>, TraceError> {
    let wrong = |error| TraceError::Line { name: name.to_owned(), error };
    let unread = |error| TraceError::Read { name: name.to_owned(), error };
    let mut lines =
        BufReader::with_capacity(1 << 17, source.open(&manyways_capture::Progress::default())?);
    let mut line = Vec::new();
    let mut number = 0;
    let mut reader: Option<csv::Reader> = None;
    loop {
        line.clear();
        number += 1;
        // One byte more than a line with its end can have, so that the reader detects a line that
        // is too long.
        let room = csv::MAX_LINE as u64 + 3;
        if lines.by_ref().take(room).read_until(b'\n', &mut line).map_err(unread)? == 0 {
            break;
        }
        // A stopped stream can end within a line.
        if is_cut && line.last() != Some(&b'\n') {
            break;
        }
        let text = str::from_utf8(&line).map_err(|_| {
            wrong(CsvError {
                line: number,
                sentence: "the line is not UTF-8 text".to_owned(),
                hint: None,
            })
        })?;
        match &mut reader {
            None => reader = Some(csv::Reader::new(text).map_err(wrong)?),
            Some(reader) => {
                if let Some(packet) = reader.line(text).map_err(wrong)?
                    && !pass(&packet)
                {
                    break;
                }
            }
        }
    }
    Ok(reader.map_or_else(Vec::new, |reader| reader.apps().to_vec()))
}

/// Reads a table of packets.
struct Rows {
    name: String,
    network: Option<&'static str>,
    /// Server port of each flow.
    ports: HashMap<u64, u16>,
    apps: Apps,
    sessions: Sessions,
    number: u64,
    left_out: u64,
    last: Time,
    /// Packets read and not yet passed on, so that slightly late ones are put in order.
    waiting: BinaryHeap<Reverse<(Time, u64, Packet)>>,
}

impl Rows {
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
            left_out: 0,
            last: Time::ZERO,
            waiting: BinaryHeap::new(),
        })
    }

    fn all(
        &mut self,
        tables: &Tables,
        mut pass: impl FnMut(&Packet) -> bool,
    ) -> Result<(), TraceError> {
        const COLUMNS: [&str; 6] = ["time", "bytes", "direction", "network", "flow", "application"];
        let mut fault = None;
        let mut is_over = false;
        let read = tables.read(PACKETS, &COLUMNS, |batch, kinds, _| {
            match self.batch(batch, kinds, &mut pass) {
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
        while !is_over && let Some(Reverse((_, _, packet))) = self.waiting.pop() {
            is_over = !pass(&self.numbered(packet));
        }
        Ok(())
    }

    /// Returns whether to continue.
    fn batch(
        &mut self,
        batch: &Batch,
        kinds: &[Kind],
        pass: &mut impl FnMut(&Packet) -> bool,
    ) -> Result<bool, TraceError> {
        for row in batch.iter(kinds) {
            self.number += 1;
            let lacks =
                |what| TraceError::Lacks { name: self.name.clone(), number: self.number, what };
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
                self.left_out += 1;
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
            let session = flow.map_or(0, |flow| self.sessions.of(*at, app, Some(flow)));
            if *at < self.last {
                let (name, number) = (self.name.clone(), self.number);
                return Err(TraceError::Unsorted { name, number });
            }
            let packet = Packet { at: *at, direction, bytes, app, session };
            self.waiting.push(Reverse((*at, self.number, packet)));
            if self.waiting.len() > WINDOW
                && let Some(Reverse((at, _, packet))) = self.waiting.pop()
            {
                self.last = at;
                if !pass(&self.numbered(packet)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Without a flow, gaps separate sessions.
    fn numbered(&mut self, packet: Packet) -> Packet {
        match packet.session {
            0 => Packet { session: self.sessions.of(packet.at, packet.app, None), ..packet },
            _ => packet,
        }
    }
}

/// Standard input, stored in an unnamed file so that it can be read repeatedly.
#[derive(Debug)]
struct Spool(File);

impl Spool {
    fn take(mut input: impl Read) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{FOLDER}{}.in", std::process::id()));
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
        sweep(&home);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(format!("{FOLDER}{}-{count}", std::process::id()));
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
fn sweep(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(FOLDER)) else { continue };
        let process = rest.split(['-', '.']).next().unwrap_or_default();
        let is_number = process.parse::<u32>().is_ok();
        if is_number && !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
}

/// Writes a capture's packets to a table, and returns the faults.
fn look_through(
    name: &str,
    source: Source,
    wanted: &Wanted,
    stop: Arc<AtomicBool>,
) -> Result<(TempFolder, Vec<String>), TraceError> {
    let failed = |why: String| TraceError::Capture { name: name.to_owned(), why };
    let temp = TempFolder::create().map_err(|error| failed(error.to_string()))?;
    let mut folder = Folder::create(&temp.0, false).map_err(|error| failed(error.to_string()))?;
    let settings = Settings { packets: true, local: wanted.local.clone(), ..Settings::default() };
    let looking = manyways_capture::Progress { stop, ..manyways_capture::Progress::default() };
    let outcome = manyways_capture::run(
        &[source],
        &Plan { settings, threads: 1 },
        Some(&mut folder),
        &looking,
    )
    .map_err(|error| failed(error.to_string()))?;
    folder.finish("{}").map_err(|error| failed(error.to_string()))?;
    Ok((temp, outcome.captures.into_iter().filter_map(|capture| capture.fault).collect()))
}

#[cfg(test)]
mod tests;
