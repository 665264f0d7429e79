//! Rules whose paths another program chooses for each moment, through the control socket.

use manyways_net::bond::BondEvent;
use manyways_record::event;
use manyways_tests::{Need, needs};

use crate::needs_world;
use crate::testbed::Testbed;

const MOVE: &str = include_str!("move.py");
const POLICY: &str = "[default]\npaths = \"auto\"\n";

#[test]
fn a_running_download_moves_to_the_chosen_path_and_back_and_loses_no_byte() {
    needs_world!();
    needs!(Need::Command("python3"));
    let testbed = Testbed::new();
    testbed.write("policy.toml", POLICY);
    testbed.write("move.py", MOVE);
    let done = testbed
        .run(
            r#"
            head -c 16000000 /dev/urandom > "$LAB_DIR/nginx-origin/www/large"
            client --policy policy.toml --events events
            python3 move.py choose fast wifi
            python3 move.py move $G large 4 && end
            "#,
        )
        .expect_success();
    // The times of the moves, for measurements.
    println!("{}", done.stdout);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let ["\"chosen\"", moves @ .., "complete"] = &lines[..] else { panic!("{}", done.stdout) };
    assert!(moves.len() >= 4, "{}", done.stdout);
    let mut expected = vec!["wifi"];
    expected.extend(moves.iter().filter_map(|line| line.split(' ').next()));
    expected.push("");
    let expected: Vec<_> =
        expected.into_iter().map(|paths| ("fast".to_owned(), paths.to_owned())).collect();
    assert_eq!(choices_in_log(&testbed), expected);
}

#[test]
fn a_choice_ends_when_its_lease_is_not_renewed() {
    needs_world!();
    needs!(Need::Command("python3"));
    let testbed = Testbed::new();
    testbed.write("policy.toml", POLICY);
    testbed.write("move.py", MOVE);
    let done = testbed
        .run(
            r#"
            client --policy policy.toml --events events
            why() { "$M" bond why 192.0.2.1 | grep '^path'; }
            python3 move.py lease 86400 fast lte
            why
            python3 move.py lease 0 fast wifi
            python3 move.py lease 0.2 fast lte
            wait_for "grep bond-choice events | grep -F '\"paths\":[]'"
            why
            end
            "#,
        )
        .expect_success();
    let refused = "{\"refused\": {\"message\": \"0 s is not a lease\", \
                   \"hint\": \"a lease is longer than 0 s, and at most 86400 s\"}}";
    let lines: Vec<&str> = done.stdout.lines().collect();
    let expected = ["\"chosen\"", "path: lte", refused, "\"chosen\"", "paths: wifi, lte"];
    assert_eq!(lines, expected, "{}", done.stderr);
    let expected = ["lte", ""].map(|paths| ("fast".to_owned(), paths.to_owned()));
    assert_eq!(choices_in_log(&testbed), expected);
}

/// The goals and paths of the choices in the event log.
fn choices_in_log(testbed: &Testbed) -> Vec<(String, String)> {
    let log = event::parse(testbed.read("events").as_bytes()).expect("the event log reads");
    let choices = log.records.into_iter().filter_map(|record| match record.event {
        BondEvent::BondChoice { goal, paths } => Some((goal, paths.join(" "))),
        _ => None,
    });
    choices.collect()
}

#[test]
fn why_names_the_choice_and_a_wrong_one_is_refused() {
    needs_world!();
    needs!(Need::Command("python3"));
    let testbed = Testbed::new();
    testbed.write("policy.toml", POLICY);
    testbed.write("move.py", MOVE);
    let done = testbed
        .run(
            r#"
            client --policy policy.toml
            why() { "$M" bond why 192.0.2.1 | grep -v '^ '; }
            "$M" bond check policy.toml | tail -n 1 >&2
            why
            python3 move.py choose fast lte
            why
            python3 move.py choose fats wifi
            python3 move.py choose thrifty wifi
            python3 move.py choose fast eth7
            why
            python3 move.py choose fast
            why
            end
            "#,
        )
        .expect_success();
    let all = "buffer-aware over auto (fast): all, because no path has been chosen, by the default";
    let lte = "buffer-aware over auto (fast): lte, by the default";
    let none =
        "buffer-aware over auto (fast): all, because no chosen path is up (eth7), by the default";
    let refused = "{\"refused\": {\"message\": \"\\\"fats\\\" is not a goal\", \
                   \"hint\": \"the goals are fast, balanced and thrifty\"}}";
    let both = "paths: wifi, lte";
    let chosen = "\"chosen\"";
    let lines: Vec<&str> = done.stdout.lines().collect();
    let expected = [
        all,
        both,
        chosen,
        lte,
        "path: lte",
        refused,
        chosen,
        chosen,
        none,
        both,
        chosen,
        all,
        both,
    ];
    assert_eq!(lines, expected, "{}", done.stderr);
}
