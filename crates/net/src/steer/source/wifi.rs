//! The radio of a Wi-Fi interface.

use manyways_model::select::Indicator;
use manyways_sys::interface::wifi::{Station, station};
use tokio::task::spawn_blocking;

use super::ledger::{Reading, Scope};
use super::{Feed, Ticker};

/// Polls nl80211.
pub(super) async fn run(feed: Feed, mut ticker: Ticker, network: String, interface: String) {
    loop {
        let name = interface.clone();
        // The kernel answers at once, unless a driver holds its lock.
        match spawn_blocking(move || station(&name)).await {
            Ok(Ok(station)) => {
                feed.report(feed.now(), &network, &readings(&station), Scope::Complete);
            }
            Ok(Err(error)) => feed.fail(&error.to_string()),
            Err(_) => feed.fail("the query of nl80211 was cancelled"),
        }
        if !ticker.pause().await {
            return;
        }
    }
}

/// The average of the signal, because that of a single frame varies by several dB, and the rate of
/// sent frames, because received ones are mostly beacons while nothing is transferred.
fn readings(station: &Station) -> [Reading; 2] {
    let signal = station.signal_average.or(station.signal).map(f64::from);
    let rate = station.sent_rate.or(station.received_rate).map(|rate| rate.as_mbps_f64());
    [(Indicator::Rssi, signal), (Indicator::LinkRate, rate)]
}

#[cfg(test)]
mod tests {
    use manyways_unit::Rate;

    use super::*;

    #[test]
    fn a_driver_may_report_only_some_values() {
        let mut station = Station::default();
        assert_eq!(readings(&station), [(Indicator::Rssi, None), (Indicator::LinkRate, None)]);
        station.signal = Some(-61);
        station.received_rate = Some(Rate::from_mbps(6));
        let expected = [(Indicator::Rssi, Some(-61.0)), (Indicator::LinkRate, Some(6.0))];
        assert_eq!(readings(&station), expected);
        station.signal_average = Some(-58);
        station.sent_rate = Some(Rate::from_mbps(130));
        let expected = [(Indicator::Rssi, Some(-58.0)), (Indicator::LinkRate, Some(130.0))];
        assert_eq!(readings(&station), expected);
    }
}
