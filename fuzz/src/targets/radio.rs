//! Files about radios.

use manyways_model::radio::policy::{MakeIdle, Policy};
use manyways_model::radio::{Choice, Packet, csv, profile};

pub(super) const PROFILE_WORDS: &[&str] = &[
    "title = \"x\"\n",
    "technology = \"lte\"\n",
    "[transfer]\n",
    "send = \"1W\"\n",
    "receive = \"1W\"\n",
    "burst-gap = \"1s\"\n",
    "send-per-mbit = \"1mJ\"\n",
    "[[state]]\n",
    "name = \"a\"\n",
    "power = \"1000W\"\n",
    "timer = \"24h\"\n",
    "timer = \"1ns\"\n",
    "listen-every = \"1ns\"\n",
    "listen-for = \"1ns\"\n",
    "listen-power = \"0\"\n",
    "demotion = \"1000J\"\n",
    "promotion = \"1uJ\"\n",
    "promotion-delay = \"1s\"\n",
    "released = true\n",
    "dormant = true\n",
    "source = \"x\"\n",
    "99999999999999999999",
];

/// Whatever a profile says, everything that it takes is a number that is not negative, and a wait can
/// be found.
pub(super) fn profile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let profile = match profile::parse(&text) {
        Err(error) => {
            assert!((1..=text.lines().count() + 1).contains(&error.line) && error.column > 0);
            return;
        }
        Ok(profile) => profile,
    };
    let choice = Choice::of(&profile);
    let threshold = choice.threshold();
    assert!(threshold >= 0.0);
    let packet = Packet {
        at: manyways_trace::Time::ZERO,
        direction: manyways_model::radio::Direction::Up,
        bytes: 1,
        app: 0,
        session: 0,
    };
    let mut policy = MakeIdle::new(choice.clone(), 3);
    for secs in [0.0, 1e-9, 0.5, 10.0, 1e5, 1e9, threshold.min(1e9), choice.stay.released()] {
        for joules in
            [choice.stay.cost(secs), choice.cost(secs, 0.0), choice.cost(secs, secs / 2.0)]
        {
            assert!(joules.is_finite() && joules >= 0.0, "{joules} for {secs}");
        }
        let parts: f64 = choice.stay.parts(secs).map(|(_, lasts, _, _)| lasts).sum();
        assert!((parts - secs).abs() <= 1e-6 * (1.0 + secs), "{parts} of {secs}");
        assert!(policy.observe(&packet, Some(secs)) >= 0.0);
    }
}

pub(super) const TRACE_WORDS: &[&str] = &[
    "time,bytes,direction\n",
    "time,bytes,direction,app,flow\n",
    ",up\n",
    ",down,",
    "\"\"",
    "0.000000001,",
    "2026-01-31T12:00:00.5Z,",
    "18446744073.709551615,",
    "4294967295,",
    "\r\n",
];

/// Every line is a packet, no earlier than the one before it, or nothing, or the last one.
pub(super) fn trace(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let Ok(mut reader) = csv::Reader::new(lines.next().unwrap_or_default()) else { return };
    let mut last = manyways_trace::Time::ZERO;
    for (number, line) in lines.enumerate() {
        match reader.line(line) {
            Ok(None) => {}
            Ok(Some(packet)) => {
                assert!(packet.at >= last);
                assert!(usize::from(packet.app) < reader.apps().len());
                last = packet.at;
            }
            Err(error) => {
                assert_eq!(error.line, number as u64 + 2);
                return;
            }
        }
    }
}
