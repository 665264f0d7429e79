//! Rows of tables in formats of other programs: [`csv`], the logs of [`tstat`], and [`ipfix`].
//!
//! Each format takes the values of [`Batch::iter`](manyways_record::table::Batch::iter) and appends
//! its output to a buffer of the caller.

pub mod csv;
pub mod ipfix;
pub mod tstat;

/// Declares a struct with the values of a table by the names of their columns, and the list of
/// these names.
macro_rules! columns_of_table {
    ($(#[$meta:meta])* $vis:vis $name:ident: $($column:ident)*) => {
        $(#[$meta])*
        $vis struct $name<'a> {
            $($column: manyways_record::table::Value<'a>,)*
        }

        impl<'a> $name<'a> {
            $vis const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),*];

            /// Returns `None` if there are fewer values than columns.
            $vis fn of(row: Vec<manyways_record::table::Value<'a>>) -> Option<Self> {
                let mut row = row.into_iter();
                Some(Self { $($column: row.next()?,)* })
            }
        }
    };
}

use columns_of_table;
