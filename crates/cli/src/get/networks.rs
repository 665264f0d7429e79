//! The networks of a transfer, as the command line asks for them.

use manyways_net::fetch::location::Location;
use manyways_net::fetch::{PathSelection, PathSpec, SelectionError, SelectionOptions};

use super::options::{Args, Transport};
use crate::failure::Failure;

/// A selection with the options of the command line.
pub fn selection(args: &Args) -> PathSelection {
    let options = SelectionOptions::new()
        .via(args.via.iter().cloned())
        .name_servers(args.dns.iter().cloned())
        .metered(args.metered)
        .cache(args.memory());
    PathSelection::new(options)
}

/// The paths towards `location`; `None` if they are the same as last time.
pub async fn paths_towards(
    selection: &mut PathSelection,
    args: &Args,
    location: &Location,
) -> Result<Option<Vec<PathSpec>>, Failure> {
    match args.transport {
        Transport::Tcp => selection.paths_towards(location).await.map_err(|error| failure(&error)),
        Transport::Mptcp => Ok(selection.kernel_mptcp()),
    }
}

fn failure(error: &SelectionError) -> Failure {
    let failure = match error {
        SelectionError::Unknown { .. } => Failure::usage(error.to_string()),
        _ => Failure::new(error.to_string()),
    };
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
