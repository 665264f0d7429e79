//! Rules that select the bitrate of the next segment of a film (adaptive bitrate, ABR).
//!
//! A [`Rule`] decides from a [`View`] of the player: the level of its buffer, and an estimate of the
//! network ([`estimate`]). Each rule is a module with its source and its deviations from it.

mod bba;
mod bola;
mod bola_e;
mod cba;
mod dynamic;
pub mod estimate;
mod mpc;
#[cfg(test)]
mod tests;
mod throughput;

use manyways_unit::Span;

use self::estimate::NetworkEstimate;
use super::film::Film;

/// A selectable rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleName {
    /// Capacity-based: the highest bitrate that the estimate of the throughput can carry.
    Cba,
    /// Buffer-based.
    Bba,
    Bola,
    BolaE,
    /// Capacity-based with margins, as in dash.js.
    Throughput,
    /// [`RuleName::Throughput`] while the buffer is low, then [`RuleName::Bola`].
    Dynamic,
    RobustMpc,
    /// Always this rung, or the highest one below it.
    Fixed(usize),
}

impl RuleName {
    /// All rules that adapt.
    pub const ADAPTIVE: [Self; 7] = [
        Self::Cba,
        Self::Bba,
        Self::Bola,
        Self::BolaE,
        Self::Throughput,
        Self::Dynamic,
        Self::RobustMpc,
    ];

    /// Creates the rule, for a film and the maximum level of the buffer.
    pub fn create(self, film: &Film, max_buffer: Span) -> Box<dyn Rule> {
        let max_buffer = max_buffer.as_secs_f64();
        match self {
            Self::Cba => Box::new(cba::Cba),
            Self::Bba => Box::new(bba::Bba::new(max_buffer)),
            Self::Bola => Box::new(bola::Bola::new(film, max_buffer)),
            Self::BolaE => Box::new(bola_e::BolaE::new(film, max_buffer)),
            Self::Throughput => Box::new(throughput::Throughput::default()),
            Self::Dynamic => Box::new(dynamic::Dynamic::new(film, max_buffer)),
            Self::RobustMpc => Box::new(mpc::RobustMpc::new(max_buffer)),
            Self::Fixed(rung) => Box::new(Fixed(rung)),
        }
    }
}

impl std::fmt::Display for RuleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cba => "cba",
            Self::Bba => "bba",
            Self::Bola => "bola",
            Self::BolaE => "bola-e",
            Self::Throughput => "throughput",
            Self::Dynamic => "dynamic",
            Self::RobustMpc => "robust-mpc",
            Self::Fixed(rung) => return write!(f, "fixed:{rung}"),
        })
    }
}

/// Names no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no rule; the rules are {names} and fixed:RUNG", names = names())]
pub struct UnknownRule(String);

fn names() -> String {
    RuleName::ADAPTIVE.map(|rule| rule.to_string()).join(", ")
}

impl std::str::FromStr for RuleName {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let unknown = || UnknownRule(text.to_owned());
        if let Some(rung) = text.strip_prefix("fixed:") {
            return rung.parse().map(Self::Fixed).map_err(|_| unknown());
        }
        Self::ADAPTIVE.into_iter().find(|rule| rule.to_string() == text).ok_or_else(unknown)
    }
}

/// State of a player, as a rule sees it. Times are in seconds, and rates in bits per second.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub film: &'a Film,
    /// Index of the next segment to fetch, or of the one that is being fetched.
    pub segment: usize,
    /// Duration of the content in the buffer.
    pub level: f64,
    /// `None` before the first segment.
    pub network: Option<NetworkEstimate>,
    /// Rung of the latest complete segment.
    pub last: Option<usize>,
}

/// A decision about the next segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    pub rung: usize,
    /// Seconds to wait before the request.
    pub wait: f64,
}

/// A segment of which some bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub rung: usize,
    /// Bits of the whole segment.
    pub size: f64,
    /// Bits that have arrived.
    pub received: f64,
    /// Since the request.
    pub elapsed: f64,
    /// From the request to the first byte.
    pub first_byte: f64,
}

/// A download that has ended: complete, or abandoned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    pub rung: usize,
    /// Bits that have arrived.
    pub received: f64,
    /// From the request to the end.
    pub elapsed: f64,
    /// From the request to the first byte.
    pub first_byte: f64,
    /// The rung for the same segment, if this one was abandoned.
    pub abandoned_for: Option<usize>,
}

/// A rule of one film. The first segment is always fetched at the lowest rung, because nothing is known.
pub trait Rule: std::fmt::Debug + Send {
    /// Selects the rung of [`View::segment`].
    fn decide(&mut self, view: &View<'_>) -> Decision;

    /// The player has waited so many seconds because its buffer was full.
    fn on_full(&mut self, _seconds: f64) {}

    /// A download has ended. A complete segment is already in the buffer of the view.
    fn on_ended(&mut self, _view: &View<'_>, _ended: &Ended) {}

    /// The rung for which the download should be abandoned, if any.
    fn abandon(&mut self, _view: &View<'_>, _progress: &Progress) -> Option<usize> {
        None
    }
}

/// Always the same rung.
#[derive(Debug)]
struct Fixed(usize);

impl Rule for Fixed {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        Decision { rung: self.0.min(view.film.highest()), wait: 0.0 }
    }
}

/// The highest rung whose segments arrive within their own duration at `throughput`, latency
/// included; the lowest one if there is none.
fn sustainable(film: &Film, throughput: f64, latency: f64) -> usize {
    let duration = film.usual_duration().as_secs_f64();
    let fits = |rung: &usize| latency + duration * film.bitrate(*rung) / throughput <= duration;
    (1..film.rungs().len()).take_while(fits).last().unwrap_or(0)
}

/// Logarithmic utility of each rung, which is `lowest` for the lowest one.
fn utilities(film: &Film, lowest: f64) -> Vec<f64> {
    let offset = lowest - film.bitrate(0).ln();
    film.rungs().iter().map(|rate| (rate.as_bps() as f64).ln() + offset).collect()
}
