//! The limits of single exchanges: how long a request may take, and how many there may be at a
//! time. A shell waits for the exchange itself; there is no state to keep.

use manyways_unit::Span;

/// The limits of single exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IoLimits {
    /// A pause after a socket could not accept a connection: descriptors may be free soon.
    pub accept_retry: Span,
    /// A request on the control socket, and its answer.
    pub control_request: Span,
    /// A request for metrics.
    pub metrics_request: Span,
    /// Requests for metrics at a time.
    pub metrics_requests: usize,
    /// What an application asks a proxy.
    pub proxy_request: Span,
    /// Connecting to a server past the bond.
    pub direct_connect: Span,
    /// Connecting a gateway to a server, the look-up of its name included.
    pub server_connect: Span,
    /// Finding the process behind a flow, before it is decided about.
    pub owner_lookup: Span,
    /// Finding the processes behind all flows, before a status is told.
    pub status_owner_lookup: Span,
    /// Flows whose process is looked up at a time; that of further flows is not found.
    pub owner_lookups: usize,
    /// After a change of the host's networks they are listed this much later: changes come in
    /// bursts.
    pub network_settle_delay: Span,
    /// How often the policy file is looked at.
    pub policy_poll_interval: Span,
    /// How often a name that cannot be resolved yet is tried when a client starts.
    pub gateway_lookup_retry: Span,
}

impl Default for IoLimits {
    fn default() -> Self {
        Self {
            accept_retry: Span::from_millis(100),
            control_request: Span::from_secs(5),
            metrics_request: Span::from_secs(5),
            metrics_requests: 16,
            proxy_request: Span::from_secs(10),
            direct_connect: Span::from_secs(15),
            server_connect: Span::from_secs(15),
            owner_lookup: Span::from_millis(250),
            status_owner_lookup: Span::from_millis(300),
            owner_lookups: 64,
            network_settle_delay: Span::from_millis(100),
            policy_poll_interval: Span::from_secs(1),
            gateway_lookup_retry: Span::from_secs(2),
        }
    }
}
