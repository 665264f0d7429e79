//! Deciders and estimators over measurements.
//!
//! [`radio`] knows what a device's radio spends on a trace of packets, and what it could save.
//!
//! All of it is pure: it is told what happened and when, and says what that means or what to do. It
//! opens no file, asks no clock, and talks to no modem.
#![forbid(unsafe_code)]

pub mod radio;
