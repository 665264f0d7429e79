//! Radios of this device, watched and asked as `manyways-model` decides.

pub mod control;
