//! Kernel state of a measurement: the congestion control of sockets, as `ss` prints it, counters of
//! `/proc/net`, and the use of Multipath TCP.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_lab::{Lab, LabError, Node};
use serde::Serialize;

use crate::launch::{DriveError, system};
use crate::programs::program;

/// State of a TCP socket, as `ss` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Name of the congestion control, for example `cubic`.
    pub congestion_control: String,
    /// Whether it is a subflow of an MPTCP connection.
    pub mptcp: bool,
}

/// Returns all established TCP connections of a node.
pub fn sockets(lab: &Lab, ss: &Path, node: Node) -> Result<Vec<Socket>, LabError> {
    let mut command = Command::new(ss);
    command.args(["-tniH", "state", "established"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = lab.spawn(node, command)?.wait_with_output();
    let output = output.and_then(|output| match output.status.success() {
        true => Ok(output),
        false => Err(io::Error::other("it failed")),
    });
    let output = output.map_err(|error| LabError::System { doing: "run ss", error })?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The line after each socket is indented and begins with the congestion control.
fn parse(text: &str) -> Vec<Socket> {
    text.lines()
        .filter(|line| line.starts_with(char::is_whitespace))
        .filter_map(|line| {
            let control = line.split_whitespace().next()?.to_owned();
            Some(Socket { congestion_control: control, mptcp: line.contains("tcp-ulp-mptcp") })
        })
        .collect()
}

/// Reads a counter of a file like `/proc/net/snmp`, in which a line of names precedes each line of
/// values.
pub fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.split_whitespace().next() == Some(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(index)?.parse().ok()
}

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
pub fn mptcp_available(lab: &Lab) -> Result<(), String> {
    let setting = lab
        .namespace(Node::Device(0))
        .run(|| std::fs::read_to_string("/proc/sys/net/mptcp/enabled"));
    match setting {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(_) => Err("MPTCP is switched off (sysctl net.mptcp.enabled)".to_owned()),
        Err(_) => Err("this kernel has no MPTCP".to_owned()),
    }
}

impl Mptcp {
    /// Reads the counters of the device.
    ///
    /// # Errors
    /// If the kernel does not show them.
    pub fn counted(lab: &Lab) -> Result<Self, DriveError> {
        let text = lab
            .namespace(Node::Device(0))
            .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))
            .map_err(system("read the kernel's counters"))?;
        let counter = |name: &str| counter(&text, "MPTcpExt:", name).unwrap_or_default();
        Ok(Self {
            connections: counter("MPCapableSYNACKRX"),
            joined: counter("MPJoinSynAckRx"),
            fallbacks: counter("MPCapableFallbackSYNACK") + counter("MPCapableDataFallback"),
            congestion_control: Vec::new(),
        })
    }

    /// The change of the counters since `before`.
    pub fn since(self, before: &Self) -> Self {
        Self {
            connections: self.connections - before.connections,
            joined: self.joined - before.joined,
            fallbacks: self.fallbacks - before.fallbacks,
            ..self
        }
    }
}

/// The congestion control of each subflow at the server; empty if `ss` is not installed.
pub fn subflows(lab: &Lab) -> Vec<String> {
    let found = program("ss").and_then(|ss| sockets(lab, &ss, Node::Host(0)).ok());
    let subflows = found.into_iter().flatten().filter(|socket| socket.mptcp);
    subflows.map(|socket| socket.congestion_control).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subflows_are_told_from_plain_connections() {
        let text = "0 0 [fd00:18::1]:443 [fd00:64:1::2]:52618\n\
                    \t cubic wscale:11,11 rto:232 tcp-ulp-mptcp flags:Mmecv\n\
                    0 0 [fd00:18::1]:443 [fd00:64:1::2]:52619\n\
                    \t bbr wscale:11,11 rto:232\n";
        let socket =
            |control: &str, mptcp| Socket { congestion_control: control.to_owned(), mptcp };
        assert_eq!(parse(text), [socket("cubic", true), socket("bbr", false)]);
    }

    #[test]
    fn a_counter_is_found_below_its_name() {
        let table = "Ip: A RetransSegs\nIp: 1 2\nTcp: OutSegs RetransSegs\nTcp: 40 7\n";
        assert_eq!(counter(table, "Tcp:", "RetransSegs"), Some(7));
        assert_eq!(counter(table, "Tcp:", "None"), None);
        assert_eq!(counter("Tcp: RetransSegs\n", "Tcp:", "RetransSegs"), None);
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
