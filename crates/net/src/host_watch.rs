//! Waits for changes of the links, addresses and routes of this host.

use std::io;

use manyways_sys::interface::watch::{Changes, Watch};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Notifications of the kernel; see [`Watch`].
pub(crate) struct HostWatch(AsyncFd<Watch>);

impl HostWatch {
    /// Subscribes to changes from now on. Call it in a runtime.
    pub(crate) fn open() -> io::Result<Self> {
        // The replacement of this function is unsafe. The watch owns its descriptor.
        #[expect(deprecated, reason = "what replaces it is unsafe, and this crate has none")]
        AsyncFd::with_interest(Watch::open()?, Interest::READABLE).map(Self)
    }

    /// Waits for the next changes. Cancelled, it loses none.
    pub(crate) async fn changes(&mut self) -> io::Result<Vec<Changes>> {
        let mut ready = self.0.readable_mut().await?;
        // Cleared before the read: a change during the read makes the watch readable again.
        ready.clear_ready();
        let mut all = Vec::new();
        loop {
            let changes = ready.get_inner_mut().read_changes()?;
            if changes.is_empty() {
                return Ok(all);
            }
            all.push(changes);
        }
    }
}
