//! Checksums that a device verifies. A kernel trusts a packet whose checksum is marked as still to
//! be computed, so wrong sums pass unnoticed between the two stacks of a lab. Here a far host
//! routes on, over a link that computes and verifies every checksum in software.

use std::fs;
use std::process::{Command, Stdio};

use manyways_tests::testbed::{Namespace, eventually, ip};
use manyways_tests::{Lab, Need, finish, needs};

#[test]
fn checksums_are_right_on_a_hop_that_verifies_them() {
    needs!(Need::Root, Need::Command("iperf3"), Need::Command("ethtool"));
    let lab = Lab::start(&["--link", "wifi:down=40mbit,up=40mbit,delay=2ms"]);
    let (device, far) = (lab.namespace(None), lab.namespace(Some("origin")));
    let server = Namespace::new();
    far.connect(("e0", "172.30.0.1/30"), &server, ("e1", "172.30.0.2/30"));
    far.forward();
    server.run(|| ip("route add default via 172.30.0.1"));
    for (host, interface) in [(&far, "e0"), (&server, "e1")] {
        let off = format!("-K {interface} rx off tx off sg off tso off gso off gro off");
        host.finish(Command::new("ethtool").args(off.split(' '))).expect_success();
    }
    let _iperf = server.start(Command::new("iperf3").arg("-s").stdout(Stdio::null()));
    // Bulk in both directions, cut at the link's packet size.
    for direction in [&[][..], &["-R"]] {
        let mut bulk = Command::new("iperf3");
        bulk.args(["-c", "172.30.0.2", "-n", "3M"]).args(direction);
        device.run(|| {
            eventually("a transfer", || finish(&mut bulk).status.success().then_some(()));
        });
    }
    for host in [&server, &device] {
        let snmp = host.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
        for protocol in ["Tcp:", "Udp:"] {
            let errors = manyways_rig::sockets::counter(&snmp, protocol, "InCsumErrors");
            assert_eq!(errors, Some(0), "{snmp}");
        }
    }
}
