//! Kernel state of a measurement: the congestion control of sockets, as `ss` prints it, and
//! counters of `/proc/net`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_lab::{Lab, LabError, Place};

/// State of a TCP socket, as `ss` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Name of the congestion control, for example `cubic`.
    pub control: String,
    /// Whether it is a subflow of an MPTCP connection.
    pub mptcp: bool,
}

/// Returns all established TCP connections of a node.
pub fn sockets(lab: &Lab, ss: &Path, place: Place) -> Result<Vec<Socket>, LabError> {
    let mut command = Command::new(ss);
    command.args(["-tniH", "state", "established"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = lab.spawn(place, command)?.wait_with_output();
    let output = output.and_then(|output| match output.status.success() {
        true => Ok(output),
        false => Err(io::Error::other("it failed")),
    });
    let output = output.map_err(|error| LabError::System { doing: "run ss", error })?;
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

/// The line after each socket is indented and begins with the congestion control.
fn read(text: &str) -> Vec<Socket> {
    text.lines()
        .filter(|line| line.starts_with(char::is_whitespace))
        .filter_map(|line| {
            let control = line.split_whitespace().next()?.to_owned();
            Some(Socket { control, mptcp: line.contains("tcp-ulp-mptcp") })
        })
        .collect()
}

/// Reads a counter of a file like `/proc/net/snmp`, in which a line of names precedes each line of
/// values.
pub fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.split_whitespace().next() == Some(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(place)?.parse().ok()
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
        let socket = |control: &str, mptcp| Socket { control: control.to_owned(), mptcp };
        assert_eq!(read(text), [socket("cubic", true), socket("bbr", false)]);
    }

    #[test]
    fn a_counter_is_found_below_its_name() {
        let table = "Ip: A RetransSegs\nIp: 1 2\nTcp: OutSegs RetransSegs\nTcp: 40 7\n";
        assert_eq!(counter(table, "Tcp:", "RetransSegs"), Some(7));
        assert_eq!(counter(table, "Tcp:", "None"), None);
        assert_eq!(counter("Tcp: RetransSegs\n", "Tcp:", "RetransSegs"), None);
    }
}
