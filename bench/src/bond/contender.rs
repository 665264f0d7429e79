//! The contenders that carry the traffic.

use manyways_trace::scenario::LinkSpec;

/// One way to reach the server. Link and host numbers are indices in the cell's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// `manyways bond` over every link, through a gateway on the host `host`.
    Bond {
        by: Scheduling,
        /// Host of the gateway; the server runs on the same host.
        host: usize,
    },
    /// An earlier program's bond over every link, through its gateway on the first host.
    Before,
    /// A kernel MPTCP connection for every flow, through a splice; the first subflow uses this
    /// link.
    Mptcp(usize),
    /// A plain TCP connection for every flow over this link, through the same splice.
    Spliced(usize),
    /// Directly to the server over this link.
    Direct(usize),
    /// Kernel MPTCP directly to the server on the last host; the first subflow uses this link.
    MptcpDirect(usize),
}

/// Scheduling of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheduling {
    Default,
    /// The scheduler of this name.
    Scheduler(&'static str),
    /// The four-application policy of `docs/policies/`.
    FourApps,
}

/// The default scheduler through the first host.
pub const BOND: Contender = Contender::Bond { by: Scheduling::Default, host: 0 };

impl Contender {
    /// `manyways bond` with the scheduler of this name.
    pub const fn scheduled(scheduler: &'static str) -> Self {
        Self::Bond { by: Scheduling::Scheduler(scheduler), host: 0 }
    }

    /// Name in results: `bond`, `mptcp-wifi`, `lte`, `direct-wifi`.
    pub fn name(&self, links: &[LinkSpec]) -> String {
        let link = |index: usize| links.get(index).map_or("?", |link| link.name.as_str());
        match *self {
            Self::Bond { by: Scheduling::Default, host: 0 } => "bond".to_owned(),
            Self::Bond { by: Scheduling::Scheduler(scheduler), host: 0 } => {
                format!("bond {scheduler}")
            }
            Self::Bond { by: Scheduling::FourApps, host: 0 } => "bond four-apps".to_owned(),
            Self::Bond { host, .. } => format!("bond at {}", host_letter(host)),
            Self::Before => "before".to_owned(),
            Self::Mptcp(index) => format!("mptcp-{}", link(index)),
            Self::Spliced(index) => link(index).to_owned(),
            Self::Direct(index) => format!("direct-{}", link(index)),
            Self::MptcpDirect(index) => format!("mptcp-direct-{}", link(index)),
        }
    }

    pub fn is_bond(&self) -> bool {
        matches!(self, Self::Bond { .. } | Self::Before)
    }

    pub fn is_mptcp(&self) -> bool {
        matches!(self, Self::Mptcp(_) | Self::MptcpDirect(_))
    }

    pub fn is_spliced(&self) -> bool {
        matches!(self, Self::Mptcp(_) | Self::Spliced(_))
    }

    /// The link of a contender that uses only one.
    pub fn only_link(&self) -> Option<usize> {
        match *self {
            Self::Spliced(index) | Self::Direct(index) => Some(index),
            _ => None,
        }
    }
}

/// The letter of a host, as in the paper.
fn host_letter(host: usize) -> char {
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
        assert_eq!(name(Contender::Bond { by: Scheduling::Default, host: 2 }), "bond at C");
        assert_eq!(name(Contender::Bond { by: Scheduling::FourApps, host: 0 }), "bond four-apps");
        assert_eq!(name(Contender::Mptcp(1)), "mptcp-lte");
        assert_eq!(name(Contender::Spliced(0)), "wifi");
        assert_eq!(name(Contender::Direct(0)), "direct-wifi");
    }
}
