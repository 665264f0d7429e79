//! TOML tables whose every key and value knows its place in the text: what a file that people write
//! by hand is read with, so that an error points at its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::human::quoted;
use crate::nearest::nearest;

/// Something wrong at a byte of the text.
#[derive(Debug)]
pub struct Fault {
    /// Where, in bytes from the beginning.
    pub at: usize,
    /// What is wrong.
    pub sentence: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// Reads a whole TOML text, which is `what` ("the scenario") to people, by way of its root table.
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

/// The error for a key or a table that is defined a second time at `span`.
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

/// Line and column of the byte `at`: both counted from one, the column in characters.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

impl Fault {
    /// Something wrong at the byte `at`.
    pub fn new(at: usize, sentence: impl Into<String>) -> Self {
        Self { at, sentence: sentence.into(), hint: None }
    }

    /// The same, with what the user can do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// One `key = value` of a table.
#[derive(Clone, Copy)]
pub struct Entry<'t> {
    /// The key.
    pub key: &'t str,
    /// Where the key stands.
    pub key_at: usize,
    value: &'t Spanned<DeValue<'t>>,
}

/// A table, its entries in the order of the text.
pub struct Table<'t> {
    /// Where it begins, for what is missing in it.
    pub at: usize,
    /// What it is to people: "a link", "the scenario".
    pub what: &'static str,
    /// One each key.
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

    /// Refuses keys that are not `known`.
    pub fn only(self, known: &[&str]) -> Result<Self, Fault> {
        match self.entries.iter().find(|entry| !known.contains(&entry.key)) {
            None => Ok(self),
            Some(entry) => Err(unknown(entry, self.what, known)),
        }
    }

    /// What it says of `key`.
    pub fn entry(&self, key: &str) -> Option<Entry<'t>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// What it says of `key`, which may not be missing.
    pub fn required(&self, key: &str) -> Result<Entry<'t>, Fault> {
        self.entry(key).ok_or_else(|| Fault::new(self.at, format!("{} needs `{key}`", self.what)))
    }
}

/// The error for a key that does not exist.
pub fn unknown(entry: &Entry<'_>, what: &str, known: &[&str]) -> Fault {
    let hint = match nearest(entry.key, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the keys are {}", known.join(", ")),
    };
    Fault::new(entry.key_at, format!("{what} has no `{}`", quoted(entry.key))).hint(hint)
}

impl<'t> Entry<'t> {
    /// Where the value stands.
    pub fn at(&self) -> usize {
        self.value.span().start
    }

    /// An error about the value.
    pub fn fault(&self, sentence: impl std::fmt::Display) -> Fault {
        Fault::new(self.at(), format!("{}: {sentence}", quoted(self.key)))
    }

    fn wanted(&self, wanted: &str) -> Fault {
        self.fault(format!("{wanted} was expected, not {}", kind(self.value.get_ref())))
    }

    /// A string.
    pub fn string(&self) -> Result<&'t str, Fault> {
        self.value.get_ref().as_str().ok_or_else(|| self.wanted("a string in quotes"))
    }

    /// A string without a line break, for names and sentences.
    pub fn one_line(&self) -> Result<&'t str, Fault> {
        let text = self.string()?;
        if text.chars().any(char::is_control) {
            return Err(self.fault("one line of text was expected"));
        }
        Ok(text)
    }

    /// A value of a link in words: numbers and booleans may stand without quotes.
    pub fn words(&self) -> Result<String, Fault> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref().to_owned()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(yes) => Ok(if *yes { "yes" } else { "no" }.to_owned()),
            _ => Err(self.wanted("a string, a number or true or false")),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Result<bool, Fault> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wanted("true or false"))
    }

    /// A whole number that is not negative.
    pub fn whole(&self) -> Result<u64, Fault> {
        let number = self
            .value
            .get_ref()
            .as_integer()
            .ok_or_else(|| self.wanted("a whole number that is not negative"))?;
        u64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| self.fault("a whole number that is not negative was expected"))
    }

    /// A string that reads as a `T`.
    pub fn read<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, Fault> {
        self.string()?.parse().map_err(|error| self.fault(error))
    }

    /// Whether it is a table.
    pub fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    /// A table, which is `what` to people.
    pub fn table(&self, what: &'static str) -> Result<Table<'t>, Fault> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wanted("a table"))?;
        Ok(Table::new(self.key_at, what, table))
    }

    /// The tables of `[[key]]`.
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

    /// One value or a list of them: each as an entry of the same key.
    pub fn items(&self) -> Vec<Self> {
        match self.value.get_ref() {
            DeValue::Array(array) => array
                .iter()
                .map(|value| Self { key: self.key, key_at: self.key_at, value })
                .collect(),
            _ => vec![*self],
        }
    }

    /// The strings of an array with their places.
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
    fn what_is_given_twice_is_named() {
        let (line, column, sentence, hint) = fault("a = 1\n[state]\nb = 1\n\n[state]\nb = 2\n");
        assert_eq!((line, column), (5, 2));
        assert_eq!(sentence, "the table `[state]` is given twice");
        assert!(hint.unwrap().contains("`[[state]]`"));
        let (line, _, sentence, hint) = fault("# é\nkey = 1\nkey = 2\n");
        assert_eq!((line, sentence.as_str()), (3, "`key` is given twice"));
        assert_eq!(hint.as_deref(), Some("keep one of them"));
    }
}
