//! A bond between the device and the servers of a replay.

use std::fs;
use std::iter::once;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use anyhow::{Context, Result};
use manyways_lab::{Lab, LabSpec, Node, address};
use manyways_sys::clock::Clock;
use manyways_sys::signal::send;
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Span, Time};

use crate::failure::Failure;
use crate::lab::{lab_failure, serve};

/// Asks the client to end.
const SIGTERM: i32 = 15;
/// Name of the gateway's node and of its link.
const GATEWAY: &str = "gateway";
/// Port of the gateway.
const PORT: u16 = 4433;
/// Time limit for the client to intercept.
const START_TIMEOUT: Span = Span::from_secs(20);
const POLL_INTERVAL: Span = Span::from_millis(20);

/// Adds a node for the gateway of a bond, with a link of its own, the last one, to where the servers
/// are. Beside them in one network stack, its connections to far servers would be as short as to near
/// ones.
pub fn add_gateway(spec: &mut LabSpec) {
    let is_free = |name: &String| {
        let mut taken = spec.links.iter().flat_map(|link| {
            [Some(&link.name), link.device.as_ref(), link.peer.as_ref()].into_iter().flatten()
        });
        taken.all(|taken| taken != name)
    };
    let others = (2..).map(|number| format!("{GATEWAY}{number}"));
    let name = once(GATEWAY.to_owned()).chain(others).find(is_free).unwrap_or_default();
    let mut link = LinkSpec::new(&name);
    link.device = Some(name);
    spec.links.push(link);
    spec.forwards = true;
}

/// A client that intercepts all connections of the device. It ends when it is dropped.
pub struct Bond {
    client: Child,
}

impl Bond {
    /// Starts a gateway on the node of [`add_gateway`], and a client on the device.
    pub fn start(lab: &mut Lab) -> Result<Self> {
        let folder = lab.folder().join("bond");
        fs::create_dir_all(&folder).context("cannot make a folder for the bond")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let key = |name: &str| -> Result<(PathBuf, String)> {
            let path = folder.join(format!("{name}.key"));
            let made = Command::new(&program).args(["bond", "keygen"]).arg(&path).output();
            let made = made.context("cannot make a key")?;
            if !made.status.success() {
                let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(Failure::new(format!("cannot make a key: {reason}")).into());
            }
            Ok((path, String::from_utf8_lossy(&made.stdout).trim().to_owned()))
        };
        let ((client_key, client), (gateway_key, gateway)) = (key("client")?, key("gateway")?);
        let allow = folder.join("allow");
        fs::write(&allow, format!("{client} device\n")).context("cannot write the allow file")?;
        let quoted = |path: &PathBuf| format!("'{}'", path.display());
        let command = format!(
            "exec {} bond gateway --listen '[::]:{PORT}' --permit 0.0.0.0/0 --permit ::/0 --key {} --allow {} 2>{}",
            quoted(&program),
            quoted(&gateway_key),
            quoted(&allow),
            quoted(&folder.join("gateway.log")),
        );
        let (index, at) = gateway_of(lab).context("the lab has no gateway")?;
        serve(lab, Node::Device(index), &command)?;
        let log = folder.join("client.log");
        let file = fs::File::create(&log).context("cannot write the log of the bond")?;
        let mut command = Command::new(&program);
        command.args([
            "bond",
            "client",
            "--gateway",
            &format!("{at}:{PORT}"),
            "--gateway-key",
            &gateway,
        ]);
        command.arg("--key").arg(&client_key).args(["--intercept", "all", "--include-private"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let client = lab.spawn(Node::Device(0), command).map_err(lab_failure)?;
        let mut bond = Self { client };
        let clock = Clock::start();
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let (intercepts, missing) = progress(&text, lab);
            if intercepts && missing.is_empty() {
                return Ok(bond);
            }
            let has_ended = bond.client.try_wait().context("cannot watch the bond")?.is_some();
            let is_late = clock.now().since(Time::ZERO) > START_TIMEOUT;
            if is_late && intercepts && !has_ended {
                eprintln!("manyways: the bond has no connection over {}", missing.join(", "));
                return Ok(bond);
            }
            if has_ended || is_late {
                let reason = text.lines().last().unwrap_or("it gave no reason").to_owned();
                return Err(Failure::new(format!("the bond does not start: {reason}")).into());
            }
            sleep(POLL_INTERVAL.into());
        }
    }
}

/// The node of the gateway and its address.
fn gateway_of(lab: &Lab) -> Option<(usize, IpAddr)> {
    let (number, link) = lab.links().iter().enumerate().next_back()?;
    let [at, _] = address::device(number);
    Some((lab.device(link.device.as_deref()?)?, at))
}

/// Returns whether a client with this log intercepts IPv4, before which connections would pass the bond
/// by, and the links that lead out and over which it has no connection.
fn progress<'l>(log: &str, lab: &'l Lab) -> (bool, Vec<&'l str>) {
    let intercepts = ["IPv4 and IPv6 are intercepted", "IPv4 is intercepted"];
    // Without that of the gateway.
    let [links @ .., _] = lab.links() else { return (false, Vec::new()) };
    let out = links.iter().filter(|link| link.peer.is_none());
    let missing = out.filter(|link| !log.contains(&format!(": {} is up", link.name)));
    (
        intercepts.iter().any(|words| log.contains(words)),
        missing.map(|link| link.name.as_str()).collect(),
    )
}

impl Drop for Bond {
    fn drop(&mut self) {
        let _ = send(self.client.id() as i32, SIGTERM);
        let _ = self.client.wait();
    }
}
