use proptest::prelude::*;

use super::*;

const PINGS: Size = Size::from_bytes(2_000);
const BURST: Size = Size::from_bytes(60_000);

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn facts(name: &str, kind: NetworkKind) -> NetworkFacts {
    NetworkFacts {
        name: name.to_owned(),
        kind,
        unusable: None,
        energy: TransferEnergy::constant(1.0, 0.0),
        price: 0.0,
        plan: None,
        spent: Size::ZERO,
        monthly: None,
    }
}

fn both() -> Vec<NetworkFacts> {
    vec![facts("wifi", NetworkKind::Wifi), facts("lte", NetworkKind::Cellular)]
}

/// A steering whose networks answer probes at once.
struct Host {
    steering: Steering,
    /// Mbit/s of each network; 0: it answers nothing.
    rates: [f64; 2],
    choices: Vec<(u64, String)>,
    probes: [[u32; 2]; 2],
}

fn settings(burst_cost: Option<Size>) -> Settings {
    Settings {
        model: None,
        goal: Goal::FAST,
        limits: ProbeLimits::default(),
        ping_cost: PINGS,
        burst_cost,
        allows_both: true,
        chooses_new_flows: true,
    }
}

impl Host {
    fn new(burst_cost: Option<Size>) -> Self {
        Self::with(settings(burst_cost))
    }

    fn with(settings: Settings) -> Self {
        let mut steering = Steering::new(at(0), settings);
        steering.set_networks(at(0), both());
        steering.set_sizes(Sizes::known(Size::from_bytes(1_000_000)));
        Self { steering, rates: [20.0, 5.0], choices: Vec::new(), probes: [[0; 2]; 2] }
    }

    fn poll(&mut self, millis: u64) {
        let now = at(millis);
        self.steering.on_interval();
        while let Some(action) = self.steering.poll(now) {
            match action {
                Action::Choose { lane, networks } => {
                    self.choices.push((millis, format!("{lane}: {}", networks.join("+"))));
                }
                Action::Probe { network, stage } => {
                    let index = usize::from(network == "lte");
                    self.probes[index][stage as usize] += 1;
                    let rate = self.rates[index];
                    let values = match stage {
                        Stage::Pings if rate > 0.0 => vec![(Indicator::PingMean, 0.05)],
                        Stage::Pings => vec![(Indicator::PingMean, f64::NAN)],
                        Stage::Burst => vec![(Indicator::UdpRate, rate), (Indicator::UdpLoss, 0.0)],
                    };
                    let result = StageResult { values, missing: None };
                    self.steering.on_stage(now, &network, stage, result);
                }
            }
        }
    }

    fn run(&mut self, millis: std::ops::Range<u64>) {
        for now in millis.step_by(500) {
            self.steering.on_request(at(now));
            self.poll(now);
        }
    }

    fn last(&self) -> &str {
        &self.choices.last().unwrap().1
    }
}

#[test]
fn the_faster_network_carries_new_flows() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    assert_eq!(host.last(), "new flows: wifi");
    assert_eq!(host.probes, [[1, 1], [1, 1]]);
    let decision = host.steering.lanes()[0].decision.clone().unwrap();
    assert_eq!(decision.rated.len(), 2);
}

#[test]
fn for_bonds_alone_nothing_is_chosen_for_new_flows() {
    let mut host = Host::with(Settings { chooses_new_flows: false, ..settings(Some(BURST)) });
    host.run(0..3_000);
    assert!(host.choices.is_empty(), "{:?}", host.choices);
    host.steering.set_goals(at(3_000), &[("fast".to_owned(), Goal::FAST)]);
    host.run(3_000..6_000);
    assert_eq!(host.last(), "bond (fast): wifi+lte");
    assert!(host.choices.iter().all(|(_, choice)| choice.starts_with("bond")));
}

#[test]
fn a_silent_network_is_left_and_taken_again_when_it_answers() {
    let mut host = Host::new(None);
    host.rates[1] = 5.0;
    host.run(0..6_000);
    let first = host.last().to_owned();
    let used = usize::from(first.ends_with("lte"));
    host.rates[used] = 0.0;
    host.run(6_000..13_000);
    assert_ne!(host.last(), first);
    assert_eq!(
        host.steering.probing(at(13_000), ["wifi", "lte"][used]),
        Some(ProbeDecision::Silent)
    );
    host.rates = [0.0, 0.0];
    // If nothing answers, the choice stays: there is no evidence for another one.
    let before = host.choices.len();
    host.run(13_000..30_000);
    assert!(host.choices.len() <= before + 1, "{:?}", host.choices);
    host.rates[used] = 50.0;
    host.run(30_000..40_000);
    assert_eq!(host.last(), first);
}

#[test]
fn a_network_that_never_answered_pings_is_not_silent() {
    let mut host = Host::new(None);
    host.rates = [0.0, 0.0];
    host.run(0..10_000);
    assert_eq!(host.choices.len(), 1);
    assert!(!host.steering.states.iter().any(|state| state.is_silent));
}

#[test]
fn counters_show_a_network_that_stands_still() {
    let mut host = Host::new(Some(BURST));
    host.run(0..1_000);
    for half in 0..8 {
        // Wi-Fi sends and gets nothing.
        host.steering.on_counters(at(1_000 + half * 500), "wifi", 100, half * 3);
        host.poll(1_000 + half * 500);
    }
    assert_eq!(host.last(), "new flows: lte");
    let (when, _) = host.choices.last().unwrap();
    assert_eq!(*when, 2_000, "two seconds after the start");
    // Bytes arrive again in two polls.
    for half in 0..2 {
        host.steering.on_counters(at(9_000 + half * 500), "wifi", 90_000 + half * 90_000, 40);
    }
    host.run(10_000..13_000);
    assert_eq!(host.last(), "new flows: wifi");
}

#[test]
fn pings_go_over_a_network_that_sends_and_receives_only_noise() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    assert_eq!(host.last(), "new flows: wifi");
    // Nothing was requested for long.
    let (start, mut sent, mut received) = (60_000, 0, 0);
    let before = host.probes[0][0];
    for half in 0..10 {
        host.steering.on_counters(at(start + half * 500), "wifi", received, 0);
        host.poll(start + half * 500);
        received += 70;
    }
    assert_eq!(host.probes[0][0], before, "noise alone");
    host.rates[0] = 0.0;
    for half in 10..20 {
        (sent, received) = (sent + 1, received + 70);
        host.steering.on_counters(at(start + half * 500), "wifi", received, sent);
        host.poll(start + half * 500);
    }
    assert_eq!(host.last(), "new flows: lte");
}

#[test]
fn an_upload_that_is_not_answered_does_not_revive_a_network() {
    let mut host = Host::new(None);
    host.run(0..3_000);
    host.steering.on_stall(at(3_000), "wifi");
    host.steering.on_reading(at(3_100), "wifi", Indicator::OwnRate, 5.0);
    assert!(host.steering.states[0].is_silent);
    host.steering.on_reading(at(3_200), "wifi", Indicator::OwnRoundTrip, 0.05);
    assert!(!host.steering.states[0].is_silent);
}

#[test]
fn a_network_that_fell_silent_is_pinged_more_often_for_a_while() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    host.rates[0] = 0.0;
    let mut pings = |range| {
        let before = host.probes[0][0];
        host.run(range);
        host.probes[0][0] - before
    };
    pings(3_000..10_000);
    assert_eq!((pings(10_000..20_000), pings(60_000..80_000)), (5, 4));
}

#[test]
fn the_network_of_the_host_carries_new_flows_until_another_one_is_surely_better() {
    let first = |rates: [f64; 2]| {
        let mut host = Host::new(Some(BURST));
        host.steering.set_networks(at(0), both().into_iter().rev().collect());
        host.rates = rates;
        host.run(0..3_000);
        host.last().to_owned()
    };
    assert_eq!(first([12.0, 10.0]), "new flows: lte", "the metric of the host prefers it");
    assert_eq!(first([40.0, 10.0]), "new flows: wifi");
}

/// Half seconds within 2 minutes in which new flows use Wi-Fi, which passes nothing on.
fn halves_on_dead_wifi(host: &mut Host) -> u64 {
    let (mut sent, mut halves) = (0, 0);
    for half in 0..240 {
        let now = 1_000 + half * 500;
        if host.last() == "new flows: wifi" {
            (sent, halves) = (sent + 2, halves + 1);
        }
        host.steering.on_counters(at(now), "wifi", 100, sent);
        host.poll(now);
    }
    halves
}

#[test]
fn a_gateway_that_answers_pings_alone_is_believed_less_and_less() {
    let mut host = Host::new(None);
    let prefer = Override { network: "wifi".into(), until: at(900_000), app: None };
    host.steering.set_overrides(vec![prefer]);
    host.run(0..1_000);
    assert_eq!(host.last(), "new flows: wifi");
    let halves = halves_on_dead_wifi(&mut host);
    assert!((15..50).contains(&halves), "{halves}: {:?}", host.choices);
    // A transfer is better evidence than a ping.
    host.steering.on_counters(at(130_000), "wifi", 100_000, 900);
    host.run(130_000..134_000);
    assert_eq!(host.last(), "new flows: wifi");
}

#[test]
fn a_network_that_cannot_answer_pings_is_tried_again() {
    let mut host = Host::new(None);
    host.rates = [0.0, 5.0];
    let prefer = Override { network: "wifi".into(), until: at(900_000), app: None };
    host.steering.set_overrides(vec![prefer]);
    host.run(0..1_000);
    // Packets without answers, such as those of a log.
    for half in 0..8 {
        host.steering.on_counters(at(1_000 + half * 500), "wifi", 100, half);
        host.poll(1_000 + half * 500);
    }
    assert_eq!(host.last(), "new flows: lte");
    for half in 0..70 {
        host.steering.on_counters(at(5_000 + half * 500), "wifi", 100, 8);
        host.poll(5_000 + half * 500);
    }
    assert_eq!(host.last(), "new flows: wifi");
}

#[test]
fn networks_beyond_the_limit_take_no_places() {
    let mut host = Host::new(None);
    let all = |count: usize| {
        (0..count).map(|one| facts(&format!("n{one}"), NetworkKind::Wifi)).collect::<Vec<_>>()
    };
    host.steering.set_networks(at(0), all(16));
    let mut later = all(20);
    later.rotate_right(4);
    for millis in [1_000, 2_000] {
        host.steering.set_networks(at(millis), later.clone());
        let usable = host.steering.states.iter().filter(|state| state.listed.is_none()).count();
        assert_eq!(usable, 16);
        let listed = |name: &str| {
            let place = host.steering.index(name);
            place.is_some_and(|place| host.steering.states[place].listed.is_none())
        };
        assert!(later[..16].iter().all(|one| listed(&one.name)));
    }
}

#[test]
fn a_network_that_falls_silent_under_traffic_is_pinged_at_once() {
    let mut host = Host::new(Some(BURST));
    host.run(0..6_000);
    host.steering.on_reading(at(9_900), "wifi", Indicator::OwnRate, 20.0);
    let before = host.probes[0][0];
    host.steering.on_stall(at(10_000), "wifi");
    host.poll(10_000);
    assert_eq!(host.probes[0][0], before + 1);
}

#[test]
fn own_traffic_hides_neither_the_round_trip_nor_the_rate_of_a_network() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    let value = |host: &Host, one| {
        host.steering.decider.networks[0].monitor.indicators().value(one).unwrap()
    };
    host.steering.on_reading(at(3_000), "wifi", Indicator::PingMin, 0.03);
    host.steering.on_reading(at(3_500), "wifi", Indicator::OwnRoundTrip, 0.2);
    assert_eq!(value(&host, Indicator::OwnRoundTrip), 0.03, "without the queue");
    host.steering.on_reading(at(3_600), "wifi", Indicator::OwnRoundTrip, 0.02);
    assert_eq!(value(&host, Indicator::OwnRoundTrip), 0.02);
    // Pings that ended when traffic began want a burst, which would find what the traffic leaves.
    host.steering.on_reading(at(4_000), "wifi", Indicator::OwnRate, 20.0);
    host.steering.states[0].wants_burst = true;
    let before = host.probes[0][1];
    host.poll(4_000);
    assert_eq!((host.probes[0][1], host.steering.states[0].wants_burst), (before, false));
}

#[test]
fn a_network_that_is_gone_is_left_at_once_and_without_any_the_host_decides() {
    let mut host = Host::new(Some(BURST));
    host.run(0..1_000);
    host.steering.set_networks(at(1_000), vec![facts("lte", NetworkKind::Cellular)]);
    host.poll(1_000);
    assert_eq!(host.last(), "new flows: lte");
    host.steering.set_networks(at(1_500), Vec::new());
    host.poll(1_500);
    assert_eq!(host.last(), "new flows: ");
    host.steering.set_networks(at(2_000), both());
    host.poll(2_000);
    assert_ne!(host.last(), "new flows: ");
}

#[test]
fn a_preference_applies_at_once_and_ends() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    let prefer = Override { network: "lte".into(), until: at(60_000), app: None };
    host.steering.set_overrides(vec![prefer]);
    host.poll(3_000);
    assert_eq!(host.last(), "new flows: lte");
    host.run(57_000..63_000);
    assert_eq!(host.last(), "new flows: wifi");
}

#[test]
fn streams_of_a_bond_follow_their_goal() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    host.steering.set_goals(at(3_000), &[("fast".to_owned(), Goal::FAST)]);
    host.poll(3_000);
    assert_eq!(host.last(), "bond (fast): wifi+lte");
    // The goals are the same: no new choice.
    host.steering.set_goals(at(3_500), &[("fast".to_owned(), Goal::FAST)]);
    let before = host.choices.len();
    host.poll(3_500);
    assert_eq!(host.choices.len(), before);
    host.steering.set_goals(at(4_000), &[]);
    assert_eq!(host.steering.lanes().len(), 1);
}

#[test]
fn streams_never_use_two_networks_where_that_is_forbidden() {
    let mut host = Host::new(Some(BURST));
    host.steering.settings.allows_both = false;
    host.run(0..3_000);
    host.steering.set_goals(at(3_000), &[("fast".to_owned(), Goal::FAST)]);
    host.poll(3_000);
    assert_eq!(host.last(), "bond (fast): wifi");
}

/// A download over the bond of a host that uses one network at a time.
struct Download {
    host: Host,
    received: u64,
}

impl Download {
    fn new() -> Self {
        let mut host = Host::new(Some(BURST));
        host.steering.settings.allows_both = false;
        host.run(0..3_000);
        host.steering.set_goals(at(3_000), &[("fast".to_owned(), Goal::FAST)]);
        host.poll(3_000);
        assert_eq!(host.last(), "bond (fast): wifi");
        Self { host, received: 0 }
    }

    /// Receives over Wi-Fi, at a rate that the counters show.
    fn run(&mut self, millis: std::ops::Range<u64>, mbps: f64) {
        for now in millis.step_by(500) {
            self.received += (mbps * 1e6 / 16.0) as u64;
            let steering = &mut self.host.steering;
            if mbps > 1.0 {
                steering.on_reading(at(now), "wifi", Indicator::OwnRate, mbps);
            }
            steering.on_counters(at(now), "wifi", self.received, 0);
            steering.on_bytes(at(now), "fast", Size::from_bytes(self.received));
            self.host.poll(now);
        }
    }
}

#[test]
fn a_download_that_slows_down_is_checked_by_a_burst_and_leaves_a_slow_network() {
    let mut download = Download::new();
    download.run(3_000..10_000, 20.0);
    let before = download.host.probes[0][1];
    // The application has less to carry.
    download.run(10_000..12_000, 0.5);
    assert_eq!(download.host.probes[0][1], before + 1, "once");
    assert_eq!(download.host.last(), "bond (fast): wifi");
    download.run(12_000..20_000, 20.0);
    download.host.rates[0] = 0.5;
    download.run(20_000..22_000, 0.5);
    assert_eq!(download.host.last(), "bond (fast): lte");
}

#[test]
fn a_download_that_slows_down_takes_no_burst_beyond_the_month() {
    let mut download = Download::new();
    let spent = Size::from_bytes(1_000_000);
    let wifi = NetworkFacts { spent, monthly: Some(spent), ..facts("wifi", NetworkKind::Wifi) };
    let lte = facts("lte", NetworkKind::Cellular);
    download.host.steering.set_networks(at(3_000), vec![wifi, lte]);
    download.run(3_000..10_000, 20.0);
    let before = download.host.probes[0];
    download.run(10_000..14_000, 0.5);
    assert_eq!(download.host.probes[0], before);
}

#[test]
fn streams_pay_for_bursts_over_the_other_network() {
    let bursts = |mbps: f64| {
        let mut download = Download::new();
        let before = download.host.probes[1][1];
        download.run(3_000..63_000, mbps);
        download.host.probes[1][1] - before
    };
    assert_eq!(bursts(20.0), 12, "each 5 s");
    // 15 MB in a minute pay for five, and one is there at the beginning.
    assert!((3..=6).contains(&bursts(2.0)));
}

#[test]
fn probes_end_with_the_bytes_of_the_month_and_without_a_request() {
    let mut host = Host::new(Some(BURST));
    let limit = |spent| NetworkFacts {
        spent: Size::from_bytes(spent),
        monthly: Some(Size::from_bytes(100_000)),
        ..facts("lte", NetworkKind::Cellular)
    };
    host.steering.set_networks(at(0), vec![facts("wifi", NetworkKind::Wifi), limit(90_000)]);
    host.run(0..1_000);
    assert_eq!(host.probes[1], [1, 0], "pings fit in what is left, a burst does not");
    assert_eq!(host.steering.probing(at(1_000), "lte"), Some(ProbeDecision::Spent));
    host.steering.set_networks(at(1_000), vec![facts("wifi", NetworkKind::Wifi), limit(99_000)]);
    host.run(1_000..60_000);
    assert_eq!(host.probes[1], [1, 0]);
    let before = host.probes[0];
    for half in 0..200 {
        host.poll(80_000 + half * 500);
    }
    assert_eq!(host.probes[0], before, "nothing waits");
    assert_eq!(host.steering.probing(at(180_000), "wifi"), Some(ProbeDecision::Background));
}

#[test]
fn a_probe_that_could_not_be_sent_changes_nothing() {
    let mut host = Host::new(Some(BURST));
    host.steering.on_request(at(0));
    let mut probes = Vec::new();
    while let Some(action) = host.steering.poll(at(0)) {
        if let Action::Probe { network, stage } = action {
            probes.push((network, stage));
        }
    }
    assert_eq!(probes.len(), 2);
    for (network, stage) in probes {
        let missing = Some("the interface is busy".to_owned());
        host.steering.on_stage(
            at(100),
            &network,
            stage,
            StageResult { missing, ..Default::default() },
        );
    }
    assert_eq!(host.steering.missing("wifi"), Some("the interface is busy"));
    assert_eq!(host.steering.poll(at(4_000)), None, "not before the interval has passed");
    host.run(5_000..6_000);
    assert_eq!(host.probes, [[1, 1], [1, 1]]);
}

#[test]
fn the_interval_is_short_while_something_is_transferred() {
    let mut host = Host::new(None);
    assert_eq!(host.steering.interval(at(0)), IDLE_INTERVAL);
    host.steering.on_counters(at(0), "wifi", 0, 0);
    host.steering.on_counters(at(500), "wifi", 100_000, 9);
    assert_eq!(host.steering.interval(at(600)), BUSY_INTERVAL);
    assert_eq!(host.steering.interval(at(20_000)), IDLE_INTERVAL);
}

fn input() -> impl Strategy<Value = (u64, u8, usize, f64)> {
    (0..3_000_u64, 0..9_u8, 0..20_usize, prop_oneof![Just(f64::NAN), Just(0.0), 0.001..1e4_f64])
}

proptest! {
    #[test]
    fn only_networks_that_can_be_used_are_chosen(inputs in prop::collection::vec(input(), 1..120)) {
        let mut host = Host::new(Some(BURST));
        let (mut now, mut listed) = (0, vec!["wifi".to_owned(), "lte".to_owned()]);
        for (step, what, which, value) in inputs {
            now += step;
            let name = if which < 2 { ["wifi", "lte"][which].to_owned() } else { format!("n{which}") };
            let steering = &mut host.steering;
            match what {
                0 => steering.on_request(at(now)),
                1 => {
                    listed = (0..which).map(|one| format!("n{one}")).collect();
                    listed.push(name);
                    let kind = |one: &String| match one.len() {
                        2 => NetworkKind::Cellular,
                        _ => NetworkKind::Wifi,
                    };
                    let all = listed.iter().map(|one| facts(one, kind(one))).collect();
                    steering.set_networks(at(now), all);
                }
                2 => steering.on_counters(at(now), &name, value as u64, value as u64),
                3 => steering.set_goals(at(now), &[(name, Goal::BALANCED)]),
                4 => steering.set_overrides(vec![
                    Override { network: name, until: at(now + 500), app: None },
                ]),
                other => {
                    let indicator = Indicator::ALL[usize::from(other) * 3 % Indicator::ALL.len()];
                    steering.on_reading(at(now), &name, indicator, value);
                }
            }
            let before = host.choices.len();
            host.rates = [value, 5.0];
            host.poll(now);
            for (_, choice) in &host.choices[before..] {
                let names = choice.rsplit(": ").next().unwrap().split('+');
                for name in names.filter(|name| !name.is_empty()) {
                    prop_assert!(listed.iter().take(MAX_NETWORKS).any(|one| one == name), "{choice}");
                }
            }
            for lane in host.steering.lanes() {
                if let Some(decision) = &lane.decision {
                    let networks = decision.rated.iter().flat_map(|one| one.choice.networks());
                    prop_assert!(networks.max() < Some(host.steering.states.len()));
                }
            }
        }
    }
}

#[test]
fn a_transfer_that_goes_on_stays_on_a_network_that_is_nearly_as_good() {
    for (lte, expected) in [(19.0, "lte"), (5.0, "wifi")] {
        let mut host = Host::new(Some(BURST));
        host.rates = [20.0, lte];
        host.run(0..3_000);
        let sizes = Sizes::known(Size::from_bytes(10_000_000));
        let choose = |followed: &[&str]| -> Vec<String> {
            let followed: Vec<String> = followed.iter().map(|&name| name.to_owned()).collect();
            let kept = host.steering.kept(&followed);
            let request =
                Request { sizes: &sizes, app: None, kept, allows_both: false, goes_on: false };
            let decision = host.steering.decide(at(3_000), None, &request).unwrap();
            let networks = decision.best().choice.networks();
            networks.map(|index| host.steering.decider().networks[index].name.clone()).collect()
        };
        assert_eq!(choose(&[]), ["wifi"]);
        assert_eq!(choose(&["lte"]), [expected], "{lte}");
        assert_eq!(choose(&["vpn"]), ["wifi"]);
    }
}

/// The seconds between changes of streams for which the other network always looks better, and which
/// get `bytes(changes)` in each half second.
fn seconds_between_changes(halves: u64, bytes: impl Fn(usize) -> u64) -> Vec<u64> {
    let mut host = Host::new(None);
    host.steering.settings.allows_both = false;
    host.steering.set_goals(at(0), &[("fast".to_owned(), Goal::FAST)]);
    let mut total = 0;
    for half in 0..halves {
        let now = half * 500;
        let of_streams = |lane: &&LaneState| lane.lane != Lane::NewFlows;
        let used = host.steering.lanes().iter().find(of_streams).unwrap().networks.clone();
        for name in ["wifi", "lte"] {
            let rate = if used.iter().any(|one| one == name) { 5.0 } else { 20.0 };
            host.steering.on_reading(at(now), name, Indicator::UdpRate, rate);
        }
        let is_of_streams = |(_, choice): &&(u64, String)| choice.starts_with("bond");
        total += bytes(host.choices.iter().filter(is_of_streams).count().saturating_sub(1));
        host.steering.on_bytes(at(now), "fast", Size::from_bytes(total));
        host.poll(now);
    }
    let of_streams = host.choices.iter().filter(|(_, choice)| choice.starts_with("bond"));
    let times: Vec<u64> = of_streams.map(|(millis, _)| millis / 500).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]) / 2).collect()
}

#[test]
fn streams_stay_longer_on_a_network_after_changes_that_do_not_pay() {
    // Changes that bring nothing, then two that pay.
    let bytes = |changes: usize| 100_000 * [1, 1, 1, 1, 1, 1, 2, 3, 4, 5][changes.min(9)];
    let found = seconds_between_changes(300, bytes);
    assert!(found.starts_with(&[2, 4, 8, 16, 32, 60, 2, 2, 2]), "{found:?}");
    // Without bytes, nothing is judged.
    let idle = seconds_between_changes(20, |_| 0);
    assert!(idle.iter().all(|seconds| *seconds == 2) && idle.len() > 3, "{idle:?}");
}

#[test]
fn a_small_transfer_that_goes_on_is_not_worth_a_handshake() {
    let mut host = Host::new(Some(BURST));
    host.run(0..3_000);
    // Wi-Fi saves two fifths of 0.3 s, and a change takes 0.2 s.
    host.steering.on_reading(at(3_000), "wifi", Indicator::PingMean, 0.06);
    host.steering.on_reading(at(3_000), "lte", Indicator::PingMean, 0.1);
    for (bytes, expected) in [(20_000, "lte"), (10_000_000, "wifi")] {
        let sizes = Sizes::known(Size::from_bytes(bytes));
        let kept = host.steering.kept(&["lte".to_owned()]);
        let request =
            Request { sizes: &sizes, app: None, kept, allows_both: false, goes_on: false };
        let decision = host.steering.decide(at(3_000), None, &request).unwrap();
        let best = decision.best().choice.networks().next().unwrap();
        assert_eq!(host.steering.decider().networks[best].name, expected, "{bytes}");
    }
}

#[test]
fn two_networks_stand_still_if_both_do() {
    let mut host = Host::new(Some(BURST));
    host.run(0..1_000);
    let stands_still = |host: &Host| {
        host.steering.kept(&["wifi".to_owned(), "lte".to_owned()]).unwrap().stands_still
    };
    assert!(!stands_still(&host));
    host.steering.on_stall(at(1_000), "wifi");
    assert!(!stands_still(&host));
    host.steering.on_stall(at(1_000), "lte");
    assert!(stands_still(&host));
}

#[test]
fn a_listed_reason_comes_before_silence() {
    let mut host = Host::new(Some(BURST));
    host.run(0..1_000);
    host.steering.on_stall(at(1_000), "wifi");
    let mut networks = both();
    for (unusable, shown) in [(None, Unusable::Silent), (Some(Unusable::Portal), Unusable::Portal)]
    {
        networks[0].unusable = unusable;
        host.steering.set_networks(at(1_000), networks.clone());
        host.steering.update_usable();
        assert_eq!(host.steering.decider().networks[0].unusable, Some(shown));
    }
}

#[test]
fn a_network_that_returns_need_not_answer_pings_as_before() {
    let mut host = Host::new(None);
    host.run(0..6_000);
    for millis in [5_000, 5_500] {
        host.steering.states[0].is_silent = false;
        host.steering.on_stall(at(millis), "wifi");
    }
    assert_eq!(host.steering.states[0].held_until, at(15_500));
    let mut networks = both();
    networks[0].unusable = Some(Unusable::Down);
    host.steering.set_networks(at(6_000), networks);
    host.rates[0] = 0.0;
    host.steering.set_networks(at(6_500), both());
    let state = &host.steering.states[0];
    assert_eq!((state.held_until, state.hold, state.is_silent), (at(6_500), Span::ZERO, false));
    let before = host.probes[0][0];
    host.run(6_500..18_000);
    assert!(host.probes[0][0] > before + 1 && !host.steering.states[0].is_silent);
}

#[test]
fn a_few_bytes_do_not_end_a_hold_and_a_hold_has_a_limit() {
    let mut host = Host::new(None);
    host.run(0..1_000);
    let mut received = 0;
    let mut lively_at = |host: &mut Host, millis: u64| {
        for half in 0..2 {
            received += 100;
            host.steering.on_counters(at(millis + half * 500), "wifi", received, 0);
        }
        !host.steering.states[0].is_silent
    };
    lively_at(&mut host, 1_000);
    host.steering.on_stall(at(2_000), "wifi");
    assert!(lively_at(&mut host, 2_500), "the first time");
    host.steering.on_stall(at(4_000), "wifi");
    assert!(!lively_at(&mut host, 12_500));
    assert!(lively_at(&mut host, 14_000));
    for secs in [20, 40, 60, 60] {
        host.steering.states[0].is_silent = false;
        host.steering.on_stall(at(20_000), "wifi");
        assert_eq!(host.steering.states[0].held_until, at(20_000 + secs * 1_000));
    }
}

#[test]
fn without_a_network_from_the_start_the_host_decides() {
    let mut host = Host::new(None);
    host.steering = Steering::new(at(0), host.steering.settings.clone());
    host.run(0..1_000);
    assert_eq!(host.choices, [(0, "new flows: ".to_owned())]);
}

#[test]
fn a_transfer_ends_a_hold_at_once_and_the_next_one_is_short() {
    let mut host = Host::new(None);
    host.run(0..1_000);
    host.steering.on_counters(at(1_000), "wifi", 100, 0);
    for millis in [2_000, 3_000] {
        host.steering.states[0].is_silent = false;
        host.steering.on_stall(at(millis), "wifi");
    }
    assert_eq!(host.steering.states[0].held_until, at(13_000));
    host.steering.on_counters(at(3_500), "wifi", 100 + BUSY_BYTES - 1, 0);
    assert!(host.steering.states[0].is_silent);
    host.steering.on_counters(at(4_000), "wifi", 100 + BUSY_BYTES - 1, 0);
    host.steering.on_counters(at(4_500), "wifi", 100 + 2 * BUSY_BYTES, 0);
    assert!(!host.steering.states[0].is_silent);
    host.steering.on_stall(at(5_000), "wifi");
    assert_eq!(host.steering.states[0].held_until, at(5_000));
}

#[test]
fn pings_that_are_lost_beside_own_traffic_show_no_silence() {
    let mut host = Host::new(None);
    host.run(0..6_000);
    host.steering.on_counters(at(5_500), "wifi", 100, 0);
    host.steering.on_counters(at(6_000), "wifi", 100_000, 9);
    for (millis, expected) in [(7_000, false), (20_000, true)] {
        let values = vec![(Indicator::PingMean, f64::NAN)];
        let lost = StageResult { values, missing: None };
        host.steering.on_stage(at(millis), "wifi", Stage::Pings, lost);
        assert_eq!(host.steering.states[0].is_silent, expected, "{millis}");
    }
}
