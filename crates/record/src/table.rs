//! Tables of results: rows, columns, and their documentation.
//!
//! A [`Row`] type lists its columns. A [`Batch`] collects rows column by column, in a layout that
//! column files and other languages can use. Writers of batches need not know the row types.

mod anonymizer;
mod columns;
mod rows;

use std::borrow::Cow;
use std::fmt;

use manyways_unit::{Span, Time};

pub use anonymizer::Anonymizer;
pub use rows::Rows;

/// Kind of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds since the Unix epoch.
    Time,
    /// A duration in seconds.
    Span,
    /// A count or an identifier: a whole number, never negative.
    Count,
    /// A finite number.
    Number,
    /// A boolean.
    Flag,
    /// Text without personal data; not anonymized.
    Text,
    /// An address, or several separated by spaces; anonymized.
    Address,
    /// A name or an identifier of a host, a device or a requested object; anonymized.
    Name,
    /// The number of a flow: a whole number below 2^63; anonymized.
    Flow,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unknown, or there is none.
    Absent,
    /// See [`Kind::Time`].
    Time(Time),
    /// See [`Kind::Span`].
    Span(Span),
    /// See [`Kind::Count`].
    Count(u64),
    /// See [`Kind::Number`].
    Number(f64),
    /// See [`Kind::Flag`].
    Flag(bool),
    /// See [`Kind::Text`].
    Text(Cow<'a, str>),
}

/// One column of a table.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Lower case, with underscores.
    pub name: &'static str,
    pub kind: Kind,
    /// Meaning, for the documentation.
    pub about: &'static str,
    /// Returns the value of a row.
    pub value: for<'a> fn(&'a R) -> Value<'a>,
}

/// A type that is one row of a table.
pub trait Row: Sized + 'static {
    const TABLE: &'static str;
    /// Name and version of the schema, for example `manyways-flows/2`. The version increases when a
    /// column of this table is removed or changes its meaning.
    const SCHEMA: &'static str;
    /// Meaning of a row, for the documentation.
    const ABOUT: &'static str;
    /// The columns in their order; see [`columns`](crate::columns).
    const COLUMNS: &'static [Column<Self>];
}

/// The documentation of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub table: &'static str,
    /// Name and version: see [`Row::SCHEMA`].
    pub id: &'static str,
    /// Meaning of a row.
    pub about: &'static str,
    /// Name, kind and meaning of each column.
    pub columns: Vec<(&'static str, Kind, &'static str)>,
}

/// Rows in column-major order.
#[derive(Clone, Debug)]
pub struct Batch {
    columns: Vec<Values>,
    rows: usize,
    is_anonymized: bool,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub struct Values {
    /// One entry per row.
    pub present: Vec<bool>,
    /// The values of the rows that have one.
    pub data: Data,
}

/// Present values in the order of their rows.
#[derive(Clone, Debug)]
pub enum Data {
    /// Times in nanoseconds, counts, and numbers of flows.
    Integer(Vec<i64>),
    /// Spans in seconds, and numbers.
    Number(Vec<f64>),
    Flag(Vec<bool>),
    /// Concatenated texts, and the end offset of each.
    Text(String, Vec<usize>),
}

impl Schema {
    /// Returns the documentation of the table of `R`.
    pub fn of<R: Row>() -> Self {
        let columns = R::COLUMNS.iter().map(|column| (column.name, column.kind, column.about));
        Self { table: R::TABLE, id: R::SCHEMA, about: R::ABOUT, columns: columns.collect() }
    }
}

impl Kind {
    /// Returns the name of the kind for the documentation.
    pub fn about(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Span => "seconds",
            Self::Count => "whole number",
            Self::Number => "number",
            Self::Flag => "true or false",
            Self::Text => "text",
            Self::Address => "address",
            Self::Name => "name",
            Self::Flow => "flow",
        }
    }
}

impl Kind {
    /// Whether values of both kinds have the same layout in a column file, which does not
    /// distinguish names from texts.
    pub fn is_alike(self, other: Self) -> bool {
        let layout = |kind| std::mem::discriminant(&Values::new(kind).data);
        layout(self) == layout(other)
    }
}

impl fmt::Display for Schema {
    /// Formats a section of Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## `{}`\n{}\n", self.table, self.about)?;
        writeln!(f, "| Column | Kind | Meaning |\n|---|---|---|")?;
        for (name, kind, about) in &self.columns {
            writeln!(f, "| `{name}` | {} | {about} |", kind.about())?;
        }
        Ok(())
    }
}

impl Batch {
    /// Creates an empty batch for rows of type `R`.
    pub fn of<R: Row>() -> Self {
        let columns = R::COLUMNS.iter().map(|column| Values::new(column.kind)).collect();
        Self { columns, rows: 0, is_anonymized: false }
    }

    /// Appends a row of the type that the batch was created for. With a mask, names, addresses and
    /// numbers of flows are anonymized.
    pub fn push<R: Row>(&mut self, row: &R, mut anonymizer: Option<&mut Anonymizer>) {
        debug_assert_eq!(self.columns.len(), R::COLUMNS.len());
        self.is_anonymized |= anonymizer.is_some();
        for (values, column) in self.columns.iter_mut().zip(R::COLUMNS) {
            let value = (column.value)(row);
            values.push(match &mut anonymizer {
                Some(anonymizer) => anonymizer.anonymize(column.kind, value),
                None => value,
            });
        }
        self.rows += 1;
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether names, addresses and numbers of flows are anonymized.
    pub fn is_anonymized(&self) -> bool {
        self.is_anonymized
    }

    /// Returns the columns in the order of the schema.
    pub fn columns(&self) -> &[Values] {
        &self.columns
    }
}

impl Values {
    fn new(kind: Kind) -> Self {
        let data = match kind {
            Kind::Time | Kind::Count | Kind::Flow => Data::Integer(Vec::new()),
            Kind::Span | Kind::Number => Data::Number(Vec::new()),
            Kind::Flag => Data::Flag(Vec::new()),
            Kind::Text | Kind::Address | Kind::Name => Data::Text(String::new(), Vec::new()),
        };
        Self { present: Vec::new(), data }
    }

    /// A value of another kind counts as absent; tests of the schemas ensure that there are none.
    fn push(&mut self, value: Value<'_>) {
        let is_there = match (&mut self.data, value) {
            (Data::Integer(all), Value::Time(time)) => push(all, to_i64(time.as_nanos())),
            (Data::Integer(all), Value::Count(count)) => push(all, to_i64(count)),
            (Data::Number(all), Value::Span(span)) => push(all, span.as_secs_f64()),
            // Columns contain no NaN or infinity.
            (Data::Number(all), Value::Number(number)) if number.is_finite() => push(all, number),
            (Data::Flag(all), Value::Flag(flag)) => push(all, flag),
            (Data::Text(all, ends), Value::Text(text)) => {
                all.push_str(&text);
                push(ends, all.len())
            }
            _ => false,
        };
        self.present.push(is_there);
    }
}

fn push<T>(all: &mut Vec<T>, one: T) -> bool {
    all.push(one);
    true
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Creates a column; `const`, for use in [`columns`](crate::columns).
pub const fn column<R>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
    value: for<'a> fn(&'a R) -> Value<'a>,
) -> Column<R> {
    Column { name, kind, about, value }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

macro_rules! becomes {
    ($($of:ty => |$value:ident| $made:expr;)*) => {$(
        impl<'a> From<$of> for Value<'a> {
            fn from($value: $of) -> Self {
                $made
            }
        }
    )*};
}

becomes! {
    Time => |time| Self::Time(time);
    Span => |span| Self::Span(span);
    u64 => |count| Self::Count(count);
    u32 => |count| Self::Count(count.into());
    u16 => |count| Self::Count(count.into());
    u8 => |count| Self::Count(count.into());
    f64 => |number| Self::Number(number);
    bool => |flag| Self::Flag(flag);
    String => |text| Self::Text(Cow::Owned(text));
    &'a str => |text| Self::Text(Cow::Borrowed(text));
    std::net::IpAddr => |address| Self::Text(Cow::Owned(address.to_string()));
    manyways_unit::Size => |size| Self::Count(size.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns;

    struct Visit {
        start: Time,
        owner: Option<&'static str>,
        duration: f64,
    }

    impl Row for Visit {
        const TABLE: &'static str = "visits";
        const SCHEMA: &'static str = "test/1";
        const ABOUT: &'static str = "a visit";
        const COLUMNS: &'static [Column<Self>] = columns! {
            "at" Time "when" |visit| visit.start;
            "whose" Text "whose" |visit| visit.owner;
            "took" Number "how long" |visit| visit.duration;
            "odd" Flag "a value of another kind" |visit| visit.duration;
        };
    }

    #[test]
    fn rows_become_columns() {
        let mut batch = Batch::of::<Visit>();
        for (at, whose, took) in [(1, Some("one"), 1.0), (2, None, f64::NAN), (3, Some("two"), 2.0)]
        {
            batch.push(&Visit { start: Time::from_nanos(at), owner: whose, duration: took }, None);
        }
        assert_eq!((batch.rows(), batch.columns().len()), (3, 4));
        let [at, whose, took, odd] = batch.columns() else { panic!() };
        assert!(matches!(&at.data, Data::Integer(all) if *all == [1, 2, 3]));
        assert!(matches!(&whose.data, Data::Text(all, ends) if all == "onetwo" && *ends == [3, 6]));
        assert_eq!(whose.present, [true, false, true]);
        assert!(matches!(&took.data, Data::Number(all) if *all == [1.0, 2.0]));
        assert_eq!(
            (took.present.as_slice(), odd.present.as_slice()),
            (&[true, false, true][..], &[false; 3][..])
        );
        let schema = Schema::of::<Visit>();
        assert_eq!((schema.table, schema.columns[1]), ("visits", ("whose", Kind::Text, "whose")));
    }
}
