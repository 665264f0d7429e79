//! Measurements of own connections.

use manyways_model::select::Indicator;
use manyways_unit::{Rate, Span};

use super::Feed;
use super::ledger::Scope;

/// Takes what connections of this program measured on a network. It has no effect once its
/// [`Sources`](super::Sources) are dropped.
#[derive(Clone, Debug)]
pub struct OwnTraffic {
    feed: Feed,
    network: String,
}

impl OwnTraffic {
    pub(super) fn new(feed: Feed, network: &str) -> Self {
        Self { feed, network: network.to_owned() }
    }

    /// Identifies it, to end it with [`Sources::remove`](super::Sources::remove).
    pub fn id(&self) -> super::SourceId {
        self.feed.id
    }

    /// Notes the smoothed round-trip time of a connection: `rtt` of
    /// [`tcp_state`](manyways_sys::socket::tcp_state).
    pub fn push_round_trip(&self, round_trip: Span) {
        self.push(Indicator::OwnRoundTrip, round_trip.as_secs_f64());
    }

    /// Notes the rate of a transfer that the network limited, not the application: `delivery_rate` of
    /// [`tcp_state`](manyways_sys::socket::tcp_state) unless it is `app_limited`, or that of a download.
    pub fn push_rate(&self, rate: Rate) {
        self.push(Indicator::OwnRate, rate.as_mbps_f64());
    }

    fn push(&self, indicator: Indicator, value: f64) {
        let readings = [(indicator, Some(value))];
        self.feed.report(self.feed.now(), &self.network, &readings, Scope::Partial);
    }
}
