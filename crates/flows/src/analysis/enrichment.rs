//! Properties of a flow that come from other flows and from tables.

use crate::device;
use crate::device::Classification;
use crate::server::registered_domain;
use manyways_wire::HostName;

/// Properties that are not in the flow's own packets. Each is `None` if unknown.
#[derive(Clone, Debug, Default)]
pub struct Enrichment {
    /// Host name of the server, never an address.
    pub name: Option<String>,
    /// Source of the name: `http`, `tls`, `dns`, `dns of another`, `hosts` or `reverse`.
    pub name_source: Option<&'static str>,
    /// The organisation that owns the server's address.
    pub organisation: Option<String>,
    /// Number of the organisation's autonomous system.
    pub asn: Option<u32>,
    /// Content delivery network.
    pub cdn: Option<String>,
    /// Cluster of the organisation's servers, numbered from the nearest, and the median round-trip
    /// time of the cluster.
    pub cluster: Option<(u64, manyways_unit::Span)>,
    /// Kind of the client's device.
    pub classification: Option<Classification>,
    /// Average number of concurrent flows of the client's address, including this flow.
    pub concurrency: Option<f64>,
}

impl Enrichment {
    /// Returns the registered domain of the server's name.
    pub fn domain(&self) -> Option<String> {
        let name = HostName::parse(self.name.as_ref()?.as_bytes())?;
        registered_domain(&name).map(str::to_owned)
    }

    /// Returns the client's operating system.
    pub fn system(&self) -> Option<&'static str> {
        self.classification.as_ref()?.system.as_ref().map(|finding| finding.value.name())
    }

    pub fn is_handheld(&self) -> Option<bool> {
        self.classification.as_ref()?.handheld.as_ref().map(|finding| finding.value)
    }

    /// Returns evidence and confidence of the operating system, or else of `is_handheld`.
    pub fn evidence(&self) -> Option<(device::Evidence, f64)> {
        let class = self.classification.as_ref()?;
        let of_system = class.system.as_ref().map(|finding| (finding.evidence, finding.confidence));
        of_system.or(class.handheld.as_ref().map(|finding| (finding.evidence, finding.confidence)))
    }
}
