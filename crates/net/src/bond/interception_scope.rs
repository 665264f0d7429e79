//! Traffic that kernel rules do not redirect to a client, and the reason, for `manyways bond why`.

use std::net::{IpAddr, Ipv4Addr};

use manyways_sys::interface;
use manyways_sys::tproxy::{self, Rules, Selection, Target};
use manyways_unit::Prefix;

use super::process_lookup::name_of;
use super::why::WhyQuery;

/// Ports of DHCP over IPv4 and IPv6.
const DHCP_PORTS: [u16; 4] = [67, 68, 546, 547];

/// The scope of the installed rules.
#[derive(Clone, Debug)]
pub struct InterceptionScope {
    /// The installed rules.
    pub rules: Rules,
    /// Whether the gateway has reported the address families that it reaches.
    pub families_known: bool,
    /// Host of the gateway, as configured.
    pub gateway: String,
    /// Addresses of the gateway.
    pub addresses: Vec<IpAddr>,
}

impl InterceptionScope {
    /// Returns the reason why the destination of a query is not intercepted; `None` if the
    /// destination is intercepted, or may be.
    pub(super) fn not_intercepted_reason(&self, query: &WhyQuery) -> Option<String> {
        // Without a list of this host's addresses, the destination counts as another host.
        self.not_intercepted_reason_on(query, &interface::addresses().unwrap_or_default())
    }

    /// Like `not_intercepted_reason`, on a host with these addresses.
    fn not_intercepted_reason_on(&self, query: &WhyQuery, own: &[IpAddr]) -> Option<String> {
        let name = query.domain.as_deref().unwrap_or_default();
        if query.address.is_none() && name.eq_ignore_ascii_case(&self.gateway) {
            return Some(format!("{name} is the gateway itself"));
        }
        if query.is_udp && DHCP_PORTS.contains(&query.port) {
            return Some(format!("port {} is that of DHCP", query.port));
        }
        let address = query_address(query);
        address
            .and_then(|address| self.excluded_destination(address, own))
            .or_else(|| self.unselected_traffic(query, address))
            .or_else(|| self.refused_family(address?, query.is_udp))
    }

    /// Checks for destinations that every application reaches directly.
    fn excluded_destination(&self, address: IpAddr, own: &[IpAddr]) -> Option<String> {
        let within = |prefix: &&Prefix| prefix.contains(address);
        if let Some((prefix, what)) =
            tproxy::never_redirected().find(|(prefix, _)| prefix.contains(address))
        {
            return Some(format!("{address} is {what} ({prefix})"));
        }
        if own.contains(&address) {
            return Some(format!("{address} is this host itself"));
        }
        if self.addresses.iter().any(|gateway| gateway.to_canonical() == address) {
            return Some(format!("{address} is the gateway itself"));
        }
        let private = tproxy::private();
        let direct = || self.rules.direct.iter().filter(within);
        if let Some(prefix) = direct().find(|prefix| !private.contains(prefix)) {
            return Some(format!("{address} is on a network of this host ({prefix})"));
        }
        let prefix = direct().next()?;
        Some(format!("{address} is private ({prefix}), and --include-private is not given"))
    }

    /// Checks for traffic that no `--intercept` selects.
    fn unselected_traffic(&self, query: &WhyQuery, address: Option<IpAddr>) -> Option<String> {
        let may = |selection: &Selection| match selection {
            Selection::To(prefixes) => {
                let Some(address) = address else { return true };
                prefixes.iter().any(|prefix| prefix.contains(address))
            }
            Selection::Users(users) => query.uid.is_none_or(|uid| users.contains(&uid)),
            _ => true,
        };
        (!self.rules.selections.iter().any(may))
            .then(|| "--intercept does not select this traffic".to_owned())
    }

    /// Returns the unknown conditions under which the flow is intercepted; `None` if the query
    /// alone decides.
    pub(super) fn interception_condition(&self, query: &WhyQuery) -> Option<String> {
        let address = query_address(query);
        let mut conditions = Vec::new();
        for selection in &self.rules.selections {
            conditions.push(match selection {
                Selection::All => return None,
                Selection::To(prefixes) => match address {
                    Some(to) if prefixes.iter().any(|prefix| prefix.contains(to)) => return None,
                    Some(_) => continue,
                    None => format!("it goes to {}", join_list(prefixes)),
                },
                Selection::Users(users) => match query.uid {
                    Some(uid) if users.contains(&uid) => return None,
                    Some(_) => continue,
                    None => format!("user {} sends it", user_names(users)),
                },
                Selection::Cgroup(path) => format!("cgroup {path} sends it"),
                Selection::Marked(mark) => format!("it bears the mark {mark:#x}"),
                Selection::From(interfaces) => format!("it comes in on {}", join_list(interfaces)),
            });
        }
        Some(conditions.join(", or ")).filter(|words| !words.is_empty())
    }

    /// Checks for a family that the gateway does not reach, or has not reported yet.
    fn refused_family(&self, address: IpAddr, udp: bool) -> Option<String> {
        let to = &self.rules.targets;
        let (target, family) = match (address, udp) {
            (IpAddr::V4(_), false) => (to.tcp_v4, "IPv4"),
            (IpAddr::V4(_), true) => (to.udp_v4, "IPv4"),
            (IpAddr::V6(_), false) => (to.tcp_v6, "IPv6"),
            (IpAddr::V6(_), true) => (to.udp_v6, "IPv6"),
        };
        let refused = || match self.families_known {
            true => format!("it is refused at once, as the gateway has no {family}"),
            false => "it is refused, as the gateway has not answered yet".to_owned(),
        };
        (target == Target::Reject).then(refused)
    }
}

fn join_list(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// Joins the names of users; the number replaces an unknown name.
fn user_names(users: &[u32]) -> String {
    let name = |uid: &u32| name_of(*uid).unwrap_or_else(|| uid.to_string());
    join_list(&users.iter().map(name).collect::<Vec<_>>())
}

/// Returns the address of a query's destination; `None` if unknown.
pub(super) fn query_address(query: &WhyQuery) -> Option<IpAddr> {
    let name = query.domain.as_deref().unwrap_or_default();
    let named = is_localhost(name).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    query.address.or(named).map(|address| address.to_canonical())
}

/// Whether no resolver is queried for this name (RFC 6761, 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use manyways_sys::tproxy::Targets;
    use manyways_unit::Span;

    use super::*;

    fn scope(what: Vec<Selection>) -> InterceptionScope {
        let mut direct = vec!["192.0.2.9".parse().unwrap(), "198.51.100.0/24".parse().unwrap()];
        direct.extend(tproxy::private());
        let targets = Targets {
            tcp_v4: Target::Proxy(1),
            tcp_v6: Target::Reject,
            udp_v4: Target::Proxy(2),
            udp_v6: Target::Proxy(3),
        };
        let mut rules = Rules::new(targets, what, Span::from_secs(8));
        rules.direct = direct;
        let addresses = vec!["192.0.2.9".parse().unwrap()];
        let gateway = "gw.example".into();
        InterceptionScope { rules, families_known: true, gateway, addresses }
    }

    /// A query about an address or a name.
    fn to(host: &str, port: u16) -> WhyQuery {
        let address = host.parse().ok();
        let domain = address.is_none().then(|| host.to_owned());
        WhyQuery { address, domain, port, ..WhyQuery::default() }
    }

    fn reason(scope: &InterceptionScope, query: &WhyQuery) -> String {
        scope
            .not_intercepted_reason_on(query, &["203.0.113.5".parse().unwrap()])
            .unwrap_or_default()
    }

    #[test]
    fn what_is_never_intercepted_is_told_with_its_reason() {
        let all = scope(vec![Selection::All]);
        for (host, words) in [
            ("127.0.0.1", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("::1", "::1 is loopback (::/127)"),
            ("::ffff:127.0.0.1", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("localhost", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("fe80::1", "fe80::1 is link-local (fe80::/10)"),
            (
                "255.255.255.255",
                "255.255.255.255 is multicast, broadcast or reserved (224.0.0.0/3)",
            ),
            ("203.0.113.5", "203.0.113.5 is this host itself"),
            ("192.0.2.9", "192.0.2.9 is the gateway itself"),
            ("GW.example", "GW.example is the gateway itself"),
            ("198.51.100.7", "198.51.100.7 is on a network of this host (198.51.100.0/24)"),
            ("10.1.2.3", "10.1.2.3 is private (10.0.0.0/8), and --include-private is not given"),
            ("2001:db8::1", "it is refused at once, as the gateway has no IPv6"),
            ("192.0.2.8", ""),
            ("www.example.com", ""),
        ] {
            assert_eq!(reason(&all, &to(host, 67)), words, "{host}");
        }
        let dhcp = WhyQuery { is_udp: true, ..to("192.0.2.8", 67) };
        assert_eq!(reason(&all, &dhcp), "port 67 is that of DHCP");
        assert_eq!(reason(&all, &WhyQuery { is_udp: true, ..to("2001:db8::1", 53) }), "");
    }

    #[test]
    fn what_no_option_names_is_not_intercepted() {
        let some = scope(vec![
            Selection::To(vec!["192.0.2.0/28".parse().unwrap()]),
            Selection::Users(vec![7]),
        ]);
        let by = |uid, host| reason(&some, &WhyQuery { uid, ..to(host, 443) });
        assert_eq!(by(Some(8), "192.0.2.77"), "--intercept does not select this traffic");
        assert_eq!(by(Some(8), "192.0.2.8") + &by(Some(7), "192.0.2.77"), "");
        assert_eq!(by(None, "192.0.2.77") + &by(Some(8), "www.example.com"), "");
    }

    #[test]
    fn what_a_query_leaves_open_is_told() {
        let some = scope(vec![
            Selection::Users(vec![0, 4_000_000_000]),
            Selection::From(vec!["lan".into()]),
            Selection::To(vec!["192.0.2.0/28".parse().unwrap()]),
        ]);
        let condition = |uid, host| some.interception_condition(&WhyQuery { uid, ..to(host, 443) });
        let users = "user root or 4000000000 sends it, or it comes in on lan";
        assert_eq!(condition(None, "192.0.2.77").as_deref(), Some(users));
        assert_eq!(condition(Some(7), "192.0.2.77").as_deref(), Some("it comes in on lan"));
        let by_name = condition(Some(7), "www.example.com");
        assert_eq!(by_name.as_deref(), Some("it comes in on lan, or it goes to 192.0.2.0/28"));
        assert_eq!(condition(Some(0), "192.0.2.77"), None);
        assert_eq!(condition(None, "192.0.2.8"), None);
        assert_eq!(
            scope(vec![Selection::All]).interception_condition(&to("192.0.2.77", 443)),
            None
        );
    }
}
