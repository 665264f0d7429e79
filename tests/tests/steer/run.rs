//! `manyways steer run`, `status`, `why` and `prefer` on emulated networks.

use manyways_net::steer::event::SteerEvent;
use manyways_record::event;
use manyways_tests::{Need, folder, needs};
use serde_json::Value;

use super::world::World;
use super::{error, steer};

macro_rules! needs_world {
    () => {
        needs!(
            Need::Root,
            Need::Command("ip"),
            Need::Command("nft"),
            Need::Command("python3"),
            Need::Command("bash")
        );
    };
}

/// Why a network could not be used, in the order of the events.
fn states(world: &World, name: &str) -> Vec<Option<String>> {
    let log = event::parse(world.read("events").as_bytes()).expect("the event log reads");
    let state = |record: event::Record<SteerEvent>| match record.event {
        SteerEvent::SteerNetwork { network, unusable } => (network == name).then_some(unusable),
        _ => None,
    };
    log.records.into_iter().filter_map(state).collect()
}

/// The choices of new flows in the event log of a run.
fn choices(world: &World) -> Vec<String> {
    let log = event::parse(world.read("events").as_bytes()).expect("the event log reads");
    let choice = |record: event::Record<SteerEvent>| match record.event {
        SteerEvent::SteerChoice { flows, networks, .. } => {
            (flows == "new-flows").then(|| networks.join("+"))
        }
        _ => None,
    };
    log.records.into_iter().filter_map(choice).collect()
}

#[test]
fn new_connections_leave_networks_that_fall_silent_and_come_back() {
    needs_world!();
    let world = World::new();
    world
        .run(
            r#"
            ip rule add from 203.0.113.7 lookup main pref 30000
            rules > before
            steer
            over wifi
            "$M" lab set wifi state=silent
            over lte
            # Both answer nothing: the choice stays, and follows the first answer.
            "$M" lab set lte state=silent
            both_silent() { "$M" steer status > status; [ "$(grep -c 'answers no ping' status)" = 2 ]; }
            eventually both_silent
            has status 'new connections: lte' || exit 1
            "$M" lab set wifi state=up
            # A connection over the other one would take 10 s to fail.
            chosen() { "$M" steer status > status; has status 'new connections: wifi'; }
            eventually chosen
            over wifi
            "$M" lab set lte state=up
            # The interface is gone and comes back.
            ip link set wifi down
            over lte
            end
            ip link set wifi up
            "#,
        )
        .expect_success();
    let found = choices(&world);
    assert!(
        found.starts_with(&["wifi".into(), "lte".into(), "wifi".into(), "lte".into()]),
        "{found:?}"
    );
    let silent = "it answers nothing".to_owned();
    let down = "it has no carrier, address or route".to_owned();
    let found = states(&world, "wifi");
    assert!(found.starts_with(&[None, Some(silent), None, Some(down)]), "{found:?}");
}

#[test]
fn everything_is_as_before_after_the_end_and_after_a_kill() {
    needs_world!();
    let world = World::new();
    world
        .run(
            r#"
            # nft waits before a change while there is a file `hold`.
            mkdir bin
            mkfifo go
            NFT=$(command -v nft)
            {
                echo '#!/bin/bash'
                echo '[ "$*" = "-f -" ] && mv hold held 2> /dev/null && read -r next < go'
                echo '[ "$next" = end ] && exit 1'
                echo "$NFT"' "$@"; code=$?'
                echo '[ "$next" = complete ] && touch completed'
                echo 'exit $code'
            } > bin/nft
            chmod +x bin/nft
            export PATH="$FILES/bin:$PATH"
            # Rules of the user.
            ip rule add from 203.0.113.7 lookup main pref 30000
            ip route add 203.0.113.0/24 via 10.64.2.2 table 77
            nft -f - <<'END'
            table inet user {
                set hosts { type ipv4_addr; elements = { 203.0.113.9 }; }
                chain output { type filter hook output priority mangle + 5; ip daddr @hosts meta mark set 7; }
            }
END
            rules > before
            steer
            "$M" steer prefer lte --for 10m > /dev/null
            over lte
            end
            rules > after
            diff before after || fault 'rules remain after the end'
            # The preference survives.
            steer
            over lte
            "$M" steer prefer wifi --for 10m > /dev/null
            over wifi
            # Killed in the middle of a change, which nft completes.
            touch hold
            "$M" steer prefer lte --for 10m > /dev/null &
            PREFER=$!
            eventually test -e held
            kill -9 $STEER
            wait $PREFER $STEER
            echo complete 1<> go
            eventually test -e completed
            # The choice expires, and connections follow the host.
            over wifi
            steer
            end
            rules > after
            diff before after || fault 'rules remain after a kill in a change'
            # Killed in the middle of the start, together with nft.
            rm held
            touch hold
            "$M" steer run > run.log 2>&1 &
            STEER=$!
            eventually test -e held
            kill -9 $STEER
            wait $STEER
            echo end 1<> go
            rules > after
            diff before after > /dev/null && exit 1
            over wifi
            steer
            over lte
            end
            rules > after
            diff before after || fault 'rules remain after a kill in a start'
            "#,
        )
        .expect_success();
}

#[test]
fn one_run_at_a_time_answers_why_and_what_is_preferred() {
    needs_world!();
    let world = World::new();
    let done = world
        .run(
            r#"
            "$M" steer status 2>&1 && fault 'a run answers before it begins'
            steer --goal balanced --via wifi --via lte --via nosuch
            "$M" steer run > second 2>&1 && fault 'two runs at a time'
            cat second
            [ "$(grep -c 'there is no network `nosuch`' run.log)" = 1 ] || fault 'no warning'
            eventually eval '"$M" steer status --json > status; has status ping-mean'
            "$M" steer why https://www.example.com/index.html --size 1MB --json > why
            "$M" steer why www.example.com
            "$M" steer prefer eth9 --for 1m 2>&1
            "$M" steer prefer cellular --for 1m --app zoom
            "$M" steer why --app zoom --json > zoom
            echo 'money = 2' > goal.toml
            "$M" steer why --goal goal.toml --json > goal
            "$M" steer prefer --end 2>&1
            "$M" steer prefer --end --app zoom
            "$M" steer prefer wifi --for 1m --json > preferred
            echo 'money = 11' > goal.toml
            "$M" steer why --goal goal.toml 2>&1 || true
            end
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "manyways: `manyways steer run` does not run here",
            "hint: start it with `sudo manyways steer run`",
            "manyways: `manyways steer run` runs here already",
            "hint: `manyways steer status` asks it",
        ]
    );
    assert!(lines[4].starts_with("A transfer with www.example.com would use "), "{}", done.stdout);
    let rest = done.stdout.split_once("manyways: there is no network").expect("a refusal").1;
    assert_eq!(
        rest.lines().collect::<Vec<_>>(),
        [
            " eth9",
            "hint: the networks are wifi, lte",
            "lte is preferred for zoom for 60 s.",
            "manyways: no network is preferred",
            "hint: `manyways steer status` lists the preferences",
            "No network is preferred for zoom from now on.",
            "manyways: goal.toml:1:9: money: a number from 0 to 10 was expected",
            "hint: write it like money = 0.5",
        ]
    );
    // A feature that nothing has measured is named.
    assert!(
        done.stdout.contains("Not measured, so that the model does without: "),
        "{}",
        done.stdout
    );
    let read = |name: &str| -> Value {
        serde_json::from_str(&world.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let status = read("status");
    assert_eq!(status["schema"], "manyways.steer-status/1");
    assert_eq!(status["chooses_new_flows"], true);
    let networks = status["networks"].as_array().expect("a list");
    let names: Vec<&Value> = networks.iter().map(|one| &one["network"]).collect();
    assert_eq!(names, ["wifi", "lte"]);
    assert_eq!(status["choices"][0]["flows"], "new-flows");
    let why = read("why");
    assert_eq!(
        (&why["schema"], &why["host"]),
        (&"manyways.steer-why/1".into(), &"www.example.com".into())
    );
    assert_eq!(why["sizes"]["median_bytes"], 1_000_000);
    let decision = &why["decision"];
    assert_eq!((&decision["speed"], &decision["energy"]), (&1.0.into(), &1.0.into()));
    assert_eq!(decision["choices"].as_array().map(Vec::len), Some(2));
    assert_eq!(read("zoom")["decision"]["networks"], serde_json::json!(["lte"]));
    let goal = &read("goal")["decision"];
    assert_eq!((&goal["speed"], &goal["money"]), (&0.0.into(), &2.0.into()));
    let preferred = read("preferred");
    assert_eq!(preferred["schema"], "manyways.steer-preference/1");
    assert_eq!((&preferred["network"], &preferred["seconds"]), (&"wifi".into(), &60.0.into()));
}

#[test]
fn a_login_page_that_answers_pings_is_not_used() {
    needs_world!();
    let world = World::new();
    let done = world
        .run(
            r#"
            touch portal
            steer --check "http://$G/"
            over lte
            "$M" steer status > status
            rm portal
            over wifi
            end
            cat status
            "#,
        )
        .expect_success();
    assert!(done.stdout.contains("wifi (wifi): it leads to a login page"), "{}", done.stdout);
    assert!(done.stdout.contains("ping-mean"), "{}", done.stdout);
}

#[test]
fn without_any_network_the_run_goes_on_and_torn_files_are_put_aside() {
    needs_world!();
    let world = World::new();
    let done = world
        .run(
            r#"
            mkdir -p state/manyways/steer
            for file in steer-probes.json steer/history.json steer/overrides.json steer/marks.json; do
                printf '{"paths":{"lte":{"si' > state/manyways/$file
            done
            steer
            ls state/manyways/steer/*.broken state/manyways/*.broken
            ip route show default > routes
            ip link set wifi down; ip link set lte down
            eventually eval '"$M" steer status > status; has status "the routes of this host"'
            "$M" steer why
            ip link set wifi up; ip link set lte up
            while read -r route; do ip route add $route; done < routes
            eventually eval '"$M" steer status > status; has status "can be used"'
            end
            "#,
        )
        .expect_success();
    let broken = done.stdout.lines().filter(|line| line.ends_with(".broken")).count();
    assert_eq!(broken, 4, "{}", done.stdout);
    let lost = "A transfer has no network that can be used.";
    assert!(done.stdout.contains(lost), "{}", done.stdout);
}

#[test]
fn an_interface_that_is_lost_during_a_probe_is_probed_again_when_it_returns() {
    needs_world!();
    let world = World::new();
    world
        .run(
            r#"
            probes() { [ "$(grep -c '"steer-probe","network":"lte"' events)" -ge $1 ]; }
            ip route show default dev lte > routes
            steer
            # The first pings take a second.
            ip link set lte down
            eventually probes 1
            ip link set lte up
            while read -r route; do ip route add $route dev lte; done < routes
            eventually probes 2
            "$M" steer prefer lte --for 10m > /dev/null
            over lte
            end
            "#,
        )
        .expect_success();
    let log = event::parse(world.read("events").as_bytes()).expect("the event log reads");
    let of_lte = |record: &event::Record<SteerEvent>| match &record.event {
        SteerEvent::SteerNetwork { network, unusable } if network == "lte" => {
            Some(unusable.is_none())
        }
        _ => None,
    };
    let usable: Vec<bool> = log.records.iter().filter_map(of_lte).collect();
    assert!(usable.starts_with(&[true, false, true]), "{usable:?}");
}

#[test]
fn arguments_that_name_nothing_are_refused() {
    let files = folder();
    let run =
        |words: &[&str]| error(steer(files.path(), &[&["run", "--for", "0s"], words].concat()), 2);
    let bond = run(&["--bond-only", "--bond", "no such!"]);
    assert!(bond.contains("\"no such!\" is not a name: a name has 1 to 32 letters"), "{bond}");
    for (words, message) in [
        (["--ping", ""], "`` names no host"),
        (["--ping", ":443"], "`:443` names no host"),
        (["--dns", ""], "--dns has an empty name"),
        (["--check", "https://"], "the host in the URL https:// is not valid"),
    ] {
        let refused = run(&["--dry-run", words[0], words[1]]);
        assert!(refused.contains(message), "{refused}");
    }
}

#[test]
fn a_preference_holds_without_its_file() {
    needs_world!();
    let world = World::new();
    let done = world
        .run(
            r#"
            # Nothing can be written there.
            export XDG_STATE_HOME=/proc
            steer
            over wifi
            "$M" steer prefer lte --for 10m 2>&1 || fault "prefer ends with $?"
            over lte
            "$M" steer prefer --end 2>&1 || fault "its end ends with $?"
            over wifi
            end
            "#,
        )
        .expect_success();
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert!(lines[0].starts_with("warning: the preference ends with this `steer run`: "));
    assert_eq!(lines[1], "lte is preferred for 10 min.");
    assert!(lines[2].starts_with("warning: the preference returns with the next `steer run`: "));
    assert_eq!(lines[3], "No network is preferred from now on.");
}
