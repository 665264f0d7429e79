//! Bursts of UDP packets: loss, reordering, and how the delay varies.

use manyways_unit::{Span, Time, quantile};

use super::round_trips::{mean, reordered};

/// A packet of a burst that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// From 0.
    pub sequence: u64,
    /// By the clock of the sender.
    pub sent: Time,
    /// By the clock of the receiver, which may differ by any constant.
    pub received: Time,
}

/// The result of a burst.
#[derive(Clone, PartialEq, Debug)]
pub struct BurstSummary {
    pub sent: u64,
    /// Different packets.
    pub received: u64,
    /// Packets for which the receiving program had no room; the network did not lose them.
    pub dropped: u64,
    /// Share of the packets that the network lost; `None` if none was sent.
    pub loss: Option<f64>,
    pub duplicates: u64,
    /// Packets that arrived after a later one (RFC 4737, 3.3).
    pub reordered: u64,
    /// Time between two consecutive arrivals.
    pub mean_gap: Option<Span>,
    pub median_gap: Option<Span>,
    pub p90_gap: Option<Span>,
    /// One-way delay beyond that of the fastest packet (RFC 5481, 4.2). Independent of the
    /// difference of the clocks, but not of their drift.
    pub median_variation: Option<Span>,
    pub p90_variation: Option<Span>,
    pub max_variation: Option<Span>,
}

/// The loss of the network. A hostile peer can count anything.
pub fn loss(sent: u64, received: u64, dropped: u64) -> Option<f64> {
    let lost = sent.saturating_sub(received).saturating_sub(dropped);
    (sent > 0).then(|| lost as f64 / sent as f64)
}

/// Evaluates a burst of `sent` packets, of which the receiver had no room for `dropped`; the arrivals
/// are in their order. Arrivals of other packets are ignored.
pub fn summary(sent: u64, dropped: u64, arrivals: &[Arrival]) -> BurstSummary {
    let mut seen = vec![false; usize::try_from(sent).unwrap_or(0)];
    let mut first = Vec::with_capacity(arrivals.len());
    let mut duplicates = 0;
    for arrival in arrivals {
        let place = usize::try_from(arrival.sequence).ok().and_then(|index| seen.get_mut(index));
        match place {
            Some(seen) if !*seen => {
                *seen = true;
                first.push(*arrival);
            }
            Some(_) => duplicates += 1,
            None => {}
        }
    }
    let received = first.len() as u64;
    let sequences: Vec<u64> = first.iter().map(|arrival| arrival.sequence).collect();
    let gaps = first.windows(2).map(|pair| pair[1].received.since(pair[0].received));
    let gaps = sorted(gaps);
    // Both clocks count from any time, so that only differences mean something.
    let delay = |arrival: &Arrival| {
        i128::from(arrival.received.as_nanos()) - i128::from(arrival.sent.as_nanos())
    };
    let fastest = first.iter().map(delay).min().unwrap_or_default();
    let variations = first.iter().map(|arrival| {
        Span::from_nanos(u64::try_from(delay(arrival) - fastest).unwrap_or(u64::MAX))
    });
    let variations = sorted(variations);
    BurstSummary {
        sent,
        received,
        dropped,
        loss: loss(sent, received, dropped),
        duplicates,
        reordered: reordered(&sequences),
        mean_gap: mean(&gaps),
        median_gap: quantile::of_sorted(&gaps, 0.5),
        p90_gap: quantile::of_sorted(&gaps, 0.9),
        median_variation: quantile::of_sorted(&variations, 0.5),
        p90_variation: quantile::of_sorted(&variations, 0.9),
        max_variation: variations.last().copied(),
    }
}

fn sorted(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable();
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(sequence: u64, sent: u64, received: u64) -> Arrival {
        Arrival { sequence, sent: Time::from_millis(sent), received: Time::from_millis(received) }
    }

    #[test]
    fn each_packet_counts_once_and_clocks_do_not_matter() {
        // One packet each 10 ms, 30 ms on the way; the clock of the sender is 100 s ahead.
        let sent = |sequence: u64| 100_000 + 10 * sequence;
        let arrivals = [
            arrival(0, sent(0), 30),
            arrival(2, sent(2), 50),
            arrival(1, sent(1), 55),
            arrival(1, sent(1), 56),
            arrival(4, sent(4), 74),
            arrival(9, sent(9), 80),
        ];
        let found = summary(5, 0, &arrivals);
        assert_eq!((found.sent, found.received, found.loss), (5, 4, Some(0.2)));
        assert_eq!((found.duplicates, found.reordered), (1, 1));
        assert_eq!(summary(5, 1, &arrivals).loss, Some(0.0));
        assert_eq!(summary(5, 9, &arrivals).loss, Some(0.0));
        let millis = |millis| Some(Span::from_millis(millis));
        assert_eq!((found.median_gap, found.p90_gap), (millis(19), millis(20)));
        assert_eq!(found.mean_gap, Some(Span::from_nanos(14_666_666)));
        // Beyond 30 ms: 0, 0, 15 and 4 ms.
        assert_eq!((found.median_variation, found.max_variation), (millis(0), millis(15)));
    }

    #[test]
    fn without_arrivals_there_are_no_times() {
        let none = summary(20, 0, &[]);
        assert_eq!((none.received, none.loss), (0, Some(1.0)));
        assert_eq!((none.mean_gap, none.max_variation), (None, None));
        assert_eq!(summary(0, 0, &[]).loss, None);
    }
}
