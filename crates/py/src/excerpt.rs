//! What a capture has of some flows, as a capture.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use manyways_wire::capture::{Interface, Packet};
use manyways_wire::frame;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::file::File;

/// Some flows' packets of a capture, in the capture's own format.
///
/// All that is no packet stays as it is, so that interfaces keep their numbers and packets their
/// times and lengths; and so does the first packet, whosever it is: it says what this capture goes
/// on with. All fragments between the ends of a flow are taken, as nobody knows their ports.
#[pyclass]
pub struct Excerpt {
    flows: HashSet<(u8, [SocketAddr; 2])>,
    pairs: HashSet<[IpAddr; 2]>,
    file: File,
}

#[pymethods]
impl Excerpt {
    /// Of the flows of these protocols between these ends, whoever of them began. Raises ValueError
    /// where an address is none.
    #[new]
    fn new(flows: Vec<(u8, String, u16, String, u16)>) -> PyResult<Self> {
        let address = |text: &str| {
            let wrong = |_| PyValueError::new_err(format!("{text} is no address"));
            text.parse::<IpAddr>().map_err(wrong)
        };
        let (mut these, mut pairs) = (HashSet::new(), HashSet::new());
        for (protocol, one, port, other, other_port) in flows {
            let (one, other) = (address(&one)?, address(&other)?);
            these.insert((protocol, ends((one, port), (other, other_port))));
            pairs.insert(pair(one, other));
        }
        Ok(Self { flows: these, pairs, file: File::default() })
    }

    /// The next bytes of the capture. Gives the next ones of the excerpt.
    fn feed<'py>(&mut self, py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
        let Self { flows, pairs, file } = self;
        let out = py.detach(|| {
            let mut out = Vec::new();
            file.take(bytes, |file, packet, raw| {
                let is_kept = packet.is_none_or(|(interface, packet)| {
                    file.is_new() || is_of(flows, pairs, interface, packet)
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

/// Whether a packet is of one of these flows, or may be.
fn is_of(
    flows: &HashSet<(u8, [SocketAddr; 2])>,
    pairs: &HashSet<[IpAddr; 2]>,
    interface: &Interface,
    packet: &Packet<'_>,
) -> bool {
    let Ok(datagram) = frame::datagram(interface.link, packet.bytes, packet.length) else {
        return false;
    };
    let (from, to) = (datagram.source, datagram.destination);
    if datagram.fragment.is_some() {
        return pairs.contains(&pair(from, to));
    }
    // TCP and UDP both begin with their ports.
    let Some([a, b, c, d]) = datagram.payload.first_chunk() else { return false };
    let ports = [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])];
    flows.contains(&(datagram.protocol, ends((from, ports[0]), (to, ports[1]))))
}

/// In one order, whoever sent it, and as tables of flows write addresses.
fn ends(one: (IpAddr, u16), other: (IpAddr, u16)) -> [SocketAddr; 2] {
    let mut both = [one, other].map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
    both.sort_unstable();
    both
}

fn pair(one: IpAddr, other: IpAddr) -> [IpAddr; 2] {
    let mut both = [one, other].map(|ip| ip.to_canonical());
    both.sort_unstable();
    both
}
