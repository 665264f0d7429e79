//! Row of a DNS query and its response.

use super::tcp;
use crate::columns::columns;
use manyways_record::table::{Column, Row};
use manyways_wire::dns::{Lookup, Reply, Transport};

fn reply<T>(row: &Lookup, what: impl Fn(&Reply) -> T) -> Option<T> {
    row.reply.as_ref().map(what)
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
    const ABOUT: &'static str = "A question to a name server, and its answer.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "client" Address "Address of who asked." |row| tcp::address(row.client);
        "client_port" Count "Its port." |row| row.client.port();
        "server" Address "Address of the name server." |row| tcp::address(row.server);
        "transport" Text "udp or tcp."
            |row| if row.transport == Transport::Udp { "udp" } else { "tcp" };
        "id" Count "The number of the question." |row| row.id;
        "name" Name "The name that was asked for." |row| row.question.as_ref().map(|q| &*q.name);
        "kind" Text "What was asked about it: A, AAAA, HTTPS and so on."
            |row| row.question.as_ref().map(|question| question.kind.to_string());
        "asked" Time "When it was asked first; none where the capture began later." |row| row.asked;
        "times" Count "How often it was asked." |row| row.times;
        "answered" Time "When the answer passed." |row| reply(row, |reply| reply.at);
        "latency" Span "From the first question to the answer." |row| row.latency();
        "is_ambiguous" Flag "It was asked again before the answer came: the latency may be less."
            |row| row.is_ambiguous;
        "code" Text "The answer's code: NOERROR, NXDOMAIN and so on."
            |row| reply(row, |reply| reply.code.to_string());
        "answers" Count "How many records the answer has." |row| reply(row, |reply| reply.answers);
        "addresses" Address "The addresses in it, with spaces between."
            |row| reply(row, |reply| {
                reply.addresses.iter().map(|a| a.to_string()).collect::<Vec<_>>().join(" ")
            });
        "canonical" Name "The last name of its chain of aliases."
            |row| row.reply.as_ref().and_then(|reply| reply.canonical.as_deref());
        "lifetime" Span "For how long it may be believed." |row| reply(row, |reply| reply.lifetime);
        "is_truncated" Flag "The server left something out." |row| reply(row, |r| r.is_truncated);
        "is_partial" Flag "The capture cut it." |row| reply(row, |reply| reply.is_partial);
    };
}
