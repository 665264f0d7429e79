//! Fits the powers of a radio to a power monitor's samples and a packet trace.

mod monitor;
mod solve;

use manyways_unit::{Span, Time};

pub use self::monitor::Monitor;
use self::monitor::Window;
use self::solve::{Column, System, solve};
use super::timeline::{Phase, Segment, Timeline};
use super::{Direction, Energy, Packet, Power, Profile};

/// Maximum length of a trace in windows.
pub const MAX_WINDOWS: usize = 1_000_000;
/// Assumed minimum error between the clocks of trace and monitor; half a sample if that is longer.
const CLOCKS: Span = Span::from_millis(10);
/// Slightly more than half a sample, so that events at round times do not fall on a window's edge.
const HALF: f64 = 0.53;

/// A value of a profile that can be fitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quantity {
    /// Power of a transfer, by the direction of the packets that end its gaps, in watts.
    Transfer(Direction),
    /// Energy per million bits in a direction, in joules.
    PerMbit(Direction),
    /// Mean power of the state at this index of the profile, in watts, including the rest of the
    /// device.
    State(usize),
    /// Energy of a promotion out of a state, in joules.
    Promotion(usize),
    /// Energy of a demotion into a state, in joules.
    Demotion(usize),
}

impl Quantity {
    /// Whether the unit is watts; otherwise joules.
    pub fn is_power(self) -> bool {
        matches!(self, Self::Transfer(_) | Self::State(_))
    }
}

/// An estimated power or energy with its uncertainty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fitted {
    /// In watts, joules, or joules per million bits; never negative.
    pub value: f64,
    /// Standard error.
    pub error: f64,
    /// Result of least squares without the bound at zero; differs from `value` only if negative.
    pub free: f64,
}

/// Result for one quantity.
#[derive(Clone, PartialEq, Debug)]
pub enum Finding {
    Told(Fitted),
    /// Does not occur in the used windows.
    NotSeen,
    /// Not distinguishable from these: other combinations of values explain the samples equally
    /// well.
    NotApart(Vec<Quantity>),
}

impl Fitted {
    /// Whether least squares without the bound was negative.
    pub fn is_bounded(&self) -> bool {
        self.free < 0.0
    }
}

/// Results of a fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Powers {
    /// Every quantity of the profile's radio: transfers, bits, states, promotions, demotions.
    pub numbers: Vec<(Quantity, Finding)>,
    /// Number of used windows.
    pub windows: usize,
    /// Median length of a window.
    pub window: Span,
    /// Median interval between samples of the monitor.
    pub sampled: Span,
    /// Explained share of the variance.
    pub explained: f64,
    /// Seconds to add to the monitor's times: plus or minus about half a sample. `None` unless that
    /// more than halves the unexplained squares.
    pub offset: Option<f64>,
}

impl Powers {
    /// The value of a quantity, if it was determined.
    pub fn told(&self, quantity: Quantity) -> Option<Fitted> {
        self.numbers.iter().find_map(|(one, finding)| match finding {
            Finding::Told(fitted) if *one == quantity => Some(*fitted),
            _ => None,
        })
    }
}

/// Reason why monitor samples yield no powers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPowers {
    /// Too few usable windows.
    #[error("only {0} windows have both known states and samples of power: too few")]
    TooFew(usize),
    /// More than [`MAX_WINDOWS`] windows.
    #[error("the monitor's samples fill more than {MAX_WINDOWS} windows")]
    TooLong,
}

/// Fits powers by least squares: in each window, the energy that the monitor measured is the sum of
/// the states' powers by the time in each state, of the bits, and of the promotions and demotions
/// in the window.
///
/// Windows start and end where samples do. The states follow from the profile's timers and the
/// packets. The fit uses only the profile's ratio of powers within a DRX cycle: if a stay ends
/// within a cycle, the deviation of its on durations from the mean is subtracted from the measured
/// energy and enters the errors. Windows must be longer than a promotion.
#[derive(Clone, Debug)]
pub struct Fit {
    timeline: Timeline,
    /// Mean power of each state in the profile, in watts.
    means: Vec<f64>,
    quantities: Vec<Quantity>,
    sampled: Span,
    /// The monitor's windows, unchanged, earlier and later.
    lanes: [Lane; 3],
    /// Seconds by which the second and third are shifted.
    late: f64,
    first: Option<Time>,
}

/// Windows with their rows of the design matrix.
#[derive(Clone, Debug)]
struct Lane {
    windows: Vec<Window>,
    /// Amount of each quantity in each window, row by row; ends at the last window with a segment.
    design: Vec<f64>,
    /// Nanoseconds of each row in which the state is known.
    known: Vec<u64>,
    /// Index of the first window that the next segment can overlap.
    place: usize,
}

impl Fit {
    /// Creates a fit of these samples, before the first packet of the trace.
    ///
    /// # Errors
    /// Fails if there are too many windows.
    pub fn new(profile: &Profile, monitor: Monitor) -> Result<Self, NoPowers> {
        let (sampled, windows) = monitor.windows()?;
        let late = (HALF * sampled.as_secs_f64()).max(CLOCKS.as_secs_f64());
        let quantities = quantities(profile);
        // With powers of zero and energies of one joule, the joules of a segment are the amount of
        // its energy quantity; the amount of a transfer's power is its seconds.
        let mut units = profile.clone();
        [units.transfer.send, units.transfer.receive] = [Power::watts(0.0); 2];
        let one = Energy::joules(1.0);
        [units.transfer.send_per_mbit, units.transfer.receive_per_mbit] = [one; 2];
        for (place, state) in units.states.iter_mut().enumerate() {
            let unit = |quantity| match quantities.contains(&quantity) {
                true => one,
                false => Energy::ZERO,
            };
            state.promotion = unit(Quantity::Promotion(place));
            state.demotion = unit(Quantity::Demotion(place));
        }
        Ok(Self {
            timeline: Timeline::new(&units),
            means: profile.states.iter().map(|state| state.mean_power().as_watts()).collect(),
            quantities,
            sampled,
            lanes: [0.0, -late, late].map(|late| Lane::new(&windows, late)),
            late,
            first: None,
        })
    }

    /// Adds a packet of the trace.
    pub fn packet(&mut self, packet: &Packet) {
        self.first.get_or_insert(packet.at);
        let mut segments = Vec::new();
        self.timeline.next(packet, |segment| segments.push(segment));
        segments.iter().for_each(|segment| self.segment(segment));
    }

    fn segment(&mut self, segment: &Segment) {
        let (power, energy, joules) = match segment.phase {
            Phase::Transfer(way) => {
                (Some(Quantity::Transfer(way)), Some(Quantity::PerMbit(way)), segment.joules)
            }
            Phase::Promotion(state) => (None, Some(Quantity::Promotion(state)), segment.joules),
            Phase::Demotion(state) => (None, Some(Quantity::Demotion(state)), segment.joules),
            Phase::State(state) => {
                let secs = segment.ends.since(segment.begins).as_secs_f64();
                let more = segment.joules - self.means[state] * secs;
                (Some(Quantity::State(state)), None, more)
            }
        };
        let column = |wanted: Option<Quantity>| {
            wanted.and_then(|wanted| self.quantities.iter().position(|one| *one == wanted))
        };
        let (power, energy) = (column(power), column(energy));
        let part = Part {
            begins: segment.begins.as_nanos(),
            ends: segment.ends.as_nanos(),
            power,
            energy,
            joules,
        };
        let columns = self.quantities.len();
        self.lanes.iter_mut().for_each(|lane| lane.add(&part, columns));
    }

    /// Ends the trace and fits.
    ///
    /// # Errors
    /// Fails if trace and monitor have too few windows in common.
    pub fn finish(mut self) -> Result<Powers, NoPowers> {
        let mut segments = Vec::new();
        self.timeline.end(|segment| segments.push(segment));
        segments.iter().for_each(|segment| self.segment(segment));
        let columns = self.quantities.len();
        let first = self.first.map_or(0, Time::as_nanos);
        let [(system, mut lengths), earlier, later] =
            self.lanes.map(|lane| lane.system(columns, first));
        let windows = lengths.len();
        if windows < 2 * columns {
            return Err(NoPowers::TooFew(windows));
        }
        let (_, usual, _) = lengths.select_nth_unstable(windows / 2);
        let window = Span::from_nanos(*usual);
        let solved = solve(&system, &[earlier.0, later.0]);
        // As measured, without the correction.
        let seen = || system.seen.iter().zip(&system.assumed).map(|(seen, taken)| seen + taken);
        let squares: f64 = seen().map(|joules| joules * joules).sum();
        let [earlier, now, later] = solved.left;
        let best = if earlier < later { -self.late } else { self.late };
        // Residuals from rounding errors are not evidence.
        let is_better = earlier.min(later) < now / 2.0 && now > 1e-12 * squares / windows as f64;
        let mean = seen().sum::<f64>() / windows as f64;
        let spread: f64 = seen().map(|joules| (joules - mean).powi(2)).sum();
        // Without variance above rounding errors the explained share is 0.
        let explained = if spread > 1e-18 * squares { 1.0 - solved.rest / spread } else { 0.0 };
        let finding = |column| match column {
            Column::Absent => Finding::NotSeen,
            Column::Told { value, free, error } => Finding::Told(Fitted { value, error, free }),
            Column::Mixed(others) => {
                Finding::NotApart(others.into_iter().map(|other| self.quantities[other]).collect())
            }
        };
        let findings = solved.columns.into_iter().map(finding);
        Ok(Powers {
            numbers: self.quantities.iter().copied().zip(findings).collect(),
            windows,
            window,
            sampled: self.sampled,
            explained: explained.max(0.0),
            offset: is_better.then_some(best),
        })
    }
}

/// A segment of the timeline, assigned to columns of the design matrix.
struct Part {
    begins: u64,
    ends: u64,
    /// Column of its seconds.
    power: Option<usize>,
    /// Column of its joules; if `None`, the joules are subtracted from the measured energy.
    energy: Option<usize>,
    joules: f64,
}

impl Lane {
    fn new(windows: &[Window], late: f64) -> Self {
        let late = (late * 1e9) as i64;
        let shifted = |window: &Window| {
            let begins = window.begins.checked_add_signed(late)?;
            Some(Window { begins, ends: window.ends.checked_add_signed(late)?, ..*window })
        };
        let windows = windows.iter().filter_map(shifted).collect();
        Self { windows, design: Vec::new(), known: Vec::new(), place: 0 }
    }

    /// Segments arrive in order of time.
    fn add(&mut self, part: &Part, columns: usize) {
        let Part { begins, ends, power, energy, joules } = *part;
        while self.windows.get(self.place).is_some_and(|window| window.ends <= begins) {
            self.place += 1;
        }
        let overlaps = |window: &Window| window.begins < ends.max(begins + 1);
        for place in self.place..self.windows.len() {
            let window = &mut self.windows[place];
            if !overlaps(window) {
                break;
            }
            if self.known.len() <= place {
                self.known.resize(place + 1, 0);
                self.design.resize((place + 1) * columns, 0.0);
            }
            let nanos = ends.min(window.ends).saturating_sub(begins.max(window.begins));
            // A segment without duration is in one window only.
            let share = if begins == ends { 1.0 } else { nanos as f64 / (ends - begins) as f64 };
            let row = &mut self.design[place * columns..][..columns];
            if let Some(power) = power {
                row[power] += Span::from_nanos(nanos).as_secs_f64();
                self.known[place] += nanos;
            }
            match energy {
                Some(energy) => row[energy] += joules * share,
                None => {
                    window.joules -= joules * share;
                    window.assumed += joules * share;
                }
            }
        }
    }

    /// The windows in which the states are known throughout, and their lengths. The state before
    /// the `first` packet is unknown.
    fn system(self, columns: usize, first: u64) -> (System, Vec<u64>) {
        let mut system = System { columns, ..System::default() };
        let mut lengths = Vec::new();
        let mut before = None;
        let rows = self.design.chunks_exact(columns).zip(&self.known);
        for (window, (row, known)) in self.windows.iter().zip(rows) {
            let lasts = window.ends - window.begins;
            if *known != lasts || lasts == 0 || window.begins <= first {
                continue;
            }
            lengths.push(lasts);
            system.design.extend(row);
            system.seen.push(window.joules);
            system.assumed.push(window.assumed);
            system.follows.push(before == Some(window.begins));
            before = Some(window.ends);
        }
        (system, lengths)
    }
}

/// The quantities of a radio. Promotions and demotions are those with an energy or delay in the
/// profile, and those of the first released state.
fn quantities(profile: &Profile) -> Vec<Quantity> {
    let ways = [Direction::Up, Direction::Down];
    let released = profile.states.iter().position(|state| state.is_released);
    let states = || profile.states.iter().enumerate();
    let promotions = states().skip(1).filter(|(_, state)| {
        state.is_released || state.promotion > Energy::ZERO || !state.promotion_delay.is_zero()
    });
    let demotions = states()
        .skip(1)
        .filter(|(place, state)| released == Some(*place) || state.demotion > Energy::ZERO);
    ways.map(Quantity::Transfer)
        .into_iter()
        .chain(ways.map(Quantity::PerMbit))
        .chain((0..profile.states.len()).map(Quantity::State))
        .chain(promotions.map(|(place, _)| Quantity::Promotion(place)))
        .chain(demotions.map(|(place, _)| Quantity::Demotion(place)))
        .collect()
}

#[cfg(test)]
mod tests;
