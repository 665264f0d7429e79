//! Auto rules: paths that are chosen for each moment.

use super::*;

const RULES: &str = "
[[rule]]
name = 'video'
match = { domain = 'video.example' }
use = { paths = 'auto' }
[[rule]]
name = 'updates'
match = { domain = 'updates.example' }
use = { paths = 'auto', goal = 'thrifty', primary = 'cellular' }
[[rule]]
name = 'calls'
match = { domain = 'calls.example' }
when = { wifi.rate = '<10mbit' }
use = { paths = 'auto', goal = 'balanced', primary = 'lowest-latency' }
[default]
paths = 'wifi'
";

fn choose(environment: &mut Environment, goal: &str, paths: &[&str]) {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    environment.choices.insert(goal.to_owned(), paths);
}

fn paths(engine: &Engine, domain: &str) -> PathSet {
    stream_policy(engine.decide(&web(domain)).decision).paths
}

#[test]
fn a_changed_choice_applies_at_once_and_only_to_rules_with_its_goal() {
    let mut engine = engine(RULES);
    let mut world = phone_environment();
    assert_eq!(paths(&engine, "video.example"), PathSet::ALL);
    choose(&mut world, "fast", &["wwan0"]);
    assert!(engine.observe(at(1), &world));
    assert_eq!(paths(&engine, "video.example"), set([LTE]));
    assert_eq!(paths(&engine, "updates.example"), PathSet::ALL);
    assert_eq!(paths(&engine, "www.example"), set([WIFI]), "no auto rule");
    assert_eq!(engine.next_wakeup(), None);
    choose(&mut world, "fast", &["wlan0", "wwan0"]);
    choose(&mut world, "thrifty", &["wlan0"]);
    assert!(engine.observe(at(1), &world));
    assert_eq!(paths(&engine, "video.example"), set([WIFI, LTE]));
    assert_eq!(paths(&engine, "updates.example"), set([WIFI]));
    assert!(!engine.observe(at(2), &world), "the same choice");
    choose(&mut world, "fast", &[]);
    assert!(engine.observe(at(3), &world));
    assert_eq!(paths(&engine, "video.example"), PathSet::ALL);
}

#[test]
fn a_choice_without_a_path_that_is_up_allows_all_and_comes_back() {
    let mut engine = engine(RULES);
    let mut world = phone_environment();
    choose(&mut world, "fast", &["wwan0", "eth7"]);
    engine.observe(at(1), &world);
    world.paths[1].up = false;
    assert!(engine.observe(at(2), &world));
    assert_eq!(paths(&engine, "video.example"), PathSet::ALL);
    world.paths[1].up = true;
    assert!(engine.observe(at(3), &world));
    assert_eq!(paths(&engine, "video.example"), set([LTE]));
}

#[test]
fn a_choice_changes_neither_conditions_nor_their_hysteresis() {
    let mut engine = engine(RULES);
    let mut world = phone_environment();
    world.paths[0].rate = Some(Rate::from_mbps(5));
    engine.observe(at(0), &world);
    assert_eq!(engine.next_wakeup(), Some(at(3_000)));
    choose(&mut world, "balanced", &["wwan0"]);
    engine.observe(at(1_000), &world);
    assert_eq!(engine.next_wakeup(), Some(at(3_000)));
    assert_eq!(engine.decide(&web("calls.example")).rule, None);
    engine.observe(at(3_000), &world);
    let verdict = engine.decide(&web("calls.example"));
    assert_eq!(verdict.rule, Some("calls"));
    let policy = stream_policy(verdict.decision);
    assert_eq!((policy.paths, policy.primary), (set([LTE]), Some(LTE)), "the first chosen one");
}

#[test]
fn an_explanation_names_the_chosen_paths_or_why_there_are_none() {
    let mut engine = engine(RULES);
    let mut world = phone_environment();
    let mut action = |world: &Environment, domain| {
        engine.observe(at(1), world);
        engine.explain(&web(domain)).action
    };
    let unchosen = "buffer-aware over auto (fast): all, because no path has been chosen";
    assert_eq!(action(&world, "video.example"), unchosen);
    choose(&mut world, "fast", &["wwan0", "gone"]);
    choose(&mut world, "thrifty", &["wlan0", "wwan0"]);
    assert_eq!(action(&world, "video.example"), "buffer-aware over auto (fast): wwan0");
    assert_eq!(
        action(&world, "updates.example"),
        "buffer-aware over auto (thrifty): wlan0, wwan0, cellular first"
    );
    world.paths[1].up = false;
    assert_eq!(
        action(&world, "video.example"),
        "buffer-aware over auto (fast): all, because no chosen path is up (wwan0, gone)"
    );
}

#[test]
fn goals_are_listed_once_and_inherited_from_the_default() {
    assert_eq!(Policy::parse(RULES).unwrap().goals(), [Goal::Fast, Goal::Balanced, Goal::Thrifty]);
    assert_eq!(Policy::parse("[default]\npaths = 'wifi'").unwrap().goals(), []);
    let default = "[default]\npaths = ['auto']\ngoal = 'thrifty'\n[[rule]]\nname = 'a'\n";
    let goals = |action| Policy::parse(&format!("{default}use = {action}")).unwrap().goals();
    assert_eq!(goals("{ paths = 'auto' }"), [Goal::Thrifty]);
    assert_eq!(goals("{ goal = 'balanced' }"), [Goal::Balanced, Goal::Thrifty]);
    assert_eq!(goals("{ goal = 'fast', paths = 'auto' }"), [Goal::Fast, Goal::Thrifty]);
}

#[test]
fn wrong_goals_have_a_position_and_a_hint() {
    let refused = |action: &str| {
        let text = format!("[[rule]]\nname = 'a'\nuse = {{ {action} }}");
        let error = Policy::parse(&text).unwrap_err();
        assert_eq!(error.line, 3, "{error}");
        (error.column, error.message, error.hint.unwrap_or_default())
    };
    let (column, message, hint) = refused("paths = 'auto', goal = 'fats'");
    assert_eq!((column, hint.as_str()), (32, "did you mean `fast`?"));
    assert!(message.contains("fast, balanced or thrifty"), "{message}");
    assert_eq!(refused("paths = 'auto', goal = 3").0, 32);
    assert_eq!(refused("paths = 'auto', gaol = 'fast'").2, "did you mean `goal`?");
    for fixed in ["goal = 'fast'", "paths = 'wifi', goal = 'fast'"] {
        assert!(refused(fixed).2.starts_with("add paths = \"auto\""), "{fixed}");
    }
    for combined in ["paths = ['wifi', 'auto']", "paths = '!auto'", "paths = ['auto', 'auto']"] {
        assert!(refused(combined).2.starts_with("write paths = \"auto\""), "{combined}");
    }
    assert_eq!(refused("block = true, goal = 'fast'").2, "leave one of them out");
}

#[test]
fn an_auto_rule_has_no_warnings() {
    let known = phone_environment().paths;
    assert_eq!(Policy::parse(RULES).unwrap().lint(&known), []);
}
