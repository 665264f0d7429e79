//! A radio for tests.

/// A radio that the network lets go of only after ten minutes: as far as a test goes, never.
pub const RADIO: &str = r#"
title = "A test's"
technology = "lte"

[transfer]
send = "2W"
receive = "1W"
burst-gap = "1ms"
source = "made up"

[[state]]
name = "AWAKE"
power = "1W"
timer = "600s"
source = "made up"

[[state]]
name = "IDLE"
power = "0"
demotion = "1mJ"
promotion = "1mJ"
source = "made up"
"#;
