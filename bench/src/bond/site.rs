//! All processes of the lab except the load generator: servers, gateways, clients and both ends of
//! the splice.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use manyways_lab::{Lab, Place, address};
use manyways_rig::programs::quoted;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};

use super::contender::{By, Contender};
use super::plan::{Cell, wants_browser};
use manyways_rig::launch::{DriveError, system};

/// Port of the server for TCP and datagrams.
pub const SERVER: u16 = 7100;
/// Port of the server for MPTCP.
const MPTCP_SERVER: u16 = 7101;
/// Port of the first origin of the web pages.
pub const WEB: u16 = 7110;
/// Port of a call's datagrams, by which a policy recognizes calls: STUN.
pub const CALL: u16 = 3478;
/// Ports of the far end of the splice, for plain TCP and MPTCP.
const SPLICE: (u16, u16) = (7001, 7002);
/// Port of a gateway.
const GATEWAY: u16 = 4433;
/// First SOCKS5 port on the device.
const DOORS: u16 = 1081;
/// Time limit for the start of a process.
const PATIENCE: Span = Span::from_secs(10);
/// Interval of the checks whether a process has started.
const LOOK: Span = Span::from_millis(20);

/// Paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    pub manyways: PathBuf,
    /// This program.
    pub own: PathBuf,
    /// Prints the congestion control of sockets.
    pub ss: PathBuf,
    /// Chromium; `None` if it is not installed.
    pub browser: Option<PathBuf>,
}

/// The shipped four-application policy.
const FOUR_APPS: &str = include_str!("../../../docs/policies/four-apps.toml");

/// Processes of a lab; those of the server side end with the lab.
pub struct Site {
    programs: Programs,
    folder: PathBuf,
    /// Public key of the gateways.
    gateway_key: String,
    /// Contenders with a SOCKS5 port on the device, with consecutive ports from [`DOORS`].
    doors: Vec<Contender>,
    clients: Vec<(Contender, Child)>,
    splice: Option<Child>,
}

impl Site {
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
        doors.sort_unstable();
        doors.dedup();
        // A browser cannot be bound to a source address, so it needs a proxy for direct connections
        // too.
        let straight = |one: &Contender| wants_browser(cell) && matches!(one, Contender::Direct(_));
        doors.retain(|one| one.is_spliced() || one.is_bond() || straight(one));
        let mut site = Self {
            programs: programs.clone(),
            folder,
            gateway_key: String::new(),
            doors,
            clients: Vec::new(),
            splice: None,
        };
        let own = quoted(programs.own.as_os_str());
        for host in 0..cell.hosts.len() {
            let at = format!(
                "--listen 0.0.0.0:{SERVER} --mptcp 0.0.0.0:{MPTCP_SERVER} --web 0.0.0.0:{WEB} \
                 --relay 0.0.0.0:{CALL}"
            );
            lab.serve(host, &format!("exec {own} serve {at}"))?;
        }
        site.gateways(lab)?;
        if site.doors.iter().any(|one| !one.is_bond()) {
            let (plain, mptcp) = SPLICE;
            let at = format!("--plain 0.0.0.0:{plain} --mptcp 0.0.0.0:{mptcp}");
            lab.serve(0, &format!("exec {own} splice {at}"))?;
            site.splice = Some(site.near_splice(lab)?);
        }
        for contender in site.doors.clone() {
            if contender.is_bond() {
                site.renew(lab, contender)?;
            }
        }
        Ok(site)
    }

    /// Starts a gateway on every host of a bond contender; it authorizes one client.
    fn gateways(&mut self, lab: &mut Lab) -> Result<(), DriveError> {
        let mut hosts: Vec<usize> = self
            .doors
            .iter()
            .filter_map(|one| match one {
                Contender::Bond { host, .. } => Some(*host),
                _ => None,
            })
            .collect();
        if hosts.is_empty() {
            return Ok(());
        }
        self.gateway_key = keygen(&self.programs.manyways, &self.folder, "gateway")?;
        let client = keygen(&self.programs.manyways, &self.folder, "client")?;
        // Every scheduler and every start of a client creates a session.
        fs::write(self.folder.join("allow"), format!("{client} device sessions=1000\n"))
            .map_err(system("write the list of clients"))?;
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            let word = |name: &str| quoted(self.folder.join(name).as_os_str());
            let command = format!(
                "exec {} bond gateway --listen 0.0.0.0:{GATEWAY} --key {} --allow {} \
                 --permit 198.18.0.0/15 --quiet 2>{}",
                quoted(self.programs.manyways.as_os_str()),
                word("gateway.key"),
                word("allow"),
                word(&format!("gateway-{host}.log")),
            );
            lab.serve(host, &command)?;
        }
        Ok(())
    }

    fn near_splice(&self, lab: &Lab) -> Result<Child, DriveError> {
        let mut command = Command::new(&self.programs.own);
        command.arg("splice").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let far = address::host(0)[0];
        for (port, contender) in (DOORS..).zip(&self.doors) {
            let (kind, link, to) = match contender {
                Contender::Mptcp(link) => ("mptcp", link, format!(",{far}:{}", SPLICE.1)),
                Contender::Spliced(link) => ("tcp", link, format!(",{far}:{}", SPLICE.0)),
                Contender::Direct(link) => ("tcp", link, String::new()),
                _ => continue,
            };
            let from = address::device(*link)[0];
            command.arg("--door").arg(format!("{port},{kind},{from}{to}"));
        }
        let child = lab.spawn(Place::Device, command)?;
        for (port, contender) in (DOORS..).zip(&self.doors) {
            if !contender.is_bond() {
                listens(lab, port)?;
            }
        }
        Ok(child)
    }

    /// Starts or restarts the client of a bond contender, and waits until it has a carrier over
    /// every link. Other contenders have no client.
    pub fn renew(&mut self, lab: &Lab, contender: Contender) -> Result<(), DriveError> {
        let Contender::Bond { by, host } = contender else { return Ok(()) };
        let Some(place) = self.doors.iter().position(|door| *door == contender) else {
            return Ok(());
        };
        let port = DOORS + place as u16;
        if let Some(at) = self.clients.iter().position(|(of, _)| *of == contender) {
            let (_, mut child) = self.clients.swap_remove(at);
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = self.folder.join(format!("client-{port}.log"));
        let said = File::create(&log).map_err(system("write a log"))?;
        let mut command = Command::new(&self.programs.manyways);
        command
            .args(["bond", "client", "--intercept", "none", "--gateway"])
            .arg(format!("{}:{GATEWAY}", address::host(host)[0]))
            .args(["--gateway-key", &self.gateway_key])
            .arg("--key")
            .arg(self.folder.join("client.key"))
            .args(["--socks", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        match by {
            By::Default => {}
            By::Scheduler(scheduler) => {
                command.args(["--scheduler", scheduler]);
            }
            By::FourApps => {
                let policy = self.folder.join("four-apps.toml");
                fs::write(&policy, FOUR_APPS).map_err(system("write a policy"))?;
                command.arg("--policy").arg(policy);
            }
        }
        self.clients.push((contender, lab.spawn(Place::Device, command)?));
        let up = lab.links().iter().map(|link| format!("{} is up", link.name));
        for words in up {
            waits("a client of the bond", || said_so(&log, &words)).map_err(|error| {
                let said = fs::read_to_string(&log).unwrap_or_default();
                DriveError::Site(format!("{error}; it said: {}", said.trim().replace('\n', "; ")))
            })?;
        }
        listens(lab, port)
    }

    /// Copies this program under another name, by which a policy recognizes an application.
    pub fn disguise(&self, name: &str) -> Result<PathBuf, DriveError> {
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
    pub fn way(&self, contender: Contender, port: u16, hosts: usize) -> Vec<String> {
        let host = match contender {
            Contender::Bond { host, .. } => host,
            Contender::MptcpDirect(_) => hosts.saturating_sub(1),
            _ => 0,
        };
        let mptcp = matches!(contender, Contender::MptcpDirect(_));
        let port = if mptcp { MPTCP_SERVER } else { port };
        let mut words = vec![format!("--server={}:{port}", address::host(host)[0])];
        if let Some(place) = self.doors.iter().position(|door| *door == contender) {
            words.push(format!("--socks=127.0.0.1:{}", DOORS + place as u16));
        } else if let Contender::Direct(link) | Contender::MptcpDirect(link) = contender {
            words.push(format!("--from={}", address::device(link)[0]));
        }
        if mptcp {
            words.push("--mptcp".to_owned());
        }
        words
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let clients = self.clients.iter_mut().map(|(_, child)| child);
        for child in clients.chain(&mut self.splice) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Creates the key `NAME.key` and returns its public key.
pub fn keygen(manyways: &Path, folder: &Path, name: &str) -> Result<String, DriveError> {
    let output = Command::new(manyways)
        .args(["bond", "keygen"])
        .arg(folder.join(format!("{name}.key")))
        .stdin(Stdio::null())
        .output()
        .map_err(system("make a key"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(DriveError::Site(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn said_so(log: &Path, words: &str) -> io::Result<bool> {
    Ok(fs::read_to_string(log)?.contains(words))
}

/// Waits until a process listens on this port of the device.
fn listens(lab: &Lab, port: u16) -> Result<(), DriveError> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    waits("a proxy on the device", || {
        lab.namespace(Place::Device).run(|| Ok(TcpStream::connect(at).is_ok()))
    })
}

/// Polls `ready` until it returns true, for at most 10 s.
pub fn waits(what: &str, mut ready: impl FnMut() -> io::Result<bool>) -> Result<(), DriveError> {
    let clock = Clock::start();
    while !ready().map_err(system("watch what was started"))? {
        if clock.now().since(Time::ZERO) > PATIENCE {
            return Err(DriveError::Site(format!("{what} is not there after {PATIENCE}")));
        }
        sleep(LOOK.into());
    }
    Ok(())
}
