//! Costs of probes of a network, and the evaluation of their measurements.
//!
//! Before it starts, a probe is a [`cost::Plan`] with the greatest cost that it may have; while it
//! runs, [`cost::Allowance`] stops it there. [`round_trips`] evaluates echoes, [`burst`] packets of
//! UDP, [`throughput`] a bulk transfer, [`load`] round trips beside one, and [`trace`] the hops of a
//! route. [`dns`] and [`portal`] find networks that answer in the place of others. [`compare`] names the
//! best network for a use.

pub mod burst;
pub mod compare;
pub mod cost;
pub mod dns;
pub mod load;
pub mod portal;
pub mod round_trips;
pub mod throughput;
pub mod trace;
