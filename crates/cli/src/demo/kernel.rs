//! What the kernel's Multipath TCP really used: its own counters and sockets say.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use manyways_lab::{Lab, Place};
use manyways_unit::Span;
use serde::Serialize;

/// When the sockets are looked at: after both subflows are there, before the end.
const LOOK_AT: Span = Span::from_millis(2000);

/// What kernel MPTCP did during one download.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mptcp {
    /// Connections that were MPTCP after the handshake.
    pub connections: u64,
    /// Subflows that joined them later.
    pub joined: u64,
    /// Connections that fell back to plain TCP.
    pub fallbacks: u64,
    /// Congestion control of every subflow that was there in the middle of the download, on the
    /// server, which sends; empty where `ss` is not installed.
    pub congestion_control: Vec<String>,
}

impl Mptcp {
    /// In a few words.
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

/// Whether the lab's kernel has MPTCP, or why not.
pub fn available(lab: &Lab) -> Result<(), String> {
    let setting =
        lab.namespace(Place::Device).run(|| std::fs::read_to_string("/proc/sys/net/mptcp/enabled"));
    match setting {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(_) => Err("MPTCP is switched off (sysctl net.mptcp.enabled)".to_owned()),
        Err(_) => Err("this kernel has no MPTCP".to_owned()),
    }
}

/// Watches the kernel from before a download until after it.
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
    pub fn start(lab: &Lab) -> Result<Self> {
        Ok(Self { before: counters(lab)?, subflows: None })
    }

    /// Looks at the sockets once, in the middle of the download.
    pub fn look(&mut self, lab: &Lab, elapsed: Span) {
        if self.subflows.is_none() && elapsed >= LOOK_AT {
            self.subflows = Some(subflows(lab).unwrap_or_default());
        }
    }

    pub fn finish(self, lab: &Lab) -> Result<Mptcp> {
        let after = counters(lab)?;
        Ok(Mptcp {
            connections: after.connections - self.before.connections,
            joined: after.joined - self.before.joined,
            fallbacks: after.fallbacks - self.before.fallbacks,
            congestion_control: self.subflows.unwrap_or_default(),
        })
    }
}

fn counters(lab: &Lab) -> Result<Counters> {
    let text = lab
        .namespace(Place::Device)
        .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))
        .context("cannot read the kernel's counters")?;
    let counter = |name: &str| counter(&text, "MPTcpExt:", name).unwrap_or_default();
    Ok(Counters {
        connections: counter("MPCapableSYNACKRX"),
        joined: counter("MPJoinSynAckRx"),
        fallbacks: counter("MPCapableFallbackSYNACK") + counter("MPCapableDataFallback"),
    })
}

/// A value of a file in which a line of names is followed by a line of values.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let position = names.split_whitespace().position(|known| known == name)?;
    values.split_whitespace().nth(position)?.parse().ok()
}

/// The congestion control of each subflow that the server has.
fn subflows(lab: &Lab) -> Result<Vec<String>> {
    let mut command = Command::new("ss");
    command.args(["-tniH", "state", "established"]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = lab.spawn(Place::Host(0), command)?;
    let said = child.wait_with_output()?.stdout;
    Ok(controls(&String::from_utf8_lossy(&said)))
}

/// Reads `ss -i`: the line below each socket begins with its congestion control.
fn controls(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.contains("tcp-ulp-mptcp"))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_name() {
        let text = "TcpExt: SyncookiesSent MPJoinSynAckRx\nTcpExt: 1 2\n\
                    MPTcpExt: MPCapableSYNRX MPCapableSYNACKRX MPJoinSynAckRx\nMPTcpExt: 0 7 9\n";
        assert_eq!(counter(text, "MPTcpExt:", "MPJoinSynAckRx"), Some(9));
        assert_eq!(counter(text, "MPTcpExt:", "RmAddr"), None);
        assert_eq!(counter("", "MPTcpExt:", "RmAddr"), None);
    }

    #[test]
    fn subflows_are_told_from_plain_connections() {
        let text = "0 0 [fd00:18::1]:443 [fd00:64:1::2]:52618\n\
                    \t cubic wscale:11,11 rto:232 tcp-ulp-mptcp flags:Mmecv\n\
                    0 0 [fd00:18::1]:443 [fd00:64:1::2]:52619\n\
                    \t bbr wscale:11,11 rto:232\n";
        assert_eq!(controls(text), ["cubic"]);
    }

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
