//! Parses every recorded trace of the shared collection and compares it with figures that awk
//! computed from the same files. Skipped if the collection is absent, because it cannot be shipped.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};

use manyways_trace::{LinkTrace, trace_file};
use manyways_unit::{Rate, Span};

/// Returns the files of one folder of the collection; empty if it is absent.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(folder);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: the shared traces are absent");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_none_or(|extension| extension != "md"));
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn lines(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
}

/// Checks the mean rate of a file with a known figure in bit/s, within a millionth.
fn expect_mean(file: &Path, mean: Rate, figures: &[(&str, f64)]) {
    let name = file.file_name().unwrap().to_str().unwrap();
    if let Some((_, expected)) = figures.iter().find(|(known, _)| *known == name) {
        let off = (mean.as_bps() as f64 - expected).abs();
        assert!(off <= 1.0 + expected / 1e6, "{name}: {mean} is not {expected}");
    }
}

#[test]
fn mahimahi() {
    for file in files("mahimahi") {
        let bytes = std::fs::read(&file).unwrap();
        let trace = trace_file::capacity(&bytes, None).unwrap();
        let LinkTrace::Opportunities { at, .. } = &trace else { panic!("{}", file.display()) };
        assert_eq!(at.len(), lines(&bytes), "{}", file.display());
        expect_mean(
            &file,
            trace.mean_rate(),
            &[
                ("ATT-LTE-driving-2016.down", 4_572_485.0),
                ("TMobile-LTE-short.up", 13_353_887.0),
                ("TMobile-UMTS-driving.up", 945_742.0),
                ("Verizon-LTE-short.down", 5_040_978.0),
            ],
        );
    }
}

#[test]
fn bytes_a_second() {
    for file in files("pairs") {
        let bytes = std::fs::read(&file).unwrap();
        let trace = trace_file::capacity(&bytes, None).unwrap();
        let LinkTrace::Rates(steps) = &trace else { panic!("{}", file.display()) };
        assert_eq!(steps.steps().len(), lines(&bytes), "{}", file.display());
        assert_eq!(steps.period(), Span::from_secs(lines(&bytes) as u64));
        let figures = [("11_1_wifi.csv", 44_115_231.84), ("7_2_wifi.csv", 14_814_531.84)];
        expect_mean(&file, trace.mean_rate(), &figures);
    }
}

#[test]
fn mbit_a_second() {
    for file in files("mbps") {
        let bytes = std::fs::read(&file).unwrap();
        let trace = trace_file::capacity(&bytes, None).unwrap();
        let LinkTrace::Rates(steps) = &trace else { panic!("{}", file.display()) };
        assert_eq!(steps.steps().len(), lines(&bytes), "{}", file.display());
        expect_mean(
            &file,
            trace.mean_rate(),
            &[
                ("4g_trace_driving_50015_dr.txt", 40.184e6),
                // The file misses a second, so that the value before it holds for two.
                ("4g_trace_driving_50066_dr.txt", 49.696e6),
                ("5g_trace_100_walking.txt", 498.55e6),
            ],
        );
    }
}

#[test]
fn json_with_rates_and_delays() {
    for file in files("abr/3Glogs").into_iter().chain(files("abr/4Glogs")) {
        let bytes = std::fs::read(&file).unwrap();
        let trace = trace_file::capacity(&bytes, None).unwrap();
        let LinkTrace::Rates(steps) = &trace else { panic!("{}", file.display()) };
        let entries = bytes.windows(11).filter(|word| *word == b"duration_ms").count();
        assert_eq!(steps.steps().len(), entries, "{}", file.display());
        let delays = trace_file::delay(&bytes, None).unwrap();
        assert_eq!(delays.period(), steps.period());
        // The collection's 3G logs have 100 ms and its 4G logs 20 ms of round-trip time.
        let round_trip = if file.iter().any(|part| part == "3Glogs") { 100 } else { 20 };
        assert!(delays.steps().iter().all(|step| step.1 == Span::from_millis(round_trip / 2)));
        expect_mean(
            &file,
            trace.mean_rate(),
            &[
                ("report_bus_0001.json", 27_596_944.0),
                ("report.2010-09-14_1415CEST.json", 305_644.0),
            ],
        );
    }
}
