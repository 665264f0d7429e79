//! Installs, refreshes and removes the choice of networks.

use std::time::Instant;

use manyways_unit::{Prefix, Span};

use super::destinations::Destinations;
use super::{EgressNetwork, Error, Names, NextHop, routing, script};
use crate::interface::{self, ListError, reach};
use crate::tproxy::script::{check_table_name, quoted};
use crate::tproxy::{self, command, holder, probe};

/// The choice of networks for new flows of this host. Dropping this removes it;
/// [`Egress::remove`] also returns the result.
#[derive(Debug)]
pub struct Egress {
    names: Names,
    networks: Vec<EgressNetwork>,
    /// The routing table of each network.
    tables: Vec<u32>,
    lifetime: Span,
    default: Option<u32>,
    destinations: Destinations,
    removed: bool,
}

impl Egress {
    /// Installs the networks to choose from. New flows follow the host's own routes until the first
    /// [`Egress::select`]. A choice applies for `lifetime` (some seconds) after this call or the
    /// latest [`Egress::refresh`]. An installation of the same names by this process or a dead one
    /// is replaced, and its running flows continue on networks that have the same mark again.
    ///
    /// # Errors
    /// [`Error::InUse`], if another living process has installed the same names;
    /// [`Error::StrictReversePath`]; [`Error::NoFreeNumber`]; other errors for invalid values, and
    /// features that the kernel or the host lacks. Nothing is left installed then.
    pub fn install(
        names: Names,
        networks: &[EgressNetwork],
        lifetime: Span,
    ) -> Result<Self, Error> {
        check(&names, networks)?;
        let before = command::nft_table(&names.nft)?;
        check_holder(before.as_deref())?;
        let tables = routing::choose_tables(&names, networks)?;
        let networks = networks.to_vec();
        let destinations = Destinations::default();
        // Owned from here on, and removed again if a step fails.
        let mut egress =
            Self { names, networks, tables, lifetime, default: None, destinations, removed: false };
        // Without a mark on any packet this has no effect yet.
        routing::apply(&egress.names, &egress.networks, &egress.tables)?;
        if let Err(error) = egress.write_table(before.is_none()) {
            let raced = command::nft_table(&egress.names.nft).ok().flatten();
            if let Err(in_use) = check_holder(raced.as_deref()) {
                // The other process needs the existing routes.
                egress.removed = true;
                return Err(in_use);
            }
            return Err(error);
        }
        Ok(egress)
    }

    /// Chooses the network of new flows to destinations without a separate choice; `None` leaves
    /// them to the host's own routes. Flows that exist stay where they are. If the network has no
    /// route at the moment, new flows follow the host's own.
    ///
    /// # Errors
    /// [`Error::UnknownNetwork`]; if the table was removed, among others: [`Egress::refresh`] then
    /// restores it, with this choice.
    pub fn select(&mut self, default: Option<&str>) -> Result<(), Error> {
        self.default = default.map(|interface| self.mark_of(interface)).transpose()?;
        Ok(command::nft(&script::choice(&self.names, self.default))?)
    }

    /// Chooses the network of new flows to these destinations for `ttl` from now on, in place of
    /// earlier choices for the same destinations. The longest prefix decides. At most
    /// [`MAX_DESTINATIONS`](super::MAX_DESTINATIONS) are kept, the latest ones.
    ///
    /// # Errors
    /// As [`Egress::select`].
    pub fn select_for(
        &mut self,
        destinations: &[Prefix],
        interface: &str,
        ttl: Span,
    ) -> Result<(), Error> {
        let mark = self.mark_of(interface)?;
        self.destinations.choose(destinations, mark, ttl, Instant::now());
        Ok(command::nft(&self.destination_script())?)
    }

    /// Removes the choice for these destinations.
    pub fn forget(&mut self, destinations: &[Prefix]) -> Result<(), Error> {
        self.destinations.forget(destinations);
        Ok(command::nft(&self.destination_script())?)
    }

    /// Extends the lifetime of the choice, adapts to changes of the host's addresses and routes,
    /// and restores routes, rules and the table if they were removed. Call it several times in the
    /// lifetime, and after changes of the interfaces.
    ///
    /// Returns the names of interfaces that lack a route at the moment, for example because they
    /// are down: the host's own routes apply to flows that are assigned to them.
    pub fn refresh(&mut self) -> Result<Vec<String>, Error> {
        let script = script::mark_alive(&self.names)
            + &self.surroundings()?
            // Also the wider prefixes behind expired ones.
            + &self.destination_script();
        match command::nft(&script) {
            Err(tproxy::Error::Refused { .. })
                if command::nft_table(&self.names.nft)?.is_none() =>
            {
                self.write_table(true)?;
            }
            other => other?,
        }
        routing::apply(&self.names, &self.networks, &self.tables)
    }

    /// Replaces the networks to choose from, for example because an interface has another gateway.
    /// Choices of networks that remain stay, and so do their running flows.
    ///
    /// # Errors
    /// Those of [`Egress::install`]; the earlier networks may be replaced in part then: repeat the
    /// call, or install again.
    pub fn set_networks(&mut self, networks: &[EgressNetwork]) -> Result<Vec<String>, Error> {
        check(&self.names, networks)?;
        let before = command::nft_table(&self.names.nft)?;
        check_holder(before.as_deref())?;
        let tables = routing::choose_tables(&self.names, networks)?;
        let missing = routing::apply(&self.names, networks, &tables)?;
        self.networks = networks.to_vec();
        self.tables = tables;
        let marks: Vec<u32> = networks.iter().map(|network| network.mark).collect();
        self.default = self.default.filter(|mark| marks.contains(mark));
        self.destinations.keep_marks(&marks);
        self.write_table(before.is_none())?;
        Ok(missing)
    }

    /// Removes everything that was installed; running flows on networks other than the host's own
    /// end. A failed removal is retried.
    pub fn remove(mut self) -> Result<(), Error> {
        self.removed = true;
        remove_with_retries(&self.names).map(drop)
    }

    fn mark_of(&self, interface: &str) -> Result<u32, Error> {
        let found = self.networks.iter().find(|network| network.interface == interface);
        found
            .map(|network| network.mark)
            .ok_or_else(|| Error::UnknownNetwork { interface: interface.to_owned() })
    }

    /// Writes the table with all that was chosen, in one transaction.
    fn write_table(&mut self, create: bool) -> Result<(), Error> {
        let names = &self.names;
        let script = script::table(names, &self.networks, self.lifetime, create)?
            + &script::mark_alive(names)
            + &script::choice(names, self.default)
            + &self.surroundings()?
            + &self.destination_script();
        command::nft(&script).map_err(|error| match error {
            tproxy::Error::Refused { .. } => missing_feature().unwrap_or(error).into(),
            other => other.into(),
        })
    }

    fn surroundings(&self) -> Result<String, Error> {
        let routes = |error| match error {
            ListError::Netlink(error) => Error::Routes(error),
        };
        let defaults = interface::default_interfaces().map_err(routes)?;
        let connected = tproxy::connected().map_err(routes)?;
        let devices = interface::devices().map_err(routes)?;
        Ok(script::surroundings(&self.names, &defaults, &devices, &self.networks, connected))
    }

    fn destination_script(&mut self) -> String {
        let now = Instant::now();
        self.destinations.expire(now);
        script::destinations(&self.names, &self.destinations.elements(now))
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        if !self.removed {
            let _ = remove_with_retries(&self.names);
        }
    }
}

/// Whether a dead process has left an installation of these names; false if unknown.
pub fn has_leftover(names: &Names) -> bool {
    match command::nft_table(&names.nft) {
        Ok(Some(table)) => holder::other(Some(&table)).is_none(),
        // The ruleset was flushed.
        Ok(None) => routing::has_own_rules(names),
        Err(_) => false,
    }
}

/// Removes an installation that this process, or a killed one, left; returns whether there was one.
///
/// # Errors
/// [`Error::InUse`] if another living process holds it.
pub fn remove_leftover(names: &Names) -> Result<bool, Error> {
    check_holder(command::nft_table(&names.nft)?.as_deref())?;
    remove_with_retries(names)
}

/// Tries three times: a service manager that ends a whole service may also end the programs that
/// are started for the removal, each of them once.
fn remove_with_retries(names: &Names) -> Result<bool, Error> {
    remove_once(names).or_else(|_| remove_once(names)).or_else(|_| remove_once(names))
}

fn remove_once(names: &Names) -> Result<bool, Error> {
    // The table first: a mark without a route would misroute packets.
    let has_table = command::nft_table(&names.nft)?.is_some();
    if has_table {
        command::nft(&format!("delete table inet {}\n", names.nft))?;
    }
    Ok(routing::remove(names)? || has_table)
}

fn check_holder(table: Option<&str>) -> Result<(), Error> {
    match holder::other(table) {
        Some(pid) => Err(Error::InUse { pid }),
        None => Ok(()),
    }
}

/// Whether an interface of this name can be one of the networks: the kernel allows names that `nft` and
/// `ip` do not.
pub fn is_valid_name(name: &str) -> bool {
    let is_odd = name.contains(char::is_whitespace) || name.starts_with('-');
    !is_odd && quoted(name, "an interface's name").is_ok()
}

fn check(names: &Names, networks: &[EgressNetwork]) -> Result<(), Error> {
    check_table_name(&names.nft)?;
    let invalid = |message: String| Err(tproxy::Error::InvalidValue(message).into());
    // A rule with all bits is printed without a mask, and 0 means an unknown protocol.
    if names.mask == 0 || names.mask == u32::MAX || names.protocol == 0 {
        return invalid("the mask and the protocol must be non-zero, and not all bits".to_owned());
    }
    for (index, network) in networks.iter().enumerate() {
        let name = &network.interface;
        if !is_valid_name(name) {
            return invalid(format!("{name:?} cannot be an interface's name"));
        }
        if network.mark == 0 || network.mark & !names.mask != 0 {
            return invalid(format!("the mark of {name} must be non-zero and within the mask"));
        }
        let equal = |other: &EgressNetwork| other.mark == network.mark || &other.interface == name;
        if networks[..index].iter().any(equal) {
            return invalid(format!("{name} needs a mark and a name of its own"));
        }
        let is_v4 = |hop| match hop {
            Some(NextHop::Gateway(ip)) => Some(ip.is_ipv4()),
            _ => None,
        };
        if is_v4(network.v4) == Some(false) || is_v4(network.v6) == Some(true) {
            return invalid(format!("a gateway of {name} is of the other family"));
        }
        if network.v4.is_some()
            && reach::strict_reverse_path(name)
            && !reach::filters_with_mark(name)
        {
            return Err(Error::StrictReversePath { interface: name.clone() });
        }
    }
    Ok(())
}

/// Returns the error for the first missing feature, after the whole was rejected.
fn missing_feature() -> Option<tproxy::Error> {
    let output = "route hook output priority mangle";
    [
        (("nftables for IPv4 and IPv6 at once", "nf_tables"), output, ""),
        (("connection tracking in nftables", "nft_ct"), output, "ct direction reply"),
        (
            ("marks of connections", "nf_conntrack (CONFIG_NF_CONNTRACK_MARK)"),
            output,
            "ct mark set 1",
        ),
        (("address types in nftables", "nft_fib_inet"), output, "fib daddr type local"),
        (
            ("masquerading in nftables", "nft_masq"),
            "nat hook postrouting priority srcnat",
            "masquerade",
        ),
        (
            ("routes in nftables", "nft_rt"),
            "filter hook postrouting priority mangle",
            "tcp flags syn tcp option maxseg size set rt mtu",
        ),
    ]
    .into_iter()
    .find_map(|(feature, hook, rule)| probe::missing(feature, hook, rule))
}
