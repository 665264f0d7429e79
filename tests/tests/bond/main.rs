//! `manyways bond` from the user's side: a device with two networks, a gateway, and servers behind
//! the gateway. Each has a separate kernel stack. The main subjects are invalid input and faulty
//! networks.
//!
//! No test measures time. A test waits for an event, with a deadline that only a hang reaches.

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
