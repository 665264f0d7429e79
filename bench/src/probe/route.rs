//! Routes through six routers in namespaces, one for each router after which a fault can begin.
//!
//! All routes share a lab: its device is the router before the fault and its server the one after
//! it (or the target), and each route has a link of its own between them. The other nodes are
//! namespaces in a row, to the left of the device and to the right of the server.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use manyways_lab::{Lab, Node};
use manyways_rig::launch::{DriveError, system};
use manyways_rig::testbed::{Namespace, ip};

use super::plan::ROUTERS;

/// A route on which node `place + 1` is the first behind the fault; the client is node 0.
pub struct Route {
    pub place: usize,
    client: Namespace,
    /// The other nodes, which disappear with this value.
    _others: Vec<Namespace>,
}

/// The network between the nodes `at` and `at + 1` of a route, without its last part.
fn network(place: usize, at: usize) -> String {
    format!("10.{}.{at}", 100 + place)
}

fn forward(node: &Namespace) {
    node.forward();
    node.run(|| {
        ip("link set lo up");
        // Routers do not limit their answers here.
        for limit in ["icmp_ratelimit", "icmp_ratemask"] {
            let _ = fs::write(format!("/proc/sys/net/ipv4/{limit}"), "0");
        }
    });
}

impl Route {
    /// Builds the routes of all places.
    pub fn all(lab: &Lab) -> Result<Vec<Self>, DriveError> {
        let share = |node| {
            let namespace = lab.namespace(node).try_clone();
            namespace.map(Namespace::from).map_err(system("open a namespace"))
        };
        let (device, server) = (share(Node::Device(0))?, share(Node::Host(0))?);
        forward(&device);
        forward(&server);
        Ok((1..=ROUTERS).map(|place| Self::new(place, &device, &server)).collect())
    }

    fn new(place: usize, device: &Namespace, server: &Namespace) -> Self {
        let last = ROUTERS + 1;
        let own: Vec<Option<Namespace>> = (0..=last)
            .map(|node| (node != place && node != place + 1).then(Namespace::new))
            .collect();
        let node = |at: usize| match &own[at] {
            Some(namespace) => namespace,
            None if at == place => device,
            None => server,
        };
        own.iter().flatten().for_each(forward);
        let (left, right) = (format!("left{place}"), format!("right{place}"));
        for at in (0..last).filter(|at| *at != place) {
            let [near, far] = [1, 2].map(|end| format!("{}.{end}/24", network(place, at)));
            let names = (if at == place + 1 { &right } else { "right" }, &left);
            let far_name = if at + 1 == place { names.1 } else { "left" };
            node(at).connect((names.0, &near), node(at + 1), (far_name, &far));
        }
        let target = Self::address(place);
        for at in 0..=last {
            node(at).run(|| {
                if at == last {
                    ip(&format!("addr add {target}/32 dev lo"));
                } else if at == place {
                    ip(&format!("route add {target}/32 dev place{place}"));
                } else {
                    ip(&format!("route add {target}/32 via {}.2", network(place, at)));
                }
                // Back to the client: its own network is known to its neighbour.
                match at {
                    0 | 1 => {}
                    _ if at == place + 1 => {
                        ip(&format!("route add {}.0/24 dev place{place}", network(place, 0)));
                    }
                    _ => {
                        let gateway = format!("{}.1", network(place, at - 1));
                        ip(&format!("route add {}.0/24 via {gateway}", network(place, 0)));
                    }
                }
            });
        }
        let mut nodes = own.into_iter().flatten();
        let client = nodes.next().unwrap_or_default();
        Self { place, client, _others: nodes.collect() }
    }

    /// The address of the target.
    pub fn address(place: usize) -> String {
        format!("{}.1", network(place, 200))
    }

    /// Starts a program on the client.
    pub fn start(&self, command: &mut Command) -> Result<Child, DriveError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.client.run(|| command.spawn()).map_err(system("start a program"))
    }
}

/// The output of a program, which ends by itself.
pub fn output(mut child: Child) -> Result<String, DriveError> {
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = stdout.read_to_string(&mut text);
    }
    child.wait().map_err(system("wait for a program"))?;
    Ok(text)
}
