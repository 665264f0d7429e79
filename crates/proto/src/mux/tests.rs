mod datagrams;
mod faults;
mod message;
mod random;
mod scenarios;
mod world;
