//! The powers of a radio, from what a power monitor saw while packets passed.

use manyways_unit::{Span, Time};

use super::timeline::{Phase, Segment, Timeline};
use super::{Decay, Direction, Packet, Profile};

/// The longest trace: so many windows.
pub const MAX_WINDOWS: usize = 4_000_000;
/// A column of which so little is left beside the others is not told apart from them.
const INDEPENDENT: f64 = 1e-9;

/// A number that was fitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fitted {
    /// Watts, joules, or joules a million bits.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// What was fitted; none where the trace says nothing of it, or not apart from the rest.
#[derive(Clone, PartialEq, Debug)]
pub struct Powers {
    /// While packets go out, and while they come in, in watts.
    pub transfer: [Option<Fitted>; 2],
    /// For each million bits that go out, and that come in, in joules.
    pub per_mbit: [Option<Fitted>; 2],
    /// Each state, in watts; the last one with all else that the device takes.
    pub states: Vec<Option<Fitted>>,
    /// To be brought back out of a released state, in joules.
    pub promotion: Option<Fitted>,
    /// To be let go by a timer, in joules.
    pub demotion: Option<Fitted>,
    /// Windows that were used.
    pub windows: usize,
    /// The share of the variance that is explained.
    pub explained: f64,
}

/// Why nothing can be fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPowers {
    /// The two have too little in common.
    #[error("only {0} windows have both packets' states and samples of power: too few")]
    TooFew(usize),
    /// Too long.
    #[error("the trace has more than {MAX_WINDOWS} windows")]
    TooLong,
}

/// Fits powers by least squares: in each window of time, the energy that the monitor saw is the sum of
/// the states' powers by the time in each, of the bits, and of the promotions and demotions in it.
///
/// The states are those that the profile's timers give for the packets; its powers are not used.
/// Windows have to be longer than a promotion takes.
#[derive(Clone, Debug)]
pub struct Fit {
    timeline: Timeline,
    released: usize,
    stay: Decay,
    burst_gap: f64,
    last: Option<Time>,
    window: f64,
    origin: Option<Time>,
    /// Of each window, what there is of each column.
    rows: Vec<Vec<f64>>,
    /// Of each window, the sum of the samples and how many.
    samples: Vec<(f64, u32)>,
    columns: usize,
    is_too_long: bool,
}

/// Places of columns: two directions of time, two of bits, promotion, demotion, and then the states.
const BITS: usize = 2;
const PROMOTION: usize = 4;
const DEMOTION: usize = 5;
const STATES: usize = 6;

impl Fit {
    /// Nothing was seen yet. Windows begin at `origin`.
    pub fn new(profile: &Profile, window: Span) -> Self {
        let states = &profile.states;
        Self {
            timeline: Timeline::new(profile),
            released: states.iter().position(|state| state.is_released).unwrap_or(states.len()),
            stay: Decay::from(profile, 0),
            burst_gap: profile.transfer.burst_gap.as_secs_f64(),
            last: None,
            window: window.as_secs_f64().max(1e-6),
            origin: None,
            rows: Vec::new(),
            samples: Vec::new(),
            columns: STATES + states.len(),
            is_too_long: false,
        }
    }

    /// The next packet of the trace.
    pub fn packet(&mut self, packet: &Packet) {
        self.origin.get_or_insert(packet.at);
        // Whatever the profile says that it takes, and only out of a released state.
        let gap = self.last.map(|last| packet.at.since(last).as_secs_f64());
        if gap.is_none_or(|gap| gap > self.burst_gap && self.stay.is_released(gap)) {
            self.add(packet.at, PROMOTION, 1.0);
        }
        self.last = Some(self.last.map_or(packet.at, |last| last.max(packet.at)));
        let mut segments = Vec::new();
        self.timeline.next(packet, |segment| segments.push(segment));
        segments.iter().for_each(|segment| self.segment(segment));
        let way = usize::from(packet.direction == Direction::Down);
        let mbit = f64::from(packet.bytes) * 8e-6;
        self.add(packet.at, BITS + way, mbit);
    }

    /// A sample of the monitor: watts at a time of the same clock. Those before the first packet are
    /// left out.
    pub fn sample(&mut self, at: Time, watts: f64) {
        let Some(place) = self.place(at).filter(|_| watts.is_finite()) else { return };
        if self.samples.len() <= place {
            self.samples.resize(place + 1, (0.0, 0));
        }
        self.samples[place].0 += watts;
        self.samples[place].1 += 1;
    }

    /// The window of a moment.
    fn place(&mut self, at: Time) -> Option<usize> {
        let origin = self.origin.filter(|origin| at >= *origin)?;
        let place = (at.since(origin).as_secs_f64() / self.window) as usize;
        self.is_too_long |= place >= MAX_WINDOWS;
        (place < MAX_WINDOWS).then_some(place)
    }

    fn add(&mut self, at: Time, column: usize, value: f64) {
        let Some(place) = self.place(at) else { return };
        while self.rows.len() <= place {
            self.rows.push(vec![0.0; self.columns]);
        }
        self.rows[place][column] += value;
    }

    fn segment(&mut self, segment: &Segment) {
        let column = match segment.phase {
            Phase::Transfer(Direction::Up) => 0,
            Phase::Transfer(Direction::Down) => 1,
            // Counted where they happen, whatever the profile says that they take.
            Phase::Promotion | Phase::Demotion => return,
            Phase::State(state) => {
                if state == self.released {
                    self.add(segment.begins, DEMOTION, 1.0);
                }
                STATES + state
            }
        };
        let Some(origin) = self.origin else { return };
        let from = segment.begins.since(origin).as_secs_f64();
        let to = segment.ends.since(origin).as_secs_f64();
        let mut begin = from;
        while begin < to {
            let mut place = (begin / self.window) as usize;
            // By a rounding error it may be the one before.
            if (place + 1) as f64 * self.window <= begin {
                place += 1;
            }
            if place >= MAX_WINDOWS {
                self.is_too_long = true;
                return;
            }
            let end = ((place + 1) as f64 * self.window).min(to);
            while self.rows.len() <= place {
                self.rows.push(vec![0.0; self.columns]);
            }
            self.rows[place][column] += end - begin;
            begin = end;
        }
    }

    /// All packets and samples were told.
    ///
    /// # Errors
    /// Where they have too little in common.
    pub fn finish(mut self) -> Result<Powers, NoPowers> {
        let mut segments = Vec::new();
        self.timeline.end(|segment| segments.push(segment));
        segments.iter().for_each(|segment| self.segment(segment));
        if self.is_too_long {
            return Err(NoPowers::TooLong);
        }
        // Windows of which the states are known throughout.
        let window = self.window;
        let is_whole = |row: &[f64]| {
            let secs: f64 = row[..BITS].iter().chain(&row[STATES..]).sum();
            (secs / window - 1.0).abs() < 1e-6
        };
        let used: Vec<(&[f64], f64)> = self
            .rows
            .iter()
            .zip(&self.samples)
            .filter(|(row, (_, count))| *count > 0 && is_whole(row))
            .map(|(row, (sum, count))| (row.as_slice(), sum / f64::from(*count) * window))
            .collect();
        if used.len() < 2 * self.columns {
            return Err(NoPowers::TooFew(used.len()));
        }
        let solved = solve(&used, self.columns);
        let mean = used.iter().map(|(_, joules)| joules).sum::<f64>() / used.len() as f64;
        let spread: f64 = used.iter().map(|(_, joules)| (joules - mean).powi(2)).sum();
        let Solved { values, rest } = solved;
        Ok(Powers {
            transfer: [values[0], values[1]],
            per_mbit: [values[BITS], values[BITS + 1]],
            states: values[STATES..].to_vec(),
            promotion: values[PROMOTION],
            demotion: values[DEMOTION],
            windows: used.len(),
            // Where nothing varies nothing is explained.
            explained: if spread > 0.0 { 1.0 - rest / spread } else { 0.0 },
        })
    }
}

struct Solved {
    values: Vec<Option<Fitted>>,
    /// The sum of squares that is left.
    rest: f64,
}

/// Least squares by the normal equations, whose columns are scaled to one before; columns that are not
/// there, or not apart from those before them, are left out.
fn solve(rows: &[(&[f64], f64)], columns: usize) -> Solved {
    let mut squares = vec![vec![0.0; columns]; columns];
    let mut right = vec![0.0; columns];
    for (row, joules) in rows {
        for (one, first) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            right[one] += first * joules;
            for (other, second) in row.iter().enumerate() {
                squares[one][other] += first * second;
            }
        }
    }
    let scale: Vec<f64> = (0..columns).map(|one| squares[one][one].sqrt()).collect();
    // The Cholesky factor of the columns that are kept, row by row.
    let mut kept: Vec<usize> = Vec::new();
    let mut factor: Vec<Vec<f64>> = Vec::new();
    for column in (0..columns).filter(|column| scale[*column] > 0.0) {
        let scaled = |other: usize| squares[column][other] / (scale[column] * scale[other]);
        let mut row = Vec::with_capacity(kept.len() + 1);
        for (place, other) in kept.iter().enumerate() {
            let known: f64 = row.iter().zip(&factor[place]).map(|(a, b): (&f64, &f64)| a * b).sum();
            row.push((scaled(*other) - known) / factor[place][place]);
        }
        let left = 1.0 - row.iter().map(|value| value * value).sum::<f64>();
        if left < INDEPENDENT {
            continue;
        }
        row.push(left.sqrt());
        factor.push(row);
        kept.push(column);
    }
    let count = kept.len();
    let forward = |right: &[f64]| {
        let mut solved: Vec<f64> = Vec::with_capacity(count);
        for (place, row) in factor.iter().enumerate() {
            let known: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
            solved.push((right[place] - known) / row[place]);
        }
        solved
    };
    let backward = |right: &[f64]| {
        let mut solved = vec![0.0; count];
        for place in (0..count).rev() {
            let known: f64 =
                (place + 1..count).map(|next| factor[next][place] * solved[next]).sum();
            solved[place] = (right[place] - known) / factor[place][place];
        }
        solved
    };
    let scaled: Vec<f64> = kept.iter().map(|column| right[*column] / scale[*column]).collect();
    let found = backward(&forward(&scaled));
    let mut all = vec![0.0; columns];
    for (column, value) in kept.iter().zip(&found) {
        all[*column] = value / scale[*column];
    }
    let rest: f64 = rows
        .iter()
        .map(|(row, joules)| {
            let told: f64 = row.iter().zip(&all).map(|(a, b)| a * b).sum();
            (joules - told).powi(2)
        })
        .sum();
    let variance = rest / rows.len().saturating_sub(count).max(1) as f64;
    let mut values = vec![None; columns];
    for (place, column) in kept.iter().enumerate() {
        let mut unit = vec![0.0; count];
        unit[place] = 1.0;
        let inverse: f64 = forward(&unit).iter().map(|value| value * value).sum();
        let error = (variance * inverse).sqrt() / scale[*column];
        values[*column] = Some(Fitted { value: all[*column], error });
    }
    Solved { values, rest }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Random;

    use super::*;
    use crate::radio::timeline::Steps;
    use crate::radio::{profiles, workload};

    /// What a monitor would see of a radio, with noise: watts every 10 ms.
    fn monitor(profile: &Profile, packets: &[Packet], noise: f64) -> Vec<(Time, f64)> {
        const STEP: f64 = 0.01;
        let origin = packets[0].at;
        let mut steps = Steps::new(4_000_000, STEP);
        // A packet's bits take what they do when it passes, not spread over a transfer.
        let mut bare = profile.clone();
        bare.transfer.send_per_mbit = crate::radio::Energy::ZERO;
        bare.transfer.receive_per_mbit = crate::radio::Energy::ZERO;
        let per_mbit = [profile.transfer.send_per_mbit, profile.transfer.receive_per_mbit];
        for packet in packets {
            let at = packet.at.since(origin).as_secs_f64();
            let way = usize::from(packet.direction == Direction::Down);
            steps.add(at, at, f64::from(packet.bytes) * 8e-6 * per_mbit[way].as_joules());
        }
        let mut timeline = Timeline::new(&bare);
        let mut add = |segment: Segment| {
            let [from, to] =
                [segment.begins, segment.ends].map(|time| time.since(origin).as_secs_f64());
            steps.add(from, to, segment.joules);
        };
        packets.iter().for_each(|packet| timeline.next(packet, &mut add));
        timeline.end(&mut add);
        let mut random = Random::new(9);
        let all = steps.power().map(|(at, watts)| {
            let at = origin + Span::from_secs_f64(at + STEP / 2.0);
            (at, watts + noise * (random.unit() - 0.5))
        });
        all.collect()
    }

    /// Of any length, windows of a long silence are whole.
    #[test]
    fn windows_are_lost_to_no_rounding() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        for millis in [100, 300, 700, 1_000] {
            let mut fit = Fit::new(&profile, Span::from_millis(millis));
            for packet in workload::heartbeats(Span::from_secs(3_000), 1, Span::from_secs(3_000)) {
                fit.packet(&packet);
            }
            let secs = millis as f64 / 1e3;
            let whole = |row: &&Vec<f64>| (row.iter().sum::<f64>() / secs - 1.0).abs() < 1e-6;
            // But for those with a change of state, a bit or a switch in them.
            let count = fit.rows.iter().filter(whole).count();
            assert!(count + 4 >= fit.rows.len(), "{millis}: {count} of {}", fit.rows.len());
        }
    }

    fn fit(profile: &Profile, noise: f64) -> Powers {
        let lasts = Span::from_secs(20_000);
        let packets: Vec<Packet> = workload::mixed(4, lasts).collect();
        let mut fit = Fit::new(profile, Span::from_secs(1));
        packets.iter().for_each(|packet| fit.packet(packet));
        for (at, watts) in monitor(profile, &packets, noise) {
            fit.sample(at, watts);
        }
        fit.finish().unwrap()
    }

    #[test]
    fn powers_of_a_profile_are_found_again() {
        let mut profile = profiles::named("att-hspa").unwrap().unwrap();
        profile.transfer.send_per_mbit = crate::radio::Energy::joules(0.4);
        profile.transfer.receive_per_mbit = crate::radio::Energy::joules(0.05);
        // With noise: what is hardly ever seen alone, as sending, has a large error, and says so.
        for (noise, exact, errors) in [(0.0, 1e-6, 0.0), (0.5, 0.0, 4.0)] {
            let near = |found: Option<Fitted>, wanted: f64| {
                let found = found.unwrap();
                let within = exact + errors * found.error;
                assert!((found.value - wanted).abs() <= within, "{found:?} {wanted}");
            };
            let powers = fit(&profile, noise);
            near(powers.transfer[0], 1.539);
            near(powers.transfer[1], 1.212);
            near(powers.per_mbit[0], 0.4);
            near(powers.per_mbit[1], 0.05);
            near(powers.states[0], 0.916);
            near(powers.states[1], 0.659);
            near(powers.states[2], 0.0);
            near(powers.promotion, 0.55);
            near(powers.demotion, 0.55);
            assert!(powers.explained > 0.99, "{powers:?}");
        }
    }

    #[test]
    fn errors_are_as_large_as_the_noise_makes_them() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let powers = fit(&profile, 2.0);
        let state = powers.states[0].unwrap();
        assert!((state.value - 0.916).abs() < 4.0 * state.error, "{state:?}");
        assert!(state.error > 1e-5, "{state:?}");
    }

    #[test]
    fn what_is_never_seen_is_not_told() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        // Always awake: the later states never come.
        let packets: Vec<Packet> =
            workload::heartbeats(Span::from_secs(2), 100, Span::from_secs(600)).collect();
        let mut fit = Fit::new(&profile, Span::from_secs(1));
        packets.iter().for_each(|packet| fit.packet(packet));
        for tenth in 0..5_900 {
            fit.sample(Time::from_millis(tenth * 100), 0.9);
        }
        let powers = fit.finish().unwrap();
        assert!((powers.states[0].unwrap().value - 0.9).abs() < 1e-9);
        assert_eq!(powers.states[2], None);
        assert_eq!(powers.transfer, [None; 2]);
    }

    #[test]
    fn too_little_is_said_to_be() {
        let profile = profiles::named("lte").unwrap().unwrap();
        let mut fit = Fit::new(&profile, Span::from_secs(1));
        fit.sample(Time::ZERO, 1.0);
        assert_eq!(fit.finish(), Err(NoPowers::TooFew(0)));
    }
}
