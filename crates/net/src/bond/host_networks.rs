//! The networks of the host that lead to the gateway, and their changes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::bond::networks::NetworkSelection;
use manyways_proto::bond::networks::{HostNetworks as Core, Input, Network, Output};
use manyways_proto::sched::PathId;
use manyways_sys::interface::{self, Interface, Kind};

use super::client::{Client, Lender};
use super::timer;
use crate::host_watch::HostWatch;
use crate::path::PathSpec;

/// The networks of a client; cheap to clone.
#[derive(Clone)]
pub struct HostNetworks(Rc<Inner>);

struct Inner {
    selection: NetworkSelection,
    client: Client,
    core: RefCell<Core>,
    paths: RefCell<HashMap<PathId, Interface>>,
    lenders: RefCell<Vec<KnownLender>>,
}

/// A path over a lender.
struct KnownLender {
    id: PathId,
    name: String,
    /// `None` if it is not paired any longer.
    lender: Option<Lender>,
}

/// Kind of a network over a lender, in policies and output; stable.
pub const LENDER_KIND: &str = "lender";

/// A network of a client.
pub(super) struct UsedNetwork {
    pub(super) id: PathId,
    pub(super) name: String,
    /// Access technology.
    pub(super) kind: &'static str,
    pub(super) is_metered: bool,
    /// Address of the lender; `None` if it is a network of this device, or not paired any longer.
    pub(super) lender: Option<SocketAddr>,
}

/// Failure to add a lender.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LenderError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("there are more than {} networks and lenders", PathId::LIMIT)]
    TooMany,
}

/// Returns the networks that lead to a gateway at these addresses now, most preferred first.
///
/// # Errors
/// If the kernel does not list its interfaces.
pub fn find_networks(
    selection: &NetworkSelection,
    gateway: &[SocketAddr],
) -> Result<Vec<Interface>, interface::ListError> {
    let gateway: Vec<IpAddr> = gateway.iter().map(SocketAddr::ip).collect();
    let mut found = interface::list_towards(&gateway)?;
    found.retain(|found| {
        let is_loopback = found.kind == Kind::Loopback;
        found.usable.is_ok() && selection.accepts(&found.name, is_loopback, &gateway)
    });
    found.sort_by_key(|found| selection.rank(&found.name));
    Ok(found)
}

impl HostNetworks {
    /// Adds the networks in `found` to the client, and follows later changes. Runs on the calling
    /// thread's local tasks.
    pub fn follow(client: Client, selection: NetworkSelection, found: Vec<Interface>) -> Self {
        let core = Core::new(IoLimits::default().network_settle_delay);
        let (core, paths, lenders) = (RefCell::new(core), RefCell::default(), RefCell::default());
        let networks = Self(Rc::new(Inner { selection, client, core, paths, lenders }));
        networks.handle(Input::Listed(found.iter().map(network).collect()));
        while let Some(output) = networks.poll() {
            networks.perform(output, &found);
        }
        let followed = networks.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = followed.watch().await {
                tracing::warn!("cannot watch the host's networks: {error}");
            }
        });
        networks
    }

    /// Uses these lenders, and no other ones. Returns the names of new ones, or why one is not used.
    pub fn set_lenders(&self, lenders: Vec<Lender>) -> Vec<Result<Lender, (String, LenderError)>> {
        let mut results = Vec::new();
        for known in self.0.lenders.borrow_mut().iter_mut() {
            let same = lenders.iter().find(|lender| lender.name == known.name);
            if known.lender.as_ref() != same {
                known.lender = same.cloned();
                if let Err(error) = self.0.client.set_lender(known.id, known.lender.clone()) {
                    results.push(Err((known.name.clone(), error.into())));
                } else {
                    results.extend(known.lender.clone().map(Ok));
                }
            }
        }
        let is_new = |lender: &Lender| {
            !self.0.lenders.borrow().iter().any(|known| known.name == lender.name)
        };
        for lender in lenders {
            if is_new(&lender) {
                let name = lender.name.clone();
                let added = self.add_lender(lender.clone()).map(|()| lender);
                results.push(added.map_err(|error| (name, error)));
            }
        }
        results
    }

    fn add_lender(&self, lender: Lender) -> Result<(), LenderError> {
        let name = lender.name.clone();
        let id = self.0.core.borrow_mut().next_path().ok_or(LenderError::TooMany)?;
        let added = self.0.client.add_lender(lender.clone())?;
        debug_assert_eq!(added, id, "paths are added here alone");
        self.0.lenders.borrow_mut().push(KnownLender { id, name, lender: Some(lender) });
        Ok(())
    }

    /// Returns all networks that were used so far, sorted by number.
    pub(super) fn used_networks(&self) -> Vec<UsedNetwork> {
        let (paths, lenders) = (self.0.paths.borrow(), self.0.lenders.borrow());
        let interfaces = paths.iter().map(|(id, interface)| UsedNetwork {
            id: *id,
            name: interface.name.clone(),
            kind: interface.kind.name(),
            is_metered: interface.metered.is_metered(),
            lender: None,
        });
        let lenders = lenders.iter().map(|known| UsedNetwork {
            id: known.id,
            name: known.name.clone(),
            kind: LENDER_KIND,
            // Most phones pay for their bytes; a policy may say otherwise.
            is_metered: true,
            lender: known.lender.as_ref().map(|lender| lender.address),
        });
        let mut known: Vec<UsedNetwork> = interfaces.chain(lenders).collect();
        known.sort_by_key(|network| network.id);
        known
    }

    async fn watch(&self) -> std::io::Result<()> {
        let mut watch = HostWatch::open()?;
        let mut gateway = self.0.client.watch_gateway();
        let clock = self.0.client.clock();
        loop {
            let wakeup = self.0.core.borrow().next_wakeup();
            tokio::select! {
                changes = watch.changes() => {
                    for changes in changes? {
                        for link in changes.links.iter().filter(|link| !link.is_operational()) {
                            self.handle(Input::LinkDown(link.name.clone()));
                        }
                        self.handle(Input::Changed);
                    }
                }
                Ok(()) = gateway.changed() => self.handle(Input::GatewayMoved),
                () = timer::until(&clock, wakeup) => {}
            }
            self.pump().await;
        }
    }

    fn handle(&self, input: Input) {
        self.0.core.borrow_mut().handle(self.0.client.clock().now(), input);
    }

    async fn pump(&self) {
        let mut listed = Vec::new();
        while let Some(output) = self.poll() {
            let Output::List = output else {
                self.perform(output, &listed);
                continue;
            };
            let (selection, gateway) = (self.0.selection.clone(), self.0.client.gateway());
            let find = move || find_networks(&selection, &gateway);
            match tokio::task::spawn_blocking(find).await {
                Ok(Ok(found)) => {
                    self.handle(Input::Listed(found.iter().map(network).collect()));
                    listed = found;
                }
                _ => self.handle(Input::ListFailed),
            }
        }
    }

    fn poll(&self) -> Option<Output> {
        self.0.core.borrow_mut().poll(self.0.client.clock().now())
    }

    fn perform(&self, output: Output, found: &[Interface]) {
        let client = &self.0.client;
        match output {
            // Handled by `pump`.
            Output::List => {}
            Output::LinkDown(id) => client.path_down(id),
            Output::Add(id, index) => {
                if let Some(interface) = found.get(index) {
                    self.0.paths.borrow_mut().insert(id, interface.clone());
                    let added = client.add_path(PathSpec::from_interface(interface));
                    debug_assert_eq!(added, id, "paths are added here alone");
                }
            }
            Output::Update(id, index) => {
                if let Some(interface) = found.get(index) {
                    self.0.paths.borrow_mut().insert(id, interface.clone());
                    client.update_path(id, PathSpec::from_interface(interface));
                }
            }
            Output::TooMany(index) => {
                let name = found.get(index).map_or("", |interface| interface.name.as_str());
                tracing::warn!("{name}: ignored, more than {} networks", PathId::LIMIT);
            }
        }
    }
}

fn network(found: &Interface) -> Network {
    Network { name: found.name.clone(), addresses: found.addresses.clone() }
}
