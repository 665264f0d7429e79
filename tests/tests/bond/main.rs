//! `manyways bond` from the user's side: a device with two networks, a gateway, and servers behind
//! the gateway. Each has a separate kernel stack. The main subjects are invalid input and faulty
//! networks.
//!
//! No test measures time. A test waits for an event, with a deadline that only a hang reaches.

mod asleep;
mod authentication;
mod black_holes;
mod bond;
mod budgets;
mod carriers;
mod cleanup;
mod clock;
mod damage;
mod datagram_rules;
mod datagrams;
mod destinations;
mod gateway_addresses;
mod http_proxy;
mod impostor;
mod keys;
mod lenders;
mod lending_rules;
mod links;
mod many_connections;
mod privileges;
mod process_ends;
mod proxies;
mod proxy;
mod proxy_answers;
mod proxy_passwords;
mod readers;
mod relay;
mod resolver;
mod rules;
mod selections;
mod strangers;
mod testbed;
