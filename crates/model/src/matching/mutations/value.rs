//! Values and their roles.

use manyways_unit::Random;

/// The role of a value in a request, which decides what a second run does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The same in each run.
    Fixed,
    /// Names the object, among numbers of up to so many digits.
    Number(u32),
    /// Names the object by a word.
    Word,
    /// Names the object by a hash of so many hexadecimal digits.
    Hash(usize),
    /// Names the object by a UUID.
    Identifier,
    /// Seconds since 1970.
    Seconds,
    Milliseconds,
    Microseconds,
    /// ISO 8601.
    Iso,
    /// The date format of HTTP (RFC 9110, 5.6.7).
    HttpDate,
    Uuid,
    Hex(usize),
    /// Letters and digits.
    Base62(usize),
    /// Base64 with the alphabet of URLs.
    Base64(usize),
    /// A random whole number of so many digits.
    Digits(u32),
    /// A random number from 0 to 1.
    Fraction,
    /// Measured by the client, up to so much.
    Measured(u64),
    /// Counts requests or visits.
    Counter,
}

/// A value with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub role: Role,
}

impl Role {
    /// Whether another value names the same object.
    pub fn is_volatile(self) -> bool {
        !matches!(self, Self::Fixed) && !self.names_object()
    }

    pub fn names_object(self) -> bool {
        matches!(self, Self::Number(_) | Self::Word | Self::Hash(_) | Self::Identifier)
    }

    /// Draws a text of this role; `None` for a fixed one. `now` is in seconds since 1970.
    pub fn draw(self, random: &mut Random, now: u64) -> Option<String> {
        let micros = now * 1_000_000 + random.up_to(40_000_000);
        Some(match self {
            Self::Fixed => return None,
            Self::Number(digits) => (1 + random.up_to(10_u64.pow(digits) - 2)).to_string(),
            Self::Word => word(random),
            Self::Hash(length) | Self::Hex(length) => letters(random, b"0123456789abcdef", length),
            Self::Identifier | Self::Uuid => uuid(random),
            Self::Seconds => (micros / 1_000_000).to_string(),
            Self::Milliseconds => (micros / 1_000).to_string(),
            Self::Microseconds => micros.to_string(),
            Self::Iso => iso(micros),
            Self::HttpDate => http_date(micros / 1_000_000),
            Self::Base62(length) => letters(random, ALPHABET.split_at(62).0, length),
            Self::Base64(length) => letters(random, ALPHABET, length),
            Self::Digits(digits) => {
                let least = 10_u64.pow(digits - 1);
                (least + random.up_to(9 * least - 1)).to_string()
            }
            Self::Fraction => format!("0.{:016}", random.up_to(9_999_999_999_999_999)),
            Self::Measured(most) => random.up_to(most).to_string(),
            Self::Counter => (1 + random.up_to(40)).to_string(),
        })
    }
}

impl Value {
    pub fn fixed(text: impl Into<String>) -> Self {
        Self { text: text.into(), role: Role::Fixed }
    }

    /// Returns the text, percent-encoded as in a path or query.
    pub fn encoded(&self) -> String {
        encode(&self.text)
    }
}

/// Percent-encodes all but unreserved characters and some that browsers leave.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!*'(),:@=;".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn letters(random: &mut Random, alphabet: &[u8], length: usize) -> String {
    (0..length)
        .map(|_| {
            let place = random.up_to(alphabet.len() as u64 - 1) as usize;
            char::from(alphabet.get(place).copied().unwrap_or(b'0'))
        })
        .collect()
}

fn uuid(random: &mut Random) -> String {
    let mut hex = |length| letters(random, b"0123456789abcdef", length);
    format!("{}-{}-4{}-a{}-{}", hex(8), hex(4), hex(3), hex(3), hex(12))
}

/// A word of two to four syllables, sometimes two words.
pub(super) fn word(random: &mut Random) -> String {
    const STARTS: &[&str] =
        &["b", "d", "f", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "ch"];
    const ENDS: &[&str] = &["a", "e", "i", "o", "u", "an", "er", "in", "or", "um", "ea"];
    let syllables = 2 + random.up_to(2);
    let mut text: String =
        (0..syllables).map(|_| format!("{}{}", pick(random, STARTS), pick(random, ENDS))).collect();
    if random.chance(0.15) {
        text = format!("{text} {}", word(random));
    }
    text
}

/// Returns one of several.
pub(super) fn pick<'t, T: ?Sized>(random: &mut Random, all: &[&'t T]) -> &'t T {
    all[random.up_to(all.len() as u64 - 1) as usize]
}

/// Year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

fn iso(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    let millis = micros / 1_000 % 1_000;
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{millis:03}Z", seconds % 60)
}

fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds / 86_400;
    let (year, month, day) = date(days);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize - 1]);
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{:02} GMT", seconds % 60)
}
