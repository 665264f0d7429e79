use manyways_unit::Time;

use super::FlowId;
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};

/// An IP packet.
#[derive(Clone, Debug)]
pub struct FlowPacket {
    pub at: Time,
    /// Original length in bytes, from the IP header on.
    pub length: u32,
    /// Whether the packet is from the local side.
    pub is_up: bool,
    /// Index of the capture's interface.
    pub interface: u16,
    /// Access technology of the interface, see [`Interface::network`].
    ///
    /// [`Interface::network`]: manyways_wire::capture::Interface::network
    pub network: Option<&'static str>,
    /// `None` if the packet is neither TCP nor UDP.
    pub flow: Option<FlowId>,
    /// Registered domain of the flow's server, or its address.
    pub application: Option<String>,
}

impl Row for FlowPacket {
    const TABLE: &'static str = "packets";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "An IP packet.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "Time of the packet." |row| row.at;
        "bytes" Count "Length in bytes, including the IP header." |row| row.length;
        "direction" Text "up, from the local side, or down."
            |row| if row.is_up { "up" } else { "down" };
        "interface" Count "Number of the capture's interface, from 0."
            |row| row.interface;
        "network" Text "wifi, cellular, bluetooth or ethernet, by the interface's name; none if the name does not identify the technology."
            |row| row.network;
        "flow" Flow "The number of its flow; none if it is neither TCP nor UDP."
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
            let interface = Interface {
                link: LinkType::RAW,
                snap_length: 0,
                name: name.to_owned(),
                dropped: 0,
            };
            let packet = Packet {
                at: Time::from_millis(index as u64),
                interface: index,
                bytes: &bytes,
                length: bytes.len(),
                is_sent: None,
                dropped_before: 0,
                is_out_of_order: false,
            };
            analysis.handle_packet(&interface, &packet);
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
