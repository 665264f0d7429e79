//! Parsers of radio profiles, traces, rules, probes and policies.

use manyways_model::radio::probes::{PowerSampleReader, ProbeReader};
use manyways_model::radio::{
    App, DelayTolerance, MakeIdle, Packet, Policy, PolicySpec, Priors, SleepTradeoff, csv,
    gap_sweep, infer, profile, profiles,
};
use manyways_unit::Span;

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
    let tradeoff = SleepTradeoff::of(&profile);
    let threshold = tradeoff.threshold();
    let packet = Packet {
        at: manyways_unit::Time::ZERO,
        direction: manyways_model::radio::Direction::Up,
        bytes: 1,
        app: 0,
        session: 0,
    };
    let mut policy = MakeIdle::new(tradeoff.clone(), 3);
    let gaps = [0.0, 1e-9, 0.5, 10.0, 1e5, 1e9].map(Span::from_secs_f64);
    for gap in gaps.into_iter().chain([threshold, tradeoff.stay.idle_after()]) {
        for joules in [
            tradeoff.stay.cost(gap),
            tradeoff.cost(gap, Span::ZERO),
            tradeoff.cost(gap, Span::from_nanos(gap.as_nanos() / 2)),
        ] {
            assert!(joules.is_finite() && joules >= 0.0, "{joules} for {gap}");
        }
        let parts: Span = tradeoff.stay.energy_by_state(gap).map(|(_, time, _, _)| time).sum();
        assert_eq!(parts, gap);
        policy.observe(&packet, Some(gap));
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
    match DelayTolerance::parse(&text) {
        Err(error) => {
            assert!((1..=text.lines().count() + 1).contains(&error.line) && error.column > 0);
        }
        Ok(rules) => {
            for name in ["", "mail", "a.example.org", ".", "*", "ÄÖ"] {
                for port in [None, Some(0), Some(993), Some(u16::MAX)] {
                    rules.is_delay_tolerant(&App { name: name.to_owned(), port });
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
    if let Ok(mut reader) = ProbeReader::new(header) {
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
        assert!(all.iter().all(|probe: &infer::Probe| probe.gap >= 0.0 && probe.round_trip > 0.0));
        // The inference takes quadratic time in the number of probes.
        all.truncate(300);
        if let Ok(timers) = gap_sweep::infer_timers(&all) {
            assert!(timers.iter().all(|one| one.expiry.onset.value <= one.expiry.completion.value));
        }
    }
    if let Ok(mut reader) = PowerSampleReader::new(header) {
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
    ":delay=",
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
    let plan = match PolicySpec::parse(&text) {
        Err(error) => {
            assert!(!error.message.is_empty() && !error.hint.is_empty());
            return;
        }
        Ok(plan) => plan,
    };
    let Some(Ok(profile)) = profiles::named("lte") else { return };
    let mut policy =
        plan.policy(&profile, Priors { gap_quantile: Span::from_secs(1), bursts_per_period: 2.0 });
    let packet = Packet {
        at: manyways_unit::Time::ZERO,
        direction: manyways_model::radio::Direction::Up,
        bytes: 1,
        app: 0,
        session: 0,
    };
    for gap in [None, Some(0), Some(500), Some(100_000)] {
        policy.observe(&packet, gap.map(Span::from_millis));
    }
    let now = manyways_unit::Time::from_millis(1_000);
    policy.on_session(now);
    let hold = policy.session_delay(now);
    assert!(hold <= Span::from_secs(86_400), "{hold}");
}
