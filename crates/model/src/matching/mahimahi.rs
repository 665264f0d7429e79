//! The rule of Mahimahi, as a baseline.

use std::collections::HashMap;

use super::index::Rule;
use super::reading::hash;
use super::request::Request;

/// Place and query of a request.
type Member = (u32, Box<[u8]>);

/// Recorded requests by all that must be equal.
#[derive(Clone, Debug)]
pub(super) struct Mahimahi {
    user_agent: bool,
    /// Places in recorded order, with the queries.
    groups: HashMap<u64, Vec<Member>>,
}

impl Mahimahi {
    /// `None` for another rule.
    pub(super) fn new(rule: Rule) -> Option<Self> {
        let Rule::Mahimahi { user_agent } = rule else { return None };
        Some(Self { user_agent, groups: HashMap::new() })
    }

    pub(super) fn add(&mut self, place: u32, request: &Request<'_>) {
        let group = self.groups.entry(self.group(request)).or_default();
        group.push((place, request.query.unwrap_or_default().into()));
    }

    /// Returns the place of the first request with the longest common prefix.
    pub(super) fn find(&self, request: &Request<'_>) -> Option<usize> {
        let query = request.query.unwrap_or_default();
        let group = self.groups.get(&self.group(request))?;
        // The version of HTTP follows the URL, so that an equal URL is better than a longer one.
        let common = |other: &[u8]| {
            let equal = other.iter().zip(query).take_while(|(a, b)| a == b).count();
            equal + usize::from(other == query)
        };
        let mut best: Option<(usize, u32)> = None;
        for (place, other) in group {
            let length = common(other);
            if best.is_none_or(|(most, _)| length > most) {
                best = Some((length, *place));
            }
        }
        best.map(|(_, place)| place as usize)
    }

    /// Hashes what must be equal. Mahimahi compares the request line before `?`, which includes the
    /// version if there is no `?`: so requests with and without never match. The version itself is not
    /// compared here, nor is the port of Host removed.
    fn group(&self, request: &Request<'_>) -> u64 {
        let agent = if self.user_agent { request.field("user-agent") } else { None };
        let scheme = request.scheme.to_ascii_lowercase();
        hash((
            request.method,
            scheme,
            request.authority,
            request.path,
            request.query.is_some(),
            agent,
        ))
    }
}
