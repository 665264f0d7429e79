//! `manyways bond` as a user meets it: a device with two networks, a gateway, and servers behind
//! the gateway, each with a kernel stack of its own; broken input and broken networks above all.
//!
//! Nothing here is timed. A test waits for something to happen, with a deadline that only a hang
//! reaches.

mod bond;
mod carriers;
mod clock;
mod damage;
mod datagram_rules;
mod datagrams;
mod destinations;
mod doors;
mod ends;
mod impostor;
mod keys;
mod links;
mod many;
mod moving;
mod privileges;
mod proxy;
mod readers;
mod relay;
mod resolver;
mod rules;
mod selections;
mod strangers;
mod traces;
mod world;
