//! Any archive reads back as itself.

use std::borrow::Cow;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::archive::*;

const BODIES: [&[u8]; 5] =
    [b"", b"text", "\u{feff}t\u{e9}xt\0".as_bytes(), b"\x1f\x8b\xff\0", b"[1]"];

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![0..2_000_000_000_u64, any::<u64>()].prop_map(Span::from_nanos)
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![1_700_000_000_000_000_000..1_800_000_000_000_000_000_u64, any::<u64>()]
        .prop_map(Time::from_nanos)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Http10, Protocol::Http11, Protocol::Http2, Protocol::Http3])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,12}", any::<String>()]
}

fn fields() -> impl Strategy<Value = Vec<Field>> {
    let name = prop_oneof![
        "[!#$%&'*+.^_`|~0-9a-zA-Z-]{1,9}",
        select(vec!["content-type", "Cookie", "Set-Cookie", "Content-Encoding", "location"])
            .prop_map(str::to_owned)
    ];
    let value = prop_oneof!["[ -~]{0,12}".prop_map(String::into_bytes), vec(any::<u8>(), 0..6)];
    let value = value.prop_map(|mut value| {
        value.retain(|byte| !matches!(byte, 0 | b'\r' | b'\n'));
        value
    });
    vec((name, value).prop_map(|(name, value)| Field { name, value }), 0..4)
}

fn body() -> impl Strategy<Value = Option<Body>> {
    let hollow = (any::<u64>(), of(any::<u64>()), any::<bool>()).prop_map(
        |(length, decoded_length, is_length_announced)| Body {
            length,
            decoded_length,
            digest: None,
            is_length_announced,
        },
    );
    let stored = (select(BODIES.to_vec()), of(any::<u64>()), any::<bool>()).prop_map(
        |(bytes, decoded_length, is_length_announced)| Body {
            length: bytes.len() as u64,
            decoded_length,
            digest: Some(Digest::of(bytes)),
            is_length_announced,
        },
    );
    of(prop_oneof![hollow, stored])
}

fn connection() -> impl Strategy<Value = Connection> {
    let key = prop_oneof![
        any::<u16>().prop_map(KeyKind::Rsa),
        select(vec![KeyKind::P256, KeyKind::P384, KeyKind::Ed25519])
    ];
    let certificate = (vec(text(), 0..3), key, any::<u32>())
        .prop_map(|(names, key, chain_length)| Certificate { names, key, chain_length });
    let tls = (of(text()), of(text()), of(certificate))
        .prop_map(|(server_name, alpn, certificate)| Tls { server_name, alpn, certificate });
    let times = (of(time()), of(time()), of(span()));
    (of(server()), of(any::<u16>()), protocol(), of(tls), times).prop_map(
        |(server, client_port, protocol, tls, (opened, closed, rtt))| Connection {
            server,
            client_port,
            protocol,
            tls,
            opened,
            closed,
            rtt,
        },
    )
}

fn server() -> impl Strategy<Value = SocketAddr> {
    any::<(std::net::IpAddr, u16)>().prop_map(SocketAddr::from)
}

fn tunnelled() -> impl Strategy<Value = Tunnelled> {
    let reason = select(vec![
        TunnelReason::NotHttp,
        TunnelReason::Pinned,
        TunnelReason::EncryptedHello,
        TunnelReason::ClientCertificate,
        TunnelReason::Upgraded,
        TunnelReason::Incompatible,
        TunnelReason::Bypassed,
    ]);
    (server(), of(text()), time(), reason, any::<u64>(), any::<u64>()).prop_map(
        |(server, server_name, opened, reason, sent, received)| Tunnelled {
            server,
            server_name,
            opened,
            reason,
            sent,
            received,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let url = "https?://[a-z]{1,8}\\.example(:[1-9][0-9]{1,3})?/[!$-~]{0,12}";
    ("[A-Z]{1,7}|[a-z!]{1,4}", url, protocol(), fields(), body(), fields()).prop_map(
        |(method, url, protocol, fields, body, trailers)| Request {
            method,
            url,
            protocol,
            fields,
            body,
            trailers,
        },
    )
}

fn response() -> impl Strategy<Value = Response> {
    let interim = (100..=199_u16, fields(), of(span()))
        .prop_map(|(status, fields, after)| Interim { status, fields, after });
    let arrival = (span(), any::<u64>()).prop_map(|(after, bytes)| Arrival { after, bytes });
    let lists = (vec(interim, 0..3), vec(arrival, 0..4));
    (200..=599_u16, text(), protocol(), fields(), body(), fields(), lists).prop_map(
        |(status, reason, protocol, fields, body, trailers, (interim, arrivals))| Response {
            status,
            reason,
            protocol,
            fields,
            interim,
            body,
            trailers,
            arrivals,
        },
    )
}

fn timings() -> impl Strategy<Value = Timings> {
    vec(of(span()), 7).prop_map(|spans| Timings {
        blocked: spans[0],
        dns: spans[1],
        connect: spans[2],
        tls: spans[3],
        send: spans[4],
        wait: spans[5],
        receive: spans[6],
    })
}

fn exchange(connections: usize) -> impl Strategy<Value = Exchange> {
    let connection =
        of(0..connections.max(1)).prop_map(move |index| index.filter(|_| connections > 0));
    let abort = select(vec![Abort::Client, Abort::Server, Abort::Recorder]);
    let ends = (of(response()), of(span()), of(abort));
    (connection, of(any::<u64>()), of(text()), time(), timings(), request(), ends).prop_map(
        |(connection, stream, page, started, timings, request, (response, think, abort))| {
            Exchange { connection, stream, page, started, timings, request, response, think, abort }
        },
    )
}

fn archive() -> impl Strategy<Value = Archive> {
    let page = (text(), text(), time(), of(span()), of(span())).prop_map(
        |(id, title, started, content_loaded, loaded)| Page {
            id,
            title,
            started,
            content_loaded,
            loaded,
        },
    );
    let lists = (text(), vec(page, 0..3), vec(tunnelled(), 0..3), vec(connection(), 0..4));
    lists.prop_flat_map(|(creator, pages, tunnelled, connections)| {
        vec(exchange(connections.len()), 0..5).prop_map(move |exchanges| Archive {
            creator: creator.clone(),
            pages: pages.clone(),
            connections: connections.clone(),
            exchanges,
            tunnelled: tunnelled.clone(),
        })
    })
}

/// The recorded bytes of a body.
fn recorded(body: &Body) -> Option<&'static [u8]> {
    BODIES.into_iter().find(|bytes| body.digest == Some(Digest::of(bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_archive_reads_back_as_itself(archive in archive()) {
        let import = read(&written(&archive)).unwrap();
        prop_assert_eq!(&import.archive, &archive);
        prop_assert_eq!((import.warnings, import.left_out, import.bodies), (vec![], 0, vec![]));
    }

    #[test]
    fn an_archive_with_its_bodies_reads_back_as_itself(archive in archive(), is_decoded: bool) {
        let mut out = Vec::new();
        let mut expected = std::collections::HashMap::new();
        let content = |body: &Body, _: &[Field]| {
            let Some(bytes) = recorded(body) else { return Content::File("name".to_owned()) };
            expected.insert(Digest::of(bytes), bytes.to_vec());
            if is_decoded {
                let decoded = [b"decoded \xff", bytes].concat();
                Content::Embedded { decoded: decoded.into(), encoded: Some(Cow::Borrowed(bytes)) }
            } else {
                Content::Embedded { decoded: Cow::Borrowed(bytes), encoded: None }
            }
        };
        write(&archive, content, &mut out).unwrap();
        let import = read_with_files(&out, |_| panic!("bodies are found by digest")).unwrap();
        prop_assert_eq!(&import.archive, &archive);
        prop_assert_eq!(import.bodies.into_iter().collect::<std::collections::HashMap<_, _>>(), expected);
        prop_assert_eq!(import.warnings, vec![]);
    }

    #[test]
    fn viewers_find_every_mandatory_field(archive in archive()) {
        let file: Value = serde_json::from_slice(&written(&archive)).unwrap();
        let log = &file["log"];
        prop_assert_eq!(&log["creator"]["name"], "manyways");
        prop_assert_eq!(log["pages"].as_array().unwrap().len(), archive.pages.len());
        for entry in log["entries"].as_array().unwrap() {
            for pointer in [
                "/request/headersSize", "/request/bodySize", "/response/status",
                "/response/headersSize", "/response/bodySize", "/response/content/size",
                "/timings/send", "/timings/wait", "/timings/receive", "/time",
            ] {
                prop_assert!(entry.pointer(pointer).is_some_and(Value::is_number), "{pointer}");
            }
            for pointer in [
                "/startedDateTime", "/request/method", "/request/url", "/request/httpVersion",
                "/response/statusText", "/response/httpVersion", "/response/redirectURL",
                "/response/content/mimeType",
            ] {
                prop_assert!(entry.pointer(pointer).is_some_and(Value::is_string), "{pointer}");
            }
            for pointer in [
                "/request/cookies", "/request/headers", "/request/queryString",
                "/response/cookies", "/response/headers",
            ] {
                prop_assert!(entry.pointer(pointer).is_some_and(Value::is_array), "{pointer}");
            }
            prop_assert!(entry["cache"].is_object());
        }
    }
}
