#![allow(clippy::unwrap_used, reason = "a test may fail")]

use super::*;

/// Error for these arguments, in a folder with files of these names.
fn parse(
    captures: &[&str],
    same_clock: &[&str],
) -> Result<Vec<(PointLocation, u32)>, (String, bool)> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d", "x=y"] {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let within = |argument: &&str| match argument.split_once('=') {
        Some((location, name)) if *argument != "x=y" => format!("{location}={}", path(name)),
        _ => path(argument),
    };
    let captures: Vec<String> = captures.iter().map(within).collect();
    let same: Vec<String> = same_clock
        .iter()
        .map(|name| if parse_location(name).is_some() { (*name).to_owned() } else { path(name) })
        .collect();
    match capture_points(&captures, &same) {
        Ok(sites) => Ok(sites.iter().map(|capture| (capture.point, capture.clock)).collect()),
        Err(failure) => {
            assert!(failure.hint_text().is_some());
            Err((failure.to_string().replace(&path(""), ""), failure.is_usage()))
        }
    }
}

#[test]
fn arguments_name_points_and_clocks() {
    use PointLocation::{Other, PhoneIn, PhoneOut, Server, Wearable};
    assert_eq!(parse(&["a", "b"], &[]), Ok(vec![(Other, 0), (Other, 1)]));
    let all = ["server=a", "phone-in=b", "phone-out=c", "wearable=d"];
    let expected = vec![(Server, 0), (PhoneIn, 1), (PhoneOut, 1), (Wearable, 3)];
    assert_eq!(parse(&all, &[]), Ok(expected));
    assert_eq!(
        parse(&["a", "x=y", "c"], &["a", "c"]),
        Ok(vec![(Other, 0), (Other, 1), (Other, 0)])
    );
    // Also by their locations; the other capture of the phone has the same clock.
    let clocks = |same: &[&str]| -> Vec<u32> {
        parse(&all, same).unwrap().into_iter().map(|(_, clock)| clock).collect()
    };
    assert_eq!(clocks(&["phone-out", "d"]), [0, 1, 1, 1]);
    assert_eq!(clocks(&["server", "phone-out"]), [1, 1, 1, 3]);
}

#[test]
fn what_makes_no_sense_is_said() {
    let usage = |captures: &[&str], same: &[&str]| {
        let (message, is_usage) = parse(captures, same).unwrap_err();
        assert!(is_usage, "{message}");
        message
    };
    assert_eq!(usage(&["a"], &[]), "one capture alone cannot be aligned");
    assert_eq!(usage(&["watch=a", "b"], &[]), "watch is not a location");
    assert_eq!(usage(&["wearable=a", "server=b"], &[]), "server is out of order");
    assert_eq!(usage(&["server=a", "server=b"], &[]), "server is out of order");
    assert_eq!(
        usage(&["a", "b"], &["a", "e"]),
        "--same-clock names e, which is not one of the captures"
    );
    let (message, is_usage) = parse(&["a", "none"], &[]).unwrap_err();
    assert!(!is_usage && message.starts_with("cannot read none"), "{message}");
}
