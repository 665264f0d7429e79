//! Number of concurrent flows of a device, averaged over the life of each flow (campus Wi-Fi paper,
//! 5.4).

use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// Bin width of the paper.
pub const BIN_WIDTH: Span = Span::from_millis(300);

/// The life of one flow of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLifetime {
    /// The client's address.
    pub address: IpAddr,
    /// The time of its first packet.
    pub started: Time,
    /// The time of its last packet. A time before `started` counts as `started`.
    pub ended: Time,
}

/// Returns, for each flow, the number of flows of the same address in a bin, averaged over the bins
/// of the flow's life. Bins are aligned to the origin of time, and a flow is in each bin that it
/// touches.
///
/// The flow itself counts, so each average is at least 1: the number of connections that the device
/// has open, which the paper uses as a measure of load.
///
/// The result has the order of `flows` and takes O(n log n) time for flows of any duration. A bin
/// of length zero counts as 1 ns.
pub fn average(flows: &[FlowLifetime], bin: Span) -> Vec<f64> {
    let bin = bin.as_nanos().max(1);
    let bins = |flow: &FlowLifetime| {
        let first = flow.started.as_nanos() / bin;
        // One past the last bin. In 128 bits, because the bin of the largest time has a successor
        // too.
        let end = u128::from(flow.ended.max(flow.started).as_nanos() / bin) + 1;
        (u128::from(first), end)
    };
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_unstable_by_key(|index| flows[*index].address);

    let mut averages = vec![0.0; flows.len()];
    for same in order.chunk_by(|a, b| flows[*a].address == flows[*b].address) {
        let counts = BinCounts::of(same.iter().map(|index| bins(&flows[*index])));
        for index in same {
            let (first, end) = bins(&flows[*index]);
            let sum = counts.before(end) - counts.before(first);
            averages[*index] = sum as f64 / (end - first) as f64;
        }
    }
    averages
}

/// Number of flows in each bin, stored only for bins in which the number changes.
struct BinCounts {
    /// First bin, number of flows from this bin on, and the sum of the counts of all earlier bins.
    steps: Vec<(u128, u128, u128)>,
}

impl BinCounts {
    fn of(lives: impl Iterator<Item = (u128, u128)>) -> Self {
        let mut changes: Vec<(u128, bool)> =
            lives.flat_map(|(first, end)| [(first, true), (end, false)]).collect();
        changes.sort_unstable();
        let mut steps: Vec<(u128, u128, u128)> = Vec::new();
        let (mut at, mut open, mut sum) = (0, 0_u128, 0);
        for same in changes.chunk_by(|a, b| a.0 == b.0) {
            let bin = same[0].0;
            sum += open * (bin - at);
            let more = same.iter().filter(|(_, opens)| *opens).count();
            // A flow ends after its first bin, so this subtraction cannot underflow.
            open = open + more as u128 - (same.len() - more) as u128;
            at = bin;
            steps.push((bin, open, sum));
        }
        Self { steps }
    }

    /// Returns the sum of the counts of all bins before `bin`.
    fn before(&self, bin: u128) -> u128 {
        let index = self.steps.partition_point(|(from, ..)| *from <= bin);
        let Some((from, open, sum)) = index.checked_sub(1).map(|last| self.steps[last]) else {
            return 0;
        };
        sum + open * (bin - from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A flow of the address that ends in `address`; times are in milliseconds.
    fn flow(address: u8, started: u64, ended: u64) -> FlowLifetime {
        let at = Time::from_millis;
        FlowLifetime {
            address: [192, 0, 2, address].into(),
            started: at(started),
            ended: at(ended),
        }
    }

    #[test]
    fn a_flow_alone_is_one() {
        assert_eq!(average(&[flow(1, 100, 100_000)], BIN_WIDTH), [1.0]);
        assert_eq!(average(&[flow(1, 299, 300)], BIN_WIDTH), [1.0]);
        assert_eq!(average(&[], BIN_WIDTH), [0.0; 0]);
    }

    #[test]
    fn a_flow_is_in_each_bin_that_it_touches() {
        // The first flow is in bins 0 to 3, the second only in bin 2.
        let averages = average(&[flow(1, 0, 1_199), flow(1, 600, 650)], BIN_WIDTH);
        assert_eq!(averages, [1.25, 2.0]);
        // The same bin, though never at the same time.
        assert_eq!(average(&[flow(1, 0, 10), flow(1, 290, 299)], BIN_WIDTH), [2.0, 2.0]);
        // 300 ms is in the next bin.
        assert_eq!(average(&[flow(1, 290, 299), flow(1, 300, 310)], BIN_WIDTH), [1.0, 1.0]);
    }

    #[test]
    fn other_addresses_do_not_count() {
        let flows = [flow(1, 0, 299), flow(2, 0, 299), flow(1, 0, 0)];
        assert_eq!(average(&flows, BIN_WIDTH), [2.0, 1.0, 2.0]);
    }

    #[test]
    fn days_and_the_ends_of_time_need_no_array() {
        let all = FlowLifetime {
            address: [192, 0, 2, 1].into(),
            started: Time::ZERO,
            ended: Time::from_nanos(u64::MAX),
        };
        assert_eq!(average(&[all, all], Span::from_nanos(0)), [2.0, 2.0]);
        let backwards = FlowLifetime { started: all.ended, ended: all.started, ..all };
        assert_eq!(average(&[backwards], Span::from_nanos(1)), [1.0]);
    }

    proptest! {
        #[test]
        fn it_is_what_counting_bin_by_bin_gives(
            drawn in prop::collection::vec((0_u8..3, 0_u64..4_000, 0_u64..2_000), 0..40),
        ) {
            let flows: Vec<_> =
                drawn.iter().map(|(a, start, life)| flow(*a, *start, start + life)).collect();
            let bins = |of: &FlowLifetime| {
                of.started.as_nanos() / BIN_WIDTH.as_nanos()..=of.ended.as_nanos() / BIN_WIDTH.as_nanos()
            };
            for (flow, averaged) in flows.iter().zip(average(&flows, BIN_WIDTH)) {
                let mut sum = 0;
                for bin in bins(flow) {
                    let here = |other: &&FlowLifetime| {
                        other.address == flow.address && bins(other).contains(&bin)
                    };
                    sum += flows.iter().filter(here).count();
                }
                prop_assert_eq!(averaged, sum as f64 / bins(flow).count() as f64);
            }
        }
    }
}
