//! Requests that are answered without the index, because only one recorded exchange is possible.
//!
//! Reading and comparing a request takes longer than writing a short response. If a path was recorded
//! once, and the index found its exchange for a request, then it finds the same for an equal one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use manyways_model::matching::{Hit, Request};

use super::Contents;

/// Maximum number of URLs.
const MAX_URLS: usize = 4_096;

/// Answers that were given.
#[derive(Debug, Default)]
pub(super) struct Shortcut {
    /// Whether the path of the exchange was recorded once.
    is_single: Vec<bool>,
    known: HashMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    method: String,
    scheme: String,
    authority: String,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    exchange: usize,
}

impl Shortcut {
    pub(super) fn new(contents: &Contents) -> Self {
        // The rule of Mahimahi is fast, and has no state.
        if !contents.is_ours() {
            return Self::default();
        }
        let exchanges = &contents.archive().exchanges;
        let path = |url: &str| {
            let request = Request::from_url("", url);
            // An encoded path may be equal to another one.
            request.map(|request| request.path.to_vec()).filter(|path| !path.contains(&b'%'))
        };
        let paths: Vec<Option<Vec<u8>>> =
            exchanges.iter().map(|exchange| path(&exchange.request.url)).collect();
        let has_encoded = paths.iter().any(Option::is_none);
        let mut count: HashMap<&[u8], usize> = HashMap::new();
        for path in paths.iter().flatten() {
            *count.entry(path).or_default() += 1;
        }
        let is_plain = |exchange: usize| {
            let status = contents.prepared(exchange).map(|prepared| prepared.status);
            status.is_some_and(|status| !matches!(status, 206 | 304 | 416))
        };
        let is_single = paths.iter().enumerate().map(|(exchange, path)| {
            let count = path.as_ref().and_then(|path| count.get(path.as_slice()));
            count == Some(&1) && !has_encoded && is_plain(exchange)
        });
        Self { is_single: is_single.collect(), known: HashMap::new() }
    }

    /// Returns the exchange that answers a request.
    pub(super) fn find(&self, request: &Request<'_>) -> Option<usize> {
        if self.known.is_empty() || !is_simple(request) {
            return None;
        }
        let known = self.known.get(&hash(request))?;
        let is_equal = known.method == request.method
            && known.scheme == request.scheme
            && known.authority == request.authority
            && known.path == request.path
            && known.query.as_deref() == request.query;
        is_equal.then_some(known.exchange)
    }

    /// Remembers an answer of the index.
    pub(super) fn learn(&mut self, request: &Request<'_>, hit: Hit) {
        let is_single = self.is_single.get(hit.id) == Some(&true);
        if !is_single || !is_simple(request) || self.known.len() >= MAX_URLS {
            return;
        }
        let known = Known {
            method: request.method.to_owned(),
            scheme: request.scheme.to_owned(),
            authority: request.authority.to_owned(),
            path: request.path.to_vec(),
            query: request.query.map(<[u8]>::to_vec),
            exchange: hit.id,
        };
        self.known.insert(hash(request), known);
    }
}

/// Whether only method and URL count.
fn is_simple(request: &Request<'_>) -> bool {
    let counts = |name: &str| match name.len() {
        5 => name.eq_ignore_ascii_case("range"),
        13 => name.eq_ignore_ascii_case("if-none-match"),
        17 => name.eq_ignore_ascii_case("if-modified-since"),
        _ => false,
    };
    request.body.is_empty() && !request.fields.iter().any(|(name, _)| counts(name))
}

fn hash(request: &Request<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.method, request.scheme, request.authority, request.path, request.query)
        .hash(&mut hasher);
    hasher.finish()
}
