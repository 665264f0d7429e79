mod datagrams;
mod failover;
mod message;
mod random;
mod scenarios;
mod simulation;
mod streams;
mod violations;
