//! The time of a switch: `cargo test --release -p manyways-sys measure_the -- --ignored --nocapture`.

use std::net::IpAddr;
use std::thread;
use std::time::Instant;

use manyways_unit::Prefix;

use super::testbed::{Testbed, V4, tcp};
use super::{LIFETIME, install};

/// Prints the times from the call to the first packet of a new connection on the new network, and to
/// the return of the call: the kernel applies the choice first, and then `nft` waits for the kernel
/// to free the previous one.
#[test]
#[ignore = "a measurement"]
fn measure_the_time_of_a_switch() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        let many: Vec<Prefix> = (0..512_u32)
            .map(|n| IpAddr::from((0x0100_0000 + n * 77).to_be_bytes()).into())
            .collect();
        for what in ["select", "select_for one", "select_for one of 512"] {
            if what.ends_with("512") {
                egress.select_for(&many, "cell", LIFETIME).unwrap();
            }
            let mut measured = [Vec::new(), Vec::new()];
            for round in 0..100 {
                let network = ["wan", "cell"][round % 2];
                let start = Instant::now();
                let first = thread::scope(|scope| {
                    let watch = scope.spawn(|| {
                        loop {
                            let begun = start.elapsed();
                            if tcp(V4) == network {
                                return begun;
                            }
                        }
                    });
                    if what == "select" {
                        egress.select(Some(network)).unwrap();
                    } else {
                        egress.select_for(&[V4.ip().into()], network, LIFETIME).unwrap();
                    }
                    measured[1].push(start.elapsed());
                    watch.join().unwrap()
                });
                measured[0].push(first);
            }
            for (times, until) in measured.iter_mut().zip(["first packet", "return"]) {
                times.sort();
                let at = |part: usize| times[times.len() * part / 100];
                println!("{what}, {until}: median {:?}, 95 % {:?}", at(50), at(95));
            }
        }
    });
}
