//! What is known of a flow from other flows, and from tables.

use crate::device;
use crate::device::Class;
use crate::server::registered_domain;
use manyways_wire::HostName;

/// What a flow's own packets do not say.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// What the server is called.
    pub name: Option<String>,
    /// Where that name is from: `http`, `tls`, `dns`, `dns of another`, `hosts` or `reverse`.
    pub name_source: Option<&'static str>,
    /// Who runs the server's address.
    pub organisation: Option<String>,
    /// The number of its autonomous system.
    pub asn: Option<u32>,
    /// The content network.
    pub cdn: Option<String>,
    /// Which of the organisation's places the server is at, by its distance, the nearest one first,
    /// and the round trip in the middle of that.
    pub cluster: Option<(u64, manyways_unit::Span)>,
    /// What the client's device is.
    pub class: Option<Class>,
    /// How many flows the client's address has at a time, this one included.
    pub concurrency: Option<f64>,
}

impl Joined {
    /// The registered domain of the server's name.
    pub fn domain(&self) -> Option<String> {
        let name = HostName::parse(self.name.as_ref()?.as_bytes())?;
        registered_domain(&name).map(str::to_owned)
    }

    /// The client's operating system.
    pub fn system(&self) -> Option<&'static str> {
        self.class.as_ref()?.system.as_ref().map(|finding| finding.value.name())
    }

    /// Whether the client is held in a hand.
    pub fn is_handheld(&self) -> Option<bool> {
        self.class.as_ref()?.handheld.as_ref().map(|finding| finding.value)
    }

    /// What that is known by, and how sure it is: of the system, or else of the shape.
    pub fn evidence(&self) -> Option<(device::Evidence, f64)> {
        let class = self.class.as_ref()?;
        let of_system = class.system.as_ref().map(|finding| (finding.evidence, finding.confidence));
        of_system.or(class.handheld.as_ref().map(|finding| (finding.evidence, finding.confidence)))
    }
}
