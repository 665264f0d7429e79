//! Rows of tables in formats that other programs read: [`csv`], the logs of [`tstat`], and
//! [`ipfix`].
//!
//! Each takes values as [`Batch::iter`](manyways_record::table::Batch::iter) hands them out, and appends what
//! it makes of them to a buffer of the caller's.

pub mod csv;
pub mod ipfix;
pub mod tstat;

/// A struct of values of a table by the names of their columns, and the list of these names.
macro_rules! columns_of_table {
    ($(#[$meta:meta])* $vis:vis $name:ident: $($column:ident)*) => {
        $(#[$meta])*
        $vis struct $name<'a> {
            $($column: manyways_record::table::Value<'a>,)*
        }

        impl<'a> $name<'a> {
            $vis const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),*];

            /// None where there are fewer values than columns.
            $vis fn of(row: Vec<manyways_record::table::Value<'a>>) -> Option<Self> {
                let mut row = row.into_iter();
                Some(Self { $($column: row.next()?,)* })
            }
        }
    };
}

use columns_of_table;
