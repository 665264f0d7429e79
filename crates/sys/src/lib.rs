//! Wrappers of the operating system: namespaces, TUN devices, netlink, sockets, firewall rules,
//! file systems, timers, signals.
//!
//! This is the only crate of manyways with `unsafe` code. It makes no decisions and contains
//! nothing about links, schedulers or scenarios. Start with [`tun::Tun`] and [`netns::NetNs`] for
//! the emulator, with [`interface::list`] for the networks of a host, with [`tproxy::Rules`] for
//! redirecting traffic to a proxy, and with [`egress::Egress`] for choosing its network.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod capture;
pub mod clock;
pub mod command;
pub mod egress;
pub mod filesystem;
pub mod input;
pub mod interface;
pub mod memory;
pub mod netns;
pub mod pid;
pub mod poll;
pub mod power;
pub mod privilege;
pub mod process;
pub mod receive_buffers;
pub mod sandbox;
pub mod signal;
pub mod socket;
pub mod terminal;
pub mod thread;
pub mod timer;
pub mod tproxy;
pub mod tun;
pub mod wait;
