//! Pauses of probes.

use std::sync::Arc;

use tokio::sync::watch;

/// Pauses a probe, and lets it go on.
#[derive(Debug)]
pub struct PauseControl {
    wanted: watch::Sender<bool>,
    reached: watch::Receiver<bool>,
}

/// The request of a [`PauseControl`], for [`Options::pause`](super::Options::pause).
#[derive(Clone, Debug)]
pub struct PauseSignal {
    wanted: watch::Receiver<bool>,
    reached: Arc<watch::Sender<bool>>,
}

impl PauseControl {
    pub fn new() -> (Self, PauseSignal) {
        let (wanted, request) = watch::channel(false);
        let (reach, reached) = watch::channel(false);
        (Self { wanted, reached }, PauseSignal { wanted: request, reached: Arc::new(reach) })
    }

    /// Waits until the probe has paused. Does not return if it ends before.
    pub async fn pause(&mut self) {
        self.wanted.send_replace(true);
        if self.reached.wait_for(|is_reached| *is_reached).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn resume(&self) {
        self.wanted.send_replace(false);
    }
}

impl PauseSignal {
    pub(super) fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    /// Reports whether the probe has paused.
    pub(super) fn report(&self, is_paused: bool) {
        self.reached.send_replace(is_paused);
    }

    /// Waits for the end of the request.
    pub(super) async fn resumed(&mut self) {
        // A pause whose control is gone cannot be ended: the probe goes on.
        let _ = self.wanted.wait_for(|is_wanted| !is_wanted).await;
    }
}
