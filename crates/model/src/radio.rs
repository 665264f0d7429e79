//! Where the energy of a radio goes, and how to save it.
//!
//! After the last packet a cellular radio stays awake for seconds, in case another one comes: the
//! tail, which can take more than all packets together. A [`Profile`] says what a radio takes in
//! which state; those of [`profiles`] come with it. [`Decay`] is the tail, and [`Choice`] what can be
//! done about it. [`workload`] makes traces of what applications send, [`Packet`] by packet.

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
