//! Selection of a transfer's networks by the command line.

use manyways_net::fetch::{Location, PathSelection, PathSpec, SelectionError, SelectionOptions};

use super::options::{Args, Transport};
use crate::failure::Failure;

/// Creates a selection from the options of the command line.
pub fn selection(args: &Args) -> PathSelection {
    let options = SelectionOptions::new()
        .via(args.networks().iter().cloned())
        .name_servers(args.dns.iter().cloned())
        .metered(args.metered)
        .estimate_cache(args.estimate_cache());
    PathSelection::new(options)
}

/// Returns the paths to `location`; `None` if they are the same as in the previous call.
pub async fn paths_to(
    selection: &mut PathSelection,
    args: &Args,
    location: &Location,
) -> Result<Option<Vec<PathSpec>>, Failure> {
    match args.transport {
        Transport::Tcp => selection.paths_to(location).await.map_err(|error| failure(&error)),
        Transport::Mptcp => Ok(selection.kernel_mptcp()),
    }
}

fn failure(error: &SelectionError) -> Failure {
    let failure = match error {
        SelectionError::Unknown { .. } => Failure::usage(error.to_string()),
        _ => Failure::new(error.to_string()),
    };
    failure.maybe_hint(error.hint())
}
