//! The network for each transfer: completion times are predicted from the indicators of the networks, and
//! the best choice for an objective is taken.
//!
//! Source: Delphi (S. Deng, A. Sivaraman, H. Balakrishnan; Deng's thesis, chapter 3). Each module
//! names what differs.
//!
//! [`Monitor`] has the indicators of a network and decides when probing it is worth its bytes.
//! [`History`] knows how large the transfers of an application are. [`Goal`] rates a prediction, and
//! a [`Selector`] takes the best choice, without moving to and fro; a [`Keeper`] watches what the
//! choice of a long transfer brings.

mod adaptive;
mod baseline;
mod busy;
mod closed_form;
mod decider;
mod energy;
mod features;
mod goal_file;
mod history;
mod indicator;
mod keeper;
pub mod model;
mod objective;
mod selector;
pub mod simulate;
mod steering;
pub mod transfers;

pub use self::adaptive::{Monitor, ProbeDecision, ProbeLimits, probing_error};
pub use self::baseline::{Baseline, BaselinePolicy, NetworkKind, NetworkView, UnknownBaseline};
pub use self::busy::{BusyMeter, Traffic};
pub use self::closed_form::LinkEstimate;
pub use self::decider::{Decider, Decision, Network, Override, Rated, Request, Unusable};
pub use self::energy::TransferEnergy;
pub use self::features::{Feature, Features, Role};
pub use self::goal_file::GoalError;
pub use self::history::{History, HistoryEntry, HistoryKey, Sizes, Specificity};
pub use self::indicator::{Indicator, Indicators, Known, Source};
pub use self::keeper::Keeper;
pub use self::objective::{Goal, Prediction, Supply, Terms, expected};
pub use self::selector::{Candidate, Kept, Selection, SelectionReason, Selector};
pub use self::steering::{
    Action, Lane, LaneState, MAX_NETWORKS, NetworkFacts, Settings, Stage, StageResult, Steering,
};

/// The networks that a transfer uses, by their index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Choice {
    /// One network.
    Only(usize),
    /// Two networks; the connection begins on the first one.
    Both(usize, usize),
}

impl Choice {
    pub fn networks(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Only(one) => (one, None),
            Self::Both(first, second) => (first, Some(second)),
        };
        [Some(first), second].into_iter().flatten()
    }
}
