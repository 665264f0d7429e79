//! A wall clock that jumps. A namespace has no separate clock, so the library `faketime` replaces
//! the clock of both endpoints. The monotonic clock, which determines all deadlines, cannot be set.

use std::path::PathBuf;

use serde_json::Value;

use crate::bond::{Keys, network_fields};
use crate::links::download_while;
use crate::needs_bond;
use crate::testbed::{SLOW_LINKS, Testbed, eventually};

#[test]
fn a_clock_that_jumps_ends_nothing() {
    needs_bond!("faketime");
    let testbed = Testbed::new(&SLOW_LINKS);
    testbed.set_clock("+0");
    let keys = Keys::new(&testbed);
    let (gateway, client) = (keys.gateway(&[]), keys.client());
    let count = |name| -> u64 {
        network_fields(&testbed, "default", name).iter().filter_map(Value::as_u64).sum()
    };
    // All counted bytes belong to this month; at most the bytes since the last count are missing.
    let is_counted = || count("plan_used_bytes") + 50_000 > count("received_bytes");
    download_while(&testbed, || {});
    eventually("it is counted", || is_counted().then_some(()));
    download_while(&testbed, || testbed.set_clock("+400d"));
    eventually("another month", || (!is_counted()).then_some(()));
    download_while(&testbed, || testbed.set_clock("-400d"));
    download_while(&testbed, || testbed.set_clock("+0"));
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
    assert_eq!(client.times(" is down"), 0, "{}", client.said());
}

/// The library, in the folder of Debian's package.
pub fn faketime_path() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("a system has libraries");
    let names = folders.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    names.into_iter().find(|path| path.exists()).expect("faketime is installed")
}
