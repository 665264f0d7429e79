use manyways_lab::signal::SignalDocument as Published;
use manyways_model::select::Indicator;
use manyways_trace::signal::{Signal, SignalTrace};
use manyways_unit::Span;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::time::Instant;

use super::super::{Sources, Update};
use super::*;

/// Publishes signals as a lab does: samples that are two hours long each, from `ago` on.
fn publish(folder: &TempDir, interface: &str, rssi: [f64; 2], ago: Span) -> PublishedSignal {
    let text = format!("time,rssi\n0,{}\n7200,{}\n", rssi[0], rssi[1]);
    let now = Clock::start().absolute(Time::ZERO);
    let signal = PublishedSignal {
        interface: interface.to_owned(),
        source: "walk.csv".into(),
        start: now as i64 - ago.as_nanos() as i64,
        trace: SignalTrace::parse(text.as_bytes()).unwrap(),
    };
    let name = published_file(interface).unwrap();
    let fresh = folder.path().join("fresh");
    fs::write(&fresh, document::to_json(&Published(signal.clone())).unwrap()).unwrap();
    fs::rename(fresh, folder.path().join(name)).unwrap();
    signal
}

const HOUR: Span = Span::from_secs(3_600);

#[test]
fn the_signal_of_an_interface_is_that_which_its_lab_publishes() {
    let folder = tempfile::tempdir().unwrap();
    let signal = publish(&folder, "wifi", [-61.0, -70.0], HOUR);
    let found = |interface| signal_in(Some(folder.path()), interface);
    assert_eq!(found("wifi"), Some(signal));
    assert_eq!((found("lte"), found("../wifi"), signal_in(None, "wifi")), (None, None, None));
    let file = folder.path().join("signal-wifi.json");
    let text = fs::read_to_string(&file).unwrap();
    let reason = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut file = SignalFile::new(Some(folder.path()), "wifi");
        file.refresh();
        file.signal.unwrap_err().to_string()
    };
    let newer = reason(&text.replace("lab-signal/1", "lab-signal/2"));
    assert!(newer.contains("signal-wifi.json: it has the format manyways.lab-signal/2"), "{newer}");
    for broken in ["", "{}", &text[..text.len() / 2], &text.replace("-61", "-61000")] {
        let reason = reason(broken);
        assert!(reason.contains("signal-wifi.json: it is damaged: "), "{reason}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(found("wifi"), None);
}

#[test]
fn a_source_follows_the_signal_from_before_its_start_until_it_is_removed() {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        // The first repetition began before this program.
        publish(&folder, "wifi", [-61.0, -70.0], HOUR * 7);
        let mut sources = Sources::start(Instant::now(), Span::from_millis(10));
        let here = Some(folder.path().to_owned());
        sources.add_signal_in("net", "wifi", here.clone());
        sources.add_signal_in("other", "lte", here);
        sources.add_signal_in("none", "wifi", None);
        let Update { network, indicator, value, .. } = sources.next().await;
        assert_eq!((&*network, indicator, value), ("net", Indicator::Rssi, -70.0));
        // A lab restarts its traces with each workload.
        let signal = publish(&folder, "wifi", [-61.0, -70.0], HOUR);
        assert_eq!(signal.trace.at(HOUR).get(Signal::Rssi), Some(-61.0));
        next(&mut sources, |value| value == -61.0).await;
        publish(&folder, "wifi", [-50.0, -80.0], HOUR * 3);
        next(&mut sources, |value| value == -80.0).await;
        fs::remove_file(folder.path().join("signal-wifi.json")).unwrap();
        next(&mut sources, f64::is_nan).await;
        let silence = |network| sources.status(network)[0].silence.clone().unwrap();
        assert_eq!(silence("net"), "the lab has no signal of `wifi`");
        publish(&folder, "lte", [-90.0, -95.0], HOUR);
        next(&mut sources, |value| value == -90.0).await;
        let silence = sources.status("none")[0].silence.clone();
        assert_eq!(silence.as_deref(), Some("this program does not run in a lab"));
        sources.stop().await;
    });
}

async fn next(sources: &mut Sources, is_it: impl Fn(f64) -> bool) {
    while !is_it(sources.next().await.value) {}
}
