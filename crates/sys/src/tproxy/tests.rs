//! Rules in unnamed namespaces: a host with one link to other hosts, of which one server answers
//! `direct` to every client, and a proxy on the host that answers with the requested destination.

pub(crate) mod testbed;

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use manyways_unit::Span;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use testbed::{Proxy, Testbed, V4, V6, ask_tcp, ask_udp, connect, udp_until};

use super::*;

/// Set in the process that will be killed.
const CHILD: &str = "MANYWAYS_TEST_TPROXY_CHILD";

/// Longer than any test.
const LIFETIME: Span = Span::from_secs(600);

fn rules(proxy: &Proxy) -> Rules {
    let direct = private();
    Rules { direct, ..Rules::new(proxy.targets(), vec![Selection::All], LIFETIME) }
}

/// Returns valid rules that are only inspected.
fn without_proxy() -> Rules {
    let targets = Targets {
        tcp_v4: Target::Proxy(1),
        tcp_v6: Target::Reject,
        udp_v4: Target::Direct,
        udp_v6: Target::Direct,
    };
    Rules::new(targets, vec![Selection::All], LIFETIME)
}

fn proxied(destination: SocketAddr) -> String {
    format!("proxy {destination}")
}

#[test]
fn all_that_the_host_sends_arrives_with_its_original_destination() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules = rules(&proxy).install().unwrap();
        for to in [V4, V6] {
            // One after the other, so that the next query meets leftovers of the previous one.
            for _ in 0..3 {
                assert_eq!(ask_tcp(to).unwrap(), proxied(to));
                assert_eq!(ask_udp(to, None).unwrap(), proxied(to));
            }
        }
        assert_eq!(rules.check().unwrap(), []);
        rules.refresh().unwrap();
        assert_eq!(rules.check().unwrap(), []);
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
    });
}

#[test]
fn a_batch_of_datagrams_and_a_large_one_arrive_as_they_were_sent() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let _installed = rules(&proxy).install().unwrap();
        for (any, to) in [("0.0.0.0:0", V4), ("[::]:0", V6)] {
            let socket = testbed::datagrams(any, to);
            // Libraries for QUIC send like this.
            setsockopt(&socket, UdpGsoSegment, &1200).unwrap();
            socket.send(&[7; 3000]).unwrap();
            let mut buffer = [0; 64];
            for _ in 0..3 {
                let length = socket.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], proxied(to).as_bytes());
            }
            let socket = testbed::datagrams(any, to);
            socket.send(&[7; 20_000]).unwrap();
            assert!(socket.recv(&mut buffer).is_ok());
        }
    });
}

#[test]
fn other_targets_take_the_place_of_those_before_and_connections_go_on() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let all = rules(&proxy);
        let lacking = Targets { tcp_v6: Target::Reject, udp_v6: Target::Reject, ..all.targets };
        let mut installed = Rules { targets: lacking, ..all.clone() }.install().unwrap();
        let mut before = connect(V4).unwrap();
        assert_eq!(ask_tcp(V6).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        installed.replace(&all).unwrap();
        for to in [V4, V6] {
            assert_eq!(ask_tcp(to).unwrap(), proxied(to));
            assert_eq!(ask_udp(to, None).unwrap(), proxied(to));
        }
        installed.replace(&Rules { targets: lacking, direct: Vec::new(), ..all }).unwrap();
        assert_eq!(ask_tcp(V6).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(ask_tcp(testbed::PRIVATE).unwrap(), proxied(testbed::PRIVATE));
        assert_eq!(testbed::answer(&mut before).unwrap(), proxied(V4));
        installed.refresh().unwrap();
        assert_eq!(installed.check().unwrap(), []);
        drop(installed);
        assert_eq!(ask_tcp(V6).unwrap(), "direct");
    });
}

#[test]
fn excluded_traffic_is_not_redirected() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let mut rules = rules(&proxy);
        rules.own_users = vec![4242];
        let own = rules.names.own_mark;
        let installed = rules.install().unwrap();
        for to in [V4, V6] {
            assert_eq!(testbed::ask_tcp_marked(to, own).unwrap(), "direct");
            assert_eq!(ask_udp(to, Some(own)).unwrap(), "direct");
            assert_eq!(testbed::as_user(4242, || ask_tcp(to)).unwrap(), "direct");
            assert_eq!(testbed::as_user(4243, || ask_tcp(to)).unwrap(), proxied(to));
        }
        // The host's own address, and a private address of its subnet.
        let listener = TcpListener::bind(testbed::OWN).unwrap();
        let near = connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(near.local_addr().unwrap(), listener.accept().unwrap().1);
        assert_eq!(ask_tcp(testbed::PRIVATE).unwrap(), "direct");
        // A socket bound to an interface is not redirected.
        assert_eq!(testbed::ask_tcp_through(V4, "wan").unwrap(), "direct");
        assert_eq!(testbed::ask_tcp_through(V6, "wan").unwrap(), "direct");
        installed.set_direct(&[]).unwrap();
        assert_eq!(ask_tcp(testbed::PRIVATE).unwrap(), proxied(testbed::PRIVATE));
        let both: Vec<Prefix> = [V4, V6].iter().map(|to| Prefix::from(to.ip())).collect();
        installed.set_direct(&both).unwrap();
        for to in [V4, V6] {
            assert_eq!(ask_tcp(to).unwrap(), "direct");
            assert_eq!(ask_udp(to, None).unwrap(), "direct");
        }
        let subnets: Vec<String> = connected().unwrap().iter().map(Prefix::to_string).collect();
        assert!(subnets.contains(&"198.51.100.0/24".to_owned()), "{subnets:?}");
        assert!(subnets.contains(&"2001:db8:51::/64".to_owned()), "{subnets:?}");
    });
}

#[test]
fn only_selected_traffic_is_redirected() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let mut rules = rules(&proxy);
        rules.selections = vec![
            Selection::Users(vec![4242]),
            Selection::Marked(0x40),
            Selection::To(vec![testbed::OTHER.ip().into()]),
        ];
        let installed = rules.install().unwrap();
        for to in [V4, V6] {
            assert_eq!(ask_tcp(to).unwrap(), "direct");
            assert_eq!(ask_udp(to, None).unwrap(), "direct");
            assert_eq!(ask_udp(to, Some(0x41)).unwrap(), proxied(to));
            assert_eq!(testbed::as_user(4242, || ask_tcp(to)).unwrap(), proxied(to));
        }
        assert_eq!(ask_tcp(testbed::OTHER).unwrap(), proxied(testbed::OTHER));
        installed.remove().unwrap();
        assert_eq!(ask_tcp(testbed::OTHER).unwrap(), "direct");
    });
}

#[test]
fn a_family_that_is_rejected_is_so_at_once_and_one_that_is_direct_is_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let mut rules = rules(&proxy);
        rules.targets.tcp_v6 = Target::Reject;
        rules.targets.udp_v6 = Target::Reject;
        rules.targets.udp_v4 = Target::Direct;
        let _installed = rules.install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        assert_eq!(ask_tcp(V6).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(ask_udp(V4, None).unwrap(), "direct");
        assert_ne!(ask_udp(V6, None).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn nothing_is_left_after_removal() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules = rules(&proxy);
        let before = testbed::installed_state();
        let installed = rules.install().unwrap();
        assert_ne!(testbed::installed_state(), before);
        installed.remove().unwrap();
        assert_eq!(testbed::installed_state(), before);
        drop(rules.install().unwrap());
        assert_eq!(testbed::installed_state(), before);
        assert!(!remove(&rules.names).unwrap(), "there was nothing to remove");

        let once = rules.install().unwrap();
        let installed = testbed::installed_state();
        let twice = rules.install().unwrap();
        assert_eq!(testbed::installed_state(), installed, "in place of the first");
        drop((once, twice));
        assert_eq!(testbed::installed_state(), before);
    });
}

#[test]
fn connections_from_before_the_installation_continue() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut echo = connect(testbed::ECHO).unwrap();
        let mut answer = [0; 4];
        echo.write_all(b"ping").unwrap();
        echo.read_exact(&mut answer).unwrap();
        let server = TcpListener::bind(testbed::OWN).unwrap();
        let mut served = testbed.on_server(|| connect(server.local_addr().unwrap())).unwrap();
        let mut inside = server.accept().unwrap().0;

        let proxy = Proxy::start();
        let _installed = rules(&proxy).install().unwrap();
        echo.write_all(b"pong").unwrap();
        echo.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"pong");
        // The host is the server: the first packet that the rules see is one of its answers.
        inside.write_all(b"data").unwrap();
        served.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"data");
        let mut later = testbed.on_server(|| connect(server.local_addr().unwrap())).unwrap();
        server.accept().unwrap().0.write_all(b"more").unwrap();
        later.read_exact(&mut answer).unwrap();
    });
}

#[test]
fn without_its_proxy_traffic_flows_directly() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let installed = rules(&proxy).install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        drop(proxy);
        // The first packet detects the dead proxy, and is retransmitted.
        for to in [V4, V6] {
            assert_eq!(ask_tcp(to).unwrap(), "direct");
            assert_eq!(udp_until(to, "direct"), "direct");
        }
        let proxy = Proxy::start();
        let again = Rules { lifetime: LIFETIME, ..rules(&proxy) }.install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        again.pause().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), "direct");
        assert_eq!(ask_udp(V4, None).unwrap(), "direct");
        again.refresh().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        drop((installed, again));
    });
}

#[test]
fn a_proxy_that_hangs_loses_new_traffic_only() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let _installed =
            Rules { lifetime: Span::from_millis(300), ..rules(&proxy) }.install().unwrap();
        let mut kept = connect(V4).unwrap();
        while ask_tcp(V4).unwrap() != "direct" {}
        while ask_tcp(V6).unwrap() != "direct" {}
        assert_eq!(ask_udp(V4, None).unwrap(), "direct");
        assert_eq!(testbed::answer(&mut kept).unwrap(), proxied(V4), "it goes on");
    });
}

#[test]
fn without_its_proxy_traffic_is_rejected_when_that_is_wanted() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules = Rules { fail_mode: FailMode::Blocked, ..rules(&proxy) };
        let _installed = rules.install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        drop(proxy);
        for to in [V4, V6] {
            for _ in 0..2 {
                assert_eq!(ask_tcp(to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            }
            // The datagram that detects the dead proxy is lost; the next ones are rejected.
            let _ = ask_udp(to, None);
            assert_ne!(ask_udp(to, None).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(ask_tcp(testbed::PRIVATE).unwrap(), "direct", "the local network goes on");
        assert_eq!(testbed::ask_tcp_marked(V4, rules.names.own_mark).unwrap(), "direct");
    });
}

#[test]
fn forwarded_traffic_is_redirected_and_passes_without_a_proxy() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules =
            Rules { selections: vec![Selection::From(vec!["lan".to_owned()])], ..rules(&proxy) };
        let _installed = rules.install().unwrap();
        for to in [V4, V6] {
            assert_eq!(testbed.on_lan(|| ask_tcp(to)).unwrap(), proxied(to));
            assert_eq!(testbed.on_lan(|| ask_udp(to, None)).unwrap(), proxied(to));
            assert_eq!(ask_tcp(to).unwrap(), "direct", "this host's own is not selected");
        }
        let own = vec![Selection::All, Selection::From(vec!["lan".to_owned()])];
        let both = Rules { selections: own, ..rules.clone() }.install().unwrap();
        // Settings of VPNs and distributions.
        for (setting, value) in [("rp_filter", "1"), ("src_valid_mark", "1")] {
            for of in ["all", "lan", "wan"] {
                fs::write(format!("/proc/sys/net/ipv4/conf/{of}/{setting}"), value).unwrap();
            }
        }
        for to in [V4, V6] {
            assert_eq!(testbed.on_lan(|| ask_tcp(to)).unwrap(), proxied(to));
            assert_eq!(testbed.on_lan(|| ask_udp(to, None)).unwrap(), proxied(to));
            assert_eq!(ask_tcp(to).unwrap(), proxied(to));
            assert_eq!(ask_udp(to, None).unwrap(), proxied(to));
        }
        testbed::ip("-6 route del default");
        assert_eq!(
            testbed.on_lan(|| ask_tcp(V6)).unwrap(),
            proxied(V6),
            "the proxy may know a way"
        );
        testbed::ip("-6 route add default via 2001:db8:51::2");
        std::mem::forget(both);

        let _installed = rules.install().unwrap();
        drop(proxy);
        for to in [V4, V6] {
            assert_eq!(testbed.on_lan(|| ask_tcp(to)).unwrap(), "direct");
            assert_eq!(testbed.on_lan(|| ask_udp(to, None)).unwrap(), "direct");
        }
        let proxy = Proxy::start();
        let _closed = Rules { fail_mode: FailMode::Blocked, targets: proxy.targets(), ..rules }
            .install()
            .unwrap();
        assert_eq!(testbed.on_lan(|| ask_tcp(V4)).unwrap(), proxied(V4));
        drop(proxy);
        for to in [V4, V6] {
            let error = testbed.on_lan(|| ask_tcp(to)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let error = testbed.on_lan(|| ask_udp(to, None)).unwrap_err();
            assert_ne!(error.kind(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn a_cgroup_is_selected_where_the_host_can() {
    let Some(testbed) = Testbed::new() else { return };
    if let Err(why) = can_match_cgroup() {
        eprintln!("skipped: {why}");
        return;
    }
    let Some(group) = testbed::Group::make() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules =
            Rules { selections: vec![Selection::Cgroup(group.path.clone())], ..rules(&proxy) };
        let installed = rules.install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), "direct");
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec 3<>/dev/tcp/{}/{} && echo >&3 && cat <&3",
            group.folder.display(),
            V4.ip(),
            V4.port(),
        );
        let bounded = ["20", "bash", "-c", &script];
        let output = Command::new("timeout").args(bounded).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), proxied(V4), "{output:?}");
        assert_eq!(installed.check().unwrap(), []);

        let none = vec![Selection::Cgroup("/manyways/none".to_owned())];
        let error = Rules { selections: none, ..rules.clone() }.install().unwrap_err();
        assert!(matches!(error, Error::Cgroup { reason: CgroupError::NotFound, .. }), "{error}");
    });
}

#[test]
fn removed_parts_are_detected_and_restored() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let proxy = Proxy::start();
        let rules = rules(&proxy);
        let mut installed = rules.install().unwrap();
        testbed::ip("-4 rule del pref 417");
        testbed::ip("-6 route flush table 4917");
        let missing = installed.check().unwrap();
        assert_eq!(missing, [Missing::RuleV4, Missing::RouteV6]);
        assert_eq!(installed.repair(&rules).unwrap(), missing);
        assert_eq!(installed.check().unwrap(), []);
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        command::nft("flush chain inet manyways-bond spare\n").unwrap();
        assert_eq!(installed.check().unwrap()[0], Missing::Chains);
        command::nft("flush ruleset\n").unwrap();
        assert_eq!(installed.check().unwrap()[0], Missing::Table);
        assert!(installed.refresh().is_err());
        assert_eq!(installed.repair(&rules).unwrap(), [Missing::Table]);
        assert_eq!(installed.check().unwrap(), []);
        assert_eq!(ask_tcp(V6).unwrap(), proxied(V6));
    });
}

#[test]
fn numbers_that_others_use_are_refused_and_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let rules = rules(&Proxy::start());
        testbed::ip("rule add from 192.0.2.1 lookup 5 pref 417");
        let before = testbed::installed_state();
        let error = rules.install().unwrap_err();
        assert!(matches!(error, Error::NumberInUse { .. }), "{error}");
        assert_eq!(testbed::installed_state(), before);
        testbed::ip("rule del pref 417");
        testbed::ip("-6 route add blackhole default table 4917");
        let before = testbed::installed_state();
        assert!(matches!(rules.install().unwrap_err(), Error::NumberInUse { .. }));
        assert_eq!(testbed::installed_state(), before);
    });
}

#[test]
fn missing_permissions_and_programs_are_reported() {
    let names = Names::default();
    match std::env::var(CHILD).as_deref() {
        Ok("plain") => {
            crate::privilege::drop_to("nobody").unwrap();
            assert!(matches!(remove(&names), Err(Error::NotPermitted)));
            assert!(matches!(without_proxy().install(), Err(Error::NotPermitted)));
        }
        Ok(_) => assert!(matches!(remove(&names), Err(Error::NoProgram { program: "nft", .. }))),
        Err(_) => {
            let Some(testbed) = Testbed::new() else { return };
            testbed.run(|| {
                assert!(
                    probe::missing_feature().is_none(),
                    "the other tests have all that they need"
                );
                for (case, path) in
                    [("plain", std::env::var("PATH").unwrap()), ("bare", "/".into())]
                {
                    let output = Command::new(std::env::current_exe().unwrap())
                        .args(["--exact", "--nocapture"])
                        .arg("tproxy::tests::missing_permissions_and_programs_are_reported")
                        .env(CHILD, case)
                        .env("PATH", path)
                        .output()
                        .unwrap();
                    let stderr = String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success(), "{case}: {stderr}");
                }
            });
        }
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_changed() {
    let good = without_proxy();
    let text = |rules: &Rules| script::table(rules, (1, 1), true);
    assert!(text(&good).is_ok());
    let quote = vec![Selection::From(vec!["lan\" } accept".to_owned()])];
    let overlapping = Names { own_mark: 0x3000_0000, ..Names::default() };
    let spaced = Names { nft: "a b".to_owned(), ..Names::default() };
    for bad in [
        Rules { selections: quote, ..good.clone() },
        Rules { names: overlapping, ..good.clone() },
        Rules { names: spaced, ..good.clone() },
    ] {
        assert!(matches!(text(&bad), Err(Error::InvalidValue(_))), "{bad:?}");
    }
}

#[test]
fn rules_of_a_killed_process_are_taken_over() {
    if std::env::var_os(CHILD).is_some() {
        let proxy = Proxy::start();
        let _installed = rules(&proxy).install().unwrap();
        println!("\ninstalled");
        // Killed while it reads.
        let _ = io::stdin().read(&mut [0]);
        return;
    }
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let before = testbed::installed_state();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("tproxy::tests::rules_of_a_killed_process_are_taken_over")
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line == "installed"));
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));

        let proxy = Proxy::start();
        let other = rules(&proxy);
        let pid = child.id() as i32;
        for error in [other.install().unwrap_err(), remove(&other.names).unwrap_err()] {
            assert!(matches!(error, Error::InUse { pid: who } if who == pid), "{error}");
        }
        assert_eq!(ask_tcp(V6).unwrap(), proxied(V6), "the first one's rules are whole");
        let mut kept = connect(V4).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();

        match kept.read(&mut [0]) {
            Ok(length) => assert_eq!(length, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert_eq!(ask_tcp(V4).unwrap(), "direct", "the host is not cut off");
        let installed = other.install().unwrap();
        assert_eq!(ask_tcp(V4).unwrap(), proxied(V4));
        std::mem::forget(installed);
        assert!(remove(&other.names).unwrap());
        assert_eq!(testbed::installed_state(), before);
    });
}

/// Runs work on the other hosts; `on_server` returns a stream, so that a test can wait for an
/// answer.
impl Testbed {
    fn on_server(
        &self,
        work: impl FnOnce() -> io::Result<TcpStream> + Send,
    ) -> io::Result<TcpStream> {
        self.server.run(work)
    }

    fn on_lan(&self, work: impl FnOnce() -> io::Result<String> + Send) -> io::Result<String> {
        self.lan.run(work)
    }
}
