//! Selection of the host's interfaces that become paths of a download.

use super::MeteredUse;

/// A network interface as a possible path.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub name: &'a str,
    pub is_loopback: bool,
    /// Whether it has a route to the destination.
    pub is_usable: bool,
    pub metered: bool,
}

/// The caller's constraints.
#[derive(Clone, Copy, Debug)]
pub struct SelectionRequest<'a> {
    /// Names of the interfaces to use, the preferred one first; empty for all usable ones.
    pub via: &'a [String],
    /// Interfaces that must exist, for example those with configured name servers.
    pub required: &'a [String],
    pub metered: MeteredUse,
}

/// The host to which the paths must lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// An address literal.
    Address {
        /// Whether the address belongs to this host.
        is_loopback: bool,
    },
    /// An unresolved name: the usable candidates are those with a route to the internet.
    Name { is_localhost: bool },
    /// A resolved name: the usable candidates have a route to one of its addresses. The name has no
    /// address if it could not be resolved.
    ResolvedName {
        is_localhost: bool,
        /// Whether one of the addresses belongs to this host.
        has_loopback: bool,
    },
}

/// Result of the selection of paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// No interface has a route to the internet, but one may reach this server in a local network:
    /// resolve its name, and select again.
    Resolve,
    /// One path without a bound interface; the kernel selects the route.
    Loopback,
    /// Indices of the selected candidates.
    Interfaces(Vec<usize>),
}

/// Why no interface can be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SelectionFailure {
    /// No interface has a route to the destination.
    NoneUsable,
    /// The caller names an interface that does not exist.
    Unknown(String),
    /// The caller names an interface without a route to the destination; its index.
    Unusable(usize),
    /// Only metered interfaces have a route to the destination, and metered paths are not
    /// permitted; their indices.
    OnlyMetered(Vec<usize>),
}

impl Destination {
    fn is_local(self) -> bool {
        match self {
            Self::Address { is_loopback } => is_loopback,
            Self::Name { is_localhost } | Self::ResolvedName { is_localhost, .. } => is_localhost,
        }
    }
}

/// Selects the interfaces of a download.
///
/// # Errors
/// Fails if no candidate can be used, or if the request names unsuitable interfaces.
pub fn select(
    candidates: &[Candidate<'_>],
    destination: Destination,
    request: &SelectionRequest<'_>,
) -> Result<Selection, SelectionFailure> {
    let indices = 0..candidates.len();
    let usable: Vec<usize> = indices.filter(|at| candidates[*at].is_usable).collect();
    match destination {
        Destination::Name { .. } if usable.is_empty() => return Ok(Selection::Resolve),
        Destination::ResolvedName { has_loopback: true, .. }
            if request.via.is_empty() && usable.is_empty() =>
        {
            return Ok(Selection::Loopback);
        }
        _ => {}
    }
    if destination.is_local() && request.via.is_empty() {
        return Ok(Selection::Loopback);
    }
    let chosen = match request.via.is_empty() {
        true => usable,
        false => named(candidates, destination, request.via)?,
    };
    if chosen.is_empty() {
        return Err(SelectionFailure::NoneUsable);
    }
    let exists = |name: &String| candidates.iter().any(|candidate| candidate.name == *name);
    if let Some(unknown) = request.required.iter().find(|name| !exists(name)) {
        return Err(SelectionFailure::Unknown(unknown.clone()));
    }
    let is_metered = chosen.iter().all(|at| candidates[*at].metered);
    if request.metered == MeteredUse::Forbidden && is_metered {
        return Err(SelectionFailure::OnlyMetered(chosen));
    }
    Ok(Selection::Interfaces(chosen))
}

/// The candidates that the caller names, in the caller's order.
fn named(
    candidates: &[Candidate<'_>],
    destination: Destination,
    via: &[String],
) -> Result<Vec<usize>, SelectionFailure> {
    let mut chosen = Vec::new();
    for name in via.iter().map(|name| name.trim()) {
        let found = candidates.iter().position(|candidate| candidate.name == name);
        let at = found.ok_or_else(|| SelectionFailure::Unknown(name.to_owned()))?;
        let candidate = candidates[at];
        // The loopback interface is never usable for other hosts, but reaches this one.
        let is_own_host = destination.is_local() && candidate.is_loopback;
        if !candidate.is_usable && !is_own_host {
            return Err(SelectionFailure::Unusable(at));
        }
        if !chosen.contains(&at) {
            chosen.push(at);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERNET: Destination = Destination::Name { is_localhost: false };

    fn candidate(name: &str, is_usable: bool, metered: bool) -> Candidate<'_> {
        Candidate { name, is_loopback: name == "lo", is_usable, metered }
    }

    /// Wi-Fi, metered LTE and a cable without a carrier.
    fn host() -> [Candidate<'static>; 4] {
        [
            candidate("lo", false, false),
            candidate("wifi", true, false),
            candidate("lte", true, true),
            candidate("cable", false, false),
        ]
    }

    fn selected(
        candidates: &[Candidate<'_>],
        destination: Destination,
        via: &[&str],
        metered: MeteredUse,
    ) -> Result<Selection, SelectionFailure> {
        let via: Vec<String> = via.iter().map(|name| (*name).to_owned()).collect();
        let request = SelectionRequest { via: &via, required: &[], metered };
        select(candidates, destination, &request)
    }

    #[test]
    fn all_usable_interfaces_are_selected_or_those_that_are_named() {
        let via = |via: &[&str]| selected(&host(), INTERNET, via, MeteredUse::Unlimited);
        assert_eq!(via(&[]), Ok(Selection::Interfaces(vec![1, 2])));
        assert_eq!(via(&[" lte", "wifi", "lte"]), Ok(Selection::Interfaces(vec![2, 1])));
        assert_eq!(via(&["wifi", "cable"]), Err(SelectionFailure::Unusable(3)));
        assert_eq!(via(&["usb"]), Err(SelectionFailure::Unknown("usb".to_owned())));
    }

    #[test]
    fn an_interface_with_name_servers_of_its_own_has_to_exist() {
        let required = ["cable".to_owned(), "usb".to_owned()];
        let mut request =
            SelectionRequest { via: &[], required: &required[..1], metered: MeteredUse::Unlimited };
        assert!(select(&host(), INTERNET, &request).is_ok());
        request.required = &required;
        let unknown = SelectionFailure::Unknown("usb".to_owned());
        assert_eq!(select(&host(), INTERNET, &request), Err(unknown));
    }

    #[test]
    fn metered_interfaces_alone_are_an_error_where_they_may_not_be_used() {
        let metered = |via: &[&str]| selected(&host(), INTERNET, via, MeteredUse::Forbidden);
        assert_eq!(metered(&[]), Ok(Selection::Interfaces(vec![1, 2])));
        assert_eq!(metered(&["lte"]), Err(SelectionFailure::OnlyMetered(vec![2])));
    }

    #[test]
    fn a_server_in_a_local_network_is_found_by_its_addresses() {
        let down = [candidate("lo", false, false), candidate("cable", false, false)];
        let all = |candidates: &[Candidate<'_>], destination, via: &[&str]| {
            selected(candidates, destination, via, MeteredUse::Unlimited)
        };
        assert_eq!(all(&down, INTERNET, &[]), Ok(Selection::Resolve));
        let up = [candidate("lo", false, false), candidate("cable", true, false)];
        let resolved =
            |has_loopback| Destination::ResolvedName { is_localhost: false, has_loopback };
        assert_eq!(all(&up, resolved(false), &[]), Ok(Selection::Interfaces(vec![1])));
        assert_eq!(all(&down, resolved(true), &[]), Ok(Selection::Loopback));
        assert_eq!(all(&down, resolved(false), &[]), Err(SelectionFailure::NoneUsable));
        assert_eq!(all(&down, resolved(true), &["cable"]), Err(SelectionFailure::Unusable(1)));
        let address = Destination::Address { is_loopback: false };
        assert_eq!(all(&down, address, &[]), Err(SelectionFailure::NoneUsable));
    }

    #[test]
    fn this_host_is_reached_over_loopback_unless_the_caller_names_interfaces() {
        for destination in [
            Destination::Address { is_loopback: true },
            Destination::Name { is_localhost: true },
            Destination::ResolvedName { is_localhost: true, has_loopback: true },
        ] {
            let via = |via: &[&str]| selected(&host(), destination, via, MeteredUse::Unlimited);
            assert_eq!(via(&[]), Ok(Selection::Loopback));
            assert_eq!(via(&["lo"]), Ok(Selection::Interfaces(vec![0])));
            assert_eq!(via(&["cable"]), Err(SelectionFailure::Unusable(3)));
        }
        assert_eq!(
            selected(&host(), INTERNET, &["lo"], MeteredUse::Unlimited),
            Err(SelectionFailure::Unusable(0))
        );
    }
}
