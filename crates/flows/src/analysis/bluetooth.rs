//! Rows of Bluetooth streams and of Bluetooth control messages.

use crate::columns::columns;
use manyways_record::table::{Column, Row};
use manyways_unit::Samples;
use manyways_wire::bluetooth::{
    Address, Control, Credits, Direction, Ending, Layer, StreamSummary,
};

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
    const ABOUT: &'static str = "One direction of an L2CAP channel or of an RFCOMM connection.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "stream" Count "Its number, counted from zero." |row| row.id.number;
        "adapter" Count "The number of the host's adapter." |row| row.id.adapter;
        "handle" Count "The connection's handle." |row| row.id.handle;
        "cid" Count "The channel's number at the host." |row| row.id.cid;
        "dlci" Count "RFCOMM's number of the connection in it." |row| row.id.dlci;
        "channel" Count "RFCOMM's server channel." |row| row.id.server_channel();
        "direction" Text "sent or received, as the host sees it." |row| direction(row.id.direction);
        "peer" Name "The other device's address." |row| address(row.peer);
        "psm" Count "What the channel is for: 3 is RFCOMM." |row| row.psm;
        "opened" Time "When it was opened." |row| row.opened;
        "first" Time "When its first packet passed." |row| row.first;
        "last" Time "When its last packet passed." |row| row.last;
        "ended" Time "When it ended." |row| row.ended.0;
        "ending" Text "How: closed, disconnected, finished (with the capture) or evicted."
            |row| match row.ended.1 {
                Ending::Closed => "closed",
                Ending::Disconnected => "disconnected",
                Ending::Finished => "finished",
                Ending::Evicted => "evicted",
            };
        "packets" Count "Packets." |row| row.packets;
        "bytes" Count "Bytes of payload." |row| row.bytes;
        "uncaptured" Count "Bytes of those that the capture cut." |row| row.uncaptured;
        "incomplete" Count "Packets of which a part did not pass." |row| row.incomplete;
        "mtu" Count "The largest packet." |row| row.mtu;
        "credits_granted" Count "Credits that it was given." |row| credits(row, |c| c.granted);
        "credits_spent" Count "Credits that it used." |row| credits(row, |c| c.spent);
        "stalls" Count "How often it had none." |row| credits(row, |c| c.stalls);
        "stalled" Span "How long it had none." |row| credits(row, |c| c.stalled);
        "completion" Span "Median time from the controller getting a packet to its being done with it."
            |row| Samples::median(&row.completion);
        "completion_min" Span "The shortest of those." |row| Samples::least(&row.completion);
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
    const ABOUT: &'static str = "A control message of HCI, L2CAP or RFCOMM.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "When it passed." |row| row.at;
        "layer" Text "hci, l2cap or rfcomm." |row| match row.layer {
            Layer::Hci => "hci",
            Layer::L2cap => "l2cap",
            Layer::Rfcomm => "rfcomm",
        };
        "name" Text "What it is." |row| row.name;
        "adapter" Count "The number of the host's adapter." |row| row.adapter;
        "handle" Count "The connection's handle." |row| row.handle;
        "peer" Name "The other device's address." |row| address(row.peer);
        "cid" Count "The channel that it is about." |row| row.cid;
        "dlci" Count "The connection of RFCOMM that it is about." |row| row.dlci;
        "direction" Text "sent or received, as the host sees it." |row| row.direction.map(direction);
        "values" Text "What it says, as name=value with spaces between."
            |row| row.values.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
    };
}
