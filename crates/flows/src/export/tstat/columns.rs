//! Columns of Tstat's logs, and their values from our tables.

use std::borrow::Cow;

use crate::export::columns_of_table;
use manyways_record::table::Value;

/// A column of a log.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// `None` if the value is unknown and therefore 0.
    pub(super) value: Option<for<'a> fn(&'a FlowRow<'a>) -> Field<'a>>,
    /// Whether the column is a text that is always unknown.
    pub(super) is_text_unknown: bool,
}

/// A value of a log.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    Integer(u64),
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
    syns down_packets up_packets down_data_segments up_data_segments down_bytes up_bytes
    down_unique_bytes up_unique_bytes local_rtt local_rtt_min remote_rtt remote_rtt_min rtt_samples
    up_local_rtt up_remote_rtt rtt_method down_retransmitted_fast up_retransmitted_fast down_retransmitted_timeout
    up_retransmitted_timeout down_retransmitted_probe up_retransmitted_probe down_reordered up_reordered down_duplicated
    up_duplicated down_window_probes up_window_probes down_in_flight_max up_in_flight_max icwnd_bytes
    client_mss server_mss client_scale client_window_max client_window_min client_window_closed
    server_window_max protocol name name_source requests responses has_other_methods sni alpn
}

const fn column(name: &'static str, value: for<'a> fn(&'a FlowRow<'a>) -> Field<'a>) -> Column {
    Column { name, value: Some(value), is_text_unknown: false }
}

/// A column that is always 0.
const fn zero(name: &'static str) -> Column {
    Column { name, value: None, is_text_unknown: false }
}

/// A text column that is always `-`.
const fn no_value(name: &'static str) -> Column {
    Column { name, value: Some(|_| Field::Text("")), is_text_unknown: true }
}

/// Sets of columns of the log of complete connections.
pub(super) const TCP: [&[Column]; 5] = [CORE, END_TO_END, P2P, OPTIONS, LAYER_7];

/// The core set, which incomplete connections have, too.
pub(super) const CORE: &[Column] = &[
    column("c_ip", |flow| text(&flow.client)),
    column("c_port", |flow| integer(&flow.client_port)),
    column("c_pkts_all", |flow| integer(&flow.up_packets)),
    column("c_rst_cnt", |flow| flag(has_text(&flow.reset_by, "client"))),
    zero("c_ack_cnt"),
    zero("c_ack_cnt_p"),
    column("c_bytes_uniq", |flow| integer(&flow.up_unique_bytes)),
    column("c_pkts_data", |flow| integer(&flow.up_data_segments)),
    column("c_bytes_all", |flow| integer(&flow.up_bytes)),
    column("c_pkts_retx", |flow| {
        sum(&[
            &flow.up_retransmitted_fast,
            &flow.up_retransmitted_timeout,
            &flow.up_retransmitted_probe,
        ])
    }),
    column("c_bytes_retx", |flow| difference(&flow.up_bytes, &flow.up_unique_bytes)),
    column("c_pkts_ooo", |flow| integer(&flow.up_reordered)),
    column("c_syn_cnt", |flow| integer(&flow.syns)),
    zero("c_fin_cnt"),
    column("s_ip", |flow| text(&flow.server)),
    column("s_port", |flow| integer(&flow.server_port)),
    column("s_pkts_all", |flow| integer(&flow.down_packets)),
    column("s_rst_cnt", |flow| flag(has_text(&flow.reset_by, "server"))),
    zero("s_ack_cnt"),
    zero("s_ack_cnt_p"),
    column("s_bytes_uniq", |flow| integer(&flow.down_unique_bytes)),
    column("s_pkts_data", |flow| integer(&flow.down_data_segments)),
    column("s_bytes_all", |flow| integer(&flow.down_bytes)),
    column("s_pkts_retx", |flow| {
        sum(&[
            &flow.down_retransmitted_fast,
            &flow.down_retransmitted_timeout,
            &flow.down_retransmitted_probe,
        ])
    }),
    column("s_bytes_retx", |flow| difference(&flow.down_bytes, &flow.down_unique_bytes)),
    column("s_pkts_ooo", |flow| integer(&flow.down_reordered)),
    column("s_syn_cnt", |flow| flag(flow.handshake_done != Value::Absent)),
    zero("s_fin_cnt"),
    column("first", |flow| Field::Millis(nanos(&flow.started))),
    column("last", |flow| Field::Millis(nanos(&flow.ended))),
    column("durat", |flow| since(&flow.ended, flow)),
    zero("c_first"),
    zero("s_first"),
    zero("c_last"),
    zero("s_last"),
    column("c_first_ack", |flow| since(&flow.handshake_done, flow)),
    zero("s_first_ack"),
    column("c_isint", |flow| flag(has_text(&flow.local_end, "client"))),
    column("s_isint", |flow| flag(has_text(&flow.local_end, "server"))),
    column("c_iscrypto", |_| Field::IsAnonymized),
    column("s_iscrypto", |_| Field::IsAnonymized),
    column("con_t", |flow| match &flow.protocol {
        Value::Text(name) if name == "http" => Field::Integer(1),
        Value::Text(name) if name == "tls" => Field::Integer(1 << 13),
        _ => Field::Integer(0),
    }),
    zero("p2p_t"),
    // The table contains only whether all methods are GET.
    column("http_t", |flow| flag(flow.is_http() && flow.has_other_methods == Value::Flag(false))),
];

/// Round-trip times: for the client those between the capture point and the server, which
/// acknowledges the client's data.
const END_TO_END: &[Column] = &[
    column("c_rtt_avg", |flow| span(flow.local_or_remote(&flow.up_remote_rtt, &flow.up_local_rtt))),
    zero("c_rtt_min"),
    zero("c_rtt_max"),
    zero("c_rtt_std"),
    zero("c_rtt_cnt"),
    zero("c_ttl_min"),
    zero("c_ttl_max"),
    column("s_rtt_avg", |flow| span(flow.local_or_remote(&flow.local_rtt, &flow.remote_rtt))),
    column("s_rtt_min", |flow| {
        span(flow.local_or_remote(&flow.local_rtt_min, &flow.remote_rtt_min))
    }),
    zero("s_rtt_max"),
    zero("s_rtt_std"),
    column("s_rtt_cnt", |flow| integer(&flow.rtt_samples)),
    zero("s_ttl_min"),
    zero("s_ttl_max"),
];

const P2P: &[Column] = &[
    zero("p2p_st"),
    zero("ed2k_data"),
    zero("ed2k_sig"),
    zero("ed2k_c2s"),
    zero("ed2k_c2c"),
    zero("ed2k_chat"),
];

const OPTIONS: &[Column] = &[
    column("c_f1323_opt", |flow| flag(flow.client_scale != Value::Absent)),
    // Either both endpoints use timestamps, or neither does.
    column("c_tm_opt", |flow| flag(has_text(&flow.rtt_method, "stamps"))),
    column("c_win_scl", |flow| integer(&flow.client_scale)),
    zero("c_sack_opt"),
    zero("c_sack_cnt"),
    column("c_mss", |flow| integer(&flow.client_mss)),
    zero("c_mss_max"),
    zero("c_mss_min"),
    column("c_win_max", |flow| integer(&flow.client_window_max)),
    column("c_win_min", |flow| integer(&flow.client_window_min)),
    column("c_win_0", |flow| integer(&flow.client_window_closed)),
    column("c_cwin_max", |flow| integer(&flow.up_in_flight_max)),
    zero("c_cwin_min"),
    zero("c_cwin_ini"),
    column("c_pkts_rto", |flow| integer(&flow.up_retransmitted_timeout)),
    column("c_pkts_fs", |flow| integer(&flow.up_retransmitted_fast)),
    column("c_pkts_reor", |flow| integer(&flow.up_reordered)),
    column("c_pkts_dup", |flow| integer(&flow.up_duplicated)),
    column("c_pkts_unk", |flow| integer(&flow.up_retransmitted_probe)),
    column("c_pkts_fc", |flow| integer(&flow.up_window_probes)),
    zero("c_pkts_unrto"),
    zero("c_pkts_unfs"),
    zero("c_syn_retx"),
    zero("s_f1323_opt"),
    column("s_tm_opt", |flow| flag(has_text(&flow.rtt_method, "stamps"))),
    zero("s_win_scl"),
    zero("s_sack_opt"),
    zero("s_sack_cnt"),
    column("s_mss", |flow| integer(&flow.server_mss)),
    zero("s_mss_max"),
    zero("s_mss_min"),
    column("s_win_max", |flow| integer(&flow.server_window_max)),
    zero("s_win_min"),
    zero("s_win_0"),
    column("s_cwin_max", |flow| integer(&flow.down_in_flight_max)),
    zero("s_cwin_min"),
    column("s_cwin_ini", |flow| integer(&flow.icwnd_bytes)),
    column("s_pkts_rto", |flow| integer(&flow.down_retransmitted_timeout)),
    column("s_pkts_fs", |flow| integer(&flow.down_retransmitted_fast)),
    column("s_pkts_reor", |flow| integer(&flow.down_reordered)),
    column("s_pkts_dup", |flow| integer(&flow.down_duplicated)),
    column("s_pkts_unk", |flow| integer(&flow.down_retransmitted_probe)),
    column("s_pkts_fc", |flow| integer(&flow.down_window_probes)),
    zero("s_pkts_unrto"),
    zero("s_pkts_unfs"),
    zero("s_syn_retx"),
];

const LAYER_7: &[Column] = &[
    column("http_req_cnt", |flow| integer(&flow.requests)),
    // Responses in encrypted flows are inferred; Tstat counts only responses that it parses.
    column("http_res_cnt", |flow| match flow.is_http() {
        true => integer(&flow.responses),
        false => Field::Integer(0),
    }),
    Column { name: "http_res", value: Some(|_| Field::Text("---")), is_text_unknown: true },
    zero("c_pkts_push"),
    zero("s_pkts_push"),
    column("c_tls_SNI", |flow| text(&flow.sni)),
    no_value("s_tls_SCN"),
    column("c_npnalpn", |flow| Field::Integer(protocol_bits(&flow.alpn))),
    zero("s_npnalpn"),
    zero("c_tls_sesid"),
    zero("c_last_handshakeT"),
    zero("s_last_handshakeT"),
    zero("c_appdataT"),
    zero("s_appdataT"),
    zero("c_appdataB"),
    zero("s_appdataB"),
    column("fqdn", |flow| flow.fqdn()),
    no_value("dns_rslv"),
    zero("req_tm"),
    zero("res_tm"),
];

/// Columns of the UDP log.
pub(super) const UDP: &[Column] = &[
    column("c_ip", |flow| text(&flow.client)),
    column("c_port", |flow| integer(&flow.client_port)),
    column("c_first_abs", |flow| Field::Millis(nanos(&flow.started))),
    // The duration of UDP flows is in seconds, unlike all other times.
    column("c_durat", |flow| {
        Field::Seconds(nanos(&flow.ended).saturating_sub(nanos(&flow.started)))
    }),
    column("c_bytes_all", |flow| integer(&flow.up_bytes)),
    column("c_pkts_all", |flow| integer(&flow.up_packets)),
    column("c_isint", |flow| flag(has_text(&flow.local_end, "client"))),
    column("c_iscrypto", |_| Field::IsAnonymized),
    column("c_type", |flow| Field::Integer(flow.udp_type())),
    column("s_ip", |flow| text(&flow.server)),
    column("s_port", |flow| integer(&flow.server_port)),
    zero("s_first_abs"),
    zero("s_durat"),
    column("s_bytes_all", |flow| integer(&flow.down_bytes)),
    column("s_pkts_all", |flow| integer(&flow.down_packets)),
    column("s_isint", |flow| flag(has_text(&flow.local_end, "server"))),
    column("s_iscrypto", |_| Field::IsAnonymized),
    column("s_type", |flow| Field::Integer(flow.udp_type())),
    column("fqdn", |flow| flow.fqdn()),
];

impl<'a> FlowRow<'a> {
    /// Whether the handshake is complete and the connection has ended.
    pub(super) fn is_complete(&self) -> bool {
        let is_over = self.first_fin != Value::Absent || self.reset_by != Value::Absent;
        self.handshake_done != Value::Absent && is_over
    }

    fn is_http(&self) -> bool {
        has_text(&self.protocol, "http")
    }

    /// Returns `far` if the server is local, `near` otherwise.
    fn local_or_remote<'b>(&self, near: &'b Value<'a>, far: &'b Value<'a>) -> &'b Value<'a> {
        if has_text(&self.local_end, "server") { far } else { near }
    }

    /// Returns the name under which the client contacted the server; reverse lookups do not count.
    fn fqdn(&self) -> Field<'_> {
        if has_text(&self.name_source, "reverse") { Field::Text("") } else { text(&self.name) }
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
fn protocol_bits(alpn: &Value<'_>) -> u64 {
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

fn has_text(value: &Value<'_>, text: &str) -> bool {
    matches!(value, Value::Text(is) if is == text)
}

fn flag(is_so: bool) -> Field<'static> {
    Field::Integer(is_so.into())
}

fn number(value: &Value<'_>) -> u64 {
    if let Value::Count(count) = value { *count } else { 0 }
}

fn integer(value: &Value<'_>) -> Field<'static> {
    Field::Integer(number(value))
}

fn sum(values: &[&Value<'_>]) -> Field<'static> {
    Field::Integer(values.iter().fold(0, |sum, value| sum.saturating_add(number(value))))
}

/// Returns the difference; 0 if `part` is unknown.
fn difference(all: &Value<'_>, part: &Value<'_>) -> Field<'static> {
    match part {
        Value::Count(part) => Field::Integer(number(all).saturating_sub(*part)),
        _ => Field::Integer(0),
    }
}

fn text<'a>(value: &'a Value<'_>) -> Field<'a> {
    match value {
        Value::Text(Cow::Borrowed(text)) => Field::Text(text),
        Value::Text(Cow::Owned(text)) => Field::Text(text),
        _ => Field::Text(""),
    }
}

fn nanos(value: &Value<'_>) -> u64 {
    if let Value::Time(time) = value { time.as_nanos() } else { 0 }
}

/// Time since the start of the flow.
fn since(then: &Value<'_>, flow: &FlowRow<'_>) -> Field<'static> {
    Field::Millis(nanos(then).saturating_sub(nanos(&flow.started)))
}

fn span(seconds: &Value<'_>) -> Field<'static> {
    match seconds {
        Value::Number(seconds) if *seconds >= 0.0 => Field::Millis((seconds * 1e9).round() as u64),
        _ => Field::Millis(0),
    }
}
