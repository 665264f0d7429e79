//! Every shipped scenario can be parsed, with the traces that it names.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};

use manyways_trace::scenario::{self, CapacitySpec, DelaySpec, Scenario};
use manyways_unit::{Rate, Span};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let mut files =
        |file: &str| std::fs::read(folder().join(file)).map_err(|error| error.to_string());
    scenario::parse(&text, &mut files).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn all_of_them_read_and_are_named_after_their_file() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(stem) = name.strip_suffix(".toml") {
            let scenario = read(&name);
            assert_eq!(scenario.name, stem);
            assert!(!scenario.about.is_empty() && !scenario.workloads.is_empty(), "{name}");
            let expected =
                |workload: &str| scenario.expectations.iter().any(|one| one.workload == workload);
            assert!(scenario.workloads.iter().all(|one| expected(&one.name)), "{name}");
            count += 1;
        }
    }
    assert!(count >= 6);
}

#[test]
fn the_demo_has_its_numbers() {
    let demo = read("wifi-lte.toml");
    let numbers: Vec<_> = demo
        .links
        .iter()
        .map(|link| (&link.down.capacity, &link.up.capacity, &link.down.delay))
        .collect();
    let mbps = |mbps| CapacitySpec::Constant(Rate::from_mbps(mbps));
    let delay = |micros| DelaySpec::Constant(Span::from_micros(micros));
    assert_eq!(
        numbers,
        [(&mbps(10), &mbps(5), &delay(14_000)), (&mbps(5), &mbps(2), &delay(32_500))]
    );
}

#[test]
fn the_generated_traces_match_their_programs() {
    let traces = read("traces.toml");
    let [wifi, lte] = &traces.links[..] else { panic!() };
    let period = |spec: &CapacitySpec| match spec {
        CapacitySpec::Trace { trace, .. } => (trace.period(), trace.mean_rate().as_mbps_f64()),
        other => panic!("{other:?}"),
    };
    let (wifi_period, wifi_mean) = period(&wifi.down.capacity);
    let (lte_period, lte_mean) = period(&lte.down.capacity);
    assert_eq!((wifi_period, lte_period), (Span::from_secs(30), Span::from_secs(20)));
    // Computed with awk from the same files.
    assert!((wifi_mean - 18.1).abs() < 0.01 && (lte_mean - 6.0894).abs() < 0.01);
    let DelaySpec::Trace { steps, .. } = &lte.up.delay else { panic!() };
    assert_eq!(*steps.at(Span::from_secs(12)), Span::from_millis(60));
}
