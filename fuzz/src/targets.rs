//! Fuzz targets, one function for each parser.

mod bluetooth;
mod capture;
mod container;
mod control;
mod devtools;
mod exchange;
mod filter;
mod flow;
mod gateway;
mod har;
mod hosts;
mod lab;
mod lend;
mod manifest;
mod matching;
mod middlebox;
mod mptcp;
mod mux;
mod network;
mod page;
mod policy;
mod radio;
mod select;
mod tables;
mod trace;
mod wire;

pub struct Target {
    /// Also the name of the folder of seeds in `corpus/`.
    pub name: &'static str,
    /// Accepts any bytes; panics if the parser has a fault.
    pub run: fn(&[u8]),
    /// Meaningful words for the parser, used by mutations.
    pub words: &'static [&'static str],
    /// Additional seed folders, relative to the package's folder.
    pub more_seeds: &'static [&'static str],
}

pub const ALL: &[Target] = &[
    Target {
        name: "trace-capacity",
        run: trace::capacity,
        words: trace::TRACE_WORDS,
        more_seeds: &[],
    },
    Target { name: "trace-delay", run: trace::delay, words: trace::TRACE_WORDS, more_seeds: &[] },
    Target { name: "values", run: trace::values, words: trace::VALUE_WORDS, more_seeds: &[] },
    Target { name: "link", run: trace::link, words: trace::LINK_WORDS, more_seeds: &[] },
    Target {
        name: "scenario",
        run: trace::scenario,
        words: trace::SCENARIO_WORDS,
        more_seeds: &["../scenarios"],
    },
    Target { name: "event-log", run: trace::event_log, words: trace::EVENT_WORDS, more_seeds: &[] },
    Target {
        name: "content-range",
        run: network::content_range,
        words: network::RANGE_WORDS,
        more_seeds: &[],
    },
    Target { name: "super-packet", run: network::super_packet, words: &[], more_seeds: &[] },
    Target {
        name: "resume-file",
        run: network::resume_file,
        words: network::RESUME_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "dns-answer",
        run: network::dns_answer,
        words: network::DNS_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "probe-message",
        run: network::probe_message,
        words: network::PROBE_WORDS,
        more_seeds: &[],
    },
    Target { name: "icmp", run: wire::icmp_message, words: &[], more_seeds: &[] },
    Target {
        name: "announcement",
        run: network::announcement,
        words: network::ANNOUNCEMENT_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "location",
        run: network::location,
        words: network::LOCATION_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "login-url",
        run: network::login_url,
        words: network::LOCATION_WORDS,
        more_seeds: &["corpus/location"],
    },
    Target { name: "netrc", run: network::netrc, words: network::NETRC_WORDS, more_seeds: &[] },
    Target { name: "digest", run: network::digest, words: network::DIGEST_WORDS, more_seeds: &[] },
    Target {
        name: "path-estimates",
        run: network::path_estimates,
        words: network::ESTIMATE_WORDS,
        more_seeds: &[],
    },
    Target { name: "middlebox", run: middlebox::middlebox, words: &[], more_seeds: &[] },
    Target {
        name: "dns-question",
        run: lab::dns_question,
        words: lab::QUESTION_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "lab-request",
        run: lab::lab_request,
        words: lab::REQUEST_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "bond-request",
        run: control::bond_request,
        words: control::BOND_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "steer-request",
        run: control::steer_request,
        words: control::STEER_WORDS,
        more_seeds: &[],
    },
    Target { name: "tls-hello", run: wire::tls_hello, words: wire::HELLO_WORDS, more_seeds: &[] },
    Target {
        name: "tls-session",
        run: wire::tls_session,
        words: wire::SESSION_WORDS,
        more_seeds: &[],
    },
    Target { name: "http-head", run: wire::http_head, words: wire::HEAD_WORDS, more_seeds: &[] },
    Target {
        name: "proxy-head",
        run: wire::proxy_head,
        words: wire::PROXY_WORDS,
        more_seeds: &["corpus/http-head"],
    },
    Target {
        name: "http-transactions",
        run: wire::http_transactions,
        words: wire::TRANSACTION_WORDS,
        more_seeds: &[],
    },
    Target { name: "certificate", run: wire::certificate, words: &[], more_seeds: &[] },
    Target {
        name: "http1-observer",
        run: exchange::http1,
        words: exchange::HTTP1_WORDS,
        more_seeds: &["corpus/http-transactions"],
    },
    Target {
        name: "http2-observer",
        run: exchange::http2,
        words: exchange::HTTP2_WORDS,
        more_seeds: &[],
    },
    Target { name: "archive", run: container::container, words: container::WORDS, more_seeds: &[] },
    Target {
        name: "archive-recovery",
        run: container::recovered,
        words: container::WORDS,
        more_seeds: &["corpus/archive"],
    },
    Target { name: "har", run: har::har, words: har::WORDS, more_seeds: &[] },
    Target {
        name: "devtools-events",
        run: devtools::devtools_events,
        words: devtools::WORDS,
        more_seeds: &["../crates/net/src/probe/page/recordings"],
    },
    Target {
        name: "dns-message",
        run: wire::dns_message,
        words: wire::MESSAGE_WORDS,
        more_seeds: &["corpus/dns-answer", "corpus/dns-question"],
    },
    Target {
        name: "dns-lookups",
        run: hosts::dns_lookups,
        words: wire::MESSAGE_WORDS,
        more_seeds: &["corpus/dns-answer", "corpus/dns-question", "corpus/dns-message"],
    },
    Target { name: "dhcp", run: hosts::dhcp, words: hosts::DHCP_WORDS, more_seeds: &[] },
    Target {
        name: "quic-initial",
        run: wire::quic_initial,
        words: wire::HELLO_WORDS,
        more_seeds: &[],
    },
    Target { name: "quic-flow", run: wire::quic_flow, words: wire::QUIC_WORDS, more_seeds: &[] },
    Target { name: "align-log", run: wire::align_log, words: wire::LOG_WORDS, more_seeds: &[] },
    Target { name: "user-agent", run: wire::user_agent, words: wire::AGENT_WORDS, more_seeds: &[] },
    Target {
        name: "organisations",
        run: wire::organisations,
        words: wire::TABLE_WORDS,
        more_seeds: &[],
    },
    Target { name: "pools", run: hosts::pools, words: hosts::POOL_WORDS, more_seeds: &[] },
    Target {
        name: "hosts-table",
        run: hosts::hosts_table,
        words: hosts::HOSTS_TABLE_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "capture",
        run: capture::capture,
        words: capture::CAPTURE_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "bluetooth",
        run: bluetooth::bluetooth,
        words: bluetooth::BLUETOOTH_WORDS,
        more_seeds: &[],
    },
    Target { name: "frame", run: capture::frame, words: capture::FRAME_WORDS, more_seeds: &[] },
    Target { name: "filter", run: filter::filter, words: filter::FILTER_WORDS, more_seeds: &[] },
    Target { name: "tcp-flow", run: flow::tcp_flow, words: flow::FLOW_WORDS, more_seeds: &[] },
    Target { name: "mptcp", run: mptcp::mptcp, words: mptcp::WORDS, more_seeds: &[] },
    Target {
        name: "policy",
        run: policy::policy,
        words: policy::POLICY_WORDS,
        more_seeds: &["../docs/policies"],
    },
    Target {
        name: "radio-profile",
        run: radio::profile,
        words: radio::PROFILE_WORDS,
        more_seeds: &["../crates/model/profiles"],
    },
    Target { name: "radio-plan", run: radio::plan, words: radio::PLAN_WORDS, more_seeds: &[] },
    Target { name: "radio-probes", run: radio::probes, words: radio::PROBE_WORDS, more_seeds: &[] },
    Target { name: "radio-rules", run: radio::rules, words: radio::RULE_WORDS, more_seeds: &[] },
    Target { name: "radio-trace", run: radio::trace, words: radio::TRACE_WORDS, more_seeds: &[] },
    Target { name: "mux-message", run: mux::message, words: mux::MESSAGE_WORDS, more_seeds: &[] },
    Target {
        name: "mux-peer",
        run: mux::peer,
        words: mux::PEER_WORDS,
        more_seeds: &["corpus/mux-message"],
    },
    Target {
        name: "pair-message",
        run: lend::pair_message,
        words: lend::PAIR_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "relay-frames",
        run: lend::relay_frames,
        words: lend::FRAME_WORDS,
        more_seeds: &[],
    },
    Target {
        name: "sealed-messages",
        run: lend::sealed_messages,
        words: lend::SEALED_WORDS,
        more_seeds: &[],
    },
    Target { name: "page-load", run: page::load, words: page::WORDS, more_seeds: &[] },
    Target { name: "matcher", run: matching::matcher, words: matching::WORDS, more_seeds: &[] },
    Target { name: "lend-tickets", run: lend::tickets, words: lend::TICKET_WORDS, more_seeds: &[] },
    Target {
        name: "probe-series",
        run: tables::probe_series,
        words: tables::WORDS,
        more_seeds: &[],
    },
    Target {
        name: "lab-signal",
        run: trace::lab_signal,
        words: trace::LAB_SIGNAL_WORDS,
        more_seeds: &[],
    },
    Target { name: "signal", run: trace::signal, words: trace::SIGNAL_WORDS, more_seeds: &[] },
    Target {
        name: "select-model",
        run: select::model,
        words: select::MODEL_WORDS,
        more_seeds: &[],
    },
    Target { name: "select-goal", run: select::goal, words: select::GOAL_WORDS, more_seeds: &[] },
    Target {
        name: "select-table",
        run: select::table,
        words: select::TABLE_WORDS,
        more_seeds: &[],
    },
    Target { name: "signal-lines", run: select::lines, words: select::LINE_WORDS, more_seeds: &[] },
    Target { name: "wifi-station", run: select::stations, words: &[], more_seeds: &[] },
    Target { name: "mpd", run: manifest::mpd, words: manifest::MPD_WORDS, more_seeds: &[] },
    Target { name: "m3u8", run: manifest::m3u8, words: manifest::PLAYLIST_WORDS, more_seeds: &[] },
    Target { name: "sidx", run: manifest::sidx, words: manifest::INDEX_WORDS, more_seeds: &[] },
    Target {
        name: "manifest-rewrite",
        run: manifest::rewrite,
        words: manifest::MPD_WORDS,
        more_seeds: &["corpus/mpd", "corpus/m3u8"],
    },
    Target {
        name: "gateway-request",
        run: gateway::request,
        words: gateway::WORDS,
        more_seeds: &[],
    },
    Target { name: "flow-table", run: tables::flow_table, words: tables::WORDS, more_seeds: &[] },
];

/// Returns the target with this name.
pub fn named(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}
