//! The operating system, wrapped: namespaces, TUN devices, netlink, sockets, firewall rules,
//! timers, signals.
//!
//! This is the only crate of manyways with `unsafe` code, and it decides nothing: it knows no
//! link, no scheduler and no scenario. Start with [`tun::Tun`] and [`netns::NetNs`] for the
//! emulator, with [`interface::list`] for the networks that a host has, and with
//! [`tproxy::Rules`] for bringing its traffic to a proxy.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod capture;
pub mod clock;
pub mod command;
pub mod foreign;
pub mod input;
pub mod interface;
pub mod memory;
pub mod netns;
pub mod pid;
pub mod poll;
pub mod power;
pub mod privilege;
pub mod process;
pub mod sandbox;
pub mod signal;
pub mod socket;
pub mod terminal;
pub mod thread;
pub mod tproxy;
pub mod tun;
pub mod wait;
