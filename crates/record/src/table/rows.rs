//! Iterates over the rows of a batch, for formats that are written row by row.

use manyways_unit::Time;

use super::{Batch, Data, Kind, Value, Values};

impl Batch {
    /// Creates a batch from columns; `None` if they differ in rows, or a column has more or fewer
    /// values than present rows.
    pub fn of_columns(columns: Vec<Values>) -> Option<Self> {
        let rows = columns.first().map_or(0, |values| values.present.len());
        let is_whole = |values: &Values| {
            let there = values.present.iter().filter(|is_there| **is_there).count();
            values.present.len() == rows && values.data.len() == there
        };
        columns.iter().all(is_whole).then_some(Self { columns, rows, is_anonymized: false })
    }

    /// Iterates over the rows. `kinds` has the kind of each column; columns after the last kind are
    /// omitted.
    pub fn iter<'a>(&'a self, kinds: &[Kind]) -> Rows<'a> {
        let columns = self.columns.iter().zip(kinds);
        let columns = columns.map(|(values, kind)| Cursor { values, kind: *kind, next_value: 0 });
        Rows { columns: columns.collect(), rows: 0..self.rows }
    }
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(all) => all.len(),
            Self::Number(all) => all.len(),
            Self::Flag(all) => all.len(),
            Self::Text(_, ends) => ends.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value at this index. A value that does not match the kind counts as absent.
    fn value(&self, index: usize, kind: Kind) -> Option<Value<'_>> {
        Some(match self {
            Self::Integer(all) => {
                let number = u64::try_from(*all.get(index)?).ok()?;
                match kind {
                    Kind::Time => Value::Time(Time::from_nanos(number)),
                    _ => Value::Count(number),
                }
            }
            Self::Number(all) => Value::Number(*all.get(index)?),
            Self::Flag(all) => Value::Flag(*all.get(index)?),
            Self::Text(all, ends) => {
                let begin = index.checked_sub(1).map_or(Some(0), |one| ends.get(one).copied())?;
                Value::from(all.get(begin..*ends.get(index)?)?)
            }
        })
    }
}

/// See [`Batch::iter`]. Spans are returned as numbers of seconds.
pub struct Rows<'a> {
    columns: Vec<Cursor<'a>>,
    rows: std::ops::Range<usize>,
}

struct Cursor<'a> {
    values: &'a Values,
    kind: Kind,
    /// Index of the next present value.
    next_value: usize,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Vec<Value<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        Some(self.columns.iter_mut().map(|column| column.value(row)).collect())
    }
}

impl<'a> Cursor<'a> {
    fn value(&mut self, row: usize) -> Value<'a> {
        if !self.values.present.get(row).copied().unwrap_or(false) {
            return Value::Absent;
        }
        let index = self.next_value;
        self.next_value += 1;
        self.values.data.value(index, self.kind).unwrap_or(Value::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_that_were_pushed() {
        let texts = Values {
            present: vec![true, false, true],
            data: Data::Text("onetwo".to_owned(), vec![3, 6]),
        };
        let times = Values { present: vec![false, true, true], data: Data::Integer(vec![7, -1]) };
        let batch = Batch::of_columns(vec![texts.clone(), times]).unwrap();
        let rows: Vec<_> = batch.iter(&[Kind::Text, Kind::Time]).collect();
        let time = Value::Time(Time::from_nanos(7));
        assert_eq!(rows[0], [Value::from("one"), Value::Absent]);
        assert_eq!(rows[1], [Value::Absent, time]);
        // A time before 1970 cannot be represented.
        assert_eq!(rows[2], [Value::from("two"), Value::Absent]);
        assert_eq!(rows.len(), 3);
        let short = Values { present: vec![true], data: Data::Flag(vec![true]) };
        assert!(Batch::of_columns(vec![texts, short]).is_none());
        let empty = Values { present: vec![true], data: Data::Flag(vec![]) };
        assert!(Batch::of_columns(vec![empty]).is_none());
    }
}
