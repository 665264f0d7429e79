//! Which networks of the host are paths of a client, as they come, change and go.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::sched::PathId;

/// Which networks a client may use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkSelection {
    /// Networks by name, the preferred one first. Empty: every one that leads to the gateway.
    pub via: Vec<String>,
}

impl NetworkSelection {
    /// Whether a client uses the network of that name towards a gateway at these addresses.
    pub fn accepts(&self, name: &str, is_loopback: bool, gateway: &[IpAddr]) -> bool {
        match self.via.is_empty() {
            // A gateway on this host is reached over loopback alone.
            true => is_loopback == gateway.iter().all(IpAddr::is_loopback),
            false => self.via.iter().any(|accepted| accepted == name),
        }
    }

    /// The place of a network in the order of preference.
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.via.iter().position(|accepted| accepted == name)
    }
}

/// A network of the host that a client may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// The name of its interface.
    pub name: String,
    /// The addresses of its interface.
    pub addresses: Vec<IpAddr>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The kernel has told of a change.
    Changed,
    /// An interface does not work any more.
    LinkDown(String),
    /// The gateway is somewhere else: other networks may lead there.
    GatewayMoved,
    /// The networks that lead to the gateway, as listed for [`Output::List`].
    Listed(Vec<Network>),
    /// The networks cannot be listed.
    ListFailed,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// List the networks that lead to the gateway.
    List,
    /// The listed network at this index becomes a path of this number.
    Add(PathId, usize),
    /// The interface of a path does not work, or has other addresses: its carrier is useless.
    LinkDown(PathId),
    /// The path is the listed network at this index, which may have changed.
    Update(PathId, usize),
    /// The listed network at this index is not used: there are [`PathId::LIMIT`] paths already.
    TooMany(usize),
}

/// The networks of a client. A path keeps its number when its network goes and comes back.
#[derive(Debug)]
pub struct HostNetworks {
    settle_delay: Span,
    paths: HashMap<String, (PathId, Vec<IpAddr>)>,
    list_at: Option<Time>,
    is_listing: bool,
    outputs: VecDeque<Output>,
}

impl HostNetworks {
    /// No networks yet. The list is read `settle_delay` after a change, as changes come in bursts.
    pub fn new(settle_delay: Span) -> Self {
        Self {
            settle_delay,
            paths: HashMap::new(),
            list_at: None,
            is_listing: false,
            outputs: VecDeque::new(),
        }
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Changed => {
                // Only the first change of a burst counts, or a restless network would hide others.
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

    /// What to do next; nothing where all is done that can be at `now`.
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

    /// When to call [`HostNetworks::poll`] again if nothing happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.list_at.filter(|_| !self.is_listing)
    }

    fn apply(&mut self, index: usize, network: Network) {
        let count = self.paths.len();
        match self.paths.get_mut(&network.name) {
            Some((id, addresses)) => {
                if *addresses != network.addresses {
                    self.outputs.push_back(Output::LinkDown(*id));
                    *addresses = network.addresses;
                }
                self.outputs.push_back(Output::Update(*id, index));
            }
            None if count < usize::from(PathId::LIMIT) => {
                let id = PathId(count as u8);
                self.paths.insert(network.name, (id, network.addresses));
                self.outputs.push_back(Output::Add(id, index));
            }
            None => self.outputs.push_back(Output::TooMany(index)),
        }
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
