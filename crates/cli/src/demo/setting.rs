//! The emulated networks, and the shortest time in which they can deliver a file.

use anyhow::Result;
use manyways_rig::links::round_trip;
use manyways_trace::scenario::{CapacitySpec, DirectionSpec, LinkSpec, QueueLimit};
use manyways_unit::{Rate, Size, Span};

use crate::lab::{link_failure, reader};

/// Label of each link, and its specification for `lab shell --link`.
const LINKS: [(&str, &str); 2] = [
    ("Wi-Fi", "wifi:down=10mbit,up=5mbit,delay=14ms,queue=150ms"),
    ("LTE", "lte:down=5mbit,up=2mbit,delay=32.5ms,queue=150ms"),
];

pub struct Setting {
    pub links: Vec<Link>,
}

/// One emulated network, with the values of its specification.
pub struct Link {
    pub label: &'static str,
    pub spec: LinkSpec,
    pub down: Rate,
    pub up: Rate,
    /// Propagation delay of both directions, without queueing delay.
    pub round_trip: Span,
    pub queue: Span,
}

/// Lower bound of the duration of a transfer over these links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidBound {
    /// With every link at its full rate during the whole transfer.
    pub transfer: Span,
    /// The shortest time from a request to the first byte of its response.
    pub request: Span,
}

impl FluidBound {
    pub fn of(size: Size, links: impl Iterator<Item = (Rate, Span)> + Clone) -> Self {
        let rate: Rate = links.clone().map(|(rate, _)| rate).sum();
        let request = links.map(|(_, round_trip)| round_trip).min().unwrap_or_default();
        Self { transfer: rate.time_for(size), request }
    }

    pub fn total(&self) -> Span {
        self.transfer + self.request
    }
}

impl Setting {
    pub fn new() -> Result<Self> {
        let links = LINKS
            .iter()
            .map(|(label, text)| {
                let rate = |direction: &DirectionSpec| match direction.capacity {
                    CapacitySpec::Constant(rate) => rate,
                    _ => Rate::ZERO,
                };
                let spec = LinkSpec::parse(text, &mut reader("".as_ref())).map_err(link_failure)?;
                Ok(Link {
                    label,
                    down: rate(&spec.down),
                    up: rate(&spec.up),
                    round_trip: round_trip(&spec),
                    queue: match spec.down.queue.limit {
                        QueueLimit::Time(time) => time,
                        _ => Span::ZERO,
                    },
                    spec,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { links })
    }

    pub fn specs(&self) -> Vec<LinkSpec> {
        self.links.iter().map(|link| link.spec.clone()).collect()
    }

    pub fn bound(&self, size: Size) -> FluidBound {
        FluidBound::of(size, self.links.iter().map(|link| (link.down, link.round_trip)))
    }

    /// Short description of the networks, for a picture.
    pub fn short(&self) -> String {
        let link = |link: &Link| format!("{} {}, {}", link.label, link.down, link.round_trip);
        self.links.iter().map(link).collect::<Vec<_>>().join(" · ")
    }

    /// Description of the networks, for the terminal.
    pub fn describe(&self, cc: &str) -> String {
        let links: Vec<_> = self.links.iter().map(Link::describe).collect();
        format!("Emulating {}; congestion control {cc}.", links.join(" and "))
    }
}

impl Link {
    pub fn describe(&self) -> String {
        format!(
            "{} ({} down, {} up, {} round trip, {} queue)",
            self.label, self.down, self.up, self.round_trip, self.queue
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_all_links_at_full_rate_and_the_shortest_round_trip() {
        let setting = Setting::new().unwrap();
        let bound = setting.bound(Size::from_bytes(8_000_000));
        // 64 Mbit over 15 Mbit/s, and Wi-Fi's 2 × 14 ms.
        assert_eq!(bound.transfer, Span::from_nanos(4_266_666_667));
        assert_eq!(bound.request, Span::from_millis(28));
    }

    #[test]
    fn the_networks_are_those_of_the_description() {
        let setting = Setting::new().unwrap();
        assert_eq!(
            setting.describe("cubic"),
            "Emulating Wi-Fi (10 Mbit/s down, 5 Mbit/s up, 28 ms round trip, 150 ms queue) and \
             LTE (5 Mbit/s down, 2 Mbit/s up, 65 ms round trip, 150 ms queue); congestion control \
             cubic."
        );
    }
}
