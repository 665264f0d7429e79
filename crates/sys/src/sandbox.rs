//! A process tree that cannot outlive its owner.
//!
//! A [`Sandbox`] is a PID namespace whose first process does nothing but wait: it ends when its
//! owner ends, however the owner ends, and the kernel then kills everything else in the
//! namespace. Orphans are reaped at once, so no zombies stay. Commands see a mount namespace of
//! their own, so that `/proc`, `/sys` and a few files of `/etc` can fit the network that they are
//! in.

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

/// The namespace and the process that holds it.
#[derive(Debug)]
pub struct Sandbox {
    init: i32,
    /// The first process reads from the other end; it sees the end of file when we are gone.
    lifeline: Option<OwnedFd>,
    pids: File,
    mounts: File,
    process: Option<OwnedFd>,
}

/// How long the end of a sandbox waits for its processes, in milliseconds.
const END_PATIENCE: u16 = 2000;

/// What a command sees beside its network namespace.
#[derive(Debug, Default)]
pub struct View {
    binds: Vec<(CString, CString)>,
    folder: Option<CString>,
}

impl View {
    /// Puts `file` over `at`, for this command alone. A target that is not there is left out.
    pub fn bind(mut self, file: &Path, at: &Path) -> io::Result<Self> {
        // A symbolic link (resolv.conf often is one) would be followed only at mount time.
        if let Ok(target) = at.canonicalize() {
            self.binds.push((cstring(file.as_os_str())?, cstring(target.as_os_str())?));
        }
        Ok(self)
    }

    /// Starts the command in the folder where it would start elsewhere: joining a mount namespace
    /// leads to its root.
    fn in_folder_of(mut self, command: &Command) -> io::Result<Self> {
        let folder = match command.get_current_dir() {
            Some(folder) => Some(std::path::absolute(folder)?),
            // A folder that was removed has no name.
            None => std::env::current_dir().ok(),
        };
        self.folder = folder.map(|folder| cstring(folder.as_os_str())).transpose()?;
        Ok(self)
    }
}

impl Sandbox {
    /// Starts an empty sandbox. Call it while the process has a single thread: the child is a
    /// plain fork that never executes another program.
    pub fn start() -> io::Result<Self> {
        let (lifeline_read, lifeline) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (ready_read, ready_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
        // SAFETY: with no stack given and no shared memory this is `fork`; the child calls only
        // system calls and leaves through `_exit`.
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
                    return Err(io::Error::other("the sandbox's first process died at once"));
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

    /// The first process's id, as the owner sees it.
    pub fn init_pid(&self) -> i32 {
        self.init
    }

    /// Starts `command` in the sandbox and in the network namespace `net`.
    pub fn spawn(&self, mut command: Command, net: &NetNs, view: View) -> io::Result<Child> {
        let (mounts, network) = (self.mounts.as_raw_fd(), net.as_fd().as_raw_fd());
        let view = view.in_folder_of(&command)?;
        // SAFETY: the closure only makes system calls on memory that was laid out before the fork.
        unsafe { command.pre_exec(move || settle(mounts, network, &view)) };
        // Only the children of a thread that asked for it are born in the namespace, and such a
        // thread can start no others: it serves this once.
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
        // The first process's end takes every other process along; it shows only when they have
        // all gone. One that another process is to wait for may take long: that one's affair.
        let Some(init) = self.process.take() else { return };
        let mut fds = [PollFd::new(init.as_fd(), PollFlags::POLLIN)];
        let gone = poll(&mut fds, END_PATIENCE).unwrap_or_default();
        if gone > 0 {
            let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(self.init), None);
        }
    }
}

/// Starts `command` inside the sandbox of another process: `owner` is that process, `init` the
/// sandbox's first one, `net_fd` the owner's descriptor of the network namespace.
///
/// Call it while the process has a single thread: joining a user namespace needs that.
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
    // Joining the namespace one is in already is an error.
    if user.metadata()?.ino() != std::fs::metadata("/proc/self/ns/user")?.ino() {
        setns(&user, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(&pids, CloneFlags::CLONE_NEWPID)?;
    let (mounts_fd, net_fd) = (mounts.as_raw_fd(), net.as_raw_fd());
    let view = view.in_folder_of(&command)?;
    // SAFETY: as in `Sandbox::spawn`.
    unsafe { command.pre_exec(move || settle(mounts_fd, net_fd, &view)) };
    command.spawn()
}

/// Moves a process that is about to execute its program to where it belongs.
fn settle(mounts: RawFd, network: RawFd, view: &View) -> io::Result<()> {
    // SAFETY: plain system calls with open descriptors.
    unsafe {
        check(libc::setns(mounts, libc::CLONE_NEWNS))?;
        check(libc::setns(network, libc::CLONE_NEWNET))?;
        check(libc::unshare(libc::CLONE_NEWNS))?;
    }
    signal::release()?;
    make_private()?;
    // The view of /sys belongs to whoever mounted it. Where that is refused, programs that ask
    // /sys/class/net see the host's interfaces; everything else works.
    let _ = mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), libc::MS_RDONLY);
    for (file, at) in &view.binds {
        mount(Some(file), at, None, libc::MS_BIND)?;
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
    // SAFETY: every string ends in NUL and outlives the call; null is allowed where it is given.
    check(unsafe {
        libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, std::ptr::null())
    })
}

/// The life of the sandbox's first process.
fn become_init(lifeline: RawFd, ready: RawFd) -> ! {
    // SAFETY: only system calls until `_exit`; see `Sandbox::start`.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"manyways-init".as_ptr());
        // Children whose parent died come to us; ignoring SIGCHLD lets the kernel reap them.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // The terminal's signals are the commands' business.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        if make_private().is_err() {
            libc::_exit(1);
        }
        // Refused in some containers, where the outer /proc then shows the outer process ids.
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let _ = mount(Some(c"proc"), c"/proc", Some(c"proc"), flags);
        if libc::write(ready, c"r".as_ptr().cast(), 1) != 1 {
            libc::_exit(1);
        }
        // A pipe of the caller's that we kept open would never come to its end.
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

fn make_private() -> io::Result<()> {
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Makes the calling process root of a user namespace of its own, in which it may make the other
/// kinds. Call it while the process has a single thread.
///
/// # Errors
/// Where the kernel or its settings forbid it (`EPERM`, `ENOSPC`).
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

/// Whether the process may make namespaces as it is.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The effective user's id.
pub fn user_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn cstring(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
