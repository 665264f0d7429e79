//! The client: its loads and their measurement.

use std::io;
use std::time::Duration;

use clap::Subcommand;
use manyways_unit::Span;

use super::dial::Way;
use super::{Told, browse, call, crowd, files, requests, stream};

/// Ask a server for bytes, and tell how long it took.
#[derive(clap::Args)]
pub struct LoadArgs {
    #[command(flatten)]
    way: Way,
    /// Delay of the server before each response.
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    think: Span,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Files(files::Files),
    Requests(requests::Requests),
    Stream(stream::Stream),
    Call(call::Call),
    Crowd(crowd::Crowd),
    Browse(browse::Browse),
}

impl LoadArgs {
    /// Whether the opened connections must stay open after the result.
    pub fn holds(&self) -> bool {
        matches!(self.what, What::Crowd(_))
    }
}

pub async fn run(args: &LoadArgs) -> io::Result<Told> {
    let (way, think) = (&args.way, Duration::from(args.think));
    match &args.what {
        What::Files(files) => files.run(way, think).await,
        What::Requests(requests) => requests.run(way, think).await,
        What::Stream(stream) => stream.run(way).await,
        What::Call(call) => call.run(way).await,
        What::Crowd(crowd) => crowd.run(way).await,
        What::Browse(browse) => browse.run(way).await,
    }
}
