//! Traffic uses the networks that the policy selects, and no others.

use manyways_net::bond::{BondEvent, BondShare};
use manyways_record::event;

use crate::needs_world;
use crate::testbed::Testbed;

/// Bytes of each connection in an event log by network: Wi-Fi, LTE.
fn connection_shares(log: &str) -> Vec<(BondShare, BondShare)> {
    let log = event::parse(log.as_bytes()).expect("the event log reads");
    let closed = log.records.into_iter().filter_map(|record| match record.event {
        BondEvent::BondClose { paths, .. } => {
            let of = |name: &str| paths.get(name).copied().unwrap_or_default();
            Some((of("wifi"), of("lte")))
        }
        _ => None,
    });
    closed.collect()
}

#[test]
fn what_a_policy_blocks_is_refused_and_everything_else_is_not() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        r#"
        [[rule]]
        name = "no wget"
        match = { process = "wget", port = 80 }
        use = { paths = "wifi" }
        [[rule]]
        name = "no video"
        match = { domain = ".video.example" }
        use = { block = true }
        [[rule]]
        name = "no curl by its name"
        match = { process = "curl", domain = "curl.example" }
        use = { block = true }
        "#,
    );
    let done = testbed
        .run(
            r#"
            client --policy policy.toml
            fetch -o one http://$G/1M && echo fetched
            fetch -o two -H 'Host: www.video.example' http://$G/1M || echo blocked
            fetch -o two -H 'Host: curl.example' http://$G/1M || echo blocked by name
            end
            "#,
        )
        .expect_success();
    assert_eq!(done.stdout, "fetched\nblocked\nblocked by name\n", "{}", done.stderr);
}

#[test]
fn what_goes_directly_comes_from_the_device_and_not_from_the_gateway() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        r#"
        [[rule]]
        name = "past"
        match = { domain = "direct.example" }
        use = { direct = true }
        "#,
    );
    let done = testbed
        .run(
            r#"
            client --policy policy.toml
            fetch http://$G/address
            fetch -H 'Host: direct.example' http://$G/address
            end
            ip -4 -o address show | sed 's/.* inet \([0-9.]*\).*/\1/'
            echo "far $G"
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let (bond, direct, rest) = (lines[0], lines[1], &lines[2..]);
    assert_eq!(rest.last(), Some(&format!("far {bond}").as_str()), "{}", done.stdout);
    assert!(rest.contains(&direct), "the device's own address: {}", done.stdout);
}

/// The four-application policy depends on it: an unused radio can become idle.
#[test]
fn what_is_pinned_to_wifi_leaves_nothing_but_signs_of_life_on_lte() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write("policy.toml", "[default]\npaths = \"wifi\"\n");
    let done = testbed
        .run(
            r#"
            client --policy policy.toml --events events
            before=$(came lte); wifi=$(came wifi); begin=$(date +%s)
            fetch -o out http://$G/8M
            echo $(($(came lte) - before)) $(($(came wifi) - wifi)) $(($(date +%s) - begin))
            end
            "#,
        )
        .expect_success();
    let counted: Vec<u64> =
        done.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    // Signs of life come at intervals, so that a busy machine receives more of them.
    assert!(counted[0] < 500 + 250 * (counted[2] + 1), "LTE carried {counted:?} bytes");
    assert!(counted[1] > 8_000_000, "Wi-Fi carried {} bytes", counted[1]);
    let [(wifi, lte)] = connection_shares(&testbed.read("events"))[..] else {
        panic!("one connection")
    };
    assert!(wifi.received > 8_000_000, "{wifi:?}");
    assert_eq!(lte, BondShare::default());
}

#[test]
fn a_connection_that_becomes_large_goes_on_under_another_rule() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        r#"
        [[rule]]
        name = "bulk"
        match = { bytes = ">1MB" }
        use = { paths = "lte" }
        [default]
        paths = "wifi"
        "#,
    );
    testbed
        .run(
            r#"
            client --policy policy.toml --events events
            fetch -o small http://$G/address && fetch -o large http://$G/8M
            end
            [ "$(stat -c %s large)" = 8000000 ]
            "#,
        )
        .expect_success();
    let log = testbed.read("events");
    let [small, large] = connection_shares(&log)[..] else { panic!("two connections: {log}") };
    assert_eq!(small.1, BondShare::default(), "a small one never sees LTE");
    // The bytes before the change of the rule are received over Wi-Fi.
    assert!((900_000..4_000_000).contains(&large.0.received), "{large:?}");
    assert!(large.1.received > 4_000_000, "{large:?}");
    assert!(log.contains("\"rule\":\"bulk\""), "{log}");
}

#[test]
fn a_policy_that_changes_moves_what_is_under_way_and_one_that_is_broken_changes_nothing() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write("policy.toml", "[default]\npaths = \"wifi\"\n");
    testbed.write("broken.toml", "[default]\npaths = \"wifi\nx");
    testbed.write("lte.toml", "[default]\npaths = \"lte\"\n");
    let done = testbed
        .run(
            r#"
            client --policy policy.toml --events events
            # Wi-Fi cannot deliver everything before the policy has changed.
            "$M" lab set --lab $LAB_NAME --when 'wifi.down_bytes >= 1MB' wifi state=paused
            fetch -o out http://$G/8M &
            FETCH=$!
            wait_for '[ "$(stat -c %s out)" -gt 300000 ]'
            cp broken.toml policy.toml
            wait_for 'grep "the previous policy stays in force" client.log'
            "$M" bond why example.com
            cp lte.toml new.toml && mv new.toml policy.toml
            wait_for 'grep "is in force now" client.log'
            "$M" bond why example.com
            "$M" lab set --lab $LAB_NAME wifi state=up
            wait $FETCH && same out "$LAB_DIR/nginx-origin/www/8M" && echo intact
            end
            "#,
        )
        .expect_success();
    let paths: Vec<&str> = done.stdout.lines().filter(|line| line.starts_with("path: ")).collect();
    assert_eq!(paths, ["path: wifi", "path: lte"], "{}", done.stdout);
    assert!(done.stdout.ends_with("intact\n"), "{}", done.stdout);
    let warnings = testbed.read("client.log").matches("the previous policy stays in force").count();
    assert_eq!(warnings, 1, "{}", testbed.read("client.log"));
    let [(wifi, lte)] = connection_shares(&testbed.read("events"))[..] else {
        panic!("one connection")
    };
    assert!(wifi.received > 300_000 && lte.received > 500_000, "{wifi:?} {lte:?}");
}
