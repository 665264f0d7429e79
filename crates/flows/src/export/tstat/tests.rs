use manyways_unit::Time;

use super::*;

/// The line of a flow, by the names of its columns.
fn line(log: Log, values: &[(&str, Value<'static>)]) -> Option<Vec<(String, String)>> {
    for (name, _) in values {
        assert!(log.input_columns().contains(name), "{name}");
    }
    let value = |name: &&str| {
        let known = values.iter().find(|(known, _)| known == name);
        known.map_or(Value::Absent, |(_, value)| value.clone())
    };
    let (mut header, mut line) = (String::new(), String::new());
    log.header(&mut header);
    let is_its = log.line(log.input_columns().iter().map(value).collect(), true, &mut line);
    assert_eq!(is_its, !line.is_empty());
    let names = header.trim_end().trim_start_matches("#15").trim_start_matches('#').split(' ');
    let cells: Vec<(String, String)> =
        names.map(String::from).zip(line.trim_end().split(' ').map(String::from)).collect();
    is_its.then(|| {
        assert_eq!(line.trim_end().split(' ').count(), header.trim_end().split(' ').count());
        cells
    })
}

fn at(cells: &[(String, String)], name: &str) -> String {
    cells.iter().find(|(is, _)| is == name).unwrap().1.clone()
}

fn complete() -> Vec<(&'static str, Value<'static>)> {
    let moment = |nanos| Value::Time(Time::from_nanos(nanos));
    vec![
        ("client", "10.0.0.1".into()),
        ("client_port", Value::Count(40_000)),
        ("server", "2001:db8::1".into()),
        ("server_port", Value::Count(443)),
        ("local_end", "client".into()),
        ("started", moment(1_700_000_000_000_001_500)),
        ("handshake_done", moment(1_700_000_000_020_001_500)),
        ("ended", moment(1_700_000_001_000_001_501)),
        ("first_fin", moment(1_700_000_001_000_001_500)),
        ("up_packets", Value::Count(7)),
        ("down_bytes", Value::Count(1_100)),
        ("down_unique_bytes", Value::Count(1_000)),
        ("down_retransmitted_fast", Value::Count(2)),
        ("down_retransmitted_probe", Value::Count(1)),
        ("local_rtt", Value::Number(0.008)),
        ("remote_rtt", Value::Number(0.02)),
        ("up_remote_rtt", Value::Number(0.021)),
        ("protocol", "tls".into()),
        ("responses", Value::Count(3)),
        ("sni", "www.example.net".into()),
        ("alpn", "h2,http/1.1".into()),
        ("name", "www.example.net".into()),
        ("name_source", "tls".into()),
    ]
}

#[test]
fn columns_are_those_of_the_description() {
    let cells = line(Log::TcpComplete, &complete()).unwrap();
    assert_eq!(cells.len(), 130);
    // Positions that other programs rely on.
    for name in [
        "c_ip:1",
        "c_fin_cnt:14",
        "s_ip:15",
        "first:29",
        "s_iscrypto:41",
        "http_t:44",
        "c_rtt_avg:45",
        "s_ttl_max:58",
        "p2p_st:59",
        "c_f1323_opt:65",
        "s_f1323_opt:88",
        "s_syn_retx:110",
        "http_req_cnt:111",
        "c_tls_SNI:116",
        "s_appdataB:126",
        "fqdn:127",
        "res_tm:130",
    ] {
        assert!(cells.iter().any(|(is, _)| is == name), "{name}");
    }
    let mut header = String::new();
    Log::UdpComplete.header(&mut header);
    assert_eq!(
        header,
        "#c_ip:1 c_port:2 c_first_abs:3 c_durat:4 c_bytes_all:5 c_pkts_all:6 c_isint:7 c_iscrypto:8 \
         c_type:9 s_ip:10 s_port:11 s_first_abs:12 s_durat:13 s_bytes_all:14 s_pkts_all:15 \
         s_isint:16 s_iscrypto:17 s_type:18 fqdn:19\n"
    );
    let mut header = String::new();
    Log::TcpNocomplete.header(&mut header);
    assert!(header.starts_with("#15#c_ip:1 ") && header.ends_with(" http_t:44\n"), "{header}");
}

#[test]
fn figures_are_in_the_units_of_the_description() {
    let cells = line(Log::TcpComplete, &complete()).unwrap();
    for (name, value) in [
        ("c_ip:1", "10.0.0.1"),
        ("s_ip:15", "2001:db8::1"),
        ("first:29", "1700000000000.001500"),
        ("durat:31", "1000.000001"),
        ("c_first_ack:36", "20.000000"),
        ("s_pkts_retx:24", "3"),
        ("s_bytes_retx:25", "100"),
        ("c_bytes_retx:11", "0"),
        ("c_isint:38", "1"),
        ("s_isint:39", "0"),
        ("c_iscrypto:40", "1"),
        ("con_t:42", "8192"),
        ("c_rtt_avg:45", "21.000000"),
        ("s_rtt_avg:52", "8.000000"),
        ("http_res_cnt:112", "0"),
        ("http_res:113", "---"),
        ("c_tls_SNI:116", "www.example.net"),
        ("s_tls_SCN:117", "-"),
        ("c_npnalpn:118", "160"),
        ("fqdn:127", "www.example.net"),
    ] {
        assert_eq!(at(&cells, name), value, "{name}");
    }
}

#[test]
fn halves_of_round_trips_follow_the_ends() {
    let mut values = complete();
    values.retain(|(name, _)| !["local_end", "up_remote_rtt"].contains(name));
    values.extend([("local_end", "server".into()), ("up_local_rtt", Value::Number(0.009))]);
    let cells = line(Log::TcpComplete, &values).unwrap();
    assert_eq!(
        (at(&cells, "c_rtt_avg:45"), at(&cells, "s_rtt_avg:52")),
        ("9.000000".into(), "20.000000".into())
    );
}

#[test]
fn each_connection_is_in_one_log() {
    assert!(line(Log::TcpNocomplete, &complete()).is_none());
    for missing in ["first_fin", "handshake_done"] {
        let mut values = complete();
        values.retain(|(name, _)| *name != missing);
        assert!(line(Log::TcpComplete, &values).is_none());
        assert_eq!(line(Log::TcpNocomplete, &values).unwrap().len(), 44);
    }
    let mut reset = complete();
    reset.retain(|(name, _)| *name != "first_fin");
    reset.push(("reset_by", "server".into()));
    let cells = line(Log::TcpComplete, &reset).unwrap();
    assert_eq!((at(&cells, "c_rst_cnt:4"), at(&cells, "s_rst_cnt:18")), ("0".into(), "1".into()));
}

#[test]
fn a_udp_flow_is_a_line_and_a_text_one_field() {
    let name = |name: &'static str, source: &'static str| {
        let values = [("name", name.into()), ("name_source", source.into())];
        at(&line(Log::UdpComplete, &values).unwrap(), "fqdn:19")
    };
    assert_eq!(name("a b\nc", "dns"), "a_b_c");
    assert_eq!(name("", "dns"), "-");
    assert_eq!(name("host.example", "reverse"), "-");
    let moment = |millis| Value::Time(Time::from_millis(millis));
    let values = [("started", moment(1_500)), ("ended", moment(3_750))];
    let cells = line(Log::UdpComplete, &values).unwrap();
    assert_eq!(at(&cells, "c_first_abs:3"), "1500.000000");
    assert_eq!(at(&cells, "c_durat:4"), "2.250000");
    let kind = |protocol: &'static str, port| {
        let values = [("protocol", protocol.into()), ("server_port", Value::Count(port))];
        at(&line(Log::UdpComplete, &values).unwrap(), "c_type:9")
    };
    assert_eq!([kind("quic", 443), kind("other", 53), kind("maybe quic", 443)], ["27", "19", "0"]);
}

#[test]
fn the_document_lists_what_is_unknown() {
    for log in Log::ALL {
        let unknown = log.unknown_columns();
        let words = unknown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
        let text = include_str!("../../../../../docs/flows-export.md");
        assert!(text.contains(&words), "{}: docs/flows-export.md lacks\n{words}", log.name());
    }
}
