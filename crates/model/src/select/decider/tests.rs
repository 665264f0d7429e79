use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::adaptive::ProbeLimits;
use super::super::indicator::Indicator;
use super::super::model::{DEFAULT, parse};
use super::super::selector::SelectionReason;
use super::*;

static MODEL: LazyLock<Model> = LazyLock::new(|| parse(DEFAULT.trim_end()).unwrap());

const WIFI: Choice = Choice::Only(0);
const LTE: Choice = Choice::Only(1);

fn at(secs: u64) -> Time {
    Time::from_millis(secs * 1_000)
}

/// A network with a round trip in milliseconds and a rate in Mbit/s, measured at second 1.
fn network(name: &str, kind: NetworkKind, millis: f64, mbps: f64) -> Network {
    let mut monitor = Monitor::new(ProbeLimits::default());
    monitor.set(at(1), Indicator::PingMean, millis / 1e3);
    monitor.set(at(1), Indicator::UdpRate, mbps);
    let is_cellular = kind == NetworkKind::Cellular;
    Network {
        name: name.to_owned(),
        kind,
        monitor,
        unusable: None,
        energy: TransferEnergy::constant(if is_cellular { 1.674 } else { 0.428 }, 0.0),
        price: f64::from(u8::from(is_cellular)),
        plan: None,
    }
}

fn decider(wifi: (f64, f64), lte: (f64, f64)) -> Decider {
    Decider {
        goal: Goal::FAST,
        supply: Supply::Unknown,
        model: Some(MODEL.clone()),
        networks: vec![
            network("wlan0", NetworkKind::Wifi, wifi.0, wifi.1),
            network("wwan0", NetworkKind::Cellular, lte.0, lte.1),
        ],
        overrides: Vec::new(),
        switching_cost: 0.0,
    }
}

fn decide(decider: &Decider, bytes: u64) -> Option<Decision> {
    let sizes = Sizes::known(Size::from_bytes(bytes));
    let request =
        Request { sizes: &sizes, app: None, kept: None, allows_both: false, goes_on: false };
    decider.decide(at(2), &request)
}

fn best(decider: &Decider, bytes: u64) -> Choice {
    decide(decider, bytes).unwrap().best().choice
}

#[test]
fn round_trip_decides_for_small_transfers_and_rate_for_large_ones() {
    let one = decider((15.0, 5.0), (80.0, 50.0));
    assert_eq!((best(&one, 3_000), best(&one, 10_000_000)), (WIFI, LTE));
    let decision = decide(&one, 10_000_000).unwrap();
    assert_eq!(decision.selection.runner_up, Some(0));
    assert!(decision.rated.iter().all(|one| !one.is_closed_form && !one.is_assumed));
    assert!(decision.rated[0].unknown.contains(&Feature::of(Role::Wifi, Indicator::Rssi)));
    let prediction = decision.best().prediction;
    assert!(prediction.low < prediction.seconds && prediction.seconds < prediction.high);
}

#[test]
fn without_a_model_the_closed_form_decides_and_says_so() {
    let mut one = decider((15.0, 5.0), (80.0, 50.0));
    one.model = None;
    let decision = decide(&one, 10_000_000).unwrap();
    assert!(decision.best().choice == LTE && decision.rated.iter().all(|one| one.is_closed_form));
    // Nothing is known of a network that was never measured.
    one.networks[0].monitor = Monitor::new(ProbeLimits::default());
    assert!(decide(&one, 3_000).unwrap().rated[0].is_assumed);
}

#[test]
fn a_network_that_cannot_be_used_is_no_choice() {
    let mut one = decider((15.0, 50.0), (80.0, 5.0));
    for reason in [Unusable::Down, Unusable::Portal, Unusable::Spent] {
        one.networks[0].unusable = Some(reason);
        assert_eq!(best(&one, 3_000), LTE);
    }
    one.networks[1].unusable = Some(Unusable::Spent);
    assert_eq!(decide(&one, 3_000), None);
}

#[test]
fn an_override_lasts_until_its_end_and_needs_its_network() {
    let mut one = decider((15.0, 50.0), (80.0, 5.0));
    let lte = |app: Option<&str>, until| Override {
        network: "wwan0".to_owned(),
        until: at(until),
        app: app.map(str::to_owned),
    };
    let best_for = |one: &Decider, app: Option<&str>, now| {
        let sizes = Sizes::known(Size::from_bytes(3_000));
        let request =
            Request { sizes: &sizes, app, kept: None, allows_both: false, goes_on: false };
        one.decide(at(now), &request).unwrap().best().choice
    };
    one.overrides = vec![lte(None, 10)];
    assert_eq!([2, 9, 10].map(|now| best_for(&one, None, now)), [LTE, LTE, WIFI]);
    one.overrides = vec![lte(Some("zoom"), 10)];
    assert_eq!([None, Some("zoom")].map(|app| best_for(&one, app, 2)), [WIFI, LTE]);
    one.networks[1].unusable = Some(Unusable::Down);
    assert_eq!(best_for(&one, Some("zoom"), 2), WIFI);
}

#[test]
fn both_networks_are_a_choice_if_they_can_carry_it() {
    let one = decider((40.0, 10.0), (50.0, 10.0));
    let sizes = Sizes::known(Size::from_bytes(10_000_000));
    let request =
        Request { sizes: &sizes, app: None, kept: None, allows_both: true, goes_on: false };
    let decision = one.decide(at(2), &request).unwrap();
    assert_eq!(decision.rated.len(), 4);
    assert!(matches!(decision.best().choice, Choice::Both(..)), "{decision:?}");
}

#[test]
fn a_metered_network_costs_more_as_its_plan_empties() {
    let mut one = decider((30.0, 1.0), (50.0, 80.0));
    one.goal = Goal { energy: 0.0, money: 0.5, ..Goal::THRIFTY };
    assert_eq!(best(&one, 10_000_000), LTE);
    one.networks[1].plan = Some((0.9, 0.1));
    assert_eq!(best(&one, 10_000_000), WIFI);
}

#[test]
fn own_traffic_that_has_slowed_down_is_left_after_the_dwell() {
    let mut one = decider((15.0, 50.0), (80.0, 20.0));
    let sizes = Sizes::known(Size::from_bytes(10_000_000));
    let kept =
        Some(Kept { choice: WIFI, since: at(1), stands_still: false, dwell: Span::from_secs(2) });
    let request =
        |kept| Request { sizes: &sizes, app: None, kept, allows_both: false, goes_on: true };
    one.networks[0].monitor.set(at(2), Indicator::OwnRate, 0.5);
    let reason =
        |one: &Decider, now: u64| one.decide(at(now), &request(kept)).unwrap().selection.reason;
    assert_eq!(reason(&one, 2), SelectionReason::Dwelling);
    assert_eq!(reason(&one, 4), SelectionReason::Best);
}

proptest! {
    #[test]
    fn no_choice_uses_a_network_past_its_plan(
        rates in prop::collection::vec(0.1_f64..100.0, 2), spent in prop::collection::vec(any::<bool>(), 2),
        bytes in 1_000_u64..100_000_000, allows_both: bool,
    ) {
        let mut one = decider((30.0, rates[0]), (60.0, rates[1]));
        for (network, spent) in one.networks.iter_mut().zip(&spent) {
            network.unusable = spent.then_some(Unusable::Spent);
        }
        let sizes = Sizes::known(Size::from_bytes(bytes));
        let request = Request { sizes: &sizes, app: None, kept: None, allows_both, goes_on: false };
        match one.decide(at(2), &request) {
            Some(decision) => {
                let used: Vec<usize> = decision.best().choice.networks().collect();
                prop_assert!(used.into_iter().all(|index| !spent[index]));
            }
            None => prop_assert!(spent.iter().all(|spent| *spent)),
        }
    }

    #[test]
    fn predicted_time_is_monotone_in_the_size(
        rates in (0.1_f64..100.0, 0.1_f64..100.0), sizes in (1_000_u64..1_000_000_000, 1_000_u64..1_000_000_000),
    ) {
        let one = decider((30.0, rates.0), (60.0, rates.1));
        let seconds = |bytes| {
            let decision = decide(&one, bytes).unwrap();
            decision.rated.iter().map(|one| one.prediction.seconds).collect::<Vec<f64>>()
        };
        let (small, large) = (seconds(sizes.0.min(sizes.1)), seconds(sizes.0.max(sizes.1)));
        for (small, large) in small.iter().zip(&large) {
            prop_assert!(small <= large);
        }
    }
}

#[test]
fn an_unknown_end_is_as_far_as_the_fastest_open_network_carries_while_a_choice_is_kept() {
    let mut one = decider((15.0, 5.0), (80.0, 50.0));
    let bytes = |one: &Decider, secs| one.horizon(at(secs)).as_bytes();
    // 50 Mbit/s for 2 s, and 5 Mbit/s.
    assert_eq!(bytes(&one, 2), 12_500_000);
    one.networks[1].unusable = Some(Unusable::Down);
    assert_eq!(bytes(&one, 2), 1_250_000);
    // Old results are not used: a usual rate stands for them.
    assert_eq!(bytes(&one, 700), 2_500_000);
    one.networks[0].monitor.set(at(3), Indicator::OwnRate, 0.1);
    assert_eq!(bytes(&one, 3), 100_000);
    one.networks[0].unusable = Some(Unusable::Down);
    assert_eq!(bytes(&one, 3), 100_000);
}

#[test]
fn what_goes_on_is_predicted_from_the_rates_of_now() {
    let one = decider((30.0, 10.0), (60.0, 10.0));
    let sizes = Sizes::known(Size::from_bytes(2_500_000));
    let decision = |goes_on| {
        let request = Request { sizes: &sizes, app: None, kept: None, allows_both: false, goes_on };
        one.decide(at(2), &request).unwrap()
    };
    assert!(decision(false).rated.iter().all(|one| !one.is_closed_form));
    for rated in &decision(true).rated {
        // 2 s, and the round trips of the beginning.
        let Prediction { seconds, low, high } = rated.prediction;
        assert!(rated.is_closed_form && (2.0..2.5).contains(&seconds), "{seconds}");
        assert!(low > 1.3 && high < 3.8, "{low} {high}");
    }
}

#[test]
fn the_newest_override_counts_and_one_for_the_application_before_all() {
    let mut one = decider((15.0, 50.0), (80.0, 5.0));
    let to = |network: &str, app: Option<&str>| Override {
        network: network.to_owned(),
        until: at(10),
        app: app.map(str::to_owned),
    };
    let preferred = |one: &Decider, app: Option<&str>| {
        let sizes = Sizes::known(Size::from_bytes(3_000));
        let request =
            Request { sizes: &sizes, app, kept: None, allows_both: false, goes_on: false };
        one.decide(at(2), &request).unwrap().preferred
    };
    one.overrides = vec![to("wwan0", Some("zoom")), to("wwan0", None), to("wlan0", None)];
    assert_eq!(preferred(&one, Some("zoom")).as_deref(), Some("wwan0"));
    assert_eq!(preferred(&one, Some("mail")).as_deref(), Some("wlan0"));
    assert_eq!(preferred(&one, None).as_deref(), Some("wlan0"));
}

#[test]
fn the_battery_and_the_plan_with_the_highest_pace_change_the_goal() {
    let mut one = decider((15.0, 50.0), (80.0, 5.0));
    one.goal = Goal::THRIFTY;
    let goal = |one: &Decider| decide(one, 3_000).unwrap().goal;
    let (fast, slow) = (Some((0.9, 0.3)), Some((0.4, 0.2)));
    for plans in [[fast, slow], [slow, fast], [None, fast]] {
        (one.networks[0].plan, one.networks[1].plan) = (plans[0], plans[1]);
        assert!((goal(&one).money - 3.0).abs() < 1e-9, "{plans:?}");
    }
    one.supply = Supply::Battery(0.5);
    assert_eq!(goal(&one).energy, 1.5);
    one.supply = Supply::Mains;
    assert_eq!(goal(&one).energy, 0.0);
}

#[test]
fn both_networks_together_have_the_power_of_both_and_the_mean_price() {
    let mut one = decider((40.0, 10.0), (50.0, 10.0));
    let rated = |one: &Decider| {
        let sizes = Sizes::known(Size::from_bytes(1_000_000));
        let request =
            Request { sizes: &sizes, app: None, kept: None, allows_both: true, goes_on: false };
        one.decide(at(2), &request).unwrap().rated
    };
    for both in &rated(&one)[2..] {
        assert!(matches!(both.choice, Choice::Both(..)) && !both.is_assumed);
        assert!((both.terms.money - 0.6).abs() < 1e-9, "half of the price of LTE, and m₀");
        let watts = both.terms.energy * 1e6 / both.prediction.seconds;
        assert!((watts - 2.102).abs() < 1e-9, "{watts}");
    }
    one.networks[1].monitor = Monitor::new(ProbeLimits::default());
    let assumed: Vec<bool> = rated(&one).iter().map(|one| one.is_assumed).collect();
    assert_eq!(assumed, [false, true, true, true]);
}

#[test]
fn sizes_that_are_not_certain_are_all_rated() {
    let one = decider((15.0, 5.0), (80.0, 50.0));
    let objective = |bytes| decide(&one, bytes).unwrap().rated[0].terms.objective;
    let weighted = vec![(Size::from_bytes(3_000), 0.75), (Size::from_bytes(10_000_000), 0.25)];
    let sizes = Sizes { weighted, ..Sizes::unknown(false) };
    let request =
        Request { sizes: &sizes, app: None, kept: None, allows_both: false, goes_on: false };
    let found = one.decide(at(2), &request).unwrap().rated[0].terms.objective;
    let expected = 0.75 * objective(3_000) + 0.25 * objective(10_000_000);
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
}

#[test]
fn a_stream_of_a_least_rate_counts_on_the_late_end_of_the_interval() {
    let mut one = decider((10.0, 10.0), (80.0, 50.0));
    one.model = None;
    let reason = |one: &Decider| decide(one, 10_000_000).unwrap().selection.reason;
    let rated = decide(&one, 10_000_000).unwrap().rated;
    assert!(rated.iter().all(|one| one.prediction.low < one.prediction.seconds));
    assert!(rated.iter().all(|one| one.prediction.seconds < one.prediction.high));
    one.networks.remove(1);
    // 10 Mbit/s, but less than 5 within the interval of 80 %.
    for (mbps, expected) in [(6, SelectionReason::NoneFastEnough), (4, SelectionReason::FastEnough)]
    {
        one.goal = Goal { at_least: Some(Rate::from_mbps(mbps)), ..Goal::FAST };
        assert_eq!(reason(&one), expected, "{mbps}");
    }
}

#[test]
fn old_results_are_assumptions_and_each_network_has_its_own_prediction() {
    let one = decider((15.0, 5.0), (80.0, 50.0));
    let assumed = |secs| {
        let sizes = Sizes::known(TYPICAL);
        let request =
            Request { sizes: &sizes, app: None, kept: None, allows_both: false, goes_on: false };
        one.decide(at(secs), &request).unwrap().rated.iter().all(|one| one.is_assumed)
    };
    assert_eq!([601, 602].map(assumed), [false, true]);
    let rated = decide(&one, TYPICAL.as_bytes()).unwrap().rated;
    for (index, rated) in rated.iter().enumerate() {
        assert_eq!(one.predict_alone(at(2), index), rated.prediction);
    }
    assert_ne!(rated[0].prediction, rated[1].prediction);
    let role = |kind| network("one", kind, 1.0, 1.0).role();
    assert_eq!(
        [NetworkKind::Wifi, NetworkKind::Ethernet, NetworkKind::Other, NetworkKind::Cellular]
            .map(role),
        [Role::Wifi, Role::Wifi, Role::Wifi, Role::Lte]
    );
}

#[test]
fn the_model_of_the_first_network_predicts_both() {
    let one = decider((15.0, 5.0), (80.0, 50.0));
    let size = Size::from_bytes(1_000_000);
    let indicators: Vec<Indicators> =
        one.networks.iter().map(|one| one.current(at(2), false)).collect();
    let by_model = |first: usize, role| {
        let of = |index: usize| LinkEstimate::of(&indicators[index]);
        let closed = closed_form::seconds(of(first), Some(of(1 - first)), size);
        let networks = [(Role::Wifi, &indicators[0]), (Role::Lte, &indicators[1])];
        let features = Features::new(size, closed, &networks);
        MODEL.predict(Carriage::Both(role), &features).unwrap().prediction
    };
    let of = |choice| one.predict(choice, size, false, &indicators).0;
    assert_eq!(of(Choice::Both(0, 1)), by_model(0, Role::Wifi));
    assert_eq!(of(Choice::Both(1, 0)), by_model(1, Role::Lte));
    assert_ne!(by_model(0, Role::Wifi), by_model(0, Role::Lte));
}

#[test]
fn the_cost_of_a_change_is_a_share_of_the_expected_seconds() {
    let mut one = decider((10.0, 10.0), (20.0, 50.0));
    one.model = None;
    let sizes = Sizes::known(Size::from_bytes(10_000_000));
    let dwell = Span::from_secs(2);
    let kept = Some(Kept { choice: WIFI, since: Time::ZERO, stands_still: false, dwell });
    let request = Request { sizes: &sizes, app: None, kept, allows_both: false, goes_on: false };
    // LTE saves 6 of 8 seconds.
    for (cost, expected) in [(5.0, LTE), (7.0, WIFI)] {
        one.switching_cost = cost;
        assert_eq!(one.decide(at(5), &request).unwrap().best().choice, expected, "{cost}");
    }
}
