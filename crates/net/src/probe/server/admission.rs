//! The limits of clients. Pure.

use std::collections::HashMap;
use std::hash::Hash;

use manyways_unit::{Rate, Size, Span, Time};

use crate::probe::peer::message::Order;

/// Limits of a probe server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// Of a client in [`Self::PERIOD`], both directions.
    pub bytes: Size,
    /// Of one measurement.
    pub duration: Span,
    /// Of a client, unless the allow file has a lower one; `None` permits any rate.
    pub rate: Option<Rate>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { bytes: Size::from_bytes(10_000_000_000), duration: Span::from_secs(60), rate: None }
    }
}

impl ServerLimits {
    pub const PERIOD: Span = Span::from_secs(3_600);
}

/// Why an order is refused, as a sentence for the client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{MAX_RUNNING} measurements of this client run")]
    Busy,
    #[error("the limit of {0} an hour is reached")]
    Bytes(Size),
    #[error("a measurement takes at most {0}")]
    Duration(Span),
    #[error("the rate is at most {0}")]
    Rate(Rate),
    #[error("a datagram has from {MIN_DATAGRAM} to {MAX_DATAGRAM} bytes")]
    DatagramSize,
    #[error("the order asks for nothing")]
    Empty,
}

/// Measurements of a client at a time: one for each of its networks.
const MAX_RUNNING: u32 = 8;
pub(super) const MIN_DATAGRAM: u16 = 32;
pub(super) const MAX_DATAGRAM: u16 = 1_472;

/// The clients of a server.
#[derive(Debug)]
pub(super) struct Admission<K> {
    limits: ServerLimits,
    clients: HashMap<K, Client>,
}

#[derive(Debug)]
struct Client {
    period: Time,
    /// Of measurements that have ended.
    bytes: u64,
    running: u32,
    /// Of the running measurements, at most.
    granted: u64,
    /// Rate of the running bursts, in bits a second.
    bursts: u64,
    /// When the bytes of its connections so far are through at the limit of its rate.
    paced: Time,
}

/// The greatest use of an admitted measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) bytes: u64,
    pub(super) duration: Span,
    /// Limit of the client.
    pub(super) rate: Option<Rate>,
    /// Rate of a burst, in bits a second.
    burst: u64,
}

impl<K: Eq + Hash + Copy> Admission<K> {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Self { limits, clients: HashMap::new() }
    }

    /// Begins a measurement. `rate` is the limit of the client in the allow file.
    pub(super) fn begin(
        &mut self,
        now: Time,
        key: K,
        order: &Order,
        rate: Option<Rate>,
    ) -> Result<Grant, Refusal> {
        let limits = self.limits;
        let rate = rate.into_iter().chain(limits.rate).min();
        let (wanted, duration) = wanted(order)?;
        if duration > limits.duration {
            return Err(Refusal::Duration(limits.duration));
        }
        // Clients whose period is over have used nothing.
        self.clients.retain(|_, client| {
            client.running > 0 || now.since(client.period) < ServerLimits::PERIOD
        });
        let client = self.clients.entry(key).or_insert(Client {
            period: now,
            bytes: 0,
            running: 0,
            granted: 0,
            bursts: 0,
            paced: now,
        });
        if client.running == MAX_RUNNING {
            return Err(Refusal::Busy);
        }
        let burst = match *order {
            Order::Udp { rate, .. } => rate,
            _ => 0,
        };
        if let Some(max) = rate.filter(|max| client.bursts.saturating_add(burst) > max.as_bps()) {
            return Err(Refusal::Rate(max));
        }
        let used = client.bytes.saturating_add(client.granted);
        let rest = limits.bytes.as_bytes().saturating_sub(used);
        if rest == 0 {
            return Err(Refusal::Bytes(limits.bytes));
        }
        let bytes = wanted.min(rest);
        client.running += 1;
        client.granted += bytes;
        client.bursts += burst;
        Ok(Grant { bytes, duration, rate, burst })
    }

    /// How long a connection waits after it has carried these bytes, so that all connections and
    /// bursts of the client keep its limit.
    pub(super) fn pace(&mut self, now: Time, key: K, grant: &Grant, bytes: Size) -> Span {
        let (Some(max), Some(client)) = (grant.rate, self.clients.get_mut(&key)) else {
            return Span::ZERO;
        };
        let rate = Rate::from_bps(max.as_bps().saturating_sub(client.bursts).max(1_000));
        client.paced = client.paced.max(now) + rate.time_for(bytes);
        client.paced.since(now)
    }

    /// Ends a measurement that used this many bytes.
    pub(super) fn end(&mut self, key: K, grant: &Grant, bytes: u64) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.running = client.running.saturating_sub(1);
            client.granted = client.granted.saturating_sub(grant.bytes);
            client.bursts = client.bursts.saturating_sub(grant.burst);
            client.bytes = client.bytes.saturating_add(bytes);
        }
    }
}

/// Bytes and duration that an order asks for.
fn wanted(order: &Order) -> Result<(u64, Span), Refusal> {
    let is_datagram = |size: u16| (MIN_DATAGRAM..=MAX_DATAGRAM).contains(&size);
    match *order {
        Order::Tcp { bytes, millis, .. } => {
            if bytes == 0 || millis == 0 {
                return Err(Refusal::Empty);
            }
            Ok((bytes, millis_span(millis)))
        }
        Order::Udp { packets, size, rate, .. } => {
            if !is_datagram(size) {
                return Err(Refusal::DatagramSize);
            }
            if packets == 0 || rate == 0 {
                return Err(Refusal::Empty);
            }
            let rate = Rate::from_bps(rate);
            let bytes = packets.saturating_mul(u64::from(size));
            Ok((bytes, rate.time_for(Size::from_bytes(bytes))))
        }
        Order::Echo { packets, size, millis } => {
            if !is_datagram(size) {
                return Err(Refusal::DatagramSize);
            }
            if packets == 0 || millis == 0 {
                return Err(Refusal::Empty);
            }
            Ok((packets.saturating_mul(2 * u64::from(size)), millis_span(millis)))
        }
        Order::Stop => Err(Refusal::Empty),
    }
}

fn millis_span(millis: u64) -> Span {
    Span::from_nanos(millis.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::peer::message::Direction;

    fn limits() -> ServerLimits {
        ServerLimits {
            bytes: Size::from_bytes(1_000),
            duration: Span::from_secs(10),
            rate: Some(Rate::from_mbps(20)),
        }
    }

    fn tcp(bytes: u64, millis: u64) -> Order {
        Order::Tcp { direction: Direction::Down, bytes, millis }
    }

    fn burst(size: u16, rate: u64) -> Order {
        Order::Udp { direction: Direction::Down, packets: 2, size, rate }
    }

    #[test]
    fn a_client_measures_within_its_hour() {
        let mut admission = Admission::new(limits());
        let start = Time::from_millis(100_000);
        let grant = admission.begin(start, 1, &tcp(700, 1_000), None).unwrap();
        assert_eq!((grant.bytes, grant.duration), (700, Span::from_secs(1)));
        // The second one gets the rest; its successors, the bytes that both did not use.
        let second = admission.begin(start, 1, &tcp(700, 1_000), None).unwrap();
        assert_eq!(second.bytes, 300);
        let refusal = admission.begin(start, 1, &tcp(1, 1), None);
        assert_eq!(refusal, Err(Refusal::Bytes(limits().bytes)));
        assert!(admission.begin(start, 2, &tcp(1, 1), None).is_ok());
        admission.end(1, &grant, 600);
        admission.end(1, &second, 300);
        assert_eq!(admission.begin(start, 1, &tcp(700, 1_000), None).unwrap().bytes, 100);
        for _ in 0..MAX_RUNNING {
            admission.begin(start, 3, &tcp(1, 1), None).unwrap();
        }
        assert_eq!(admission.begin(start, 3, &tcp(1, 1), None), Err(Refusal::Busy));
    }

    #[test]
    fn an_hour_later_a_client_has_all_its_bytes() {
        let mut admission = Admission::new(limits());
        let grant = admission.begin(Time::ZERO, 1, &tcp(1_000, 1), None).unwrap();
        admission.end(1, &grant, 1_000);
        let later = Time::ZERO + ServerLimits::PERIOD;
        assert_eq!(admission.begin(later, 1, &tcp(700, 1_000), None).unwrap().bytes, 700);
    }

    #[test]
    fn connections_and_bursts_of_a_client_share_its_rate() {
        let mut admission = Admission::new(limits());
        let now = Time::ZERO;
        let one = admission.begin(now, 1, &tcp(100, 1), None).unwrap();
        let other = admission.begin(now, 1, &tcp(100, 1), None).unwrap();
        // 2,500 bytes take a millisecond at 20 Mbit/s.
        let bytes = Size::from_bytes(2_500);
        assert_eq!(admission.pace(now, 1, &one, bytes), Span::from_millis(1));
        assert_eq!(admission.pace(now, 1, &other, bytes), Span::from_millis(2));
        let burst = admission.begin(now, 1, &burst(100, 10_000_000), None).unwrap();
        let later = Time::from_millis(10);
        assert_eq!(admission.pace(later, 1, &one, bytes), Span::from_millis(2));
        let more = Order::Udp { direction: Direction::Up, packets: 1, size: 100, rate: 10_000_001 };
        let refusal = admission.begin(later, 1, &more, None);
        assert_eq!(refusal, Err(Refusal::Rate(Rate::from_mbps(20))));
        admission.end(1, &burst, 200);
        assert!(admission.begin(later, 1, &more, None).is_ok());
    }

    #[test]
    fn an_order_beyond_a_limit_is_refused_with_the_limit() {
        let mut admission = Admission::new(limits());
        let mut refused =
            |order: Order, rate| admission.begin(Time::ZERO, 1, &order, rate).unwrap_err();
        assert_eq!(refused(tcp(1, 10_001), None), Refusal::Duration(limits().duration));
        assert_eq!(refused(tcp(0, 1), None), Refusal::Empty);
        assert_eq!(refused(burst(31, 1_000), None), Refusal::DatagramSize);
        assert_eq!(refused(burst(1_473, 1_000), None), Refusal::DatagramSize);
        let fast = Rate::from_mbps(20);
        assert_eq!(refused(burst(100, 20_000_001), None), Refusal::Rate(fast));
        let own = Rate::from_mbps(1);
        assert_eq!(refused(burst(100, 2_000_000), Some(own)), Refusal::Rate(own));
        assert_eq!(refused(Order::Stop, None), Refusal::Empty);
    }
}
