//! The powers of a radio, from what a power monitor saw while packets passed.

mod monitor;
mod solve;

use manyways_unit::{Span, Time};

pub use self::monitor::Monitor;
use self::monitor::Window;
use self::solve::{Column, System, solve};
use super::timeline::{Phase, Segment, Timeline};
use super::{Direction, Energy, Packet, Power, Profile};

/// The longest trace: so many windows.
pub const MAX_WINDOWS: usize = 1_000_000;
/// The clocks of trace and monitor agree no better than this, nor than half a sample.
const CLOCKS: Span = Span::from_millis(10);
/// Half a sample, and a little more: what happens at even times is on no edge then.
const HALF: f64 = 0.53;

/// A number of a profile that a power monitor can tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quantity {
    /// The power of a transfer, by the direction of the packets that end its gaps, in watts.
    Transfer(Direction),
    /// The energy of a million bits in a direction, in joules.
    PerMbit(Direction),
    /// The mean power of the state at that place of the profile, in watts, with all else that the
    /// device takes.
    State(usize),
    /// The energy of a promotion out of a state, in joules.
    Promotion(usize),
    /// The energy of a demotion into a state, in joules.
    Demotion(usize),
}

impl Quantity {
    /// Whether it is in watts, and not in joules.
    pub fn is_power(self) -> bool {
        matches!(self, Self::Transfer(_) | Self::State(_))
    }
}

/// A number that was fitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fitted {
    /// Watts, joules, or joules a million bits; never negative.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// What least squares gave without the bound at zero: the value itself, or less than nothing.
    pub free: f64,
}

/// What the trace and the monitor say of a quantity.
#[derive(Clone, PartialEq, Debug)]
pub enum Finding {
    /// Its value.
    Told(Fitted),
    /// It never happens in the windows that were used.
    NotSeen,
    /// It cannot be told apart from these: other values of them explain what was seen as well.
    NotApart(Vec<Quantity>),
}

impl Fitted {
    /// Whether least squares gave less than nothing.
    pub fn is_bounded(&self) -> bool {
        self.free < 0.0
    }
}

/// What was fitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Powers {
    /// Each quantity that the profile's radio has: transfers, bits, states, promotions, demotions.
    pub numbers: Vec<(Quantity, Finding)>,
    /// Windows that were used.
    pub windows: usize,
    /// How long most of them are.
    pub window: Span,
    /// How far apart the monitor's samples usually are.
    pub sampled: Span,
    /// The share of the variance that is explained.
    pub explained: f64,
    /// Seconds to add to the monitor's times, where that leaves less than half as much unexplained: about
    /// half a sample, or less nothing.
    pub offset: Option<f64>,
}

impl Powers {
    /// The value of a quantity, where it is told.
    pub fn told(&self, quantity: Quantity) -> Option<Fitted> {
        self.numbers.iter().find_map(|(one, finding)| match finding {
            Finding::Told(fitted) if *one == quantity => Some(*fitted),
            _ => None,
        })
    }
}

/// Why nothing can be fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPowers {
    /// Trace and monitor have too little in common.
    #[error("only {0} windows have both packets' states and samples of power: too few")]
    TooFew(usize),
    /// There are too many windows.
    #[error("the monitor's samples make more than {MAX_WINDOWS} windows")]
    TooLong,
}

/// Fits powers by least squares: in each window of time, the energy that the monitor saw is the sum of
/// the states' powers by the time in each, of the bits, and of the promotions and demotions in it.
///
/// Windows begin and end where samples do. States are those that the profile's timers give for the
/// packets. Of its powers only those of listening are used: how much more or less than on average a
/// stay that ends within a cycle listens is taken out of what was seen, and is in the errors. Windows
/// have to be longer than a promotion takes.
#[derive(Clone, Debug)]
pub struct Fit {
    timeline: Timeline,
    /// The mean power of each state in the profile.
    means: Vec<f64>,
    quantities: Vec<Quantity>,
    sampled: Span,
    /// The monitor's windows, and the same a little earlier and a little later.
    lanes: [Lane; 3],
    /// How much earlier and later these are, in seconds.
    late: f64,
    first: Option<Time>,
}

/// Windows, and what happens in them.
#[derive(Clone, Debug)]
struct Lane {
    windows: Vec<Window>,
    /// Of the first windows, what there is of each quantity, row by row.
    design: Vec<f64>,
    /// Of these, how many nanoseconds have a known state.
    known: Vec<u64>,
    /// The window of the last segment.
    place: usize,
}

impl Fit {
    /// Takes what a monitor saw, before the first packet of the trace.
    ///
    /// # Errors
    /// Where that is too much.
    pub fn new(profile: &Profile, monitor: Monitor) -> Result<Self, NoPowers> {
        let (sampled, windows) = monitor.windows()?;
        let late = (HALF * sampled.as_secs_f64()).max(CLOCKS.as_secs_f64());
        let quantities = quantities(profile);
        // Its segments' joules are what there is of each quantity: seconds tell a transfer's power.
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

    /// The next packet of the trace.
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

    /// All packets were told.
    ///
    /// # Errors
    /// Where trace and monitor have too little in common.
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
        // As the monitor saw it.
        let seen = || system.seen.iter().zip(&system.assumed).map(|(seen, taken)| seen + taken);
        let squares: f64 = seen().map(|joules| joules * joules).sum();
        let [earlier, now, later] = solved.left;
        let best = if earlier < later { -self.late } else { self.late };
        // What is left of rounding errors says nothing.
        let is_better = earlier.min(later) < now / 2.0 && now > 1e-12 * squares / windows as f64;
        let mean = seen().sum::<f64>() / windows as f64;
        let spread: f64 = seen().map(|joules| (joules - mean).powi(2)).sum();
        // Where nothing but rounding errors varies nothing is explained.
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

/// A segment of the timeline in the columns of a design.
struct Part {
    begins: u64,
    ends: u64,
    /// Where its seconds go.
    power: Option<usize>,
    /// Where its joules go; out of what was seen where there is none.
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

    /// Segments come in the order of time.
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
            // What takes no time is in one window as a whole.
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

    /// The windows of which the states are known throughout, and how long they are. In which state the
    /// `first` packet found the radio is not known.
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

/// What a radio has. Promotions and demotions are those that the profile gives an energy or a delay,
/// and those of its first released state.
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
