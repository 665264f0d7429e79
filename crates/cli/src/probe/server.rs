//! `manyways probe server`: the far end of throughput, burst and load probes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::AllowFile;
use manyways_net::probe::server::{Server, ServerLimits, ServerOptions};
use manyways_unit::{Rate, Size, Span, human};

use super::run::{EndSignals, block_on};
use crate::bond::keygen;
use crate::failure::Failure;

/// Run a probe server
///
/// Serves the clients whose keys are in the allow file, and no others. One TCP and one UDP port
/// carry everything. Datagrams are sent only to addresses from which the token of a measurement came.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond keygen server.key
  manyways probe server --listen 0.0.0.0:7464 --key server.key --allow allow
  manyways probe server --listen '[::]:7464' --key server.key --allow allow --max-bytes 1GB --max-rate 50mbit

The allow file has a line for each client: its public key, a name, and optionally a rate, as in
`KEY phone rate=20mbit`. It is read again when it changes.")]
pub struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7464")]
    listen: SocketAddr,
    /// Private key of the server, as `manyways bond keygen` makes it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// The public keys of authorized clients
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    allow: PathBuf,
    /// Bytes of a client in an hour, both directions
    #[arg(long, value_name = "BYTES", default_value = "10GB", value_parser = human::bytes)]
    max_bytes: Size,
    /// Duration of a measurement
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = Span::from_str)]
    max_duration: Span,
    /// Rate of a client
    #[arg(long, value_name = "RATE", value_parser = Rate::from_str)]
    max_rate: Option<Rate>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let allow = AllowFile::open(&args.allow)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let limits =
        ServerLimits { bytes: args.max_bytes, duration: args.max_duration, rate: args.max_rate };
    let options =
        ServerOptions { listen: args.listen, key: keygen::read(&args.key)?, allow, limits };
    block_on(async {
        let mut end = EndSignals::catch()?;
        let server =
            Server::bind(options).await.map_err(|error| Failure::new(error.to_string()))?;
        let address = server.local_addr().context("the ports are gone")?;
        eprintln!("probe server on {address} (TCP and UDP)");
        server.run(end.recv()).await;
        anyhow::Ok(())
    })??;
    Ok(ExitCode::SUCCESS)
}
