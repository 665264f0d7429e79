//! The macro that declares the columns of a row of flows, and the version of the tables.

/// Name and version of the tables and of the documents about them. If one table changes in a way
/// that its readers notice, its [`Row::SCHEMA`](manyways_record::table::Row::SCHEMA) gets a version
/// of its own.
pub const SCHEMA: &str = "manyways-flows/3";

/// Declares the columns of a row as [`manyways_record::columns`] does, with the directions of a
/// flow: `down_NAME` for the bytes from the server and `up_NAME` for the bytes from the client.
macro_rules! columns {
    ($($rest:tt)*) => {
        manyways_record::columns! {
            directions [
                ("down_", " (from the server)", manyways_wire::stream::Endpoint::Server),
                ("up_", " (from the client)", manyways_wire::stream::Endpoint::Client)
            ];
            $($rest)*
        }
    };
}

pub(crate) use columns;
