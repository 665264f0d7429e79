//! Rows of Bluetooth streams and of Bluetooth control messages.

use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};
use manyways_unit::Samples;
use manyways_wire::bluetooth::{Address, Close, Control, Credits, Direction, Layer, StreamSummary};

fn address(address: Option<Address>) -> Option<String> {
    address.map(|address| address.to_string())
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Sent => "sent",
        Direction::Received => "received",
    }
}

fn credits<T>(row: &StreamSummary, what: impl Fn(&Credits) -> T) -> Option<T> {
    row.credits.as_ref().map(what)
}

/// A [`StreamSummary`] as a row of a table.
#[derive(Clone, Debug)]
pub struct StreamRow(pub StreamSummary);

impl std::ops::Deref for StreamRow {
    type Target = StreamSummary;

    fn deref(&self) -> &StreamSummary {
        &self.0
    }
}

impl Row for StreamRow {
    const TABLE: &'static str = "bluetooth";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "One direction of an L2CAP channel or of an RFCOMM connection.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "stream" Count "Number from 0." |row| row.id.number;
        "adapter" Count "The number of the host's adapter." |row| row.id.adapter;
        "handle" Count "The connection's handle." |row| row.id.handle;
        "cid" Count "The channel's number at the host." |row| row.id.cid;
        "dlci" Count "RFCOMM's number of the connection in it." |row| row.id.dlci;
        "channel" Count "RFCOMM's server channel." |row| row.id.server_channel();
        "direction" Text "sent or received, as the host sees it." |row| direction(row.id.direction);
        "peer" Name "The other device's address." |row| address(row.peer);
        "psm" Count "Protocol of the channel (PSM): 3 is RFCOMM." |row| row.psm;
        "opened" Time "Time of its opening." |row| row.opened;
        "first" Time "Time of its first packet." |row| row.first;
        "last" Time "Time of its last packet." |row| row.last;
        "ended" Time "Time of its end." |row| row.ended.0;
        "ending" Text "Kind of end: closed, disconnected, finished (with the capture) or evicted."
            |row| match row.ended.1 {
                Close::Closed => "closed",
                Close::Disconnected => "disconnected",
                Close::CaptureEnd => "finished",
                Close::Evicted => "evicted",
            };
        "packets" Count "Packets." |row| row.packets;
        "bytes" Count "Bytes of payload." |row| row.bytes;
        "uncaptured" Count "Bytes of payload that are not in the capture." |row| row.uncaptured;
        "incomplete" Count "Packets with missing parts." |row| row.incomplete;
        "mtu" Count "Maximum length of a packet, in bytes." |row| row.mtu;
        "credits_granted" Count "Credits that the sender received." |row| credits(row, |c| c.granted);
        "credits_spent" Count "Credits that the sender used." |row| credits(row, |c| c.spent);
        "stalls" Count "Number of times without credits." |row| credits(row, |c| c.stalls);
        "stalled" Span "Total time without credits." |row| credits(row, |c| c.stalled);
        "completion" Span "Median time from a packet's transfer to the controller to its completion."
            |row| Samples::median(&row.completion);
        "completion_min" Span "The minimum of these times." |row| Samples::min(&row.completion);
    };
}

/// A [`Control`] message as a row of a table.
#[derive(Clone, Debug)]
pub struct ControlRow(pub Control);

impl std::ops::Deref for ControlRow {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.0
    }
}

impl Row for ControlRow {
    const TABLE: &'static str = "bluetooth_control";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A control message of HCI, L2CAP or RFCOMM.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "Time of the packet." |row| row.at;
        "layer" Text "hci, l2cap or rfcomm." |row| match row.layer {
            Layer::Hci => "hci",
            Layer::L2cap => "l2cap",
            Layer::Rfcomm => "rfcomm",
        };
        "name" Text "Name of the message." |row| row.name;
        "adapter" Count "The number of the host's adapter." |row| row.adapter;
        "handle" Count "The connection's handle." |row| row.handle;
        "peer" Name "The other device's address." |row| address(row.peer);
        "cid" Count "The channel ID in the message." |row| row.cid;
        "dlci" Count "The RFCOMM connection in the message." |row| row.dlci;
        "direction" Text "sent or received, as the host sees it." |row| row.direction.map(direction);
        "values" Text "Values of the message, as name=value separated by spaces."
            |row| row.values.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
    };
}
