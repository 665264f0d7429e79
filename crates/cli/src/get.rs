//! `manyways get`: fetches objects over every network of this host at once.

#[cfg(feature = "steer")]
mod advice;
mod download;
mod events;
mod networks;
mod options;
mod progress;
mod proxy;
mod report;
mod serve;
mod session;
mod stdout;
mod stop;

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

pub use options::Args;
#[cfg(feature = "demo")]
pub use progress::share;
use session::Session;

pub fn run(args: Args) -> Result<ExitCode> {
    if args.serve.is_some() {
        return run_server(args);
    }
    let wanted = download::list(&args)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async { Session::new(&args, &wanted)?.run(&wanted).await });
    // A blocked name look-up or disk flush must not delay the exit.
    runtime.shutdown_background();
    done
}

fn run_server(args: Args) -> Result<ExitCode> {
    let origin = download::origin(&args)?;
    let runtime = runtime()?;
    let done = runtime.block_on(serve::run(args, origin));
    runtime.shutdown_background();
    done
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime cannot start")
}
