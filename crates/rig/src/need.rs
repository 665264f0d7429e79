//! Requirements of a test, and the message of a test that is skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::User;

use crate::programs::program;

/// A requirement of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// CAP_NET_ADMIN and CAP_SYS_ADMIN, for network namespaces and devices, and `/dev/net/tun`.
    /// Root in a container may lack them.
    Root,
    /// A command of this name, as [`program`] finds it.
    Command(&'a str),
    /// A file or folder at this path.
    File(&'a str),
    /// A user of this name.
    User(&'a str),
    /// User namespaces for users without capabilities.
    UserNamespaces,
    /// Each of these; for a constant that several tests share.
    All(&'a [Need<'a>]),
}

/// Returns a sentence about the first requirement that the machine does not meet. `None` if the
/// machine meets all of them.
pub fn missing(needs: &[Need<'_>]) -> Option<String> {
    needs.iter().find_map(|need| match *need {
        Need::All(needs) => missing(needs),
        Need::Root if !may_administer() => {
            Some("needs root with the right to make network namespaces".into())
        }
        Need::Root if !Path::new("/dev/net/tun").exists() => Some("needs /dev/net/tun".into()),
        Need::Command(name) if program(name).is_none() => Some(format!("needs the command {name}")),
        Need::File(path) if !Path::new(path).exists() => Some(format!("needs {path}")),
        Need::User(name) if !matches!(User::from_name(name), Ok(Some(_))) => {
            Some(format!("needs a user {name}"))
        }
        Need::UserNamespaces if !has_user_namespaces() => {
            Some("needs user namespaces for users without capabilities".into())
        }
        _ => None,
    })
}

/// Returns from a test early and prints the reason if the machine lacks a requirement. The runner
/// counts the test as skipped.
///
/// ```no_run
/// # use manyways_rig::{Need, needs};
/// needs!(Need::Root, Need::Command("nginx"));
/// ```
#[macro_export]
macro_rules! needs {
    ($($need:expr),+ $(,)?) => {
        if let Some(missing) = $crate::missing(&[$($need),+]) {
            eprintln!("skipped: {missing}");
            return;
        }
    };
}

/// Whether this process has CAP_NET_ADMIN and CAP_SYS_ADMIN.
fn may_administer() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & NET_ADMIN != 0 && mask & SYS_ADMIN != 0)
}

/// Tries `unshare` as the user with the number 65534, which only root can do.
fn has_user_namespaces() -> bool {
    let mut probe = Command::new("setpriv");
    probe.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    probe.args(["unshare", "-Urn", "true"]).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_thing_is_named() {
        assert_eq!(missing(&[Need::Command("sh"), Need::File("/proc/self")]), None);
        assert_eq!(
            missing(&[
                Need::Command("sh"),
                Need::Command("no-such-command"),
                Need::File("/nowhere")
            ]),
            Some("needs the command no-such-command".into())
        );
        assert_eq!(missing(&[Need::File("/nowhere")]), Some("needs /nowhere".into()));
        assert_eq!(missing(&[Need::User("root")]), None);
        let shared = Need::All(&[Need::Command("sh"), Need::User("no-such-user")]);
        assert_eq!(missing(&[shared]), Some("needs a user no-such-user".into()));
    }
}
