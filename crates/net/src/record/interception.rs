//! Rules that lead the connections of a lab to the recorder.
//!
//! They are in the network namespace of the lab's far side and vanish with it. Packets that enter on
//! a link are redirected by TPROXY, so that the recorder's socket has the address of the origin;
//! the recorder's own connections leave unchanged. QUIC is rejected, so that clients use TCP.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use manyways_sys::socket::transparent::transparent_tcp_listener;

/// Ports of HTTP and HTTPS.
const PORTS: &str = "{ 80, 443 }";
/// Mark of redirected packets, and number of the routing table that delivers them locally. The
/// namespace is the lab's own, which uses neither.
const MARK: u32 = 0x4d57;

/// Opens the recorder's sockets, for IPv4 and IPv6, and redirects to them what enters on these
/// interfaces. Call it in the namespace. If `leads_ipv6_out` is false, connections over IPv6 that
/// leave the lab are not accepted, so that clients turn to IPv4 at once.
///
/// # Errors
/// The kernel, `nft` or `ip` refuses.
pub(super) fn install(interfaces: &[String], leads_ipv6_out: bool) -> io::Result<[TcpListener; 2]> {
    let listen = |address: SocketAddr| transparent_tcp_listener(address, None);
    let v4 = listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let v6 = listen((Ipv6Addr::LOCALHOST, 0).into())?;
    let ports = [v4.local_addr()?.port(), v6.local_addr()?.port()];
    run("nft", &["-f", "-"], &script(interfaces, ports, leads_ipv6_out))?;
    for (family, every) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        let batch = format!(
            "rule add fwmark {MARK} lookup {MARK}\nroute add local {every} dev lo table {MARK}\n"
        );
        run("ip", &[family, "-batch", "-"], &batch)?;
    }
    Ok([v4, v6])
}

fn script(interfaces: &[String], [v4, v6]: [u16; 2], leads_ipv6_out: bool) -> String {
    let names: Vec<String> = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    let from = format!("iifname {{ {} }}", names.join(", "));
    let mut script = String::from("table inet manyways_record {\n");
    script.push_str("chain to_recorder {\ntype filter hook prerouting priority mangle;\n");
    // A proxy accepts before it knows whether the origin does, and many clients try another address
    // only if the first one does not accept. So nothing is accepted for the lab's own servers where
    // none listens (a socket, bound to its address or to any), and where no route leads out.
    let own = "fib daddr type local socket wildcard { 0, 1 }";
    // A connection of the recorder that has ended, and whose client uses its port again: the first rule
    // does not match sockets in TIME-WAIT, and the server itself would get the new connection.
    let again = "fib daddr type local socket transparent 1";
    let (everywhere, inside) = ([own, again, "fib daddr type != local"], [own, again]);
    let v6_to = if leads_ipv6_out { &everywhere[..] } else { &inside };
    for (family, version, target, to) in [
        ("ipv4", "ip", format!("127.0.0.1:{v4}"), &everywhere[..]),
        ("ipv6", "ip6", format!("[::1]:{v6}"), v6_to),
    ] {
        for to in to {
            let _ = writeln!(
                script,
                "{from} meta nfproto {family} tcp dport {PORTS} {to} tproxy {version} to {target} \
                 meta mark set {MARK} accept"
            );
        }
    }
    script.push_str("}\n");
    for hook in ["input", "forward"] {
        let _ = writeln!(
            script,
            "chain quic_{hook} {{\ntype filter hook {hook} priority filter;\n{from} udp dport 443 reject\n}}"
        );
    }
    script.push_str("}\n");
    script
}

/// Runs a program, which reads `input`.
fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run {program}: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    let reason = reason.lines().next().unwrap_or("it gave no reason").to_owned();
    Err(io::Error::other(format!("{program} failed: {reason}")))
}
