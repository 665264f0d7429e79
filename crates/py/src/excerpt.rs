//! Extracts the packets of some flows from a capture, as a capture.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use manyways_wire::capture::{Interface, Packet};
use manyways_wire::frame;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::file::File;

/// The packets of some flows of a capture, in the format of the capture.
///
/// All blocks other than packets are copied unchanged, so that interfaces keep their numbers and
/// packets their times and lengths. The first packet is always copied, because its time shows how
/// the capture continues the previous one. All fragments between the two addresses of a flow are
/// copied, because their ports are unknown.
#[pyclass]
pub struct Excerpt {
    flows: HashSet<(u8, [SocketAddr; 2])>,
    pairs: HashSet<[IpAddr; 2]>,
    file: File,
}

#[pymethods]
impl Excerpt {
    /// Selects the flows of these protocols between these endpoints, whichever endpoint initiated
    /// them. Raises ValueError if an address is invalid.
    #[new]
    fn new(flows: Vec<(u8, String, u16, String, u16)>) -> PyResult<Self> {
        let address = |text: &str| {
            let wrong = |_| PyValueError::new_err(format!("{text} is not an address"));
            text.parse::<IpAddr>().map_err(wrong)
        };
        let (mut these, mut pairs) = (HashSet::new(), HashSet::new());
        for (protocol, one, port, other, other_port) in flows {
            let (one, other) = (address(&one)?, address(&other)?);
            these.insert((protocol, sorted_endpoints((one, port), (other, other_port))));
            pairs.insert(sorted_addresses(one, other));
        }
        Ok(Self { flows: these, pairs, file: File::default() })
    }

    /// Reads the next bytes of the capture. Returns the next bytes of the excerpt.
    fn feed<'py>(&mut self, py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
        let Self { flows, pairs, file } = self;
        let out = py.detach(|| {
            let mut out = Vec::new();
            file.feed(bytes, |file, packet, raw| {
                let is_kept = packet.is_none_or(|(interface, packet)| {
                    file.is_new() || matches_flow(flows, pairs, interface, packet)
                });
                if is_kept {
                    out.extend_from_slice(raw);
                }
            });
            out
        });
        PyBytes::new(py, &out)
    }
}

/// Whether a packet belongs, or may belong, to one of these flows.
fn matches_flow(
    flows: &HashSet<(u8, [SocketAddr; 2])>,
    pairs: &HashSet<[IpAddr; 2]>,
    interface: &Interface,
    packet: &Packet<'_>,
) -> bool {
    let Ok(datagram) = frame::ip_packet(interface.link, packet.bytes, packet.length) else {
        return false;
    };
    let (from, to) = (datagram.source, datagram.destination);
    if datagram.fragment.is_some() {
        return pairs.contains(&sorted_addresses(from, to));
    }
    // The headers of TCP and UDP both start with the ports.
    let Some([a, b, c, d]) = datagram.payload.first_chunk() else { return false };
    let ports = [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])];
    flows.contains(&(datagram.protocol, sorted_endpoints((from, ports[0]), (to, ports[1]))))
}

/// Sorts the endpoints, so that both directions match, with addresses as in the tables of flows.
fn sorted_endpoints(one: (IpAddr, u16), other: (IpAddr, u16)) -> [SocketAddr; 2] {
    let mut both = [one, other].map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
    both.sort_unstable();
    both
}

fn sorted_addresses(one: IpAddr, other: IpAddr) -> [IpAddr; 2] {
    let mut both = [one, other].map(|ip| ip.to_canonical());
    both.sort_unstable();
    both
}
