//! Any policy in any environment.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A rule of random valid parts.
fn rule() -> impl Strategy<Value = String> {
    let matches = prop_oneof![
        Just(""),
        Just("match = { port = [443, '1-100'] }"),
        Just("match = { protocol = 'udp' }"),
        Just("match = { bytes = '>1KB' }"),
        Just("match = { bytes = ['<=500B', '2KB-3KB'], process = 'a*' }"),
        Just("match = [{ domain = '.a.com' }, { user = 7 }]"),
    ];
    let not = prop_oneof![
        3 => Just(""),
        1 => Just("not = { bytes = '1500B-2500B', port = 443 }"),
        1 => Just("not = [{ process = 'ab' }, { protocol = 'tcp', port = 22 }]"),
    ];
    let when = prop_oneof![
        Just(""),
        Just("when = { wifi.rate = '<10mbit' }"),
        Just("when = { primary.rtt = '>50ms', hold = '1s' }"),
        Just("when = { battery = '<50%' }"),
        Just("when = { metered.loss = '<2%', unmetered.up = true }"),
        Just("when = { cellular.left = '>1GB', all.load = '>50%', margin = '0%' }"),
    ];
    let action = prop_oneof![
        Just("use = { primary = 'lowest-latency', paths = 'wifi' }"),
        Just("use = { primary = 'lowest-latency' }"),
        Just("use = { primary = 'cellular', paths = 'metered', priority = 'high' }"),
        Just("use = { paths = 'auto', primary = 'unmetered' }"),
        Just("use = { paths = 'auto', goal = 'thrifty', primary = 'lowest-latency' }"),
        Just("use = { paths = 'auto', goal = 'balanced', primary = 'wifi' }"),
    ];
    (matches, not, when, action)
        .prop_map(|(matches, not, when, action)| format!("{matches}\n{not}\n{when}\n{action}\n"))
}

fn rules() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(rule(), 1..8).prop_map(|rules| {
        let named = rules.into_iter().enumerate();
        named.map(|(index, rule)| format!("[[rule]]\nname = 'r{index}'\n{rule}")).collect()
    })
}

prop_compose! {
    fn path(id: u8)(
        up in any::<bool>(),
        metered in any::<bool>(),
        kbps in prop::option::of(0_u64..20_000),
        rtt in prop::option::of(0_u64..100),
        share in prop::option::of(-0.1_f64..1.1),
        used in prop::option::of(0_u64..12_000_000_000),
    ) -> PathFacts {
        PathFacts {
            up,
            metered,
            rate: kbps.map(Rate::from_kbps),
            rtt: rtt.map(Span::from_millis),
            loss: share,
            load: share.map(|share| share / 0.0),
            plan_used: used.map(Size::from_bytes),
            ..PathFacts::new(PathId(id), format!("p{id}"), ["wifi", "cellular"][usize::from(id % 2)])
        }
    }
}

fn environment() -> impl Strategy<Value = Environment> {
    let paths = (path(0), path(1), path(2), path(40));
    let names = || prop::collection::vec((0_u8..5).prop_map(|id| format!("p{id}")), 0..3);
    let choices = (names(), names()).prop_map(|(fast, thrifty)| {
        BTreeMap::from([("fast".to_owned(), fast), ("thrifty".to_owned(), thrifty)])
    });
    (paths, 0_usize..=4, prop::option::of(any::<u8>()), prop::option::of(any::<bool>()), choices)
        .prop_map(|((a, b, c, d), count, battery, charging, choices)| {
            let paths = [a, b, c, d].into_iter().take(count).collect();
            Environment { paths, battery, charging, choices }
        })
}

prop_compose! {
    fn flow()(
        process in prop::option::of(prop_oneof![Just("ab"), Just("b")]),
        domain in prop::option::of(prop_oneof![Just("x.a.com"), Just("b.com"), Just("ü")]),
        uid in prop::option::of(Just(7)),
        port in prop_oneof![Just(443), Just(22), any::<u16>()],
        protocol in prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)],
        bytes in 0_u64..4_000,
    ) -> Flow<'static> {
        Flow {
            process,
            domain,
            uid,
            bytes: Size::from_bytes(bytes),
            ..Flow::new(protocol, port)
        }
    }
}

const PLAN: &str = "[paths.cellular]\nmonthly = '10GB'\n";

fn whole(rules: &[String]) -> Policy {
    Policy::parse(&format!("{PLAN}{}", rules.concat())).unwrap()
}

proptest! {
    #[test]
    fn the_first_rule_that_would_match_alone_decides(
        rules in rules(),
        worlds in prop::collection::vec((0_u64..4_000, environment()), 0..20),
        flow in flow(),
    ) {
        let mut together = Engine::new(whole(&rules));
        let mut alone: Vec<Engine> =
            rules.iter().map(|rule| Engine::new(whole(std::slice::from_ref(rule)))).collect();
        let mut now = Time::ZERO;
        for (pause, world) in worlds {
            now += Span::from_millis(pause);
            together.observe(now, &world);
            for engine in &mut alone {
                engine.observe(now, &world);
            }
            let first = alone.iter().map(|engine| engine.decide(&flow)).find(|one| one.rule.is_some());
            let verdict = together.decide(&flow);
            prop_assert_eq!(verdict.rule, first.and_then(|first| first.rule));
            if let Some(first) = first {
                prop_assert_eq!(verdict.decision, first.decision);
            }
            let explanation = together.explain(&flow);
            prop_assert_eq!(explanation.decision, verdict.decision);
            prop_assert_eq!(explanation.rule.as_deref(), verdict.rule);
        }
    }

    #[test]
    fn decisions_differ_only_when_that_was_said(
        rules in rules(),
        worlds in prop::collection::vec((0_u64..4_000, environment()), 1..20),
        flows in prop::collection::vec(flow(), 1..5),
    ) {
        let mut engine = Engine::new(whole(&rules));
        let mut now = Time::ZERO;
        for (pause, world) in worlds {
            now += Span::from_millis(pause);
            let before = engine.clone();
            let differs = engine.observe(now, &world);
            for flow in &flows {
                prop_assert!(differs || before.decide(flow) == engine.decide(flow));
            }
            // Replacing a policy with itself changes nothing and keeps the state.
            let memory = engine.clone();
            prop_assert!(!engine.replace(now, whole(&rules)));
            for flow in &flows {
                prop_assert_eq!(memory.decide(flow), engine.decide(flow));
            }
            prop_assert_eq!(memory.next_wakeup(), engine.next_wakeup());
            prop_assert!(engine.next_wakeup().is_none_or(|wakeup| wakeup > now));
        }
    }

    #[test]
    fn in_a_world_that_stays_nothing_changes_but_at_a_wakeup(
        rules in rules(),
        first in environment(),
        second in environment(),
        flow in flow(),
    ) {
        let mut engine = Engine::new(whole(&rules));
        engine.observe(Time::ZERO, &first);
        engine.observe(Time::from_millis(1), &second);
        while let Some(wakeup) = engine.next_wakeup() {
            let before = engine.clone();
            let early = Time::from_nanos(wakeup.as_nanos() - 1);
            prop_assert!(!engine.observe(early, &second));
            prop_assert_eq!(engine.decide(&flow), before.decide(&flow));
            engine.observe(wakeup, &second);
            prop_assert!(engine.next_wakeup() != Some(wakeup));
        }
        let decision = engine.decide(&flow).decision;
        engine.observe(Time::from_millis(3_600_000), &second);
        prop_assert_eq!(engine.decide(&flow).decision, decision);
    }

    #[test]
    fn no_byte_count_changes_a_decision_before_it_was_said(
        rules in rules(),
        world in environment(),
        flow in flow(),
        more in 0_u64..4_000,
    ) {
        let mut engine = Engine::new(whole(&rules));
        engine.observe(Time::ZERO, &world);
        let next = engine.reevaluate_at(&flow);
        prop_assert!(next.is_none_or(|next| next > flow.bytes));
        let later = Flow { bytes: flow.bytes + Size::from_bytes(more), ..flow };
        if next.is_none_or(|next| later.bytes < next) {
            prop_assert_eq!(engine.decide(&later), engine.decide(&flow));
        }
    }

    #[test]
    fn what_is_hidden_never_decides(rules in rules(), world in environment(), flow in flow()) {
        let policy = whole(&rules);
        let hidden: Vec<usize> = policy
            .lint(&[])
            .into_iter()
            .filter(|warning| warning.message.contains("never decides"))
            .map(|warning| warning.line)
            .collect();
        let mut engine = Engine::new(policy);
        engine.observe(Time::ZERO, &world);
        if let Some(step) = engine.explain(&flow).steps.last() {
            prop_assert!(!step.matched || !hidden.contains(&step.line));
        }
    }

    #[test]
    fn no_path_that_a_rule_forbids_is_ever_used(world in environment(), flow in flow()) {
        let mut engine = Engine::new(Policy::parse("[default]\npaths = 'unmetered'").unwrap());
        engine.observe(Time::ZERO, &world);
        let policy = stream_policy(engine.decide(&flow).decision);
        for path in world.paths.iter().filter(|path| path.metered) {
            prop_assert!(!policy.paths.contains(path.id));
        }
    }

    #[test]
    fn an_auto_rule_uses_the_chosen_paths_that_are_up_or_all(world in environment(), flow in flow()) {
        let text = "[default]\npaths = 'auto'\ngoal = 'thrifty'";
        let mut engine = Engine::new(Policy::parse(text).unwrap());
        engine.observe(Time::ZERO, &world);
        let used = stream_policy(engine.decide(&flow).decision).paths;
        let chosen = |path: &&PathFacts| world.choices["thrifty"].contains(&path.name);
        let expected: PathSet =
            world.paths.iter().filter(chosen).filter(|path| path.up).map(|path| path.id).collect();
        prop_assert_eq!(used, if expected == PathSet::NONE { PathSet::ALL } else { expected });
    }

    #[test]
    fn no_text_panics(text in "[ -~\n]{0,200}") {
        let _ = Policy::parse(&text);
    }
}
