//! The options of a message, as far as they were captured.

use std::fmt::Write;

use manyways_unit::Span;

use super::{ClientInfo, Kind};
use crate::escape::escape;

/// Offset of the first option.
pub(super) const OPTIONS_OFFSET: usize = 240;
/// Magic cookie before the options (RFC 2131, 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Maximum length of an option, which may be split into parts.
const MAX_OPTION_LENGTH: usize = 255;

const PAD: u8 = 0;
const OVERLOAD: u8 = 52;
const END: u8 = 255;

/// The options that [`super::Message`] needs.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Whether the magic cookie is present.
    pub is_dhcp: bool,
    pub kind: Option<Kind>,
    pub requested: Vec<u8>,
    hostname: Vec<u8>,
    lease: Vec<u8>,
    parameters: Vec<u8>,
    vendor: Vec<u8>,
    overload: u8,
}

impl Options {
    /// Reads the captured options; the flag is true if they are complete.
    pub(super) fn read(message: &[u8]) -> (Self, bool) {
        let is_dhcp = message.get(OPTIONS_OFFSET - COOKIE.len()..OPTIONS_OFFSET) == Some(&COOKIE);
        let mut options = Self { is_dhcp, ..Self::default() };
        if !is_dhcp {
            return (options, false);
        }
        let mut is_whole = options.read_field(message.get(OPTIONS_OFFSET..).unwrap_or_default());
        // With option overload, `file` and `sname` hold more options, in this order (RFC 2131,
        // 4.1).
        for (bit, field) in [(1, 108..236), (2, 44..108)] {
            // After missing options, the parts of an option would be joined in the wrong order.
            if options.overload & bit != 0 && is_whole {
                is_whole = options.read_field(message.get(field).unwrap_or_default());
            }
        }
        (options, is_whole)
    }

    /// Returns whether the field has its END option.
    fn read_field(&mut self, mut field: &[u8]) -> bool {
        loop {
            match field {
                [END, ..] => return true,
                [PAD, rest @ ..] => field = rest,
                [code, length, rest @ ..] => {
                    let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                        return false;
                    };
                    self.add(*code, value);
                    field = rest;
                }
                _ => return false,
            }
        }
    }

    /// Adds a value; the values of a repeated option are concatenated (RFC 3396).
    fn add(&mut self, code: u8, value: &[u8]) {
        let known = match code {
            12 => &mut self.hostname,
            50 => &mut self.requested,
            51 => &mut self.lease,
            OVERLOAD => {
                self.overload |= value.first().copied().unwrap_or_default();
                return;
            }
            53 => {
                self.kind = self.kind.or(value.first().copied().map(Kind::from));
                return;
            }
            55 => &mut self.parameters,
            60 => &mut self.vendor,
            _ => return,
        };
        let room = MAX_OPTION_LENGTH - known.len().min(MAX_OPTION_LENGTH);
        known.extend(value.iter().take(room));
    }

    /// The lease time in seconds; 0xffffffff means infinity (RFC 2131, 3.3).
    pub(super) fn lease(&self) -> Option<Span> {
        let seconds = u32::from_be_bytes(*self.lease.first_chunk()?);
        Some(if seconds == u32::MAX { Span::MAX } else { Span::from_secs(seconds.into()) })
    }

    pub(super) fn client_info(&self) -> ClientInfo {
        let mut fingerprint = String::new();
        for number in &self.parameters {
            let comma = if fingerprint.is_empty() { "" } else { "," };
            let _ = write!(fingerprint, "{comma}{number}");
        }
        ClientInfo {
            fingerprint: (!fingerprint.is_empty()).then(|| fingerprint.into()),
            vendor: text(&self.vendor),
            hostname: text(&self.hostname),
        }
    }
}

/// Converts an option to text, without the NULs that some hosts append (RFC 2132, 2).
fn text(bytes: &[u8]) -> Option<Box<str>> {
    let end = bytes.iter().rposition(|byte| *byte != 0)?;
    let mut text = String::new();
    for (offset, word) in bytes.get(..=end)?.split(|byte| *byte == b' ').enumerate() {
        if offset > 0 {
            text.push(' ');
        }
        escape(&mut text, word, b"");
    }
    Some(text.into())
}
