//! The rate of an interface while it is busy.

use manyways_model::select::{BusyMeter, Indicator, Traffic};
use manyways_sys::interface::{Counters, counters};

use super::ledger::Scope;
use super::{Feed, Ticker};

/// Polls the counters of an interface.
pub(super) async fn run(feed: Feed, mut ticker: Ticker, network: String, interface: String) {
    let mut meter = BusyMeter::default();
    loop {
        let now = feed.now();
        match counters(&interface) {
            Ok(Some(found)) => {
                if let Some((at, rate)) = meter.on_counters(now, traffic(&found)) {
                    let reading = [(Indicator::OwnRate, Some(rate.as_mbps_f64()))];
                    feed.report(at, &network, &reading, Scope::Partial);
                }
            }
            Ok(None) => {
                meter = BusyMeter::default();
                feed.fail("the host has no interface of this name");
            }
            Err(error) => {
                meter = BusyMeter::default();
                feed.fail(&format!("the counters of the interface cannot be read: {error}"));
            }
        }
        if !ticker.pause().await {
            return;
        }
    }
}

fn traffic(counters: &Counters) -> Traffic {
    Traffic {
        received_bytes: counters.received_bytes,
        received_packets: counters.received_packets,
        sent_bytes: counters.sent_bytes,
        sent_packets: counters.sent_packets,
    }
}
