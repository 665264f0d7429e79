//! The bond: a client that intercepts connections, a gateway that connects them to servers, and the
//! carriers between the two.
//!
//! A [`Client`] has carriers to a [`Gateway`] on each path, a [`PathSpec`](crate::path::PathSpec);
//! [`Client::carry`] carries a connection. [`HostNetworks`] keeps one path per network of this host,
//! a [`PolicyEnforcer`] treats connections as a policy requires, and [`Listeners`] and
//! [`interception`] accept connections of applications. `examples/bond.rs` has both ends in one
//! program.

mod allow;
mod carrier;
mod choice;
mod client;
mod client_tasks;
pub mod control;
mod datagrams;
mod delay_gate;
mod descriptors;
mod enforcer;
mod event;
mod flow_counters;
mod flow_facts;
mod gateway;
mod gateway_proof;
mod gateway_status;
mod handshake;
mod host_networks;
mod http_proxy;
pub mod interception;
mod interception_scope;
mod journal;
mod key;
mod lend;
mod listeners;
mod loans;
mod memory;
pub mod metrics;
mod metrics_server;
mod path_monitor;
mod pending_handshakes;
mod process_lookup;
mod proxy_connection;
mod proxy_password;
mod quic;
mod rate_limit;
mod seal;
mod session;
mod socks;
mod status;
mod timer;
mod tls;
mod udp;
mod usage;
mod why;

pub use allow::{
    AllowError, AllowFile, AllowFileError, AllowReason, AuthorizedClient, AuthorizedClients,
};
pub use carrier::CarrierError;
pub use choice::ChoiceRequest;
pub use client::{Client, ClientEvent, ClientOptions, ConnectFailure, Lender, LendingConfig};
pub use delay_gate::{DelayGrant, DelayRequest, GateCommand, GateEvent};
pub use enforcer::PolicyEnforcer;
pub use event::{BondEvent, BondOpen, BondShare};
pub use gateway::{Gateway, GatewayError, GatewayOptions, StatusHandle};
pub use gateway_status::{GatewayStatus, SessionPath, SessionStatus};
pub use handshake::{ForeignMessage, HandshakeError, LossCause};
pub use host_networks::{HostNetworks, LENDER_KIND, LenderError, find_networks};
pub use interception_scope::InterceptionScope;
pub use journal::Journal;
pub use key::{KeyError, PrivateKey, PublicKey};
pub use lend::{
    AddDeviceError, LendError, LendEvent, LendLimit, LendOptions, Lending, LoanStatus, PairError,
    PairFile, PairFileError, PairedDevice, PairedRole, pair,
};
pub use listeners::{Listeners, ProxyOptions};
pub use manyways_proto::bond::choice::ChoiceError;
pub use manyways_proto::bond::dial::{CarrierTransport, TransportChoice};
pub use manyways_proto::bond::egress::EgressFilter;
pub use manyways_proto::bond::interception::AddressFamilies;
pub use manyways_proto::bond::networks::NetworkSelection;
pub use manyways_proto::bond::path::PathState;
pub use manyways_proto::mux::Destination;
pub use proxy_password::{ProxyPassword, ProxyPasswordError};
pub use quic::SetupError;
#[doc(hidden)]
pub use seal::{Opened, SealedWay};
pub use status::{
    EndedStream, LenderStatus, PathBytesStatus, PathStatus, Status, StreamStatus, Totals,
};
#[cfg(feature = "probe")]
pub(crate) use tls::{client as client_tls, peer_key, server as server_tls};
pub use usage::UsageFile;
pub use why::{EntryPoints, WhyPath, WhyQuery, WhyReport, WhyStep};

#[cfg(test)]
mod tests;
