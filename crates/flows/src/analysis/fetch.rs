//! Row of a resource that a client fetched in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manyways_unit::Time;

use super::HttpTransaction;
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};

/// A resource that a client fetched in parts, in any number of flows: typically a video (campus
/// Wi-Fi paper, figure 11).
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    client: IpAddr,
    host: Option<String>,
    resource: u64,
    content_type: Option<String>,
    first: Time,
    last: Time,
    flows: BTreeSet<u64>,
    requests: u64,
    bytes: u64,
    /// The largest offset of a received byte, plus one.
    end_offset: u64,
    size: Option<u64>,
}

/// Groups range requests by client and resource.
pub(super) fn fetches(rows: &[Box<HttpTransaction>]) -> Vec<Fetch> {
    let mut all: BTreeMap<(IpAddr, u64), Fetch> = BTreeMap::new();
    for row in rows {
        let Some(request) = &row.transaction.request else { continue };
        let response = row.transaction.response.as_ref();
        let range = response.and_then(|response| response.content_range.as_deref());
        let Some(resource) =
            request.resource.filter(|_| request.range.is_some() || range.is_some())
        else {
            continue;
        };
        let fetch = all.entry((row.client.ip(), resource)).or_insert_with(|| Fetch {
            client: row.client.ip(),
            host: row.host(),
            resource,
            content_type: None,
            first: request.first,
            last: request.last,
            flows: BTreeSet::new(),
            requests: 0,
            bytes: 0,
            end_offset: 0,
            size: None,
        });
        fetch.requests += 1;
        fetch.flows.insert(row.id.0);
        fetch.first = fetch.first.min(request.first);
        let Some(response) = response else { continue };
        fetch.last = fetch.last.max(response.last);
        fetch.bytes += response.body.byte_count();
        if let Some(range) = range {
            fetch.end_offset =
                fetch.end_offset.max(range.range.map_or(0, |part| part.1.saturating_add(1)));
            fetch.size = fetch.size.or(range.complete_length);
        }
        if fetch.content_type.is_none() {
            fetch.content_type = response.content_type.as_deref().map(str::to_owned);
        }
    }
    let mut all: Vec<Fetch> = all.into_values().collect();
    all.sort_by_key(|fetch| (fetch.first, fetch.client, fetch.resource));
    all
}

impl Row for Fetch {
    const TABLE: &'static str = "fetches";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A resource that a client fetched in parts over HTTP/1.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "client" Address "Address of the client." |row| row.client;
        "host" Name "Host of the resource." |row| row.host.as_deref();
        "resource" Name "The hash of host and target, as in the table http."
            |row| format!("{:016x}", row.resource);
        "content_type" Text "The content type without parameters." |row| row.content_type.as_deref();
        "first" Time "Time of the first request for a part." |row| row.first;
        "last" Time "Time of the last byte of a part." |row| row.last;
        "flows" Count "Number of flows." |row| row.flows.len() as u64;
        "requests" Count "Number of requests." |row| row.requests;
        "bytes" Count "Bytes of all parts, including repeated ones." |row| row.bytes;
        "end_offset" Count "End offset of the received bytes." |row| row.end_offset;
        "size" Count "Length of the whole resource, in bytes." |row| row.size;
    };
}
