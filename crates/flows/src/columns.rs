//! The macro that declares the columns of a row.

/// Declares the columns of a row, each as `NAME KIND ABOUT |row| VALUE;`. `both NAME KIND ABOUT
/// |row, end| VALUE;` declares two columns: `down_NAME` for the bytes from the server and `up_NAME`
/// for the bytes from the client.
macro_rules! columns {
    ($($rest:tt)*) => { $crate::columns::columns_of!([]; $($rest)*) };
}

macro_rules! columns_of {
    ([$($done:expr),*];) => { &[$($done),*] };
    (
        [$($done:expr),*];
        both $name:literal $kind:ident $about:literal |$row:ident, $end:ident| $value:expr;
        $($rest:tt)*
    ) => {
        $crate::columns::columns_of!([
            $($done,)*
            manyways_record::table::column(
                concat!("down_", $name),
                manyways_record::table::Kind::$kind,
                concat!($about, " (from the server)"),
                |$row| {
                    let $end = manyways_wire::stream::Endpoint::Server;
                    manyways_record::table::Value::from($value)
                }
            ),
            manyways_record::table::column(
                concat!("up_", $name),
                manyways_record::table::Kind::$kind,
                concat!($about, " (from the client)"),
                |$row| {
                    let $end = manyways_wire::stream::Endpoint::Client;
                    manyways_record::table::Value::from($value)
                }
            )
        ]; $($rest)*)
    };
    (
        [$($done:expr),*];
        $name:literal $kind:ident $about:literal |$row:ident| $value:expr;
        $($rest:tt)*
    ) => {
        $crate::columns::columns_of!([
            $($done,)*
            manyways_record::table::column(
                $name,
                manyways_record::table::Kind::$kind,
                $about,
                |$row| manyways_record::table::Value::from($value)
            )
        ]; $($rest)*)
    };
}

pub(crate) use {columns, columns_of};
