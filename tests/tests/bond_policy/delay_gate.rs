//! The delay gate: new connections that `manyways radio control` delays while the radio is idle.

use manyways_tests::RADIO;
use serde_json::Value;

use crate::needs_world;
use crate::testbed::Testbed;

/// Two kinds of traffic over the same radio, one of which is delay-tolerant.
const POLICY: &str = r#"
[[rule]]
name = "backup"
match = { domain = "backup.example" }
use = { paths = "lte" }
[[rule]]
name = "now"
match = { domain = "now.example" }
use = { paths = "lte" }
[[rule]]
name = "printer"
match = { port = 631 }
use = { direct = true }
"#;

/// `control HOLD` starts to control the radio of `lte`, wakes it, and waits until it is idle, a
/// second after the last packet, so that no traffic of the bond itself wakes it. `held FILE` starts
/// a delay-tolerant download in the background, and waits until it is delayed. If a packet of the
/// bond itself woke the radio just before, both begin again, twice at most. `stay_awake` downloads all the time, until
/// `kill $AWAKE`.
const PRELUDE: &str = r#"
control() {
    rm -f control.log
    HOLD=$1
    "$M" radio control --interface lte --profile radio.toml --hold backup --json \
        --policy "fixed:1+makeactive-fixed:$1" > control.log 2>&1 &
    CONTROL=$!
    wait_for 'grep radio-begin control.log'
    now > /dev/null
    wait_for 'grep radio-sleep control.log'
}
now() { fetch -H 'Host: now.example' "http://$G/1M"; }
backup() { fetch -o "$1" -H 'Host: backup.example' "http://$G/1M"; }
start() {
    rm -f ended seen
    ( backup "$1"; code=$?; touch ended; exit $code ) &
    FETCH=$!
    wait_for "$2 && touch seen || test -e ended"
    test -e seen
}
passed() {
    wait $FETCH || exit 8
    PASSED=$((PASSED + 1))
    [ $PASSED -lt 3 ] || { cat control.log >&2; exit 7; }
}
PASSED=0
held() {
    until start "$1" 'grep radio-hold control.log'; do
        passed; kill $CONTROL; wait $CONTROL
        control $HOLD
    done
}
is() { grep -o 'radio-sleep\|radio-wake' control.log | tail -n 1 | grep "radio-$1"; }
stay_awake() {
    while now; do :; done > /dev/null &
    AWAKE=$!
    wait_for 'is wake'
}
"#;

fn testbed() -> Testbed {
    let testbed = Testbed::new();
    testbed.write("policy.toml", POLICY);
    testbed.write("radio.toml", RADIO);
    testbed
}

/// Output of a controller.
fn events(testbed: &Testbed) -> Vec<Value> {
    let log = testbed.read("control.log");
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[track_caller]
fn only<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<&Value> = events.iter().filter(|event| event["event"] == name).collect();
    let [one] = found[..] else { panic!("{name}: {events:?}") };
    one
}

#[test]
fn what_can_wait_does_until_something_else_wakes_the_radio() {
    needs_world!();
    let testbed = testbed();
    let done = testbed
        .run(&format!(
            r#"{PRELUDE}
            client --policy policy.toml
            control 600
            held a
            "$M" bond status --json
            "$M" bond status > status.txt
            now > b || exit 3
            wait $FETCH || exit 4
            wait_for 'grep radio-pass control.log'
            stay_awake
            backup c || exit 5
            kill $AWAKE; wait $AWAKE
            kill $CONTROL; wait $CONTROL
            end
            same a b && same b c && wc -c < c
            "#
        ))
        .expect_success();
    let (status, size) = done.stdout.trim().split_once('\n').expect("two lines");
    assert_eq!(size, "1000000");
    let status: Value = serde_json::from_str(status).expect("a status");
    let [stream] = &status["streams"].as_array().expect("streams")[..] else { panic!("{status}") };
    assert_eq!((&stream["rule"], &stream["delayed"]), (&"backup".into(), &true.into()));
    assert_eq!((&stream["decision"], &stream["stream"]), (&"bond".into(), &Value::Null));
    assert!(testbed.read("status.txt").contains("delayed"));
    let events = events(&testbed);
    // The radio also sleeps if the download that keeps it awake pauses for a second: then the other
    // connection is delayed, too.
    let (mut is_asleep, mut waited) = (false, Vec::new());
    for event in &events {
        match event["event"].as_str() {
            Some("radio-sleep") => is_asleep = true,
            Some("radio-wake") => is_asleep = false,
            Some("radio-hold") => assert!(is_asleep && event["seconds"] == 600.0, "{events:?}"),
            Some("radio-pass") => waited.push(event["waited_seconds"].as_f64().expect("seconds")),
            _ => {}
        }
    }
    let held = waited.len();
    assert!((1..=2).contains(&held) && waited.iter().all(|one| (0.0..600.0).contains(one)));
    let summary = only(&events, "radio-summary");
    assert_eq!((&summary["connections"], &summary["held_connections"]), (&2.into(), &held.into()));
    let mean = waited.iter().sum::<f64>() / held as f64;
    assert!((summary["mean_hold_seconds"].as_f64().expect("seconds") - mean).abs() < 1e-6);
}

#[test]
fn what_can_wait_waits_no_longer_than_the_policy_says_and_wakes_the_radio_itself() {
    needs_world!();
    let testbed = testbed();
    testbed
        .run(&format!(
            r#"{PRELUDE}
            client --policy policy.toml
            control 1
            held a
            wait $FETCH || exit 4
            kill $CONTROL; wait $CONTROL
            end
            "#
        ))
        .expect_success();
    let events = events(&testbed);
    let waited = only(&events, "radio-pass")["waited_seconds"].as_f64().expect("seconds");
    assert!(waited > 0.9, "{waited}");
    // Its packets were captured, and caused a promotion of the radio.
    let held = events.iter().position(|event| event["event"] == "radio-hold").expect("it");
    let mut later = events[held..].iter();
    assert!(later.any(|event| event["event"] == "radio-wake"), "{events:?}");
}

#[test]
fn nobody_waits_for_a_control_that_was_killed() {
    needs_world!();
    let testbed = testbed();
    let done = testbed
        .run(&format!(
            r#"{PRELUDE}
            client --policy policy.toml
            control 3600
            held a
            "$M" radio control --interface lte --profile lte --policy makeactive --hold now
            echo "another $?"
            kill -9 $CONTROL
            wait $FETCH || exit 4
            backup b || exit 5
            "$M" radio control --interface lte --profile lte --policy makeactive --hold mail,now
            echo "rule $?"
            end
            "$M" radio control --interface lte --profile lte --policy makeactive --hold now
            echo "nobody $?"
            "$M" radio control --interface lte --profile lte --policy makeactive
            echo "what $?"
            "$M" radio control --interface lte --profile lte --policy makeidle --hold now
            echo "who $?"
            "#
        ))
        .expect_success();
    assert_eq!(done.stdout, "another 1\nrule 1\nnobody 1\nwhat 2\nwho 2\n");
    for words in [
        "another program already delays connections of this client",
        "the policy of this client has no rule named \"mail\"",
        "hint: it has: backup, now",
        "no client that is named default runs here",
        "the policy delays connections, but --hold names no rules",
        "--hold has no effect: the policy does not delay connections",
    ] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
}

#[test]
fn a_delayed_rule_that_bypasses_the_bond_gets_a_warning() {
    needs_world!();
    let done = testbed()
        .run(
            r#"
            client --policy policy.toml
            "$M" radio control --interface lte --profile lte --policy makeactive \
                --hold now,printer --for 100ms
            echo $?
            end
            "#,
        )
        .expect_success();
    assert_eq!(done.stdout.lines().last(), Some("0"), "{}", done.stdout);
    let warning = "the rule printer bypasses the bond: its connections are delayed, too, although \
                   they may not use lte\nhint: leave it out of --hold";
    assert!(done.stderr.contains(warning), "{}", done.stderr);
    assert!(!done.stderr.contains("the rule now"), "{}", done.stderr);
}

#[test]
fn a_bond_that_comes_back_is_found() {
    needs_world!();
    let testbed = testbed();
    testbed
        .run(&format!(
            r#"{PRELUDE}
            client --policy policy.toml
            control 3600
            held a
            kill -9 $CLIENT; wait $CLIENT
            wait $FETCH && exit 4
            wait_for 'grep "radio-bond.*false" control.log'
            client --policy policy.toml
            wait_for 'grep "radio-bond.*true" control.log'
            # It holds back again, whatever it was told before it was killed, once nothing of its
            # own passes any more.
            now > /dev/null
            wait_for 'sed "1,/radio-bond.*true/d" control.log | grep radio-sleep'
            until start b '"$M" bond status --json | grep ".delayed.:true"'; do
                passed
                wait_for 'is sleep'
            done
            now > c || exit 5
            wait $FETCH || exit 6
            kill $CONTROL; wait $CONTROL
            end
            "#
        ))
        .expect_success();
    let events = events(&testbed);
    assert_eq!(only(&events, "radio-summary")["error"], Value::Null);
}
