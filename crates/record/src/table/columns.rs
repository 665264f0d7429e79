//! The macro that declares the columns of a row.

/// Declares the columns of a [`Row`](crate::table::Row), each as `NAME KIND ABOUT |row| VALUE;`.
///
/// `both NAME KIND ABOUT |row, direction| VALUE;` declares one column for each direction. The
/// directions come first, each as `(PREFIX, SUFFIX, VALUE)`: the prefix precedes `NAME`, the suffix
/// follows `ABOUT`.
///
/// ```
/// use manyways_record::columns;
/// use manyways_record::table::{Column, Row, Schema};
///
/// struct Link {
///     name: String,
///     bytes: [u64; 2],
/// }
///
/// impl Row for Link {
///     const TABLE: &'static str = "links";
///     const SCHEMA: &'static str = "example/1";
///     const ABOUT: &'static str = "A link.";
///     const COLUMNS: &'static [Column<Self>] = columns! {
///         directions [("down_", " (from the server)", 0), ("up_", " (from the client)", 1)];
///         "name" Text "Name of the link." |link| link.name.as_str();
///         both "bytes" Count "Bytes" |link, direction| link.bytes[direction];
///     };
/// }
/// let names: Vec<_> = Schema::of::<Link>().columns.iter().map(|(name, ..)| *name).collect();
/// assert_eq!(names, ["name", "down_bytes", "up_bytes"]);
/// ```
#[macro_export]
macro_rules! columns {
    (directions $directions:tt; $($rest:tt)*) => {
        $crate::columns_of!($directions; []; $($rest)*)
    };
    ($($rest:tt)*) => { $crate::columns_of!([]; []; $($rest)*) };
}

/// The columns so far, and the rest of the declarations.
#[doc(hidden)]
#[macro_export]
macro_rules! columns_of {
    ($directions:tt; [$($done:expr),*];) => { &[$($done),*] };
    (
        [$(($prefix:literal, $suffix:literal, $direction:expr)),*];
        [$($done:expr),*];
        both $name:literal $kind:ident $about:literal |$row:ident, $end:ident| $value:expr;
        $($rest:tt)*
    ) => {
        $crate::columns_of!([$(($prefix, $suffix, $direction)),*]; [
            $($done,)*
            $($crate::table::column(
                concat!($prefix, $name),
                $crate::table::Kind::$kind,
                concat!($about, $suffix),
                |$row| {
                    let $end = $direction;
                    $crate::table::Value::from($value)
                }
            )),*
        ]; $($rest)*)
    };
    (
        $directions:tt;
        [$($done:expr),*];
        $name:literal $kind:ident $about:literal |$row:ident| $value:expr;
        $($rest:tt)*
    ) => {
        $crate::columns_of!($directions; [
            $($done,)*
            $crate::table::column(
                $name,
                $crate::table::Kind::$kind,
                $about,
                |$row| $crate::table::Value::from($value)
            )
        ]; $($rest)*)
    };
}
