//! The server of a flow: the name under which the client contacted it, the organisation that owns
//! its address, the delivery network, and its distance (campus Wi-Fi paper, 5.1 and 6).

mod clusters;
mod domain;
mod organisations;

pub use clusters::{Clusters, Mode, clusters};
pub use domain::{NameSource, best_name, cdn_of, registered_domain};
pub use organisations::{
    MAX_FIELD_LEN, MAX_PREFIXES, Organisation, Organisations, TableError, TableErrorKind,
};
