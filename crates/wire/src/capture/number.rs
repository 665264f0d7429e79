//! Numbers in a file, and timestamps.

use manyways_unit::Time;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The number at `at`; 0 if `bytes` end before.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let Some(bytes) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { return 0 };
        match self {
            Self::Little => u16::from_le_bytes(*bytes),
            Self::Big => u16::from_be_bytes(*bytes),
        }
    }

    /// The number at `at`; 0 if `bytes` end before.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let Some(bytes) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { return 0 };
        match self {
            Self::Little => u32::from_le_bytes(*bytes),
            Self::Big => u32::from_be_bytes(*bytes),
        }
    }

    /// The four numbers in `bytes`.
    #[inline]
    pub(super) fn four_u32(self, bytes: &[u8; 16]) -> [u32; 4] {
        let number = |at| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let numbers = [number(0), number(4), number(8), number(12)];
        match self {
            Self::Little => numbers.map(u32::from_le_bytes),
            Self::Big => numbers.map(u32::from_be_bytes),
        }
    }

    /// The number at `at`; 0 if `bytes` end before.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let Some(bytes) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { return 0 };
        match self {
            Self::Little => u64::from_le_bytes(*bytes),
            Self::Big => u64::from_be_bytes(*bytes),
        }
    }
}

/// Resolution of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// Nanoseconds per tick.
    Nanos(u64),
    /// Ticks per nanosecond.
    PerNano(u64),
    /// 2^-n seconds per tick, for n up to 127.
    Binary(u8),
}

impl Tick {
    /// Reads the option `if_tsresol` of pcapng: a negative exponent of ten or, with the highest
    /// bit, of two.
    pub(super) fn from_option(byte: u8) -> Self {
        let exponent = u32::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            return Self::Binary(byte & 0x7f);
        }
        match exponent {
            0..=9 => Self::Nanos(10_u64.pow(9 - exponent)),
            // If the number of ticks per nanosecond overflows, all times are 0.
            _ => Self::PerNano(10_u64.checked_pow(exponent - 9).unwrap_or(u64::MAX)),
        }
    }

    /// The time after this number of ticks and seconds.
    #[inline]
    pub(super) fn time(self, ticks: u64, seconds: i64) -> Time {
        // The common case: both products are below 2^62, because a tick has at most 2^30 ns.
        if let (Self::Nanos(nanos), Ok(ticks), Ok(seconds)) =
            (self, u32::try_from(ticks), u32::try_from(seconds))
        {
            let seconds = u64::from(seconds) * NANOS_PER_SEC;
            return Time::from_nanos(u64::from(ticks) * nanos + seconds);
        }
        self.any_time(ticks, seconds)
    }

    fn any_time(self, ticks: u64, seconds: i64) -> Time {
        let nanos = match self {
            Self::Nanos(nanos) => u128::from(ticks) * u128::from(nanos),
            Self::PerNano(ticks_per_nano) => u128::from(ticks / ticks_per_nano),
            Self::Binary(exponent) => (u128::from(ticks) * u128::from(NANOS_PER_SEC)) >> exponent,
        };
        // The terms are below 2^95 and 2^93.
        let nanos = nanos as i128 + i128::from(seconds) * i128::from(NANOS_PER_SEC);
        Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
