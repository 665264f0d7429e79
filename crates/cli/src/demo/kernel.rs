//! Subflows of the kernel's Multipath TCP, from its counters and sockets.

use manyways_lab::{Lab, Place};
use manyways_rig::launch::{DriveError, system};
use manyways_rig::programs::program;
use manyways_rig::sockets::{counter, sockets};
use manyways_unit::Span;
use serde::Serialize;

/// When the sockets are listed: after both subflows exist and before the end of the download.
const LOOK_AT: Span = Span::from_millis(2000);

/// MPTCP counters of one download.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mptcp {
    /// Connections that used MPTCP after the handshake.
    pub connections: u64,
    /// Additional subflows.
    pub joined: u64,
    /// Connections that fell back to plain TCP.
    pub fallbacks: u64,
    /// Congestion control of each subflow in the middle of the download, at the server, which is
    /// the sender; empty if `ss` is not installed.
    pub congestion_control: Vec<String>,
}

impl Mptcp {
    /// Formats the result as a phrase.
    pub fn describe(&self) -> String {
        if self.connections == 0 {
            return "no MPTCP: the connection is plain TCP".to_owned();
        }
        let mut words = match self.connections + self.joined {
            1 => "1 subflow".to_owned(),
            count => format!("{count} subflows"),
        };
        if !self.congestion_control.is_empty() {
            words.push_str(&format!(" ({})", self.congestion_control.join(", ")));
        }
        if self.fallbacks > 0 {
            words.push_str(", fell back to plain TCP");
        }
        words
    }
}

/// Whether the lab's kernel supports MPTCP; the reason if not.
pub fn available(lab: &Lab) -> Result<(), String> {
    let setting =
        lab.namespace(Place::Device).run(|| std::fs::read_to_string("/proc/sys/net/mptcp/enabled"));
    match setting {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(_) => Err("MPTCP is switched off (sysctl net.mptcp.enabled)".to_owned()),
        Err(_) => Err("this kernel has no MPTCP".to_owned()),
    }
}

/// Measures kernel MPTCP from before a download until after it.
pub struct Watcher {
    before: Counters,
    subflows: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    connections: u64,
    joined: u64,
    fallbacks: u64,
}

impl Watcher {
    pub fn start(lab: &Lab) -> Result<Self, DriveError> {
        Ok(Self { before: counters(lab)?, subflows: None })
    }

    /// Lists the sockets once, in the middle of the download.
    pub fn look(&mut self, lab: &Lab, elapsed: Span) {
        if self.subflows.is_none() && elapsed >= LOOK_AT {
            self.subflows = Some(subflows(lab).unwrap_or_default());
        }
    }

    pub fn finish(self, lab: &Lab) -> Result<Mptcp, DriveError> {
        let after = counters(lab)?;
        Ok(Mptcp {
            connections: after.connections - self.before.connections,
            joined: after.joined - self.before.joined,
            fallbacks: after.fallbacks - self.before.fallbacks,
            congestion_control: self.subflows.unwrap_or_default(),
        })
    }
}

fn counters(lab: &Lab) -> Result<Counters, DriveError> {
    let text = lab
        .namespace(Place::Device)
        .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))
        .map_err(system("read the kernel's counters"))?;
    let counter = |name: &str| counter(&text, "MPTcpExt:", name).unwrap_or_default();
    Ok(Counters {
        connections: counter("MPCapableSYNACKRX"),
        joined: counter("MPJoinSynAckRx"),
        fallbacks: counter("MPCapableFallbackSYNACK") + counter("MPCapableDataFallback"),
    })
}

/// The congestion control of each subflow at the server; `None` if `ss` is not installed.
fn subflows(lab: &Lab) -> Option<Vec<String>> {
    let found = sockets(lab, &program("ss")?, Place::Host(0)).ok()?;
    Some(found.into_iter().filter(|socket| socket.mptcp).map(|socket| socket.control).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_said() {
        let used = Mptcp {
            connections: 1,
            joined: 1,
            fallbacks: 0,
            congestion_control: vec!["cubic".into(), "cubic".into()],
        };
        assert_eq!(used.describe(), "2 subflows (cubic, cubic)");
        assert_eq!(Mptcp::default().describe(), "no MPTCP: the connection is plain TCP");
    }
}
