//! Traces of packets: tables of `manyways flows --packets`, captures, lines of text, and those that
//! are made from a seed.

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

/// Packets of tables and captures are put in order within so many of them.
const WINDOW: usize = 4_096;
/// Only every so many packets it is looked whether to stop.
const LOOK: u64 = 4_096;
/// What a trace can be.
const FORMS: &str =
    "give a capture, a packet table or its folder, a CSV file, or - for standard input";
/// What Parquet files begin with.
const PARQUET: [u8; 4] = *b"PAR1";
/// What the folders of captures that are looked through are called, before the number of their process.
const FOLDER: &str = "manyways-radio-";
const PACKETS: &str = "packets";

/// How a trace is to be read.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// In captures, these addresses are the device's. Where there are none, whoever begins a flow is.
    pub local: Vec<Prefix>,
    /// Only packets of this kind of network, where the trace tells: `wifi`, `cellular`, `bluetooth`
    /// or `ethernet`.
    pub network: Option<&'static str>,
}

/// How far it is, and whether to go on.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Packets that were read.
    pub packets: Arc<AtomicU64>,
    /// Set it to stop as if the trace ended here.
    pub stop: Arc<AtomicBool>,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets that were handed out.
    pub packets: u64,
    /// Packets of other kinds of networks.
    pub left_out: u64,
    /// When the first one passes.
    pub first: Option<Time>,
    /// When the last one does.
    pub last: Option<Time>,
    /// It was told to stop.
    pub is_stopped: bool,
}

/// A trace, which can be read again and again.
#[derive(Debug)]
pub struct Trace {
    name: String,
    form: Form,
    wanted: Wanted,
    apps: Vec<App>,
    faults: Vec<String>,
    /// A capture or a stream was stopped: the trace is what was read of it until then.
    is_cut: bool,
}

#[derive(Debug)]
enum Form {
    Text { source: Source, _kept: Option<Spool> },
    Table { tables: Tables, _kept: Kept },
    Made(Made),
}

/// What goes when a table is needed no more.
#[derive(Debug)]
enum Kept {
    Nothing,
    Spool(#[allow(dead_code, reason = "as long as it is there, its file is")] Spool),
    Folder(#[allow(dead_code, reason = "as long as it is there, so is it")] TempFolder),
}

/// A trace that is made from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// `mixed-day`, or the name of an application.
    pub app: String,
    /// See [`workload::is_held_back`].
    pub seed: u64,
    /// How long it is.
    pub lasts: Span,
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A line is wrong.
    #[error("{name}, {error}")]
    Line {
        /// Where.
        name: String,
        /// What is wrong.
        #[source]
        error: CsvError,
    },
    /// It cannot be read on.
    #[error("cannot read {name}: {error}")]
    Read {
        /// What.
        name: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// Its tables cannot be read.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// There is no table of packets.
    #[error("{0} has no table of packets")]
    NoPackets(String),
    /// There is no packet in it.
    #[error("there is no packet in {0}")]
    Empty(String),
    /// Packets are not in the order of their times.
    #[error("{name}: packet {number} is earlier than those before it")]
    Unsorted {
        /// Where.
        name: String,
        /// Counted from one.
        number: u64,
    },
    /// A packet lacks something.
    #[error("{name}: packet {number} has no {what}")]
    Lacks {
        /// Where.
        name: String,
        /// Counted from one.
        number: u64,
        /// What.
        what: &'static str,
    },
    /// A capture cannot be looked through.
    #[error("cannot look through {name}: {why}")]
    Capture {
        /// Which.
        name: String,
        /// What is in the way.
        why: String,
    },
    /// There is no such application to make a trace of.
    #[error("there is no trace `{0}` to be made")]
    Unknown(String),
}

impl TraceError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            // Commands for captures also take folders and patterns.
            Self::Source(SourceError::Compressed { .. }) => {
                "decompress the file first; gzip and zstd need no such step".to_owned()
            }
            Self::Source(_) => FORMS.to_owned(),
            Self::Line { error, .. } => error.hint.clone().unwrap_or_else(|| {
                "a trace is CSV: time,bytes,direction[,app][,port][,flow]".to_owned()
            }),
            Self::Read { .. } => FORMS.to_owned(),
            Self::Tables(TablesError::Version { .. }) => {
                "write the tables again with this version of manyways".to_owned()
            }
            Self::Tables(_) => {
                "a folder must have the tables of: manyways flows CAPTURE -o DIR --packets"
                    .to_owned()
            }
            Self::NoPackets(_) => {
                "write one with: manyways flows CAPTURE -o DIR --packets".to_owned()
            }
            Self::Empty(_) => "a trace has at least one packet".to_owned(),
            Self::Unsorted { .. } => "sort it by time first".to_owned(),
            Self::Lacks { .. } => {
                "each packet has a time, a number of bytes and a direction".to_owned()
            }
            Self::Capture { .. } => "manyways flows says more about it".to_owned(),
            Self::Unknown(_) => {
                let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
                format!("it is mixed-day, or one of {}", names.join(", "))
            }
        }
    }
}

impl Made {
    /// The packets.
    ///
    /// # Errors
    /// Where there is no such application.
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
    /// Opens a file, the folder of `manyways flows -o`, or `-` for standard input. A capture is looked
    /// through at once.
    ///
    /// # Errors
    /// Where it is nothing that can be read, or a capture whose analysis fails.
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
        // What can be read only once is kept.
        let is_stream = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let unread = |error| TraceError::Read { name: name.clone(), error };
        let input = match (is_stdin, is_stream) {
            (true, _) => Some(Input::stdin(&progress.stop)),
            (false, true) => Some(Input::open(path, &progress.stop)),
            (false, false) => None,
        };
        let spool = input.map(|input| input.and_then(Spool::take)).transpose().map_err(unread)?;
        // A stream that was stopped is a short trace. All of that is read.
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
                // Where a stream was stopped within a packet, the cut is no fault of the capture.
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

    /// A trace that is made each time it is read.
    ///
    /// # Errors
    /// Where there is no such application.
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

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a capture's analysis could not read; what was before that is in the trace.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The applications of the last reading by their numbers.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    /// Hands out all packets, from the first one on, in their order.
    ///
    /// # Errors
    /// What is wrong with it. What was handed out until then is right.
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

/// As much as there is.
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
        // One byte more than a line and its end may have, so that the reader sees that it is too long.
        let room = csv::MAX_LINE as u64 + 3;
        if lines.by_ref().take(room).read_until(b'\n', &mut line).map_err(unread)? == 0 {
            break;
        }
        // A stream that was stopped ends within a line.
        if is_cut && line.last() != Some(&b'\n') {
            break;
        }
        let text = str::from_utf8(&line).map_err(|_| {
            wrong(CsvError { line: number, sentence: "it is not text".to_owned(), hint: None })
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

/// Goes through a table of packets.
struct Rows {
    name: String,
    network: Option<&'static str>,
    /// The server's port of each flow.
    ports: HashMap<u64, u16>,
    apps: Apps,
    sessions: Sessions,
    number: u64,
    left_out: u64,
    last: Time,
    /// Read and not yet handed out, so that what is a little late finds its place.
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

    /// Whether to go on.
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
            // Its session is made when it is handed out: those count by the order of times.
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

    /// Without a flow, silences make sessions.
    fn numbered(&mut self, packet: Packet) -> Packet {
        match packet.session {
            0 => Packet { session: self.sessions.of(packet.at, packet.app, None), ..packet },
            _ => packet,
        }
    }
}

/// Standard input, kept in a file without a name so that it can be read again.
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

    /// By which it is opened anew.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// A folder that goes when nobody needs it.
#[derive(Debug)]
struct TempFolder(PathBuf);

impl TempFolder {
    fn create() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let home = std::env::temp_dir();
        sweep(&home);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(format!("{FOLDER}{}-{count}", std::process::id()));
        // What is in it is nobody else's.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What processes that were killed have left goes.
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

/// Makes a capture's packets a table, and says what could not be read.
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
