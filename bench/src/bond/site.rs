//! Everything that runs in the lab beside the load generator: servers, gateways, clients and the
//! two ends of the splice.

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

/// Where the server listens for TCP and datagrams.
pub const SERVER: u16 = 7100;
/// Where it does for MPTCP.
const MPTCP_SERVER: u16 = 7101;
/// Where the first origin of the web pages does.
pub const WEB: u16 = 7110;
/// Where a call's datagrams go, as a policy knows calls: STUN's port.
pub const CALL: u16 = 3478;
/// Where the far end of the splice does, for plain TCP and MPTCP.
const SPLICE: (u16, u16) = (7001, 7002);
/// Where a gateway does.
const GATEWAY: u16 = 4433;
/// The first of the SOCKS5 ports on the device.
const DOORS: u16 = 1081;
/// What everything gets to start.
const PATIENCE: Span = Span::from_secs(10);
/// How often it is looked at.
const LOOK: Span = Span::from_millis(20);

/// What runs, by where it is.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The binary under test.
    pub manyways: PathBuf,
    /// This one.
    pub own: PathBuf,
    /// Tells the sockets' congestion control.
    pub ss: PathBuf,
    /// Chromium.
    pub browser: Option<PathBuf>,
}

/// The four-application policy, as it is shipped.
const FOUR_APPS: &str = include_str!("../../../docs/policies/four-apps.toml");

/// What runs in a lab; the far side's processes go with the lab.
pub struct Site {
    programs: Programs,
    folder: PathBuf,
    /// The gateways' public key.
    gateway_key: String,
    /// The device's SOCKS5 ports, in this order from [`DOORS`].
    doors: Vec<Contender>,
    clients: Vec<(Contender, Child)>,
    splice: Option<Child>,
}

impl Site {
    /// Starts what the contenders of a cell need.
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
        // A browser cannot be told from which address; for it even the straight way has a door.
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

    /// A gateway on every host that a contender wants one on; it lets one client in.
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
        // Every scheduler and every start of a client is a session of its own.
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

    /// Starts the client of a contender, anew where it runs already, and waits until it has a
    /// carrier over every link. Others have none to renew.
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

    /// This program under another name, which is all that a policy knows of an application.
    pub fn disguise(&self, name: &str) -> Result<PathBuf, DriveError> {
        let file = self.folder.join(name);
        if !file.exists() {
            fs::copy(&self.programs.own, &file).map_err(system("copy a program"))?;
        }
        Ok(file)
    }

    /// Where things may lie that go with the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What a load generator is told of the way to this port of the server.
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

/// Makes a key `NAME.key`, and gives its public half.
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

/// Waits until somebody listens on this port of the device.
fn listens(lab: &Lab, port: u16) -> Result<(), DriveError> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    waits("a proxy on the device", || {
        lab.namespace(Place::Device).run(|| Ok(TcpStream::connect(at).is_ok()))
    })
}

/// Waits until something is there.
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
