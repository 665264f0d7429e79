//! The measured network, and what else happens on it meanwhile.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use manyways_model::probe::cost::Cost;
use manyways_sys::interface::{self, Counters, Interface, Kind};
use manyways_unit::{Size, Span};

use super::report::Context;
use crate::path::PathSpec;
use crate::resolve::PathResolver;

/// A network: an interface of this host, and the path over it.
#[derive(Clone, Debug)]
pub struct Network {
    interface: Interface,
    path: PathSpec,
}

impl Network {
    /// The network of an interface, with the interface's own name servers.
    pub fn new(interface: Interface) -> Self {
        let path = PathSpec::from_interface(&interface);
        Self { interface, path }
    }

    /// The network of an interface, with other name servers, which are queried over the interface.
    pub fn with_name_servers(interface: Interface, servers: Vec<IpAddr>) -> Self {
        let path = PathSpec::with_name_servers(&interface, servers);
        Self { interface, path }
    }

    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    pub fn path(&self) -> &PathSpec {
        &self.path
    }

    /// A resolver that queries name servers over the interface.
    pub(super) fn resolver(&self) -> PathResolver {
        PathResolver::from(&self.interface)
    }

    pub(super) fn traffic(&self) -> Option<Counters> {
        interface::counters(&self.interface.name).ok().flatten()
    }

    pub(super) fn context(&self) -> Context {
        let has = |is_ipv4: bool| self.interface.addresses.iter().any(|a| a.is_ipv4() == is_ipv4);
        let wireless = fs::read_to_string("/proc/net/wireless").unwrap_or_default();
        Context {
            interface: self.interface.name.clone(),
            kind: self.interface.kind.name(),
            is_metered: self.interface.metered.is_metered(),
            has_ipv4: has(true),
            has_ipv6: has(false),
            signal_dbm: signal(&wireless, &self.interface.name),
            is_active_before: None,
        }
    }

    /// Whether packets pass now. Looks for a fifth of a second.
    pub(super) async fn is_active(&self) -> Option<bool> {
        const WINDOW: Duration = Duration::from_millis(200);
        let before = self.traffic()?;
        tokio::time::sleep(WINDOW).await;
        let after = self.traffic()?;
        let packets = |counters: Counters| (counters.sent_packets, counters.received_packets);
        Some(packets(before) != packets(after))
    }

    pub(super) fn is_cellular(&self) -> bool {
        self.interface.kind == Kind::Cellular
    }
}

/// The signal level of a wireless interface in dBm, from the text of `/proc/net/wireless`.
fn signal(text: &str, interface: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then_some(rest)
    })?;
    // Status, link quality, level, noise; each of the last three may end with a point.
    let level = line.split_whitespace().nth(2)?;
    level.trim_end_matches('.').parse().ok().filter(|level: &f64| level.is_finite())
}

/// Bytes of other programs on the interface while a probe ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    pub up: Size,
    pub down: Size,
    /// Bytes of the probe in both directions.
    own: Size,
    during: Span,
}

impl Traffic {
    /// Bytes a second that every network has: neighbours, announcements, name servers.
    const BACKGROUND: u64 = 2_000;

    /// The counters of the interface before and after a probe, without the bytes of the probe. The
    /// counters include the headers of the link, which the probe does not know.
    pub(super) fn foreign(before: Counters, after: Counters, used: Cost) -> Self {
        let rest = |after: u64, before: u64, packets: u64, own: Size| {
            let headers = 14 * packets;
            let bytes = after.saturating_sub(before).saturating_sub(headers);
            Size::from_bytes(bytes.saturating_sub(own.as_bytes()))
        };
        let packets = |after: u64, before: u64| after.saturating_sub(before);
        Self {
            up: rest(
                after.sent_bytes,
                before.sent_bytes,
                packets(after.sent_packets, before.sent_packets),
                used.up,
            ),
            down: rest(
                after.received_bytes,
                before.received_bytes,
                packets(after.received_packets, before.received_packets),
                used.down,
            ),
            own: used.up + used.down,
            during: used.duration,
        }
    }

    /// Whether other programs can have changed the result.
    pub fn is_noticeable(&self) -> bool {
        let background = (self.during.as_secs_f64() * Self::BACKGROUND as f64) as u64;
        let foreign = self.up.as_bytes() + self.down.as_bytes();
        foreign > self.own.as_bytes() / 10 + background + Self::BACKGROUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_that_of_the_interface() {
        let text = "Inter-| sta-|   Quality        |   Discarded packets\n \
                    face | tus | link level noise |  nwid  crypt   frag\n \
                    wlan0: 0000   54.  -56.  -256        0      0      0\n";
        assert_eq!(signal(text, "wlan0"), Some(-56.0));
        assert_eq!(signal(text, "wlan1"), None);
        assert_eq!(signal("wlan0: 0 nan inf", "wlan0"), None);
    }

    #[test]
    fn a_download_of_another_program_is_noticed_and_a_neighbour_is_not() {
        let counters = |bytes, packets| Counters {
            received_bytes: bytes,
            received_packets: packets,
            ..Counters::default()
        };
        let used = Cost {
            up: Size::ZERO,
            down: Size::from_bytes(840),
            duration: Span::from_secs(1),
            energy: None,
        };
        let none = counters(0, 0);
        let quiet = Traffic::foreign(none, counters(980 + 60, 11), used);
        assert_eq!((quiet.down.as_bytes(), quiet.is_noticeable()), (46, false));
        let busy = Traffic::foreign(none, counters(1_000_000, 700), used);
        assert!(busy.is_noticeable(), "{busy:?}");
    }
}
