//! `--via auto`: a running `manyways steer run` advises the networks.

use manyways_net::fetch::{ClientBuilder, Location, PathSelection, Report};
use manyways_net::steer::advice;

use super::options::Args;

/// The name of this program in questions, and in `manyways steer prefer --app`.
const APP: &str = "manyways get";

/// Makes the client ask which networks to use, if the options want that.
pub fn advised(args: &Args, networks: &PathSelection, builder: ClientBuilder) -> ClientBuilder {
    // The loopback interface is not a network, and there is nothing to choose.
    if !args.is_advised() || networks.path_lister().is_none() {
        return builder;
    }
    let (goal, limit) = (args.goal.map(super::options::GoalArg::name), args.advice_timeout);
    builder.path_advisor(limit, advice::advisor(APP, goal, limit))
}

/// Reports to `steer run` the size of a complete download.
pub async fn note_ended(args: &Args, location: &Location, report: &Report) {
    if !args.is_advised() || report.bytes.is_zero() {
        return;
    }
    let (host, size) = (location.origin().host.clone(), report.bytes.as_bytes());
    let limit = args.advice_timeout;
    let report = tokio::task::spawn_blocking(move || advice::note_ended(APP, &host, size, limit));
    // The process may end before a `steer run` that is stopped takes the request.
    let _ = tokio::time::timeout(limit.into(), report).await;
}
