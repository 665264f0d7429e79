//! Properties of an emulated link in its `ifalias`, because a TUN device has no driver that
//! provides them.

use std::fmt;
use std::net::IpAddr;

use super::Kind;

const PREFIX: &str = "manyways:";

/// Properties that an emulator writes into an interface's alias, as text such as
/// `manyways:kind=wifi,metered=no,dns=10.0.1.1,dns=fd00:1::1`. The kernel stores up to 255 bytes,
/// enough for four name servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceAlias {
    /// Kind of network that the link emulates.
    pub kind: Option<Kind>,
    pub metered: Option<bool>,
    /// Name servers; the first one is queried first.
    pub dns: Vec<IpAddr>,
}

impl InterfaceAlias {
    /// Parses an alias; `None` if it has another format. Unknown keys are ignored.
    pub fn parse(alias: &str) -> Option<Self> {
        let mut mark = Self::default();
        for (key, value) in alias.strip_prefix(PREFIX)?.split(',').filter_map(|p| p.split_once('='))
        {
            match key {
                "kind" => mark.kind = Kind::from_name(value),
                "metered" => {
                    mark.metered = match value {
                        "yes" => Some(true),
                        "no" => Some(false),
                        _ => None,
                    }
                }
                "dns" => mark.dns.extend(value.parse::<IpAddr>().ok()),
                _ => {}
            }
        }
        Some(mark)
    }
}

impl fmt::Display for InterfaceAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.iter().map(|kind| format!("kind={kind}"));
        let metered =
            self.metered.iter().map(|yes| format!("metered={}", if *yes { "yes" } else { "no" }));
        let dns = self.dns.iter().map(|server| format!("dns={server}"));
        let facts: Vec<String> = kind.chain(metered).chain(dns).collect();
        write!(f, "{PREFIX}{}", facts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_mark_parses_back() {
        let mark = InterfaceAlias {
            kind: Some(Kind::Cellular),
            metered: Some(true),
            dns: vec!["10.0.1.1".parse().unwrap(), "fd00:1::1".parse().unwrap()],
        };
        assert_eq!(
            mark.to_string(),
            "manyways:kind=cellular,metered=yes,dns=10.0.1.1,dns=fd00:1::1"
        );
        assert_eq!(InterfaceAlias::parse(&mark.to_string()), Some(mark));
    }

    #[test]
    fn other_aliases_are_not_ours_and_unknown_facts_are_passed_over() {
        assert_eq!(InterfaceAlias::parse("uplink to the second floor"), None);
        assert_eq!(
            InterfaceAlias::parse("manyways:kind=carrier-pigeon,colour=red,dns=here,metered=no"),
            Some(InterfaceAlias { metered: Some(false), ..InterfaceAlias::default() })
        );
    }
}
