//! The time of a change: from the request of a choice to the first packet of data of a running
//! stream on the new path, and until the kernel applies a choice for new connections.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use manyways_lab::Node;
use manyways_net::bond::ChoiceRequest;
use manyways_net::bond::control::{BondRole, ControlRequest, ControlResponse};
use manyways_net::steer::event::SteerEvent;
use manyways_net::steer::protocol::{PreferRequest, SERVICE, SteerRequest, SteerResponse};
use manyways_rig::launch::{DriveError, system};
use manyways_rig::links::link;
use manyways_sys::capture::{Options, Ring};
use manyways_sys::interface;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::CapacitySpec;
use manyways_unit::{Rate, Size, Span};
use serde::Serialize;

use super::bond_lab::{BondLab, Way};
use crate::bond::testbed::Programs;

/// Names of the networks.
const NETWORKS: [&str; 2] = ["wifi", "lte"];
/// Pairs of their delays in one direction, in milliseconds.
pub const DELAYS: [[u64; 2]; 2] = [[1, 1], [5, 15]];
/// Changes of each kind.
const CHANGES: usize = 40;
const DOWN: Rate = Rate::from_mbps(10);
const UP: Rate = Rate::from_mbps(5);
/// Acknowledgements and signs of life are smaller than a packet of data.
const DATA: usize = 600;
/// The queue of a link, of 150 ms, is empty after half of this time without data.
const SILENCE: f64 = 0.3;
/// Seconds in which data must arrive on the chosen path, and none on the other one.
const PATIENCE: f64 = 5.0;
const POLL: Duration = Duration::from_millis(5);
/// Longer than all moves of a lab take; the lab ends it.
const LENGTH: Span = Span::from_secs(600);
/// The type of a captured packet that is for this host.
const RECEIVED: u8 = 0;

/// A move of a running stream.
#[derive(Clone, Debug, Serialize)]
pub struct Move {
    /// Delays of Wi-Fi and LTE in one direction, in milliseconds.
    pub delays: [u64; 2],
    /// The new path, and its round trip.
    pub to: &'static str,
    pub round_trip_millis: f64,
    /// From the request to the first packet; `None` if none came in time.
    pub millis: Option<f64>,
}

/// All changes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changes {
    pub moves: Vec<Move>,
    /// Milliseconds until the kernel applied a choice for new connections.
    pub new_flows: Vec<f64>,
}

/// Measures changes of both kinds, into `all`.
///
/// # Errors
/// If a lab fails, or a signal ends the benchmark. The changes before it are in `all`.
pub fn changes(
    programs: &Programs,
    termination: &Termination,
    all: &mut Changes,
) -> Result<(), DriveError> {
    for delays in DELAYS {
        let specification = |(name, delay): (&str, u64)| {
            link(name, CapacitySpec::Constant(DOWN), UP, Span::from_millis(2 * delay))
        };
        let links = NETWORKS.into_iter().zip(delays).map(specification);
        let links: Vec<_> = links.collect();
        let lab = BondLab::start(&links, programs, termination)?;
        if all.new_flows.is_empty() {
            all.new_flows = new_flows(&lab)?;
        }
        moves(&lab, delays, &mut all.moves)?;
    }
    Ok(())
}

/// Alternates the preferred network of a `steer run`.
fn new_flows(lab: &BondLab<'_>) -> Result<Vec<f64>, DriveError> {
    let events = "events-new-flows";
    let mut steer = lab.steer::<&str>(&[], events)?;
    let mut applied = Vec::new();
    for change in 0..=CHANGES {
        let found = wait(|| {
            // The log is not there at first.
            let found = lab.events(events).map(|log| log.records).unwrap_or_default();
            let choices = found.into_iter().filter_map(|record| match record.event {
                SteerEvent::SteerChoice { flows, networks, seconds, .. }
                    if flows == "new-flows" =>
                {
                    Some((networks, seconds))
                }
                _ => None,
            });
            choices.skip(change).last()
        });
        let (networks, seconds) = found.ok_or_else(|| late("a choice for new connections"))?;
        let seconds = seconds.ok_or_else(|| late("the kernel"))?;
        // The first choice is not a change.
        if change > 0 {
            applied.push(seconds * 1e3);
        }
        let is_wifi = networks.first().is_some_and(|one| one == NETWORKS[0]);
        let other = NETWORKS[usize::from(is_wifi)].to_owned();
        let request = PreferRequest { network: Some(other), seconds: 600.0, app: None };
        match lab.ask(&SERVICE, &SteerRequest::Prefer(request))? {
            SteerResponse::Preferred { .. } => {}
            other => return Err(DriveError::Server(format!("steer run answers {other:?}"))),
        }
    }
    lab.end(&mut steer)?;
    Ok(applied)
}

/// Moves a download from path to path.
fn moves(lab: &BondLab<'_>, delays: [u64; 2], all: &mut Vec<Move>) -> Result<(), DriveError> {
    let namespace = lab.launcher.lab.namespace(Node::Device(0));
    let listed = namespace
        .run(|| interface::devices().map_err(std::io::Error::other))
        .map_err(system("list the interfaces of a lab"))?;
    let index = |name: &str| listed.iter().find(|one| one.name == name).map(|one| one.index);
    let indices = NETWORKS.map(|name| index(name).unwrap_or_default());
    let options = Options {
        interface: None,
        cooked: true,
        snap_length: 64,
        buffer: Size::from_mib(16),
        promiscuous: false,
    };
    let ring = namespace.run(|| Ring::open(&options)).map_err(system("capture in a lab"))?;
    let mut taps = Taps { ring, indices, arrivals: [Vec::new(), Vec::new()] };
    choose(lab, NETWORKS[0])?;
    let mut load = lab.download(Way::Bond, Span::ZERO, LENGTH)?;
    taps.until(|taps| taps.arrivals[0].len() > 100);
    for change in 0..CHANGES {
        // The first move is to LTE.
        let to = 1 - change % 2;
        if !taps.until(|taps| taps.is_silent(to)) {
            return Err(late("the end of data on the path that was left"));
        }
        let since = unix_seconds();
        choose(lab, NETWORKS[to])?;
        taps.until(|taps| taps.first_since(to, since).is_some());
        all.push(Move {
            delays,
            to: NETWORKS[to],
            round_trip_millis: 2.0 * delays[to] as f64,
            millis: taps.first_since(to, since).map(|at| (at - since) * 1e3),
        });
        if lab.launcher.has_ended(&mut load, Span::from_millis(1))? {
            return Err(DriveError::Server("the download ended too early".to_owned()));
        }
    }
    lab.subflows()?;
    let _ = load.kill();
    let _ = load.wait();
    Ok(())
}

/// Data that arrives at the device, by the clock of the kernel.
struct Taps {
    ring: Ring,
    /// Indices of the interfaces.
    indices: [u32; 2],
    /// Seconds since 1970.
    arrivals: [Vec<f64>; 2],
}

impl Taps {
    /// Reads until `is_done`; false if that takes too long.
    fn until(&mut self, is_done: impl Fn(&Self) -> bool) -> bool {
        let begun = Instant::now();
        while !is_done(self) {
            if begun.elapsed().as_secs_f64() > PATIENCE {
                return false;
            }
            let Self { ring, indices, arrivals } = self;
            let is_new = ring.read_block(|frame| {
                let path = indices.iter().position(|index| *index == frame.interface);
                if let (RECEIVED, true, Some(path)) = (frame.kind, frame.length > DATA, path) {
                    arrivals[path].push(frame.at.as_secs_f64());
                }
            });
            if !is_new {
                sleep(POLL);
            }
        }
        true
    }

    fn is_silent(&self, path: usize) -> bool {
        self.arrivals[path].last().is_none_or(|last| unix_seconds() - last > SILENCE)
    }

    fn first_since(&self, path: usize, since: f64) -> Option<f64> {
        let from = self.arrivals[path].partition_point(|at| *at < since);
        self.arrivals[path].get(from).copied()
    }
}

fn choose(lab: &BondLab<'_>, path: &str) -> Result<(), DriveError> {
    let service = BondRole::Client.service("default");
    let service = service.map_err(|error| DriveError::Server(error.to_string()))?;
    let paths = vec![path.to_owned()];
    let request = ChoiceRequest { goal: "fast".to_owned(), paths, lease_seconds: None };
    match lab.ask(&service, &ControlRequest::Choose(request))? {
        ControlResponse::Chosen => Ok(()),
        other => Err(DriveError::Server(format!("the client of the bond answers {other:?}"))),
    }
}

/// Polls `ready` until it has a value; `None` if that takes too long.
fn wait<T>(mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let value = ready();
        // A run begins with a list of networks, and the machine may be busy.
        if value.is_some() || begun.elapsed().as_secs_f64() > 2.0 * PATIENCE {
            return value;
        }
        sleep(POLL);
    }
}

fn late(what: &str) -> DriveError {
    DriveError::Server(format!("{what} is late"))
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
