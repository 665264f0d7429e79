//! Packet traces as CSV: `time,bytes,direction[,app][,port][,flow]`.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use manyways_unit::Time;
use manyways_unit::human::quoted;

use super::session::{Apps, Sessions};
use super::{App, Direction, Packet};

/// In bytes.
pub const MAX_LINE: usize = 4_096;

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CsvError {
    /// From 1.
    pub line: u64,
    pub message: String,
    pub hint: Option<String>,
}

/// Reads a trace line by line and keeps no packets in memory.
///
/// The first line names the columns, in any order. Other columns are ignored.
///
/// | Column | Value |
/// |---|---|
/// | `time` | seconds since any origin, or a time like `2026-01-31T12:00:00.5Z`; ascending |
/// | `bytes` | a whole number |
/// | `direction` | `up` or `down` |
/// | `app` or `application` | a name; may be empty |
/// | `port` | port number of the server; may be empty |
/// | `flow` | any text, the same for all packets of a flow; may be empty |
///
/// The CSV export of the packets table of `manyways flows` has this format.
#[derive(Clone, Debug)]
pub struct Reader {
    line: u64,
    columns: Columns,
    apps: Apps,
    sessions: Sessions,
    last: Option<Time>,
}

#[derive(Clone, Debug)]
struct Columns {
    count: usize,
    time: usize,
    bytes: usize,
    direction: usize,
    app: Option<usize>,
    port: Option<usize>,
    flow: Option<usize>,
}

impl Reader {
    /// Reads the header line.
    ///
    /// # Errors
    /// Fails if a required column is missing or a column is ambiguous.
    pub fn new(header: &str) -> Result<Self, CsvError> {
        const HINT: &str = "the first line is time,bytes,direction[,app][,port][,flow]";
        let names = names(header)?;
        let needed = |wanted: &'static str| {
            column_index(&names, &[wanted])?.ok_or_else(|| CsvError {
                hint: Some(HINT.to_owned()),
                ..line_error(1, format!("there is no column `{wanted}`"))
            })
        };
        Ok(Self {
            line: 1,
            columns: Columns {
                count: names.len(),
                time: needed("time")?,
                bytes: needed("bytes")?,
                direction: needed("direction")?,
                app: column_index(&names, &["app", "application"])?,
                port: column_index(&names, &["port"])?,
                flow: column_index(&names, &["flow"])?,
            },
            apps: Apps::default(),
            sessions: Sessions::default(),
            last: None,
        })
    }

    /// Applications, indexed by their numbers.
    pub fn apps(&self) -> &[App] {
        self.apps.all()
    }

    /// Reads the next line. Returns `None` if the line is blank.
    ///
    /// # Errors
    /// Fails if a value is missing, malformed or out of order.
    pub fn line(&mut self, text: &str) -> Result<Option<Packet>, CsvError> {
        self.line += 1;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let fields = split(text).map_err(|message| line_error(self.line, message))?;
        let columns = &self.columns;
        if fields.len() != columns.count {
            let message = format!("{} values for {} columns", fields.len(), columns.count);
            return Err(line_error(self.line, message));
        }
        let field = |place: usize| fields[place].trim();
        let at = time(field(columns.time)).ok_or_else(|| CsvError {
            hint: Some("write seconds, like 12.345678, or 2026-01-31T12:00:00.5Z".to_owned()),
            ..line_error(self.line, format!("`{}` is not a time", quoted(field(columns.time))))
        })?;
        if self.last.is_some_and(|last| at < last) {
            return Err(CsvError {
                hint: Some("sort the lines by time".to_owned()),
                ..line_error(self.line, "the time is earlier than in the line before".to_owned())
            });
        }
        let bytes: u32 = field(columns.bytes).parse().map_err(|_| {
            let message = format!("`{}` is not a number of bytes", quoted(field(columns.bytes)));
            line_error(self.line, message)
        })?;
        let direction = match field(columns.direction) {
            "up" => Direction::Up,
            "down" => Direction::Down,
            other => {
                let message = format!("`{}` is not a direction", quoted(other));
                return Err(CsvError {
                    hint: Some("a direction is up (from the device) or down".to_owned()),
                    ..line_error(self.line, message)
                });
            }
        };
        let port = columns.port.map_or("", field);
        let port = match port.is_empty() {
            true => None,
            false => Some(port.parse::<u16>().map_err(|_| {
                line_error(self.line, format!("`{}` is not a port number", quoted(port)))
            })?),
        };
        let app = self.apps.number(columns.app.map_or("", field), port);
        let flow = columns.flow.map_or("", field);
        let flow = (!flow.is_empty())
            .then(|| BuildHasherDefault::<DefaultHasher>::default().hash_one(flow));
        let session = self.sessions.assign(at, app, flow);
        self.last = Some(at);
        Ok(Some(Packet { at, direction, bytes, app, session }))
    }
}

/// The column names of a header line, in lower case.
pub(super) fn names(header: &str) -> Result<Vec<String>, CsvError> {
    let header = header.strip_prefix('\u{feff}').unwrap_or(header);
    let fields = split(header).map_err(|message| line_error(1, message))?;
    Ok(fields.iter().map(|name| name.trim().to_lowercase()).collect())
}

/// Index of the column that has one of these names; `None` if there is none.
pub(super) fn column_index(names: &[String], wanted: &[&str]) -> Result<Option<usize>, CsvError> {
    let mut places = (0..names.len()).filter(|index| wanted.contains(&&*names[*index]));
    let (first, second) = (places.next(), places.next());
    match first.zip(second) {
        None => Ok(first),
        Some((first, second)) => {
            let message = match names[first] == names[second] {
                true => format!("the column `{}` occurs twice", quoted(&names[first])),
                false => format!(
                    "the columns `{}` and `{}` have the same meaning",
                    quoted(&names[first]),
                    quoted(&names[second])
                ),
            };
            Err(CsvError {
                hint: Some("remove or rename one of the columns".to_owned()),
                ..line_error(1, message)
            })
        }
    }
}

pub(super) fn line_error(line: u64, sentence: String) -> CsvError {
    CsvError { line, message: sentence, hint: None }
}

/// Parses decimal seconds, exactly, or a date and time in UTC (RFC 3339).
pub fn time(text: &str) -> Option<Time> {
    if text.contains('T') {
        let moment = humantime::parse_rfc3339(text).ok()?;
        let since = moment.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(Time::from_nanos(u64::try_from(since.as_nanos()).ok()?));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let nanos: String = part.chars().chain("000000000".chars()).take(9).collect();
    let secs = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    // `u64::MAX` is reserved.
    let nanos = secs.checked_add(nanos.parse().ok()?).filter(|nanos| *nanos < u64::MAX)?;
    Some(Time::from_nanos(nanos))
}

/// The values of a line, some of them quoted (RFC 4180). A line break within quotes is not
/// supported.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut rest = line.trim_end_matches(['\r', '\n']);
    if rest.len() > MAX_LINE {
        return Err(format!("the line has more than {MAX_LINE} bytes"));
    }
    let mut fields = Vec::new();
    loop {
        let mut field = String::new();
        if let Some(inside) = rest.strip_prefix('"') {
            rest = inside;
            loop {
                let (part, behind) =
                    rest.split_once('"').ok_or("a quoted value has no closing quote")?;
                field.push_str(part);
                match behind.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        rest = more;
                    }
                    None => {
                        rest = behind;
                        break;
                    }
                }
            }
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err("text follows a quoted value".to_owned());
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            field.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(fields),
        }
    }
}

#[cfg(test)]
mod tests;
