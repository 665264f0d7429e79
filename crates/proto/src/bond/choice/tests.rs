use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn choose(choices: &mut Choices, now: u64, paths: &[&str], lease: Option<f64>) {
    choices.choose(at(now), "fast", names(paths), lease).unwrap();
}

/// All changes until now, as the goal and the paths.
fn changes(choices: &mut Choices, now: u64) -> Vec<(Goal, Vec<String>)> {
    std::iter::from_fn(|| choices.poll(at(now))).map(|change| (change.goal, change.paths)).collect()
}

fn fast(paths: &[&str]) -> (Goal, Vec<String>) {
    (Goal::Fast, names(paths))
}

#[test]
fn a_choice_without_a_lease_lasts_until_the_next_one() {
    let mut choices = Choices::default();
    choose(&mut choices, 0, &["wifi"], None);
    assert_eq!(changes(&mut choices, 0), [fast(&["wifi"])]);
    assert_eq!(choices.next_wakeup(), None);
    assert_eq!(changes(&mut choices, 1_000_000), []);
    choose(&mut choices, 1_000_000, &["lte"], None);
    choose(&mut choices, 1_000_000, &[], None);
    choose(&mut choices, 1_000_000, &[], Some(5.0));
    assert_eq!(changes(&mut choices, 1_000_000), [fast(&["lte"]), fast(&[])]);
    assert_eq!(choices.next_wakeup(), None);
    assert!(choices.paths().is_empty());
}

#[test]
fn a_choice_ends_with_its_lease() {
    let mut choices = Choices::default();
    choose(&mut choices, 10, &["wifi", "lte"], Some(5.0));
    assert_eq!(changes(&mut choices, 14), [fast(&["wifi", "lte"])]);
    assert_eq!(choices.paths(), [("fast".to_owned(), names(&["wifi", "lte"]))].into());
    assert_eq!(choices.next_wakeup(), Some(at(15)));
    assert_eq!(changes(&mut choices, 15), [fast(&[])]);
    assert!(choices.paths().is_empty());
    assert_eq!((choices.next_wakeup(), changes(&mut choices, 100)), (None, Vec::new()));
}

#[test]
fn the_same_choice_again_renews_the_lease_silently() {
    let mut choices = Choices::default();
    choose(&mut choices, 0, &["wifi"], Some(5.0));
    choose(&mut choices, 4, &["wifi"], Some(5.0));
    assert_eq!(changes(&mut choices, 8), [fast(&["wifi"])]);
    choose(&mut choices, 8, &["wifi"], Some(0.5));
    assert_eq!(changes(&mut choices, 8), []);
    assert_eq!(changes(&mut choices, 9), [fast(&[])]);
    // The end of a lease does not depend on when it is noticed.
    choose(&mut choices, 20, &["wifi"], Some(5.0));
    choose(&mut choices, 25, &["wifi"], Some(5.0));
    assert_eq!(changes(&mut choices, 25), [fast(&["wifi"]), fast(&[]), fast(&["wifi"])]);
}

#[test]
fn every_request_replaces_the_lease_of_its_goal_only() {
    let mut choices = Choices::default();
    choose(&mut choices, 0, &["wifi"], Some(5.0));
    choose(&mut choices, 1, &["lte"], Some(60.0));
    choices.choose(at(2), "thrifty", names(&["wifi"]), Some(3.0)).unwrap();
    let thrifty = |paths| (Goal::Thrifty, names(paths));
    let expected = [fast(&["wifi"]), fast(&["lte"]), thrifty(&["wifi"])];
    assert_eq!(changes(&mut choices, 4), expected);
    assert_eq!(changes(&mut choices, 10), [thrifty(&[])]);
    choose(&mut choices, 11, &["lte"], None);
    assert_eq!((choices.next_wakeup(), changes(&mut choices, 1_000)), (None, Vec::new()));
    assert_eq!(choices.paths(), [("fast".to_owned(), names(&["lte"]))].into());
}

#[test]
fn a_choice_has_limits() {
    let mut choices = Choices::default();
    choose(&mut choices, 0, &["wifi"], Some(5.0));
    let mut request = |goal: &str, paths: Vec<String>, lease: Option<f64>| {
        choices.choose(at(1), goal, paths, lease)
    };
    let many = |count: usize, length: usize| vec!["x".repeat(length); count];
    assert_eq!(request("thrifty", many(MAX_PATHS, MAX_NAME), Some(MAX_LEASE)), Ok(()));
    let unknown = ChoiceError::UnknownGoal("fats".to_owned());
    assert!(unknown.hint().is_some());
    assert_eq!(request("fats", Vec::new(), None), Err(unknown));
    let too_many = many(MAX_PATHS + 1, 1);
    assert_eq!(request("fast", too_many, None), Err(ChoiceError::TooManyPaths));
    assert_eq!(request("fast", many(1, 0), None), Err(ChoiceError::InvalidName));
    assert_eq!(request("fast", many(1, MAX_NAME + 1), None), Err(ChoiceError::InvalidName));
    for seconds in [0.0, -0.0, -1.0, MAX_LEASE + 0.1, 1e300, f64::INFINITY, f64::NAN] {
        let error = request("fast", many(1, 1), Some(seconds)).unwrap_err();
        assert!(matches!(error, ChoiceError::InvalidLease { .. }), "{seconds}");
        let hint = error.hint();
        assert_eq!(hint.as_deref(), Some("a lease is longer than 0 s, and at most 86400 s"));
    }
    // A refused request changes neither the choice nor its lease.
    assert_eq!(choices.next_wakeup(), Some(at(5)));
    assert_eq!(changes(&mut choices, 1)[0], fast(&["wifi"]));
    assert_eq!(choices.paths()["fast"], names(&["wifi"]));
}

proptest! {
    /// For all requests, the choices are those of the last request for each goal, while its lease
    /// lasts; and each change is reported once.
    #[test]
    fn no_choice_outlives_its_lease(
        requests in prop::collection::vec(
            (0_u64..6, 0_usize..3, 0_usize..3, prop::option::of(1_u32..6)), 1..60),
    ) {
        let mut choices = Choices::default();
        let mut last: BTreeMap<Goal, (Vec<String>, Option<Time>)> = BTreeMap::new();
        let mut reported: BTreeMap<Goal, Vec<String>> = BTreeMap::new();
        let mut now = 0;
        for (pause, goal, count, lease) in requests {
            for _ in 0..pause {
                now += 1;
                for (goal, paths) in changes(&mut choices, now) {
                    prop_assert_ne!(reported.insert(goal, paths.clone()), Some(paths));
                }
                let lasting = last.iter().filter(|(_, (paths, end))| {
                    !paths.is_empty() && end.is_none_or(|end| at(now) < end)
                });
                let lasting: BTreeMap<String, Vec<String>> = lasting
                    .map(|(goal, (paths, _))| (goal.name().to_owned(), paths.clone()))
                    .collect();
                prop_assert_eq!(&choices.paths(), &lasting);
                reported.retain(|_, paths| !paths.is_empty());
                let reported = reported.iter();
                let reported: BTreeMap<String, Vec<String>> =
                    reported.map(|(goal, paths)| (goal.name().to_owned(), paths.clone())).collect();
                prop_assert_eq!(reported, lasting);
                prop_assert!(choices.next_wakeup().is_none_or(|end| end > at(now)));
            }
            let (goal, paths) = (Goal::ALL[goal], names(&["wifi", "lte"][..count]));
            let end = lease.map(|lease| at(now + u64::from(lease)));
            choices.choose(at(now), goal.name(), paths.clone(), lease.map(f64::from)).unwrap();
            last.insert(goal, (paths, end));
        }
    }
}
