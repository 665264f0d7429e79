//! Who carries the traffic.

use manyways_trace::scenario::LinkSpec;

/// One way to reach the server. Links and hosts are numbered as the cell has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// `manyways bond` over every link, through a gateway on this host.
    Bond {
        /// Who chooses among the links.
        by: By,
        /// The host of the gateway, beside which the server is.
        host: usize,
    },
    /// A connection of the kernel's MPTCP for every flow, by a splice; the first subflow goes over
    /// this link.
    Mptcp(usize),
    /// A plain connection for every flow over this link, by the same splice.
    Spliced(usize),
    /// Straight to the server over this link.
    Direct(usize),
    /// The kernel's MPTCP straight to the server on the last host; the first subflow goes over this
    /// link.
    MptcpDirect(usize),
}

/// Who chooses among the links of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The default scheduler.
    Default,
    /// This one.
    Scheduler(&'static str),
    /// The four-application policy of `docs/policies/`.
    FourApps,
}

/// With the default scheduler, through the first host.
pub const BOND: Contender = Contender::Bond { by: By::Default, host: 0 };

impl Contender {
    /// `manyways bond` with another scheduler than the default.
    pub const fn scheduled(scheduler: &'static str) -> Self {
        Self::Bond { by: By::Scheduler(scheduler), host: 0 }
    }

    /// `bond`, `mptcp-wifi`, `lte`, `direct-wifi`.
    pub fn name(&self, links: &[LinkSpec]) -> String {
        let link = |index: usize| links.get(index).map_or("?", |link| link.name.as_str());
        match *self {
            Self::Bond { by: By::Default, host: 0 } => "bond".to_owned(),
            Self::Bond { by: By::Scheduler(scheduler), host: 0 } => format!("bond {scheduler}"),
            Self::Bond { by: By::FourApps, host: 0 } => "bond four-apps".to_owned(),
            Self::Bond { host, .. } => format!("bond at {}", place(host)),
            Self::Mptcp(index) => format!("mptcp-{}", link(index)),
            Self::Spliced(index) => link(index).to_owned(),
            Self::Direct(index) => format!("direct-{}", link(index)),
            Self::MptcpDirect(index) => format!("mptcp-direct-{}", link(index)),
        }
    }

    /// Whether it is `manyways bond`.
    pub fn is_bond(&self) -> bool {
        matches!(self, Self::Bond { .. })
    }

    /// Whether it is the kernel's MPTCP.
    pub fn is_mptcp(&self) -> bool {
        matches!(self, Self::Mptcp(_) | Self::MptcpDirect(_))
    }

    /// Whether it needs the splice.
    pub fn is_spliced(&self) -> bool {
        matches!(self, Self::Mptcp(_) | Self::Spliced(_))
    }

    /// The only link that it uses.
    pub fn only_link(&self) -> Option<usize> {
        match *self {
            Self::Spliced(index) | Self::Direct(index) => Some(index),
            _ => None,
        }
    }
}

/// What the paper calls its places.
fn place(host: usize) -> char {
    char::from(b'A' + host.min(25) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_who_and_over_what() {
        let links = [LinkSpec::new("wifi"), LinkSpec::new("lte")];
        let name = |contender: Contender| contender.name(&links);
        assert_eq!(name(BOND), "bond");
        assert_eq!(name(Contender::scheduled("ecf")), "bond ecf");
        assert_eq!(name(Contender::Bond { by: By::Default, host: 2 }), "bond at C");
        assert_eq!(name(Contender::Bond { by: By::FourApps, host: 0 }), "bond four-apps");
        assert_eq!(name(Contender::Mptcp(1)), "mptcp-lte");
        assert_eq!(name(Contender::Spliced(0)), "wifi");
        assert_eq!(name(Contender::Direct(0)), "direct-wifi");
    }
}
