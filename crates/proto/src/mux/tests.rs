mod faults;
mod message;
mod random;
mod scenarios;
mod world;
