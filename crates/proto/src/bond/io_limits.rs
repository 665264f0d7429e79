//! Limits of single exchanges: duration, and number at a time. The shell waits for the exchange;
//! there is no state.

use manyways_unit::Span;

/// Limits of single exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IoLimits {
    /// Wait after a socket could not accept a connection, for example without free file
    /// descriptors.
    pub accept_retry: Span,
    /// Timeout of a request on the control socket, including the response.
    pub control_request: Span,
    /// Timeout of a request for metrics.
    pub metrics_request: Span,
    /// Maximum number of simultaneous requests for metrics.
    pub metrics_requests: usize,
    /// Timeout of an application's request to a proxy.
    pub proxy_request: Span,
    /// Timeout of the gateway's answer whether it has connected to a server, for a proxy that waits
    /// for it. Longer than `server_connect`.
    pub server_answer: Span,
    /// Timeout of a direct connection to a server.
    pub direct_connect: Span,
    /// Timeout of a connection from the gateway to a server, including name resolution.
    pub server_connect: Span,
    /// Timeout for finding the process of a new flow.
    pub owner_lookup: Span,
    /// Timeout for finding the processes of all flows for a status.
    pub status_owner_lookup: Span,
    /// Maximum number of simultaneous process lookups. The process of further flows stays unknown.
    pub owner_lookups: usize,
    /// Delay from a change of the host's networks to the next list, because changes occur in
    /// bursts.
    pub network_settle_delay: Span,
    /// Interval between checks of the policy file.
    pub policy_poll_interval: Span,
    /// Interval between attempts to resolve the gateway's name when a client starts.
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
            server_answer: Span::from_secs(20),
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
