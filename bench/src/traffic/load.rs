//! The client: its loads and their measurement.

use std::io;
use std::time::Duration;

use clap::Subcommand;
use manyways_unit::Span;

use super::dial::Dialer;
use super::{
    Measurement, browse, call, combine, crowd, download, files, greedy, requests, stream, upload,
};

/// Ask a server for bytes, and tell how long it took.
#[derive(clap::Args)]
pub struct LoadArgs {
    #[command(flatten)]
    dialer: Dialer,
    /// Delay of the server before each response.
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    think: Span,
    #[command(subcommand)]
    generator: Generator,
}

#[derive(Subcommand)]
enum Generator {
    Files(files::Files),
    Requests(requests::Requests),
    Stream(stream::Stream),
    Call(call::Call),
    Crowd(crowd::Crowd),
    Greedy(greedy::Greedy),
    Browse(browse::Browse),
    Download(download::Download),
    Upload(upload::Upload),
    Combine(combine::Combine),
}

impl LoadArgs {
    /// Whether the opened connections must stay open after the result.
    pub fn keeps_connections(&self) -> bool {
        matches!(self.generator, Generator::Crowd(_))
    }
}

pub async fn run(args: &LoadArgs) -> io::Result<Measurement> {
    let (dialer, think) = (&args.dialer, Duration::from(args.think));
    match &args.generator {
        Generator::Files(files) => files.run(dialer, think).await,
        Generator::Requests(requests) => requests.run(dialer, think).await,
        Generator::Stream(stream) => stream.run(dialer).await,
        Generator::Call(call) => call.run(dialer).await,
        Generator::Crowd(crowd) => crowd.run(dialer).await,
        Generator::Greedy(greedy) => greedy.run(dialer).await,
        Generator::Browse(browse) => browse.run(dialer).await,
        Generator::Download(download) => download.run(dialer).await,
        Generator::Upload(upload) => upload.run(dialer, think).await,
        Generator::Combine(combine) => combine.run(dialer).await,
    }
}
