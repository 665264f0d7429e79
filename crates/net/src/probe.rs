//! Probes: measurements of one network, whose maximum cost is known before they start.
//!
//! A [`Probe`] checks its parameters and describes its transfers ([`Probe::plan`]). [`measure`] waits
//! until no other probe uses the interface, runs the probe within its prediction, and returns a
//! [`Report`] with the context of the measurement. A probe that ends early keeps what it measured
//! until then. The evaluation of measurements is in [`manyways_model::probe`].

mod browsing;
mod compare;
mod contract;
mod dns;
mod document;
mod exec;
pub mod film;
mod http;
mod load;
mod network;
mod page;
mod pause;
mod peer;
mod ping;
mod portal;
mod queue;
mod report;
mod row;
mod rrc;
mod series;
pub mod server;
mod tcp;
mod trace;
mod udp;
mod video;

pub use compare::{Compare, CompareReport, ComparedNetwork, PURPOSES};
pub use contract::{InvalidParameter, Options, Probe, ProbeError, Progress, Run, Running, measure};
pub use dns::{Dns, DnsReport, QueryOutcome, QueryReport};
pub use document::{CompareDocument, Document};
pub use exec::{Exec, ExecReport};
pub use http::{Http, HttpReport, HttpVersion, Phases};
pub use load::{Load, LoadReport, LoadedDirection};
pub use network::{Network, Traffic};
pub use page::{
    Cause, ExplainedPath, ExplainedStep, Explanation, InvalidWhatIf, Page, PageError, PageName,
    PageReport, PageRun, PageTimings, Predicted, WhatIf, page_archive, read_page_load,
};
pub use pause::{PauseControl, PauseSignal};
pub use peer::client::ProbeServer;
pub use peer::message::{self, Direction};
pub use ping::{Ping, PingMethod};
pub use portal::{Portal, PortalReport};
pub use report::{Context, Ending, Measurement, PingReport, Report};
pub use row::write_table;
pub use rrc::{Rrc, RrcReport};
pub use series::{Series, SeriesRow};
pub use tcp::{Tcp, TcpReport, TcpSample};
pub use trace::{Trace, TraceMethod, TraceReport};
pub use udp::{Udp, UdpReport};
pub use video::{
    Carriage, Carried, DashJs, FilmFacts, FilmPlayer, RungFacts, SessionDocument, Video,
    VideoReport,
};
