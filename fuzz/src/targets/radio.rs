//! Parsers of radio profiles, traces, rules, probes and policies.

use manyways_model::radio::plan::{Learned, Plan};
use manyways_model::radio::policy::{MakeIdle, Policy};
use manyways_model::radio::probes::{Probes, Samples};
use manyways_model::radio::{App, Choice, Packet, Tolerant, csv, infer, ladder, profile, profiles};

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

/// Each energy of a valid profile is finite and not negative, and a policy finds a wait.
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
        at: manyways_unit::Time::ZERO,
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

/// A valid line is a packet that is not earlier than the previous one, or no packet; an error ends
/// the trace and has the number of its line.
pub(super) fn trace(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let Ok(mut reader) = csv::Reader::new(lines.next().unwrap_or_default()) else { return };
    let mut last = manyways_unit::Time::ZERO;
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

pub(super) const RULE_WORDS: &[&str] = &[
    "[[delay-tolerant]]\n",
    "application = \"mail*\"\n",
    "application = [\"a\", \"*\"]\n",
    "domain = \"*.example.org\"\n",
    "domain = \".example.org\"\n",
    "port = 993\n",
    "port = [\"1-65535\", 0]\n",
    "**",
    "..",
];

/// Valid rules decide for every application, and an error has a position.
pub(super) fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Tolerant::parse(&text) {
        Err(error) => {
            assert!((1..=text.lines().count() + 1).contains(&error.line) && error.column > 0);
        }
        Ok(rules) => {
            for name in ["", "mail", "a.example.org", ".", "*", "ÄÖ"] {
                for port in [None, Some(0), Some(993), Some(u16::MAX)] {
                    rules.may_wait(&App { name: name.to_owned(), port });
                }
            }
            assert!(!rules.is_empty());
        }
    }
}

pub(super) const PROBE_WORDS: &[&str] = &[
    "idle,round_trip\n",
    "interval,RTT1,RTT2,KeepOrDrop\n",
    "time,watts\n",
    "time,milliwatts\n",
    ",YEP\n",
    "0.5,0.05\n",
    "20,1e308\n",
    "1e-308,",
    "NaN",
    "2026-01-31T12:00:00.5Z,",
];

/// Valid probes have non-negative idle times and positive round-trip times, and timers can be
/// inferred; valid samples have a finite power.
pub(super) fn probes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let header = lines.next().unwrap_or_default();
    if let Ok(mut reader) = Probes::new(header) {
        let mut all = Vec::new();
        for (number, line) in lines.clone().enumerate() {
            match reader.line(line) {
                Ok(probe) => all.extend(probe),
                Err(error) => {
                    assert_eq!(error.line, number as u64 + 2);
                    break;
                }
            }
        }
        assert!(all.iter().all(|probe: &infer::Probe| probe.idle >= 0.0 && probe.round_trip > 0.0));
        // The inference takes quadratic time in the number of probes.
        all.truncate(300);
        if let Ok(timers) = ladder::timers(&all) {
            assert!(timers.iter().all(|one| one.ends.onset.value <= one.ends.completion.value));
        }
    }
    if let Ok(mut reader) = Samples::new(header) {
        for line in lines {
            match reader.line(line) {
                Ok(Some((_, watts))) => assert!(watts.is_finite()),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}

pub(super) const PLAN_WORDS: &[&str] = &[
    "status-quo",
    "fixed",
    "iat",
    "threshold",
    "oracle",
    "makeidle",
    "printed",
    "context",
    "makeactive",
    "makeactive-fixed",
    ":n=",
    ":seconds=",
    ":p=",
    ":experts=",
    ":gamma=",
    ":hold=",
    "+",
    ":",
    "s",
    "1e9",
    "-1",
    "NaN",
    "inf",
];

/// Every valid policy runs.
pub(super) fn plan(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let plan = match Plan::parse(&text) {
        Err(error) => {
            assert!(!error.sentence.is_empty() && !error.hint.is_empty());
            return;
        }
        Ok(plan) => plan,
    };
    let Some(Ok(profile)) = profiles::named("lte") else { return };
    let mut policy = plan.policy(&profile, Learned { gap: 1.0, bursts: 2.0 });
    let packet = Packet {
        at: manyways_unit::Time::ZERO,
        direction: manyways_model::radio::Direction::Up,
        bytes: 1,
        app: 0,
        session: 0,
    };
    for gap in [None, Some(0.0), Some(0.5), Some(100.0)] {
        assert!(policy.observe(&packet, gap) >= 0.0);
    }
    policy.begins(1.0);
    let hold = policy.hold(1.0);
    assert!((0.0..=86_400.0).contains(&hold), "{hold}");
}
