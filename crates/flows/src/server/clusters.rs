//! Groups of servers with similar distance (campus Wi-Fi paper, 6 and 6.7).

use std::collections::BTreeMap;
use std::net::IpAddr;

use manyways_unit::Span;

/// Width of the kernel, relative to the round-trip time: about the spread of the minimum times of
/// servers at one place. With [`VALLEY_EIGHTHS`], two places merge if the times differ by less than
/// a factor of about 1.5.
const BANDWIDTH: f64 = 0.15;
/// Added to each time before the logarithm, because processing in the endpoints would look like
/// distance in small times.
const RTT_FLOOR: Span = Span::from_millis(1);
/// Cells of the logarithm per bandwidth.
const BINS_PER_BANDWIDTH: f64 = 10.0;
/// Reach of the kernel to each side, in bandwidths.
const KERNEL_RADIUS: usize = 4;
/// Two peaks are two modes if the valley between them has at most this many eighths of the height
/// of the lower peak. Shallower valleys occur by chance.
const VALLEY_EIGHTHS: u64 = 6;

/// Servers with similar distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Median of the servers' round-trip times.
    pub centre: Span,
    pub servers: usize,
    /// Number of flows of these servers.
    pub flows: usize,
}

/// Servers grouped by distance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    /// Nearest first.
    pub modes: Vec<Mode>,
    /// Index in `modes` of each server.
    pub servers: BTreeMap<IpAddr, usize>,
}

/// Groups the servers of an organisation by the modes of their round-trip times. `flows` has the
/// server's address and the minimum remote round-trip time of each flow.
///
/// The distance of a server is the median over its flows; each server counts once. The density of
/// the logarithms is estimated with a Gaussian kernel of fixed width, and cut at the lowest point
/// between two peaks. The result does not depend on the order of `flows`.
pub fn clusters(flows: impl IntoIterator<Item = (IpAddr, Span)>) -> Clusters {
    let mut times: BTreeMap<IpAddr, Vec<Span>> = BTreeMap::new();
    for (address, time) in flows {
        times.entry(address).or_default().push(time);
    }
    let servers: Vec<(IpAddr, Span, usize)> = times
        .into_iter()
        .filter_map(|(address, mut times)| Some((address, median(&mut times)?, times.len())))
        .collect();
    let cells: Vec<usize> = servers.iter().map(|(_, time, _)| bin(*time)).collect();
    let Some(first) = cells.iter().min().copied() else { return Clusters::default() };

    let cuts = mode_ends(&density(cells.iter().map(|cell| cell - first)));
    let mut members: Vec<(Vec<Span>, usize)> = vec![Default::default(); cuts.len() + 1];
    let place = |cell: usize| cuts.partition_point(|cut| *cut < cell - first);
    for ((_, time, flows), cell) in servers.iter().zip(&cells) {
        let member = &mut members[place(*cell)];
        member.0.push(*time);
        member.1 += flows;
    }
    // Where the tails of two kernels overlap, there may be a peak without a server.
    let mut clusters = Clusters::default();
    let mut numbers = vec![0; members.len()];
    for ((mut times, flows), number) in members.into_iter().zip(&mut numbers) {
        *number = clusters.modes.len();
        let servers = times.len();
        clusters.modes.extend(median(&mut times).map(|centre| Mode { centre, servers, flows }));
    }
    let placed = servers.iter().zip(&cells);
    clusters.servers =
        placed.map(|((address, ..), cell)| (*address, numbers[place(*cell)])).collect();
    clusters
}

/// Returns the lower of the two middle values.
fn median(times: &mut [Span]) -> Option<Span> {
    let middle = times.len().checked_sub(1)? / 2;
    Some(*times.select_nth_unstable(middle).1)
}

/// All possible times yield fewer than 2,000 cells.
fn bin(time: Span) -> usize {
    let floors = (time + RTT_FLOOR).as_secs_f64() / RTT_FLOOR.as_secs_f64();
    (floors.ln() * BINS_PER_BANDWIDTH / BANDWIDTH) as usize
}

/// Estimates the density of each cell, in integers, so that equal densities compare as equal. The
/// result begins [`KERNEL_RADIUS`] before the first cell and ends as far after the last one.
fn density(cells: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut counts: Vec<u64> = Vec::new();
    for cell in cells {
        counts.resize(counts.len().max(cell + 1), 0);
        counts[cell] += 1;
    }
    let reach = KERNEL_RADIUS * BINS_PER_BANDWIDTH as usize;
    let kernel: Vec<u64> = (0..=2 * reach)
        .map(|at| {
            let distance = (at as f64 - reach as f64) / BINS_PER_BANDWIDTH;
            (1e6 * (-distance * distance / 2.0).exp()) as u64
        })
        .collect();
    let mut density = vec![0; counts.len()];
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        for (offset, weight) in kernel.iter().enumerate() {
            let near = (at + offset).checked_sub(reach);
            if let Some(sum) = near.and_then(|near| density.get_mut(near)) {
                *sum += count * weight;
            }
        }
    }
    density
}

/// Returns the last cell of each mode except the last mode.
fn mode_ends(density: &[u64]) -> Vec<usize> {
    // Peaks alternate with valleys; a run of equal cells counts as one, at its middle.
    let mut peaks: Vec<u64> = Vec::new();
    let mut valleys: Vec<(u64, usize)> = Vec::new();
    let (mut rising, mut at) = (true, 0);
    for run in density.chunk_by(|a, b| a == b) {
        let next = density.get(at + run.len()).copied();
        let turns = next.is_none_or(|next| (next < run[0]) == rising);
        match (turns, rising) {
            (true, true) => peaks.push(run[0]),
            (true, false) if next.is_some() => valleys.push((run[0], at + (run.len() - 1) / 2)),
            _ => {}
        }
        rising ^= turns;
        at += run.len();
    }
    // Merge at the shallowest valley first, and drop the lower of its peaks.
    loop {
        let depths = valleys.iter().zip(peaks.iter().zip(peaks.iter().skip(1)));
        let shallow =
            depths.enumerate().filter_map(|(index, ((valley, _), (remaining, right)))| {
                let lower = *remaining.min(right);
                let is_one =
                    u128::from(*valley) * 8 > u128::from(lower) * u128::from(VALLEY_EIGHTHS);
                // Ratio of valley to peak, in units of 2^-32, which is exact enough for the order.
                let part = (u128::from(*valley) << 32) / u128::from(lower.max(1));
                is_one.then_some((part, std::cmp::Reverse(index)))
            });
        let Some((_, std::cmp::Reverse(index))) = shallow.max() else { break };
        valleys.remove(index);
        let lower = if peaks[index] <= peaks[index + 1] { index } else { index + 1 };
        peaks.remove(lower);
    }
    valleys.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `count` servers around `centre` milliseconds, with the relative deviation `spread`, drawn
    /// from a fixed sequence of numbers.
    fn place(first: u16, count: u16, centre: f64, spread: f64) -> Vec<(IpAddr, Span)> {
        (first..first + count)
            .map(|server| {
                // The sum of 12 uniform values is close to normal, with a standard deviation of 1.
                let noise: f64 = (1_u64..=12)
                    .map(|turn| {
                        let mixed =
                            (u64::from(server) * 12 + turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) as f64
                            / u64::MAX as f64
                    })
                    .sum::<f64>()
                    - 6.0;
                let [high, low] = server.to_be_bytes();
                let time = centre * (1.0 + spread * noise) / 1e3;
                ([192, 0, high, low].into(), Span::from_secs_f64(time))
            })
            .collect()
    }

    fn centres(clusters: &Clusters) -> Vec<f64> {
        clusters.modes.iter().map(|mode| mode.centre.as_millis_f64()).collect()
    }

    #[test]
    fn two_places_are_told_apart() {
        let flows = [place(0, 60, 8.5, 0.1), place(60, 40, 20.0, 0.1)].concat();
        let clusters = clusters(flows);
        let [near, far] = centres(&clusters)[..] else { panic!("{:?}", clusters.modes) };
        assert!((8.0..9.0).contains(&near) && (19.0..21.0).contains(&far), "{near} {far}");
        assert_eq!(clusters.modes.iter().map(|mode| mode.servers).collect::<Vec<_>>(), [60, 40]);
        for (address, at) in &clusters.servers {
            let IpAddr::V4(v4) = address else { panic!() };
            assert_eq!(*at, usize::from(v4.octets()[3] >= 60));
        }
    }

    #[test]
    fn one_place_is_one_however_many_servers() {
        for count in [1, 2, 3, 5, 10, 30, 100, 1_000] {
            let clusters = clusters(place(0, count, 20.0, 0.1));
            assert_eq!(clusters.modes.len(), 1, "{count} servers: {:?}", clusters.modes);
        }
    }

    #[test]
    fn three_places_of_different_size() {
        let flows =
            [place(0, 10, 4.0, 0.1), place(10, 200, 12.0, 0.1), place(300, 30, 90.0, 0.1)].concat();
        let found = clusters(flows);
        assert_eq!(found.modes.iter().map(|mode| mode.servers).collect::<Vec<_>>(), [10, 200, 30]);
    }

    #[test]
    fn a_server_counts_once_and_by_the_median_of_its_flows() {
        let at = |server: u8, millis: u64| {
            (IpAddr::from([192, 0, 2, server]), Span::from_millis(millis))
        };
        // One flow of the first server passed a queue, and one has a false sample.
        let found = clusters([at(1, 20), at(1, 21), at(1, 300), at(1, 1), at(2, 22), at(3, 100)]);
        assert_eq!(found.servers.values().copied().collect::<Vec<_>>(), [0, 0, 1]);
        let near = Mode { centre: Span::from_millis(20), servers: 2, flows: 5 };
        let far = Mode { centre: Span::from_millis(100), servers: 1, flows: 1 };
        assert_eq!(found.modes, [near, far]);
    }

    #[test]
    fn places_are_apart_from_one_and_a_half_times_the_distance() {
        let modes = |millis: u64| {
            let times = [20, millis].map(Span::from_millis);
            let flows =
                (0..).zip(times).map(|(last, time)| (IpAddr::from([192, 0, 2, last]), time));
            clusters(flows).modes.len()
        };
        assert_eq!([22, 25, 29, 33, 40].map(modes), [1, 1, 1, 2, 2]);
    }

    #[test]
    fn parts_of_a_millisecond_are_no_distance() {
        let at = |server: u8, micros: u64| {
            (IpAddr::from([192, 0, 2, server]), Span::from_micros(micros))
        };
        assert_eq!(clusters([at(1, 50), at(2, 100), at(3, 200)]).modes.len(), 1);
    }

    #[test]
    fn nothing_is_no_cluster_and_forever_is_one() {
        assert_eq!(clusters([]), Clusters::default());
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let ends = [(address(1), Span::ZERO), (address(2), Span::MAX)];
        assert_eq!(clusters(ends).modes.len(), 2);
    }

    proptest! {
        #[test]
        fn every_server_has_a_mode_and_order_does_not_matter(
            drawn in prop::collection::vec((any::<u8>(), 0_u64..1 << 40), 0..60),
        ) {
            let mut flows: Vec<_> = drawn
                .iter()
                .map(|(server, nanos)| (IpAddr::from([192, 0, 2, *server]), Span::from_nanos(*nanos)))
                .collect();
            let found = clusters(flows.iter().copied());
            flows.reverse();
            prop_assert_eq!(&clusters(flows.iter().copied()), &found);
            prop_assert!(found.modes.is_sorted_by_key(|mode| mode.centre));
            prop_assert!(found.modes.iter().all(|mode| mode.servers > 0));
            prop_assert_eq!(found.modes.iter().map(|mode| mode.flows).sum::<usize>(), flows.len());
            prop_assert!(found.servers.values().all(|at| *at < found.modes.len()));
        }
    }
}
