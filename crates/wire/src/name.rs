//! Host names, as rules match them.

use std::fmt;
use std::sync::Arc;

/// Maximum length in text; 255 bytes on the wire (RFC 1035).
pub(crate) const MAX_NAME_LENGTH: usize = 253;
/// Maximum length of a label (RFC 1035).
const MAX_LABEL_LENGTH: usize = 63;

/// A fully qualified host name: labels of letters, digits, hyphens and underscores, separated by
/// dots, 1 to 253 bytes, in lower case, without a trailing dot, and never an IP address. Names in
/// other scripts are in their `xn--` form. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

impl HostName {
    /// Reads a name in any case, with or without a trailing dot; `None` for an IP address and for
    /// an invalid name.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
        if bytes.is_empty() || bytes.len() > MAX_NAME_LENGTH {
            return None;
        }
        let mut last: &[u8] = &[];
        for label in bytes.split(|byte| *byte == b'.') {
            let fits = (1..=MAX_LABEL_LENGTH).contains(&label.len());
            if !fits || !label.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)) {
                return None;
            }
            last = label;
        }
        // Like browsers (WHATWG URL, 3.5): a name that ends in a number is read as an IPv4 address,
        // and browsers accept more notations than `Ipv4Addr`: 127.1, 0x7f.1, 2130706433.
        let hex = last.strip_prefix(b"0x").or(last.strip_prefix(b"0X"));
        if last.iter().all(u8::is_ascii_digit)
            || hex.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?.to_ascii_lowercase();
        Some(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<String> {
        HostName::parse(text.as_bytes()).map(|name| name.to_string())
    }

    #[test]
    fn a_name_is_lower_case_and_has_no_dot_at_its_end() {
        assert_eq!(parse("WWW.Example.COM.").as_deref(), Some("www.example.com"));
        assert_eq!(parse("_dmarc.a-b.xn--bcher-kva.example").as_deref().map(str::len), Some(32));
        assert_eq!(parse("localhost").as_deref(), Some("localhost"));
        assert_eq!(parse("1.2.3.4.example").as_deref(), Some("1.2.3.4.example"));
    }

    #[test]
    fn an_address_in_any_notation_is_not_a_name() {
        for text in ["192.0.2.1", "127.1", "2130706433", "0x7f.1", "a.0x", "1.2.3.4.", "::1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for text in ["", ".", "..", "a..b", ".a", "a b", "bücher.de", "a/b", "*.a", "a\0", "a.."] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let label = "a".repeat(63);
        assert!(parse(&label).is_some());
        assert_eq!(parse(&format!("{label}a")), None);
        let longest = format!("{label}.{label}.{label}.{}", &label[..61]);
        assert_eq!(longest.len(), 253);
        assert!(parse(&format!("{longest}.")).is_some());
        assert_eq!(parse(&format!("{longest}a")), None);
    }

    proptest! {
        #[test]
        fn a_name_reads_back_the_same(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(name) = HostName::parse(&bytes) {
                prop_assert_eq!(HostName::parse(name.as_str().as_bytes()), Some(name));
            }
        }
    }
}
