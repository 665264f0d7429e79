//! Reads carriers and lists interfaces during a transfer, at the times of
//! `proto::fetch::InterfaceWatch`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use manyways_proto::fetch::{
    InterfaceWatch, ListedInterface, Listing, PathChange, WatchConfig, WatchedPath,
};
use manyways_unit::Time;
use tokio::task::JoinHandle;

use crate::path::PathSpec;

/// Callback that lists the current paths; returns `None` if it cannot.
pub(super) type Watch = dyn Fn() -> Option<Vec<PathSpec>> + Send + Sync;

/// The callback of [`ClientBuilder::watch`](super::ClientBuilder::watch).
#[derive(Clone)]
pub(super) struct PathLister(pub(super) Arc<Watch>);

impl fmt::Debug for PathLister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

type Pending = JoinHandle<Option<Vec<PathSpec>>>;

/// The interfaces of a client's paths.
pub(super) struct Interfaces {
    core: InterfaceWatch,
    lister: Option<PathLister>,
    pending: Option<Pending>,
}

impl Interfaces {
    /// Creates a watch of interfaces that all work.
    pub(super) fn new(now: Time, lister: Option<PathLister>) -> Self {
        let listing = if lister.is_some() { Listing::Available } else { Listing::Unavailable };
        let core = InterfaceWatch::new(now, WatchConfig::default(), listing);
        Self { core, lister, pending: None }
    }

    /// When to call [`Interfaces::poll`] again.
    pub(super) fn next_wakeup(&self) -> Time {
        self.core.next_wakeup()
    }

    /// Reads carriers and starts a list, if they are due.
    pub(super) fn poll(&mut self, now: Time, paths: &[Arc<PathSpec>]) -> Vec<PathChange> {
        if self.core.wants_list(now)
            && let Some(PathLister(list)) = &self.lister
        {
            let list = Arc::clone(list);
            self.pending = Some(tokio::task::spawn_blocking(move || list()));
        }
        match self.core.wants_carriers(now) {
            true => self.core.on_carriers(paths.iter().map(|path| path.has_carrier())),
            false => Vec::new(),
        }
    }

    /// Returns the pending list, or `None` if it failed; never ready without a pending list. Cancel
    /// safe.
    pub(super) async fn next_list(&mut self) -> Option<Vec<PathSpec>> {
        let Some(pending) = &mut self.pending else { return std::future::pending().await };
        let listed = pending.await;
        self.pending = None;
        listed.ok().flatten()
    }

    /// Compares the paths with a list. `source` is the address of each path's connection.
    pub(super) fn compare(
        &mut self,
        now: Time,
        paths: &[Arc<PathSpec>],
        sources: &[Option<IpAddr>],
        listed: Option<&[PathSpec]>,
    ) -> Vec<PathChange> {
        let Some(listed) = listed else {
            self.core.on_list_failed(now);
            return Vec::new();
        };
        let paths: Vec<WatchedPath<'_>> = paths
            .iter()
            .zip(sources)
            .map(|(path, source)| WatchedPath {
                interface: interface(path),
                has_device: path.device.is_some(),
                source: *source,
            })
            .collect();
        let listed: Vec<ListedInterface<'_>> = listed.iter().map(interface).collect();
        self.core.on_list(now, &paths, &listed)
    }
}

fn interface(path: &PathSpec) -> ListedInterface<'_> {
    ListedInterface { name: &path.name, addresses: &path.addresses, metered: path.metered }
}
