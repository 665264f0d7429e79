//! Which networks a client uses: those of the host that lead to the gateway, as they come and go.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use manyways_proto::sched::PathId;
use manyways_sys::interface::watch::Watch;
use manyways_sys::interface::{self, Interface, Kind};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::client::Client;
use crate::fetch::PathSpec;

/// After a change the list is read so much later: changes come in bursts.
const SETTLE: Duration = Duration::from_millis(100);

/// What a client may use.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Networks by name, the preferred one first. None means every one.
    pub via: Vec<String>,
}

/// The networks of a client.
#[derive(Clone)]
pub struct Networks(Rc<Inner>);

struct Inner {
    wanted: Wanted,
    client: Client,
    paths: RefCell<HashMap<String, (PathId, Interface)>>,
}

impl Wanted {
    /// The networks that lead to a gateway there now, in the order of preference.
    ///
    /// # Errors
    /// Where the kernel does not list its interfaces.
    pub fn find(&self, gateway: &[SocketAddr]) -> Result<Vec<Interface>, interface::ListError> {
        let gateway: Vec<IpAddr> = gateway.iter().map(SocketAddr::ip).collect();
        let mut found = interface::list_towards(&gateway)?;
        found.retain(|found| found.usable.is_ok() && self.wants(found, &gateway));
        found.sort_by_key(|found| self.via.iter().position(|name| *name == found.name));
        Ok(found)
    }

    fn wants(&self, interface: &Interface, gateway: &[IpAddr]) -> bool {
        match self.via.is_empty() {
            // A gateway on this host is reached over loopback alone.
            true => (interface.kind == Kind::Loopback) == gateway.iter().all(IpAddr::is_loopback),
            false => self.via.contains(&interface.name),
        }
    }
}

impl Networks {
    /// Gives the client the networks that there are, and those that come. Runs on the calling
    /// thread's local tasks.
    pub fn follow(client: Client, wanted: Wanted, found: Vec<Interface>) -> Self {
        let networks = Self(Rc::new(Inner { wanted, client, paths: RefCell::default() }));
        networks.compare(found);
        let followed = networks.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = followed.watch().await {
                tracing::warn!("changes of the host's networks are not seen: {error}");
            }
        });
        networks
    }

    /// The networks that were ever used, with their numbers.
    pub fn known(&self) -> Vec<(PathId, Interface)> {
        let mut known: Vec<(PathId, Interface)> = self.0.paths.borrow().values().cloned().collect();
        known.sort_by_key(|(id, _)| *id);
        known
    }

    async fn watch(&self) -> std::io::Result<()> {
        // The other way needs unsafe code; the watch has its descriptor for as long as it lives.
        #[expect(deprecated, reason = "what replaces it is unsafe, and this crate has none")]
        let mut watch = AsyncFd::with_interest(Watch::open()?, Interest::READABLE)?;
        let mut gateway = self.0.client.watch_gateway();
        loop {
            let mut ready = tokio::select! {
                ready = watch.readable_mut() => ready?,
                // Other networks may lead to where it is now.
                Ok(()) = gateway.changed() => {
                    self.look().await;
                    continue;
                }
            };
            // Before it is read: what comes meanwhile makes it readable again.
            ready.clear_ready();
            let mut changed = false;
            loop {
                let changes = ready.get_inner_mut().read_changes()?;
                if changes.is_empty() {
                    break;
                }
                changed = true;
                for link in changes.links.iter().filter(|link| !link.works()) {
                    let id = self.0.paths.borrow().get(&link.name).map(|(id, _)| *id);
                    if let Some(id) = id {
                        self.0.client.path_down(id);
                    }
                }
            }
            if !changed {
                continue;
            }
            tokio::time::sleep(SETTLE).await;
            self.look().await;
        }
    }

    async fn look(&self) {
        let (wanted, gateway) = (self.0.wanted.clone(), self.0.client.gateway());
        let found = tokio::task::spawn_blocking(move || wanted.find(&gateway)).await;
        if let Ok(Ok(found)) = found {
            self.compare(found);
        }
    }

    fn compare(&self, found: Vec<Interface>) {
        let mut paths = self.0.paths.borrow_mut();
        for interface in found {
            let spec = PathSpec::of(&interface);
            let is_full = paths.len() >= usize::from(PathId::LIMIT);
            match paths.get_mut(&interface.name) {
                Some((id, known)) => {
                    let moved = known.addresses != interface.addresses;
                    *known = interface;
                    if moved {
                        self.0.client.path_down(*id);
                    }
                    self.0.client.update_path(*id, spec);
                }
                None if !is_full => {
                    let id = self.0.client.add_path(spec);
                    paths.insert(interface.name.clone(), (id, interface));
                }
                None => tracing::warn!("{}: there are too many networks", interface.name),
            }
        }
    }
}
