//! Time, spans, rates and sizes. The unit is in the type, so that no field needs a suffix like
//! `_ms`.

use std::fmt;
use std::iter::Sum;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A point in time: nanoseconds since an origin that the caller chooses, such as the start of a
/// run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(Nanos);

/// A duration in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(Nanos);

/// A data rate in bit/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(u64);

/// Nanoseconds plus one, as a non-zero number: `Option<Time>` is then as small as `Time`, which
/// matters for a million flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Nanos(NonZeroU64);

impl Nanos {
    /// Stores `nanos`; `u64::MAX` is stored as `u64::MAX - 1`.
    const fn new(nanos: u64) -> Self {
        match NonZeroU64::new(nanos.saturating_add(1)) {
            Some(more) => Self(more),
            None => Self(NonZeroU64::MIN),
        }
    }

    const fn get(self) -> u64 {
        self.0.get() - 1
    }
}

impl Default for Nanos {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Time {
    /// The origin.
    pub const ZERO: Self = Self::from_nanos(0);
    /// Later than every other time.
    pub const MAX: Self = Self::from_nanos(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin; at most [`Time::MAX`].
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Nanos::new(nanos))
    }

    /// Returns the time `millis` milliseconds after the origin; at most [`Time::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_nanos(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0.get()
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.as_nanos() as f64 / NANOS_PER_SEC as f64
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    /// Returns the time between both, whichever is earlier.
    pub const fn distance(self, other: Self) -> Span {
        Span::from_nanos(self.as_nanos().abs_diff(other.as_nanos()))
    }
}

impl Span {
    pub const ZERO: Self = Self::from_nanos(0);
    /// Longer than any experiment.
    pub const MAX: Self = Self::from_nanos(u64::MAX);

    /// At most [`Span::MAX`].
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Nanos::new(nanos))
    }

    /// Saturates at [`Span::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        Self::from_nanos(micros.saturating_mul(1_000))
    }

    /// Saturates at [`Span::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_nanos(millis.saturating_mul(1_000_000))
    }

    /// Saturates at [`Span::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_nanos(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Rounds to a nanosecond. Negative numbers and NaN become zero; too large numbers saturate.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self::from_nanos((secs * NANOS_PER_SEC as f64).round() as u64)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0.get()
    }

    pub fn as_secs_f64(self) -> f64 {
        self.as_nanos() as f64 / NANOS_PER_SEC as f64
    }

    pub fn as_millis_f64(self) -> f64 {
        self.as_nanos() as f64 / 1e6
    }

    /// Returns the difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(other.as_nanos()))
    }

    pub const fn is_zero(self) -> bool {
        self.as_nanos() == 0
    }
}

impl Rate {
    /// Zero bit/s.
    pub const ZERO: Self = Self(0);

    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// 1 kbit = 1000 bit; saturates.
    pub const fn from_kbps(kbps: u64) -> Self {
        Self(kbps.saturating_mul(1_000))
    }

    /// 1 Mbit = 10^6 bit; saturates.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// Returns the rate that transfers `size` in `span`; zero if `span` is zero.
    pub fn of(size: Size, span: Span) -> Self {
        if span.is_zero() {
            return Self::ZERO;
        }
        let bits = u128::from(size.0) * 8 * u128::from(NANOS_PER_SEC);
        Self(u64::try_from(bits / u128::from(span.as_nanos())).unwrap_or(u64::MAX))
    }

    pub const fn as_bps(self) -> u64 {
        self.0
    }

    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time that `size` takes at this rate, rounded up; [`Span::MAX`] at rate zero.
    pub fn time_for(self, size: Size) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let bits = u128::from(size.0) * 8 * u128::from(NANOS_PER_SEC);
        let nanos = bits.div_ceil(u128::from(self.0));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the size that is transferred in `span`, rounded down to whole bytes.
    pub fn size_in(self, span: Span) -> Size {
        let bits = u128::from(self.0) * u128::from(span.as_nanos()) / u128::from(NANOS_PER_SEC);
        Size(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Size {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);
    /// `u64::MAX` bytes; also the result of sums that do not fit.
    pub const MAX: Self = Self(u64::MAX);

    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// 1 KiB = 1024 bytes; saturates.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1024))
    }

    /// 1 MiB = 2^20 bytes; saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1024 * 1024))
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// In bits; never overflows.
    pub const fn as_bits(self) -> u128 {
        self.0 as u128 * 8
    }

    /// Returns the difference, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(span.as_nanos()))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(span.as_nanos()))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self::from_nanos(self.as_nanos().saturating_mul(factor))
    }
}

/// Sums saturate: a sum that does not fit means "forever" or "unlimited".
macro_rules! sums {
    ($($unit:ident: $make:ident, $number:ident;)*) => {$(
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self::$make(self.$number().saturating_add(other.$number()))
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $unit {
            type Output = Self;
            /// Saturates at zero.
            fn sub(self, other: Self) -> Self {
                Self::$make(self.$number().saturating_sub(other.$number()))
            }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::ZERO, Add::add)
            }
        }
    )*};
}
sums! {
    Span: from_nanos, as_nanos;
    Rate: from_bps, as_bps;
    Size: from_bytes, as_bytes;
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.as_nanos())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        match nanos {
            0 => f.write_str("0 s"),
            1..1_000 => write!(f, "{} ns", nanos),
            1_000..1_000_000 => write!(f, "{} µs", trim(nanos as f64 / 1e3)),
            1_000_000..NANOS_PER_SEC => write!(f, "{} ms", trim(nanos as f64 / 1e6)),
            _ => write!(f, "{} s", trim(nanos as f64 / 1e9)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{} kbit/s", trim(self.0 as f64 / 1e3)),
            1_000_000..1_000_000_000 => write!(f, "{} Mbit/s", trim(self.0 as f64 / 1e6)),
            _ => write!(f, "{} Gbit/s", trim(self.0 as f64 / 1e9)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Decimal units, as for links, disks and rates.
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{} KB", trim(self.0 as f64 / 1e3)),
            1_000_000..1_000_000_000 => write!(f, "{} MB", trim(self.0 as f64 / 1e6)),
            _ => write!(f, "{} GB", trim(self.0 as f64 / 1e9)),
        }
    }
}

/// At most two decimals and no trailing zeros: `32.5`, `10`, `0.13`.
fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_for_rounds_up_and_size_in_rounds_down() {
        let rate = Rate::from_bps(3);
        assert_eq!(rate.time_for(Size::from_bytes(1)), Span::from_nanos(2_666_666_667));
        assert_eq!(rate.size_in(Span::from_nanos(2_666_666_666)), Size::ZERO);
        assert_eq!(rate.size_in(Span::from_nanos(2_666_666_667)), Size::from_bytes(1));
        assert_eq!(Rate::ZERO.time_for(Size::from_bytes(1)), Span::MAX);
    }

    #[test]
    fn an_optional_moment_is_as_small_as_a_moment() {
        assert_eq!(size_of::<Option<Time>>(), size_of::<u64>());
        assert_eq!(size_of::<Option<Span>>(), size_of::<u64>());
        assert_eq!(Time::from_nanos(u64::MAX), Time::MAX);
        assert_eq!(Time::MAX.as_nanos(), u64::MAX - 1);
        assert_eq!(Time::default(), Time::ZERO);
        assert_eq!(format!("{:?}", Time::from_nanos(7)), "Time(7)");
        assert_eq!(Span::MAX + Span::from_nanos(1), Span::MAX);
        assert!(Time::ZERO < Time::from_nanos(1) && Time::from_nanos(9) < Time::MAX);
    }

    #[test]
    fn display_chooses_the_unit() {
        assert_eq!(Span::from_micros(32_500).to_string(), "32.5 ms");
        assert_eq!(Rate::from_kbps(2_500_000).to_string(), "2.5 Gbit/s");
        assert_eq!(Size::from_bytes(128_000).to_string(), "128 KB");
        assert_eq!(Size::from_mib(8).to_string(), "8.39 MB");
    }
}
