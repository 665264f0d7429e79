//! Waits for the next wakeup of a core.

use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_unit::Time;

/// Waits until `wakeup` on `clock`; forever if it is `None`.
pub(super) async fn until(clock: &Clock, wakeup: Option<Time>) {
    match wakeup {
        Some(at) => tokio::time::sleep(Duration::from(at.since(clock.now()))).await,
        None => std::future::pending().await,
    }
}
