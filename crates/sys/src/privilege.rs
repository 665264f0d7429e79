//! Drops privileges that a long-running server does not need, and raises limits.

use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};

/// Reasons why the process could not become another user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// The user does not exist.
    #[error("there is no user {0}: make one with `useradd --system {0}`")]
    NoUser(String),
    /// The user is root, so that no privileges would be dropped.
    #[error("the user {0} is root: name an unprivileged user")]
    Root(String),
    /// The process is neither root nor that user.
    #[error("only root can become the user {0}: start it as root, or as {0}")]
    NotRoot(String),
    /// The kernel or the user database failed.
    #[error("cannot become the user {user}: {error}")]
    System {
        user: String,
        /// The reported error.
        #[source]
        error: io::Error,
    },
}

/// Permanently changes to a user with its group and no other groups, without capabilities, and
/// without a way to gain any through set-user-id programs. Open files stay open.
///
/// User and group change for all threads, but the flag against new privileges applies to the
/// calling thread and the threads that it starts later. Call before there are other threads.
///
/// # Errors
/// After an error the process may have mixed privileges and must exit.
pub fn drop_to(name: &str) -> Result<(), DropError> {
    let system =
        |error: nix::Error| DropError::System { user: name.to_owned(), error: error.into() };
    let user = find(name)?;
    let already = Uid::current() == user.uid && Uid::effective() == user.uid;
    if !Uid::effective().is_root() && !already {
        return Err(DropError::NotRoot(name.to_owned()));
    }
    set_no_new_privs().map_err(system)?;
    if already {
        return Ok(());
    }
    // In this order: each step needs a privilege that the next one drops.
    setgroups(&[user.gid]).map_err(system)?;
    setresgid(user.gid, user.gid, user.gid).map_err(system)?;
    setresuid(user.uid, user.uid, user.uid).map_err(system)?;
    // After the last root id is gone, the kernel clears the capabilities, unless a setting of the
    // process keeps them. In that case the call succeeds, which must be an error.
    if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
        let error = io::Error::other("the process could become root again");
        return Err(DropError::System { user: name.to_owned(), error });
    }
    Ok(())
}

fn find(name: &str) -> Result<User, DropError> {
    let system =
        |error: nix::Error| DropError::System { user: name.to_owned(), error: error.into() };
    let user =
        User::from_name(name).map_err(system)?.ok_or_else(|| DropError::NoUser(name.to_owned()))?;
    if user.uid.is_root() || user.gid == Gid::from_raw(0) {
        return Err(DropError::Root(name.to_owned()));
    }
    Ok(user)
}

/// Gives a file or folder to a user that [`drop_to`] accepts. Does not follow symbolic links.
///
/// # Errors
/// If the user does not exist, or this process lacks the permission.
pub fn give_to(name: &str, path: &Path) -> Result<(), DropError> {
    let user = find(name)?;
    lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        .map_err(|error| DropError::System { user: name.to_owned(), error })
}

/// Takes back the ownership of a file or folder.
pub fn take_ownership(path: &Path) -> io::Result<()> {
    lchown(path, Some(Uid::effective().as_raw()), Some(Gid::effective().as_raw()))
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The effective user of this process.
pub fn user_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Raises the limit of open files to the maximum that this process may set, and returns it.
pub fn raise_file_limit() -> io::Result<u64> {
    let (now, max) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if now < max {
        setrlimit(Resource::RLIMIT_NOFILE, max, max)?;
    }
    Ok(max)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    /// Set in the process that drops its privileges.
    const CHILD: &str = "MANYWAYS_TEST_PRIVILEGE_CHILD";

    fn again(test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "--test-threads=1", test]).env(CHILD, "1");
        command
    }

    #[test]
    fn nothing_is_left_of_root() {
        if std::env::var_os(CHILD).is_some() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            drop_to("nobody").unwrap();
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            let nobody = User::from_name("nobody").unwrap().unwrap();
            assert_eq!(field("Uid:"), vec![nobody.uid.to_string(); 4]);
            assert_eq!(field("Gid:"), vec![nobody.gid.to_string(); 4]);
            assert_eq!(field("Groups:"), [nobody.gid.to_string()]);
            for set in ["CapPrm:", "CapEff:", "CapAmb:"] {
                assert_eq!(field(set), ["0000000000000000"], "{set}");
            }
            assert_eq!(field("NoNewPrivs:"), ["1"]);
            assert!(fs::read("/etc/shadow").is_err());
            assert!(listener.local_addr().is_ok(), "open sockets stay open");
            drop_to("nobody").unwrap();
            assert!(matches!(drop_to("daemon"), Err(DropError::NotRoot(_))));
            return;
        }
        if !crate::sandbox::is_root() || !matches!(User::from_name("nobody"), Ok(Some(_))) {
            eprintln!("skipped: needs root, and a user nobody");
            return;
        }
        let output = again("privilege::tests::nothing_is_left_of_root").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn nobody_unknown_and_not_root() {
        assert!(matches!(drop_to("no-such-user"), Err(DropError::NoUser(_))));
        assert!(matches!(drop_to("root"), Err(DropError::Root(_))));
    }

    #[test]
    fn the_limit_of_files_becomes_the_hard_one() {
        if std::env::var_os(CHILD).is_some() {
            setrlimit(Resource::RLIMIT_NOFILE, 64, 128).unwrap();
            assert_eq!(raise_file_limit().unwrap(), 128);
            assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (128, 128));
            assert_eq!(raise_file_limit().unwrap(), 128, "it may be called again");
            return;
        }
        let mut child = again("privilege::tests::the_limit_of_files_becomes_the_hard_one");
        assert!(child.stdout(Stdio::null()).status().unwrap().success());
    }
}
