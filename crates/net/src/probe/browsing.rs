//! Common parts of probes that drive a browser: its way into the measured network, and its bytes.

use manyways_sys::interface::{self, Counters};

use super::contract::{ProbeError, Run};
use super::exec::count;
use crate::browser::Proxy;

/// Counts the traffic of the interface as that of the browser.
pub(super) struct Meter(Option<Counters>);

impl Meter {
    pub(super) fn start(run: &Run) -> Self {
        Self(run.network().traffic())
    }

    /// Takes the traffic since the last look from the prediction.
    ///
    /// # Errors
    /// The prediction or the data limit is exceeded.
    pub(super) fn look(&mut self, run: &mut Run) -> Result<(), ProbeError> {
        count(run, &mut self.0)
    }
}

/// A proxy into the measured network, for a browser on a host that also has others.
pub(super) async fn proxy(run: &Run) -> Result<Option<Proxy>, ProbeError> {
    if is_only(run) {
        return Ok(None);
    }
    let started = Proxy::start(run.path().clone()).await;
    started.map(Some).map_err(|error| ProbeError::io(run.path(), "start a proxy", error))
}

/// Whether the host has no other network that the browser could use. A page of this host itself cannot
/// be loaded over any other.
fn is_only(run: &Run) -> bool {
    if run.network().interface().kind == interface::Kind::Loopback {
        return true;
    }
    let usable = interface::list().unwrap_or_default().into_iter().filter(|one| one.usable.is_ok());
    usable.map(|one| one.name).eq([run.network().interface().name.clone()])
}
