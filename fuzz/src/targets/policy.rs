//! A policy: any text, and flows and an environment from the same bytes.

use std::net::{IpAddr, Ipv4Addr};

use manyways_proto::policy::{Engine, Environment, Flow, PathFacts, Policy, Protocol};
use manyways_proto::sched::PathId;
use manyways_unit::{Rate, Size, Span, Time};

pub(super) const POLICY_WORDS: &[&str] = &[
    "[[rule]]\nname = \"",
    "[default]\n",
    "[paths.wifi]\n",
    "match = { ",
    "not = [{ ",
    "when = { ",
    "use = { ",
    " }\n",
    "process = \"a*\"",
    "domain = \"*.",
    "cgroup = \"/a/*\"",
    "address = \"::/0\"",
    "port = [\"1-65535\"]",
    "bytes = \">=0\"",
    "protocol = \"udp\"",
    "wifi.rate = \"<1mbit\"",
    "all.loss = \">0%\"",
    "primary.rtt = \">1ms\"",
    "cellular.left = \"<1GB\"",
    "monthly = \"1GB\"",
    "primary = \"lowest-latency\"",
    "paths = \"!metered\"",
    "paths = \"auto\"",
    "goal = \"fast\"",
    "hold = \"0s\"",
    "margin = \"0%\"",
];

/// A valid policy decides for any flow, explains the decision, and its replacement by itself
/// changes nothing.
pub(super) fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            assert!(!error.message.contains('\n'), "{error}");
            return;
        }
    };
    let mut byte = bytes.iter().rev().copied().cycle();
    let mut next = || byte.next().unwrap_or_default();
    let mut engine = Engine::new(policy.clone());
    let mut now = Time::ZERO;
    for _ in 0..4 {
        let mut facts = |id: u8| PathFacts {
            up: next() & 1 == 0,
            metered: next() & 1 == 0,
            rate: Some(Rate::from_kbps(u64::from(next()) * 20)),
            rtt: (next() & 1 == 0).then_some(Span::from_millis(30)),
            loss: Some(f64::from(next()) / 200.0),
            plan_used: Some(Size::from_bytes(u64::from(next()) << 24)),
            ..PathFacts::new(PathId(id), ["wlan0", "wwan0"][usize::from(id)], "wifi")
        };
        let paths = vec![facts(0), facts(1)];
        let _ = policy.lint(&paths);
        let battery = Some(next());
        let chosen = ["wlan0", "wwan0"].into_iter().filter(|_| next() & 1 == 0).map(str::to_owned);
        let choices = [("fast".to_owned(), chosen.collect())].into();
        engine.observe(now, &Environment { paths, battery, charging: None, choices });
        // An equal policy is not a change.
        assert!(!engine.replace(now, policy.clone()));
        assert!(engine.next_wakeup().is_none_or(|wakeup| wakeup > now));
        now += Span::from_millis(u64::from(next()) * 20);
        // Any part of the text may be a name that a network reports.
        let piece = text.split('"').nth(usize::from(next()) % 32);
        let flow = Flow {
            process: piece,
            user: piece,
            uid: Some(u32::from(next())),
            cgroup: piece,
            domain: piece,
            address: Some(IpAddr::V4(Ipv4Addr::from([10, 0, next(), next()]))),
            bytes: Size::from_bytes(u64::from(next()) << 12),
            ..Flow::new(Protocol::Udp, u16::from(next()) << 6)
        };
        let verdict = engine.decide(&flow);
        let explanation = engine.explain(&flow);
        assert_eq!(explanation.decision, verdict.decision);
        assert_eq!(explanation.rule.as_deref(), verdict.rule);
        assert!(engine.reevaluate_at(&flow).is_none_or(|bytes| bytes > flow.bytes));
    }
}
