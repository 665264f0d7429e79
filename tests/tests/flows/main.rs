//! Analysis of real TCP between real programs, over links with known properties.
//!
//! The true values are the lab's configuration (delays, rates), its captures of dropped packets,
//! and the arguments of both endpoints; the capture is tcpdump's.

mod applications;
mod command;
mod compare;
mod incomplete;
mod limits;
mod live;
mod loss;
mod names;
mod phone;
mod quic;
mod rows;
mod rtt;
mod testbed;
mod web;
mod windows;
