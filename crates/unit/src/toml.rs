//! Reads TOML files that people write by hand. Every key and value keeps its offset in the text, so
//! that an error can name its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::human::quoted;
use crate::nearest::nearest;

/// An error at an offset of the text.
#[derive(Debug)]
pub struct Fault {
    /// Offset in bytes from the start of the text.
    pub at: usize,
    /// The error message, one sentence.
    pub sentence: String,
    /// `None` if there is no advice for the user.
    pub hint: Option<String>,
}

/// Reads a whole TOML text with `read`, which receives the root table. Error messages call the
/// document `what` ("the scenario").
pub fn document<T>(
    text: &str,
    what: &'static str,
    read: impl FnOnce(Table<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let root = DeTable::parse(text).map_err(|error| {
        let sentence = error.message().replace('\n', ", ");
        let span = error.span().unwrap_or_default();
        match sentence == "duplicate key" {
            true => twice(text, span),
            false => Fault::new(span.start, sentence),
        }
    })?;
    read(Table::new(0, what, root.get_ref()))
}

/// Returns the error for a key or a table that is defined a second time at `span`.
fn twice(text: &str, span: Range<usize>) -> Fault {
    let before = text.get(..span.start).unwrap_or_default();
    let begins = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begins..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    let Some(header) = line.strip_prefix('[') else {
        let key = quoted(text.get(span.clone()).unwrap_or_default());
        return Fault::new(span.start, format!("`{key}` is given twice")).hint("keep one of them");
    };
    let name = quoted(header.trim_start_matches('[').split(']').next().unwrap_or_default().trim());
    Fault::new(span.start, format!("the table `[{name}]` is given twice"))
        .hint(format!("keep one, or write `[[{name}]]` for each where there may be several"))
}

/// Returns line and column of the byte `at`, counted from one; the column counts characters.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

impl Fault {
    /// Creates an error at the byte `at`, without a hint.
    pub fn new(at: usize, sentence: impl Into<String>) -> Self {
        Self { at, sentence: sentence.into(), hint: None }
    }

    /// Returns the same error with a hint for the user.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// One `key = value` of a table.
#[derive(Clone, Copy)]
pub struct Entry<'t> {
    pub key: &'t str,
    /// Offset of the key in the text.
    pub key_at: usize,
    value: &'t Spanned<DeValue<'t>>,
}

/// A table; its entries are in the order of the text.
pub struct Table<'t> {
    /// Offset of the table in the text, for errors about missing keys.
    pub at: usize,
    /// Name of the table in error messages: "a link", "the scenario".
    pub what: &'static str,
    pub entries: Vec<Entry<'t>>,
}

impl<'t> Table<'t> {
    fn new(at: usize, what: &'static str, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().as_ref(),
                key_at: key.span().start,
                value,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_at);
        Self { at, what, entries }
    }

    /// Returns an error if a key is not in `known`.
    pub fn only(self, known: &[&str]) -> Result<Self, Fault> {
        match self.entries.iter().find(|entry| !known.contains(&entry.key)) {
            None => Ok(self),
            Some(entry) => Err(unknown(entry, self.what, known)),
        }
    }

    /// Returns the entry of `key`; `None` if it is absent.
    pub fn entry(&self, key: &str) -> Option<Entry<'t>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// Returns the entry of `key`, or an error if it is absent.
    pub fn required(&self, key: &str) -> Result<Entry<'t>, Fault> {
        self.entry(key).ok_or_else(|| Fault::new(self.at, format!("{} needs `{key}`", self.what)))
    }
}

pub fn unknown(entry: &Entry<'_>, what: &str, known: &[&str]) -> Fault {
    let hint = match nearest(entry.key, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the keys are {}", known.join(", ")),
    };
    Fault::new(entry.key_at, format!("{what} has no `{}`", quoted(entry.key))).hint(hint)
}

impl<'t> Entry<'t> {
    /// Returns the offset of the value in the text.
    pub fn at(&self) -> usize {
        self.value.span().start
    }

    /// Creates an error at the value, which starts with the key.
    pub fn fault(&self, sentence: impl std::fmt::Display) -> Fault {
        Fault::new(self.at(), format!("{}: {sentence}", quoted(self.key)))
    }

    fn wanted(&self, wanted: &str) -> Fault {
        self.fault(format!("{wanted} was expected, not {}", kind(self.value.get_ref())))
    }

    /// Returns the string; other types are errors.
    pub fn string(&self) -> Result<&'t str, Fault> {
        self.value.get_ref().as_str().ok_or_else(|| self.wanted("a string in quotes"))
    }

    /// Returns a string without control characters, for names and sentences.
    pub fn one_line(&self) -> Result<&'t str, Fault> {
        let text = self.string()?;
        if text.chars().any(char::is_control) {
            return Err(self.fault("one line of text was expected"));
        }
        Ok(text)
    }

    /// Returns the value of a link setting as text; numbers and booleans need no quotes.
    pub fn words(&self) -> Result<String, Fault> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref().to_owned()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(yes) => Ok(if *yes { "yes" } else { "no" }.to_owned()),
            _ => Err(self.wanted("a string, a number or true or false")),
        }
    }

    /// Returns a boolean.
    pub fn flag(&self) -> Result<bool, Fault> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wanted("true or false"))
    }

    /// Returns a whole number that is not negative.
    pub fn whole(&self) -> Result<u64, Fault> {
        let number = self
            .value
            .get_ref()
            .as_integer()
            .ok_or_else(|| self.wanted("a whole number that is not negative"))?;
        u64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| self.fault("a whole number that is not negative was expected"))
    }

    /// Parses a string as `T`.
    pub fn read<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, Fault> {
        self.string()?.parse().map_err(|error| self.fault(error))
    }

    pub fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    /// Returns a table, which error messages call `what`.
    pub fn table(&self, what: &'static str) -> Result<Table<'t>, Fault> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wanted("a table"))?;
        Ok(Table::new(self.key_at, what, table))
    }

    /// Returns the tables of `[[key]]`.
    pub fn tables(&self, what: &'static str) -> Result<Vec<Table<'t>>, Fault> {
        let wanted = || self.wanted(&format!("[[{}]]", self.key));
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
                .map(|value| Self { key: self.key, key_at: self.key_at, value })
                .collect(),
            _ => vec![*self],
        }
    }

    /// Returns the strings of an array with their offsets.
    pub fn strings(&self) -> Result<Vec<(usize, &'t str)>, Fault> {
        let wanted = || self.wanted("a list of strings in quotes");
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

    fn fault(text: &str) -> (usize, usize, String, Option<String>) {
        let fault = document(text, "the file", |_| Ok(())).unwrap_err();
        let (line, column) = place(text, fault.at);
        (line, column, fault.sentence, fault.hint)
    }

    #[test]
    fn errors_name_a_duplicate_key() {
        let (line, column, sentence, hint) = fault("a = 1\n[state]\nb = 1\n\n[state]\nb = 2\n");
        assert_eq!((line, column), (5, 2));
        assert_eq!(sentence, "the table `[state]` is given twice");
        assert!(hint.unwrap().contains("`[[state]]`"));
        let (line, _, sentence, hint) = fault("# é\nkey = 1\nkey = 2\n");
        assert_eq!((line, sentence.as_str()), (3, "`key` is given twice"));
        assert_eq!(hint.as_deref(), Some("keep one of them"));
    }
}
