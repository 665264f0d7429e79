//! Packet traces from columns, from lines of text, or generated from a seed.

use manyways_model::radio::csv;
use manyways_model::radio::workload::apps::APPS;
use manyways_model::radio::workload::{Workload, alone, heartbeats, mixed};
use manyways_model::radio::{Direction, MAX_APPS, Packet, Sessions};
use manyways_unit::{Span, Time};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::{check_same_length, unknown_name_error, value_error};

/// Maximum number of packets that are generated or read.
const MAX_PACKETS: usize = 1 << 28;
/// Maximum duration of a generated trace in seconds: a year.
const MAX_SECS: f64 = 366.0 * 86_400.0;
/// Packets between two checks for an interrupt.
pub(super) const PACKETS_PER_CHECK: usize = 1 << 20;
/// Name of the workload of a user's day, in addition to the applications.
const MIXED_WORKLOAD: &str = "mixed-day";

/// Packets in order. Times count from the first packet, so that seconds are exact.
#[pyclass(frozen)]
pub struct Trace {
    pub(super) packets: Vec<Packet>,
    pub(super) names: Vec<String>,
    /// Nanoseconds from the origin of the given times to the first packet.
    begins: u64,
}

/// Times as given by the caller.
#[derive(FromPyObject)]
enum Times {
    Nanos(PyBuffer<i64>),
    Secs(PyBuffer<f64>),
}

#[pymethods]
impl Trace {
    /// Creates a trace from columns: times (nanoseconds as 64-bit integers, or seconds as 64-bit
    /// numbers), bytes, directions (0 from the device, 1 to it), and indexes of names and of flows,
    /// if known. Raises ValueError if a row is invalid.
    #[staticmethod]
    fn columns(
        py: Python<'_>,
        time: Times,
        bytes: PyBuffer<i64>,
        direction: PyBuffer<u8>,
        app: Option<PyBuffer<i32>>,
        names: Vec<String>,
        flow: Option<PyBuffer<i32>>,
    ) -> PyResult<Self> {
        let times = match time {
            Times::Nanos(times) => check_nanos(&times.to_vec(py)?)?,
            Times::Secs(times) => secs_to_nanos(&times.to_vec(py)?)?,
        };
        let rows = times.len();
        if rows > MAX_PACKETS {
            return Err(value_error(
                &format!("{rows} packets are too many"),
                "give a part of them",
            ));
        }
        let (bytes, direction) = (bytes.to_vec(py)?, direction.to_vec(py)?);
        let app = app.map(|app| app.to_vec(py)).transpose()?.unwrap_or_else(|| vec![0; rows]);
        let flow = flow.map(|flow| flow.to_vec(py)).transpose()?;
        for (count, what) in [
            (bytes.len(), "values of `bytes`"),
            (direction.len(), "values of `direction`"),
            (app.len(), "values of `app`"),
            (flow.as_ref().map_or(rows, Vec::len), "values of `flow`"),
        ] {
            check_same_length(count, what, rows, "values of `time`")?;
        }
        let mut names = if names.is_empty() { vec![String::new()] } else { names };
        names.truncate(MAX_APPS);
        let last = names.len() - 1;
        let mut sessions = Sessions::default();
        let start = times.first().copied().unwrap_or_default();
        let mut packets = Vec::with_capacity(rows);
        for (row, (time, ((bytes, way), app))) in
            times.iter().zip(bytes.iter().zip(&direction).zip(&app)).enumerate()
        {
            let Ok(bytes) = u32::try_from(*bytes) else {
                let message = format!("row {row} has {bytes} bytes");
                return Err(value_error(&message, "give whole numbers from 0 to 4294967295"));
            };
            let at = Time::from_nanos(time - start);
            let app = usize::try_from(*app).unwrap_or_default().min(last) as u16;
            // A negative index marks a row without a flow.
            let flow = flow.as_ref().and_then(|flow| flow[row].try_into().ok());
            packets.push(Packet {
                at,
                direction: if *way == 0 { Direction::Up } else { Direction::Down },
                bytes,
                app,
                // From 0, as in generated traces.
                session: sessions.assign(at, app, flow).wrapping_sub(1),
            });
        }
        Self::of(packets, names, start)
    }

    /// Creates a trace from lines of text, `time,bytes,direction[,app][,flow]`. Raises ValueError
    /// if a line is invalid.
    #[staticmethod]
    fn csv(py: Python<'_>, text: &[u8]) -> PyResult<Self> {
        let mut lines = text.split(|byte| *byte == b'\n').zip(1_u64..);
        let words = |(line, number): (&[u8], u64)| match std::str::from_utf8(line) {
            Ok(line) => Ok(line.to_owned()),
            Err(_) => {
                Err(value_error(&format!("line {number} is not text"), "encode the text in UTF-8"))
            }
        };
        let told = |error: csv::CsvError| super::error_with_hint(&error, error.hint.as_deref());
        let header = lines.next().map(words).transpose()?.unwrap_or_default();
        let mut reader = csv::Reader::new(&header).map_err(told)?;
        let mut packets: Vec<Packet> = Vec::new();
        for line in lines {
            if let Some(packet) = reader.line(&words(line)?).map_err(told)? {
                if packets.len().is_multiple_of(PACKETS_PER_CHECK) {
                    py.check_signals()?;
                }
                packets.push(packet);
            }
        }
        let start = packets.first().map_or(0, |first| first.at.as_nanos());
        for packet in &mut packets {
            packet.at = Time::from_nanos(packet.at.as_nanos() - start);
        }
        let names = reader.apps().iter().map(|app| app.name.clone()).collect();
        Self::of(packets, names, start)
    }

    /// Generates a trace from a seed. Raises ValueError if the application does not exist or the
    /// duration is too long.
    #[staticmethod]
    fn workload(py: Python<'_>, app: &str, seed: u64, seconds: f64) -> PyResult<Self> {
        let duration = check_duration(seconds)?;
        let workload = match APPS.iter().find(|one| one.name == app) {
            Some(one) => alone(one, seed, duration),
            None if app == MIXED_WORKLOAD => mixed(seed, duration),
            None => return Err(unknown_name_error("workload", app, workloads().into_iter())),
        };
        let names = Workload::names(&workload).to_vec();
        Self::generated(py, workload, names)
    }

    /// Generates packets of `bytes` bytes from the device at a constant interval. Raises ValueError
    /// if the interval is invalid.
    #[staticmethod]
    fn heartbeats(py: Python<'_>, every: f64, bytes: u32, seconds: f64) -> PyResult<Self> {
        let duration = check_duration(seconds)?;
        if !(1e-9..=MAX_SECS).contains(&every) {
            let message = format!("a heartbeat interval of {every} s is invalid");
            return Err(value_error(
                &message,
                "give an interval of more than 0 s and at most a year",
            ));
        }
        // Checked before the packets are generated.
        if seconds / every >= MAX_PACKETS as f64 {
            return Err(too_many_error());
        }
        let beats = heartbeats(Span::from_secs_f64(every), bytes, duration);
        Self::generated(py, beats, vec!["heartbeat".to_owned()])
    }

    fn __len__(&self) -> usize {
        self.packets.len()
    }

    /// Returns the seconds from the first packet to the last.
    fn duration(&self) -> f64 {
        self.packets.last().map_or(0.0, |last| last.at.as_secs_f64())
    }

    /// Returns the names of the applications; the name of an unknown application is empty.
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Returns a column as the bytes of its numbers: `time` in nanoseconds, `bytes`, `direction`
    /// and `app` as indexes, `flow`, `seconds`, and `gap`, which is NaN for the first packet.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> Bound<'py, PyBytes> {
        let all = &self.packets;
        let start = self.begins;
        let bytes: Vec<u8> = py.detach(|| match name {
            "time" => encode(all, |packet| ((start + packet.at.as_nanos()) as i64).to_le_bytes()),
            "bytes" => encode(all, |packet| i64::from(packet.bytes).to_le_bytes()),
            "direction" => encode(all, |packet| i32::from(is_down(packet)).to_le_bytes()),
            "app" => encode(all, |packet| i32::from(packet.app).to_le_bytes()),
            "flow" => encode(all, |packet| i64::from(packet.session).to_le_bytes()),
            "seconds" => encode(all, |packet| packet.at.as_secs_f64().to_le_bytes()),
            _ => {
                let mut last = None;
                encode(all, |packet| {
                    let gap = last.map_or(f64::NAN, |last| packet.at.since(last).as_secs_f64());
                    last = Some(packet.at);
                    gap.to_le_bytes()
                })
            }
        });
        PyBytes::new(py, &bytes)
    }

    /// Runs a policy: a plan, waits as 64-bit numbers, or an object with `observe`. Sessions of
    /// these applications may be delayed. Returns the outcome. Raises ValueError if a wait is
    /// invalid, and any exception that the object raises.
    fn run<'py>(
        &self,
        py: Python<'py>,
        radio: &super::Radio,
        policy: super::run::PolicyArg<'py>,
        tolerant: Vec<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        super::run::run(py, self, radio, policy, &tolerant)
    }
}

/// Returns the names of the workloads that can be generated.
#[pyfunction]
pub fn workloads() -> Vec<&'static str> {
    APPS.iter().map(|app| app.name).chain([MIXED_WORKLOAD]).collect()
}

impl Trace {
    fn of(packets: Vec<Packet>, names: Vec<String>, start: u64) -> PyResult<Self> {
        let Some(last) = packets.last() else {
            return Err(value_error("the trace has no packets", "give at least one"));
        };
        // Arrow's nanosecond timestamps end then.
        if start.saturating_add(last.at.as_nanos()) > i64::MAX.unsigned_abs() {
            return Err(value_error("the trace ends too late", "use times before the year 2262"));
        }
        Ok(Self { packets, names, begins: start })
    }

    fn generated(
        py: Python<'_>,
        mut packets: impl Iterator<Item = Packet> + Send,
        names: Vec<String>,
    ) -> PyResult<Self> {
        let mut all: Vec<Packet> = Vec::new();
        loop {
            let before = all.len();
            py.detach(|| all.extend(packets.by_ref().take(PACKETS_PER_CHECK)));
            py.check_signals()?;
            if all.len() > MAX_PACKETS {
                return Err(too_many_error());
            }
            if all.len() < before + PACKETS_PER_CHECK {
                break;
            }
        }
        let start = all.first().map_or(0, |first| first.at.as_nanos());
        for packet in &mut all {
            packet.at = Time::from_nanos(packet.at.as_nanos() - start);
        }
        Self::of(all, names, start)
    }
}

fn too_many_error() -> PyErr {
    value_error(&format!("the trace has more than {MAX_PACKETS} packets"), "make a shorter trace")
}

fn encode<const N: usize>(all: &[Packet], mut value: impl FnMut(&Packet) -> [u8; N]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(all.len() * N);
    all.iter().for_each(|packet| bytes.extend(value(packet)));
    bytes
}

fn is_down(packet: &Packet) -> bool {
    packet.direction == Direction::Down
}

fn check_duration(seconds: f64) -> PyResult<Span> {
    if !(0.0..=MAX_SECS).contains(&seconds) {
        let message = format!("a duration of {seconds} s is invalid");
        return Err(value_error(&message, "give a duration from 0 s to a year"));
    }
    Ok(Span::from_secs_f64(seconds))
}

fn check_nanos(times: &[i64]) -> PyResult<Vec<u64>> {
    let mut last = 0;
    let times = times.iter().enumerate().map(|(row, time)| {
        let now = u64::try_from(*time).map_err(|_| negative_time_error(row))?;
        check_order(row, &mut last, now)
    });
    times.collect()
}

fn secs_to_nanos(times: &[f64]) -> PyResult<Vec<u64>> {
    let mut last = 0;
    let times = times.iter().enumerate().map(|(row, secs)| {
        if secs.is_nan() {
            let hint = "omit the rows without a time";
            return Err(value_error(&format!("the time of row {row} is not a number"), hint));
        }
        if *secs < 0.0 {
            return Err(negative_time_error(row));
        }
        let nanos = (*secs * 1e9).round();
        if nanos >= i64::MAX as f64 {
            let hint = "floating-point numbers are seconds, integers are nanoseconds";
            return Err(value_error(&format!("the time of row {row} is too late"), hint));
        }
        check_order(row, &mut last, nanos as u64)
    });
    times.collect()
}

fn negative_time_error(row: usize) -> PyErr {
    value_error(
        &format!("the time of row {row} is negative"),
        "use an origin before the first time",
    )
}

fn check_order(row: usize, last: &mut u64, now: u64) -> PyResult<u64> {
    if now < *last {
        let message = format!("row {row} is earlier than the row before it");
        return Err(value_error(&message, "sort the rows by time"));
    }
    *last = now;
    Ok(now)
}
