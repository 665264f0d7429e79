//! The namespaces of a lab: devices, addresses, routes, rules and kernel settings.
//!
//! The setup uses `ip -batch`, one process per namespace: every machine that can run a lab has it,
//! and its commands can be read and tried by hand.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_sys::netns::NetNs;
use manyways_sys::tun::Tun;
use manyways_trace::scenario::{LinkSpec, Middlebox};

use super::address;

/// Maximum TCP buffer: 10 Gbit/s × 25 ms, and twice that for the overhead of the window.
const TCP_BUFFER: u32 = 64 * 1024 * 1024;
/// Packets that a device queues before the relay reads them; with the kernel's default of 500,
/// super-packets are dropped.
const TX_QUEUE: u32 = 10_000;
/// Routing tables of the links: this number plus the index of the link.
const FIRST_TABLE: usize = 101;
/// Metric of the first link's default route in the main table.
const FIRST_METRIC: usize = 100;

/// A link of a namespace, with its number in the lab.
#[derive(Clone, Copy)]
pub struct LinkEnd<'a> {
    pub index: usize,
    pub spec: &'a LinkSpec,
    /// Whether this is the other end of a link between devices.
    pub is_peer: bool,
}

/// Creates a device's namespace with one TUN per link.
pub fn device_side(links: &[LinkEnd<'_>], cc: &str) -> io::Result<(NetNs, Vec<Tun>)> {
    let (ns, tuns) = namespace_with(links, cc)?;
    ns.run(|| {
        // Strict reverse-path filtering would drop the answers to sockets bound to a link that is
        // not the default one.
        for conf in ["all", "default"] {
            sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "2")?;
        }
        // Like a network manager on carrier loss: ignore the link's routes.
        for family in ["ipv4", "ipv6"] {
            sysctl(&format!("net/{family}/conf/all/ignore_routes_with_linkdown"), "1")?;
        }
        let mut batch = Batch::new("link set lo up\n");
        for (number, LinkEnd { index, spec: link, is_peer }) in links.iter().copied().enumerate() {
            let name = &link.name;
            sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "2")?;
            sysctl(&format!("net/ipv4/conf/{name}/ignore_routes_with_linkdown"), "1")?;
            sysctl(&format!("net/ipv6/conf/{name}/ignore_routes_with_linkdown"), "1")?;
            let table = FIRST_TABLE + number;
            let metric = FIRST_METRIC + number;
            // Read by `manyways paths` and `get`: the kernel has no such information about a TUN
            // device.
            let leads_out = link.peer.is_none();
            let dns = leads_out.then(|| format!(",dns={}", address::gateway(index)[0]));
            let _ = writeln!(
                batch.links,
                "link set dev {name} alias manyways:kind={},metered={}{}",
                link.kind(),
                if link.metered { "yes" } else { "no" },
                dns.unwrap_or_default(),
            );
            let prefixes = [address::LINK_PREFIX_LENGTHS.0, address::LINK_PREFIX_LENGTHS.1];
            let (own, others) = match is_peer {
                false => (address::device(index), address::gateway(index)),
                true => (address::gateway(index), address::device(index)),
            };
            for ((own, gateway), prefix) in own.into_iter().zip(others).zip(prefixes) {
                let batch = batch.for_family(own);
                let _ = writeln!(batch, "addr add {own}/{prefix} dev {name}{}", nodad(own));
                // The other device does not forward.
                if !leads_out {
                    continue;
                }
                for table in [format!("metric {metric}"), format!("table {table}")] {
                    let _ = writeln!(batch, "route add default via {gateway} dev {name} {table}");
                }
                let _ = writeln!(batch, "rule add from {own} lookup {table} pref 1000");
                let _ = writeln!(batch, "rule add oif {name} lookup {table} pref 1001");
            }
        }
        batch.run()?;
        mptcp_endpoints(links);
        Ok(())
    })?;
    Ok((ns, tuns))
}

/// Creates a remote host's namespace with one TUN per link, and with `further` addresses. The first
/// host is also the gateway of every link.
pub fn host_side(
    host: usize,
    links: &[LinkEnd<'_>],
    further: &[IpAddr],
    cc: &str,
) -> io::Result<(NetNs, Vec<Tun>)> {
    let (ns, tuns) = namespace_with(links, cc)?;
    ns.run(|| {
        let mut batch = Batch::new("link set lo up\n");
        let mut own = address::host(host).to_vec();
        if host == 0 {
            own.extend(links.iter().flat_map(|link| address::gateway(link.index)));
        }
        // Last: the kernel prefers the first address as the source of its own connections.
        for further in further {
            if !own.contains(further) {
                own.push(*further);
            }
        }
        for own in own {
            let _ = writeln!(
                batch.for_family(own),
                "addr add {own}/{} dev lo{}",
                host_prefix_length(own),
                nodad(own)
            );
        }
        for LinkEnd { index, spec: link, .. } in links.iter().copied() {
            let name = &link.name;
            // A host has one address on every link: the source address of connections that it
            // opens.
            for (network, own) in address::network(index).into_iter().zip(address::host(host)) {
                let _ = writeln!(batch.for_family(own), "route add {network} dev {name} src {own}");
            }
            if matches!(link.middlebox, Some(Middlebox::Nat { .. })) {
                let _ = writeln!(batch.v4, "route add {}/32 dev {name}", address::nat(index));
            }
        }
        batch.run()
    })?;
    Ok((ns, tuns))
}

fn namespace_with(links: &[LinkEnd<'_>], cc: &str) -> io::Result<(NetNs, Vec<Tun>)> {
    let ns = NetNs::create()?;
    let tuns = ns.run(|| {
        kernel_settings(cc)?;
        let mut batch = String::new();
        let mut tuns = Vec::with_capacity(links.len());
        for LinkEnd { spec: link, .. } in links {
            let name = &link.name;
            tuns.push(Tun::create(name)?);
            // No address, no solicitation: the kernel must not send its own packets on an emulated
            // link.
            let _ = sysctl(&format!("net/ipv6/conf/{name}/addr_gen_mode"), "1");
            let _ = sysctl(&format!("net/ipv6/conf/{name}/accept_ra"), "0");
            let _ =
                writeln!(batch, "link set dev {name} mtu {} txqueuelen {TX_QUEUE} up", link.mtu);
        }
        ip(&batch)?;
        Ok(tuns)
    })?;
    Ok((ns, tuns))
}

/// Applies settings that a namespace needs before any socket is created.
pub fn kernel_settings(cc: &str) -> io::Result<()> {
    sysctl("net/ipv4/tcp_congestion_control", cc)?;
    let buffers = format!("4096 131072 {TCP_BUFFER}");
    sysctl("net/ipv4/tcp_rmem", &buffers)?;
    sysctl("net/ipv4/tcp_wmem", &buffers)?;
    // A run must not pass its window on to the next one.
    sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    for conf in ["all", "default"] {
        sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "0")?;
    }
    // Lets unprivileged commands of the lab ping.
    let _ = sysctl("net/ipv4/ping_group_range", "0 2147483647");
    let _ = sysctl("net/mptcp/enabled", "1");
    Ok(())
}

/// Maximum number of endpoints in the kernel (`MPTCP_PM_ADDR_MAX`).
const MPTCP_ENDPOINTS: usize = 8;

/// Makes the links' addresses endpoints for MPTCP subflows, IPv4 addresses first, so that each of
/// up to eight links has one. Has no effect if the kernel lacks MPTCP.
fn mptcp_endpoints(links: &[LinkEnd<'_>]) {
    let mut batch = String::from("mptcp limits set subflow 8 add_addr_accepted 8\n");
    let of_family = |family: usize| {
        let leading_out = links.iter().filter(|link| link.spec.peer.is_none());
        leading_out.map(move |link| (address::device(link.index)[family], link.spec))
    };
    for (own, link) in of_family(0).chain(of_family(1)).take(MPTCP_ENDPOINTS) {
        let _ = writeln!(batch, "mptcp endpoint add {own} dev {} subflow", link.name);
    }
    if let Err(error) = ip(&batch) {
        tracing::warn!(%error, "no MPTCP endpoints");
    }
}

/// `ip` commands for the calling thread's namespace, by address family: within a batch `ip` does
/// not accept the option that selects the family.
struct Batch {
    links: String,
    v4: String,
    v6: String,
}

impl Batch {
    fn new(links: &str) -> Self {
        Self { links: links.to_owned(), v4: String::new(), v6: String::new() }
    }

    fn for_family(&mut self, address: IpAddr) -> &mut String {
        if address.is_ipv6() { &mut self.v6 } else { &mut self.v4 }
    }

    fn run(self) -> io::Result<()> {
        ip(&self.links)?;
        run("ip", &["-4", "-batch", "-"], &self.v4)?;
        run("ip", &["-6", "-batch", "-"], &self.v6)
    }
}

/// Runs `ip` commands in the calling thread's namespace.
pub fn ip(batch: &str) -> io::Result<()> {
    run("ip", &["-batch", "-"], batch)
}

/// Runs a setup program with text on its standard input; the error contains its standard error.
pub fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot run `{program}`: {error}"))
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading prints the reason on its standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("`{program}` failed: {}", said.trim().replace('\n', "; "))))
}

/// Writes one kernel setting of the calling thread's network namespace.
pub fn sysctl(key: &str, value: &str) -> io::Result<()> {
    std::fs::write(Path::new("/proc/sys").join(key), value).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot set {key} to {value}: {error}"))
    })
}

fn nodad(address: IpAddr) -> &'static str {
    if address.is_ipv6() { " nodad" } else { "" }
}

fn host_prefix_length(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}
