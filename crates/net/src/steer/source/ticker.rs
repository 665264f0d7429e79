//! When a source is polled, and when it ends.

use manyways_unit::Span;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The interval of polls, which may change during a wait.
#[derive(Debug)]
pub(super) struct Ticker {
    interval: watch::Receiver<Span>,
}

impl Ticker {
    pub(super) fn new(interval: watch::Receiver<Span>) -> Self {
        Self { interval }
    }

    pub(super) fn interval(&self) -> Span {
        *self.interval.borrow()
    }

    /// Waits for the next poll; `false` if the source ends.
    pub(super) async fn pause(&mut self) -> bool {
        let began = Instant::now();
        loop {
            let next = began + (*self.interval.borrow_and_update()).into();
            select! {
                changed = self.interval.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return false,
                },
                () = sleep_until(next) => return true,
            }
        }
    }

    /// Waits longer than an interval; `false` if the source ends.
    pub(super) async fn wait(&mut self, span: Span) -> bool {
        let until = Instant::now() + span.into();
        select! {
            () = self.end() => false,
            () = sleep_until(until) => true,
        }
    }

    /// Waits for the end of the source.
    pub(super) async fn end(&mut self) {
        while self.interval.changed().await.is_ok() {}
    }
}
