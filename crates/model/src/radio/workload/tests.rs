use super::*;

const TWO_HOURS: Span = Span::from_secs(7_200);
const THREE_DAYS: Span = Span::from_secs(3 * 86_400);

fn seconds(packet: &Packet) -> f64 {
    packet.at.as_secs_f64()
}

/// Starts of the sessions of an application.
fn begins(packets: &[Packet], app: u16) -> Vec<f64> {
    let mut seen = std::collections::BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.app == app) {
        seen.entry(packet.session).or_insert(seconds(packet));
    }
    let mut begins: Vec<f64> = seen.into_values().collect();
    begins.sort_by(f64::total_cmp);
    begins
}

fn waits(begins: &[f64]) -> Vec<f64> {
    begins.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn packets_come_in_order_and_within_the_trace() {
    for seed in 0..6 {
        for workload in APPS.iter().map(|app| alone(app, seed, TWO_HOURS)) {
            let names = workload.names().to_vec();
            let packets: Vec<Packet> = workload.collect();
            assert!(packets.len() > 50, "{names:?}: {}", packets.len());
            assert!(packets.is_sorted_by_key(|packet| packet.at), "{names:?}");
            assert!(packets.iter().all(|packet| seconds(packet) < 7_200.0));
            assert!(packets.iter().all(|packet| (52..=1_500).contains(&packet.bytes)));
            assert!(packets.iter().all(|packet| usize::from(packet.app) < names.len()));
        }
        let packets: Vec<Packet> = mixed(seed, THREE_DAYS).collect();
        assert!(packets.is_sorted_by_key(|packet| packet.at));
    }
}

#[test]
fn a_seed_makes_one_trace_and_another_seed_another() {
    let made = |seed| mixed(seed, THREE_DAYS).collect::<Vec<Packet>>();
    assert_eq!(made(7), made(7));
    assert_ne!(made(7), made(8));
}

#[test]
fn a_longer_trace_begins_like_a_shorter_one() {
    let short: Vec<Packet> = alone(&apps::EMAIL, 3, TWO_HOURS).collect();
    let long: Vec<Packet> = alone(&apps::EMAIL, 3, TWO_HOURS * 3).collect();
    assert_eq!(short, long[..short.len()]);
}

#[test]
fn applications_speak_as_often_as_the_study_says() {
    let waits_of = |app: &AppModel| {
        let workload = alone(app, 1, THREE_DAYS);
        waits(&begins(&workload.collect::<Vec<_>>(), 0))
    };
    // Mail every five minutes, an advertisement about every minute, quotes about every second.
    assert!(waits_of(&apps::EMAIL).iter().all(|wait| (290.0..310.0).contains(wait)));
    let advertisements = waits_of(&apps::GAME_AD);
    assert!(advertisements.iter().all(|wait| *wait < 1.0 || (54.0..66.0).contains(wait)));
    assert!(waits_of(&apps::FINANCE).iter().all(|wait| (0.7..1.3).contains(wait)));
    // Heartbeats of instant messages every 5 to 20 s, with messages of users between.
    let longest = waits_of(&apps::IM).into_iter().fold(0.0, f64::max);
    assert!((19.0..20.1).contains(&longest), "{longest}");
}

#[test]
fn an_exchange_is_a_question_and_its_answer() {
    let mut random = Random::new(1);
    let mut packets = Vec::new();
    let exchange = Exchange {
        connect_probability: 1.0,
        tls_probability: 0.0,
        first_direction: Direction::Up,
        up: super::super::Sampler::Constant(2_000.0),
        think_time: super::super::Sampler::Constant(0.3),
        down: super::super::Sampler::Constant(29_000.0),
        close_delay: super::super::Sampler::Constant(5.0),
    };
    let path = Path { round_trip: 0.1, down: 8e6, up: 1e6, loss: 0.0 };
    let emit = |at: f64, direction, bytes: u32| packets.push((at, direction, bytes));
    PacketGenerator { now: 10.0, path, random: &mut random, emit }.generate(&exchange);
    let data = |wanted: Direction| -> u32 {
        let of = packets.iter().filter(|(_, direction, bytes)| *direction == wanted && *bytes > 60);
        of.map(|(_, _, bytes)| bytes - 52).sum()
    };
    assert_eq!((data(Direction::Up), data(Direction::Down)), (2_000, 29_000));
    // Connected after a round trip; 2 000 bytes take 16 ms; the answer starts a round trip and 300
    // ms later, in two windows of 10 and 11 packets, of which the second waits for a round trip.
    let at = |wanted: u32| {
        let mut downs =
            packets.iter().filter(|packet| packet.1 == Direction::Down && packet.2 > 60);
        downs.nth(wanted as usize).map(|packet| packet.0).unwrap()
    };
    assert!((at(0) - 10.516).abs() < 1e-9, "{}", at(0));
    assert!((at(9) - (10.516 + 9.0 * 1.448e-3)).abs() < 1e-9);
    assert!((at(10) - 10.616).abs() < 1e-9);
    // The server closes the connection 5 s after the last byte.
    let last = packets.iter().map(|packet| packet.0).fold(0.0, f64::max);
    let end = 10.616 + 11.0 * 1.448e-3 - (21.0 * 1_448.0 - 29_000.0) * 1e-6;
    assert!((last - (end + 5.102)).abs() < 1e-9, "{last} {end}");
}

#[test]
fn people_sleep() {
    let mut night = 0;
    let mut day = 0;
    for seed in 0..20 {
        let workload = mixed(seed, THREE_DAYS);
        let names = workload.names().to_vec();
        for packet in workload.filter(|packet| names[usize::from(packet.app)].ends_with(".use")) {
            let hour = seconds(&packet) / HOUR % 24.0;
            night += u32::from((1.0..6.0).contains(&hour));
            day += u32::from((16.0..21.0).contains(&hour));
        }
    }
    assert!(day > 5 * night && night > 0, "{day} {night}");
}

#[test]
fn users_receive_no_messages_at_night() {
    let mut seen = std::collections::BTreeSet::new();
    let (mut night, mut day) = (0, 0);
    for packet in alone(&apps::IM, 1, THREE_DAYS * 10) {
        // A session that starts with a received packet is a message of a user; heartbeats start
        // with a sent one.
        if seen.insert(packet.session) && packet.direction == Direction::Down {
            let hour = seconds(&packet) / HOUR % 24.0;
            night += u32::from((1.0..6.0).contains(&hour));
            day += u32::from((16.0..21.0).contains(&hour));
        }
    }
    assert!(day > 3 * night && night > 0, "{day} {night}");
}

#[test]
fn applications_are_installed_by_their_share() {
    let users = 400;
    let mut with_im = 0;
    for seed in 0..users {
        let workload = mixed(seed, Span::from_secs(1));
        let names = workload.names();
        assert!(names.iter().any(|name| name == "email"));
        with_im += u32::from(names.iter().any(|name| name == "im"));
    }
    // 320 of 400 expected, with a standard deviation of 8.
    assert!((290..350).contains(&with_im), "{with_im}");
}

#[test]
fn heartbeats_are_even() {
    let beats: Vec<Packet> = heartbeats(Span::from_secs(15), 100, Span::from_secs(60)).collect();
    let times: Vec<f64> = beats.iter().map(seconds).collect();
    assert_eq!(times, [0.0, 15.0, 30.0, 45.0, 60.0]);
    assert!(beats.iter().all(|beat| beat.bytes == 100));
}

#[test]
fn seeds_are_split() {
    assert!(!is_held_out(0) && !is_held_out(999) && is_held_out(1_000));
}
