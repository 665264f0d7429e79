//! Network namespaces that have no name: they live as long as a descriptor or a process holds
//! them, so nothing is left behind when everything that used them has gone, however it went.

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
    /// A new namespace with nothing in it but `lo`, which is down.
    pub fn create() -> io::Result<Self> {
        // On a thread of its own, because the caller shall stay where it is.
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

    /// The calling thread's namespace.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?))
    }

    /// The namespace of a process.
    pub fn of_process(pid: i32) -> io::Result<Self> {
        Ok(Self(File::open(format!("/proc/{pid}/ns/net"))?))
    }

    /// The namespace that a file stands for, as those that `ip netns` names.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// A number that no other living namespace has.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.ino())
    }

    /// The namespace with that [`inode`](Self::inode). None where no process that is visible here is in
    /// it.
    pub fn find(inode: u64) -> Option<Self> {
        let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let mut found = processes.filter_map(|process| {
            let there = process.path().join("ns/net");
            let is_it = std::fs::metadata(&there).is_ok_and(|found| found.ino() == inode);
            is_it.then(|| Self::open(&there).ok()).flatten()
        });
        // Between the look and the opening a process may have ended.
        found.find(|found| found.inode().is_ok_and(|opened| opened == inode))
    }

    /// Moves the calling thread there, for good.
    pub fn enter(&self) -> io::Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        Ok(())
    }

    /// Runs `work` on a thread inside the namespace and gives its result. Sockets and devices
    /// made there stay there and may be used from anywhere.
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

    /// Another handle to the same namespace.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
