//! DNS results that the paths share for speculative connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

/// The latest addresses of each name. A path may connect speculatively to them while its own name
/// server has not answered. It keeps the connection only if its own name server also returns the
/// address, because name servers select addresses by network.
#[derive(Clone, Debug, Default)]
pub struct SharedAddresses(Arc<watch::Sender<HashMap<String, Vec<IpAddr>>>>);

impl SharedAddresses {
    pub(super) fn insert(&self, host: &str, addresses: &[IpAddr]) {
        if !addresses.is_empty() {
            self.0.send_modify(|all| {
                all.insert(host.to_owned(), addresses.to_vec());
            });
        }
    }

    /// Waits until any path has resolved the name.
    pub(super) async fn wait_for(&self, host: &str) -> Vec<IpAddr> {
        let mut all = self.0.subscribe();
        loop {
            if let Some(addresses) = all.borrow_and_update().get(host) {
                return addresses.clone();
            }
            // This never ends the loop: `self` owns the sender.
            if all.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
