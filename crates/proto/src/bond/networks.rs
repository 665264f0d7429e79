//! Assignment of the host's networks to paths of a client, as networks appear, change and
//! disappear.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::sched::PathId;

/// Networks that a client may use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkSelection {
    /// Network names, preferred first. If empty, all networks with a route to the gateway.
    pub via: Vec<String>,
}

impl NetworkSelection {
    /// Returns whether the client uses this network for a gateway with these addresses.
    pub fn accepts(&self, name: &str, is_loopback: bool, gateway: &[IpAddr]) -> bool {
        match self.via.is_empty() {
            // A gateway on this host is only reachable over loopback.
            true => is_loopback == gateway.iter().all(IpAddr::is_loopback),
            false => self.via.iter().any(|accepted| accepted == name),
        }
    }

    /// Returns the index in the order of preference, or `None` if there is no preference for the
    /// network.
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.via.iter().position(|accepted| accepted == name)
    }
}

/// A network of the host that a client may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Name of the interface.
    pub name: String,
    /// Addresses of the interface.
    pub addresses: Vec<IpAddr>,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The kernel reported a change.
    Changed,
    /// An interface is down.
    LinkDown(String),
    /// The gateway has another address, which other networks may reach.
    GatewayMoved,
    /// Networks with a route to the gateway, as response to [`Output::List`].
    Listed(Vec<Network>),
    ListFailed,
}

/// An action for the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// List the networks with a route to the gateway.
    List,
    /// Create this path for the network at this index of the list.
    Add(PathId, usize),
    /// The interface of a path is down or has other addresses: its carrier cannot work.
    LinkDown(PathId),
    /// The path belongs to the network at this index of the list, which may have changed.
    Update(PathId, usize),
    /// The network at this index of the list is not used because there are [`PathId::LIMIT`] paths.
    TooMany(usize),
}

/// Networks of a client. A path keeps its number while its network is absent.
#[derive(Debug)]
pub struct HostNetworks {
    settle_delay: Span,
    paths: HashMap<String, (PathId, Vec<IpAddr>)>,
    /// Number of paths, those over lenders included.
    count: u8,
    list_at: Option<Time>,
    is_listing: bool,
    outputs: VecDeque<Output>,
}

impl HostNetworks {
    /// Creates the state without networks. The list is read `settle_delay` after a change, because
    /// changes occur in bursts.
    pub fn new(settle_delay: Span) -> Self {
        Self {
            settle_delay,
            paths: HashMap::new(),
            count: 0,
            list_at: None,
            is_listing: false,
            outputs: VecDeque::new(),
        }
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Changed => {
                // Only the first change of a burst starts the delay. Otherwise a network with
                // frequent changes could delay the list forever.
                self.list_at.get_or_insert(now + self.settle_delay);
            }
            Input::LinkDown(name) => {
                let path = self.paths.get(&name);
                self.outputs.extend(path.map(|(id, _)| Output::LinkDown(*id)));
            }
            Input::GatewayMoved => self.list_at = Some(now),
            Input::Listed(networks) => {
                self.is_listing = false;
                for (index, network) in networks.into_iter().enumerate() {
                    self.apply(index, network);
                }
            }
            Input::ListFailed => self.is_listing = false,
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if !self.is_listing && self.list_at.is_some_and(|at| at <= now) {
            self.list_at = None;
            self.is_listing = true;
            return Some(Output::List);
        }
        None
    }

    /// Returns the time of the next [`HostNetworks::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.list_at.filter(|_| !self.is_listing)
    }

    fn apply(&mut self, index: usize, network: Network) {
        match self.paths.get_mut(&network.name) {
            Some((id, addresses)) => {
                if *addresses != network.addresses {
                    self.outputs.push_back(Output::LinkDown(*id));
                    *addresses = network.addresses;
                }
                self.outputs.push_back(Output::Update(*id, index));
            }
            None => match self.next_path() {
                Some(id) => {
                    self.paths.insert(network.name, (id, network.addresses));
                    self.outputs.push_back(Output::Add(id, index));
                }
                None => self.outputs.push_back(Output::TooMany(index)),
            },
        }
    }

    /// Returns the number of the next path, which the caller adds; `None` if there are too many.
    pub fn next_path(&mut self) -> Option<PathId> {
        let id = PathId(self.count);
        (id.0 < PathId::LIMIT).then(|| {
            self.count += 1;
            id
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn network(name: &str, last: u8) -> Network {
        Network { name: name.to_owned(), addresses: vec![IpAddr::from([192, 0, 2, last])] }
    }

    fn all(networks: &mut HostNetworks, millis: u64) -> Vec<Output> {
        std::iter::from_fn(|| networks.poll(at(millis))).collect()
    }

    const WIFI: PathId = PathId(0);
    const LTE: PathId = PathId(1);

    fn two() -> HostNetworks {
        let mut networks = HostNetworks::new(Span::from_millis(100));
        networks.handle(at(0), Input::Listed(vec![network("wifi", 1), network("lte", 2)]));
        assert_eq!(all(&mut networks, 0), [Output::Add(WIFI, 0), Output::Add(LTE, 1)]);
        networks
    }

    #[test]
    fn a_burst_of_changes_is_one_look_and_a_dead_link_is_told_at_once() {
        let mut networks = two();
        networks.handle(at(1_000), Input::LinkDown("wifi".to_owned()));
        networks.handle(at(1_000), Input::LinkDown("eth9".to_owned()));
        networks.handle(at(1_000), Input::Changed);
        networks.handle(at(1_050), Input::Changed);
        assert_eq!(all(&mut networks, 1_050), [Output::LinkDown(WIFI)]);
        assert_eq!(networks.next_wakeup(), Some(at(1_100)));
        assert_eq!(all(&mut networks, 1_100), [Output::List]);
        networks.handle(at(1_101), Input::Changed);
        assert_eq!((all(&mut networks, 1_300), networks.next_wakeup()), (vec![], None));
        networks.handle(at(1_301), Input::ListFailed);
        assert_eq!(all(&mut networks, 1_301), [Output::List], "what changed meanwhile counts");
    }

    #[test]
    fn a_network_keeps_its_number_and_other_addresses_end_its_carrier() {
        let mut networks = two();
        networks.handle(at(1), Input::Listed(vec![network("lte", 3), network("eth0", 9)]));
        let outputs = all(&mut networks, 1);
        let moved = [Output::LinkDown(LTE), Output::Update(LTE, 0), Output::Add(PathId(2), 1)];
        assert_eq!(outputs, moved);
        networks.handle(at(2), Input::Listed(vec![network("wifi", 1)]));
        assert_eq!(all(&mut networks, 2), [Output::Update(WIFI, 0)]);
    }

    #[test]
    fn a_path_over_a_lender_takes_a_number() {
        let mut networks = two();
        assert_eq!(networks.next_path(), Some(PathId(2)));
        networks.handle(at(1), Input::Listed(vec![network("eth0", 9)]));
        assert_eq!(all(&mut networks, 1), [Output::Add(PathId(3), 0)]);
        while networks.next_path().is_some() {}
        networks.handle(at(2), Input::Listed(vec![network("eth1", 9)]));
        assert_eq!(all(&mut networks, 2), [Output::TooMany(0)]);
    }

    #[test]
    fn a_gateway_that_moved_is_looked_for_at_once() {
        let mut networks = two();
        networks.handle(at(5), Input::GatewayMoved);
        assert_eq!(all(&mut networks, 5), [Output::List]);
    }

    #[test]
    fn there_are_only_so_many_paths() {
        let mut networks = HostNetworks::new(Span::ZERO);
        let many = (0..=PathId::LIMIT).map(|n| network(&format!("if{n}"), n)).collect();
        networks.handle(at(0), Input::Listed(many));
        let last = usize::from(PathId::LIMIT);
        assert_eq!(all(&mut networks, 0).last(), Some(&Output::TooMany(last)));
    }

    #[test]
    fn what_is_named_is_used_and_otherwise_what_leads_there() {
        let far = [IpAddr::from([203, 0, 113, 1])];
        let near = [IpAddr::from([127, 0, 0, 1])];
        let any = NetworkSelection::default();
        assert!(any.accepts("wifi", false, &far) && !any.accepts("lo", true, &far));
        assert!(any.accepts("lo", true, &near) && !any.accepts("wifi", false, &near));
        let some = NetworkSelection { via: vec!["lte".to_owned(), "wifi".to_owned()] };
        assert!(some.accepts("wifi", false, &far) && !some.accepts("eth0", false, &far));
        assert_eq!((some.rank("wifi"), some.rank("eth0")), (Some(1), None));
    }
}
