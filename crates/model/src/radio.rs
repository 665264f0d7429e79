//! Energy of a radio, and policies that save it.
//!
//! After the last packet a cellular radio stays connected for seconds. This tail can take more
//! energy than all transfers together. A [`Profile`] contains power and timers of each radio state;
//! [`profiles`] has the built-in ones. [`TailEnergy`] is the energy of a gap over its length, and
//! [`SleepTradeoff`] compares the network's timers with fast dormancy. [`workload`] generates
//! traces of applications, [`Packet`] by [`Packet`].
//!
//! A [`Policy`] decides how long the radio stays connected after a packet; [`PolicySpec`] creates
//! one from its text. A [`Simulation`] applies a policy to a trace, [`control`] applies it to live
//! traffic, and a [`Meter`] sums the energy.

pub mod burst;
pub mod calibrate;
pub mod change;
pub mod compare;
pub mod control;
pub mod csv;
mod delay_tolerance;
pub mod energy;
pub mod gap_sweep;
pub mod infer;
mod measurements;
mod meter;
mod packet;
mod policy;
mod policy_spec;
pub mod powers;
pub mod probes;
pub mod profile;
pub mod profiles;
mod sampler;
mod session;
mod share;
mod simulate;
mod state_machine;
pub mod sweep;
mod tail_energy;
pub mod timeline;
mod trace_profile;
mod unit;
pub mod whatif;
pub mod workload;

pub use delay_tolerance::{DelayTolerance, DelayToleranceError};
pub use measurements::{MeasuredProfile, TooManyTimers};
pub use meter::{Account, Meter, Oracle};
pub use packet::{Direction, Packet};
pub use policy::{
    CombinedPolicy, ContextPolicy, DelayPolicy, LearnedDelay, MakeIdle, NEVER, Policy,
    PrintedMakeIdle, StatusQuo, Timer,
};
pub use policy_spec::{POLICIES, Parameter, PolicyInfo, PolicySpec, PolicySpecError, Priors};
pub use profile::{Profile, ProfileError, Technology};
pub use sampler::Sampler;
pub use session::{App, Apps, BURST_GAP, MAX_APPS, Sessions};
pub use share::{EnergyShare, EnergyShares};
pub use simulate::{Decider, Delays, Outcome, Simulation, SwitchAccuracy};
pub use state_machine::{StateChange, StateMachine};
pub use tail_energy::{SleepTradeoff, TailEnergy};
pub use trace_profile::{GapHistogram, TraceProfile};
pub use unit::{Energy, Power};

/// The span of these seconds.
#[cfg(test)]
fn span(secs: f64) -> manyways_unit::Span {
    manyways_unit::Span::from_secs_f64(secs)
}
