//! The options of Multipath TCP (RFC 8684; version 0 is RFC 6824).

mod subtype;

pub use self::subtype::{AddAddress, Capable, DataSequence, Dss, Join, Mapping, Subtype};
