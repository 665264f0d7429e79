//! Unnamed network namespaces. They exist as long as a descriptor or a process uses them, so that
//! nothing remains after the users have ended, for whatever reason.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A handle to a network namespace.
#[derive(Debug)]
pub struct NetNs(File);

impl NetNs {
    /// Creates a namespace that contains only `lo`, which is down.
    pub fn create() -> io::Result<Self> {
        // On a separate thread, because the caller must stay in its namespace.
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    unshare(CloneFlags::CLONE_NEWNET)?;
                    Self::current()
                })
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
        })
    }

    /// Returns the calling thread's namespace.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?))
    }

    /// Returns the namespace of a process.
    pub fn of_process(pid: i32) -> io::Result<Self> {
        Ok(Self(File::open(format!("/proc/{pid}/ns/net"))?))
    }

    /// Opens a namespace by its file, such as those of `ip netns`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// Returns a number that no other existing namespace has.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.ino())
    }

    /// Returns the namespace with this [`inode`](Self::inode). `None` if no process that is visible
    /// here is in it.
    pub fn find(inode: u64) -> Option<Self> {
        let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let mut found = processes.filter_map(|process| {
            let there = process.path().join("ns/net");
            let is_it = std::fs::metadata(&there).is_ok_and(|found| found.ino() == inode);
            is_it.then(|| Self::open(&there).ok()).flatten()
        });
        // A process may end between the check and the opening of its namespace.
        found.find(|found| found.inode().is_ok_and(|opened| opened == inode))
    }

    /// Moves the calling thread into the namespace permanently.
    pub fn enter(&self) -> io::Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        Ok(())
    }

    /// Runs `work` on a thread inside the namespace and returns its result. Sockets and devices
    /// that it creates stay in the namespace and can be used from any thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter()?;
                    work()
                })
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
        })
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
