//! `manyways steer simulate`.

use std::fs;

use manyways_tests::folder;
use serde_json::Value;

use super::{error, steer, write_table};

#[test]
fn rules_are_compared_best_first() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    let done = steer(files.path(), &["simulate", "t.csv"]).expect_success();
    assert!(done.stdout.starts_with("t.csv: 144 decisions at 6 places, over wifi, lte.\n"));
    let heads: Vec<&str> =
        done.stdout.lines().filter(|line| line.contains("recovered     near")).collect();
    let goals: Vec<&str> = heads.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(goals, ["fast", "balanced", "thrifty"], "{}", done.stdout);
    let line = |name: &str| done.stdout.lines().position(|line| line.starts_with(name));
    assert_eq!(line("oracle"), line("fast").map(|head| head + 1), "{}", done.stdout);
    assert!(line("closed-form") < line("wifi") && line("model") < line("wifi"));
    assert!(done.stdout.contains("The best fixed network is"), "{}", done.stdout);
    assert!(done.stdout.contains("completion times"), "{}", done.stdout);
}

#[test]
fn the_document_has_every_rule_by_goal_and_size() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte", "wifi+lte"]);
    fs::write(files.path().join("g.toml"), "at-least = \"5mbit\"\n").unwrap();
    let words = ["--both", "--goal", "fast", "--goal", "g.toml", "--policy", "wifi,both,oracle"];
    let done = steer(files.path(), &[&["simulate", "t.csv", "--json"], &words[..]].concat());
    let found: Value = serde_json::from_str(&done.expect_success().stdout).unwrap();
    assert_eq!(found["schema"], "manyways.steer-simulation/1");
    assert_eq!(found["choices"], serde_json::json!(["wifi", "lte", "wifi+lte"]));
    assert_eq!((&found["cases"], &found["skipped"]), (&144.into(), &0.into()));
    let goals = found["goals"].as_array().unwrap();
    assert_eq!((&goals[0]["goal"], &goals[1]["goal"]), (&"fast".into(), &"g.toml".into()));
    assert_eq!(goals[1]["at_least_bps"], 5_000_000);
    let rules = goals[0]["rules"].as_array().unwrap();
    let names: Vec<&Value> = rules.iter().map(|one| &one["rule"]).collect();
    assert_eq!(names, ["oracle", "both", "wifi"]);
    assert_eq!((&rules[0]["recovered"], &rules[0]["regret"]), (&1.0.into(), &0.0.into()));
    assert_eq!(rules[1]["choices"]["wifi+lte"], 1.0);
    let sizes = rules[2]["sizes"].as_array().unwrap();
    let limits: Vec<&Value> = sizes.iter().map(|one| &one["up_to"]).collect();
    assert_eq!(limits, [3_000, 100_000, 3_000_000]);
    assert!(rules[2]["of_oracle"].as_array().unwrap().len() <= 101);
    assert_eq!(found["errors"], serde_json::json!([]));
}

#[test]
fn the_report_has_the_figures_of_the_paper() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    let done = steer(files.path(), &["simulate", "t.csv", "--report", "r.html"]).expect_success();
    assert!(done.stderr.contains("The report is in r.html."), "{}", done.stderr);
    let page = fs::read_to_string(files.path().join("r.html")).unwrap();
    for figure in ["3-4", "3-7", "3-8", "3-9", "3-12"] {
        assert!(page.contains(&format!("as figure {figure}")), "figure {figure} is missing");
    }
    // Errors of two rules, six charts for each of three goals, and one over time.
    let svgs = page.matches("<svg").count();
    assert_eq!(svgs, 2 + 3 * 7 + 1);
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
}

#[test]
fn wrong_files_are_refused_with_one_sentence_and_a_hint() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
    write("bad.csv", "group,choice,size,seconds\n1,wifi,10,0.5\n1,moon,10,0.5\n");
    write("half.csv", "group,choice,size,seconds\n1,wifi,10,0.5\n");
    write("bad.json", "{\"schema\":\"manyways.select-model/9\"}\n");
    write("bad.toml", "speed = 1\nenergy = -1\n");
    let run = |words: &[&str]| error(steer(files.path(), &[&["simulate"], words].concat()), 2);
    let words = run(&["bad.csv"]);
    assert!(
        words.contains("bad.csv is not a table of transfers: line 3: choice is not valid: moon")
    );
    assert!(run(&["half.csv"]).contains("no decision in the table has a transfer over each of"));
    assert!(run(&["t.csv", "--model", "bad.json"]).contains("bad.json is not a model: "));
    let words = run(&["t.csv", "--goal", "bad.toml"]);
    assert!(words.contains("bad.toml:2:10: energy: a number from 0 to 10"), "{words}");
    assert!(run(&["t.csv", "--goal", "fats"]).contains("did you mean `fast`?"));
    assert!(run(&["t.csv", "--policy", "wfii"]).contains("did you mean `wifi`?"));
    assert!(run(&["t.csv", "--both"]).contains("leave --both out"));
    assert!(run(&["t.csv", "--policy", "both"]).contains("add --both"));
    assert!(run(&["t.csv", "--policy", "paper"]).contains("--paper-model FILE"));
    assert!(run(&["t.csv", "--report", "t.csv"]).contains("t.csv is used twice"));
    let absent = error(steer(files.path(), &["simulate", "none.csv"]), 1);
    assert!(absent.contains("cannot read none.csv: No such file"), "{absent}");
}
