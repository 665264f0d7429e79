//! Reports: status, why, check, metrics and the event log.

use manyways_net::bond::BondEvent;
use manyways_record::event;
use manyways_tests::{Need, finish, manyways, needs};
use serde_json::Value;

use crate::needs_world;
use crate::testbed::Testbed;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_status_names_networks_applications_and_rules() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        r#"
        [paths.cellular]
        monthly = "1GB"
        [[rule]]
        name = "downloads"
        match = { domain = "files.example" }
        use = { scheduler = "minrtt" }
        "#,
    );
    let done = testbed
        .run(
            r#"
            client --policy policy.toml
            "$M" bond status --json
            fetch -o out --limit-rate 100k -H 'Host: files.example' http://$G/8M &
            FETCH=$!
            wait_for '"$M" bond status --json | grep "wifi.:{.sent_bytes"'
            wait_for '[ "$(stat -c %s out)" -gt 20000 ]'
            "$M" bond status --json
            "$M" bond status > status.txt
            kill $FETCH
            wait_for '"$M" bond status --json | grep "ended.:.{"'
            "$M" bond status --json
            end
            "$M" bond status || echo "ended with $?"
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let [idle, busy, after, "ended with 1"] = lines[..] else { panic!("{}", done.stdout) };
    let (idle, busy, after) = (json(idle), json(busy), json(after));
    assert_eq!(idle["schema"], "manyways.bond-status/2");
    assert_eq!((&idle["name"], &idle["policy"]), (&"default".into(), &"policy.toml".into()));
    assert_eq!(idle["streams"], Value::Array(Vec::new()));
    let names: Vec<&Value> =
        busy["paths"].as_array().expect("paths").iter().map(|path| &path["name"]).collect();
    assert_eq!(names, ["wifi", "lte"]);
    for path in busy["paths"].as_array().expect("paths") {
        assert_eq!(path["state"], "up");
        assert!(path["rtt_seconds"].as_f64().is_some_and(|rtt| rtt > 0.005), "{path}");
    }
    assert!(
        busy["paths"][1]["plan_remaining_bytes"]
            .as_u64()
            .is_some_and(|remaining| remaining < 1_000_000_000)
    );
    assert_eq!(busy["paths"][0]["plan_remaining_bytes"], Value::Null);
    let stream = &busy["streams"][0];
    assert_eq!(stream["domain"], "files.example");
    assert_eq!(stream["rule"], "downloads");
    assert_eq!(stream["scheduler"], "minrtt");
    assert_eq!(stream["process"], "curl", "it is found out for whoever asks");
    assert!(stream["down_bytes"].as_u64().is_some_and(|bytes| bytes > 20_000), "{stream}");
    assert!(stream["paths"]["wifi"]["received_bytes"].as_u64() > Some(0), "{stream}");
    let ended = &after["ended"][0];
    assert_eq!((&after["streams"], &ended["stream"]), (&json("[]"), &stream["stream"]));
    assert_eq!((&ended["domain"], &ended["process"]), (&stream["domain"], &stream["process"]));
    assert!(ended["down_bytes"].as_u64() >= stream["down_bytes"].as_u64(), "{ended}");
    let shown = testbed.read("status.txt");
    for word in ["wifi", "lte", "files.example:80", "curl", "downloads", "minrtt"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(done.stderr.contains("no client that is named default runs here"), "{}", done.stderr);
}

#[test]
fn why_says_what_each_rule_says() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        r#"
        [[rule]]
        name = "calls"
        match = { process = "zoom", protocol = "udp" }
        use = { paths = "wifi", scheduler = "single" }
        [[rule]]
        name = "intranet"
        match = { domain = ".office.example" }
        use = { direct = true }
        [[rule]]
        name = "nowhere"
        match = { port = 9 }
        use = { paths = "ethernet" }
        "#,
    );
    let done = testbed
        .run(
            r#"
            client --policy policy.toml
            "$M" bond why 192.0.2.1:3478 --protocol udp --process zoom --json
            "$M" bond why wiki.office.example
            "$M" bond why example.com:9 --json
            "$M" bond why example.com --user nosuchuser || echo "usage $?"
            end
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    let zoom = json(lines[0]);
    assert_eq!((&zoom["decision"], &zoom["rule"]), (&"bond".into(), &"calls".into()));
    assert_eq!(zoom["paths"], json("[\"wifi\"]"));
    assert_eq!(zoom["steps"].as_array().map(Vec::len), Some(1));
    assert_eq!(lines[1], "direct, by the rule `intranet`");
    assert!(lines[2].contains("`calls` does not match: protocol is tcp, not udp"), "{}", lines[2]);
    let nowhere = json(lines[lines.len() - 2]);
    assert_eq!((&nowhere["waiting_for_path"], &nowhere["rule"]), (&true.into(), &"nowhere".into()));
    assert_eq!(lines.last(), Some(&"usage 2"));
}

#[test]
fn two_clients_on_a_host_do_not_fight_and_one_that_was_killed_leaves_its_name() {
    needs_world!();
    let testbed = Testbed::new();
    let done = testbed
        .run(
            r#"
            client
            ls -l "$LAB_DIR"/bond-client-default.socket | cut -c1-10
            cp client.log first.log; FIRST=$CLIENT
            SOCKS=127.0.0.1:1081
            client
            grep -c 'another client that is named default runs already' client.log
            end
            client --name second
            "$M" bond status --once | head -1
            "$M" bond status --once --name second | head -1
            kill -9 $FIRST
            end
            SOCKS=127.0.0.1:1080
            client
            "$M" bond status --json | cut -c1-36
            "$M" bond status --name '../a' || echo "usage $?"
            end
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "srw-------");
    assert_eq!(lines[1], "1");
    assert!(lines[2].starts_with("manyways bond `default`"), "{}", lines[2]);
    assert!(lines[3].starts_with("manyways bond `second`"), "{}", lines[3]);
    assert!(lines[4].starts_with("{\"schema\":\"manyways.bond-status/2\""), "{}", lines[4]);
    assert_eq!(lines[5], "usage 2");
}

#[test]
fn metrics_are_served_at_both_ends() {
    needs_world!();
    let testbed = Testbed::new();
    let done = testbed
        .run(
            r#"
            client --metrics 127.0.0.1:9100
            fetch -o out http://$G/1M
            curl -sS http://127.0.0.1:9100/metrics
            echo "other: $(curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:9100/)"
            "$M" bond status --gateway --json
            end
            "#,
        )
        .expect_success();
    let value = |name: &str| -> f64 {
        let line = done.stdout.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {}", done.stdout));
        line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    };
    assert!(value("manyways_bond_received_bytes_total") >= 1_000_000.0);
    assert!(value("manyways_bond_path_rtt_seconds{path=\"lte\"}") > 0.0);
    assert_eq!(value("manyways_bond_path_up{path=\"wifi\",kind=\"wifi\"}"), 1.0);
    assert!(done.stdout.contains("\nother: 404\n"), "{}", done.stdout);
    let gateway = json(done.stdout.lines().last().expect("a line"));
    assert_eq!(gateway["sessions"][0]["client"], "device");
    assert_eq!(gateway["sessions"][0]["paths"].as_array().map(Vec::len), Some(2));
    assert!(gateway["sessions"][0]["totals"]["sent_bytes"].as_u64() > Some(1_000_000));
}

#[test]
fn the_event_log_tells_of_paths_connections_and_decisions() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write(
        "policy.toml",
        "[[rule]]\nname = \"no\"\nmatch = { port = 9 }\nuse = { block = true }\n",
    );
    testbed
        .run(
            r#"
            client --policy policy.toml --events events
            fetch -o out http://$G/1M
            fetch http://$G:9/ || true
            ip link set lte down
            wait_for 'grep "lte is down" client.log'
            wait_for 'grep "\"path\":\"lte\",\"state\":\"down\"" events'
            # It says where everybody goes.
            test "$(stat -c %a events)" = 600
            end
            "#,
        )
        .expect_success();
    let log = event::parse(testbed.read("events").as_bytes()).expect("the event log reads");
    assert_eq!((log.header.tool.as_str(), log.skipped), ("bond", 0));
    let has = |what: &str, fits: &dyn Fn(&BondEvent) -> bool| {
        assert!(log.records.iter().any(|record| fits(&record.event)), "{what}: {log:?}");
    };
    let state = |wanted: (&str, &str), event: &BondEvent| match event {
        BondEvent::BondPath { path, state } => (path.as_str(), state.name()) == wanted,
        _ => false,
    };
    has("LTE came up", &|event| state(("lte", "up"), event));
    has("LTE went", &|event| state(("lte", "down"), event));
    has(
        "a connection began",
        &|event| matches!(event, BondEvent::BondOpen(open) if open.stream == 0 && open.to.ends_with(":80")),
    );
    has(
        "it ended",
        &|event| matches!(event, BondEvent::BondClose { stream: 0, down_bytes, .. } if *down_bytes > 1_000_000),
    );
    has("another was refused", &|event| {
        matches!(event, BondEvent::BondPolicy { stream: None, rule: Some(rule), decision, .. }
            if rule == "no" && decision == "block")
    });
}

/// The host may get the names later, so the client follows the policy.
#[test]
fn a_client_warns_of_names_that_its_host_does_not_have() {
    needs_world!();
    let testbed = Testbed::new();
    testbed.write("policy.toml", "[default]\npaths = \"wfi\"\n");
    testbed.write("other.toml", "[default]\nprimary = \"lta\"\n");
    testbed
        .run(
            r#"
            client --policy policy.toml
            mv other.toml policy.toml
            wait_for 'grep "is in force now" client.log'
            end
            "#,
        )
        .expect_success();
    let log = testbed.read("client.log");
    let (first, second) = log.split_once(" is up").expect("a network is up");
    for (part, word, meant) in [(first, "wfi", "wifi"), (second, "lta", "lte")] {
        let warning = format!(
            "warning: policy.toml: the default: no path here is named or of the kind `{word}`\n\
             hint: did you mean `{meant}`?\n"
        );
        assert!(part.contains(&warning), "{part}");
    }
}

#[test]
fn check_points_at_what_is_wrong() {
    needs!(Need::Command("sh"));
    let testbed = Testbed::new();
    let good = testbed.write("good.toml", "[[rule]]\nname = \"a\"\nuse = {}\n");
    let hidden = testbed.write(
        "hidden.toml",
        "[[rule]]\nname = \"a\"\nuse = {}\n[[rule]]\nname = \"b\"\nuse = { block = true }\n",
    );
    let wrong = testbed.write("wrong.toml", "[[rule]]\nname = \"a\"\nuse = { pths = \"wifi\" }\n");
    let check = |words: &[&str]| finish(manyways().args(["bond", "check"]).args(words));
    let fine = check(&[&good]).expect_success();
    assert!(fine.stdout.ends_with(": 1 rule, no warnings\n"), "{}", fine.stdout);
    let warned = check(&[&hidden]).expect_success();
    assert!(warned.stderr.contains("hidden.toml:5: the rule `b` never"), "{}", warned.stderr);
    assert_eq!(check(&["--strict", &hidden]).code(), 1);
    let refused = check(&[&wrong]);
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("wrong.toml:3:"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean `paths`?"), "{}", refused.stderr);
    let told = check(&["--json", &wrong]);
    assert_eq!(told.code(), 1);
    let told = json(&told.stdout);
    assert_eq!((&told["valid"], &told["errors"][0]["line"]), (&false.into(), &3.into()));
    let both = testbed.write("both.toml", "[default]\npahts = \"wifi\"\n[[rule]]\nuse = {}\n");
    let all = check(&[&both]).stderr;
    assert!(all.contains("both.toml has 2 errors\n") && all.contains("both.toml:3:"), "{all}");
    let empty = check(&[&testbed.write("empty.toml", "# later\n\n")]);
    assert_eq!(empty.code(), 1);
    assert!(empty.stderr.contains("empty.toml is empty"), "{}", empty.stderr);
    assert_eq!(check(&["/no/such/file"]).code(), 1);
}
