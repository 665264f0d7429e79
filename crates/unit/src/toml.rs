//! Reads TOML files that people write by hand. Every key and value keeps its offset in the text, so
//! that an error can name its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::human::quoted;
use crate::nearest::nearest;

/// An error at an offset of the text.
#[derive(Debug)]
pub struct TomlError {
    /// Offset in bytes from the start of the text.
    pub offset: usize,
    /// The error message, one sentence.
    pub message: String,
    /// `None` if there is no advice for the user.
    pub hint: Option<String>,
}

/// Reads a whole TOML text with `read`, which receives the root table. Error messages call the
/// document `what` ("the scenario").
pub fn parse_document<T>(
    text: &str,
    what: &'static str,
    read: impl FnOnce(Table<'_>) -> Result<T, TomlError>,
) -> Result<T, TomlError> {
    let root = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', ", ");
        let span = error.span().unwrap_or_default();
        match message == "duplicate key" {
            true => duplicate_error(text, span),
            false => TomlError::new(span.start, message),
        }
    })?;
    read(Table::new(0, what, root.get_ref()))
}

/// Returns the error for a key or a table that is defined a second time at `span`.
fn duplicate_error(text: &str, span: Range<usize>) -> TomlError {
    let before = text.get(..span.start).unwrap_or_default();
    let begins = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begins..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let Some(header) = line.strip_prefix('[') else {
        let key = quoted(text.get(span.clone()).unwrap_or_default());
        return TomlError::new(span.start, format!("`{key}` is given twice"))
            .with_hint("keep one of them");
    };
    let name = quoted(header.trim_start_matches('[').split(']').next().unwrap_or_default().trim());
    TomlError::new(span.start, format!("the table `[{name}]` is given twice"))
        .with_hint(format!("keep one, or write `[[{name}]]` for each where there may be several"))
}

/// Returns line and column of the byte `at`, counted from one; the column counts characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

impl TomlError {
    /// Creates an error at the byte `at`, without a hint.
    pub fn new(at: usize, sentence: impl Into<String>) -> Self {
        Self { offset: at, message: sentence.into(), hint: None }
    }

    /// Returns the same error with a hint for the user.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// One `key = value` of a table.
#[derive(Clone, Copy)]
pub struct Entry<'t> {
    pub key: &'t str,
    /// Offset of the key in the text.
    pub key_offset: usize,
    value: &'t Spanned<DeValue<'t>>,
}

/// A table; its entries are in the order of the text.
pub struct Table<'t> {
    /// Offset of the table in the text, for errors about missing keys.
    pub offset: usize,
    /// Name of the table in error messages: "a link", "the scenario".
    pub noun: &'static str,
    pub entries: Vec<Entry<'t>>,
}

impl<'t> Table<'t> {
    fn new(at: usize, what: &'static str, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().as_ref(),
                key_offset: key.span().start,
                value,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_offset);
        Self { offset: at, noun: what, entries }
    }

    /// Returns an error if a key is not in `known`.
    pub fn check_keys(self, known: &[&str]) -> Result<Self, TomlError> {
        match self.unknown_key(known) {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }

    /// Returns the error of the first key that is not in `known`.
    pub fn unknown_key(&self, known: &[&str]) -> Option<TomlError> {
        let unknown = self.entries.iter().find(|entry| !known.contains(&entry.key))?;
        Some(unknown_key(unknown, self.noun, known))
    }

    /// Returns the entry of `key`; `None` if it is absent.
    pub fn entry(&self, key: &str) -> Option<Entry<'t>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// Returns the entry of `key`, or an error if it is absent.
    pub fn required(&self, key: &str) -> Result<Entry<'t>, TomlError> {
        self.entry(key)
            .ok_or_else(|| TomlError::new(self.offset, format!("{} needs `{key}`", self.noun)))
    }
}

pub fn unknown_key(entry: &Entry<'_>, what: &str, known: &[&str]) -> TomlError {
    let hint = match nearest(entry.key, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the keys are {}", known.join(", ")),
    };
    TomlError::new(entry.key_offset, format!("{what} has no `{}`", quoted(entry.key)))
        .with_hint(hint)
}

impl<'t> Entry<'t> {
    /// Returns the offset of the value in the text.
    pub fn offset(&self) -> usize {
        self.value.span().start
    }

    /// Creates an error at the value, which starts with the key.
    pub fn error(&self, message: impl std::fmt::Display) -> TomlError {
        TomlError::new(self.offset(), format!("{}: {message}", quoted(self.key)))
    }

    fn type_error(&self, wanted: &str) -> TomlError {
        self.error(format!("{wanted} was expected, not {}", kind(self.value.get_ref())))
    }

    /// Returns the string; other types are errors.
    pub fn string(&self) -> Result<&'t str, TomlError> {
        self.value.get_ref().as_str().ok_or_else(|| self.type_error("a string in quotes"))
    }

    /// Returns a string without control characters, for names and sentences.
    pub fn one_line(&self) -> Result<&'t str, TomlError> {
        let text = self.string()?;
        if text.chars().any(char::is_control) {
            return Err(self.error("one line of text was expected"));
        }
        Ok(text)
    }

    /// Returns the value of a link setting as text; numbers and booleans need no quotes.
    pub fn scalar_text(&self) -> Result<String, TomlError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref().to_owned()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(yes) => Ok(if *yes { "yes" } else { "no" }.to_owned()),
            _ => Err(self.type_error("a string, a number or true or false")),
        }
    }

    /// Returns a boolean.
    pub fn boolean(&self) -> Result<bool, TomlError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.type_error("true or false"))
    }

    /// Returns a whole number that is not negative.
    pub fn integer(&self) -> Result<u64, TomlError> {
        let number = self
            .value
            .get_ref()
            .as_integer()
            .ok_or_else(|| self.type_error("a whole number that is not negative"))?;
        u64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| self.error("a whole number that is not negative was expected"))
    }

    /// Parses a string as `T`.
    pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, TomlError> {
        self.string()?.parse().map_err(|error| self.error(error))
    }

    pub fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    /// Returns a table, which error messages call `what`.
    pub fn table(&self, what: &'static str) -> Result<Table<'t>, TomlError> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.type_error("a table"))?;
        Ok(Table::new(self.key_offset, what, table))
    }

    /// Returns the tables of `[[key]]`.
    pub fn tables(&self, what: &'static str) -> Result<Vec<Table<'t>>, TomlError> {
        let wanted = || self.type_error(&format!("[[{}]]", self.key));
        let array = self.value.get_ref().as_array().ok_or_else(wanted)?;
        array
            .iter()
            .map(|item| {
                let table = item.get_ref().as_table().ok_or_else(wanted)?;
                Ok(Table::new(item.span().start, what, table))
            })
            .collect()
    }

    /// Returns the elements of a list, or a single value, each as an entry of the same key.
    pub fn items(&self) -> Vec<Self> {
        match self.value.get_ref() {
            DeValue::Array(array) => array
                .iter()
                .map(|value| Self { key: self.key, key_offset: self.key_offset, value })
                .collect(),
            _ => vec![*self],
        }
    }

    /// Returns the strings of an array with their offsets.
    pub fn strings(&self) -> Result<Vec<(usize, &'t str)>, TomlError> {
        let wanted = || self.type_error("a list of strings in quotes");
        let array = self.value.get_ref().as_array().ok_or_else(wanted)?;
        array
            .iter()
            .map(|item| Ok((item.span().start, item.get_ref().as_str().ok_or_else(wanted)?)))
            .collect()
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (usize, usize, String, Option<String>) {
        let fault = parse_document(text, "the file", |_| Ok(())).unwrap_err();
        let (line, column) = line_and_column(text, fault.offset);
        (line, column, fault.message, fault.hint)
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let keys = |root: Table<'_>| Ok(root.check_keys(&["a"])?.entry("a").is_some());
        assert!(parse_document("\u{feff}a = 1", "the file", keys).unwrap());
    }

    #[test]
    fn errors_name_a_duplicate_key() {
        let (line, column, message, hint) = error("a = 1\n[state]\nb = 1\n\n[state]\nb = 2\n");
        assert_eq!((line, column), (5, 2));
        assert_eq!(message, "the table `[state]` is given twice");
        assert!(hint.unwrap().contains("`[[state]]`"));
        let (line, _, message, hint) = error("# é\nkey = 1\nkey = 2\n");
        assert_eq!((line, message.as_str()), (3, "`key` is given twice"));
        assert_eq!(hint.as_deref(), Some("keep one of them"));
    }
}
