//! Signals that end the command.

use anyhow::{Context, Result};
use manyways_net::fetch::Cause;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGINT and SIGTERM.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// Whether one of the signals has arrived.
    pub is_received: bool,
}

impl Stop {
    pub fn new() -> Result<Self> {
        let catch = |kind| signal(kind).context("signals cannot be caught");
        let (interrupt, terminate) =
            (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, is_received: false })
    }

    /// Ready when one of the signals has arrived, even before the call.
    pub async fn wait(&mut self) {
        if !self.is_received {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            self.is_received = true;
        }
    }
}

/// The failure of a stopped command.
pub fn stopped() -> Failure {
    Failure::new(Cause::Stopped.to_string())
}
