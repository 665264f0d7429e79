//! The bounded list of destinations with a separate choice.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use manyways_unit::{Prefix, PrefixMap, Span};

use super::MAX_DESTINATIONS;

#[derive(Debug)]
struct Entry {
    prefix: Prefix,
    mark: u32,
    until: Instant,
}

/// Destinations, oldest first; a destination occurs once.
#[derive(Debug, Default)]
pub(super) struct Destinations(Vec<Entry>);

impl Destinations {
    /// Adds destinations, in place of the same ones; the oldest ones make room.
    pub(super) fn choose(&mut self, prefixes: &[Prefix], mark: u32, ttl: Span, now: Instant) {
        self.forget(prefixes);
        let until = now + Duration::from_nanos(ttl.as_nanos());
        self.0.extend(prefixes.iter().map(|&prefix| Entry { prefix, mark, until }));
        self.expire(now);
        let surplus = self.0.len().saturating_sub(MAX_DESTINATIONS);
        self.0.drain(..surplus);
    }

    pub(super) fn forget(&mut self, prefixes: &[Prefix]) {
        self.0.retain(|entry| !prefixes.contains(&entry.prefix));
    }

    /// Removes the destinations of networks without one of these marks.
    pub(super) fn keep_marks(&mut self, marks: &[u32]) {
        self.0.retain(|entry| marks.contains(&entry.mark));
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|entry| entry.until > now);
    }

    /// Returns the elements of the maps for IPv4 and IPv6: ranges that do not overlap, each with the
    /// choice of the longest prefix.
    pub(super) fn elements(&self, now: Instant) -> [String; 2] {
        let entries = self.0.iter().zip(0_u32..);
        let ranges = PrefixMap::of(entries.map(|(entry, index)| (entry.prefix, index)));
        let mut texts = [String::new(), String::new()];
        for (first, last, index) in ranges.ranges() {
            let Some(Entry { mark, until, .. }) = self.0.get(index as usize) else { continue };
            let left = until.saturating_duration_since(now).as_millis().max(1);
            let text = &mut texts[usize::from(first.is_ipv6())];
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{} timeout {left}ms : {mark:#x}", range(first, last));
        }
        texts
    }
}

/// nft prints no range for a single address, and older versions refuse one.
fn range(first: IpAddr, last: IpAddr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_decides_and_the_last_choice() {
        let now = Instant::now();
        let mut all = Destinations::default();
        let ttl = Span::from_millis(1500);
        all.choose(&[prefix("192.0.2.0/30"), prefix("2001:db8::/127")], 1, ttl, now);
        all.choose(&[prefix("192.0.2.1")], 2, Span::from_secs(9), now);
        let v6 = "2001:db8::-2001:db8::1 timeout 1500ms : 0x1";
        let v4 = "192.0.2.0 timeout 1500ms : 0x1, 192.0.2.1 timeout 9000ms : 0x2, \
                  192.0.2.2-192.0.2.3 timeout 1500ms : 0x1";
        assert_eq!(all.elements(now), [v4, v6]);
        all.choose(&[prefix("192.0.2.1")], 3, ttl, now);
        assert!(all.elements(now)[0].contains("192.0.2.1 timeout 1500ms : 0x3,"));
        all.keep_marks(&[3]);
        assert_eq!(all.elements(now), ["192.0.2.1 timeout 1500ms : 0x3", ""]);
        let later = now + Duration::from_millis(1500);
        all.choose(&[prefix("192.0.2.9")], 2, ttl, later);
        assert_eq!(all.elements(later), ["192.0.2.9 timeout 1500ms : 0x2", ""]);
    }

    #[test]
    fn the_oldest_make_room() {
        let now = Instant::now();
        let mut all = Destinations::default();
        let many: Vec<Prefix> =
            (0..600_u32).map(|n| IpAddr::from((n * 2).to_be_bytes()).into()).collect();
        all.choose(&many, 1, Span::from_secs(9), now);
        assert_eq!(all.0.len(), MAX_DESTINATIONS);
        assert_eq!(all.0.last().map(|entry| entry.prefix), many.last().copied());
    }
}
