//! DNS results that the paths share for speculative connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

#[cfg(feature = "fetch")]
use super::{Lookup, Names};

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

    #[cfg(feature = "fetch")]
    fn get(&self, host: &str) -> Option<Vec<IpAddr>> {
        self.0.borrow().get(host).cloned()
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

/// Resolves a name as another path did, so that both connect to one server. Only a name that no
/// path has resolved is looked up over the other path, which may have failed since.
#[cfg(feature = "fetch")]
pub(crate) struct FirstAnswers {
    /// The name servers of the other path.
    pub(crate) names: Arc<dyn Names>,
    pub(crate) answers: SharedAddresses,
}

#[cfg(feature = "fetch")]
impl Names for FirstAnswers {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        match self.answers.get(host) {
            Some(addresses) => Box::pin(std::future::ready(Ok(addresses))),
            None => self.names.lookup(host),
        }
    }
}

#[cfg(all(test, feature = "fetch"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_was_resolved_needs_no_name_server() {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let table = HashMap::from(["a", "b"].map(|name| (name.to_owned(), vec![address(1)])));
        let answers = SharedAddresses::default();
        answers.insert("a", &[address(2)]);
        let names = FirstAnswers { names: Arc::new(table), answers };
        for (name, last) in [("a", 2), ("b", 1)] {
            assert_eq!(names.lookup(name).await.unwrap(), [address(last)], "{name}");
        }
    }
}
