//! The static and the dynamic table (RFC 7541, 2.3).

use std::collections::VecDeque;

use super::ENTRY_OVERHEAD;

/// Entries with the indices 1 to 61 (RFC 7541, Appendix A).
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""),
    ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// Both tables of a direction.
#[derive(Debug)]
pub(super) struct Table {
    /// The dynamic table, the newest first.
    entries: VecDeque<Entry>,
    /// Of all entries, with their overhead.
    size: usize,
    max_size: usize,
}

#[derive(Debug)]
struct Entry {
    /// The name, then the value.
    bytes: Box<[u8]>,
    name_length: usize,
}

impl Entry {
    fn size(&self) -> usize {
        self.bytes.len() + ENTRY_OVERHEAD
    }
}

impl Table {
    pub(super) fn new(max_size: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size }
    }

    /// Returns the name and value with an index, from 1.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - STATIC.len())?;
        entry.bytes.split_at_checked(entry.name_length)
    }

    /// Adds an entry, for which older ones give way. If it is larger than the table, that becomes
    /// empty (RFC 7541, 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let entry = Entry { bytes: [name, value].concat().into(), name_length: name.len() };
        self.evict(self.max_size.saturating_sub(entry.size()));
        if entry.size() <= self.max_size {
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// Removes the oldest entries until the rest fits.
    fn evict(&mut self, max_size: usize) {
        while self.size > max_size {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size -= entry.size();
        }
    }

    /// The entries of the dynamic table as "NAME: VALUE", and its size.
    #[cfg(test)]
    pub(super) fn dump(&self) -> (Vec<String>, usize) {
        let line = |index| {
            let (name, value) = self.get(index).unwrap();
            format!("{}: {}", name.escape_ascii(), value.escape_ascii())
        };
        let indices = STATIC.len() + 1..=STATIC.len() + self.entries.len();
        (indices.map(line).collect(), self.size)
    }
}
