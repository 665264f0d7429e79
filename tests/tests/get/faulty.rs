//! Runs transfers from a faulty server, each with its expected result.

use std::fs;

use manyways_tests::FAULT;
use serde_json::Value;

use crate::testbed::{OBJECT_LENGTH, TWO_LINKS, Testbed, Transfer};

/// Expected result of a transfer.
#[derive(Clone, Copy)]
pub enum Expected {
    /// The correct file, over any networks.
    Whole,
    /// The correct file, over these networks and no others.
    OnlyOver(&'static [&'static str]),
    /// The second version of the object.
    Newer,
    /// The correct file, or an error after which `-c` downloads it from the corrected server.
    WholeOrResumable,
    /// An error without a remaining file.
    Fails,
    /// An error with a part file that `-c` cannot continue.
    Unresumable,
    /// An error after which `-c` downloads the rest from the corrected server.
    Resumable,
}

/// A transfer: its URL, its expected result, and text that its output must contain.
pub type Case = (&'static str, Expected, &'static [&'static str]);

/// Runs the cases one after the other, each in a separate folder.
#[track_caller]
pub fn one_by_one(cases: &[Case]) {
    run(cases, "", "");
}

/// Runs the cases concurrently, for cases with long timeouts.
#[track_caller]
pub fn at_once(cases: &[Case]) {
    run(cases, "&", "");
}

/// The same with additional options.
#[track_caller]
pub fn at_once_with(options: &str, cases: &[Case]) {
    run(cases, "&", options);
}

/// Runs the cases one after the other with additional options.
#[track_caller]
pub fn with(options: &str, cases: &[Case]) {
    run(cases, "", options);
}

#[track_caller]
fn run(cases: &[Case], aside: &str, options: &str) {
    let testbed = Testbed::new();
    let fetch = |(nth, case): (usize, &Case)| {
        format!(
            "mkdir {nth}; (cd {nth}; fetch() {{ $GET {options} --json -o object {} >json 2>said; }}; {}; \
             echo $? >code; ls >left){} ",
            case.0,
            if aside.is_empty() { gated(case) } else { "fetch".into() },
            if aside.is_empty() { ";" } else { aside }
        )
    };
    let again = |(nth, (url, ..)): (usize, &Case)| {
        format!(
            "(cd {nth}; test -e object.manyways && \
             $GET {options} -c --json -o object {url} >json-again 2>again); "
        )
    };
    let first: String = cases.iter().enumerate().map(fetch).collect();
    let then: String = cases.iter().enumerate().map(again).collect();
    let server = testbed.faulty();
    let links = [&TWO_LINKS[..], &["--far", &server]].concat();
    testbed.run_with(&links, &format!("{first} wait; touch healed; {then} true")).expect_success();
    let wrong: Vec<String> =
        cases.iter().enumerate().filter_map(|(nth, case)| deviation(&testbed, nth, case)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// End of a message that only one network is used.
const ONE_PATH: &str = "so only one path is used";

/// How a case is run one by one, if its result requires that both networks have answered, or one
/// before the other.
fn gated(&(url, end, words): &Case) -> String {
    let Expected::OnlyOver(links) = end else {
        // Without another answer before it, the fault of a network would be that of the object. And
        // a late first request would be repeated over the other network, and get the new version.
        let is_first_wifi = url.contains("/lte/") || matches!(end, Expected::Newer);
        return if is_first_wifi { "first wifi fetch".into() } else { "fetch".into() };
    };
    let is_dropped = |words: &&&str| words.contains(" is no longer used");
    match (links, words.iter().find(is_dropped)) {
        ([_, _], _) => "both fetch".into(),
        ([link], Some(_)) => format!("told said {link} 'is no longer used' fetch"),
        // The other network has to ask, before this one has the whole object.
        ([link], None) if words.iter().any(|words| words.contains(ONE_PATH)) => {
            format!("told said {link} '{ONE_PATH}' fetch")
        }
        ([link], None) => format!("first {link} fetch"),
        _ => "fetch".into(),
    }
}

/// Describes the deviation of a case from its expected result; `None` if there is none.
fn deviation(testbed: &Testbed, nth: usize, &(url, end, words): &Case) -> Option<String> {
    let output = testbed.read(&format!("{nth}/said"));
    let line = testbed.read(&format!("{nth}/json"));
    let wrong = |what: String| Some(format!("{url}: {what}\n  {}\n  {line}", output.trim_end()));
    let Ok(mut document) = serde_json::from_str::<Value>(&line) else {
        return wrong("no line of JSON".into());
    };
    let transfer = Transfer(document["transfers"][0].take());
    let (code, left) = (testbed.read(&format!("{nth}/code")), testbed.read(&format!("{nth}/left")));
    let left: Vec<&str> = left.lines().filter(|name| name.starts_with("object")).collect();
    let end = match end {
        Expected::WholeOrResumable if code == "0\n" => Expected::Whole,
        Expected::WholeOrResumable => Expected::Resumable,
        end => end,
    };
    let (wanted_code, wanted_left): (_, &[&str]) = match end {
        Expected::Whole | Expected::OnlyOver(_) | Expected::Newer | Expected::WholeOrResumable => {
            ("0\n", &["object"])
        }
        Expected::Fails => ("1\n", &[]),
        Expected::Resumable | Expected::Unresumable => {
            ("1\n", &["object.manyways", "object.manyways-part"])
        }
    };
    if code != wanted_code {
        return wrong(format!("left with {code}"));
    }
    if left != wanted_left {
        return wrong(format!("left {left:?}"));
    }
    if matches!(end, Expected::Newer | Expected::Unresumable) && transfer.0["changed"] != true {
        return wrong("does not tell the change".into());
    }
    if let Some(missing) = words.iter().find(|words| !output.contains(**words)) {
        return wrong(format!("did not say {missing:?}"));
    }
    match end {
        Expected::Whole | Expected::OnlyOver(_) | Expected::Newer | Expected::WholeOrResumable => {
            let right = if matches!(end, Expected::Newer) { "other" } else { "object" };
            if !is(testbed, nth, right) {
                return wrong(format!("{FAULT}brought another file"));
            }
            let paths = transfer.0["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
            let brought: Vec<&str> = paths
                .iter()
                .filter(|path| path["bytes"] != 0)
                .filter_map(|path| path["name"].as_str())
                .collect();
            match end {
                Expected::OnlyOver(wanted) if brought != wanted => {
                    wrong(format!("came over {brought:?}"))
                }
                _ => None,
            }
        }
        Expected::Fails | Expected::Unresumable | Expected::Resumable => {
            let error = &transfer.0["error"];
            let message = error["message"].as_str().unwrap_or_default();
            // One sentence and one hint.
            if message.is_empty() || message.contains('\n') || message.ends_with('.') {
                return wrong("no sentence".into());
            }
            if !error["hint"].is_string() {
                return wrong("no hint".into());
            }
            if error["resumable"] != matches!(end, Expected::Resumable) {
                return wrong("is mistaken about what is left".into());
            }
            if matches!(end, Expected::Resumable) && !is(testbed, nth, "object") {
                let again = testbed.read(&format!("{nth}/again"));
                let complete = testbed.path(&format!("out/{nth}/object")).exists();
                let fault = if complete { FAULT } else { "" };
                return wrong(format!("{fault}could not go on: {again}"));
            }
            None
        }
    }
}

fn is(testbed: &Testbed, nth: usize, right: &str) -> bool {
    let came = testbed.path(&format!("out/{nth}/object"));
    fs::metadata(&came).is_ok_and(|came| came.len() == OBJECT_LENGTH)
        && manyways_tests::same_content(&came, &testbed.path("root").join(right))
}
