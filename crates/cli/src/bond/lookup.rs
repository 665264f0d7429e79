//! The addresses of the gateway. The latest result of a lookup is stored: the rules of a killed
//! client may refuse DNS queries, and a device may start before its network.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use anyhow::Result;
use manyways_net::state::state_folder;
use manyways_proto::bond::io_limits::IoLimits;
use manyways_sys::tproxy::{self, Names};

use crate::failure::Failure;

/// Resolves the name of the gateway. If that fails, the stored addresses are used: a host at a
/// former address cannot impersonate the gateway without its key. Without stored addresses, a
/// lookup that fails temporarily is repeated until it succeeds.
pub fn resolve(gateway: &str) -> Result<Vec<SocketAddr>> {
    let mut waits = false;
    loop {
        let error = match gateway.to_socket_addrs() {
            Ok(found) => {
                let found: Vec<SocketAddr> = found.collect();
                store(gateway, &found);
                return Ok(found);
            }
            Err(error) => error,
        };
        let last = store_path().map(|file| load(&file, gateway)).unwrap_or_default();
        if !last.is_empty() {
            let words: Vec<String> = last.iter().map(ToString::to_string).collect();
            tracing::warn!(
                "the gateway {gateway:?} cannot be resolved ({error}): trying its last known addresses, {}",
                words.join(", ")
            );
            return Ok(last);
        }
        if !is_temporary(&error) {
            return Err(failure(gateway, &error).into());
        }
        if !waits {
            eprintln!("manyways: the gateway {gateway:?} cannot be resolved yet: {error}");
            eprintln!(
                "hint: {}; Ctrl-C stops the client",
                hint("the lookup is repeated until it succeeds")
            );
        }
        waits = true;
        std::thread::sleep(IoLimits::default().gateway_lookup_retry.into());
    }
}

/// Whether a resolver error is temporary. The error is only a text, of glibc or of musl.
fn is_temporary(error: &io::Error) -> bool {
    let words = error.to_string();
    ["Temporary failure in name resolution", "Try again"].iter().any(|end| words.ends_with(end))
}

/// Stores the addresses of a name in place of earlier ones.
pub fn store(gateway: &str, found: &[SocketAddr]) {
    // An address need not be resolved.
    let Some(file) = store_path().filter(|_| gateway.parse::<SocketAddr>().is_err()) else {
        return;
    };
    if let Err(error) = write(&file, gateway, found) {
        tracing::debug!("cannot store the gateway's addresses: {}: {error}", file.display());
    }
}

fn failure(gateway: &str, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("the gateway {gateway:?} cannot be resolved: {error}"));
    let usual = "write a host and a port, like gw.example:4433";
    failure.hint(match error.kind() {
        io::ErrorKind::InvalidInput => usual.to_owned(),
        _ => hint(usual),
    })
}

/// Returns the hint for a name that is not found: `usual`, unless rules of a killed client remain.
fn hint(usual: &str) -> String {
    let names = Names::default();
    if !tproxy::has_leftover(&names) {
        return usual.to_owned();
    }
    format!(
        "packet filter rules of a killed client may block the lookup: `nft delete table inet {}` \
         removes them",
        names.nft
    )
}

/// Returns the path of the file. Each line contains a name and its addresses.
fn store_path() -> Option<PathBuf> {
    Some(state_folder()?.join("gateways"))
}

fn load(file: &Path, gateway: &str) -> Vec<SocketAddr> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(gateway)?.strip_prefix(' '));
    line.into_iter().flat_map(str::split_whitespace).filter_map(|at| at.parse().ok()).collect()
}

fn write(file: &Path, gateway: &str, found: &[SocketAddr]) -> io::Result<()> {
    let mut old = load(file, gateway);
    let mut found = found.to_vec();
    // A resolver may change the order each time.
    old.sort();
    found.sort();
    if old == found {
        return Ok(());
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let others = text.lines().filter(|line| line.split(' ').next() != Some(gateway));
    let words = found.iter().map(ToString::to_string);
    let own = std::iter::once(gateway.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    let lines: Vec<&str> = others.chain([own.as_str()]).collect();
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = file.with_extension("new");
    fs::write(&new, lines.join("\n") + "\n")?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_last_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/gateways");
        let at = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        let (one, two) = ("gw.example:4433", "gw.example:443");
        assert_eq!(load(&file, one), []);
        write(&file, one, &at("192.0.2.1:4433")).unwrap();
        write(&file, two, &at("192.0.2.2:443")).unwrap();
        write(&file, one, &at("[2001:db8::1]:4433")).unwrap();
        assert_eq!(load(&file, one), at("[2001:db8::1]:4433"));
        assert_eq!(load(&file, two), at("192.0.2.2:443"));
        assert_eq!(load(&file, "gw.example"), []);
    }
}
