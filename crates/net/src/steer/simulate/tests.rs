use std::collections::BTreeMap;
use std::fmt::Write as _;

use manyways_model::select::model::{self, DEFAULT};

use super::*;

/// Wi-Fi is near and slow, LTE far and fast; at even seconds they change places.
fn table(choices: &[(&str, f64)]) -> Vec<Transfer> {
    let mut text = "place,group,second,choice,size,seconds,wifi.ping-min,wifi.ping-mean,\
                    wifi.udp-rate,lte.ping-min,lte.ping-mean,lte.udp-rate\n"
        .to_owned();
    for second in 0..8 {
        for size in [3_000.0, 3_000_000.0] {
            for (choice, factor) in choices {
                let (near, far) = ("0.01,0.01,4", "0.05,0.05,40");
                let (wifi, lte) = if second % 2 == 0 { (near, far) } else { (far, near) };
                let is_near = (*choice == "wifi") == (second % 2 == 0);
                let (round_trip, rate) = if is_near { (0.01, 4e6) } else { (0.05, 40e6) };
                let seconds = factor * (round_trip * 2.0 + size * 8.0 / rate);
                let _ = writeln!(text, "p,g,{second},{choice},{size},{seconds},{wifi},{lte}");
            }
        }
    }
    transfers::parse(&text).unwrap()
}

fn rule<'a>(name: &str, rule: Rule<'a>) -> NamedRule<'a> {
    NamedRule { name: name.to_owned(), rule }
}

fn goals() -> Vec<NamedGoal> {
    [("fast", Goal::FAST), ("balanced", Goal::BALANCED)]
        .map(|(name, goal)| NamedGoal { name: name.to_owned(), goal })
        .to_vec()
}

#[test]
fn rules_are_compared_by_goal_and_by_size() {
    let default = model::parse(DEFAULT.trim_end()).unwrap();
    let rules = vec![
        rule("wifi", Rule::Baseline(Baseline::Wifi)),
        rule("closed-form", Rule::ClosedForm),
        rule("model", Rule::Model(&default)),
        rule("oracle", Rule::Oracle),
    ];
    let transfers = table(&[("wifi", 1.0), ("lte", 1.0)]);
    let found = Simulation::new("t", goals(), rules).run(&transfers).unwrap();
    assert_eq!((found.transfers, found.cases, found.skipped, found.places), (32, 16, 0, 1));
    assert_eq!(found.choices, ["wifi", "lte"]);
    let fast = &found.goals[0];
    let of = |name: &str| fast.rules.iter().find(|one| one.rule == name).unwrap();
    // A goal has the best rules first.
    assert!(fast.rules.is_sorted_by_key(|one| one.regret));
    let oracle = of("oracle");
    assert_eq!((oracle.recovered, oracle.right, oracle.regret), (Some(1.0), 1.0, 0.0));
    assert_eq!(oracle.choices, BTreeMap::from([("lte", 0.5), ("wifi", 0.5)]));
    assert_eq!(of("closed-form").right, 1.0);
    let wifi = of("wifi");
    assert_eq!((wifi.right, wifi.choices["wifi"], fast.best_fixed), (0.5, 1.0, "wifi"));
    assert!(wifi.recovered.unwrap().abs() < 1e-9 && wifi.sizes.len() == 2);
    // 24 Mbit over 4 or 40 Mbit/s: a half of the cases loses 6.02 / 0.7.
    let large = &wifi.sizes[1];
    assert_eq!((large.up_to, large.cases, large.right), (3_000_000, 8, 0.5));
    assert!((large.regret - (6.02_f64 / 0.7).ln() / 2.0).abs() < 1e-9, "{large:?}");
    assert_eq!(wifi.of_oracle.last(), Some(&(1.0, 1.0)));
    assert!((wifi.of_oracle[0].0 - 0.7 / 6.02).abs() < 1e-9);
    assert!(wifi.of_fixed.iter().all(|(value, _)| (value - 1.0).abs() < 1e-9));
    let errors: Vec<(&str, &str)> =
        found.errors.iter().map(|one| (one.rule.as_str(), one.choice)).collect();
    let expected = [("closed-form", "wifi"), ("closed-form", "lte"), ("model", "wifi")];
    assert_eq!(errors[..3], expected);
    let walk = found.walk.unwrap();
    assert_eq!((walk.rule.as_str(), walk.size, walk.moments.len()), ("model", 3_000_000, 8));
    assert!(walk.moments.is_sorted_by_key(|one| one.second));
}

#[test]
fn both_networks_are_compared_on_request_only() {
    let transfers = table(&[("wifi", 1.0), ("lte", 1.0), ("wifi+lte", 0.5)]);
    let rules = || vec![rule("both", Rule::Baseline(Baseline::Both)), rule("oracle", Rule::Oracle)];
    let mut simulation = Simulation::new("t", goals(), rules());
    let error = simulation.run(&transfers).unwrap_err();
    assert!(error.to_string().contains("needs transfers over wifi+lte"), "{error}");
    simulation.with_both = true;
    let found = simulation.run(&transfers).unwrap();
    assert_eq!(found.choices, ["wifi", "lte", "wifi+lte"]);
    // A far LTE is slower than a half of a near Wi-Fi.
    assert!(found.goals[0].rules.iter().any(|one| one.choices.contains_key("wifi+lte")));
    let one = table(&[("wifi", 1.0), ("lte", 1.0)]);
    assert_eq!(simulation.run(&one).unwrap_err(), SimulateError::NoBoth);
}

#[test]
fn a_table_without_outcomes_of_every_choice_is_refused() {
    let simulation = Simulation::new("t", goals(), vec![rule("oracle", Rule::Oracle)]);
    let error = simulation.run(&table(&[("wifi", 1.0)])).unwrap_err().to_string();
    assert_eq!(error, "no decision in the table has a transfer over each of wifi, lte");
    let mut transfers = table(&[("wifi", 1.0), ("lte", 1.0)]);
    transfers.pop();
    let found = simulation.run(&transfers).unwrap();
    assert_eq!((found.cases, found.skipped), (15, 1));
}

#[test]
fn a_fixed_network_that_is_always_right_leaves_nothing_to_recover() {
    let transfers = table(&[("wifi", 1e-3), ("lte", 1e3)]);
    let simulation = Simulation::new("t", goals(), vec![rule("oracle", Rule::Oracle)]);
    let found = simulation.run(&transfers).unwrap();
    let oracle = &found.goals[0].rules[0];
    assert_eq!((oracle.recovered, oracle.right, found.walk.is_none()), (None, 1.0, true));
}
