//! The probe server of a command line.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueHint;
use manyways_net::bond::PublicKey;
use manyways_net::probe::ProbeServer;
use manyways_net::radio::probe::host_and_port;

use crate::bond::keygen;
use crate::failure::Failure;

/// Options that name a probe server.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// Probe server, with its port if that is not 7464
    #[arg(value_name = "SERVER")]
    server: String,
    /// Public key of the server, as `manyways bond keygen` printed it there
    #[arg(long, value_name = "KEY")]
    server_key: PublicKey,
    /// Private key of this client, as `manyways bond keygen` makes it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
}

impl ServerArgs {
    pub fn server(&self) -> Result<ProbeServer> {
        let (host, port) = host_and_port(&self.server).map_err(|_| {
            Failure::usage(format!("`{}` has no port after the colon", self.server))
                .hint("write it like example.org, 192.0.2.1:7464 or [2001:db8::1]:7464")
        })?;
        Ok(ProbeServer {
            host: host.to_owned(),
            port: port.unwrap_or(ProbeServer::DEFAULT_PORT),
            key: self.server_key,
            own_key: Arc::new(keygen::read(&self.key)?),
        })
    }
}
