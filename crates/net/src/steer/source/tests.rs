use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

use manyways_model::select::Indicator;
use manyways_unit::Rate;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::*;

const SECOND: Span = Span::from_secs(1);

fn in_virtual_time(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
}

fn in_real_time(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

async fn next(sources: &mut Sources) -> (u64, String, &'static str, f64) {
    let Update { at, network, indicator, value } = sources.next().await;
    (at.as_nanos() / 1_000_000, network.to_string(), indicator.name(), value)
}

/// Waits for an update of this indicator with a value, or for one without.
async fn until(sources: &mut Sources, indicator: Indicator, is_known: bool) -> f64 {
    loop {
        let update = sources.next().await;
        if update.indicator == indicator && update.value.is_finite() == is_known {
            return update.value;
        }
    }
}

fn named_pipe() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    (folder, pipe)
}

fn shell(script: &str) -> [String; 3] {
    ["/bin/sh", "-c", script].map(str::to_owned)
}

#[test]
fn a_trace_is_polled_in_the_interval_which_may_change_during_a_wait() {
    in_virtual_time(async {
        let mut sources = Sources::start(Instant::now(), SECOND * 5);
        let text = "time,rssi,snr\n0,-61,9\n4,-70,\n8,-80,\n";
        let trace = SignalTrace::parse(text.as_bytes()).unwrap();
        let id = sources.add_trace("wifi", trace, Time::ZERO);
        let row = |at, name, value| (at, "wifi".to_owned(), name, value);
        assert_eq!(next(&mut sources).await, row(0, "rssi", -61.0));
        assert_eq!(next(&mut sources).await, row(0, "snr", 9.0));
        assert_eq!(next(&mut sources).await, row(5_000, "rssi", -70.0));
        let (at, _, name, value) = next(&mut sources).await;
        assert_eq!((at, name, value.is_nan()), (5_000, "snr", true), "the field is empty");
        sources.set_interval(Span::from_millis(500));
        assert_eq!(next(&mut sources).await, row(5_500, "rssi", -70.0));
        // The last line holds for four seconds, until the repetition.
        let mut last = 5_500;
        while last < 11_500 {
            last = next(&mut sources).await.0;
        }
        assert_eq!(next(&mut sources).await, row(12_000, "rssi", -61.0));
        sources.remove(id);
        assert_eq!(sources.status("wifi"), []);
        until(&mut sources, Indicator::Rssi, false).await;
    });
}

#[test]
fn own_connections_are_pushed() {
    in_virtual_time(async {
        let mut sources = Sources::start(Instant::now(), SECOND);
        let own = sources.add_own_traffic("lte");
        own.push_rate(Rate::from_kbps(12_500));
        own.push_round_trip(Span::from_millis(40));
        let row = |name, value| (0, "lte".to_owned(), name, value);
        assert_eq!(next(&mut sources).await, row("own-rate", 12.5));
        assert_eq!(next(&mut sources).await, row("own-round-trip", 0.04));
        assert_eq!(sources.status("lte")[0].values.len(), 2);
        let id = own.id();
        drop(sources);
        own.clone().push_round_trip(Span::from_millis(41));
        assert_eq!(id, own.id());
    });
}

#[test]
fn interfaces_without_wifi_or_of_no_name_are_silent_with_a_reason() {
    in_real_time(async {
        let mut sources = Sources::start(Instant::now(), Span::from_millis(10));
        sources.add_wifi("here", "no-such");
        sources.add_counters("here", "no-such");
        let expected = Some("the host has no interface of this name".to_owned());
        let is_done = |status: &SourceStatus| status.silence == expected;
        while !sources.status("here").iter().all(is_done) {
            sources.shared.changed.notified().await;
        }
        sources.stop().await;
    });
}

#[test]
fn a_busy_interface_has_a_rate() {
    in_real_time(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut receiver, _) = listener.accept().await.unwrap();
        let mut sources = Sources::start(Instant::now(), Span::from_millis(10));
        sources.add_counters("here", "lo");
        let (bytes, mut buffer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let transfer = async {
            loop {
                sender.write_all(&bytes).await.unwrap();
                receiver.read_exact(&mut buffer).await.unwrap();
            }
        };
        let rate = until(&mut sources, Indicator::OwnRate, true);
        let rate = tokio::select! {
            () = transfer => unreachable!("it does not end"),
            rate = rate => rate,
        };
        assert!(rate > 1.0, "{rate} Mbit/s");
    });
}

#[test]
fn lines_of_a_command_are_updates_and_wrong_ones_are_counted() {
    in_real_time(async {
        let script = r#"
            echo '{"network":"lte","rsrp":-97.5,"rsrq":-11,"cqi":9}'
            echo 'rsrp=-97'
            echo '{"network":"lte"}'
            echo '{"rsrp":-80,"snr":1e9}'
            sleep 1000"#;
        let mut sources = Sources::start(Instant::now(), SECOND);
        sources.add_command(&shell(script), Some("other"));
        let value = until(&mut sources, Indicator::Cqi, true).await;
        assert_eq!(value, 9.0);
        loop {
            let update = sources.next().await;
            if &*update.network == "other" {
                assert_eq!((update.indicator, update.value), (Indicator::Rsrp, -80.0));
                break;
            }
        }
        let lte = sources.status("lte");
        assert_eq!(lte.len(), 2);
        let (whole, lte) = (&lte[0], &lte[1]);
        assert_eq!((whole.network.as_ref(), whole.dropped), (None, 2));
        let first = whole.first_dropped.clone().unwrap();
        let expected = "line 2 of the command is not used: it is not a JSON object: ";
        assert!(first.starts_with(expected), "{first}");
        assert_eq!(lte.values.len(), 3);
        assert_eq!(lte.silence, None);
        let other = sources.status("other").pop().unwrap();
        let expected = "it reports snr = 1000000000, which is not between -23 and 40 dB";
        assert_eq!(other.first_dropped.as_deref(), Some(expected));
        sources.stop().await;
    });
}

#[test]
fn a_command_that_ended_is_started_again() {
    let (_folder, pipe) = named_pipe();
    in_real_time(async {
        let mut sources = Sources::start(Instant::now(), SECOND);
        sources.add_command(&shell(&format!("cat '{}'; exit 3", pipe.display())), None);
        for cqi in [9.0, 10.0] {
            let opened = pipe.clone();
            // Returns when the command has opened the other end, also the second one.
            let open = move || File::options().write(true).open(opened);
            let mut input = tokio::task::spawn_blocking(open).await.unwrap().unwrap();
            writeln!(input, r#"{{"network":"lte","cqi":{cqi}}}"#).unwrap();
            assert_eq!(until(&mut sources, Indicator::Cqi, true).await, cqi);
            drop(input);
            until(&mut sources, Indicator::Cqi, false).await;
            let silence = sources.status("lte").pop().unwrap().silence.unwrap();
            let (begin, end) = silence.split_once(", because ").unwrap();
            assert!(begin.starts_with("the command `/bin/sh` is started again in "), "{begin}");
            assert_eq!(end, "it ended with exit status: 3");
        }
    });
}

#[test]
fn a_command_that_does_not_exist_is_silent_with_a_reason() {
    in_real_time(async {
        let mut sources = Sources::start(Instant::now(), SECOND);
        sources.add_command(&["/nowhere/signals".to_owned()], None);
        sources.shared.changed.notified().await;
        let silence = sources.status("lte").pop().unwrap().silence.unwrap();
        let expected = "the command `/nowhere/signals` is started again in 1 s, because it cannot \
                        be started: No such file or directory (os error 2)";
        assert_eq!(silence, expected);
    });
}

#[test]
fn all_processes_of_a_command_are_killed_when_the_sources_are_dropped() {
    let (_folder, pipe) = named_pipe();
    let script = format!("exec 3>'{}'; sleep 1000 & wait", pipe.display());
    in_real_time(async {
        let mut sources = Sources::start(Instant::now(), SECOND);
        sources.add_command(&shell(&script), None);
        let opened = pipe.clone();
        // Returns when the command has opened the other end.
        let mut pipe = tokio::task::spawn_blocking(|| File::open(opened)).await.unwrap().unwrap();
        drop(sources);
        let ended = tokio::task::spawn_blocking(move || pipe.read_to_end(&mut Vec::new()));
        assert_eq!(ended.await.unwrap().unwrap(), 0);
    });
}
