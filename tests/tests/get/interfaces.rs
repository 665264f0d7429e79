//! Interfaces that are removed, return, or appear late.

use crate::far::{Far, LENGTH, SLOW_LINKS, TWO_LINKS, Transfer};
use crate::needs_far;

/// Saves the routes and addresses that the kernel deletes when an interface goes down, and restores
/// them.
const KEEP: &str = r#"
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
        "{KEEP} $GET --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {then}; wait $pid; echo $? >code; whole"
    )
}

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
        let far = Far::new();
        far.run(&SLOW_LINKS, &under_way(then)).succeeded();
        assert_eq!(far.read("code"), "0\n", "{then}: {}", far.read("said"));
        let transfer = Transfer::only(&far.read("json"));
        transfer.came_over(&["wifi", "lte"]);
        assert_eq!(far.fetched(), ["object"]);
    }
}

#[test]
fn an_interface_that_is_switched_off_and_on_again_is_used_again() {
    needs_far!("ip", "awk");
    let far = Far::new();
    // Wi-Fi alone is slow enough that LTE can return before the end.
    let script = format!(
        "{KEEP} manyways lab set --lab $LAB_NAME wifi down=700kbit; keep lte 102; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         ip link set lte down; eventually grep -q 'lte is gone' said; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         bring_back lte 102; come lte 300000 $start; \
         manyways lab set --lab $LAB_NAME wifi down=8mbit; wait $pid && whole"
    );
    far.run(&SLOW_LINKS, &script).succeeded();
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
}

/// As with a modem reset: the interface is removed, and a new one gets its name.
#[test]
fn an_interface_that_is_removed_and_returned_is_used_again() {
    needs_far!("ip", "awk");
    let far = Far::new();
    let script = format!(
        "{KEEP} manyways lab set --lab $LAB_NAME wifi down=700kbit; keep lte 102; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         ip link set lte down; ip link set lte name gone; \
         eventually grep -q 'lte is gone' said; \
         ip link set gone name lte; bring_back lte 102; come lte 300000 $start; \
         manyways lab set --lab $LAB_NAME wifi down=8mbit; wait $pid && whole"
    );
    far.run(&SLOW_LINKS, &script).succeeded();
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
}

#[test]
fn a_network_that_appears_under_way_joins() {
    needs_far!("ip");
    let far = Far::new();
    let script = "manyways lab set --lab $LAB_NAME lte state=no-carrier; \
         manyways lab set --lab $LAB_NAME wifi down=700kbit; \
         $GET --json --events events https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 100000; manyways lab set --lab $LAB_NAME lte state=up; come lte 300000; \
         manyways lab set --lab $LAB_NAME wifi down=8mbit; wait $pid && whole && \
         grep '\"event\":\"request\"' events | grep -q '\"path\":\"lte\"'";
    far.run(&SLOW_LINKS, script).succeeded();
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
    assert!(far.read("said").contains("manyways: lte joined\n"), "{}", far.read("said"));
}

/// As after a DHCP server has lost its leases: the old address receives no more packets.
#[test]
fn a_network_that_gets_another_address_is_used_with_that() {
    needs_far!("ip");
    let far = Far::new();
    let script = "manyways lab set --lab $LAB_NAME wifi down=700kbit; \
         ip -6 addr flush dev lte scope global; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         ip -4 route show dev lte >main; ip -4 route show table 102 >table; \
         ip addr add 10.64.2.7/24 dev lte; ip addr del 10.64.2.2/24 dev lte; \
         ip addr add 10.64.2.7/24 dev lte 2>/dev/null; \
         for file in main table; do sed -i s/10.64.2.2/10.64.2.7/ $file; done; \
         while read -r route; do ip -4 route replace $route dev lte 2>/dev/null; done <main; \
         while read -r route; do ip -4 route replace $route table 102; done <table; \
         ip rule add from 10.64.2.7 table 102; \
         eventually grep -q 'lte has another address' said; come lte 300000 $start; \
         manyways lab set --lab $LAB_NAME wifi down=8mbit; wait $pid && whole";
    far.run(&SLOW_LINKS, script).succeeded();
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
}

/// A network that `--via` does not name is not used.
#[test]
fn a_network_that_appears_under_way_joins_only_where_it_is_meant() {
    needs_far!("ip");
    let far = Far::new();
    let script = "manyways lab set --lab $LAB_NAME lte state=no-carrier; \
         before=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         $GET --via wifi --json https://origin.lab/object >json 2>said & pid=$!; come wifi 100000; \
         manyways lab set --lab $LAB_NAME lte state=up; wait $pid && whole && \
         echo $(($(cat /sys/class/net/lte/statistics/rx_bytes) - before)) >counted";
    far.run(&SLOW_LINKS, script).succeeded();
    let transfer = Transfer::only(&far.read("json"));
    assert_eq!(transfer.bytes("wifi"), LENGTH);
    let counted: u64 = far.read("counted").trim().parse().expect("a number");
    assert!(counted < 2_000, "{counted}");
}

/// No event reports the failure of a network: it just delivers no bytes.
#[test]
fn both_networks_silent() {
    needs_far!();
    let far = Far::new();
    let silence = "manyways lab set --lab $LAB_NAME wifi state=silent && \
                   manyways lab set --lab $LAB_NAME lte state=silent";
    let script = format!(
        "$GET --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {silence}; wait $pid; echo $? >code; \
         test -e object && exit 8; \
         manyways lab set --lab $LAB_NAME wifi state=up && \
         manyways lab set --lab $LAB_NAME lte state=up && \
         get -c --json https://origin.lab/object >rest && whole"
    );
    far.run(&SLOW_LINKS, &script).succeeded();
    let (code, said) = (far.read("code"), far.read("said"));
    assert_eq!(code, "1\n", "{said}");
    assert!(said.contains("nothing has come over any network for 10 s; waiting for"), "{said}");
    assert!(said.contains("nothing has come over any network for 60 s\n"), "{said}");
    assert!(said.contains("hint: run the same command with -c to go on"), "{said}");
    let came = Transfer::only(&far.read("json")).number("bytes");
    assert_eq!(Transfer::only(&far.read("rest")).number("bytes"), LENGTH - came);
}

/// A network that was silent for a while is used again.
#[test]
fn both_networks_silent_for_a_moment() {
    needs_far!();
    let far = Far::new();
    let set = |state: &str| {
        format!(
            "manyways lab set --lab $LAB_NAME wifi state={state} && \
             manyways lab set --lab $LAB_NAME lte state={state}"
        )
    };
    // Until the first request has failed.
    let script = format!(
        "MANYWAYS_LOG=debug $GET --json --events events https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {}; \
         eventually grep -q '\"how\":\"\\(failed\\|cancelled\\)\"' events; {}; wait $pid && whole",
        set("silent"),
        set("up")
    );
    far.run(&SLOW_LINKS, &script).succeeded();
    assert_eq!(Transfer::only(&far.read("json")).number("bytes"), LENGTH);
}

/// The other networks continue while one waits for its name servers.
#[test]
fn name_servers_that_are_silent_on_one_network() {
    needs_far!("nft");
    let far = Far::new();
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
    let seen = far.run(&TWO_LINKS, &script).succeeded();
    let [second, first] = &Transfer::all(&seen.stdout)[..] else { panic!("{}", seen.stdout) };
    second.came_over(&["wifi"]);
    first.came_over(&["lte"]);
    let said = far.read("alone");
    assert!(said.contains("the only network failed (wifi: "), "{said}");
    assert!(said.contains("origin.lab") || said.contains("no connection within"), "{said}");
    assert!(said.contains("hint: "), "{said}");
}
