//! The row of a packet.

use manyways_unit::Time;

use super::FlowId;
use crate::columns::columns;
use manyways_record::table::{Column, Row};

/// A packet of IP.
#[derive(Clone, Debug)]
pub struct FlowPacket {
    /// When it passed.
    pub at: Time,
    /// Its length with IP's header.
    pub length: u32,
    /// From the local side: up.
    pub is_up: bool,
    /// Which of the capture's interfaces it passed.
    pub interface: u16,
    /// What kind of network that belongs to, as [`Interface::network`] tells.
    ///
    /// [`Interface::network`]: manyways_wire::capture::Interface::network
    pub network: Option<&'static str>,
    /// Its flow, of TCP or UDP.
    pub flow: Option<FlowId>,
    /// What the flow's server is called.
    pub application: Option<String>,
}

impl Row for FlowPacket {
    const TABLE: &'static str = "packets";
    const ABOUT: &'static str = "A packet of IP.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "When it passed." |row| row.at;
        "bytes" Count "Its length in bytes, IP's header included." |row| row.length;
        "direction" Text "up, from the local side, or down."
            |row| if row.is_up { "up" } else { "down" };
        "interface" Count "Which of the capture's interfaces it passed, counted from zero."
            |row| row.interface;
        "network" Text "wifi, cellular, bluetooth or ethernet, by the interface's name; none where that does not say."
            |row| row.network;
        "flow" Flow "The number of its flow; none where it is neither TCP nor UDP."
            |row| row.flow.map(|flow| flow.0);
        "application" Name "The registered domain of the flow's server, or else its address."
            |row| row.application.as_deref();
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Analysis, Record, Settings};
    use manyways_wire::capture::{Interface, LinkType, Packet};

    #[test]
    fn a_packet_has_the_network_of_its_interface() {
        let mut analysis = Analysis::new(Settings { packets: true, ..Settings::default() });
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes.extend([0x9c, 0x40, 0, 9, 0, 8, 0, 0]);
        for (index, name) in ["wlan0", "rmnet_data0", "en0"].into_iter().enumerate() {
            let interface =
                Interface { link: LinkType::RAW, snap: 0, name: name.to_owned(), lost: 0 };
            let packet = Packet {
                at: Time::from_millis(index as u64),
                interface: index,
                bytes: &bytes,
                length: bytes.len(),
                is_sent: None,
                lost_before: 0,
                steps_back: false,
            };
            analysis.packet(&interface, &packet);
        }
        let mut seen = Vec::new();
        while let Some(record) = analysis.poll() {
            if let Record::Packet(packet) = record {
                seen.push((packet.interface, packet.network));
            }
        }
        assert_eq!(seen, [(0, Some("wifi")), (1, Some("cellular")), (2, None)]);
    }
}
