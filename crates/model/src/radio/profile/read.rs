//! Reads profile files (TOML).

use manyways_unit::Span;
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;
use manyways_unit::toml::{Entry, Table, TomlError, line_and_column, parse_document};

use super::{Drx, Profile, State, Technology, Transfer};
use crate::radio::{Energy, Power};

/// Bytes of a profile file.
pub const MAX_TEXT: usize = 64 << 10;
pub const MAX_STATES: usize = 8;
/// Of a timer, gap or cycle.
pub const MAX_DURATION: Span = Span::from_secs(86_400);
/// Of a state or transfer.
pub const MAX_POWER: Power = Power::watts(1_000.0);
/// Of a demotion, promotion or million bits.
pub const MAX_ENERGY: Energy = Energy::joules(1_000.0);

/// A fault in a profile file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ProfileError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

/// Parses a profile.
///
/// | Key | Value | Default |
/// |---|---|---|
/// | `title` | a line | needed |
/// | `technology` | `3g`, `lte`, `nr`, `wifi`, `bluetooth` | needed |
/// | `[transfer]` `send`, `receive` | powers | needed |
/// | `send-per-mbit`, `receive-per-mbit` | energies | none |
/// | `burst-gap` | a time | `500ms` |
/// | `source` | a line | needed |
/// | `[[state]]` `name` | a line, another for each | needed |
/// | `power` | a power | needed |
/// | `listen-every`, `listen-for`, `listen-power` | DRX cycle, on duration and its power: all three or none | none |
/// | `timer` | a time, until the next state | needed, except in the last state |
/// | `demotion` | the energy to enter the state | none |
/// | `promotion`, `promotion-delay` | energy and duration of the promotion | none |
/// | `released` | whether a promotion counts as a switch | only in the last state |
/// | `dormant` | `true` for the state of fast dormancy | the first released one |
/// | `source` | a line | needed |
///
/// Limits: [`MAX_TEXT`], [`MAX_STATES`], [`MAX_DURATION`], [`MAX_POWER`], [`MAX_ENERGY`].
///
/// # Errors
/// Returns the first fault and its place.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    let read = match text.len() > MAX_TEXT {
        true => Err(TomlError::new(0, format!("a profile has at most {MAX_TEXT} bytes"))),
        false => parse_document(text, "the profile", profile),
    };
    read.map_err(|error| {
        let (line, column) = line_and_column(text, error.offset);
        ProfileError { line, column, message: error.message, hint: error.hint }
    })
}

fn profile(root: Table<'_>) -> Result<Profile, TomlError> {
    let root = root.check_keys(&["title", "technology", "transfer", "state"])?;
    let title = line_of_text(&root.required("title")?)?;
    let technology = technology(&root.required("technology")?)?;
    let transfer = transfer(root.required("transfer")?.table("the transfer")?)?;
    let entry = root.required("state")?;
    let tables = entry.tables("a state")?;
    if !(2..=MAX_STATES).contains(&tables.len()) {
        let hint = "the first state transfers data, the last one is the state without traffic";
        return Err(TomlError::new(
            entry.offset(),
            format!("a radio has 2 to {MAX_STATES} states"),
        )
        .with_hint(hint));
    }
    let last = tables.len() - 1;
    let mut states: Vec<State> = Vec::new();
    let mut dormant = None;
    for (index, table) in tables.into_iter().enumerate() {
        let at = table.offset;
        let (state, is_dormant) = state(table, index == last)?;
        let before = states.last();
        if states.iter().any(|other| other.name == state.name) {
            let message = format!("two states have the name `{}`", quoted(&state.name));
            return Err(TomlError::new(at, message));
        }
        if index == 0 && state.is_idle {
            return Err(TomlError::new(
                at,
                "the first state transfers data and cannot be released",
            ));
        }
        if before.is_some_and(|before| before.is_idle && !state.is_idle) {
            let message = format!(
                "`{}` follows a released state and must be released too",
                quoted(&state.name)
            );
            return Err(TomlError::new(at, message));
        }
        if is_dormant && (dormant.is_some() || !state.is_idle) {
            let message = "only one state, a released one, can be dormant";
            return Err(TomlError::new(at, message));
        }
        dormant = dormant.or(is_dormant.then_some(index));
        states.push(state);
    }
    let released = states.iter().position(|state| state.is_idle).unwrap_or(last);
    Ok(Profile { title, technology, transfer, states, dormant: dormant.unwrap_or(released) })
}

fn technology(entry: &Entry<'_>) -> Result<Technology, TomlError> {
    let text = entry.string()?;
    let known = Technology::NAMES.iter().find(|(name, _)| *name == text);
    known.map(|(_, technology)| *technology).ok_or_else(|| {
        let names = Technology::NAMES.map(|(name, _)| name);
        let hint = match nearest(text, names) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("use one of {}", names.join(", ")),
        };
        entry.error(format!("there is no `{}`", quoted(text))).with_hint(hint)
    })
}

fn transfer(table: Table<'_>) -> Result<Transfer, TomlError> {
    let table = table.check_keys(&[
        "send",
        "receive",
        "send-per-mbit",
        "receive-per-mbit",
        "burst-gap",
        "source",
    ])?;
    Ok(Transfer {
        send: power(&table.required("send")?)?,
        receive: power(&table.required("receive")?)?,
        send_per_mbit: optional(&table, "send-per-mbit", energy)?.unwrap_or_default(),
        receive_per_mbit: optional(&table, "receive-per-mbit", energy)?.unwrap_or_default(),
        burst_gap: optional(&table, "burst-gap", span)?.unwrap_or(Span::from_millis(500)),
        source: line_of_text(&table.required("source")?)?,
    })
}

fn state(table: Table<'_>, is_last: bool) -> Result<(State, bool), TomlError> {
    let table = table.check_keys(&[
        "name",
        "power",
        "listen-every",
        "listen-for",
        "listen-power",
        "timer",
        "demotion",
        "promotion",
        "promotion-delay",
        "released",
        "dormant",
        "source",
    ])?;
    let timer = match is_last {
        true => match table.entry("timer") {
            Some(entry) => return Err(entry.error("the last state has no timer")),
            None => None,
        },
        false => Some(span(&table.required("timer")?)?),
    };
    let flag = |key| table.entry(key).map(|entry| entry.boolean()).transpose();
    let is_released = flag("released")?.unwrap_or(is_last);
    if is_last && !is_released {
        return Err(TomlError::new(table.offset, "the last state must be released"));
    }
    let is_dormant = flag("dormant")?.unwrap_or(false);
    let state = State {
        name: line_of_text(&table.required("name")?)?,
        power: power(&table.required("power")?)?,
        drx: drx(&table)?,
        timer,
        demotion: optional(&table, "demotion", energy)?.unwrap_or_default(),
        promotion: optional(&table, "promotion", energy)?.unwrap_or_default(),
        promotion_delay: optional(&table, "promotion-delay", span)?.unwrap_or_default(),
        is_idle: is_released,
        source: line_of_text(&table.required("source")?)?,
    };
    Ok((state, is_dormant))
}

fn drx(table: &Table<'_>) -> Result<Option<Drx>, TomlError> {
    const KEYS: [&str; 3] = ["listen-every", "listen-for", "listen-power"];
    if KEYS.iter().all(|key| table.entry(key).is_none()) {
        return Ok(None);
    }
    let lasts = table.required(KEYS[1])?;
    let listens = Drx {
        cycle: span(&table.required(KEYS[0])?)?,
        on_duration: span(&lasts)?,
        power: power(&table.required(KEYS[2])?)?,
    };
    if listens.cycle.is_zero() || listens.on_duration > listens.cycle {
        return Err(lasts.error("the on duration cannot exceed the cycle"));
    }
    Ok(Some(listens))
}

fn optional<T>(
    table: &Table<'_>,
    key: &str,
    read: fn(&Entry<'_>) -> Result<T, TomlError>,
) -> Result<Option<T>, TomlError> {
    table.entry(key).as_ref().map(read).transpose()
}

fn line_of_text(entry: &Entry<'_>) -> Result<String, TomlError> {
    let text = entry.one_line()?;
    match text.trim().is_empty() {
        true => Err(entry.error("the text is empty")),
        false => Ok(text.to_owned()),
    }
}

fn power(entry: &Entry<'_>) -> Result<Power, TomlError> {
    at_most(entry, MAX_POWER)
}

fn energy(entry: &Entry<'_>) -> Result<Energy, TomlError> {
    at_most(entry, MAX_ENERGY)
}

fn span(entry: &Entry<'_>) -> Result<Span, TomlError> {
    at_most(entry, MAX_DURATION)
}

fn at_most<T>(entry: &Entry<'_>, most: T) -> Result<T, TomlError>
where
    T: std::str::FromStr<Err: std::fmt::Display> + PartialOrd + std::fmt::Display,
{
    let value: T = entry.parse()?;
    if value > most {
        return Err(entry.error(format!("the maximum is {most}")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
