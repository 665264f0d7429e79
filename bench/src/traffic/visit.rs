//! A page load of any URL.

use std::io;

use manyways_net::browser::Home;

use super::Measurement;
use super::browser::Browser;

/// Load a page of any server; the value is the time from the navigation's start to the end of the load
/// event. The browser trusts the certificates in the home of the environment.
#[derive(clap::Args)]
pub struct VisitArgs {
    #[arg(long)]
    url: String,
    /// How many bytes all bodies have together; another number is a failure.
    #[arg(long, value_name = "N")]
    bytes: u64,
    #[command(flatten)]
    browser: Browser,
}

pub async fn run(args: &VisitArgs) -> io::Result<Measurement> {
    let loaded = args.browser.load(&args.url, args.bytes, None, Home::Inherited).await?;
    Ok(Measurement { value: loaded.millis / 1000.0, ..Measurement::default() })
}
