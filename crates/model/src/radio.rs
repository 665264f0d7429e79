//! Energy of a radio, and policies that save it.
//!
//! After the last packet a cellular radio stays connected for seconds. This tail can take more
//! energy than all transfers together. A [`Profile`] contains power and timers of each radio state;
//! [`profiles`] has the built-in ones. [`Decay`] is the energy of a gap over its length, and
//! [`Choice`] compares the network's timers with fast dormancy. [`workload`] generates traces of
//! applications, [`Packet`] by [`Packet`].

mod adopt;
pub mod burst;
pub mod change;
pub mod control;
pub mod csv;
mod decay;
mod draw;
pub mod infer;
pub mod ladder;
pub mod machine;
pub mod meter;
mod packet;
pub mod plan;
pub mod policy;
pub mod powers;
pub mod probes;
pub mod profile;
pub mod profiles;
mod session;
mod share;
pub mod simulate;
mod survey;
pub mod timeline;
pub mod tolerant;
mod unit;
pub mod workload;

pub use adopt::{Adopted, TooManyTimers};
pub use decay::{Choice, Decay};
pub use draw::Draw;
pub use machine::Machine;
pub use packet::{Direction, Packet};
pub use profile::Profile;
pub use session::{App, Apps, BURST_GAP, MAX_APPS, Sessions};
pub use share::{Share, Shares};
pub use survey::{Gaps, Survey};
pub use tolerant::{Tolerant, TolerantError};
pub use unit::{Energy, Power};
