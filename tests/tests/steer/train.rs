//! `manyways steer train`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::folder;
use serde_json::Value;

use super::{error, steer, write_table};

/// A Python with scikit-learn; `None`, with a message, if there is none.
fn python() -> Option<PathBuf> {
    let python = env::var_os("MANYWAYS_PYTHON").map_or("python3".into(), PathBuf::from);
    let found = Command::new(&python).args(["-c", "import sklearn"]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {} has no scikit-learn", python.display());
    None
}

/// A program in the place of Python.
fn program(files: &Path, script: &str) -> String {
    let file = files.join("python");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("the folder is writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    file.display().to_string()
}

#[test]
fn a_missing_scikit_learn_is_one_sentence_and_leaves_no_model() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    let run = |python: &str, code: i32| {
        let words = ["train", "t.csv", "-o", "m.json", "--python", python];
        let words = error(steer(files.path(), &words), code);
        assert!(
            !files.path().join("m.json").exists() && !files.path().join("m.json.part").exists()
        );
        words
    };
    let script =
        "echo 'train: sklearn is missing (install with: pip install scikit-learn)' >&2; exit 2";
    let words = run(&program(files.path(), script), 1);
    assert!(words.contains("has no scikit-learn\nhint: pip install scikit-learn"), "{words}");
    let words = run("/nonexistent/python", 1);
    assert!(words.contains("/nonexistent/python cannot be started"), "{words}");
    // A program that is not a Python ends well, and prints nothing or anything.
    for script in ["exit 0", "echo hello"] {
        let words = run(&program(files.path(), script), 1);
        assert!(words.contains("\nhint: name a Python 3 with scikit-learn"), "{words}");
    }
    let words = run(&program(files.path(), "echo 'train: -: it is wrong' >&2; exit 2"), 2);
    assert!(words.contains("manyways: t.csv: it is wrong\n"), "{words}");
}

#[test]
fn a_model_is_not_replaced_unless_forced() {
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    fs::write(files.path().join("m.json"), "old").unwrap();
    let words = error(steer(files.path(), &["train", "t.csv", "-o", "m.json"]), 2);
    assert!(words.contains("m.json exists") && words.contains("--force"), "{words}");
    let words = ["train", "t.csv", "--force", "-o", "m.json", "--python", "/nonexistent/python"];
    error(steer(files.path(), &words), 1);
    assert_eq!(fs::read_to_string(files.path().join("m.json")).unwrap(), "old");
    let words = error(steer(files.path(), &["train", "t.csv", "--kind", "svr", "--alone"]), 2);
    assert!(words.contains("--alone has no effect"), "{words}");
}

#[test]
fn a_trained_model_predicts_the_table() {
    let Some(python) = python() else { return };
    let files = folder();
    write_table(files.path(), "t.csv", &["wifi", "lte"]);
    let python = python.to_str().unwrap();
    let train = |words: &[&str]| {
        let words = [&["train", "t.csv", "--python", python], words].concat();
        steer(files.path(), &words).expect_success()
    };
    let done = train(&["--output", "m.json", "--title", "six places"]);
    assert!(done.stderr.contains("wifi: 144 transfers"), "{}", done.stderr);
    let model: Value =
        serde_json::from_str(&fs::read_to_string(files.path().join("m.json")).unwrap()).unwrap();
    assert_eq!(
        (&model["title"], &model["data"]),
        (&"six places".into(), &"288 transfers of t.csv".into())
    );
    // To standard output, without the shipped model.
    let alone = train(&["--alone"]).stdout;
    assert!(alone.starts_with("{\"schema\":\"manyways.select-model/1\"") && alone.len() > 1_000);
    train(&["--kind", "tree", "--output", "tree.json"]);
    let words = ["simulate", "t.csv", "--model", "m.json", "--paper-model", "tree.json", "--json"];
    let done = steer(files.path(), &words).expect_success();
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    let rules = found["goals"][0]["rules"].as_array().unwrap();
    let right = |name: &str| {
        let rule = rules.iter().find(|one| one["rule"] == name).unwrap();
        rule["right"].as_f64().unwrap()
    };
    assert!(right("model") > 0.8 && right("paper") > 0.8, "{rules:#?}");
    let words = error(steer(files.path(), &["simulate", "t.csv", "--paper-model", "m.json"]), 2);
    assert!(words.contains("m.json has boosted trees"), "{words}");
}
