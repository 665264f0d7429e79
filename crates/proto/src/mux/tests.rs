mod datagrams;
mod failover;
mod faults;
mod message;
mod random;
mod scenarios;
mod streams;
mod world;
