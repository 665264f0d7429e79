//! Server name patterns of a rule.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;

use super::glob::Glob;

/// Maximum length of a name in DNS, in bytes.
const MAX_NAME: usize = 253;

/// `example.com` matches this name, `*.example.com` all names below, `.example.com` both.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Domain {
    text: String,
    /// From the last label to the first.
    labels: Vec<Glob>,
    matches_name: bool,
    matches_subdomains: bool,
}

impl FromStr for Domain {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = || {
            InvalidValue::new(
                text,
                "a domain",
                "a name like example.com, *.example.com (all below it) or .example.com (both), \
                 without a scheme, port or path",
            )
        };
        let (rest, itself, below) = match (text, text.strip_prefix("*."), text.strip_prefix('.')) {
            ("*", ..) => {
                return Ok(Self {
                    text: text.to_owned(),
                    labels: Vec::new(),
                    matches_name: true,
                    matches_subdomains: true,
                });
            }
            (_, Some(rest), _) => (rest, false, true),
            (_, _, Some(rest)) => (rest, true, true),
            _ => (text, true, false),
        };
        // Punycode is only defined for complete labels.
        if rest.split('.').any(|label| !label.is_ascii() && label.contains('*')) {
            return Err(invalid());
        }
        let name = ascii(rest).ok_or_else(invalid)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'*');
        let labels = name
            .rsplit('.')
            .map(|label| match label.len() {
                1..=63 if label.bytes().all(fits) => Glob::ignoring_case(label),
                _ => Err(invalid()),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), labels, matches_name: itself, matches_subdomains: below })
    }
}

impl Domain {
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some(name) = ascii(name) else { return false };
        let mut labels = name.rsplit('.');
        let all = self.labels.iter().all(|glob| labels.next().is_some_and(|one| glob.matches(one)));
        all && if labels.next().is_some() { self.matches_subdomains } else { self.matches_name }
    }

    /// Returns whether all names that match `other` match this pattern. May be false although they
    /// do.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let ends = self.labels.len() <= other.labels.len()
            && self.labels.iter().zip(&other.labels).all(|(a, b)| a == b || a.as_str() == "*");
        match self.labels.len() == other.labels.len() {
            true => {
                ends && (self.matches_name || !other.matches_name)
                    && (self.matches_subdomains || !other.matches_subdomains)
            }
            false => ends && self.matches_subdomains,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Converts a name to its form in DNS: non-ASCII labels in lower case and Punycode, without a
/// trailing dot. `None` if empty or too long.
fn ascii(name: &str) -> Option<Cow<'_, str>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > MAX_NAME {
        return None;
    }
    if name.is_ascii() {
        return Some(Cow::Borrowed(name));
    }
    let labels: Vec<String> = name
        .to_lowercase()
        .split('.')
        .map(|label| if label.is_ascii() { label.to_owned() } else { punycode(label) })
        .collect();
    Some(Cow::Owned(labels.join(".")))
}

/// Encodes a label (RFC 3492, §6.3) with the prefix of RFC 5890. The label is short enough that no
/// operation overflows.
fn punycode(label: &str) -> String {
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = out.len() as u32;
    if basic > 0 {
        out.push('-');
    }
    let total = label.chars().count() as u32;
    let (mut code, mut delta, mut bias, mut done) = (128_u32, 0_u32, 72_u32, basic);
    while done < total {
        let Some(next) = label.chars().map(u32::from).filter(|c| *c >= code).min() else { break };
        delta += (next - code) * (done + 1);
        code = next;
        for c in label.chars().map(u32::from) {
            if c < code {
                delta += 1;
            }
            if c != code {
                continue;
            }
            let mut rest = delta;
            for k in (36..).step_by(36) {
                let threshold = (k as u32).saturating_sub(bias).clamp(1, 26);
                if rest < threshold {
                    break;
                }
                out.push(digit(threshold + (rest - threshold) % (36 - threshold)));
                rest = (rest - threshold) / (36 - threshold);
            }
            out.push(digit(rest));
            bias = adapt(delta, done + 1, done == basic);
            delta = 0;
            done += 1;
        }
        delta += 1;
        code += 1;
    }
    format!("xn--{out}")
}

fn digit(value: u32) -> char {
    char::from_digit(value.saturating_sub(26), 10)
        .filter(|_| value >= 26)
        .unwrap_or(char::from(b'a' + value.min(25) as u8))
}

fn adapt(delta: u32, count: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / count;
    let mut k = 0;
    while delta > 35 * 26 / 2 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        pattern.parse::<Domain>().unwrap().matches(name)
    }

    #[test]
    fn the_name_all_below_it_or_both() {
        assert!(fits("zoom.us", "Zoom.US.") && !fits("zoom.us", "a.zoom.us"));
        assert!(fits("*.zoom.us", "a.b.zoom.us") && !fits("*.zoom.us", "zoom.us"));
        assert!(fits(".zoom.us", "zoom.us") && fits(".zoom.us", "a.zoom.us"));
        assert!(!fits(".zoom.us", "notzoom.us") && !fits("*.zoom.us", "x.notzoom.us"));
        assert!(fits("cdn*.a.com", "cdn12.a.com") && !fits("cdn*.a.com", "cdn.x.a.com"));
        assert!(fits("a.*.com", "a.b.com") && !fits("a.*.com", "a.com"));
        assert!(fits("*", "localhost") && !fits("*", ""));
        assert!(!fits("*", &"a".repeat(254)));
    }

    #[test]
    fn other_scripts_are_compared_as_dns_has_them() {
        // RFC 3492, §7.1, and names that exist.
        assert_eq!(punycode("bücher"), "xn--bcher-kva");
        assert_eq!(punycode("他们为什么不说中文"), "xn--ihqwcrb4cv8a8dqg056pqjye");
        assert_eq!(
            punycode("почемужеонинеговорятпорусски"),
            "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l"
        );
        assert!(fits("*.BÜCHER.example", "www.xn--bcher-kva.example"));
        assert!(fits("xn--bcher-kva.example", "Bücher.example"));
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for text in ["", ".", "*.", "a..b", "https://a.com", "a.com:443", "a.com/x", "ü*.de"] {
            assert!(text.parse::<Domain>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics_and_each_fits_itself(name in "\\PC{1,40}") {
            let _ = name.parse::<Domain>().map(|domain| domain.matches(&name));
            if let Some(plain) = ascii(&name) {
                prop_assert!(plain.is_ascii());
            }
        }

        #[test]
        fn what_covers_another_fits_whatever_that_fits(
            a in "[.]?([ab]|\\*){1}(\\.[ab]){0,2}",
            b in "[.]?([ab]|\\*){1}(\\.[ab]){0,2}",
            name in "[ab](\\.[ab]){0,4}",
        ) {
            if let (Ok(a), Ok(b)) = (a.parse::<Domain>(), b.parse::<Domain>()) {
                prop_assert!(!a.covers(&b) || !b.matches(&name) || a.matches(&name));
            }
        }
    }
}
