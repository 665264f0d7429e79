//! Limits that an endpoint sets for the frames of the other one (RFC 9113, 6.5).

use std::collections::VecDeque;

use super::frame::MAX_FRAME_LENGTH;
use super::hpack::INITIAL_TABLE_SIZE;

/// Maximum number of SETTINGS frames without an acknowledgment. Endpoints send one or two.
const MAX_UNACKNOWLEDGED: usize = 64;
const INITIAL_FRAME_LENGTH: usize = 16_384;

/// `SETTINGS_HEADER_TABLE_SIZE` and `SETTINGS_MAX_FRAME_SIZE`.
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_FRAME_SIZE: u16 = 5;

#[derive(Clone, Copy, Debug)]
struct Limits {
    table_size: usize,
    frame_length: usize,
}

/// The settings that one endpoint sends.
#[derive(Debug)]
pub(super) struct Settings {
    /// The last ones that the other endpoint has acknowledged.
    acknowledged: Limits,
    /// Those of later frames, the oldest first.
    unacknowledged: VecDeque<Limits>,
    /// With the settings that were read of a frame that is not complete.
    last: Limits,
    /// The beginning of the next setting, in a frame that is not complete.
    setting: Vec<u8>,
}

impl Default for Settings {
    fn default() -> Self {
        let initial = Limits { table_size: INITIAL_TABLE_SIZE, frame_length: INITIAL_FRAME_LENGTH };
        Self {
            acknowledged: initial,
            unacknowledged: VecDeque::new(),
            last: initial,
            setting: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads bytes of a frame.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for byte in bytes {
            self.setting.push(*byte);
            let [high, low, value @ ..] = &self.setting[..] else { continue };
            let Ok(value) = <[u8; 4]>::try_from(value) else { continue };
            let value = usize::try_from(u32::from_be_bytes(value)).unwrap_or(usize::MAX);
            match u16::from_be_bytes([*high, *low]) {
                HEADER_TABLE_SIZE => self.last.table_size = value,
                MAX_FRAME_SIZE if (INITIAL_FRAME_LENGTH..=MAX_FRAME_LENGTH).contains(&value) => {
                    self.last.frame_length = value;
                }
                MAX_FRAME_SIZE => return Err("an invalid maximum length of frames"),
                _ => {}
            }
            self.setting.clear();
        }
        Ok(())
    }

    /// Ends a frame.
    pub(super) fn announce(&mut self) -> Result<(), &'static str> {
        if self.unacknowledged.len() >= MAX_UNACKNOWLEDGED {
            return Err("more settings than are acknowledged");
        }
        self.unacknowledged.push_back(self.last);
        Ok(())
    }

    /// The other endpoint has acknowledged the oldest frame.
    pub(super) fn acknowledge(&mut self) {
        if let Some(limits) = self.unacknowledged.pop_front() {
            self.acknowledged = limits;
        }
    }

    /// Maximum size of the dynamic table of the other endpoint's encoder. It may use new settings
    /// shortly before it acknowledges them, but must use them afterwards. Its table keeps its size
    /// until the encoder changes it, also where RFC 9113, 4.3.1 demands that change.
    pub(super) fn max_table_size(&self) -> usize {
        self.max(|limits| limits.table_size)
    }

    /// Maximum length of the other endpoint's frames, without their header.
    pub(super) fn max_frame_length(&self) -> usize {
        self.max(|limits| limits.frame_length)
    }

    fn max(&self, limit: fn(&Limits) -> usize) -> usize {
        let new = self.unacknowledged.iter().map(limit).max();
        limit(&self.acknowledged).max(new.unwrap_or_default())
    }
}
