//! Checksums that a device verifies. A kernel trusts a packet whose checksum is marked as still to
//! be computed, so wrong sums pass unnoticed between the two stacks of a lab. Here a far host
//! routes on, over a link that computes and verifies every checksum in software.

use std::fs;

use manyways_tests::{Need, finish, folder, manyways, needs};

/// The far host: a router, and behind it a server in a namespace of its own.
const FAR: &str = r#"set -e
plain() { ethtool -K "$1" rx off tx off sg off tso off gso off gro off >/dev/null 2>&1; }
unshare -n sh -ec '
  touch "$LAB_DIR/inside"
  until ip link set e1 up 2>/dev/null; do :; done
  ip addr add 172.30.0.2/30 dev e1
  ip route add default via 172.30.0.1
  ethtool -K e1 rx off tx off sg off tso off gso off gro off >/dev/null 2>&1
  touch "$LAB_DIR/serving"
  iperf3 -s -1; iperf3 -s -1
  cat /proc/net/snmp >"$LAB_DIR/snmp.new"
  mv "$LAB_DIR/snmp.new" "$LAB_DIR/snmp"
' >/dev/null &
until [ -e "$LAB_DIR/inside" ]; do :; done
ip link add e0 type veth peer name e1
ip link set e1 netns $!
ip addr add 172.30.0.1/30 dev e0
ip link set e0 up
plain e0
echo 1 >/proc/sys/net/ipv4/ip_forward
until [ -e "$LAB_DIR/serving" ]; do :; done
# The lab waits until somebody listens here.
exec iperf3 -s -p 5999 >/dev/null"#;

/// The device: bulk both ways, cut at the link's packet size; then the counters of both ends.
const DEVICE: &str = r#"set -e
try() { n=0; until iperf3 -c 172.30.0.2 -n 3M "$@" >/dev/null; do n=$((n+1)); [ $n -lt 20 ]; done; }
try
try -R
until [ -e "$LAB_DIR/snmp" ]; do :; done
cat "$LAB_DIR/snmp" /proc/net/snmp"#;

#[test]
fn checksums_are_right_on_a_hop_that_verifies_them() {
    needs!(Need::Root, Need::Command("iperf3"), Need::Command("ethtool"));
    let folder = folder();
    let (far, device) = (folder.path().join("far.sh"), folder.path().join("device.sh"));
    fs::write(&far, FAR).unwrap();
    fs::write(&device, DEVICE).unwrap();
    let far = format!("sh {}", far.display());
    let done = finish(
        manyways()
            .args(["lab", "shell", "--link", "wifi:down=40mbit,up=40mbit,delay=2ms"])
            .args(["--far", &far, "--", "timeout", "60", "sh"])
            .arg(&device),
    );
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    for name in ["Tcp", "Udp"] {
        assert_eq!(checksum_errors(&done.stdout, name), [Some(0), Some(0)], "{}", done.stdout);
    }
}

/// `InCsumErrors` of a protocol in each table: the name row, then the value row.
fn checksum_errors(snmp: &str, protocol: &str) -> Vec<Option<u64>> {
    let prefix = format!("{protocol}: ");
    let rows: Vec<_> = snmp.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
    rows.chunks(2)
        .map(|table| {
            let place = table[0].split(' ').position(|name| name == "InCsumErrors")?;
            table.get(1)?.split(' ').nth(place)?.parse().ok()
        })
        .collect()
}
