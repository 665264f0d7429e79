//! A process tree that cannot outlive its owner.
//!
//! A [`Sandbox`] is a PID namespace whose first process only waits. It ends when its owner ends,
//! for whatever reason, and the kernel then kills all other processes in the namespace. Orphans are
//! reaped at once, so that no zombies remain. Commands have a separate mount namespace, so that
//! `/proc`, `/sys` and a few files of `/etc` can match their network.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CloneFlags, setns};

use crate::netns::NetNs;
use crate::signal;
use crate::wait::pidfd;

/// The namespace and its first process.
#[derive(Debug)]
pub struct Sandbox {
    init: i32,
    /// The first process reads the other end and sees the end of file when the owner has ended.
    lifeline: Option<OwnedFd>,
    pids: File,
    mounts: File,
    process: Option<OwnedFd>,
}

/// Time in milliseconds in which the processes of a sandbox must end.
const END_TIMEOUT: u16 = 2000;

/// Files that a command sees, in addition to its network namespace.
#[derive(Debug, Default)]
pub struct View {
    binds: Vec<Bind>,
    folder: Option<CString>,
}

#[derive(Debug)]
struct Bind {
    file: CString,
    at: CString,
    is_read_only: bool,
}

impl View {
    /// Mounts `file` over `at`, for this command only. A target that does not exist is skipped.
    pub fn bind(mut self, file: &Path, at: &Path) -> io::Result<Self> {
        // A symbolic link (such as resolv.conf on many hosts) would be followed only when mounting.
        if let Ok(target) = at.canonicalize() {
            self.push(file, &target, false)?;
        }
        Ok(self)
    }

    /// Mounts a file or folder over `at`, for this command only, which cannot write to it.
    ///
    /// # Errors
    /// `NotFound` if one of them does not exist; `NotADirectory` or `IsADirectory` if only one of
    /// them is a folder.
    pub fn bind_read_only(mut self, file: &Path, at: &Path) -> io::Result<Self> {
        let (file, at) = (file.canonicalize()?, at.canonicalize()?);
        match (file.is_dir(), at.is_dir()) {
            (true, false) => Err(io::ErrorKind::NotADirectory.into()),
            (false, true) => Err(io::ErrorKind::IsADirectory.into()),
            _ => {
                self.push(&file, &at, true)?;
                Ok(self)
            }
        }
    }

    fn push(&mut self, file: &Path, at: &Path, is_read_only: bool) -> io::Result<()> {
        let (file, at) = (cstring(file.as_os_str())?, cstring(at.as_os_str())?);
        self.binds.push(Bind { file, at, is_read_only });
        Ok(())
    }

    /// Starts the command in the folder in which it would start otherwise: joining a mount
    /// namespace changes to its root.
    fn in_folder_of(mut self, command: &Command) -> io::Result<Self> {
        let folder = match command.get_current_dir() {
            Some(folder) => Some(std::path::absolute(folder)?),
            // A removed folder has no name.
            None => std::env::current_dir().ok(),
        };
        self.folder = folder.map(|folder| cstring(folder.as_os_str())).transpose()?;
        Ok(self)
    }
}

impl Sandbox {
    /// Starts an empty sandbox. Call while the process has a single thread: the child is a plain
    /// fork that never executes another program.
    pub fn start() -> io::Result<Self> {
        let (lifeline_read, lifeline) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (ready_read, ready_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
        // SAFETY: without a stack and shared memory this is `fork`; the child makes only system
        // calls and ends with `_exit`.
        let init = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match init {
            ..0 => Err(io::Error::last_os_error()),
            0 => {
                drop((lifeline, ready_read));
                become_init(lifeline_read.as_raw_fd(), ready_write.as_raw_fd())
            }
            _ => {
                drop((lifeline_read, ready_write));
                if File::from(ready_read).read(&mut [0])? == 0 {
                    return Err(io::Error::other("the sandbox's first process ended immediately"));
                }
                let namespace = |kind: &str| File::open(format!("/proc/{init}/ns/{kind}"));
                Ok(Self {
                    init: init as i32,
                    lifeline: Some(lifeline),
                    pids: namespace("pid")?,
                    mounts: namespace("mnt")?,
                    process: Some(pidfd(init as i32)?),
                })
            }
        }
    }

    /// Returns the id of the first process, as seen by the owner.
    pub fn init_pid(&self) -> i32 {
        self.init
    }

    /// Starts `command` in the sandbox and in the network namespace `net`.
    pub fn spawn(&self, mut command: Command, net: &NetNs, view: View) -> io::Result<Child> {
        let (mounts, network) = (self.mounts.as_raw_fd(), net.as_fd().as_raw_fd());
        let view = view.in_folder_of(&command)?;
        // SAFETY: the closure only makes system calls on memory that was prepared before the fork.
        unsafe { command.pre_exec(move || enter_namespaces(mounts, network, &view)) };
        // Only children of a thread that called `setns` are created in the namespace, and that
        // thread cannot start threads: it is used only for this command.
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.pids, CloneFlags::CLONE_NEWPID)?;
                    command.spawn()
                })
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")))
        })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.lifeline = None;
        // The end of the first process ends all others; it is reported only when all have ended. A
        // process that another process must reap may take long, hence the limit.
        let Some(init) = self.process.take() else { return };
        let mut fds = [PollFd::new(init.as_fd(), PollFlags::POLLIN)];
        let gone = poll(&mut fds, END_TIMEOUT).unwrap_or_default();
        if gone > 0 {
            let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(self.init), None);
        }
    }
}

/// Starts `command` inside the sandbox of another process: `owner` is that process, `init` the
/// first process of the sandbox, `net_fd` the owner's descriptor of the network namespace.
///
/// Call while the process has a single thread: joining a user namespace requires it.
pub fn spawn_in(
    owner: i32,
    init: i32,
    net_fd: i32,
    mut command: Command,
    view: View,
) -> io::Result<Child> {
    let user = File::open(format!("/proc/{owner}/ns/user"))?;
    let pids = File::open(format!("/proc/{init}/ns/pid"))?;
    let mounts = File::open(format!("/proc/{init}/ns/mnt"))?;
    let net = File::open(format!("/proc/{owner}/fd/{net_fd}"))?;
    // Joining the current user namespace is an error.
    if user.metadata()?.ino() != std::fs::metadata("/proc/self/ns/user")?.ino() {
        setns(&user, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(&pids, CloneFlags::CLONE_NEWPID)?;
    let (mounts_fd, net_fd) = (mounts.as_raw_fd(), net.as_raw_fd());
    let view = view.in_folder_of(&command)?;
    // SAFETY: as in `Sandbox::spawn`.
    unsafe { command.pre_exec(move || enter_namespaces(mounts_fd, net_fd, &view)) };
    command.spawn()
}

/// Moves a process into its namespaces before it executes its program.
fn enter_namespaces(mounts: RawFd, network: RawFd, view: &View) -> io::Result<()> {
    // SAFETY: plain system calls with open descriptors.
    unsafe {
        check(libc::setns(mounts, libc::CLONE_NEWNS))?;
        check(libc::setns(network, libc::CLONE_NEWNET))?;
        check(libc::unshare(libc::CLONE_NEWNS))?;
    }
    signal::unblock_termination()?;
    make_private()?;
    // A mount of /sys shows the namespace of the process that mounted it. If the mount fails,
    // programs that read /sys/class/net see the host's interfaces; everything else works.
    let _ = mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), libc::MS_RDONLY);
    for Bind { file, at, is_read_only } in &view.binds {
        mount(Some(file), at, None, libc::MS_BIND)?;
        if *is_read_only {
            make_read_only(at)?;
        }
    }
    if let Some(folder) = &view.folder {
        // SAFETY: the string ends in NUL.
        check(unsafe { libc::chdir(folder.as_ptr()) })?;
    }
    Ok(())
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every string ends in NUL and outlives the call; null is allowed for the optional
    // ones.
    check(unsafe {
        libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, std::ptr::null())
    })
}

/// Runs the first process of the sandbox.
fn become_init(lifeline: RawFd, ready: RawFd) -> ! {
    // SAFETY: only system calls until `_exit`; see `Sandbox::start`.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"manyways-init".as_ptr());
        // Orphans become children of this process; ignoring SIGCHLD lets the kernel reap them.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // The commands handle the terminal's signals.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        if make_private().is_err() {
            libc::_exit(1);
        }
        // Fails in some containers, in which the outer /proc then shows the outer process ids.
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let _ = mount(Some(c"proc"), c"/proc", Some(c"proc"), flags);
        if libc::write(ready, c"r".as_ptr().cast(), 1) != 1 {
            libc::_exit(1);
        }
        // A pipe of the caller that stays open here would never reach its end.
        for fd in 0..libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 4096) as i32 {
            if fd != lifeline {
                libc::close(fd);
            }
        }
        let mut byte = 0_u8;
        while libc::read(lifeline, (&raw mut byte).cast(), 1) != 0 {}
        libc::_exit(0)
    }
}

/// Makes one mount read-only (Linux 5.12 or later). In a user namespace a remount would fail: it must
/// repeat flags like `nosuid` that the mount has from outside.
fn make_read_only(at: &CStr) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends in NUL, and the kernel reads as many bytes as the structure has.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            0,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result as libc::c_int)
}

fn make_private() -> io::Result<()> {
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Makes the calling process root of a new user namespace, in which it may create the other kinds
/// of namespaces. Call while the process has a single thread.
///
/// # Errors
/// If the kernel or its settings forbid it (`EPERM`, `ENOSPC`).
pub fn become_root_of_user_namespace() -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
    let write = |file: &str, text: String| {
        File::options().write(true).open(file)?.write_all(text.as_bytes())
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Whether the process can create namespaces without a user namespace.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Returns the effective user id.
pub fn user_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn cstring(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Output of a shell script in a sandbox with this view.
    fn run(script: &str, view: View) -> String {
        let (sandbox, net) = (Sandbox::start().unwrap(), NetNs::current().unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let child = sandbox.spawn(command, &net, view).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_command_sees_mounted_files_and_cannot_write_to_them() {
        if !is_root() {
            eprintln!("skipped: mounting files needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, text) in [("own", "own\n"), ("bundle", "bundle\n"), ("pki/cert", "cert\n")] {
            fs::create_dir_all(file("pki"))
                .and_then(|()| fs::create_dir_all(file("home")))
                .unwrap();
            fs::write(file(name), text).unwrap();
        }
        std::os::unix::fs::symlink("own", file("link")).unwrap();
        let view = View::default()
            .bind_read_only(&file("bundle"), &file("link"))
            .and_then(|view| view.bind_read_only(&file("pki"), &file("home")))
            .unwrap();
        let script = format!(
            "cd {}; cat own home/cert; \
             for at in own home/cert home/new; do echo x 2>/dev/null >$at && echo written; done; \
             echo kept >other",
            folder.path().display()
        );
        assert_eq!(run(&script, view), "bundle\ncert\n");
        // Neither the machine nor another command has the mounts.
        assert_eq!(fs::read_to_string(file("own")).unwrap(), "own\n");
        assert_eq!(fs::read_dir(file("home")).unwrap().count(), 0);
        let other = format!("cat {}/own", folder.path().display());
        assert_eq!(run(&other, View::default()), "own\n");
        // The sources are not read-only themselves.
        fs::write(file("bundle"), "new\n").unwrap();
        assert_eq!(fs::read_to_string(file("other")).unwrap(), "kept\n");
    }

    #[test]
    fn a_mount_without_a_source_or_a_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let kind = |from: &str, at: &str| {
            let view = View::default();
            view.bind_read_only(&folder.path().join(from), &folder.path().join(at))
                .unwrap_err()
                .kind()
        };
        assert_eq!(kind("file", "missing"), io::ErrorKind::NotFound);
        assert_eq!(kind("missing", "file"), io::ErrorKind::NotFound);
        assert_eq!(kind("file", ""), io::ErrorKind::IsADirectory);
        assert_eq!(kind("", "file"), io::ErrorKind::NotADirectory);
    }
}
