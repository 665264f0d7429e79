//! Rules whose paths `manyways steer run` chooses.

use manyways_net::bond::BondEvent;
use manyways_record::event;
use manyways_tests::{Need, needs};

use crate::needs_world;
use crate::testbed::Testbed;

const POLICY: &str = "[default]\npaths = \"auto\"\n";

#[test]
fn a_download_leaves_a_silent_path_and_a_kill_ends_the_choice() {
    needs_world!();
    needs!(Need::Command("ping"));
    let testbed = Testbed::new();
    testbed.write("policy.toml", POLICY);
    testbed
        .run(
            r#"
            export XDG_STATE_HOME="$FILES/state"
            head -c 20000000 /dev/urandom > "$LAB_DIR/nginx-origin/www/large"
            client --policy policy.toml --events events
            "$M" steer run --bond default --bond-only --events choices > steer.log 2>&1 &
            STEER=$!
            wait_for 'grep bond-choice events'
            grep '"steer-choice","flows":"new-flows"' choices && fault 'a choice outside the bond'
            "$M" steer prefer wifi --for 1h
            wait_for 'grep "\"bond-choice\",\"goal\":\"fast\",\"paths\":..wifi..}" events'
            at() { [ "$(came "$1")" -gt "$2" ]; }
            fetch -o large http://$G/large & FETCH=$!
            eventually at wifi 2000000
            before=$(came lte)
            "$M" lab set wifi state=silent
            wait_for 'grep "\"bond-choice\",\"goal\":\"fast\",\"paths\":..lte..}" events'
            wait $FETCH
            cmp large "$LAB_DIR/nginx-origin/www/large" || fault 'wrong bytes'
            at lte $((before + 8000000)) || fault 'LTE carried too little'
            kill -9 $STEER
            wait_for 'tail -n 1 events | grep "\"paths\":\[\]"'
            end
            "#,
        )
        .expect_success();
    let log = event::parse(testbed.read("events").as_bytes()).expect("the event log reads");
    let choices = log.records.into_iter().filter_map(|record| match record.event {
        BondEvent::BondChoice { paths, .. } => Some(paths.join("+")),
        _ => None,
    });
    let choices: Vec<String> = choices.collect();
    let moved = choices.windows(2).any(|pair| pair == ["wifi", "lte"]);
    assert!(moved && choices.last().is_some_and(String::is_empty), "{choices:?}");
}
