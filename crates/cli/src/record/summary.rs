//! The contents of a recording in a few lines, and the traffic that it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use manyways_net::record::{Note, Recording, ServerKey};
use manyways_unit::Size;
use manyways_unit::human::count_with_noun;
use manyways_wire::archive::{Archive, Exchange, Protocol, TunnelReason};
use serde::Serialize;

/// The JSON document of `record --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordSummary {
    archive: String,
    exchanges: usize,
    /// Without a complete response.
    aborted: usize,
    connections: usize,
    servers: usize,
    http1: usize,
    http2: usize,
    body_bytes: u64,
    /// Bodies of which only the length was recorded.
    lost_bodies: u64,
    tunnelled: Vec<TunnelledServer>,
    notes: Vec<NoteCount>,
}
manyways_record::document!(RecordSummary, "manyways.record/1");

/// Connections to a server that were passed on unread.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct TunnelledServer {
    server: String,
    reason: &'static str,
    connections: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct NoteCount {
    kind: &'static str,
    server: String,
    count: u64,
    #[serde(skip)]
    sentence: String,
}

/// A recording in a few lines.
pub struct Summary {
    pub document: RecordSummary,
    has_database: bool,
}

impl Summary {
    /// `has_database`: whether Chromium trusts the recorder.
    pub fn new(output: &Path, recording: &Recording, has_database: bool) -> Self {
        let archive = &recording.written.archive;
        let servers: BTreeSet<_> =
            archive.connections.iter().filter_map(|one| one.server).collect();
        let is_http2 = |one: &&Exchange| one.request.protocol == Protocol::Http2;
        let http2 = archive.exchanges.iter().filter(is_http2).count();
        let document = RecordSummary {
            archive: output.display().to_string(),
            exchanges: archive.exchanges.len(),
            aborted: archive.exchanges.iter().filter(|one| one.abort.is_some()).count(),
            connections: archive.connections.len(),
            servers: servers.len(),
            http1: archive.exchanges.len() - http2,
            http2,
            body_bytes: body_bytes(archive),
            lost_bodies: recording.written.lost_bodies,
            tunnelled: tunnelled(archive),
            notes: recording.notes.iter().map(|(note, count)| described(note, *count)).collect(),
        };
        Self { document, has_database }
    }

    /// Prints the summary to standard error, because standard output is the command's.
    pub fn print(&self) {
        let all = &self.document;
        eprintln!(
            "manyways: recorded {} on {} to {} ({}) in {}",
            count_with_noun(all.exchanges, "exchange"),
            count_with_noun(all.connections, "connection"),
            count_with_noun(all.servers, "server"),
            Size::from_bytes(all.body_bytes),
            all.archive,
        );
        if all.aborted > 0 {
            eprintln!("  {} did not complete", count_with_noun(all.aborted, "exchange"));
        }
        if all.lost_bodies > 0 {
            eprintln!(
                "  of {} only the length was recorded: too long, or the disk was full",
                count_with_noun(all.lost_bodies as usize, "body")
            );
        }
        for tunnelled in &all.tunnelled {
            eprintln!(
                "  passed on unread: {} to {} ({})",
                count_with_noun(tunnelled.connections as usize, "connection"),
                tunnelled.server,
                tunnelled.reason
            );
        }
        for note in &all.notes {
            eprintln!("  {}", note.sentence);
        }
        if all.notes.iter().any(|note| note.kind == REFUSED) {
            let database = match self.has_database {
                true => "",
                false => "; Chromium needs the program certutil (package libnss3-tools)",
            };
            eprintln!(
                "hint: programs with certificates of their own need the file authority.crt in LAB_DIR{database}"
            );
        }
        if all.exchanges == 0 {
            eprintln!("hint: only HTTP on the ports 80 and 443 is recorded");
        }
    }
}

const REFUSED: &str = "refused";

fn body_bytes(archive: &Archive) -> u64 {
    let bodies = archive.exchanges.iter().flat_map(|exchange| {
        let response = exchange.response.as_ref().and_then(|response| response.body);
        exchange.request.body.into_iter().chain(response)
    });
    bodies.map(|body| body.length).sum()
}

fn tunnelled(archive: &Archive) -> Vec<TunnelledServer> {
    let mut counts: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for one in &archive.tunnelled {
        let server = match &one.server_name {
            Some(name) => format!("{name}:{}", one.server.port()),
            None => one.server.to_string(),
        };
        *counts.entry((server, reason(one.reason))).or_default() += 1;
    }
    (counts.into_iter())
        .map(|((server, reason), connections)| TunnelledServer { server, reason, connections })
        .collect()
}

/// Why connections were passed on unread.
pub fn reason(reason: TunnelReason) -> &'static str {
    match reason {
        TunnelReason::NotHttp => "not HTTP",
        TunnelReason::Pinned => "the program accepts only a certificate of its own choice",
        TunnelReason::EncryptedHello => "Encrypted ClientHello",
        TunnelReason::ClientCertificate => "the server asks for a client certificate",
        TunnelReason::Upgraded => "upgraded, for example to WebSocket",
        TunnelReason::Incompatible => "no common version of TLS",
        TunnelReason::Bypassed => "--bypass",
    }
}

fn described(note: &Note, count: u64) -> NoteCount {
    let name = |server: &ServerKey| match &server.name {
        Some(name) => format!("{name}:{}", server.address.port()),
        None => server.address.to_string(),
    };
    let times = count_with_noun(count as usize, "connection");
    let (kind, server, sentence) = match note {
        Note::Unreachable { server, reason } => {
            ("unreachable", server.to_string(), format!("{times} to {server} failed: {reason}"))
        }
        Note::BadCertificate { server } => {
            let server = name(server);
            let sentence =
                format!("the certificate of {server} is not valid here, so {times} got a bad one");
            ("bad-certificate", server, sentence)
        }
        Note::Refused { server } => {
            let server = name(server);
            let sentence =
                format!("the program refused the recorder's certificate for {server} on {times}");
            (REFUSED, server, sentence)
        }
        _ => ("other", String::new(), String::new()),
    };
    NoteCount { kind, server, count, sentence }
}
