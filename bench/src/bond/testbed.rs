//! All processes of the lab except the load generator: servers, gateways, clients and both ends of
//! the splice.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;

use manyways_lab::{Lab, Node, address};
use manyways_rig::launch::{DriveError, Killed, system};
use manyways_rig::programs::{quoted, shell_words};
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};

use super::contender::{BOND, Contender, Scheduling};
use super::plan::{Cell, needs_browser};
use crate::keys;

/// Port of the server for TCP and datagrams.
pub const SERVER_PORT: u16 = 7100;
/// Port of the server for MPTCP.
const MPTCP_SERVER_PORT: u16 = 7101;
/// Port of the first origin of the web pages.
pub const WEB_PORT: u16 = 7110;
/// Port of a call's datagrams, by which a policy recognizes calls: STUN.
pub const CALL_PORT: u16 = 3478;
/// Ports of the far end of the splice, for plain TCP and MPTCP.
const SPLICE_PORTS: (u16, u16) = (7001, 7002);
/// Port of a gateway, and of that of an earlier program.
const GATEWAY_PORTS: (u16, u16) = (4433, 4434);
/// First SOCKS5 port on the device.
const FIRST_SOCKS_PORT: u16 = 1081;
/// Time limit for the start of a process.
const START_TIMEOUT: Span = Span::from_secs(10);
/// Interval of the checks whether a process has started.
const POLL_INTERVAL: Span = Span::from_millis(20);

/// Paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    pub manyways: PathBuf,
    /// An earlier version, to compare with.
    pub before: Option<PathBuf>,
    /// This program.
    pub own: PathBuf,
    /// Prints the congestion control of sockets.
    pub ss: PathBuf,
    /// Chromium; `None` if it is not installed.
    pub browser: Option<PathBuf>,
}

impl Programs {
    /// The program of a contender.
    pub fn of(&self, contender: Contender) -> &Path {
        match (contender, &self.before) {
            (Contender::Before, Some(before)) => before,
            _ => &self.manyways,
        }
    }
}

/// The shipped four-application policy.
const FOUR_APPS: &str = include_str!("../../../docs/policies/four-apps.toml");

/// Processes of a lab; those of the server side end with the lab.
pub struct Testbed {
    programs: Programs,
    folder: PathBuf,
    /// Public key of the gateways.
    gateway_key: String,
    /// Contenders with a SOCKS5 port on the device, with consecutive ports from
    /// [`FIRST_SOCKS_PORT`].
    socks_contenders: Vec<Contender>,
    clients: Vec<(Contender, Killed)>,
    splice: Option<Killed>,
}

impl Testbed {
    /// Starts the processes that the contenders of a cell need.
    pub fn start(
        lab: &mut Lab,
        programs: &Programs,
        cell: &Cell,
        contenders: &[Contender],
    ) -> Result<Self, DriveError> {
        let folder = lab.folder().join("bond");
        fs::create_dir_all(&folder).map_err(system("make a folder"))?;
        let mut doors = contenders.to_vec();
        // A browser cannot be bound to a source address, so it needs a proxy for direct connections
        // too.
        let straight = |one: &Contender| needs_browser(cell) && matches!(one, Contender::Direct(_));
        doors.retain(|one| one.is_spliced() || one.is_bond() || straight(one));
        let mut testbed = Self {
            programs: programs.clone(),
            folder,
            gateway_key: String::new(),
            socks_contenders: doors,
            clients: Vec::new(),
            splice: None,
        };
        let own = quoted(programs.own.as_os_str());
        for host in 0..cell.hosts.len() {
            let at = format!(
                "--listen 0.0.0.0:{SERVER_PORT} --mptcp 0.0.0.0:{MPTCP_SERVER_PORT} --web 0.0.0.0:{WEB_PORT} \
                 --relay 0.0.0.0:{CALL_PORT}"
            );
            lab.serve(host, &format!("exec {own} serve {at}"))?;
        }
        testbed.gateways(lab)?;
        if testbed.socks_contenders.iter().any(|one| !one.is_bond()) {
            let (plain, mptcp) = SPLICE_PORTS;
            let at = format!("--plain 0.0.0.0:{plain} --mptcp 0.0.0.0:{mptcp}");
            lab.serve(0, &format!("exec {own} splice {at}"))?;
            testbed.splice = Some(testbed.start_splice(lab)?);
        }
        for contender in testbed.socks_contenders.clone() {
            if contender.is_bond() {
                testbed.restart_client(lab, contender)?;
            }
        }
        Ok(testbed)
    }

    /// Starts a gateway on every host of a bond contender; it authorizes one client.
    fn gateways(&mut self, lab: &mut Lab) -> Result<(), DriveError> {
        let mut hosts: Vec<(usize, u16)> = self
            .socks_contenders
            .iter()
            .filter_map(|one| match one {
                Contender::Bond { host, .. } => Some((*host, GATEWAY_PORTS.0)),
                Contender::Before => Some((0, GATEWAY_PORTS.1)),
                _ => None,
            })
            .collect();
        if hosts.is_empty() {
            return Ok(());
        }
        self.gateway_key = keys(&self.programs.manyways, &self.folder)?;
        hosts.sort_unstable();
        hosts.dedup();
        for (host, port) in hosts {
            let listen = format!("0.0.0.0:{port}");
            let contender = if port == GATEWAY_PORTS.1 { Contender::Before } else { BOND };
            let program = self.programs.of(contender);
            let mut command = gateway(program, &self.folder, &listen, "198.18.0.0/15");
            command.arg("--quiet");
            let log = self.folder.join(format!("gateway-{host}-{port}.log"));
            let words = shell_words(&command);
            lab.serve(host, &format!("exec {words} 2>{}", quoted(log.as_os_str())))?;
        }
        Ok(())
    }

    fn start_splice(&self, lab: &Lab) -> Result<Killed, DriveError> {
        let mut command = Command::new(&self.programs.own);
        command.arg("splice").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let far = address::host(0)[0];
        for (port, contender) in (FIRST_SOCKS_PORT..).zip(&self.socks_contenders) {
            let (kind, link, to) = match contender {
                Contender::Mptcp(link) => ("mptcp", link, format!(",{far}:{}", SPLICE_PORTS.1)),
                Contender::Spliced(link) => ("tcp", link, format!(",{far}:{}", SPLICE_PORTS.0)),
                Contender::Direct(link) => ("tcp", link, String::new()),
                _ => continue,
            };
            let from = address::device(*link)[0];
            command.arg("--socks").arg(format!("{port},{kind},{from}{to}"));
        }
        let child = Killed(lab.spawn(Node::Device(0), command)?);
        for (port, contender) in (FIRST_SOCKS_PORT..).zip(&self.socks_contenders) {
            if !contender.is_bond() {
                wait_listening(lab, port)?;
            }
        }
        Ok(child)
    }

    /// Starts or restarts the client of a bond contender, and waits until it has a carrier over
    /// every link. Other contenders have no client.
    pub fn restart_client(&mut self, lab: &Lab, contender: Contender) -> Result<(), DriveError> {
        let (by, host, gateway_port) = match contender {
            Contender::Bond { by, host } => (by, host, GATEWAY_PORTS.0),
            Contender::Before => (Scheduling::Default, 0, GATEWAY_PORTS.1),
            _ => return Ok(()),
        };
        let program = self.programs.of(contender);
        let Some(index) = self.socks_contenders.iter().position(|door| *door == contender) else {
            return Ok(());
        };
        let port = FIRST_SOCKS_PORT + index as u16;
        self.clients.retain(|(of, _)| *of != contender);
        let log = self.folder.join(format!("client-{port}.log"));
        let said = File::create(&log).map_err(system("write a log"))?;
        let at = format!("{}:{gateway_port}", address::host(host)[0]);
        let mut command = client(program, &self.folder, (&at, &self.gateway_key), port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        match by {
            Scheduling::Default => {}
            Scheduling::Scheduler(scheduler) => {
                command.args(["--scheduler", scheduler]);
            }
            Scheduling::FourApps => {
                let policy = self.folder.join("four-apps.toml");
                fs::write(&policy, FOUR_APPS).map_err(system("write a policy"))?;
                command.arg("--policy").arg(policy);
            }
        }
        self.clients.push((contender, Killed(lab.spawn(Node::Device(0), command)?)));
        let up = lab.links().iter().map(|link| format!("{} is up", link.name));
        for words in up {
            wait_until("a client of the bond", || log_contains(&log, &words)).map_err(|error| {
                let output = fs::read_to_string(&log).unwrap_or_default();
                DriveError::Server(format!(
                    "{error}; it said: {}",
                    output.trim().replace('\n', "; ")
                ))
            })?;
        }
        wait_listening(lab, port)
    }

    /// Copies this program under another name, by which a policy recognizes an application.
    pub fn copy_program_as(&self, name: &str) -> Result<PathBuf, DriveError> {
        let file = self.folder.join(name);
        if !file.exists() {
            fs::copy(&self.programs.own, &file).map_err(system("copy a program"))?;
        }
        Ok(file)
    }

    /// Folder that is removed with the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Arguments of a load generator for this contender and port of the server.
    pub fn load_args(&self, contender: Contender, port: u16, hosts: usize) -> Vec<String> {
        let host = match contender {
            Contender::Bond { host, .. } => host,
            Contender::MptcpDirect(_) => hosts.saturating_sub(1),
            _ => 0,
        };
        let mptcp = matches!(contender, Contender::MptcpDirect(_));
        let port = if mptcp { MPTCP_SERVER_PORT } else { port };
        let mut words = vec![format!("--server={}:{port}", address::host(host)[0])];
        if let Some(index) = self.socks_contenders.iter().position(|door| *door == contender) {
            words.push(format!("--socks=127.0.0.1:{}", FIRST_SOCKS_PORT + index as u16));
        } else if let Contender::Direct(link) | Contender::MptcpDirect(link) = contender {
            words.push(format!("--from={}", address::device(link)[0]));
        }
        if mptcp {
            words.push("--mptcp".to_owned());
        }
        words
    }
}

/// The command of a gateway, with the keys of [`keys()`]. `permit` has the permitted destinations.
pub fn gateway(program: &Path, folder: &Path, listen: &str, permit: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["bond", "gateway", "--listen", listen, "--permit", permit, "--key"]);
    command.arg(folder.join("gateway.key")).arg("--allow").arg(folder.join("allow"));
    command
}

/// The command of a client with this SOCKS5 port; the gateway has an address and a public key.
pub fn client(program: &Path, folder: &Path, gateway: (&str, &str), port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["bond", "client", "--intercept", "none", "--gateway", gateway.0]);
    command.args(["--gateway-key", gateway.1, "--socks", &format!("127.0.0.1:{port}"), "--key"]);
    command.arg(folder.join("client.key"));
    command
}

/// Creates the keys of a gateway and of its client, and the list of clients. Returns the gateway's
/// public key.
pub fn keys(manyways: &Path, folder: &Path) -> Result<String, DriveError> {
    let client = keys::generate(manyways, folder, "client")?;
    // Every scheduler and every start of a client creates a session.
    fs::write(folder.join("allow"), format!("{client} device sessions=1000\n"))
        .map_err(system("write the list of clients"))?;
    keys::generate(manyways, folder, "gateway")
}

fn log_contains(log: &Path, words: &str) -> io::Result<bool> {
    Ok(fs::read_to_string(log)?.contains(words))
}

/// Waits until a process listens on this port of the device.
fn wait_listening(lab: &Lab, port: u16) -> Result<(), DriveError> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_until("a proxy on the device", || {
        lab.namespace(Node::Device(0)).run(|| Ok(TcpStream::connect(at).is_ok()))
    })
}

/// Polls `ready` until it returns true, for at most 10 s.
pub fn wait_until(
    what: &str,
    mut ready: impl FnMut() -> io::Result<bool>,
) -> Result<(), DriveError> {
    let clock = Clock::start();
    while !ready().map_err(system("watch what was started"))? {
        if clock.now().since(Time::ZERO) > START_TIMEOUT {
            return Err(DriveError::Server(format!("{what} is not there after {START_TIMEOUT}")));
        }
        sleep(POLL_INTERVAL.into());
    }
    Ok(())
}
