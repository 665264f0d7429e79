//! Rows and columns: what captures add up to, in tables of which every column says what it is.
//!
//! A [`Row`] lists its columns, and a [`Batch`] collects rows column by column, in a shape that
//! files of columns and other languages take. Whoever writes them needs to know no row.

mod mask;
mod rows;

use std::borrow::Cow;
use std::fmt;

use manyways_unit::{Span, Time};

pub use mask::Mask;
pub use rows::Rows;

/// The version of all schemas. It grows when a column changes its meaning or goes.
pub const VERSION: u32 = 1;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A moment: nanoseconds since the Unix epoch.
    Time,
    /// How long: seconds.
    Span,
    /// How many, or a number that stands for something: a whole one, never negative.
    Count,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// Words that tell of nobody.
    Text,
    /// An address, or several with spaces between.
    Address,
    /// A name, or a number that stands for one: of a host, of a device, of what was asked for.
    Name,
    /// The number of a flow: a whole one, below 2^63.
    Flow,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nobody knows, or there is none.
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

/// A column of the rows of a kind.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Its name: lower case, with underscores.
    pub name: &'static str,
    /// What is in it.
    pub kind: Kind,
    /// What it means.
    pub about: &'static str,
    /// The value of a row.
    pub value: for<'a> fn(&'a R) -> Value<'a>,
}

/// Something that is a row of a table.
pub trait Row: Sized + 'static {
    /// The name of the table.
    const TABLE: &'static str;
    /// What a row of it is.
    const ABOUT: &'static str;
    /// Its columns, in their order.
    const COLUMNS: &'static [Column<Self>];
}

/// What is said of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Its name.
    pub table: &'static str,
    /// What a row of it is.
    pub about: &'static str,
    /// Name, kind and meaning of each column.
    pub columns: Vec<(&'static str, Kind, &'static str)>,
}

/// Rows, column by column.
#[derive(Clone, Debug)]
pub struct Batch {
    columns: Vec<Values>,
    rows: usize,
    is_masked: bool,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub struct Values {
    /// For each row whether it has a value.
    pub present: Vec<bool>,
    /// Those that are there.
    pub data: Data,
}

/// The values that are there, in the order of their rows.
#[derive(Clone, Debug)]
pub enum Data {
    /// Times in nanoseconds, and counts.
    Whole(Vec<i64>),
    /// Spans in seconds, and numbers.
    Number(Vec<f64>),
    /// Flags.
    Flag(Vec<bool>),
    /// Texts one behind the other, and where each ends.
    Text(String, Vec<usize>),
}

impl Schema {
    /// What is said of the table of these rows.
    pub fn of<R: Row>() -> Self {
        let columns = R::COLUMNS.iter().map(|column| (column.name, column.kind, column.about));
        Self { table: R::TABLE, about: R::ABOUT, columns: columns.collect() }
    }
}

impl Kind {
    /// What its values are, in a word or two.
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

impl fmt::Display for Schema {
    /// As a chapter of Markdown.
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
    /// No rows of this kind yet.
    pub fn of<R: Row>() -> Self {
        let columns = R::COLUMNS.iter().map(|column| Values::new(column.kind)).collect();
        Self { columns, rows: 0, is_masked: false }
    }

    /// One more row, of the kind that this was made for; with a mask, nobody's name or address is
    /// in it.
    pub fn push<R: Row>(&mut self, row: &R, mut mask: Option<&mut Mask>) {
        debug_assert_eq!(self.columns.len(), R::COLUMNS.len());
        self.is_masked |= mask.is_some();
        for (values, column) in self.columns.iter_mut().zip(R::COLUMNS) {
            let value = (column.value)(row);
            values.push(match &mut mask {
                Some(mask) => mask.hide(column.kind, value),
                None => value,
            });
        }
        self.rows += 1;
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether names and addresses in it are hidden.
    pub fn is_masked(&self) -> bool {
        self.is_masked
    }

    /// The columns in the order of the schema.
    pub fn columns(&self) -> &[Values] {
        &self.columns
    }
}

impl Values {
    fn new(kind: Kind) -> Self {
        let data = match kind {
            Kind::Time | Kind::Count | Kind::Flow => Data::Whole(Vec::new()),
            Kind::Span | Kind::Number => Data::Number(Vec::new()),
            Kind::Flag => Data::Flag(Vec::new()),
            Kind::Text | Kind::Address | Kind::Name => Data::Text(String::new(), Vec::new()),
        };
        Self { present: Vec::new(), data }
    }

    /// A value of another kind counts as absent; the tests of the schemas see to it that there are
    /// none.
    fn push(&mut self, value: Value<'_>) {
        let is_there = match (&mut self.data, value) {
            (Data::Whole(all), Value::Time(time)) => push(all, to_i64(time.as_nanos())),
            (Data::Whole(all), Value::Count(count)) => push(all, to_i64(count)),
            (Data::Number(all), Value::Span(span)) => push(all, span.as_secs_f64()),
            // Columns do not hold what is no number.
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

/// A column by its parts.
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

    struct Visit {
        at: Time,
        whose: Option<&'static str>,
        took: f64,
    }

    impl Row for Visit {
        const TABLE: &'static str = "visits";
        const ABOUT: &'static str = "a visit";
        const COLUMNS: &'static [Column<Self>] = &[
            column("at", Kind::Time, "when", |visit| visit.at.into()),
            column("whose", Kind::Text, "whose", |visit| visit.whose.into()),
            column("took", Kind::Number, "how long", |visit| visit.took.into()),
            column("odd", Kind::Flag, "another kind than it says", |visit| visit.took.into()),
        ];
    }

    #[test]
    fn rows_become_columns() {
        let mut batch = Batch::of::<Visit>();
        for (at, whose, took) in [(1, Some("one"), 1.0), (2, None, f64::NAN), (3, Some("two"), 2.0)]
        {
            batch.push(&Visit { at: Time::from_nanos(at), whose, took }, None);
        }
        assert_eq!((batch.rows(), batch.columns().len()), (3, 4));
        let [at, whose, took, odd] = batch.columns() else { panic!() };
        assert!(matches!(&at.data, Data::Whole(all) if *all == [1, 2, 3]));
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
