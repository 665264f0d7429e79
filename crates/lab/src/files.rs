//! Files that the commands of a lab see instead of those of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_sys::sandbox::View;
use manyways_trace::scenario::{DEFAULT_DEVICE, DelaySpec, DirectionSpec, HostSpec, LinkSpec};
use manyways_unit::Span;

use super::network::LinkEnd;
use super::{DOMAIN, Device, Host, address, links_of};

/// A file or folder that a command sees, read-only, instead of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    /// A file or folder of this machine, like the source. It must exist, because a place for it would
    /// have to be made in a folder of this machine.
    pub target: PathBuf,
}

/// Returns the files that a command on a device, or on a remote host, sees instead of those of this
/// machine.
pub(crate) fn view(folder: &Path, device: Option<&str>) -> io::Result<View> {
    let hosts = folder.join(if device.is_some() { "hosts" } else { "hosts-far" });
    let mut view = View::default()
        .bind(&hosts, Path::new("/etc/hosts"))?
        .bind(&folder.join("nsswitch.conf"), Path::new("/etc/nsswitch.conf"))?;
    if let Some(device) = device {
        view = view.bind(&folder.join(resolv_conf(device)), Path::new("/etc/resolv.conf"))?;
    }
    Ok(view)
}

/// Returns the name of a device's `resolv.conf` in the folder of the lab.
fn resolv_conf(device: &str) -> String {
    match device {
        DEFAULT_DEVICE => "resolv.conf".to_owned(),
        _ => format!("resolv.conf-{device}"),
    }
}

/// Writes these files. A device resolves every name through its gateways, which may return different
/// addresses. The remote hosts have no resolver and use their hosts file.
pub(crate) fn write_views(
    folder: &Path,
    links: &[LinkSpec],
    devices: &[Device],
    hosts: &[Host],
) -> io::Result<()> {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut text = format!("127.0.0.1 localhost {}\n::1 localhost\n", own.trim());
    fs::write(folder.join("hosts"), &text)?;
    for (index, host) in hosts.iter().enumerate() {
        for address in address::host(index) {
            text.push_str(&format!("{address} {}.{DOMAIN}\n", host.spec.name));
        }
    }
    fs::write(folder.join("hosts-far"), text)?;
    for (number, device) in devices.iter().enumerate() {
        let name = &device.spec.name;
        let own = links_of(name, number == 0, links).into_iter();
        let own: Vec<LinkEnd<'_>> =
            own.filter(|link| link.spec.peer.is_none()).take(NAME_SERVERS).collect();
        let timeout = own.iter().map(|link| lookup_timeout(link.spec, &hosts[0].spec));
        let mut text = format!("options timeout:{} attempts:3\n", timeout.max().unwrap_or(1));
        for link in own {
            text.push_str(&format!("nameserver {}\n", address::gateway(link.index)[0]));
        }
        fs::write(folder.join(resolv_conf(name)), text)?;
    }
    // Otherwise the host's resolver daemon would be queried first and answer for the host's
    // network.
    fs::write(
        folder.join("nsswitch.conf"),
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n\
         protocols: files\n",
    )
}

/// The C library queries at most three servers.
const NAME_SERVERS: usize = 3;

/// Returns the timeout in seconds of a lookup over a link to its gateway, which is on the first
/// remote host: twice the round-trip time of the link, from 1 to the maximum of the C library.
fn lookup_timeout(link: &LinkSpec, host: &HostSpec) -> u64 {
    /// `RES_MAXRETRANS`.
    const LONGEST: u64 = 30;
    let longest = |delay: &DelaySpec| match delay {
        DelaySpec::Constant(span) => *span,
        DelaySpec::Trace { steps, .. } => {
            steps.steps().iter().map(|(_, span)| *span).max().unwrap_or_default()
        }
    };
    let one_way = |direction: &DirectionSpec| longest(&direction.delay) + direction.jitter;
    let extra = host.extra_delay.iter().find(|(name, _)| *name == link.name);
    let extra = extra.map_or(Span::ZERO, |(_, span)| *span);
    let rtt = one_way(&link.down) + one_way(&link.up) + extra + extra;
    ((rtt + rtt).as_secs_f64().ceil() as u64).clamp(1, LONGEST)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::registry::Registry;
    use crate::{Lab, LabError, LabSpec, Node};

    fn output(lab: &Lab, script: &str, mounts: &[Mount]) -> Result<String, LabError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let child = lab.spawn_with(Node::Device(0), command, mounts)?;
        Ok(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
    }

    #[test]
    fn a_command_sees_its_mounts_beside_the_files_of_the_lab() {
        if !manyways_sys::sandbox::is_root() || !Path::new("/dev/net/tun").exists() {
            eprintln!("skipped: a lab needs root and /dev/net/tun");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["bundle", "place"] {
            fs::write(file(name), format!("{name}\n")).unwrap();
        }
        let registry = Registry::at(file("registry")).unwrap();
        let cc = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        let mut spec = LabSpec::new("mounts".into(), vec![LinkSpec::new("wifi")]);
        spec.cc = cc.trim().to_owned();
        let lab = Lab::start(&registry, spec).unwrap();
        let mount = |target: &str| Mount { source: file("bundle"), target: file(target) };
        let script =
            format!("cat {}; grep -c nameserver /etc/resolv.conf", file("place").display());
        assert_eq!(output(&lab, &script, &[mount("place")]).unwrap(), "bundle\n1\n");
        assert_eq!(output(&lab, &script, &[]).unwrap(), "place\n1\n");
        let error = output(&lab, "true", &[mount("missing")]).unwrap_err();
        assert!(matches!(error, LabError::Mount { .. }), "{error}");
        assert!(error.to_string().contains("/missing: "), "{error}");
    }

    #[test]
    fn a_lookup_waits_for_the_slowest_link() {
        let timeout = |text: &str, extra: u64| {
            let mut read = |_: &str| Ok(b"0 40\n1 3000\n".to_vec());
            let link = LinkSpec::parse(text, &mut read).unwrap();
            let host = HostSpec {
                name: "origin".into(),
                extra_delay: vec![("wifi".into(), Span::from_secs(extra))],
                names: Vec::new(),
                serve: Vec::new(),
            };
            lookup_timeout(&link, &host)
        };
        assert_eq!(timeout("wifi", 0), 1);
        assert_eq!(timeout("wifi:delay=32ms", 0), 1);
        assert_eq!(timeout("wifi:delay=4s", 0), 16);
        assert_eq!(timeout("wifi:down-delay=1s,jitter=500ms", 1), 8);
        assert_eq!(timeout("wifi:up-delay=trace:x", 0), 6);
        assert_eq!(timeout("wifi:delay=10s", 0), 30);
    }
}
