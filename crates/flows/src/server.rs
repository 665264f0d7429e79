//! Who is at the far end of a flow: the name it was asked by, the organisation whose address it
//! has, the network that delivers for others, and how far away it is (campus Wi-Fi paper, 5.1 and
//! 6).

mod clusters;
mod domain;
mod organisations;

pub use clusters::{Clusters, Mode, clusters};
pub use domain::{NamedBy, best_name, delivery, registered_domain};
pub use organisations::{
    FIELD_LIMIT, Organisation, Organisations, PREFIX_LIMIT, TableError, TableFault,
};
