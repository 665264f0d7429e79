//! The networks of this host that a client uses, and their path estimates from earlier transfers.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use manyways_proto::estimate::PathEstimate;
use manyways_proto::fetch::{
    Candidate, Destination, MeteredUse, Selection, SelectionFailure, SelectionRequest, select,
};
use manyways_sys::interface::{self, Interface, Kind, ListError, Unusable};
use manyways_unit::Rate;

use super::location::Location;
use super::path_estimates::{EstimateCache, Network, StoredEstimate};
use super::report::Report;
use crate::path::{HostResolver, Names, PathSpec};

/// Which networks to use.
#[derive(Clone, Debug)]
pub struct SelectionOptions {
    via: Vec<String>,
    name_servers: Vec<NameServers>,
    metered: MeteredUse,
    estimate_cache: Option<EstimateCache>,
}

/// Configured name servers of a network, which replace the announced ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameServers {
    /// Name of the network's interface.
    pub network: String,
    /// At least one.
    pub servers: Vec<IpAddr>,
}

/// Selects networks and stores the last selection.
#[derive(Debug)]
pub struct PathSelection {
    options: SelectionOptions,
    selected: Option<Vec<String>>,
    known: Arc<Mutex<KnownPaths>>,
}

/// Known properties of the paths, including those that join during a transfer.
#[derive(Debug, Default)]
struct KnownPaths {
    /// Addresses to which the paths must lead; empty for the internet.
    destinations: Vec<IpAddr>,
    networks: Vec<Network>,
}

/// Why no network can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The system cannot list its interfaces.
    #[error(transparent)]
    List(#[from] ListError),
    /// No network has a route to the server.
    #[error("no network of this host can be used")]
    NoneUsable,
    /// The caller names a network that does not exist.
    #[error("there is no network called {name:?}")]
    Unknown {
        name: String,
        /// The networks that exist.
        existing: Vec<String>,
    },
    /// The caller names a network without a route to the server.
    #[error("{name} cannot be used: {reason}")]
    Unusable { name: String, reason: Unusable },
    /// Only metered networks have a route to the server, and they are not permitted.
    #[error("only metered networks lead to the server: {}", .0.join(", "))]
    OnlyMetered(Vec<String>),
}

impl SelectionError {
    /// Returns a step that may solve the error.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::List(_) => return None,
            Self::NoneUsable => "`manyways paths` shows the reason for each network".to_owned(),
            Self::Unknown { existing, .. } => format!("the networks are: {}", existing.join(", ")),
            Self::Unusable { reason, .. } => reason.hint(),
            Self::OnlyMetered(_) => {
                "--metered yes permits them, --metered 100MB permits them for 100 MB".to_owned()
            }
        })
    }
}

impl Default for SelectionOptions {
    fn default() -> Self {
        let (via, name_servers) = (Vec::new(), Vec::new());
        Self { via, name_servers, metered: MeteredUse::Unlimited, estimate_cache: None }
    }
}

impl SelectionOptions {
    /// Creates options that select every usable network, metered ones without a limit, and store no
    /// estimates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only these networks, the preferred one first.
    pub fn via(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.via = names.into_iter().collect();
        self
    }

    /// Queries these name servers over their networks.
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = NameServers>) -> Self {
        self.name_servers = servers.into_iter().collect();
        self
    }

    /// Limits the use of metered networks.
    pub fn metered(mut self, allowance: MeteredUse) -> Self {
        self.metered = allowance;
        self
    }

    /// Stores path estimates in this cache, and reads them from it.
    pub fn estimate_cache(mut self, cache: Option<EstimateCache>) -> Self {
        self.estimate_cache = cache;
        self
    }
}

impl PathSelection {
    /// Creates a selection without a previous result.
    pub fn new(options: SelectionOptions) -> Self {
        Self { options, selected: None, known: Arc::default() }
    }

    /// Returns the paths to `location`; `None` if they are the same as in the previous call.
    ///
    /// # Errors
    /// Fails if no network can be used, or if the options name unsuitable networks.
    pub async fn paths_to(
        &mut self,
        location: &Location,
    ) -> Result<Option<Vec<PathSpec>>, SelectionError> {
        let (selected, destinations) = self.select(location).await?;
        Ok(self.update_paths(selected, destinations))
    }

    /// Returns one path whose networks the kernel's Multipath TCP selects; `None` if the previous
    /// selection was the same.
    pub fn kernel_mptcp(&mut self) -> Option<Vec<PathSpec>> {
        self.update_paths(vec![SelectedPath::from(PathSpec::kernel_mptcp())], Vec::new())
    }

    fn update_paths(
        &mut self,
        selected: Vec<SelectedPath>,
        destinations: Vec<IpAddr>,
    ) -> Option<Vec<PathSpec>> {
        lock(&self.known).destinations = destinations;
        let names = sorted(selected.iter().map(|selected| selected.path.name.as_str()));
        if self.selected.as_ref() == Some(&names) {
            return None;
        }
        self.selected = Some(names);
        let networks = selected.iter().filter_map(|selected| selected.network.clone());
        lock(&self.known).networks = networks.collect();
        let cache = self.options.estimate_cache.as_ref();
        Some(selected.into_iter().map(|selected| selected.with_estimate(cache)).collect())
    }

    /// Returns a callback that lists the current paths, for
    /// [`ClientBuilder::watch`](super::ClientBuilder::path_lister); `None` if the selected paths
    /// cannot change.
    pub fn path_lister(
        &self,
    ) -> Option<impl Fn() -> Option<Vec<PathSpec>> + Send + Sync + 'static> {
        if lock(&self.known).networks.is_empty() {
            return None;
        }
        let (known, options) = (Arc::clone(&self.known), self.options.clone());
        Some(move || {
            let destinations = lock(&known).destinations.clone();
            let all = interface::list_towards(&destinations)
                .inspect_err(|error| tracing::debug!("cannot list the networks: {error}"))
                .ok()?;
            let is_wanted = |interface: &&Interface| {
                let mut names = options.via.iter().map(|name| name.trim());
                (options.via.is_empty() || names.any(|name| name == interface.name))
                    && interface.usable.is_ok()
                    && interface.kind != Kind::Loopback
            };
            let listed = all.iter().filter(is_wanted).map(|interface| {
                let selected = options.path(interface);
                if let Some(network) = &selected.network {
                    let networks = &mut lock(&known).networks;
                    networks.retain(|other| other.name != network.name);
                    networks.push(network.clone());
                }
                selected.with_estimate(options.estimate_cache.as_ref())
            });
            Some(listed.collect())
        })
    }

    /// Sets the current paths of the client: some may have joined during a transfer.
    pub fn update_selected<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.selected = Some(sorted(names));
    }

    /// Stores the path estimates of a transfer. `rates` are the latest estimated rates.
    pub fn store_estimates(&self, report: &Report, rates: &[(String, Rate)]) {
        let Some(cache) = &self.options.estimate_cache else { return };
        for path in &report.paths {
            let known = lock(&self.known);
            let mut networks = known.networks.iter();
            let Some(network) = networks.find(|network| network.name == path.name) else {
                continue;
            };
            let rate = rates.iter().find(|(name, _)| *name == path.name).map(|(_, rate)| *rate);
            let estimate = StoredEstimate::of(network.clone(), path, rate, wall_clock());
            if let Some(Err(error)) = estimate.map(|estimate| cache.store(&estimate)) {
                tracing::debug!("{}: cannot store the estimate: {error}", path.name);
            }
        }
    }

    /// Returns the paths to `location`, and the addresses to which they must lead.
    async fn select(
        &self,
        location: &Location,
    ) -> Result<(Vec<SelectedPath>, Vec<IpAddr>), SelectionError> {
        let origin = location.origin();
        let is_localhost = origin.host == "localhost";
        let mut destinations: Vec<IpAddr> = origin.address().into_iter().collect();
        let mut destination = match origin.address() {
            Some(address) => Destination::Address { is_loopback: address.is_loopback() },
            None => Destination::Name { is_localhost },
        };
        loop {
            let all = interface::list_towards(&destinations)?;
            let paths = match self.options.select(&all, destination)? {
                Selection::Resolve => {
                    let found = HostResolver.lookup(&origin.host).await.unwrap_or_default();
                    let has_loopback = found.iter().any(IpAddr::is_loopback);
                    destination = Destination::ResolvedName { is_localhost, has_loopback };
                    destinations = found;
                    continue;
                }
                Selection::Loopback => vec![PathSpec::loopback().into()],
                Selection::Interfaces(selected) => {
                    selected.iter().map(|at| self.options.path(&all[*at])).collect()
                }
            };
            return Ok((paths, destinations));
        }
    }
}

impl SelectionOptions {
    fn select(
        &self,
        all: &[Interface],
        destination: Destination,
    ) -> Result<Selection, SelectionError> {
        let candidates: Vec<Candidate<'_>> = all
            .iter()
            .map(|interface| Candidate {
                name: &interface.name,
                is_loopback: interface.kind == Kind::Loopback,
                is_usable: interface.usable.is_ok(),
                metered: interface.metered.is_metered(),
            })
            .collect();
        let required: Vec<String> =
            self.name_servers.iter().map(|servers| servers.network.clone()).collect();
        let request =
            SelectionRequest { via: &self.via, required: &required, metered: self.metered };
        let name = |at: usize| all[at].name.clone();
        select(&candidates, destination, &request).map_err(|problem| match problem {
            SelectionFailure::Unknown(name) => {
                let existing = all.iter().filter(|interface| interface.kind != Kind::Loopback);
                let existing = existing.map(|interface| interface.name.clone()).collect();
                SelectionError::Unknown { name, existing }
            }
            SelectionFailure::Unusable(at) => match &all[at].usable {
                Err(reason) => SelectionError::Unusable { name: name(at), reason: reason.clone() },
                Ok(()) => SelectionError::NoneUsable,
            },
            SelectionFailure::OnlyMetered(all) => {
                SelectionError::OnlyMetered(all.into_iter().map(name).collect())
            }
            _ => SelectionError::NoneUsable,
        })
    }

    fn path(&self, interface: &Interface) -> SelectedPath {
        if interface.kind == Kind::Loopback {
            return PathSpec::loopback().into();
        }
        let own = self.name_servers.iter().filter(|own| own.network == interface.name);
        let servers: Vec<IpAddr> = own.flat_map(|own| own.servers.clone()).collect();
        let path = match servers.is_empty() {
            true => PathSpec::from_interface(interface),
            false => PathSpec::with_name_servers(interface, servers),
        };
        SelectedPath { path, network: Some(interface.into()) }
    }
}

/// A path, and its network; `None` for loopback and Multipath TCP.
struct SelectedPath {
    path: PathSpec,
    network: Option<Network>,
}

impl From<PathSpec> for SelectedPath {
    fn from(path: PathSpec) -> Self {
        Self { path, network: None }
    }
}

impl SelectedPath {
    /// Returns the path with the estimate of an earlier transfer.
    fn with_estimate(self, cache: Option<&EstimateCache>) -> PathSpec {
        let cached = cache.zip(self.network.as_ref());
        let cached = cached.and_then(|(cache, network)| cache.load(network, wall_clock()));
        let known = cached.and_then(|cached| cached.path_estimate());
        if let Some(PathEstimate { rate, rtt }) = known {
            tracing::debug!("{}: {rate} with {rtt} are remembered", self.path.name);
        }
        PathSpec { estimate: known, ..self.path }
    }
}

#[expect(clippy::disallowed_methods, reason = "a stored estimate has to outlive a reboot")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn lock(known: &Mutex<KnownPaths>) -> MutexGuard<'_, KnownPaths> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str) -> SelectedPath {
        let path = PathSpec::from_address(name, IpAddr::from([192, 0, 2, 1]));
        let network = Network { name: name.into(), kind: "wifi".into(), gateway: None };
        SelectedPath { path, network: Some(network) }
    }

    fn names(paths: Option<Vec<PathSpec>>) -> Option<Vec<String>> {
        paths.map(|paths| paths.into_iter().map(|path| path.name).collect())
    }

    #[test]
    fn the_same_paths_are_reported_once_whatever_their_order() {
        let mut selection = PathSelection::new(SelectionOptions::new());
        let both = || vec![network("wifi"), network("lte")];
        let mut reversed = both();
        reversed.reverse();
        assert_eq!(
            names(selection.update_paths(both(), vec![])),
            Some(vec!["wifi".into(), "lte".into()])
        );
        assert_eq!(names(selection.update_paths(reversed, vec![])), None);
        selection.update_selected(["wifi"].into_iter());
        assert_eq!(selection.update_paths(both(), vec![]).map(|paths| paths.len()), Some(2));
    }

    #[test]
    fn a_kernel_path_cannot_come_and_go() {
        let mut selection = PathSelection::new(SelectionOptions::new());
        assert_eq!(names(selection.kernel_mptcp()), Some(vec!["mptcp".into()]));
        assert!(selection.path_lister().is_none());
        assert_eq!(names(selection.kernel_mptcp()), None);
        selection.update_paths(vec![network("wifi")], vec![]);
        assert!(selection.path_lister().is_some());
    }

    #[test]
    fn a_path_starts_with_what_its_network_was_worth() {
        let folder = tempfile::tempdir().unwrap();
        let cache = EstimateCache::in_folder(folder.path());
        let wifi = network("wifi").network.unwrap();
        let known =
            PathEstimate { rate: Rate::from_mbps(8), rtt: manyways_unit::Span::from_millis(9) };
        let time = wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let stored = StoredEstimate { network: wifi, rate: known.rate, rtt: Some(known.rtt), time };
        cache.store(&stored).unwrap();
        let options = SelectionOptions::new().estimate_cache(Some(cache));
        let mut selection = PathSelection::new(options);
        let paths = selection.update_paths(vec![network("wifi"), network("lte")], vec![]).unwrap();
        assert_eq!(paths[0].estimate, Some(known));
        assert_eq!(paths[1].estimate, None);
    }
}
