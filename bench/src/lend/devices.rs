//! The devices of a cell: the network of each, the pairs, and the ends of a bond.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use manyways_lab::{Lab, Node, address};
use manyways_rig::launch::{DriveError, Killed, first_line, system};
use manyways_rig::programs::quoted;

use super::plan::{Contender, NAMES, Switch};
use crate::bond::testbed::{Programs, client, gateway, keys, wait_until};

pub const SERVER_PORT: u16 = 7100;
const GATEWAY_PORT: u16 = 4433;
const LENDER_PORT: u16 = 4434;
/// Far end of the splice.
const SPLICE_PORT: u16 = 7002;
/// Proxy of COMBINE on the phone.
const PROXY_PORT: u16 = 7003;
/// SOCKS5 ports of the client and of the splice on the laptop.
pub const SOCKS_PORT: u16 = 1081;
const SPLICE_SOCKS_PORT: u16 = 1082;
/// The hosts.
const GATEWAY: usize = 0;
const SERVER: usize = 1;
/// Names of the phones in the bond.
const PHONES: [&str; 2] = ["phone", "phone2"];

/// Places and addresses of the ends of a bond with lenders.
struct Places {
    client: Node,
    gateway: Node,
    gateway_address: IpAddr,
    /// Node and address of each lender.
    lenders: Vec<(Node, IpAddr)>,
    /// Prefix of the servers and of the gateway.
    permit: &'static str,
    /// Networks of the client.
    own: &'static str,
}

/// The devices of a cell; the processes for all runs end with the lab.
pub struct Devices<'a> {
    programs: &'a Programs,
    folder: PathBuf,
    gateway_key: String,
    places: Places,
}

/// A bond of one run.
pub struct Ends {
    pub lenders: Vec<Killed>,
    _client: Killed,
    _gateway: Killed,
}

impl<'a> Devices<'a> {
    /// Sets up the laptop, its phones, the gateway and the server, and pairs the laptop with every
    /// phone.
    pub fn start(lab: &mut Lab, programs: &'a Programs) -> Result<Self, DriveError> {
        let phones = (lab.links().len() - 1) / 2;
        let lenders = (0..phones).map(|phone| {
            let pipe = 2 + 2 * phone;
            (Node::Device(1 + phone), address::gateway(pipe)[0])
        });
        let places = Places {
            client: Node::Device(0),
            gateway: Node::Host(GATEWAY),
            gateway_address: address::host(GATEWAY)[0],
            lenders: lenders.collect(),
            permit: "198.18.0.0/15",
            own: NAMES[0],
        };
        let own = quoted(programs.own.as_os_str());
        for host in [GATEWAY, SERVER] {
            lab.serve(host, &format!("exec {own} serve --listen 0.0.0.0:{SERVER_PORT}"))?;
        }
        lab.serve(GATEWAY, &format!("exec {own} splice --mptcp 0.0.0.0:{SPLICE_PORT}"))?;
        let (ps, pipe) = (address::device(0)[0], address::device(2)[0]);
        let phone = address::gateway(2)[0];
        // The phone is a router for kibbutz and for tethering.
        run(lab, Node::Device(1), "echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        let masquerade = "nft 'add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; \
             add rule ip nat out oifname hs masquerade'";
        run(lab, Node::Device(1), masquerade)?;
        run(lab, Node::Device(0), &format!("ip rule add from {pipe} table 77"))?;
        run(lab, Node::Device(0), &format!("ip route add default via {phone} table 77"))?;
        run(lab, Node::Device(0), &format!("ip route add default via {phone} metric 9000"))?;
        run(lab, Node::Device(0), &format!("ip mptcp endpoint add {pipe} dev pipe subflow"))?;
        let to = format!("{}:{SERVER_PORT}", address::host(SERVER)[0]);
        let proxy = format!("exec {own} forward --listen {phone}:{PROXY_PORT} --to {to}");
        lab.serve_on(Node::Device(1), &proxy)?;
        let far = address::host(GATEWAY)[0];
        let door = format!("{SPLICE_SOCKS_PORT},mptcp,{ps},{far}:{SPLICE_PORT}");
        lab.serve_on(Node::Device(0), &format!("exec {own} splice --socks {door}"))?;
        let devices = Self::pair_all(lab, programs, places)?;
        devices.wait_listening(lab, Node::Device(0), SPLICE_SOCKS_PORT)?;
        Ok(devices)
    }

    /// Pairs two processes on one loopback.
    pub fn on_loopback(lab: &mut Lab, programs: &'a Programs) -> Result<Self, DriveError> {
        let (node, localhost) = (Node::Host(0), IpAddr::from(Ipv4Addr::LOCALHOST));
        let own = quoted(programs.own.as_os_str());
        lab.serve(0, &format!("exec {own} serve --listen 127.0.0.1:{SERVER_PORT}"))?;
        let places = Places {
            client: node,
            gateway: node,
            gateway_address: localhost,
            lenders: vec![(node, localhost)],
            permit: "127.0.0.0/8",
            own: "lo",
        };
        Self::pair_all(lab, programs, places)
    }

    fn pair_all(lab: &Lab, programs: &'a Programs, places: Places) -> Result<Self, DriveError> {
        let folder = lab.folder().join("bond");
        fs::create_dir_all(&folder).map_err(system("make a folder"))?;
        let gateway_key = keys(&programs.manyways, &folder)?;
        let devices = Self { programs, folder, gateway_key, places };
        for phone in 0..devices.places.lenders.len() {
            let _lender = devices.lender(lab, phone)?;
            devices.pair(lab, phone)?;
        }
        Ok(devices)
    }

    fn pair(&self, lab: &Lab, phone: usize) -> Result<(), DriveError> {
        let text = fs::read_to_string(self.log(PHONES[phone])).map_err(system("read a log"))?;
        let code = text.split_once("the code is ").map(|(_, rest)| rest.chars().take(6).collect());
        let code: String = code.ok_or_else(|| DriveError::Server("a lender has no code".into()))?;
        let mut command = Command::new(&self.programs.manyways);
        let at = format!("{}:{LENDER_PORT}", self.places.lenders[phone].1);
        command.args(["bond", "pair", &at, "--code", &code, "--name", "laptop"]);
        command.args(["--gateway", &self.gateway_address(), "--gateway-key", &self.gateway_key]);
        command.arg("--key").arg(self.folder.join("client.key"));
        command.env("XDG_STATE_HOME", self.folder.join("laptop"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = lab.spawn(self.places.client, command)?.wait_with_output();
        let output = output.map_err(system("pair the devices"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(DriveError::Server(first_line(&String::from_utf8_lossy(&output.stderr)))),
        }
    }

    fn gateway_address(&self) -> String {
        format!("{}:{GATEWAY_PORT}", self.places.gateway_address)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Starts the gateway, the lenders and the client of a contender, and waits until the client
    /// has a carrier over each of its networks. `None` for a contender without a bond.
    pub fn bond(&self, lab: &Lab, contender: Contender) -> Result<Option<Ends>, DriveError> {
        let (phones, switch) = match contender {
            Contender::Lend { phones, switch } => (phones, switch),
            Contender::Tethered => (0, Switch::None),
            Contender::Kibbutz | Contender::Combine => return Ok(None),
        };
        let gateway = self.gateway(lab, switch)?;
        let lenders = (0..phones).map(|phone| self.lender(lab, phone)).collect::<Result<_, _>>()?;
        let client = self.client(lab, contender, switch)?;
        let networks = match contender {
            Contender::Tethered => vec![NAMES[0], NAMES[2]],
            _ => [self.places.own].into_iter().chain(PHONES).take(1 + phones).collect(),
        };
        for name in networks {
            self.wait_said(CLIENT, &format!("{name} is up"))?;
        }
        Ok(Some(Ends { lenders, _client: client, _gateway: gateway }))
    }

    fn gateway(&self, lab: &Lab, switch: Switch) -> Result<Killed, DriveError> {
        let at = self.gateway_address();
        let mut command = gateway(&self.programs.manyways, &self.folder, &at, self.places.permit);
        command.arg("--quiet").args(match switch {
            Switch::MinRtt | Switch::NoReinjection => ["--reinject", "off"].as_slice(),
            Switch::DelayEstimateOnly => &["--estimate", "delay", "--reinject", "off"],
            Switch::PrintedReinjection => &["--reinject", "print"],
            Switch::DelayEstimate => &["--estimate", "delay"],
            _ => &[],
        });
        let child = self.spawn(lab, self.places.gateway, command, "gateway")?;
        self.wait_connected(lab, self.places.gateway, self.places.gateway_address, GATEWAY_PORT)?;
        Ok(child)
    }

    /// Starts a lender, and waits until it listens.
    pub fn lender(&self, lab: &Lab, phone: usize) -> Result<Killed, DriveError> {
        let (node, at) = self.places.lenders[phone];
        let mut command = Command::new(&self.programs.manyways);
        let name = PHONES[phone];
        command.args(["bond", "lend", "--listen", &format!("{at}:{LENDER_PORT}")]);
        command.args(["--name", name, "--permit", self.places.permit]);
        if let Node::Device(_) = node {
            command.args(["--via", NAMES[1 + 2 * phone]]);
        }
        command.env("XDG_STATE_HOME", self.folder.join(name));
        let child = self.spawn(lab, node, command, name)?;
        self.wait_said(name, "other devices find this one")?;
        Ok(child)
    }

    fn client(
        &self,
        lab: &Lab,
        contender: Contender,
        switch: Switch,
    ) -> Result<Killed, DriveError> {
        let at = self.gateway_address();
        let peer = (at.as_str(), self.gateway_key.as_str());
        let mut command = client(&self.programs.manyways, &self.folder, peer, SOCKS_PORT);
        command.args(["--carrier", "tcp"]);
        command.env("XDG_STATE_HOME", self.folder.join("laptop"));
        command.args(match (contender, self.places.client) {
            (Contender::Tethered, _) => ["--no-lenders", "--via", "ps,pipe"].as_slice(),
            (_, Node::Device(_)) => &["--via", "ps"],
            (_, Node::Host(_)) => &[],
        });
        command.args(match switch {
            Switch::MinRtt => ["--scheduler", "minrtt"].as_slice(),
            Switch::AlwaysFeedback => &["--feedback", "always"],
            _ => &[],
        });
        if let Node::Host(_) = self.places.client {
            let policy = self.folder.join("policy.toml");
            fs::write(&policy, "[default]\npaths = \"lender\"\n")
                .map_err(system("write a policy"))?;
            command.arg("--policy").arg(policy);
        }
        let child = self.spawn(lab, self.places.client, command, CLIENT)?;
        self.wait_listening(lab, self.places.client, SOCKS_PORT)?;
        Ok(child)
    }

    fn spawn(
        &self,
        lab: &Lab,
        node: Node,
        mut command: Command,
        log: &str,
    ) -> Result<Killed, DriveError> {
        let log = File::create(self.log(log)).map_err(system("write a log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(Killed(lab.spawn(node, command)?))
    }

    fn wait_said(&self, name: &str, words: &str) -> Result<(), DriveError> {
        let said = || fs::read_to_string(self.log(name));
        wait_until(&format!("`{words}` of {name}"), || Ok(said()?.contains(words))).map_err(
            |error| {
                let text = said().unwrap_or_default().trim().replace('\n', "; ");
                DriveError::Server(format!("{error}; it printed: {text}"))
            },
        )
    }

    fn wait_listening(&self, lab: &Lab, node: Node, port: u16) -> Result<(), DriveError> {
        self.wait_connected(lab, node, Ipv4Addr::LOCALHOST.into(), port)
    }

    fn wait_connected(
        &self,
        lab: &Lab,
        node: Node,
        at: IpAddr,
        port: u16,
    ) -> Result<(), DriveError> {
        wait_until("a process", || {
            lab.namespace(node).run(|| Ok(TcpStream::connect(SocketAddr::new(at, port)).is_ok()))
        })
    }

    /// A load generator for a contender.
    pub fn load(&self, contender: Contender) -> Command {
        let mut command = Command::new(&self.programs.own);
        command.arg("load");
        let server = |at: IpAddr| format!("--server={at}:{SERVER_PORT}");
        let near = server(self.places.gateway_address);
        let socks = |port: u16| format!("--socks=127.0.0.1:{port}");
        match contender {
            Contender::Combine => command
                .arg(server(address::host(SERVER)[0]))
                .arg(format!("--from={}", address::device(0)[0])),
            Contender::Kibbutz => command.arg(near).arg(socks(SPLICE_SOCKS_PORT)),
            _ => command.arg(near).arg(socks(SOCKS_PORT)),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Address of COMBINE's proxy.
    pub fn proxy() -> String {
        format!("{}:{PROXY_PORT}", address::gateway(2)[0])
    }

    /// The status of the client, as a JSON document.
    pub fn status(&self, lab: &Lab) -> Result<serde_json::Value, DriveError> {
        let mut command = Command::new(&self.programs.manyways);
        command.args(["bond", "status", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = lab.spawn(self.places.client, command)?.wait_with_output();
        let output = output.map_err(system("ask for the status"))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| DriveError::Server(format!("no status of the bond: {error}")))
    }
}

const CLIENT: &str = "client";

/// Runs a command of the shell on a node.
fn run(lab: &Lab, node: Node, words: &str) -> Result<(), DriveError> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", words]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = lab.spawn(node, command)?.wait_with_output();
    let output = output.map_err(system("set up a device"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let why = first_line(&String::from_utf8_lossy(&output.stderr));
            Err(DriveError::Server(format!("{words}: {why}")))
        }
    }
}
