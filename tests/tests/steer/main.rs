//! `manyways steer`: on emulated networks, and on tables of transfers.

mod modem;
mod run;
mod simulate;
mod train;
mod world;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use manyways_tests::{Finished, finish, manyways};

fn steer(files: &Path, words: &[&str]) -> Finished {
    finish(manyways().arg("steer").args(words).current_dir(files))
}

/// Writes a table: Wi-Fi is near and slow, LTE far and fast, and in odd seconds they change places.
/// Times are those of a round trip, a handshake, and the rate.
fn write_table(files: &Path, name: &str, choices: &[&str]) {
    let mut text =
        "place,group,second,choice,size,seconds,wifi.ping-min,wifi.ping-mean,wifi.udp-rate,\
                    lte.ping-min,lte.ping-mean,lte.udp-rate\n"
            .to_owned();
    for place in 0..6 {
        for second in 0..8 {
            let scale = 1.0 + f64::from(place) / 10.0;
            let networks = [(0.01 * scale, 4.0), (0.05 * scale, 40.0)];
            let [wifi, lte] = [networks[second % 2], networks[1 - second % 2]];
            for size in [3_000.0, 100_000.0, 3_000_000.0] {
                for choice in choices {
                    let of = |(round_trip, mbps): (f64, f64)| {
                        2.0 * round_trip + size * 8.0 / (mbps * 1e6)
                    };
                    let seconds = match *choice {
                        "wifi" => of(wifi),
                        "lte" => of(lte),
                        _ => of((wifi.0, wifi.1 + lte.1)),
                    };
                    let known = [wifi, lte].map(|(trip, rate)| format!("{trip},{trip},{rate}"));
                    let _ = writeln!(
                        text,
                        "p{place},g{place},{second},{choice},{size},{seconds:.6},{}",
                        known.join(",")
                    );
                }
            }
        }
    }
    fs::write(files.join(name), text).expect("the folder is writable");
}

/// The error that a command prints, with its hint.
fn error(done: Finished, code: i32) -> String {
    assert_eq!(done.code(), code, "{}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("manyways: ") && lines[1].starts_with("hint: "),
        "{}",
        done.stderr
    );
    done.stderr
}
