//! Waiting until a core wants to be polled again.

use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_unit::Time;

/// Waits until `wakeup` on `clock`; for ever where there is none.
pub(super) async fn until(clock: &Clock, wakeup: Option<Time>) {
    match wakeup {
        Some(at) => tokio::time::sleep(Duration::from(at.since(clock.now()))).await,
        None => std::future::pending().await,
    }
}
