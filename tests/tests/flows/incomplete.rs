//! Incomplete captures: without one direction, without the beginning, or with merged packets.

use manyways_tests::needs;

use crate::rows::Tables;
use crate::testbed::{NEEDS, Testbed, packets};

const COLUMNS: [&str; 14] = [
    "is_valid",
    "has_syn",
    "down_bytes",
    "up_bytes",
    "down_data_segments",
    "rtt",
    "rtt_min",
    "local_rtt_min",
    "remote_rtt_min",
    "down_lost_before",
    "down_lost_after",
    "down_reordered",
    "down_unseen",
    "down_limited_by",
];

/// The sender passes several segments at once to the kernel, and its capture contains them as one
/// packet.
#[test]
fn merged_packets_count_as_what_they_were() {
    needs!(NEEDS);
    let links = vec!["net:down=50mbit,delay=10ms,queue=500ms".to_owned()];
    // Long enough that slow start is a small part of it, without an overflow of the queue.
    let script = "$PEER client read bulk 12000000\n";
    let captured = Testbed { links, captures_at_server: true, ..Testbed::default() }.run(script);
    let merged = packets(&captured.path("net-server.pcap"), "tcp and greater 2000");
    assert!(merged > 20, "only {merged} merged packets");
    let files = ["net.pcap", "net-server.pcap", "pcap/net.pcapng"];
    let all = files.map(|file| Tables::of(&captured.path(file)));
    let [client, server, link] = all.each_ref().map(|tables| &tables.table("tcp")[0]);
    for (file, flow) in files.iter().zip([client, server, link]) {
        eprintln!("{file}: {}", flow.describe(&COLUMNS));
        assert_eq!(flow.count("down_bytes") - flow.count("down_unseen"), 12_000_000, "{file}");
        assert_eq!(flow.count("down_unseen") + flow.count("down_reordered"), 0, "{file}");
        // Merged segments are counted with the size of the largest one: an error of at most one
        // each.
        let (said, truth) = (flow.count("down_data_segments"), link.count("down_data_segments"));
        assert!((said - truth).abs() <= truth / 50, "{file}: {said}, {truth}");
    }
    assert_eq!(client.text("down_limited_by"), Some("congestion"));
    assert_eq!(server.text("down_limited_by"), Some("congestion"));
}

#[test]
fn one_direction_and_the_middle_of_a_flow() {
    needs!(NEEDS);
    let links = vec!["net:down=10mbit,delay=10ms,queue=60ms".to_owned()];
    // The link waits until the last capture has started.
    let script = "dump() { tcpdump -i net -s 128 --immediate-mode -U -w $OUT/$1.pcap $2 2>$OUT/$1.log & ALL=\"$ALL $!\"; \
                  listening $OUT/$1.log; }\n\
                  # A busy lab delivers packets together, whose headers the kernel counts once.\n\
                  is_paused() { [ $(cat /sys/class/net/net/statistics/rx_bytes) -ge 1150000 ]; }\n\
                  dump down 'src host 198.18.0.1'; dump up 'dst host 198.18.0.1'\n\
                  change --when 'net.down_bytes >= 1200KB' net state=paused\n\
                  $PEER client read bulk 4000000 & ONE=$!\n\
                  eventually is_paused; dump late ''; change --cancel net state=up; wait $ONE\n\
                  captured net $OUT/down.pcap $OUT/up.pcap $OUT/late.pcap; kill -INT $ALL\n";
    let captured = Testbed { links, ..Testbed::default() }.run(script);
    let [whole, down, up, late] = ["net", "down", "up", "late"].map(|file| captured.tables(file));
    for tables in [&whole, &down, &up, &late] {
        eprintln!("{}", tables.table("tcp")[0].describe(&COLUMNS));
    }
    let [whole, down, up, late] = [&whole, &down, &up, &late].map(|tables| &tables.table("tcp")[0]);
    assert_eq!((whole.count("down_bytes"), down.count("down_bytes")), (4_000_000, 4_000_000));
    for flow in [down, up] {
        assert!(!flow.flag("is_valid"), "{}", flow.describe(&COLUMNS));
        // Unknown values stay unknown.
        for column in ["rtt", "rtt_min", "local_rtt", "remote_rtt"] {
            assert_eq!(flow.number(column), None, "{column}: {}", flow.describe(&COLUMNS));
        }
        assert_eq!(flow.count("down_lost_after"), 0);
        assert_eq!(flow.text("down_limited_by"), None, "{}", flow.describe(&COLUMNS));
    }
    assert_eq!(late.integer("client_window_max"), None, "nobody knows how it is scaled");
    assert_eq!((up.count("down_bytes"), up.count("up_bytes")), (0, whole.count("up_bytes")));
    assert!(!late.flag("has_syn") && !late.flag("is_valid"), "{}", late.describe(&COLUMNS));
    assert!(
        (1_000_000..4_000_000).contains(&late.count("down_bytes")),
        "{}",
        late.describe(&COLUMNS)
    );
    assert_eq!(late.text("down_limited_by"), Some("congestion"), "{}", late.describe(&COLUMNS));
    let trips = [whole, late].map(|flow| flow.millis("rtt"));
    assert!((trips[0] - trips[1]).abs() <= trips[0] * 0.5, "{trips:?}");
    assert_eq!(late.text("client"), Some("10.64.1.2"));
}
