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
const MIN_CLOCK_ERROR: Span = Span::from_millis(10);
/// Slightly more than half a sample, so that events at round times do not fall on a window's edge.
const HALF_SAMPLE: f64 = 0.53;

/// A value of a profile that can be fitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quantity {
    /// Power of a transfer, by the direction of the packets that end its gaps, in watts.
    Transfer(Direction),
    /// Energy per million bits in a direction, in joules.
    PerMbit(Direction),
    /// Mean power of the state at this index of the profile, in watts, including the rest of the
    /// device. A profile has the mean over whole DRX cycles.
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
pub struct FittedValue {
    /// In watts, joules, or joules per million bits; never negative. The power of a state is the
    /// mean over the time that the trace spends in it.
    pub value: f64,
    /// Standard error of `value`.
    pub error: f64,
    /// Result of least squares without the bound at zero; differs from `value` only if negative.
    pub unbounded: f64,
    /// By how much the profile's mean power of this state in this trace exceeds its mean over whole
    /// DRX cycles: each stay begins with an on duration, and its last cycle may be incomplete.
    pub cycle_excess: f64,
    /// Standard error of [`FittedValue::whole_cycles`], to which the profile's cycle contributes.
    pub whole_cycles_error: f64,
}

/// Result for one quantity.
#[derive(Clone, PartialEq, Debug)]
pub enum Finding {
    Determined(FittedValue),
    /// Does not occur in the used windows.
    Unobserved,
    /// Not distinguishable from these: other combinations of values explain the samples equally
    /// well.
    Indistinguishable(Vec<Quantity>),
}

impl FittedValue {
    /// A value without DRX cycles.
    pub fn new(unbounded: f64, error: f64) -> Self {
        Self {
            value: unbounded.max(0.0),
            error,
            unbounded,
            cycle_excess: 0.0,
            whole_cycles_error: error,
        }
    }

    /// The power of a state over whole DRX cycles, as profiles have it; `value` for all others.
    pub fn whole_cycles(&self) -> f64 {
        (self.unbounded - self.cycle_excess).max(0.0)
    }

    /// Whether least squares without the bound was negative.
    pub fn is_bounded(&self) -> bool {
        self.unbounded < 0.0
    }
}

/// Results of a fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Powers {
    /// Every quantity of the profile's radio: transfers, bits, states, promotions, demotions.
    pub findings: Vec<(Quantity, Finding)>,
    /// Number of used windows.
    pub windows: usize,
    /// Median length of a window.
    pub window: Span,
    /// Median interval between samples of the monitor.
    pub sample_interval: Span,
    /// Explained share of the variance.
    pub explained_variance: f64,
    /// Seconds to add to the monitor's times: plus or minus about half a sample. `None` unless that
    /// more than halves the unexplained squares.
    pub offset: Option<f64>,
}

impl Powers {
    /// The value of a quantity, if it was determined.
    pub fn determined(&self, quantity: Quantity) -> Option<FittedValue> {
        self.findings.iter().find_map(|(one, finding)| match finding {
            Finding::Determined(fitted) if *one == quantity => Some(*fitted),
            _ => None,
        })
    }
}

/// Reason why monitor samples yield no powers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PowerFitError {
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
/// packets. The fit uses the profile's powers only for DRX cycles: if a stay ends within a cycle,
/// the deviation of its on durations from the mean is subtracted from the measured energy. The mean
/// of these deviations is added to the state's power again, so that it is what the monitor measured
/// in this trace. Windows must be longer than a promotion.
#[derive(Clone, Debug)]
pub struct PowerFit {
    timeline: Timeline,
    /// Mean power of each state in the profile, in watts.
    means: Vec<f64>,
    quantities: Vec<Quantity>,
    sample_interval: Span,
    /// The monitor's windows, unchanged, earlier and later.
    shifted: [ShiftedWindows; 3],
    /// Seconds by which the second and third are shifted.
    shift: f64,
    first_packet: Option<Time>,
}

/// Windows with their rows of the design matrix.
#[derive(Clone, Debug)]
struct ShiftedWindows {
    windows: Vec<Window>,
    /// Amount of each quantity in each window, row by row; ends at the last window with a segment.
    design: Vec<f64>,
    /// Nanoseconds of each row in which the state is known.
    known_nanos: Vec<u64>,
    /// Seconds of each column of a power, and the joules assumed for it.
    stays: Vec<(f64, f64)>,
    /// Index of the first window that the next segment can overlap.
    next_window: usize,
}

impl PowerFit {
    /// Creates a fit of these samples, before the first packet of the trace.
    ///
    /// # Errors
    /// Fails if there are too many windows.
    pub fn new(profile: &Profile, monitor: Monitor) -> Result<Self, PowerFitError> {
        let (sampled, windows) = monitor.windows()?;
        let late = (HALF_SAMPLE * sampled.as_secs_f64()).max(MIN_CLOCK_ERROR.as_secs_f64());
        let quantities = quantities(profile);
        // With powers of zero and energies of one joule, the joules of a segment are the amount of
        // its energy quantity; the amount of a transfer's power is its seconds.
        let mut units = profile.clone();
        [units.transfer.send, units.transfer.receive] = [Power::watts(0.0); 2];
        let one = Energy::joules(1.0);
        [units.transfer.send_per_mbit, units.transfer.receive_per_mbit] = [one; 2];
        for (index, state) in units.states.iter_mut().enumerate() {
            let unit = |quantity| match quantities.contains(&quantity) {
                true => one,
                false => Energy::ZERO,
            };
            state.promotion = unit(Quantity::Promotion(index));
            state.demotion = unit(Quantity::Demotion(index));
        }
        Ok(Self {
            timeline: Timeline::new(&units),
            means: profile.states.iter().map(|state| state.mean_power().as_watts()).collect(),
            quantities,
            sample_interval: sampled,
            shifted: [0.0, -late, late].map(|late| ShiftedWindows::new(&windows, late)),
            shift: late,
            first_packet: None,
        })
    }

    /// Adds a packet of the trace.
    pub fn push_packet(&mut self, packet: &Packet) {
        self.first_packet.get_or_insert(packet.at);
        let mut segments = Vec::new();
        self.timeline.push(packet, |segment| segments.push(segment));
        segments.iter().for_each(|segment| self.push_segment(segment));
    }

    fn push_segment(&mut self, segment: &Segment) {
        let (power, energy, joules) = match segment.phase {
            Phase::Transfer(way) => {
                (Some(Quantity::Transfer(way)), Some(Quantity::PerMbit(way)), segment.joules)
            }
            Phase::Promotion(state) => (None, Some(Quantity::Promotion(state)), segment.joules),
            Phase::Demotion(state) => (None, Some(Quantity::Demotion(state)), segment.joules),
            Phase::State(state) => {
                let secs = segment.end.since(segment.start).as_secs_f64();
                let more = segment.joules - self.means[state] * secs;
                (Some(Quantity::State(state)), None, more)
            }
        };
        let column = |wanted: Option<Quantity>| {
            wanted.and_then(|wanted| self.quantities.iter().position(|one| *one == wanted))
        };
        let (power, energy) = (column(power), column(energy));
        let part = SegmentShare {
            start: segment.start.as_nanos(),
            end: segment.end.as_nanos(),
            power,
            energy,
            joules,
        };
        let columns = self.quantities.len();
        self.shifted.iter_mut().for_each(|windows| windows.add(&part, columns));
    }

    /// Ends the trace and fits.
    ///
    /// # Errors
    /// Fails if trace and monitor have too few windows in common.
    pub fn finish(mut self) -> Result<Powers, PowerFitError> {
        let mut segments = Vec::new();
        self.timeline.finish(|segment| segments.push(segment));
        segments.iter().for_each(|segment| self.push_segment(segment));
        let columns = self.quantities.len();
        let first = self.first_packet.map_or(0, Time::as_nanos);
        let excess = self.shifted[0].cycle_excess(columns);
        let [(system, mut lengths), earlier, later] =
            self.shifted.map(|lane| lane.system(columns, first));
        let windows = lengths.len();
        if windows < 2 * columns {
            return Err(PowerFitError::TooFew(windows));
        }
        let (_, usual, _) = lengths.select_nth_unstable(windows / 2);
        let window = Span::from_nanos(*usual);
        let solved = solve(&system, &[earlier.0, later.0]);
        // As measured, without the correction.
        let seen = || system.measured.iter().zip(&system.assumed).map(|(seen, taken)| seen + taken);
        let squares: f64 = seen().map(|joules| joules * joules).sum();
        let [earlier, now, later] = solved.mean_squares;
        let best = if earlier < later { -self.shift } else { self.shift };
        // Residuals from rounding errors are not evidence.
        let is_better = earlier.min(later) < now / 2.0 && now > 1e-12 * squares / windows as f64;
        let mean = seen().sum::<f64>() / windows as f64;
        let spread: f64 = seen().map(|joules| (joules - mean).powi(2)).sum();
        // Without variance above rounding errors the explained share is 0.
        let explained = if spread > 1e-18 * squares { 1.0 - solved.residual / spread } else { 0.0 };
        let finding = |(column, excess): (Column, f64)| match column {
            Column::Absent => Finding::Unobserved,
            Column::Determined { value, error, assumption } => Finding::Determined(FittedValue {
                cycle_excess: excess,
                whole_cycles_error: error.hypot(assumption),
                // The monitor measured what the assumption has moved away and back.
                ..FittedValue::new(value + excess, error.hypot(assumption - excess))
            }),
            Column::Indistinguishable(others) => Finding::Indistinguishable(
                others.into_iter().map(|other| self.quantities[other]).collect(),
            ),
        };
        let findings = solved.columns.into_iter().zip(excess).map(finding);
        Ok(Powers {
            findings: self.quantities.iter().copied().zip(findings).collect(),
            windows,
            window,
            sample_interval: self.sample_interval,
            explained_variance: explained.max(0.0),
            offset: is_better.then_some(best),
        })
    }
}

/// A segment of the timeline, assigned to columns of the design matrix.
struct SegmentShare {
    start: u64,
    end: u64,
    /// Column of its seconds.
    power: Option<usize>,
    /// Column of its joules; if `None`, the joules are subtracted from the measured energy.
    energy: Option<usize>,
    joules: f64,
}

impl ShiftedWindows {
    fn new(windows: &[Window], late: f64) -> Self {
        let late = (late * 1e9) as i64;
        let shifted = |window: &Window| {
            let start = window.start.checked_add_signed(late)?;
            Some(Window { start, end: window.end.checked_add_signed(late)?, ..*window })
        };
        let windows = windows.iter().filter_map(shifted).collect();
        Self {
            windows,
            design: Vec::new(),
            known_nanos: Vec::new(),
            stays: Vec::new(),
            next_window: 0,
        }
    }

    /// Segments arrive in order of time.
    fn add(&mut self, part: &SegmentShare, columns: usize) {
        let SegmentShare { start: begins, end: ends, power, energy, joules } = *part;
        while self.windows.get(self.next_window).is_some_and(|window| window.end <= begins) {
            self.next_window += 1;
        }
        self.stays.resize(columns, (0.0, 0.0));
        let overlaps = |window: &Window| window.start < ends.max(begins + 1);
        for index in self.next_window..self.windows.len() {
            let window = &mut self.windows[index];
            if !overlaps(window) {
                break;
            }
            if self.known_nanos.len() <= index {
                self.known_nanos.resize(index + 1, 0);
                self.design.resize((index + 1) * columns, 0.0);
            }
            let nanos = ends.min(window.end).saturating_sub(begins.max(window.start));
            // A segment without duration is in one window only.
            let share = if begins == ends { 1.0 } else { nanos as f64 / (ends - begins) as f64 };
            let row = &mut self.design[index * columns..][..columns];
            if let Some(power) = power {
                let secs = Span::from_nanos(nanos).as_secs_f64();
                row[power] += secs;
                self.stays[power].0 += secs;
                self.known_nanos[index] += nanos;
            }
            match energy {
                Some(energy) => row[energy] += joules * share,
                None => {
                    if let Some(power) = power {
                        self.stays[power].1 += joules * share;
                    }
                    window.joules -= joules * share;
                    window.assumed_joules += joules * share;
                }
            }
        }
    }

    /// Mean of the assumed power in each column, in watts, over the time that the monitor measured.
    fn cycle_excess(&self, columns: usize) -> Vec<f64> {
        let mean = |(secs, joules): &(f64, f64)| if *secs > 0.0 { joules / secs } else { 0.0 };
        let mut excess: Vec<f64> = self.stays.iter().map(mean).collect();
        excess.resize(columns, 0.0);
        excess
    }

    /// The windows in which the states are known throughout, and their lengths. The state before
    /// the `first` packet is unknown.
    fn system(self, columns: usize, first: u64) -> (System, Vec<u64>) {
        let mut system = System { columns, ..System::default() };
        let mut lengths = Vec::new();
        let mut before = None;
        let rows = self.design.chunks_exact(columns).zip(&self.known_nanos);
        for (window, (row, known)) in self.windows.iter().zip(rows) {
            let duration = window.end - window.start;
            if *known != duration || duration == 0 || window.start <= first {
                continue;
            }
            lengths.push(duration);
            system.design.extend(row);
            system.measured.push(window.joules);
            system.assumed.push(window.assumed_joules);
            system.is_consecutive.push(before == Some(window.start));
            before = Some(window.end);
        }
        (system, lengths)
    }
}

/// The quantities of a radio. Promotions and demotions are those with an energy or delay in the
/// profile, and those of the first released state.
fn quantities(profile: &Profile) -> Vec<Quantity> {
    let ways = [Direction::Up, Direction::Down];
    let released = profile.states.iter().position(|state| state.is_idle);
    let states = || profile.states.iter().enumerate();
    let promotions = states().skip(1).filter(|(_, state)| {
        state.is_idle || state.promotion > Energy::ZERO || !state.promotion_delay.is_zero()
    });
    let demotions = states()
        .skip(1)
        .filter(|(index, state)| released == Some(*index) || state.demotion > Energy::ZERO);
    ways.map(Quantity::Transfer)
        .into_iter()
        .chain(ways.map(Quantity::PerMbit))
        .chain((0..profile.states.len()).map(Quantity::State))
        .chain(promotions.map(|(index, _)| Quantity::Promotion(index)))
        .chain(demotions.map(|(index, _)| Quantity::Demotion(index)))
        .collect()
}

#[cfg(test)]
mod tests;
