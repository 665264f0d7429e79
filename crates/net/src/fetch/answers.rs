//! What the name servers of any path said of a name, for the others to begin with.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

/// The latest addresses of each name. A path may knock at them while its own name server has not
/// answered, and stays only where that gives the address too: servers are chosen by each network.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<watch::Sender<HashMap<String, Vec<IpAddr>>>>);

impl Answers {
    pub(super) fn say(&self, host: &str, addresses: &[IpAddr]) {
        if !addresses.is_empty() {
            self.0.send_modify(|all| {
                all.insert(host.to_owned(), addresses.to_vec());
            });
        }
    }

    /// Waits until somebody knows it, however long.
    pub(super) async fn hear(&self, host: &str) -> Vec<IpAddr> {
        let mut all = self.0.subscribe();
        loop {
            if let Some(addresses) = all.borrow_and_update().get(host) {
                return addresses.clone();
            }
            // It does not end: we hold the sending half ourselves.
            if all.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
