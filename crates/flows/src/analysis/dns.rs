//! Row of a DNS query and its response.

use super::tcp;
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};
use manyways_wire::dns::{Lookup, Response, Transport};

fn reply<T>(row: &Lookup, what: impl Fn(&Response) -> T) -> Option<T> {
    row.response.as_ref().map(what)
}

/// A [`Lookup`] as a row of the table `dns`.
#[derive(Clone, Debug)]
pub struct LookupRow(pub Lookup);

impl std::ops::Deref for LookupRow {
    type Target = Lookup;

    fn deref(&self) -> &Lookup {
        &self.0
    }
}

impl Row for LookupRow {
    const TABLE: &'static str = "dns";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A DNS query and its response.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "client" Address "Address of the client." |row| tcp::address(row.client);
        "client_port" Count "Its port." |row| row.client.port();
        "server" Address "Address of the name server." |row| tcp::address(row.server);
        "transport" Text "udp or tcp."
            |row| if row.transport == Transport::Udp { "udp" } else { "tcp" };
        "id" Count "ID of the query." |row| row.id;
        "name" Name "Name in the query." |row| row.question.as_ref().map(|q| &*q.name);
        "kind" Text "Record type of the query: A, AAAA, HTTPS and so on."
            |row| row.question.as_ref().map(|question| question.kind.to_string());
        "asked" Time "Time of the first query; none if the capture began later." |row| row.queried_at;
        "times" Count "Number of queries." |row| row.queries;
        "answered" Time "Time of the response." |row| reply(row, |reply| reply.at);
        "latency" Span "From the first query to the response." |row| row.latency();
        "is_ambiguous" Flag "The query was repeated before the response: the true latency may be less."
            |row| row.is_ambiguous;
        "code" Text "Response code: NOERROR, NXDOMAIN and so on."
            |row| reply(row, |reply| reply.rcode.to_string());
        "answers" Count "Number of records in the response." |row| reply(row, |reply| reply.answer_count);
        "addresses" Address "Addresses in the response, separated by spaces."
            |row| reply(row, |reply| {
                reply.addresses.iter().map(|a| a.to_string()).collect::<Vec<_>>().join(" ")
            });
        "canonical" Name "Canonical name: the last of the CNAME chain."
            |row| row.response.as_ref().and_then(|reply| reply.canonical_name.as_deref());
        "ttl" Span "Time to live of the response." |row| reply(row, |reply| reply.ttl);
        "is_truncated" Flag "The server truncated the response." |row| reply(row, |r| r.is_truncated);
        "is_partial" Flag "The capture truncated the response." |row| reply(row, |reply| reply.is_incomplete);
    };
}
