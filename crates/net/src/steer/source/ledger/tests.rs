use super::*;

const RADIO: SourceId = SourceId(1);
const COMMAND: SourceId = SourceId(2);

fn secs(secs: u64) -> Time {
    Time::from_millis(secs * 1_000)
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.add(RADIO, SourceKind::Modem, Some("lte"));
    ledger.add(COMMAND, SourceKind::Command, None);
    ledger
}

/// All updates that wait, as seconds, network, indicator and value.
fn taken(ledger: &mut Ledger) -> Vec<(u64, String, &'static str, String)> {
    std::iter::from_fn(|| ledger.take())
        .map(|update| {
            let Update { at, network, indicator, value } = update;
            let secs = at.as_nanos() / 1_000_000_000;
            (secs, network.to_string(), indicator.name(), value.to_string())
        })
        .collect()
}

fn silence(ledger: &Ledger, kind: SourceKind) -> Option<String> {
    let all = ledger.status("lte");
    all.into_iter().rev().find(|status| status.kind == kind).unwrap().silence
}

#[test]
fn values_pass_until_the_source_no_longer_knows_them() {
    let mut ledger = ledger();
    let expected = Some("it has not reported a value yet".to_owned());
    assert_eq!(silence(&ledger, SourceKind::Modem), expected);
    let both = [(Indicator::Rsrp, Some(-97.5)), (Indicator::Snr, Some(8.0))];
    ledger.on_reading(secs(1), RADIO, "lte", &both, Scope::Complete);
    let row = |at, name, value: &str| (at, "lte".to_owned(), name, value.to_owned());
    assert_eq!(taken(&mut ledger), [row(1, "rsrp", "-97.5"), row(1, "snr", "8")]);
    assert_eq!(silence(&ledger, SourceKind::Modem), None);

    ledger.on_reading(secs(2), RADIO, "lte", &both[..1], Scope::Complete);
    assert_eq!(taken(&mut ledger), [row(2, "rsrp", "-97.5"), row(2, "snr", "NaN")]);
    ledger.on_failure(secs(3), RADIO, "ModemManager does not run");
    ledger.on_failure(secs(4), RADIO, "ModemManager does not run");
    assert_eq!(taken(&mut ledger), [row(3, "rsrp", "NaN")]);
    let status = &ledger.status("lte")[0];
    assert_eq!(status.silence.as_deref(), Some("ModemManager does not run"));
    let last = LastValue {
        indicator: Indicator::Rsrp,
        known: Known { value: -97.5, at: secs(2) },
        is_current: false,
    };
    assert_eq!(status.values[0], last);
}

#[test]
fn a_partial_report_removes_only_what_it_names() {
    let mut ledger = ledger();
    let both = [(Indicator::Rsrp, Some(-97.5)), (Indicator::Cqi, Some(9.0))];
    ledger.on_reading(secs(1), COMMAND, "lte", &both, Scope::Partial);
    let next = [(Indicator::Cqi, None), (Indicator::Snr, Some(3.0))];
    ledger.on_reading(secs(2), COMMAND, "lte", &next, Scope::Partial);
    let names: Vec<_> = taken(&mut ledger).into_iter().map(|row| (row.0, row.2, row.3)).collect();
    let row = |at, name, value: &str| (at, name, value.to_owned());
    assert_eq!(names, [row(1, "rsrp", "-97.5"), row(2, "snr", "3"), row(2, "cqi", "NaN")]);
}

#[test]
fn impossible_values_are_dropped_and_the_first_one_is_kept() {
    let mut ledger = ledger();
    let good = [(Indicator::Rsrp, Some(-97.5)), (Indicator::Snr, Some(8.0))];
    ledger.on_reading(secs(1), RADIO, "lte", &good, Scope::Complete);
    let half = [(Indicator::Rsrp, Some(32_767.0)), (Indicator::Snr, Some(8.0))];
    ledger.on_reading(secs(2), RADIO, "lte", &half, Scope::Complete);
    assert_eq!(silence(&ledger, SourceKind::Modem), None, "one value is possible");
    let lies = [(Indicator::Rsrp, Some(f64::NAN)), (Indicator::Snr, Some(-32_768.0))];
    ledger.on_reading(secs(3), RADIO, "lte", &lies, Scope::Complete);
    let status = &ledger.status("lte")[0];
    assert_eq!(status.dropped, 3);
    let first = "it reports rsrp = 32767, which is not between -156 and -31 dBm";
    assert_eq!(status.first_dropped.as_deref(), Some(first));
    let last = "it reports snr = -32768, which is not between -23 and 40 dB";
    assert_eq!(status.silence.as_deref(), Some(last));
    assert!(taken(&mut ledger).iter().all(|row| row.3 == "NaN"));
}

#[test]
fn a_slow_receiver_gets_only_the_newest_values() {
    let mut ledger = ledger();
    for at in 0..10_000 {
        let reading = [(Indicator::Rsrp, Some(-100.0 + (at % 10) as f64))];
        ledger.on_reading(secs(at), RADIO, "lte", &reading, Scope::Complete);
    }
    let row = (9_999, "lte".to_owned(), "rsrp", "-91".to_owned());
    assert_eq!(taken(&mut ledger), [row]);
}

#[test]
fn a_command_names_networks_up_to_a_limit() {
    let mut ledger = ledger();
    let reading = [(Indicator::Rsrp, Some(-97.5))];
    for number in 0..MAX_NETWORKS + 2 {
        let name = format!("network-{number}");
        ledger.on_reading(secs(1), COMMAND, &name, &reading, Scope::Partial);
    }
    assert_eq!(taken(&mut ledger).len(), MAX_NETWORKS);
    let whole = ledger.status("lte").pop().unwrap();
    assert_eq!((whole.network, whole.dropped, whole.silence), (None, 2, None));
    let expected = "it names `network-64` after 64 other networks";
    assert_eq!(whole.first_dropped.as_deref(), Some(expected));
    ledger.remove(secs(2), COMMAND);
    assert_eq!(ledger.status("network-1"), []);
    assert_eq!(taken(&mut ledger).len(), MAX_NETWORKS, "all are withdrawn");
}

#[test]
fn a_value_that_another_source_knows_remains() {
    let mut ledger = ledger();
    let (weak, strong) = ([(Indicator::Rsrp, Some(-97.5))], [(Indicator::Rsrp, Some(-80.0))]);
    ledger.on_reading(secs(1), COMMAND, "lte", &strong, Scope::Partial);
    ledger.on_reading(secs(2), RADIO, "lte", &weak, Scope::Complete);
    ledger.on_reading(secs(2), RADIO, "wifi", &weak, Scope::Complete);
    taken(&mut ledger);
    ledger.on_failure(secs(3), RADIO, "ModemManager does not run");
    let row = |at, network: &str, value: &str| (at, network.to_owned(), "rsrp", value.to_owned());
    assert_eq!(taken(&mut ledger), [row(1, "lte", "-80"), row(3, "wifi", "NaN")]);
    ledger.on_failure(secs(4), COMMAND, "it ended");
    assert_eq!(taken(&mut ledger), [row(4, "lte", "NaN")]);
}
