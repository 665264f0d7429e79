//! Set (c): generated walks. Signals and rates come from one process each, so that signals explain a
//! part of the rates, and the load of the cell or channel the other part. For mechanisms only:
//! results on these places are not evidence about real networks.

use manyways_model::select::Indicator;
use manyways_unit::{Random, Rate};

use super::place::{Place, Signals, between, capacity};
use super::process::{Process, share};

/// How many places there are, their length in seconds, and their groups.
const PLACES: u64 = 80;
const LENGTH: u64 = 120;
const GROUPS: u64 = 8;
/// Seed of everything.
const SEED: u64 = 0x7374_6565_7203;
/// Purposes of the seed within a place.
const ROUND_TRIPS: u64 = 0;
const WIFI: u64 = 1;
const LTE: u64 = 2;

/// Walking speed in m/s (a usual value), and the ranges of the nearest and farthest distance from
/// the access point in metres, between which the device walks to and fro (made up).
const SPEED: f64 = 1.2;
const NEAREST: (f64, f64) = (2.0, 8.0);
const FARTHEST: (f64, f64) = (20.0, 60.0);
/// RSSI at 1 m in dBm (made up: 15 dBm, 40 dB of loss in free space at 2.4 GHz, and 10 dB in the
/// device and the body).
const RSSI_AT_1_M: f64 = -35.0;
/// Exponent of the log-distance path loss (made up; Rappaport, "Wireless Communications", table 4.2,
/// has 1.6 to 1.8 for buildings in line of sight, and 4 to 6 behind obstacles).
const EXPONENT: (f64, f64) = (2.7, 3.5);
/// Shadowing: deviation in dB, and the distance in metres over which it decorrelates (the form is
/// that of Gudmundson, "Correlation model for shadow fading", 1991; the values are made up).
const WIFI_SHADOWING: f64 = 4.0;
const DECORRELATION: f64 = 5.0;
/// Physical rates in Mbit/s from this RSSI in dBm on: 802.11n with 20 MHz, two streams and the long
/// guard interval, at the minimum input sensitivities of that standard; the last row is 1 Mbit/s of
/// 802.11b (sensitivity made up). Below it, nothing passes.
const LINK_RATES: [(f64, f64); 9] = [
    (-64.0, 130.0),
    (-65.0, 117.0),
    (-66.0, 104.0),
    (-70.0, 78.0),
    (-74.0, 52.0),
    (-77.0, 39.0),
    (-79.0, 26.0),
    (-82.0, 13.0),
    (-88.0, 1.0),
];
/// Share of the physical rate that an idle channel carries as IP packets (made up).
const WIFI_EFFICIENCY: f64 = 0.65;

/// RSRP in dBm: range of the means, deviation, correlation of one second with the next (made up;
/// the range is that of usable cells).
const RSRP: ((f64, f64), f64, f64) = ((-112.0, -82.0), 5.0, 0.9);
/// Noise and interference in dBm, on the scale of RSRP (made up).
const NOISE: ((f64, f64), f64, f64) = ((-120.0, -108.0), 3.0, 0.8);
/// RSRQ in dB (made up).
const RSRQ: ((f64, f64), f64, f64) = ((-14.0, -8.0), 1.5, 0.8);
/// Limits of RSRQ and SNR that modems report, in dB.
const RSRQ_LIMITS: (f64, f64) = (-20.0, -3.0);
const SNR_LIMITS: (f64, f64) = (-10.0, 30.0);
/// SNR in dB from which a CQI of 1, 2, … is reported: the values for 10 % block errors that many
/// open simulators share (their first source is unknown to us).
const CQI_FROM: [f64; 15] =
    [-6.7, -4.7, -2.3, 0.2, 2.4, 4.3, 5.9, 8.1, 10.3, 11.7, 14.1, 16.3, 18.7, 21.0, 22.7];
/// bit/s per Hz for a CQI of 0, 1, … (3GPP TS 36.213, table 7.2.3-1).
const EFFICIENCY: [f64; 16] = [
    0.0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223,
    3.9023, 4.5234, 5.1152, 5.5547,
];
/// Bandwidth in MHz of the 100 resource blocks of a carrier of 20 MHz, and the share of it that is
/// left by reference signals and control channels (made up). One stream.
const BANDWIDTH: f64 = 18.0;
const LTE_DATA: f64 = 0.75;

/// Share of the capacity that other users leave, as the argument of a logistic function: range of
/// the means, deviation, correlation (made up). No signal shows it.
const WIFI_FREE: ((f64, f64), f64, f64) = ((-1.0, 1.5), 0.8, 0.9);
const LTE_FREE: ((f64, f64), f64, f64) = ((-1.5, 1.0), 0.8, 0.95);

/// All places.
///
/// # Errors
/// One sentence, if a walk has no seconds.
pub fn places() -> Result<Vec<Place>, String> {
    (0..PLACES).map(place).collect()
}

fn place(index: u64) -> Result<Place, String> {
    let random = |purpose| Random::for_purpose(SEED, 10 * index + purpose);
    let (wifi_rates, wifi_signals) = wifi(&mut random(WIFI));
    let (lte_rates, lte_signals) = lte(&mut random(LTE));
    let down = [capacity("generated Wi-Fi", wifi_rates)?, capacity("generated LTE", lte_rates)?];
    let (name, group) = (format!("c-{index:02}"), (index % GROUPS).to_string());
    let mut place = Place::new(name, group, LENGTH, down, &mut random(ROUND_TRIPS));
    place.signals = [Signals(wifi_signals), Signals(lte_signals)];
    Ok(place)
}

/// Rates and signals of each second.
type Walk = (Vec<Rate>, Vec<Vec<(Indicator, f64)>>);

/// RSSI by distance and shadowing; the rate by RSSI and load.
fn wifi(random: &mut Random) -> Walk {
    let mut draw = |(low, high)| between(random, low, high);
    let (near, far, exponent) = (draw(NEAREST), draw(FARTHEST), draw(EXPONENT));
    let start = draw((0.0, 2.0 * (far - near)));
    let correlation = (-SPEED / DECORRELATION).exp();
    let mut shadowing = Process::new(0.0, WIFI_SHADOWING, correlation, random);
    let mut free = process(WIFI_FREE, random);
    let second = |second: u64| {
        let walked = (start + SPEED * second as f64) % (2.0 * (far - near));
        let distance = near + walked.min(2.0 * (far - near) - walked);
        let loss = 10.0 * exponent * distance.log10();
        let rssi = (RSSI_AT_1_M - loss + shadowing.step(random)).round();
        let link_rate = LINK_RATES.iter().find(|(from, _)| rssi >= *from).map_or(0.0, |row| row.1);
        let rate = mbps(link_rate * WIFI_EFFICIENCY * share(free.step(random)));
        (rate, vec![(Indicator::Rssi, rssi), (Indicator::LinkRate, link_rate)])
    };
    (0..LENGTH).map(second).unzip()
}

/// SNR by RSRP and noise, CQI by SNR; the rate by CQI and load.
fn lte(random: &mut Random) -> Walk {
    let mut rsrp = process(RSRP, random);
    let mut noise = process(NOISE, random);
    let mut rsrq = process(RSRQ, random);
    let mut free = process(LTE_FREE, random);
    let second = |_| {
        let rsrp = rsrp.step(random).round();
        let snr = (rsrp - noise.step(random)).clamp(SNR_LIMITS.0, SNR_LIMITS.1).round();
        let rsrq = rsrq.step(random).clamp(RSRQ_LIMITS.0, RSRQ_LIMITS.1).round();
        let cqi = CQI_FROM.iter().filter(|from| snr >= **from).count();
        let rate = mbps(EFFICIENCY[cqi] * BANDWIDTH * LTE_DATA * share(free.step(random)));
        let signals = vec![
            (Indicator::Rsrp, rsrp),
            (Indicator::Rsrq, rsrq),
            (Indicator::Snr, snr),
            (Indicator::Cqi, cqi as f64),
        ];
        (rate, signals)
    };
    (0..LENGTH).map(second).unzip()
}

fn process(
    ((low, high), deviation, correlation): ((f64, f64), f64, f64),
    random: &mut Random,
) -> Process {
    let mean = between(random, low, high);
    Process::new(mean, deviation, correlation, random)
}

fn mbps(rate: f64) -> Rate {
    Rate::from_bps((rate * 1e6) as u64)
}
