//! A radio profile for tests.

/// A radio with an inactivity timer of ten minutes, which does not expire within a test.
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
