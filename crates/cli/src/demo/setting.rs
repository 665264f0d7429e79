//! The emulated networks, and the shortest time in which they can deliver the file.

use manyways_lab::DEFAULT_CC;
use manyways_rig::links::link;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Rate, Span};

/// One emulated network.
pub struct Network {
    pub name: &'static str,
    pub label: &'static str,
    pub down: Rate,
    pub up: Rate,
    /// Propagation delay of both directions, without queueing delay.
    pub round_trip: Span,
}

pub const NETWORKS: [Network; 2] = [
    Network {
        name: "wifi",
        label: "Wi-Fi",
        down: Rate::from_mbps(10),
        up: Rate::from_mbps(5),
        round_trip: Span::from_millis(28),
    },
    Network {
        name: "lte",
        label: "LTE",
        down: Rate::from_mbps(5),
        up: Rate::from_mbps(2),
        round_trip: Span::from_millis(65),
    },
];
/// Length of each queue: the default of a link.
pub const QUEUE: Span = Span::from_millis(150);

pub fn links() -> Vec<LinkSpec> {
    let spec =
        |one: &Network| link(one.name, CapacitySpec::Constant(one.down), one.up, one.round_trip);
    NETWORKS.iter().map(spec).collect()
}

pub fn labels() -> Vec<&'static str> {
    NETWORKS.iter().map(|network| network.label).collect()
}

/// Short description of the networks, for a picture.
pub fn short() -> String {
    let link = |one: &Network| format!("{} {}, {}", one.label, one.down, one.round_trip);
    NETWORKS.iter().map(link).collect::<Vec<_>>().join(" · ")
}

/// Description of the networks, for the terminal.
pub fn describe() -> String {
    let link = |Network { label, down, up, round_trip, .. }: &Network| {
        format!("{label} ({down} down, {up} up, {round_trip} round trip, {QUEUE} queue)")
    };
    let links = NETWORKS.iter().map(link).collect::<Vec<_>>().join(" and ");
    format!("Emulating {links}; congestion control {DEFAULT_CC}.")
}

#[cfg(test)]
mod tests {
    use manyways_trace::scenario::QueueLimit;

    use super::*;

    #[test]
    fn the_networks_are_those_of_the_description() {
        assert_eq!(
            describe(),
            "Emulating Wi-Fi (10 Mbit/s down, 5 Mbit/s up, 28 ms round trip, 150 ms queue) and \
             LTE (5 Mbit/s down, 2 Mbit/s up, 65 ms round trip, 150 ms queue); congestion control \
             cubic."
        );
        for way in links().iter().flat_map(|link| [&link.down, &link.up]) {
            assert!(matches!(way.queue.limit, QueueLimit::Time(QUEUE)));
        }
    }
}
