//! How much a value counts, by the name of its key and by its shape.

/// Weight class of a key with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Differs from run to run by its name or because it is a time: a cache buster, a nonce, a counter.
    Volatile,
    /// Has the shape of a random value, under a name that does not tell. Names an object if it alone
    /// distinguishes recorded requests with different responses.
    Token,
    /// A number of up to seven digits.
    Number,
    /// Any other value.
    Word,
    /// Names an object by the name of its key: another value is another object.
    Identity,
}

/// Shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    /// Digits, so many.
    Number(usize),
    /// A number from 0 to 1 with eight or more decimals.
    Random,
    Time,
    /// A UUID, or a long string of high entropy.
    Token,
    Text,
}

/// Names, in snake case, of values that differ from run to run, of whatever shape, except words.
const VOLATILE_NAMES: &[&str] = &[
    "_",
    "cache_bust",
    "cache_buster",
    "cachebust",
    "cachebuster",
    "cb",
    "correlator",
    "counter",
    "hit",
    "nonce",
    "ord",
    "rand",
    "random",
    "rn",
    "rnd",
    "seq",
    "_s",
    "count_hit",
    "timestamp",
    "ts",
    "utcts",
    "zx",
];
/// Names of values that differ if they are longer than six digits, or tokens.
const VISIT_NAMES: &[&str] = &[
    "_token",
    "access_token",
    "auth",
    "authenticity_token",
    "cid",
    "client_id",
    "client_request_id",
    "correlation_id",
    "csrf",
    "csrf_token",
    "device_id",
    "eid",
    "ei",
    "event_id",
    "exp",
    "expires",
    "expiry",
    "fbclid",
    "gclid",
    "guid",
    "hmac",
    "idempotency_key",
    "instance_id",
    "jsessionid",
    "message_id",
    "msg_id",
    "msgid",
    "page_view_id",
    "phpsessid",
    "pvid",
    "req",
    "req_id",
    "request_id",
    "request_verification_token",
    "rid",
    "session",
    "session_id",
    "sessionid",
    "sid",
    "sig",
    "sign",
    "signature",
    "span_id",
    "tok",
    "token",
    "trace",
    "trace_id",
    "uuid",
    "ved",
    "vid",
    "visit",
    "visit_id",
    "visitor",
    "visitor_id",
    "xsrf",
    "xsrf_token",
];
/// Names of values that name an object, of any shape.
const OBJECT_NAMES: &[&str] = &[
    "article",
    "doc",
    "file",
    "id",
    "ids",
    "item",
    "name",
    "operation",
    "operation_name",
    "path",
    "pid",
    "product",
    "sha256hash",
    "sku",
    "slug",
    "url",
    "user",
    "username",
];
/// Names of values that name an object unless they have the shape of a time or a token.
const CHOICE_NAMES: &[&str] = &[
    "after",
    "before",
    "category",
    "cursor",
    "from",
    "input",
    "iu",
    "key",
    "keyword",
    "keywords",
    "mid",
    "number",
    "offset",
    "p",
    "page",
    "pg",
    "placement",
    "plid",
    "pos",
    "position",
    "q",
    "query",
    "s",
    "search",
    "skip",
    "slot",
    "start",
    "term",
    "text",
    "title",
    "topic",
    "type",
    "unit",
    "variant",
];
/// Ends of names of users, devices and visits, if the value is a token.
const FOREIGN_NAMES: &[&str] = &["_user_id", "device_id", "session_id", "tracker_id", "visitor_id"];
/// Segments of a path that precede the identifier of a visit.
const VISIT_SEGMENTS: &[&str] = &[
    "nonce", "request", "s", "session", "sessions", "sid", "token", "trace", "track", "visit",
    "visits", "visitor",
];

/// Seconds since 1970 that count as times: from 2001 to 2065.
const EPOCHS: std::ops::Range<u64> = 1_000_000_000..3_000_000_000;

/// Classifies the value of a key. A key path of JSON is separated by dots.
pub(super) fn class(key: &str, value: &str) -> Class {
    let shape = shape(value);
    let (above, leaf) = key.rsplit_once('.').unwrap_or(("", key));
    let name = snake(leaf.trim_end_matches("[]"));
    let name = name.as_str();
    let listed = |names: &[&str]| names.contains(&name);
    let is_long = match shape {
        Shape::Number(digits) => digits > 6,
        Shape::Text | Shape::Empty => false,
        Shape::Random | Shape::Time | Shape::Token => true,
    };
    if listed(VOLATILE_NAMES) && shape != Shape::Text || listed(VISIT_NAMES) && is_long {
        return Class::Volatile;
    }
    // The user of another site, as cookie synchronisation passes it on; `user_id` alone is an object.
    if shape == Shape::Token && FOREIGN_NAMES.iter().any(|end| name.ends_with(end)) {
        return Class::Token;
    }
    let is_object = listed(OBJECT_NAMES) || name.ends_with("_id") || name.ends_with("_ids");
    if is_object {
        return Class::Identity;
    }
    let is_choice = listed(CHOICE_NAMES) || above.split('.').any(|part| part == "variables");
    match shape {
        Shape::Time | Shape::Random => Class::Volatile,
        Shape::Token => Class::Token,
        _ if is_choice => Class::Identity,
        Shape::Number(digits) if digits > 7 => Class::Token,
        Shape::Number(_) => Class::Number,
        Shape::Empty | Shape::Text => Class::Word,
    }
}

/// Classifies a segment of a path. `None`: it is compared literally.
pub(super) fn segment_class(before: Option<&str>, segment: &str, is_last: bool) -> Option<Class> {
    let signed = ["hmac=", "sig=", "signature=", "token=", "exp=", "expires="];
    if signed.iter().any(|mark| segment.contains(mark)) {
        return Some(Class::Volatile);
    }
    let shape = shape(segment);
    let follows_visit =
        before.is_some_and(|before| VISIT_SEGMENTS.contains(&before.to_ascii_lowercase().as_str()));
    match shape {
        Shape::Token | Shape::Time if follows_visit => Some(Class::Volatile),
        // A number of ten digits at the end of a path is more often the number of an article.
        Shape::Time if !is_last || segment.len() > 10 => Some(Class::Token),
        _ => None,
    }
}

pub(super) fn shape(value: &str) -> Shape {
    let bytes = value.as_bytes();
    if bytes.is_empty() {
        return Shape::Empty;
    }
    if bytes.iter().all(u8::is_ascii_digit) {
        let seconds =
            |unit: u64| value.parse::<u64>().is_ok_and(|number| EPOCHS.contains(&(number / unit)));
        let is_time = match bytes.len() {
            10 => seconds(1),
            13 => seconds(1_000),
            16 => seconds(1_000_000),
            _ => false,
        };
        return if is_time { Shape::Time } else { Shape::Number(bytes.len()) };
    }
    if let Some((whole, decimals)) = value.split_once('.')
        && whole.len() <= 13
        && (whole.bytes().chain(decimals.bytes())).all(|byte| byte.is_ascii_digit())
    {
        return match (decimals.len(), whole.len()) {
            (_, 10) => Shape::Time,
            (8.., _) => Shape::Random,
            _ => Shape::Number(whole.len()),
        };
    }
    if is_iso(bytes) || is_http_date(bytes) {
        Shape::Time
    } else if is_token(bytes) {
        Shape::Token
    } else {
        Shape::Text
    }
}

/// ISO 8601 with a time of day: a date alone often names an object.
fn is_iso(bytes: &[u8]) -> bool {
    let fits = |pattern: &[u8]| {
        bytes.len() >= pattern.len()
            && pattern.iter().zip(bytes).all(|(mark, byte)| match mark {
                b'9' => byte.is_ascii_digit(),
                b'T' => b"Tt _".contains(byte),
                other => byte == other,
            })
    };
    bytes.len() <= 40 && (fits(b"9999-99-99T99:99") || fits(b"99999999T999999"))
}

/// The dates of HTTP and of `Date.toString` of browsers: a weekday, then digits with `:` between.
fn is_http_date(bytes: &[u8]) -> bool {
    let days: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    let is_day = days.iter().any(|day| bytes.starts_with(day));
    is_day
        && (20..80).contains(&bytes.len())
        && bytes
            .windows(3)
            .any(|three| matches!(three, [a, b':', b] if a.is_ascii_digit() && b.is_ascii_digit()))
}

/// A UUID, hexadecimal digits, or letters and digits of Base64 without the pattern of words.
fn is_token(bytes: &[u8]) -> bool {
    let length = bytes.len();
    if !(16..=4096).contains(&length) {
        return false;
    }
    let count = |test: fn(&u8) -> bool| bytes.iter().filter(|byte| test(byte)).count();
    let digits = count(u8::is_ascii_digit);
    let dashes = count(|byte| *byte == b'-');
    let hex = count(u8::is_ascii_hexdigit);
    if hex + dashes == length && digits > 0 {
        return length - dashes >= 16;
    }
    let (upper, lower) = (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase));
    let others = length - digits - upper - lower;
    let is_base64 =
        bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_+/=.~".contains(byte));
    // Words have digits at their end, if at all, and capitals at their start.
    let changes = bytes.windows(2).filter(|pair| kind(pair.first()) != kind(pair.get(1))).count();
    is_base64
        && others * 6 <= length
        && digits > 0
        && changes * 3 >= length
        && (upper > 0 || digits * 6 >= length)
}

fn kind(byte: Option<&u8>) -> u8 {
    match byte {
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_uppercase() => 1,
        Some(byte) if byte.is_ascii_lowercase() => 2,
        _ => 3,
    }
}

/// Writes a name in snake case: `productId` and `product-ID` become `product_id`.
fn snake(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for byte in name.chars().take(64) {
        if byte.is_ascii_uppercase() && was_lower {
            text.push('_');
        }
        was_lower = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.push(if byte == '-' { '_' } else { byte.to_ascii_lowercase() });
    }
    // Two underscores begin names of frameworks.
    match text.strip_prefix("__") {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_known_by_their_digits() {
        for time in [
            "1575346576",
            "1575346576063",
            "1575346576063123",
            "2023-11-14T22:13:20Z",
            "2023-11-14 22:13",
            "Tue, 14 Nov 2023 22:13:20 GMT",
            "1575346576.063",
        ] {
            assert_eq!(shape(time), Shape::Time, "{time}");
        }
        for other in ["157534657", "9999999999", "2023-11-14", "Monday", "0.25", "15753465760631"] {
            assert_ne!(shape(other), Shape::Time, "{other}");
        }
    }

    #[test]
    fn tokens_differ_from_words() {
        for token in [
            "e81184e9-1a6c-4ef3-9f99-f160551a7dfa",
            "63812215362b0bc00d7a",
            "alKJP1GASAOS7x9Zq0",
            "_sZkQ3v9xT1y0LmN8bVc",
        ] {
            assert_eq!(shape(token), Shape::Token, "{token}");
        }
        for word in [
            "homepage-navigation-2",
            "https://www.example.org/",
            "GTM-P528B3",
            "NorthAmericaRegion",
            "dead",
        ] {
            assert_eq!(shape(word), Shape::Text, "{word}");
        }
    }

    #[test]
    fn the_name_of_a_key_decides_first() {
        assert_eq!(class("productId", "1575346576063"), Class::Identity);
        assert_eq!(class("session_id", "63812215362b0bc00d7a"), Class::Volatile);
        assert_eq!(class("cid", "3690"), Class::Number);
        let user = "52a7b481-e1e1-47f3-b4a2-9530b1c0debc";
        assert_eq!(
            [class("user_id", user), class("x_user_id", user)],
            [Class::Identity, Class::Token]
        );
        assert_eq!(class("x", "63812215362b0bc00d7a"), Class::Token);
        assert_eq!(class("from", "2023-11-14T22:13:20Z"), Class::Volatile);
        assert_eq!(class("from", "20"), Class::Identity);
        assert_eq!(class("variables.first", "20"), Class::Identity);
        assert_eq!(class("_", "summer"), Class::Word);
    }
}
