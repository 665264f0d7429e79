//! Listen addresses on the command line, and hints for errors of listening sockets.

use std::io;
use std::net::SocketAddr;

/// Parses an address for connections from other hosts.
pub fn parse_public(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, "[::]", 4433)
}

/// Parses an address for programs on this host.
pub fn parse_local(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, "127.0.0.1", 1080)
}

fn parse_addr(text: &str, host: &str, port: u16) -> Result<SocketAddr, String> {
    let named = text.rsplit(':').next().and_then(|port| port.parse().ok());
    // The last part of an IPv6 address without a port is not a port.
    let named = named.filter(|_| text.matches(':').count() <= 1);
    let port: u16 = named.unwrap_or(port);
    text.parse().map_err(|_| format!("write an address and a port, like {host}:{port}"))
}

/// Returns the hint for an error of a listening socket. `taken` is the hint for a used address.
pub fn hint(at: SocketAddr, error: &io::Error, taken: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => taken.to_owned(),
        io::ErrorKind::AddrNotAvailable => {
            let all = if at.is_ipv4() { "0.0.0.0" } else { "[::]" };
            format!("this host has no address {}; use {all} to listen on all addresses", at.ip())
        }
        io::ErrorKind::PermissionDenied if at.port() < 1024 => {
            "ports below 1024 need root, or CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => "name another address or port".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_something_out_hears_how_it_is_written() {
        for (text, words) in [
            ("4444", "write an address and a port, like [::]:4444"),
            (":4444", "write an address and a port, like [::]:4444"),
            ("localhost:4444", "write an address and a port, like [::]:4444"),
            ("", "write an address and a port, like [::]:4433"),
            ("2001:db8::1", "write an address and a port, like [::]:4433"),
            ("0.0.0.0:70000", "write an address and a port, like [::]:4433"),
        ] {
            assert_eq!(parse_public(text).unwrap_err(), words, "{text}");
        }
        assert_eq!(
            parse_local("9100").unwrap_err(),
            "write an address and a port, like 127.0.0.1:9100"
        );
        assert_eq!(parse_local("[::1]:1080").unwrap().to_string(), "[::1]:1080");
    }

    #[test]
    fn the_hint_is_about_what_is_wrong() {
        let hint = |at: &str, kind: io::ErrorKind| {
            hint(at.parse().unwrap(), &io::Error::from(kind), "somebody is there")
        };
        assert_eq!(hint("[::]:80", io::ErrorKind::AddrInUse), "somebody is there");
        let words = "this host has no address 192.0.2.1; use 0.0.0.0 to listen on all addresses";
        assert_eq!(hint("192.0.2.1:80", io::ErrorKind::AddrNotAvailable), words);
        assert!(hint("[::]:80", io::ErrorKind::PermissionDenied).contains("need root"));
        let words = "name another address or port";
        assert_eq!(hint("[::]:8080", io::ErrorKind::PermissionDenied), words);
    }
}
