//! Recorded or generated link behaviour over time: capacity and delay.

use crate::{Rate, Size, Span};

/// A value that holds from one moment to the next, over a period that repeats.
///
/// `steps` is never empty, starts at [`Span::ZERO`], is strictly increasing in time and ends
/// before `period`, which is more than zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps<T> {
    steps: Vec<(Span, T)>,
    period: Span,
}

/// The capacity of one direction of a link over time; it repeats after its period.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkTrace {
    /// Mahimahi's model: at each moment (non-decreasing; several may coincide) the link can deliver
    /// up to `size` bytes; what is not used at that moment is lost.
    Opportunities {
        /// Moments since the start of the period, all at most `period`, at least one.
        at: Vec<Span>,
        /// Bytes an opportunity (Mahimahi: 1504).
        size: Size,
        /// After this the trace starts again; more than zero.
        period: Span,
    },
    /// A rate that changes in steps.
    Rates(Steps<Rate>),
}
