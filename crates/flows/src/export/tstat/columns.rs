//! Columns of Tstat's logs, and their values from our tables.

use std::borrow::Cow;

use crate::export::columns_of_table;
use manyways_record::table::Value;

/// A column of a log.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// `None` if the value is unknown and therefore 0.
    pub(super) value: Option<for<'a> fn(&'a FlowRow<'a>) -> Cell<'a>>,
    /// Whether the column is a text that is always unknown.
    pub(super) is_text_unknown: bool,
}

/// A value of a log.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Whole(u64),
    /// Nanoseconds, written as milliseconds.
    Millis(u64),
    /// Nanoseconds, written as seconds.
    Seconds(u64),
    /// Empty if unknown.
    Text(&'a str),
    /// Whether the addresses are anonymized.
    IsAnonymized,
}

columns_of_table! {
    /// A row of the table `tcp` or `udp`.
    pub(super) FlowRow:
    client client_port server server_port local_end started ended handshake_done first_fin reset_by
    syns down_packets up_packets down_data_packets up_data_packets down_bytes up_bytes
    down_unique_bytes up_unique_bytes local_rtt local_rtt_min remote_rtt remote_rtt_min rtt_samples
    up_local_rtt up_remote_rtt rtt_method down_again_fast up_again_fast down_again_timeout
    up_again_timeout down_again_probe up_again_probe down_reordered up_reordered down_duplicated
    up_duplicated down_window_probes up_window_probes down_in_flight_max up_in_flight_max icwnd_bytes
    client_mss server_mss client_scale client_window_max client_window_min client_window_closed
    server_window_max protocol name name_source requests responses has_other_methods sni alpn
}

const fn column(name: &'static str, value: for<'a> fn(&'a FlowRow<'a>) -> Cell<'a>) -> Column {
    Column { name, value: Some(value), is_text_unknown: false }
}

/// A column that is always 0.
const fn no(name: &'static str) -> Column {
    Column { name, value: None, is_text_unknown: false }
}

/// A text column that is always `-`.
const fn no_text(name: &'static str) -> Column {
    Column { name, value: Some(|_| Cell::Text("")), is_text_unknown: true }
}

/// Sets of columns of the log of complete connections.
pub(super) const TCP: [&[Column]; 5] = [CORE, END_TO_END, P2P, OPTIONS, LAYER_7];

/// The core set, which incomplete connections have, too.
pub(super) const CORE: &[Column] = &[
    column("c_ip", |flow| text(&flow.client)),
    column("c_port", |flow| whole(&flow.client_port)),
    column("c_pkts_all", |flow| whole(&flow.up_packets)),
    column("c_rst_cnt", |flow| flag(is(&flow.reset_by, "client"))),
    no("c_ack_cnt"),
    no("c_ack_cnt_p"),
    column("c_bytes_uniq", |flow| whole(&flow.up_unique_bytes)),
    column("c_pkts_data", |flow| whole(&flow.up_data_packets)),
    column("c_bytes_all", |flow| whole(&flow.up_bytes)),
    column("c_pkts_retx", |flow| {
        sum(&[&flow.up_again_fast, &flow.up_again_timeout, &flow.up_again_probe])
    }),
    column("c_bytes_retx", |flow| less(&flow.up_bytes, &flow.up_unique_bytes)),
    column("c_pkts_ooo", |flow| whole(&flow.up_reordered)),
    column("c_syn_cnt", |flow| whole(&flow.syns)),
    no("c_fin_cnt"),
    column("s_ip", |flow| text(&flow.server)),
    column("s_port", |flow| whole(&flow.server_port)),
    column("s_pkts_all", |flow| whole(&flow.down_packets)),
    column("s_rst_cnt", |flow| flag(is(&flow.reset_by, "server"))),
    no("s_ack_cnt"),
    no("s_ack_cnt_p"),
    column("s_bytes_uniq", |flow| whole(&flow.down_unique_bytes)),
    column("s_pkts_data", |flow| whole(&flow.down_data_packets)),
    column("s_bytes_all", |flow| whole(&flow.down_bytes)),
    column("s_pkts_retx", |flow| {
        sum(&[&flow.down_again_fast, &flow.down_again_timeout, &flow.down_again_probe])
    }),
    column("s_bytes_retx", |flow| less(&flow.down_bytes, &flow.down_unique_bytes)),
    column("s_pkts_ooo", |flow| whole(&flow.down_reordered)),
    column("s_syn_cnt", |flow| flag(flow.handshake_done != Value::Absent)),
    no("s_fin_cnt"),
    column("first", |flow| Cell::Millis(nanos(&flow.started))),
    column("last", |flow| Cell::Millis(nanos(&flow.ended))),
    column("durat", |flow| since(&flow.ended, flow)),
    no("c_first"),
    no("s_first"),
    no("c_last"),
    no("s_last"),
    column("c_first_ack", |flow| since(&flow.handshake_done, flow)),
    no("s_first_ack"),
    column("c_isint", |flow| flag(is(&flow.local_end, "client"))),
    column("s_isint", |flow| flag(is(&flow.local_end, "server"))),
    column("c_iscrypto", |_| Cell::IsAnonymized),
    column("s_iscrypto", |_| Cell::IsAnonymized),
    column("con_t", |flow| match &flow.protocol {
        Value::Text(name) if name == "http" => Cell::Whole(1),
        Value::Text(name) if name == "tls" => Cell::Whole(1 << 13),
        _ => Cell::Whole(0),
    }),
    no("p2p_t"),
    // The table contains only whether all methods are GET.
    column("http_t", |flow| flag(flow.is_http() && flow.has_other_methods == Value::Flag(false))),
];

/// Round-trip times: for the client those between the capture point and the server, which
/// acknowledges the client's data.
const END_TO_END: &[Column] = &[
    column("c_rtt_avg", |flow| span(flow.half(&flow.up_remote_rtt, &flow.up_local_rtt))),
    no("c_rtt_min"),
    no("c_rtt_max"),
    no("c_rtt_std"),
    no("c_rtt_cnt"),
    no("c_ttl_min"),
    no("c_ttl_max"),
    column("s_rtt_avg", |flow| span(flow.half(&flow.local_rtt, &flow.remote_rtt))),
    column("s_rtt_min", |flow| span(flow.half(&flow.local_rtt_min, &flow.remote_rtt_min))),
    no("s_rtt_max"),
    no("s_rtt_std"),
    column("s_rtt_cnt", |flow| whole(&flow.rtt_samples)),
    no("s_ttl_min"),
    no("s_ttl_max"),
];

const P2P: &[Column] = &[
    no("p2p_st"),
    no("ed2k_data"),
    no("ed2k_sig"),
    no("ed2k_c2s"),
    no("ed2k_c2c"),
    no("ed2k_chat"),
];

const OPTIONS: &[Column] = &[
    column("c_f1323_opt", |flow| flag(flow.client_scale != Value::Absent)),
    // Either both endpoints use timestamps, or neither does.
    column("c_tm_opt", |flow| flag(is(&flow.rtt_method, "stamps"))),
    column("c_win_scl", |flow| whole(&flow.client_scale)),
    no("c_sack_opt"),
    no("c_sack_cnt"),
    column("c_mss", |flow| whole(&flow.client_mss)),
    no("c_mss_max"),
    no("c_mss_min"),
    column("c_win_max", |flow| whole(&flow.client_window_max)),
    column("c_win_min", |flow| whole(&flow.client_window_min)),
    column("c_win_0", |flow| whole(&flow.client_window_closed)),
    column("c_cwin_max", |flow| whole(&flow.up_in_flight_max)),
    no("c_cwin_min"),
    no("c_cwin_ini"),
    column("c_pkts_rto", |flow| whole(&flow.up_again_timeout)),
    column("c_pkts_fs", |flow| whole(&flow.up_again_fast)),
    column("c_pkts_reor", |flow| whole(&flow.up_reordered)),
    column("c_pkts_dup", |flow| whole(&flow.up_duplicated)),
    column("c_pkts_unk", |flow| whole(&flow.up_again_probe)),
    column("c_pkts_fc", |flow| whole(&flow.up_window_probes)),
    no("c_pkts_unrto"),
    no("c_pkts_unfs"),
    no("c_syn_retx"),
    no("s_f1323_opt"),
    column("s_tm_opt", |flow| flag(is(&flow.rtt_method, "stamps"))),
    no("s_win_scl"),
    no("s_sack_opt"),
    no("s_sack_cnt"),
    column("s_mss", |flow| whole(&flow.server_mss)),
    no("s_mss_max"),
    no("s_mss_min"),
    column("s_win_max", |flow| whole(&flow.server_window_max)),
    no("s_win_min"),
    no("s_win_0"),
    column("s_cwin_max", |flow| whole(&flow.down_in_flight_max)),
    no("s_cwin_min"),
    column("s_cwin_ini", |flow| whole(&flow.icwnd_bytes)),
    column("s_pkts_rto", |flow| whole(&flow.down_again_timeout)),
    column("s_pkts_fs", |flow| whole(&flow.down_again_fast)),
    column("s_pkts_reor", |flow| whole(&flow.down_reordered)),
    column("s_pkts_dup", |flow| whole(&flow.down_duplicated)),
    column("s_pkts_unk", |flow| whole(&flow.down_again_probe)),
    column("s_pkts_fc", |flow| whole(&flow.down_window_probes)),
    no("s_pkts_unrto"),
    no("s_pkts_unfs"),
    no("s_syn_retx"),
];

const LAYER_7: &[Column] = &[
    column("http_req_cnt", |flow| whole(&flow.requests)),
    // Responses in encrypted flows are inferred; Tstat counts only responses that it parses.
    column("http_res_cnt", |flow| match flow.is_http() {
        true => whole(&flow.responses),
        false => Cell::Whole(0),
    }),
    Column { name: "http_res", value: Some(|_| Cell::Text("---")), is_text_unknown: true },
    no("c_pkts_push"),
    no("s_pkts_push"),
    column("c_tls_SNI", |flow| text(&flow.sni)),
    no_text("s_tls_SCN"),
    column("c_npnalpn", |flow| Cell::Whole(protocols(&flow.alpn))),
    no("s_npnalpn"),
    no("c_tls_sesid"),
    no("c_last_handshakeT"),
    no("s_last_handshakeT"),
    no("c_appdataT"),
    no("s_appdataT"),
    no("c_appdataB"),
    no("s_appdataB"),
    column("fqdn", |flow| flow.fqdn()),
    no_text("dns_rslv"),
    no("req_tm"),
    no("res_tm"),
];

/// Columns of the UDP log.
pub(super) const UDP: &[Column] = &[
    column("c_ip", |flow| text(&flow.client)),
    column("c_port", |flow| whole(&flow.client_port)),
    column("c_first_abs", |flow| Cell::Millis(nanos(&flow.started))),
    // The duration of UDP flows is in seconds, unlike all other times.
    column("c_durat", |flow| {
        Cell::Seconds(nanos(&flow.ended).saturating_sub(nanos(&flow.started)))
    }),
    column("c_bytes_all", |flow| whole(&flow.up_bytes)),
    column("c_pkts_all", |flow| whole(&flow.up_packets)),
    column("c_isint", |flow| flag(is(&flow.local_end, "client"))),
    column("c_iscrypto", |_| Cell::IsAnonymized),
    column("c_type", |flow| Cell::Whole(flow.udp_type())),
    column("s_ip", |flow| text(&flow.server)),
    column("s_port", |flow| whole(&flow.server_port)),
    no("s_first_abs"),
    no("s_durat"),
    column("s_bytes_all", |flow| whole(&flow.down_bytes)),
    column("s_pkts_all", |flow| whole(&flow.down_packets)),
    column("s_isint", |flow| flag(is(&flow.local_end, "server"))),
    column("s_iscrypto", |_| Cell::IsAnonymized),
    column("s_type", |flow| Cell::Whole(flow.udp_type())),
    column("fqdn", |flow| flow.fqdn()),
];

impl<'a> FlowRow<'a> {
    /// Whether the handshake is complete and the connection has ended.
    pub(super) fn is_complete(&self) -> bool {
        let is_over = self.first_fin != Value::Absent || self.reset_by != Value::Absent;
        self.handshake_done != Value::Absent && is_over
    }

    fn is_http(&self) -> bool {
        is(&self.protocol, "http")
    }

    /// Returns `far` if the server is local, `near` otherwise.
    fn half<'b>(&self, near: &'b Value<'a>, far: &'b Value<'a>) -> &'b Value<'a> {
        if is(&self.local_end, "server") { far } else { near }
    }

    /// Returns the name under which the client contacted the server; reverse lookups do not count.
    fn fqdn(&self) -> Cell<'_> {
        if is(&self.name_source, "reverse") { Cell::Text("") } else { text(&self.name) }
    }

    /// Returns the code of QUIC, DNS or an unknown protocol.
    fn udp_type(&self) -> u64 {
        const DNS: u64 = 19;
        const QUIC: u64 = 27;
        match (&self.protocol, &self.server_port) {
            (Value::Text(name), _) if name == "quic" => QUIC,
            (_, Value::Count(53)) => DNS,
            _ => 0,
        }
    }
}

/// Returns the bits of the protocols that the client offers by ALPN.
fn protocols(alpn: &Value<'_>) -> u64 {
    let Value::Text(names) = alpn else { return 0 };
    names.split(',').fold(0, |bits, name| {
        bits | match name {
            "http/1.0" | "http/1.1" => 1 << 5,
            name if name.starts_with("spdy/") => 1 << 6,
            "h2" => 1 << 7,
            _ => 0,
        }
    })
}

fn is(value: &Value<'_>, text: &str) -> bool {
    matches!(value, Value::Text(is) if is == text)
}

fn flag(is_so: bool) -> Cell<'static> {
    Cell::Whole(is_so.into())
}

fn number(value: &Value<'_>) -> u64 {
    if let Value::Count(count) = value { *count } else { 0 }
}

fn whole(value: &Value<'_>) -> Cell<'static> {
    Cell::Whole(number(value))
}

fn sum(values: &[&Value<'_>]) -> Cell<'static> {
    Cell::Whole(values.iter().fold(0, |sum, value| sum.saturating_add(number(value))))
}

/// Returns the difference; 0 if `part` is unknown.
fn less(all: &Value<'_>, part: &Value<'_>) -> Cell<'static> {
    match part {
        Value::Count(part) => Cell::Whole(number(all).saturating_sub(*part)),
        _ => Cell::Whole(0),
    }
}

fn text<'a>(value: &'a Value<'_>) -> Cell<'a> {
    match value {
        Value::Text(Cow::Borrowed(text)) => Cell::Text(text),
        Value::Text(Cow::Owned(text)) => Cell::Text(text),
        _ => Cell::Text(""),
    }
}

fn nanos(value: &Value<'_>) -> u64 {
    if let Value::Time(time) = value { time.as_nanos() } else { 0 }
}

/// Time since the start of the flow.
fn since(then: &Value<'_>, flow: &FlowRow<'_>) -> Cell<'static> {
    Cell::Millis(nanos(then).saturating_sub(nanos(&flow.started)))
}

fn span(seconds: &Value<'_>) -> Cell<'static> {
    match seconds {
        Value::Number(seconds) if *seconds >= 0.0 => Cell::Millis((seconds * 1e9).round() as u64),
        _ => Cell::Millis(0),
    }
}
