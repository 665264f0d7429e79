//! The emulator: real kernel stacks in namespaces, joined by emulated links.
//!
//! A [`Lab`] has a device side with one network interface per link, and a remote side with one or
//! more hosts. Packets pass from stack to stack through TUN devices; one thread moves them through
//! the pure cores of `manyways-link`. All resources belong to the process that created the lab and
//! end with it.
//!
//! Start with [`Lab::start`], then [`Lab::spawn`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod address;
pub mod bench;
pub mod control;
pub mod event;
pub mod far_host;
mod files;
mod internet;
mod network;
pub mod pcap;
pub mod radio;
pub mod registry;
mod relay;
pub mod resolver;
pub mod run;
pub mod signal;
pub mod timeline;
pub mod warning;

use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use manyways_link::distance::Distances;
use manyways_link::middlebox;
use manyways_link::schedule::Threshold;
use manyways_sys::clock::Clock;
use manyways_sys::netns::NetNs;
use manyways_sys::sandbox::{Sandbox, spawn_in};
use manyways_sys::tun::Tun;
use manyways_sys::wait::{Outcome, wait};
use manyways_trace::scenario::{
    self, Change, Condition, DeviceSpec, Event, HostSpec, LinkSpec, Middlebox,
};
use manyways_unit::{Span, Time};

use self::far_host::{FarHost, FarHostError};
use self::files::{view, write_views};
use self::network::LinkEnd;
use self::pcap::PcapWriter;
use self::radio::{Radio, RadioError};
use self::registry::{Entry, Record, Registry};
use self::relay::{Action, HostEnd, Relay, RelayConfig, RelayLink};
use self::resolver::{Resolver, Zone};
use self::signal::{Publisher, SignalSender};

pub use self::files::Mount;

/// All names below this domain belong to the lab.
pub const DOMAIN: &str = "lab";

/// Default TCP congestion control, the one that most servers use.
pub const DEFAULT_CC: &str = "cubic";

/// Time until a server command must listen.
pub const SERVER_START_TIMEOUT: Span = Span::from_secs(10);
/// Interval between checks of the remote host's sockets: initial and maximum.
const CHECK_INTERVALS: [Span; 2] = [Span::from_millis(5), Span::from_millis(250)];

/// Specification of a lab.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LabSpec {
    /// Name of the lab, for `manyways lab enter`.
    pub name: String,
    /// Whether a number is appended if the name is in use; otherwise the lab does not start. See
    /// [`Lab::name`].
    pub numbered: bool,
    /// The links, at least one and at most [`address::MAX_LINKS`].
    pub links: Vec<LinkSpec>,
    /// The declared devices; if empty, those that the links name.
    pub devices: Vec<DeviceSpec>,
    /// The remote hosts; if empty, one host `origin`.
    pub hosts: Vec<HostSpec>,
    /// Further addresses of the first remote host, each at its own distance; at most
    /// [`far_host::MAX_FAR_HOSTS`].
    pub far_hosts: Vec<FarHost>,
    /// TCP congestion control of every namespace.
    pub cc: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Position in the traces at the start.
    pub trace_offset: Span,
    /// Whether the remote side has access to the host's network.
    pub internet: bool,
    /// Whether the first remote host forwards packets from one link to another.
    pub forwards: bool,
    /// Folder for one pcapng file per link; `None` to capture nothing.
    pub pcap: Option<PathBuf>,
    /// Whether to disable the emulation: packets pass as fast as possible.
    pub bare: bool,
}

impl LabSpec {
    /// Creates a specification with defaults: one host `origin`, no far hosts, [`DEFAULT_CC`], seed 1,
    /// traces from their start, no internet access, no forwarding, no captures, and no number appended
    /// to the name.
    pub fn new(name: String, links: Vec<LinkSpec>) -> Self {
        Self {
            name,
            numbered: false,
            links,
            devices: Vec::new(),
            hosts: Vec::new(),
            far_hosts: Vec::new(),
            cc: DEFAULT_CC.to_owned(),
            seed: 1,
            trace_offset: Span::ZERO,
            internet: false,
            forwards: false,
            pcap: None,
            bare: false,
        }
    }
}

/// Reasons why a lab does not start or a command does not run in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The name is in use.
    #[error("a lab called `{0}` already exists")]
    NameTaken(String),
    /// The user may not create namespaces.
    #[error("this user is not allowed to create network namespaces: {0}")]
    NotPermitted(io::Error),
    /// The congestion control cannot be set.
    #[error("TCP congestion control `{cc}` cannot be used: {error}")]
    CongestionControl {
        cc: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// `--internet` without root.
    #[error("only root can give a lab the host's network")]
    InternetNeedsRoot,
    /// The specification is invalid.
    #[error("{0}")]
    Spec(String),
    /// A far host is invalid.
    #[error(transparent)]
    FarHost(#[from] FarHostError),
    /// The radio of a link is invalid.
    #[error(transparent)]
    Radio(#[from] RadioError),
    /// A file cannot be mounted for a command.
    #[error("cannot mount {} over {}: {error}", mount.source.display(), mount.target.display())]
    Mount { mount: Mount, error: io::Error },
    /// The link does not exist.
    #[error("there is no link `{0}`")]
    NoSuchLink(String),
    /// A server command ended immediately.
    #[error("the far command `{command}` ended immediately ({status})")]
    ServerCommand {
        /// The command, as specified.
        command: String,
        status: std::process::ExitStatus,
    },
    /// Another system call failed.
    #[error("cannot {doing}: {error}")]
    System {
        /// The operation, for the message.
        doing: &'static str,
        error: io::Error,
    },
}

impl LabError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NameTaken(name) => format!(
                "choose another name with --name, enter it with `manyways lab enter {name}`, or \
                 remove what a killed lab left with `manyways lab gc`"
            ),
            Self::NotPermitted(_) => "run it as root, or allow user namespaces \
                 (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)"
                .to_owned(),
            Self::CongestionControl { cc, .. } => format!(
                "see /proc/sys/net/ipv4/tcp_available_congestion_control; without root, {cc} must \
                 also be in tcp_allowed_congestion_control; choose another one with --cc"
            ),
            Self::InternetNeedsRoot => "run it as root, or leave --internet out".to_owned(),
            Self::Spec(_) => "see `manyways lab shell --help` for examples".to_owned(),
            Self::FarHost(error) => return error.hint(),
            Self::Radio(error) => return error.hint(),
            Self::ServerCommand { .. } => {
                "its output above has the reason; commands run with /bin/sh -c".to_owned()
            }
            Self::System { error, .. }
                if error.kind() == io::ErrorKind::PermissionDenied
                    && error.to_string().contains("/dev/net/tun") =>
            {
                "run it as root, or let all users open it (chmod 666 /dev/net/tun)".to_owned()
            }
            Self::System { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "the emulator needs /dev/net/tun and the `ip` command (package iproute2)".to_owned()
            }
            _ => return None,
        })
    }
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> LabError {
    move |error| LabError::System { doing, error }
}

/// The side on which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A device, by its index; it has links as its interfaces.
    Device(usize),
    /// A remote host, by its index.
    Host(usize),
}

/// A running lab. Dropping it ends all processes in it and undoes its changes to the host.
pub struct Lab {
    // In the order of dropping: first the senders, then the relay, last what it writes and the records.
    servers: Vec<Child>,
    sandbox: Sandbox,
    resolvers: Vec<Resolver>,
    relay: Arc<Relay>,
    signals: Publisher,
    devices: Vec<Device>,
    hosts: Vec<Host>,
    far_hosts: Vec<FarHost>,
    links: Vec<LinkSpec>,
    internet_v6: Option<bool>,
    entry: Entry,
}

struct Device {
    spec: DeviceSpec,
    ns: NetNs,
}

struct Host {
    spec: HostSpec,
    ns: NetNs,
}

impl Lab {
    /// Builds a lab. Call before the process starts other threads.
    pub fn start(registry: &Registry, spec: LabSpec) -> Result<Self, LabError> {
        let hosts = validated_hosts(&spec)?;
        far_host::check(&spec.far_hosts, hosts.len())?;
        let device_specs = validated_devices(&spec)?;
        let radios: Vec<Option<Radio>> = spec
            .links
            .iter()
            .map(|link| Ok(radio::profile_of(link)?.map(Radio::new)))
            .collect::<Result<_, RadioError>>()?;
        registry.collect().map_err(system("clean up after an earlier lab"))?;
        let claimed = match spec.numbered {
            true => registry.claim_numbered(&spec.name),
            false => registry.claim(&spec.name),
        };
        let mut entry = claimed.map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                LabError::NameTaken(spec.name.clone())
            } else {
                LabError::System { doing: "record the lab", error }
            }
        })?;
        let cc_error = |error| LabError::CongestionControl { cc: spec.cc.clone(), error };
        entry.allow_cc(&spec.cc).map_err(cc_error)?;
        let sandbox = Sandbox::start().map_err(not_permitted)?;

        let mut near: Vec<Option<Tun>> = spec.links.iter().map(|_| None).collect();
        let mut ends: Vec<Vec<HostEnd>> = spec.links.iter().map(|_| Vec::new()).collect();
        let mut devices = Vec::with_capacity(device_specs.len());
        for (number, device) in device_specs.into_iter().enumerate() {
            let own = links_of(&device.name, number == 0, &spec.links);
            let (ns, tuns) = network::device_side(&own, &spec.cc)
                .map_err(system("set up a device's network"))?;
            for (tun, LinkEnd { index, is_peer, .. }) in tuns.into_iter().zip(own) {
                if is_peer {
                    let addresses = address::gateway(index).to_vec();
                    ends[index].push(HostEnd { tun, extra_delay: Span::ZERO, addresses });
                } else {
                    near[index] = Some(tun);
                }
            }
            devices.push(Device { spec: device, ns });
        }
        let leading_out: Vec<LinkEnd<'_>> = (spec.links.iter().enumerate())
            .filter(|(_, link)| link.peer.is_none())
            .map(|(index, spec)| LinkEnd { index, spec, is_peer: false })
            .collect();
        let mut far = Vec::with_capacity(hosts.len());
        let far_addresses: Vec<IpAddr> = spec.far_hosts.iter().map(|host| host.address).collect();
        for (number, host) in hosts.into_iter().enumerate() {
            let further = if number == 0 { &far_addresses[..] } else { &[] };
            let (ns, tuns) = network::host_side(number, &leading_out, further, &spec.cc)
                .map_err(system("set up a remote host's network"))?;
            for (tun, link) in tuns.into_iter().zip(&leading_out) {
                let extra = host.extra_delay.iter().find(|(name, _)| *name == link.spec.name);
                ends[link.index].push(HostEnd {
                    tun,
                    extra_delay: extra.map(|(_, delay)| *delay).unwrap_or_default(),
                    addresses: address::host(number).to_vec(),
                });
            }
            far.push(Host { spec: host, ns });
        }
        let mut internet_v6 = None;
        if spec.internet {
            if !manyways_sys::sandbox::is_root() {
                return Err(LabError::InternetNeedsRoot);
            }
            let v6 = internet::connect(&mut entry, &far[0].ns)
                .map_err(system("connect the lab with the host's network"))?;
            internet_v6 = Some(v6);
        }

        if spec.forwards {
            far[0]
                .ns
                .run(|| {
                    network::sysctl("net/ipv4/ip_forward", "1")?;
                    network::sysctl("net/ipv6/conf/all/forwarding", "1")
                })
                .map_err(system("let the remote side forward"))?;
        }

        let mut resolvers = Vec::new();
        let upstream = if spec.internet { resolver::host_upstream() } else { None };
        for LinkEnd { index, .. } in leading_out.iter().copied() {
            let zone = zone(index, &spec.links, &far, &spec.far_hosts);
            for own in address::gateway(index) {
                let (udp, tcp) = far[0]
                    .ns
                    .run(|| Ok((UdpSocket::bind((own, 53))?, TcpListener::bind((own, 53))?)))
                    .map_err(system("open the gateway's resolver"))?;
                resolvers.push(
                    Resolver::start(zone.clone(), udp, tcp, upstream)
                        .map_err(system("start the gateway's resolver"))?,
                );
            }
        }

        let mut relayed = Vec::with_capacity(spec.links.len());
        let links = spec.links.iter().zip(near).enumerate();
        for (((index, (link, device)), hosts), radio) in links.zip(ends).zip(radios) {
            // Every link belongs to one of the devices.
            let Some(device) = device else { continue };
            let capture = |folder: &PathBuf| capture_of(folder, link, &devices);
            let pcap = spec.pcap.as_ref().map(capture).transpose();
            let pcap = pcap.map_err(system("write the capture"))?;
            let middlebox = link.middlebox.map(|middlebox| match middlebox {
                Middlebox::Nat { idle } => middlebox::Middlebox::nat(address::nat(index), idle),
                Middlebox::StripMptcp => middlebox::Middlebox::strip_mptcp(),
            });
            relayed.push(RelayLink { spec: link.clone(), device, hosts, middlebox, radio, pcap });
        }
        let config = RelayConfig {
            distances: Distances::new(
                spec.far_hosts.iter().map(|far| (far.address, far.extra_rtt)),
            ),
            seed: spec.seed,
            trace_offset: spec.trace_offset,
            bare: spec.bare,
        };
        let signals =
            Publisher::start(&entry.folder()).map_err(system("start to publish signals"))?;
        let relay =
            Relay::start(relayed, config, signals.sender()).map_err(system("start the relay"))?;
        // No command may start before the signals are there.
        signals.sender().flush().map_err(system("publish the signals of the links"))?;

        write_views(&entry.folder(), &spec.links, &devices, &far)
            .map_err(system("write the lab's files"))?;
        entry
            .update(|record| {
                record.init = sandbox.init_pid();
                record.devices =
                    devices.iter().map(|d| (d.spec.name.clone(), namespace_fd(&d.ns))).collect();
                record.hosts =
                    far.iter().map(|h| (h.spec.name.clone(), namespace_fd(&h.ns))).collect();
                record.links = spec.links.iter().map(|link| link.name.clone()).collect();
            })
            .map_err(system("record the lab"))?;
        Ok(Self {
            servers: Vec::new(),
            sandbox,
            resolvers,
            relay: Arc::new(relay),
            signals,
            devices,
            hosts: far,
            far_hosts: spec.far_hosts,
            links: spec.links,
            internet_v6,
            entry,
        })
    }

    /// The name of the lab, with the number that may have been appended.
    pub fn name(&self) -> &str {
        &self.entry.record().name
    }

    /// Whether IPv6 leads to the internet like IPv4; `None` without [`LabSpec::internet`].
    pub fn internet_v6(&self) -> Option<bool> {
        self.internet_v6
    }

    /// Returns the specified links.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// Returns the specified far hosts.
    pub fn far_hosts(&self) -> &[FarHost] {
        &self.far_hosts
    }

    /// Returns the relay that moves the packets.
    pub fn relay(&self) -> &Arc<Relay> {
        &self.relay
    }

    /// Returns the sender of the links' signals, to wait until they are published.
    pub(crate) fn signals(&self) -> SignalSender {
        self.signals.sender()
    }

    /// Returns the lab's folder, which is removed with the lab.
    pub fn folder(&self) -> PathBuf {
        self.entry.folder()
    }

    /// Returns the index of a link.
    pub fn link(&self, name: &str) -> Result<usize, LabError> {
        self.links
            .iter()
            .position(|link| link.name == name)
            .ok_or_else(|| LabError::NoSuchLink(name.to_owned()))
    }

    /// Returns the namespace of a side, for the caller's sockets.
    pub fn namespace(&self, node: Node) -> &NetNs {
        match node {
            Node::Device(device) => &self.devices[device].ns,
            Node::Host(host) => &self.hosts[host].ns,
        }
    }

    /// Sets an environment variable for every command that starts in the lab from now on.
    pub fn export(&mut self, name: &str, value: &str) -> Result<(), LabError> {
        self.entry
            .update(|record| record.environment.push((name.to_owned(), value.to_owned())))
            .map_err(system("record the lab"))
    }

    /// Starts a command on one side of the lab.
    pub fn spawn(&self, node: Node, command: Command) -> Result<Child, LabError> {
        self.spawn_with(node, command, &[])
    }

    /// Starts a command on one side of the lab, which sees the mounts in their order; no other
    /// command does.
    pub fn spawn_with(
        &self,
        node: Node,
        mut command: Command,
        mounts: &[Mount],
    ) -> Result<Child, LabError> {
        let folder = self.folder();
        self.entry.record().set_environment(&mut command, &folder);
        let device = match node {
            Node::Device(device) => Some(self.devices[device].spec.name.as_str()),
            Node::Host(_) => None,
        };
        let mut view = view(&folder, device).map_err(system("set up the lab's files"))?;
        for mount in mounts {
            view = view
                .bind_read_only(&mount.source, &mount.target)
                .map_err(|error| LabError::Mount { mount: mount.clone(), error })?;
        }
        self.sandbox
            .spawn(command, self.namespace(node), view)
            .map_err(system("run the command in the lab"))
    }

    /// Starts a server command on a remote host; see [`Lab::serve_on`].
    pub fn serve(&mut self, host: usize, text: &str) -> Result<bool, LabError> {
        self.serve_on(Node::Host(host), text)
    }

    /// Starts a server command through the shell on one side and waits until it listens on TCP or UDP. A command that exits successfully has started a server in the background. Returns
    /// false if no socket listens after [`SERVER_START_TIMEOUT`]: the command may not be a server.
    pub fn serve_on(&mut self, node: Node, text: &str) -> Result<bool, LabError> {
        let before = self.listener_count(node)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).stdin(Stdio::null());
        let mut child = self.spawn(node, command)?;
        let clock = Clock::start();
        let [mut pause, longest] = CHECK_INTERVALS;
        let mut has_ended = false;
        // The kernel does not notify about new listeners, and each check costs a thread and four
        // files.
        let listens = loop {
            if self.listener_count(node)? > before {
                break true;
            }
            if clock.now().since(Time::ZERO) > SERVER_START_TIMEOUT {
                break false;
            }
            if has_ended {
                std::thread::sleep(Duration::from_nanos(pause.as_nanos()));
            } else if let Outcome::Exited(status) =
                wait(&mut child, Some(pause), None).map_err(system("watch the far command"))?
            {
                if !status.success() {
                    return Err(LabError::ServerCommand { command: text.to_owned(), status });
                }
                has_ended = true;
            }
            pause = Span::from_nanos(pause.as_nanos() * 3 / 2).min(longest);
        };
        self.servers.push(child);
        Ok(listens)
    }

    /// Returns the remote host or else the device with this name.
    pub fn node(&self, name: &str) -> Option<Node> {
        let host = self.hosts.iter().position(|host| host.spec.name == name);
        host.map(Node::Host).or_else(|| self.device(name).map(Node::Device))
    }

    /// Returns the index of a device.
    pub fn device(&self, name: &str) -> Option<usize> {
        self.devices.iter().position(|device| device.spec.name == name)
    }

    /// Returns the names of the devices.
    pub fn device_names(&self) -> Vec<&str> {
        self.devices.iter().map(|device| device.spec.name.as_str()).collect()
    }

    /// Returns the specified server commands and where they run: first those of the remote hosts.
    pub fn specified_servers(&self) -> Vec<(Node, String)> {
        let of_hosts = self.hosts.iter().enumerate();
        let of_hosts = of_hosts.map(|(index, host)| (Node::Host(index), &host.spec.serve));
        let of_devices = self.devices.iter().enumerate();
        let of_devices = of_devices.map(|(index, one)| (Node::Device(index), &one.spec.serve));
        let commands = of_hosts.chain(of_devices);
        commands.flat_map(|(node, all)| all.iter().map(move |text| (node, text.clone()))).collect()
    }

    /// Changes a running link.
    pub fn change(&self, link: &str, changes: Vec<Change>) -> Result<(), LabError> {
        self.relay.change(self.link(link)?, changes);
        Ok(())
    }

    /// Restarts the traces and schedules events; returns the time from which they count.
    pub fn restart(&self, offset: Span, events: &[Event]) -> Result<Time, LabError> {
        let action = |event: &Event| {
            let threshold = |condition: &Option<Condition>| match condition {
                None => Ok(None),
                Some(Condition { link, counter, least }) => self
                    .link(link)
                    .map(|link| Some(Threshold { link, counter: *counter, least: *least })),
            };
            let (when, until) = (threshold(&event.when)?, threshold(&event.until)?);
            let link = self.link(&event.link)?;
            Ok(Action { when, after: event.at, until, link, changes: event.change.clone() })
        };
        let actions = events.iter().map(action).collect::<Result<_, LabError>>()?;
        let start = self.relay.restart(offset, actions).map_err(system("restart the links"))?;
        self.signals().flush().map_err(system("publish the signals of the links"))?;
        Ok(start)
    }

    fn listener_count(&self, node: Node) -> Result<usize, LabError> {
        self.namespace(node)
            .run(|| {
                // States of a listening TCP socket and of a UDP socket without a peer.
                let tables = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
                let waiting = |(table, state): (&str, &str)| {
                    let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
                    let is = |line: &&str| line.split_whitespace().nth(3) == Some(state);
                    Ok(text.lines().filter(is).count())
                };
                tables.into_iter().map(waiting).sum()
            })
            .map_err(system("read the sockets of a server"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for resolver in self.resolvers.drain(..) {
            resolver.stop();
        }
        // The sandbox kills the processes; here they are only reaped.
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Starts a command in a lab that another process runs: `record` is the lab's record, `folder` its
/// folder, and `fd` the descriptor of the namespace of `device`, or of a remote host, in that process.
///
/// Call while the process has a single thread.
pub fn enter(
    record: &Record,
    folder: &Path,
    device: Option<&str>,
    fd: i32,
    mut command: Command,
) -> io::Result<Child> {
    record.set_environment(&mut command, folder);
    let view = view(folder, device)?;
    let (Some(owner), Some(init)) = (record.process(), record.sandbox()) else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it runs within a lab that is not visible to this process",
        ));
    };
    spawn_in(owner, init, fd, command, view)
}

/// Creates the capture file of a link. If there are several devices, it is in a folder of the device;
/// a link between two devices is in the folders of both.
fn capture_of(folder: &Path, link: &LinkSpec, devices: &[Device]) -> io::Result<PcapWriter> {
    let name = format!("{}.pcapng", link.name);
    let of = |device: &Option<String>| match (devices, device) {
        ([_], _) => folder.to_owned(),
        ([first, ..], None) => folder.join(&first.spec.name),
        (_, device) => folder.join(device.as_deref().unwrap_or_default()),
    };
    let own = of(&link.device);
    fs::create_dir_all(&own)?;
    let writer = PcapWriter::create(&own.join(&name), &link.name)?;
    if link.peer.is_some() {
        let other = of(&link.peer);
        fs::create_dir_all(&other)?;
        let other = other.join(&name);
        match fs::remove_file(&other) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::hard_link(own.join(&name), other)?,
        }
    }
    Ok(writer)
}

/// Returns the links of a device.
fn links_of<'a>(device: &str, is_first: bool, links: &'a [LinkSpec]) -> Vec<LinkEnd<'a>> {
    let is_own = |link: &LinkSpec| match &link.device {
        Some(name) => name == device,
        None => is_first,
    };
    let ends = links.iter().enumerate().filter_map(|(index, spec)| {
        let is_peer = spec.peer.as_deref() == Some(device);
        (is_peer || is_own(spec)).then_some(LinkEnd { index, spec, is_peer })
    });
    ends.collect()
}

/// Returns the names that the gateway of one link resolves.
fn zone(link: usize, links: &[LinkSpec], hosts: &[Host], far_hosts: &[FarHost]) -> Zone {
    let mut zone = Zone::default();
    for (index, host) in hosts.iter().enumerate() {
        let addresses: Vec<IpAddr> = address::host(index).to_vec();
        zone.insert(&format!("{}.{DOMAIN}", host.spec.name), addresses.clone());
        for (name, only) in &host.spec.names {
            if only.as_ref().is_none_or(|only| *only == links[link].name) {
                zone.insert(name, addresses.clone());
            }
        }
    }
    for FarHost { address, names, .. } in far_hosts {
        for name in names {
            zone.insert(name, vec![*address]);
        }
    }
    zone
}

fn validated_hosts(spec: &LabSpec) -> Result<Vec<HostSpec>, LabError> {
    if spec.links.is_empty() {
        return Err(LabError::Spec("a lab needs at least one link".into()));
    }
    if spec.links.len().max(spec.hosts.len()) > address::MAX_LINKS {
        return Err(LabError::Spec(format!(
            "a lab has at most {} links and hosts",
            address::MAX_LINKS
        )));
    }
    for (index, host) in spec.hosts.iter().enumerate() {
        if spec.hosts[..index].iter().any(|other| other.name == host.name) {
            return Err(LabError::Spec(format!("two hosts are called `{}`", host.name)));
        }
    }
    for (index, link) in spec.links.iter().enumerate() {
        if spec.links[..index].iter().any(|other| other.name == link.name) {
            return Err(LabError::Spec(format!("two links are called `{}`", link.name)));
        }
    }
    if spec.hosts.is_empty() {
        return Ok(vec![HostSpec {
            name: "origin".into(),
            extra_delay: Vec::new(),
            names: Vec::new(),
            serve: Vec::new(),
        }]);
    }
    Ok(spec.hosts.clone())
}

fn validated_devices(spec: &LabSpec) -> Result<Vec<DeviceSpec>, LabError> {
    let devices = scenario::devices(&spec.devices, &spec.links);
    for link in &spec.links {
        for name in link.device.iter().chain(&link.peer) {
            if !devices.iter().any(|device| device.name == *name) {
                return Err(LabError::Spec(format!("there is no device `{name}`")));
            }
        }
    }
    let has_own = |(number, device): (usize, &DeviceSpec)| {
        !links_of(&device.name, number == 0, &spec.links).is_empty()
    };
    match devices.iter().enumerate().find(|device| !has_own(*device)) {
        Some((_, device)) => Err(LabError::Spec(format!("device `{}` has no link", device.name))),
        None => Ok(devices),
    }
}

fn not_permitted(error: io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => LabError::NotPermitted(error),
        _ => LabError::System { doing: "start the lab's process tree", error },
    }
}

fn namespace_fd(ns: &NetNs) -> i32 {
    use std::os::fd::AsFd;
    ns.as_fd().as_raw_fd()
}
