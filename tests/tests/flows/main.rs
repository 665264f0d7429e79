//! What the analysis says of real TCP between real programs, over links of which the truth is known.
//!
//! The truth is what the lab was told (delays, rates), what it wrote down itself (the packets that
//! it dropped) and what both ends were told to do; the capture is tcpdump's.

mod applications;
mod command;
mod compare;
mod cuts;
mod limits;
mod live;
mod loss;
mod names;
mod phone;
mod quic;
mod rows;
mod rtt;
mod web;
mod windows;
mod world;
