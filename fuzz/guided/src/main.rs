//! One target, named by `FUZZ_TARGET`, under libFuzzer. See `run` beside this package.
#![no_main]

use std::sync::OnceLock;

use manyways_fuzz::{Target, targets};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        targets::named(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name} names no target"))
    });
    (target.run)(bytes);
});
