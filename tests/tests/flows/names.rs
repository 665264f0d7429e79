//! Names of flows, and joins between tables.

use manyways_tests::{Need, needs};

use crate::testbed::{NEEDS, Testbed};

const TLS: [&str; 8] =
    ["protocol", "tls_version", "sni", "alpn", "tls_handshake", "name", "name_source", "ja4"];

#[test]
fn tls_by_openssl() {
    needs!(NEEDS, Need::Command("openssl"));
    let before = "cd $LAB_DIR; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
                  -keyout key.pem -out cert.pem -subj /CN=shop.example.test -days 2 2>/dev/null; \
                  openssl s_server -quiet -accept 443 -key key.pem -cert cert.pem -www -alpn http/1.1 >/dev/null 2>&1 & true";
    let client = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -ign_eof -connect 198.18.0.1:443 \
                  -servername shop.example.test -alpn h2,http/1.1 $WHICH >/dev/null 2>&1\n";
    let script = format!(
        "answers() {{ openssl s_client -connect 198.18.0.1:443 </dev/null >/dev/null 2>&1; }}; eventually answers\n\
         WHICH=-tls1_2; {client}WHICH=-tls1_3; {client}"
    );
    let links = vec!["net:delay=20ms".to_owned()];
    let captured = Testbed {
        links,
        server_setup: before,
        tcpdump: "--snapshot-length 0",
        ..Testbed::default()
    }
    .run(&script);
    let tables = captured.tables("net");
    let flows: Vec<_> =
        tables.table("tcp").iter().filter(|flow| flow.text("sni").is_some()).collect();
    flows.iter().for_each(|flow| eprintln!("{}", flow.describe(&TLS)));
    let [old, new] = flows[..] else { panic!("two flows with a name: {flows:?}") };
    // TLS 1.2 takes one round trip more than TLS 1.3 for the handshake.
    for (flow, version, trips) in [(old, "1.2", 2.0), (new, "1.3", 1.0)] {
        assert_eq!(flow.text("protocol"), Some("tls"));
        assert_eq!(flow.text("sni"), Some("shop.example.test"));
        assert_eq!(flow.text("alpn"), Some("h2,http/1.1"));
        assert_eq!(
            (flow.text("name"), flow.text("name_source")),
            (Some("shop.example.test"), Some("tls"))
        );
        assert!(
            flow.text("tls_version").is_some_and(|said| said.contains(version)),
            "{}",
            flow.describe(&TLS)
        );
        assert!(flow.millis("tls_handshake") >= 40.0 * trips - 0.1, "{}", flow.describe(&TLS));
    }
    assert!(new.millis("tls_handshake") < old.millis("tls_handshake"));
}

/// The gateway of the lab responds.
#[test]
fn names_by_a_name_server() {
    needs!(NEEDS);
    let links = vec!["net:delay=20ms".to_owned()];
    let testbed = Testbed { links, tcpdump: "-s 0", ..Testbed::default() };
    let captured = testbed
        .run("$PEER client read bulk 100\n$PEER resolve 10.64.1.1 origin.lab\n$PEER client read bulk 100\n");
    let tables = captured.tables("net");
    let [before, after] = tables.table("tcp") else { panic!("two flows") };
    assert_eq!(before.text("name"), None, "nobody had asked yet");
    let name = ["name", "name_source"].map(|column| after.text(column));
    assert_eq!(name, [Some("origin.lab"), Some("dns")]);
    assert_eq!(tables.table("dns").len(), 1, "{:?}", tables.table("dns"));
    assert!(tables.table("dns")[0].millis("latency") >= 40.0, "{:?}", tables.table("dns"));
}

#[test]
fn subflows_of_one_connection() {
    needs!(NEEDS, Need::File("/proc/sys/net/mptcp/enabled"));
    let links =
        vec!["wifi:down=16mbit,delay=10ms".to_owned(), "lte:down=8mbit,delay=25ms".to_owned()];
    let script = "tcpdump -i any -s 128 --immediate-mode -U -w $OUT/any.pcap 2>$OUT/any.log & ONE=$!\n\
                  listening $OUT/any.log\n\
                  $PEER client --port 8080 --protocol 262 read bulk 6000000\n\
                  captured wifi $OUT/any.pcap; captured lte $OUT/any.pcap; kill -INT $ONE\n";
    let captured = Testbed { links, serve: "mptcp", ..Testbed::default() }.run(script);
    let tables = captured.tables("any");
    assert_eq!(tables.table("tcp").len(), 2);
    let [connection] = tables.table("mptcp") else { panic!("one connection: {tables:?}") };
    let [first, second] = tables.table("subflows") else { panic!("two subflows: {tables:?}") };
    eprintln!("{connection:?}\n{first:?}\n{second:?}");
    assert_eq!((connection.count("subflows"), connection.count("down_data")), (2, 6_000_000));
    assert!(connection.flag("is_complete"));
    let roles = [first, second].map(|subflow| subflow.text("role"));
    assert_eq!(roles, [Some("primary"), Some("joined")]);
    assert!(
        second.flag("is_verified") && second.number("join_delay").is_some_and(|delay| delay > 0.0)
    );
    // Bytes of each link, from a capture of that link alone.
    let came =
        ["wifi", "lte"].map(|link| captured.tables(link).table("tcp")[0].count("down_bytes"));
    let said = [first, second].map(|subflow| subflow.count("down_bytes"));
    assert_eq!(said, came);
    let share = came[0] as f64 / (came[0] + came[1]) as f64;
    let reported = connection.number("down_share_of_primary").unwrap_or(-1.0);
    assert!((reported - share).abs() < 0.001, "{reported}, truth {share}");
}
