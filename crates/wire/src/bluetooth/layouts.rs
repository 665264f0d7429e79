//! Layouts of control messages.

use super::cursor::Cursor;

/// Layout of a message: name, offset and width in bytes of each number.
pub(super) struct Layout {
    pub(super) code: u16,
    pub(super) name: &'static str,
    pub(super) handle_offset: Option<usize>,
    pub(super) address_offset: Option<usize>,
    fields: &'static [(&'static str, usize, usize)],
}

type Fields = &'static [(&'static str, usize, usize)];

impl Layout {
    /// The captured numbers.
    pub(super) fn values(&self, rest: Cursor<'_>) -> Vec<(&'static str, u64)> {
        let value = |(name, at, width): &(&'static str, usize, usize)| {
            Some((*name, rest.number(*at, *width)?))
        };
        self.fields.iter().filter_map(value).collect()
    }

    /// The form with this code.
    pub(super) fn find(forms: &'static [Self], code: u16) -> Option<&'static Self> {
        forms.iter().find(|form| form.code == code)
    }
}

/// Form of a message about a connection, with the handle at offset `at`.
const fn handle(code: u16, name: &'static str, at: usize, fields: Fields) -> Layout {
    Layout { code, name, handle_offset: Some(at), address_offset: None, fields }
}

/// Form of a message about a device, with the address at offset `at`.
const fn address(code: u16, name: &'static str, at: usize, fields: Fields) -> Layout {
    Layout { code, name, handle_offset: None, address_offset: Some(at), fields }
}

const fn plain(code: u16, name: &'static str, fields: Fields) -> Layout {
    Layout { code, name, handle_offset: None, address_offset: None, fields }
}

/// Form of a message about a new connection, with the offsets of handle and address.
const fn handle_and_address(
    code: u16,
    name: &'static str,
    at: [usize; 2],
    fields: Fields,
) -> Layout {
    Layout { code, name, handle_offset: Some(at[0]), address_offset: Some(at[1]), fields }
}

/// Commands without their headers (vol 4, part E, 7.1 to 7.8).
pub(super) const COMMANDS: &[Layout] = &[
    address(0x0405, "Create Connection", 0, &[]),
    handle(0x0406, "Disconnect", 0, &[("reason", 2, 1)]),
    address(0x0409, "Accept Connection Request", 0, &[("role", 6, 1)]),
    address(0x040a, "Reject Connection Request", 0, &[("reason", 6, 1)]),
    handle(0x0413, "Set Connection Encryption", 0, &[("enable", 2, 1)]),
    handle(
        0x0803,
        "Sniff Mode",
        0,
        &[("max interval", 2, 2), ("min interval", 4, 2), ("attempt", 6, 2), ("timeout", 8, 2)],
    ),
    handle(0x0804, "Exit Sniff Mode", 0, &[]),
    handle(0x0807, "QoS Setup", 0, &[("service type", 3, 1), ("token rate", 4, 4)]),
    address(0x080b, "Switch Role", 0, &[("role", 6, 1)]),
    handle(0x080d, "Write Link Policy Settings", 0, &[("settings", 2, 2)]),
    handle(0x0811, "Sniff Subrating", 0, &[("max latency", 2, 2)]),
    plain(0x0c03, "Reset", &[]),
    handle(0x0c08, "Flush", 0, &[]),
    address(
        0x200d,
        "LE Create Connection",
        6,
        &[("min interval", 13, 2), ("max interval", 15, 2), ("latency", 17, 2), ("timeout", 19, 2)],
    ),
    handle(
        0x2013,
        "LE Connection Update",
        0,
        &[("min interval", 2, 2), ("max interval", 4, 2), ("latency", 6, 2), ("timeout", 8, 2)],
    ),
    handle(0x2022, "LE Set Data Length", 0, &[("tx octets", 2, 2), ("tx time", 4, 2)]),
    handle(0x2032, "LE Set PHY", 0, &[("tx phys", 3, 1), ("rx phys", 4, 1)]),
    address(0x2043, "LE Extended Create Connection", 3, &[]),
];

/// Events without their headers (vol 4, part E, 7.7).
pub(super) const EVENTS: &[Layout] = &[
    handle_and_address(
        0x03,
        "Connection Complete",
        [1, 3],
        &[("status", 0, 1), ("link type", 9, 1)],
    ),
    address(0x04, "Connection Request", 0, &[("class of device", 6, 3), ("link type", 9, 1)]),
    handle(0x05, "Disconnection Complete", 1, &[("status", 0, 1), ("reason", 3, 1)]),
    handle(0x08, "Encryption Change", 1, &[("status", 0, 1), ("enabled", 3, 1)]),
    handle(0x11, "Flush Occurred", 0, &[]),
    address(0x12, "Role Change", 1, &[("status", 0, 1), ("role", 7, 1)]),
    handle(0x14, "Mode Change", 1, &[("status", 0, 1), ("mode", 3, 1), ("interval", 4, 2)]),
    plain(0x1a, "Data Buffer Overflow", &[("link type", 0, 1)]),
    handle(0x1b, "Max Slots Change", 0, &[("slots", 2, 1)]),
    handle_and_address(
        0x2c,
        "Synchronous Connection Complete",
        [1, 3],
        &[("status", 0, 1), ("link type", 9, 1)],
    ),
    handle(
        0x2e,
        "Sniff Subrating",
        1,
        &[("status", 0, 1), ("max tx latency", 3, 2), ("max rx latency", 5, 2)],
    ),
    handle(0x30, "Encryption Key Refresh Complete", 1, &[("status", 0, 1)]),
    handle(0x38, "Link Supervision Timeout Changed", 0, &[("timeout", 2, 2)]),
];

/// LE meta events (7.7.65), starting with the subevent code.
pub(super) const LE_EVENTS: &[Layout] = &[
    handle_and_address(
        0x01,
        "LE Connection Complete",
        [2, 6],
        &[
            ("status", 1, 1),
            ("role", 4, 1),
            ("address type", 5, 1),
            ("interval", 12, 2),
            ("latency", 14, 2),
            ("timeout", 16, 2),
        ],
    ),
    handle(
        0x03,
        "LE Connection Update Complete",
        2,
        &[("status", 1, 1), ("interval", 4, 2), ("latency", 6, 2), ("timeout", 8, 2)],
    ),
    handle(0x07, "LE Data Length Change", 1, &[("tx octets", 3, 2), ("rx octets", 7, 2)]),
    handle_and_address(0x0a, "LE Enhanced Connection Complete", [2, 6], ENHANCED),
    handle(0x0c, "LE PHY Update Complete", 2, &[("status", 1, 1), ("tx", 4, 1), ("rx", 5, 1)]),
    handle_and_address(0x29, "LE Enhanced Connection Complete", [2, 6], ENHANCED),
];

const ENHANCED: Fields = &[
    ("status", 1, 1),
    ("role", 4, 1),
    ("address type", 5, 1),
    ("interval", 24, 2),
    ("latency", 26, 2),
    ("timeout", 28, 2),
];

/// L2CAP signals without their headers (vol 3, part A, 4).
pub(super) const SIGNALS: &[Layout] = &[
    plain(0x01, "Command Reject", &[("reason", 0, 2)]),
    plain(0x02, "Connection Request", &[("psm", 0, 2), ("scid", 2, 2)]),
    plain(
        0x03,
        "Connection Response",
        &[("dcid", 0, 2), ("scid", 2, 2), ("result", 4, 2), ("status", 6, 2)],
    ),
    plain(0x04, "Configuration Request", &[("dcid", 0, 2), ("flags", 2, 2)]),
    plain(0x05, "Configuration Response", &[("scid", 0, 2), ("flags", 2, 2), ("result", 4, 2)]),
    plain(0x06, "Disconnection Request", &[("dcid", 0, 2), ("scid", 2, 2)]),
    plain(0x07, "Disconnection Response", &[("dcid", 0, 2), ("scid", 2, 2)]),
    plain(0x08, "Echo Request", &[]),
    plain(0x09, "Echo Response", &[]),
    plain(0x0a, "Information Request", &[("type", 0, 2)]),
    plain(0x0b, "Information Response", &[("type", 0, 2), ("result", 2, 2)]),
    plain(
        0x12,
        "Connection Parameter Update Request",
        &[("min interval", 0, 2), ("max interval", 2, 2), ("latency", 4, 2), ("timeout", 6, 2)],
    ),
    plain(0x13, "Connection Parameter Update Response", &[("result", 0, 2)]),
    plain(
        0x14,
        "LE Credit Based Connection Request",
        &[("psm", 0, 2), ("scid", 2, 2), ("mtu", 4, 2), ("mps", 6, 2), ("credits", 8, 2)],
    ),
    plain(
        0x15,
        "LE Credit Based Connection Response",
        &[("dcid", 0, 2), ("mtu", 2, 2), ("mps", 4, 2), ("credits", 6, 2), ("result", 8, 2)],
    ),
    plain(0x16, "Flow Control Credit", &[("cid", 0, 2), ("credits", 2, 2)]),
    plain(
        0x17,
        "Credit Based Connection Request",
        &[("psm", 0, 2), ("mtu", 2, 2), ("mps", 4, 2), ("credits", 6, 2)],
    ),
    plain(
        0x18,
        "Credit Based Connection Response",
        &[("mtu", 0, 2), ("mps", 2, 2), ("credits", 4, 2), ("result", 6, 2)],
    ),
    plain(0x19, "Credit Based Reconfigure Request", &[("mtu", 0, 2), ("mps", 2, 2)]),
    plain(0x1a, "Credit Based Reconfigure Response", &[("result", 0, 2)]),
];
