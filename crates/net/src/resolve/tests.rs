use std::net::{TcpListener, UdpSocket as StdUdpSocket};

use proptest::prelude::*;
use simple_dns::rdata::{A, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};

use super::message::{DnsAnswer, Edns, Family, encode_query, parse_response};
use super::query::DNS_PORT;
use super::*;
use manyways_lab::resolver::{Resolver, Zone};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A path over loopback whose servers listen on `port`.
fn path(servers: &[&str], port: u16) -> PathResolver {
    PathResolver { servers: servers.iter().map(|s| ip(s)).collect(), port, ..Default::default() }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Creates a runtime whose clock jumps to the next timer when all tasks wait.
fn run_without_waiting<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(work)
}

fn serve(zone: Zone) -> (Resolver, u16) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = StdUdpSocket::bind(address) {
            return (Resolver::start(zone, udp, tcp, None).unwrap(), address.port());
        }
    }
}

fn zone() -> Zone {
    let mut zone = Zone::default();
    zone.insert("origin.lab", vec![ip("10.9.0.1"), ip("fd00:9::1")]);
    zone.insert("old.lab", vec![ip("10.9.0.2")]);
    zone.insert("many.lab", (1..=100).map(|host| IpAddr::from([10, 9, 1, host])).collect());
    zone
}

#[test]
fn literals_and_localhost_need_no_server() {
    let path = path(&[], 0);
    assert_eq!(run(path.lookup("192.0.2.7")), Ok(vec![ip("192.0.2.7")]));
    assert_eq!(run(path.lookup("[2001:db8::7]")), Ok(vec![ip("2001:db8::7")]));
    assert!(run(path.lookup("localhost")).unwrap().iter().all(IpAddr::is_loopback));
    assert!(run(path.lookup("app.localhost.")).unwrap().iter().all(IpAddr::is_loopback));
}

#[test]
fn what_is_no_name_is_not_asked_for() {
    for host in ["", "a..b", "under the sea", "bücher.example", &"x".repeat(64), "1.2.3.4/5"] {
        let failed = run(path(&["127.0.0.1"], 1).lookup(host));
        assert!(matches!(failed, Err(ResolveError::BadName { .. })), "{host}: {failed:?}");
    }
    assert!(is_host_name("_dns.xn--bcher-kva.example."));
    assert!(is_host_name(&["x".repeat(63).as_str(); 3].join(".")));
    assert!(!is_host_name(&["x".repeat(63).as_str(); 4].join(".")));
}

#[test]
fn a_server_gives_both_families_or_says_that_there_is_no_such_name() {
    let (_server, port) = serve(zone());
    let path = path(&["127.0.0.1"], port);
    assert_eq!(run(path.lookup("Origin.lab.")), Ok(vec![ip("fd00:9::1"), ip("10.9.0.1")]));
    assert_eq!(run(path.lookup("old.lab")), Ok(vec![ip("10.9.0.2")]));
    let failed = run(path.lookup("nobody.lab")).unwrap_err();
    assert_eq!(failed.to_string(), "the name nobody.lab does not exist, according to 127.0.0.1");
}

#[test]
fn only_the_families_that_the_path_has_are_asked_for() {
    let (server, port) = serve(zone());
    let mut path = path(&["127.0.0.1"], port);
    path.addresses = vec![ip("127.0.0.1")];
    assert_eq!(run(path.lookup("origin.lab")), Ok(vec![ip("10.9.0.1")]));
    assert_eq!(server.counters().queries, 1);
    path.addresses = vec![ip("2001:db8::2")];
    let failed = run(path.lookup("old.lab"));
    assert!(matches!(failed, Err(ResolveError::NoAddress { .. })), "{failed:?}");
}

#[test]
fn a_cut_answer_is_asked_for_again_over_tcp() {
    let (server, port) = serve(zone());
    let mut path = path(&["127.0.0.1"], port);
    path.addresses = vec![ip("127.0.0.1")];
    let found = run(path.lookup("many.lab")).unwrap();
    assert_eq!(found.len(), message::MAX_ADDRESSES);
    assert_eq!(server.counters().queries, 2);
}

#[test]
fn no_server_is_said_so() {
    let failed = run(path(&[], 0).lookup("origin.lab")).unwrap_err();
    assert_eq!(failed.to_string(), "no name server is known for this host");
}

#[test]
fn a_silent_server_is_left_for_the_next_and_named_in_the_end() {
    run_without_waiting(async {
        let silent = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let failed = path(&["127.0.0.1"], port).lookup("origin.lab").await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "no name server of this host answers for origin.lab: 127.0.0.1: no answer within 3 s"
        );
        // No server listens on this port of the second address.
        let failed = path(&["127.0.0.1", "127.0.0.2"], port).lookup("origin.lab").await;
        let text = failed.unwrap_err().to_string();
        assert!(text.ends_with("; 127.0.0.2: no name server runs there"), "{text}");
    });
}

/// A server in the test's runtime that answers each query with the packets that `script` returns.
async fn scripted(
    address: &str,
    script: impl Fn(&Packet<'_>) -> Vec<Vec<u8>> + Send + 'static,
) -> u16 {
    let socket = tokio::net::UdpSocket::bind(address).await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            for reply in script(&Packet::parse(&buffer[..length]).unwrap()) {
                socket.send_to(&reply, from).await.unwrap();
            }
        }
    });
    port
}

fn reply(question: &Packet<'_>, rcode: RCODE, ips: &[[u8; 4]]) -> Vec<u8> {
    let mut reply = question.clone().into_reply();
    *reply.rcode_mut() = rcode;
    for ip in ips {
        reply.answers.push(ResourceRecord::new(
            question.questions[0].qname.clone(),
            CLASS::IN,
            1,
            RData::A(A { address: u32::from_be_bytes(*ip) }),
        ));
    }
    reply.build_bytes_vec().unwrap()
}

#[test]
fn a_server_that_refuses_is_left_for_the_next() {
    run(async {
        let port = scripted("127.0.0.1:0", |q| vec![reply(q, RCODE::Refused, &[])]).await;
        let good = scripted(&format!("127.0.0.2:{port}"), |q| {
            vec![reply(q, RCODE::NoError, &[[10, 0, 0, 1]])]
        })
        .await;
        assert_eq!(good, port);
        let both = path(&["127.0.0.1", "127.0.0.2"], port).lookup("origin.lab").await;
        assert_eq!(both, Ok(vec![ip("10.0.0.1")]));
        let failed = path(&["127.0.0.1"], port).lookup("origin.lab").await.unwrap_err();
        assert!(failed.to_string().contains("refuses to answer (REFUSED)"), "{failed}");
    });
}

/// As old servers, and servers behind careless firewalls.
#[test]
fn a_server_that_does_not_know_edns_is_asked_once_more_without() {
    for code in [RCODE::FormatError, RCODE::NotImplemented, RCODE::ServerFailure, RCODE::BADVERS] {
        run(async {
            let port = scripted("127.0.0.1:0", move |q| {
                let mut refusal = reply(q, code, &[]);
                match (q.opt(), code) {
                    (None, _) => return vec![reply(q, RCODE::NoError, &[[10, 0, 0, 1]])],
                    // The question is not repeated.
                    (_, RCODE::FormatError) => {
                        let mut bare = q.clone().into_reply();
                        bare.questions.clear();
                        *bare.rcode_mut() = code;
                        refusal = bare.build_bytes_vec().unwrap();
                    }
                    (_, RCODE::BADVERS) => {
                        // The number of additional records, and an OPT record.
                        refusal[11] = 1;
                        refusal.extend([0, 0, 41, 16, 0, 1, 0, 0, 0, 0, 0]);
                    }
                    _ => {}
                }
                vec![refusal]
            })
            .await;
            let mut path = path(&["127.0.0.1"], port);
            path.addresses = vec![ip("127.0.0.1")];
            assert_eq!(path.lookup("origin.lab").await, Ok(vec![ip("10.0.0.1")]), "{code:?}");
        });
    }
}

#[test]
fn a_server_that_drops_edns_is_asked_again_without() {
    run_without_waiting(async {
        let port = scripted("127.0.0.1:0", |q| match q.opt() {
            Some(_) => vec![],
            None => vec![reply(q, RCODE::NoError, &[[10, 0, 0, 1]])],
        })
        .await;
        let mut path = path(&["127.0.0.1"], port);
        path.addresses = vec![ip("127.0.0.1")];
        assert_eq!(path.lookup("origin.lab").await, Ok(vec![ip("10.0.0.1")]));
    });
}

#[test]
fn packets_that_are_no_answer_to_the_question_are_passed_over() {
    run(async {
        let port = scripted("127.0.0.1:0", |q| {
            let mut forged = q.clone();
            forged.set_id(q.id().wrapping_add(1));
            let mut other = q.clone();
            other.questions[0].qname = Name::new("elsewhere.lab").unwrap();
            vec![
                b"noise".to_vec(),
                reply(&forged, RCODE::NoError, &[[6, 6, 6, 6]]),
                reply(&other, RCODE::NoError, &[[6, 6, 6, 6]]),
                reply(q, RCODE::NoError, &[[10, 0, 0, 1]]),
            ]
        })
        .await;
        let found = path(&["127.0.0.1"], port).lookup("origin.lab").await;
        assert_eq!(found, Ok(vec![ip("10.0.0.1")]));
    });
}

#[test]
fn a_server_that_never_answers_for_one_family_does_not_hold_the_other_up() {
    run(async {
        let port = scripted("127.0.0.1:0", |q| {
            let v4 = q.questions[0].qtype == simple_dns::QTYPE::TYPE(simple_dns::TYPE::A);
            if v4 { vec![reply(q, RCODE::NoError, &[[10, 0, 0, 1]])] } else { vec![] }
        })
        .await;
        let found = path(&["127.0.0.1"], port).lookup("origin.lab").await;
        assert_eq!(found, Ok(vec![ip("10.0.0.1")]));
    });
}

#[test]
fn aliases_are_followed_and_strangers_are_not_believed() {
    let bytes = encode_query(7, "www.example.org", Family::V4, Edns::Offered).unwrap();
    let asked = Packet::parse(&bytes).unwrap();
    let mut packet = asked.clone().into_reply();
    let name = |text| Name::new(text).unwrap();
    let address = |owner, last| {
        let data = RData::A(A { address: u32::from_be_bytes([192, 0, 2, last]) });
        ResourceRecord::new(name(owner), CLASS::IN, 1, data)
    };
    let alias = |owner, target| {
        ResourceRecord::new(name(owner), CLASS::IN, 1, RData::CNAME(CNAME(name(target))))
    };
    packet.answers = vec![
        address("stranger.example.net", 66),
        alias("b.example.net", "c.example.net"),
        alias("WWW.example.org", "b.example.net"),
        address("c.example.net", 1),
        address("C.example.net", 2),
        address("c.example.net", 1),
    ];
    let read = |packet: &Packet<'_>| {
        parse_response(&packet.build_bytes_vec().unwrap(), 7, "www.example.org.", Family::V4)
    };
    assert_eq!(read(&packet), DnsAnswer::Addresses(vec![ip("192.0.2.1"), ip("192.0.2.2")]));
    // A loop of aliases ends.
    packet.answers =
        vec![alias("www.example.org", "b.example.net"), alias("b.example.net", "www.example.org")];
    assert_eq!(read(&packet), DnsAnswer::Addresses(vec![]));
    packet.set_flags(PacketFlag::TRUNCATION);
    assert_eq!(read(&packet), DnsAnswer::Truncated);
}

#[test]
fn the_hosts_file_is_read_as_others_read_it() {
    let file =
        b"127.0.0.1 localhost\n# 192.0.2.9 origin\n192.0.2.1\tweb.example Origin # the one\n\
                 2001:db8::1 origin\nfe80::1%eth0 origin\n192.0.2.2 original\nnonsense origin\n";
    assert_eq!(message::addresses_in_hosts(file, "origin"), [ip("192.0.2.1"), ip("2001:db8::1")]);
    assert_eq!(message::addresses_in_hosts(file, "ORIGIN."), [ip("192.0.2.1"), ip("2001:db8::1")]);
    assert_eq!(message::addresses_in_hosts(file, "nobody"), Vec::<IpAddr>::new());
}

/// Two networks whose name servers have the same address, as with home routers. Only the interface
/// distinguishes the servers, and the same name has another address on each.
#[test]
fn each_path_asks_its_own_server_over_its_own_interface() {
    use manyways_sys::netns::NetNs;
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::Command;

    let new = || match NetNs::create() {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            eprintln!("skipped: no network namespace can be made: {error}");
            None
        }
    };
    let ip_command = |namespace: &NetNs, words: &str| {
        let status = namespace.run(|| Command::new("ip").args(words.split(' ')).status());
        assert!(status.unwrap().success(), "ip {words}");
    };
    let Some(device) = new() else { return };
    let mut servers = Vec::new();
    for (number, name) in [(1, "wifi"), (2, "lte")] {
        let Some(far) = new() else { return };
        let far_path = format!("/proc/{}/fd/{}", std::process::id(), far.as_fd().as_raw_fd());
        ip_command(&device, &format!("link add {name} type veth peer name {name}-gw"));
        ip_command(&device, &format!("link set dev {name}-gw netns {far_path}"));
        ip_command(&device, &format!("addr add 10.77.{number}.2/24 dev {name}"));
        ip_command(&device, &format!("link set dev {name} up"));
        ip_command(&far, &format!("addr add 10.77.{number}.1/24 dev {name}-gw"));
        ip_command(&far, &format!("addr add 10.99.0.1/32 dev {name}-gw"));
        ip_command(&far, &format!("link set dev {name}-gw up"));
        ip_command(
            &device,
            &format!("route add 10.99.0.1 via 10.77.{number}.1 dev {name} metric {number}"),
        );
        let mut zone = Zone::default();
        zone.insert("cdn.lab", vec![IpAddr::from([10, 88, number, 1])]);
        let own = (ip("10.99.0.1"), DNS_PORT);
        let (udp, tcp) =
            far.run(|| Ok((StdUdpSocket::bind(own)?, TcpListener::bind(own)?))).unwrap();
        servers.push(Resolver::start(zone, udp, tcp, None).unwrap());
    }
    let path = |name: &str, number: u8| PathResolver {
        interface: Some(name.into()),
        addresses: vec![IpAddr::from([10, 77, number, 2])],
        servers: vec![ip("10.99.0.1")],
        ..PathResolver::default()
    };
    let (wifi, lte, nowhere) = device
        .run(|| {
            for of in ["all", "wifi", "lte"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), "0")?;
            }
            Ok(run(async {
                (
                    path("wifi", 1).lookup("cdn.lab").await,
                    path("lte", 2).lookup("cdn.lab").await,
                    path("nowhere", 1).lookup("cdn.lab").await,
                )
            }))
        })
        .unwrap();
    assert_eq!(wifi, Ok(vec![ip("10.88.1.1")]));
    assert_eq!(lte, Ok(vec![ip("10.88.2.1")]));
    assert!(matches!(nowhere, Err(ResolveError::NoAnswer { .. })), "{nowhere:?}");
    for server in servers {
        assert_eq!(server.counters().responses, 1);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_response(&bytes, 7, "origin.lab", Family::V4);
        message::addresses_in_hosts(&bytes, "origin.lab");
    }

    /// A valid answer with a few changed bytes never yields more addresses than the limit.
    #[test]
    fn a_damaged_answer_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let bytes = encode_query(7, "origin.lab", Family::V4, Edns::Offered).unwrap();
        let asked = Packet::parse(&bytes).unwrap();
        let many: Vec<[u8; 4]> = (0..60).map(|n| [10, 0, 0, n]).collect();
        let mut bytes = reply(&asked, RCODE::NoError, &many);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let DnsAnswer::Addresses(found) = parse_response(&bytes, 7, "origin.lab", Family::V4) {
            prop_assert!(found.len() <= message::MAX_ADDRESSES);
        }
    }

    #[test]
    fn every_host_name_can_be_asked_for(name in "[a-z0-9_-]{1,63}(\\.[a-z0-9-]{1,20}){0,4}\\.?") {
        prop_assert!(is_host_name(&name));
        let bytes = encode_query(9, &name, Family::V6, Edns::Omitted).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(packet.questions[0].qname.to_string(), name.trim_end_matches('.'));
    }
}
