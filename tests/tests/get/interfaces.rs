//! Interfaces that are removed, return, or appear late.

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// Saves the routes and addresses that the kernel deletes when an interface goes down, and restores
/// them.
const SAVE_ROUTES: &str = r#"
keep() {
  ip -4 route show table $2 >routes4; ip -6 route show table $2 >routes6
  ip -4 route show dev $1 >main4; ip -6 route show dev $1 | grep -v fe80 >main6
  ip -6 -o addr show dev $1 scope global | awk '{print $4}' >addresses6
}
bring_back() {
  ip link set $1 up
  while read -r address; do ip -6 addr add $address dev $1 nodad 2>/dev/null; done <addresses6
  while read -r route; do ip -4 route replace $route table $2; done <routes4
  while read -r route; do ip -6 route replace $route table $2; done <routes6
  while read -r route; do ip -4 route replace $route dev $1; done <main4
  while read -r route; do ip -6 route replace $route dev $1; done <main6
  true
}
"#;

/// Starts a download, and runs `then` once both networks have delivered bytes.
fn under_way(then: &str) -> String {
    format!(
        "{SAVE_ROUTES} stop_at wifi 300000 lte 200000; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {then}; go_on wifi lte; wait $pid; echo $? >code; whole"
    )
}

// Slow: six labs, one after the other.
#[test]
fn an_interface_that_is_switched_off_or_removed_under_way() {
    needs_far!("ip");
    for then in [
        "ip link set wifi down",
        "ip link set lte down",
        "ip link del wifi",
        "ip link del lte",
        "ip addr flush dev wifi",
        "ip link set lte down; ip link set lte name gone",
    ] {
        let testbed = Testbed::new();
        testbed.run(&SLOW_LINKS, &under_way(then)).expect_success();
        assert_eq!(testbed.read("code"), "0\n", "{then}: {}", testbed.read("said"));
        let transfer = Transfer::only(&testbed.read("json"));
        transfer.assert_paths(&["wifi", "lte"]);
        assert_eq!(testbed.fetched(), ["object"]);
    }
}

#[test]
fn an_interface_that_is_switched_off_and_on_again_is_used_again() {
    needs_far!("ip", "awk");
    let testbed = Testbed::new();
    // Wi-Fi delivers a part, and the rest after LTE has come back.
    let script = format!(
        "{SAVE_ROUTES} stop_at wifi 300000 lte 300000; keep lte 102; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         ip link set lte down; eventually grep -q 'lte is gone' said; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         bring_back lte 102; go_on lte; come lte 300000 $start; go_on wifi; wait $pid && whole"
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
    assert!(testbed.read("said").contains("manyways: lte is back\n"), "{}", testbed.read("said"));
}

/// Its address remains, as at the edge of a Wi-Fi's reach.
#[test]
fn a_network_whose_carrier_returns_is_back() {
    needs_far!();
    let testbed = Testbed::new();
    // Wi-Fi delivers the rest after LTE has come back twice.
    let flap = "change lte state=no-carrier; eventually said_times 'lte is gone' $times; \
                change lte state=up; eventually said_times 'lte is back' $times";
    let script = format!(
        "said_times() {{ [ $(grep -c \"$1\" said) = $2 ]; }}; stop_at wifi 300000; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come wifi 300000; \
         for times in 1 2; do {flap}; done; go_on wifi; wait $pid && whole"
    );
    let links = ["--link", "wifi:down=8mbit", "--link", "lte:down=100kbit"];
    testbed.run(&links, &script).expect_success();
}

/// As with a modem reset: the interface is removed, and a new one gets its name.
#[test]
fn an_interface_that_is_removed_and_returned_is_used_again() {
    needs_far!("ip", "awk");
    let testbed = Testbed::new();
    let script = format!(
        "{SAVE_ROUTES} stop_at wifi 300000 lte 300000; keep lte 102; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         ip link set lte down; ip link set lte name gone; \
         eventually grep -q 'lte is gone' said; \
         ip link set gone name lte; bring_back lte 102; go_on lte; come lte 300000 $start; \
         go_on wifi; wait $pid && whole"
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
}

#[test]
fn a_network_that_appears_under_way_joins() {
    needs_far!("ip");
    let testbed = Testbed::new();
    // LTE joins while Wi-Fi delivers, which takes 17 s.
    let script = "change lte state=no-carrier; change wifi down=700kbit; stop_at wifi 1500000; \
         $GET --json --events events https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 100000; change lte state=up; come lte 300000; has_come wifi 1500000 && exit 7; \
         change wifi down=8mbit; go_on wifi; wait $pid && whole && \
         grep '\"event\":\"request\"' events | grep -q '\"path\":\"lte\"'";
    testbed.run(&SLOW_LINKS, script).expect_success();
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
    assert!(testbed.read("said").contains("manyways: lte joined\n"), "{}", testbed.read("said"));
}

/// As after a DHCP server has lost its leases: the old address receives no more packets.
#[test]
fn a_network_that_gets_another_address_is_used_with_that() {
    needs_far!("ip");
    let testbed = Testbed::new();
    let script = "stop_at wifi 300000 lte 300000; ip -6 addr flush dev lte scope global; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         ip -4 route show dev lte >main; ip -4 route show table 102 >table; \
         ip addr add 10.64.2.7/24 dev lte; ip addr del 10.64.2.2/24 dev lte; \
         ip addr add 10.64.2.7/24 dev lte 2>/dev/null; \
         for file in main table; do sed -i s/10.64.2.2/10.64.2.7/ $file; done; \
         while read -r route; do ip -4 route replace $route dev lte 2>/dev/null; done <main; \
         while read -r route; do ip -4 route replace $route table 102; done <table; \
         ip rule add from 10.64.2.7 table 102; \
         eventually grep -q 'lte has another address' said; go_on lte; come lte 300000 $start; \
         go_on wifi; wait $pid && whole";
    testbed.run(&SLOW_LINKS, script).expect_success();
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
}

/// A network that `--via` does not name is not used.
#[test]
fn a_network_that_appears_under_way_joins_only_where_it_is_meant() {
    needs_far!("ip");
    let testbed = Testbed::new();
    let script = "change lte state=no-carrier; stop_at wifi 100000; \
         before=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         $GET --via wifi --json https://origin.lab/object >json 2>said & pid=$!; come wifi 100000; \
         change lte state=up; eventually grep -q 1 /sys/class/net/lte/carrier; \
         go_on wifi; wait $pid && whole && \
         echo $(($(cat /sys/class/net/lte/statistics/rx_bytes) - before)) >counted";
    testbed.run(&SLOW_LINKS, script).expect_success();
    let transfer = Transfer::only(&testbed.read("json"));
    assert_eq!(transfer.bytes("wifi"), OBJECT_LENGTH);
    let counted: u64 = testbed.read("counted").trim().parse().expect("a number");
    assert!(counted < 2_000, "{counted}");
}

/// A network that was silent for a while is used again.
#[test]
fn both_networks_silent_for_a_moment() {
    needs_far!();
    let testbed = Testbed::new();
    let set = |state: &str| format!("change wifi state={state}; change lte state={state}");
    // Until the first request has failed.
    let script = format!(
        "stop_at wifi 300000 lte 200000; MANYWAYS_LOG=debug $GET --json --events events https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {}; \
         eventually grep -q '\"outcome\":\"\\(failed\\|cancelled\\)\"' events; {}; wait $pid && whole",
        set("silent"),
        set("up")
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    assert_eq!(Transfer::only(&testbed.read("json")).number("bytes"), OBJECT_LENGTH);
}

/// The other networks continue while one waits for its name servers.
// Slow: each lookup at silent name servers takes 13 s.
#[test]
fn name_servers_that_are_silent_on_one_network() {
    needs_far!("nft");
    let testbed = Testbed::new();
    let deaf = |link: u8| {
        format!(
            "nft -f - <<END\n\
             table inet deaf {{ chain in {{ type filter hook input priority 0;\n\
             ip saddr 10.64.{link}.1 udp sport 53 drop; ip6 saddr fd00:64:{link}::1 udp sport 53 drop;\n\
             ip saddr 10.64.{link}.1 tcp sport 53 drop; ip6 saddr fd00:64:{link}::1 tcp sport 53 drop;\n\
             }}\n}}\nEND\n"
        )
    };
    let script = format!(
        "{}get --json https://origin.lab/object 2>first && whole || exit 8; nft flush ruleset\n\
         {}get --json https://origin.lab/object 2>second && whole || exit 9; \
         ! get --via wifi https://origin.lab/object 2>alone",
        deaf(2),
        deaf(1)
    );
    let finished = testbed.run(&TWO_LINKS, &script).expect_success();
    let [second, first] = &Transfer::all(&finished.stdout)[..] else {
        panic!("{}", finished.stdout)
    };
    second.assert_paths(&["wifi"]);
    first.assert_paths(&["lte"]);
    let output = testbed.read("alone");
    assert!(output.contains("the only network failed (wifi: "), "{output}");
    assert!(output.contains("origin.lab") || output.contains("no connection within"), "{output}");
    assert!(output.contains("hint: "), "{output}");
}
