//! Links that share an air.

use manyways_tests::{Need, SHELL, needs};

use crate::scenarios::run_text;

/// Sends a burst of packets of 350 bytes over Wi-Fi, and then one over Bluetooth.
const BURSTS: &str = r#"
import socket
for source, packets in [("10.64.2.2", 300), ("10.64.1.2", 80)]:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind((source, 0))
    for _ in range(packets):
        sender.sendto(bytes(322), ("198.18.0.1", 9))
"#;

/// Both links have packets until Bluetooth has delivered 28 KB. On a busy machine, Wi-Fi delivers more
/// until the event, never less.
#[test]
fn bluetooth_is_slower_beside_wifi() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("python3"));
    let text = format!(
        "name = \"air\"\n\
         [link.bt]\nup = \"1mbit\"\nqueue = \"unlimited\"\nshares = \"home\"\n\
         [link.wifi]\nup = \"1mbit\"\nqueue = \"unlimited\"\nshares = \"home\"\n\
         [[event]]\nwhen = \"bt.up_bytes >= 28000\"\nlink = \"wifi\"\nstate = \"silent\"\n\
         [[workload]]\nname = \"bursts\"\nrun = '''{SHELL}\n\
         python3 -c '{BURSTS}' || exit\n\
         eventually sh -c \"manyways lab status --json | grep state.:.silent\"'''\n"
    );
    let report = run_text(&text);
    let links = report["workloads"][0]["links"].as_array().expect("a list");
    let up = |index: usize| links[index]["up_bytes"].as_f64().expect("a number");
    assert_eq!(up(0), 28_000.0);
    // Without the air, Wi-Fi would deliver as much as Bluetooth.
    let ratio = up(1) / up(0);
    assert!(ratio >= 0.95 * 0.93 / 0.53, "{ratio}");
}
