//! `manyways bond` with a policy: the networks of its traffic, and its reports.
//!
//! No test measures time. A test waits for an event, with a deadline that only a hang reaches.

mod auto_rules;
mod delay_gate;
mod path_selection;
mod reports;
mod steered;
mod testbed;
