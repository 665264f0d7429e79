//! Files in folders that other users share, and the limits of a file system.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, FsType, fstatfs, statfs};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, eaccess};

/// File systems that may compress: more bytes fit than are free. The others are ZFS and bcachefs.
const COMPRESSING: [FsType; 3] = [BTRFS_SUPER_MAGIC, FsType(0x2fc1_2fc1), FsType(0xca45_1a4e)];
/// Extended attribute with the access control list of a file (acl(5)).
const ACL: &CStr = c"system.posix_acl_access";
/// Maximum size of an extended attribute (xattr(7)).
const MAX_ATTRIBUTE: usize = 64 << 10;

/// Bytes that this process can write to the file system of `file`, without regard to quotas.
/// `None` if the file system has no such limit, does not know it, or may compress.
pub fn free_bytes(file: &File) -> io::Result<Option<u64>> {
    let stat = fstatvfs(file)?;
    // Root may use blocks that are reserved for it.
    let is_root = crate::privilege::is_root();
    let free = if is_root { stat.blocks_free() } else { stat.blocks_available() };
    let is_known = stat.blocks() > 0 && !COMPRESSING.contains(&fstatfs(file)?.filesystem_type());
    Ok(is_known.then(|| free.saturating_mul(stat.fragment_size())))
}

/// Maximum length of a name in a folder, in bytes; 0 if it is unknown.
pub fn max_name_length(folder: &Path) -> io::Result<usize> {
    Ok(usize::try_from(statfs(folder)?.maximum_name_length()).unwrap_or(0))
}

/// Whether the permissions of an existing file allow this process to write to it. Does not open it.
pub fn may_write(path: &Path) -> bool {
    let denied = [Errno::EACCES, Errno::EPERM, Errno::EROFS];
    eaccess(path, AccessFlags::W_OK).err().is_none_or(|error| !denied.contains(&error))
}

/// Opens a file, but does not follow a symbolic link and does not wait for the writer of a FIFO.
/// Replaces the custom flags of `options`.
pub fn open_no_follow(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// The permissions that new files of this process do not get; `None` without a /proc.
pub fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

/// Gives `to` the access control list of the file `from`: none, if it has none.
pub fn copy_acl(from: &Path, to: &File) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes())?;
    let mut list = vec![0u8; MAX_ATTRIBUTE];
    // SAFETY: both names end with a NUL, and the kernel writes at most `list.len()` bytes.
    let length = unsafe {
        libc::lgetxattr(from.as_ptr(), ACL.as_ptr(), list.as_mut_ptr().cast(), list.len())
    };
    let Ok(length) = usize::try_from(length) else {
        return match Errno::last() {
            // A new file gets the default list of its folder.
            Errno::ENODATA => remove_acl(to),
            Errno::EOPNOTSUPP => Ok(()),
            error => Err(error.into()),
        };
    };
    // SAFETY: the name ends with a NUL, and the kernel reads the `length` bytes that it wrote.
    let set =
        unsafe { libc::fsetxattr(to.as_raw_fd(), ACL.as_ptr(), list.as_ptr().cast(), length, 0) };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

fn remove_acl(file: &File) -> io::Result<()> {
    // SAFETY: the name ends with a NUL.
    let removed = unsafe { libc::fremovexattr(file.as_raw_fd(), ACL.as_ptr()) };
    match Errno::result(removed) {
        Ok(_) | Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn space_is_known_where_there_are_blocks() {
        let file = tempfile::tempfile().unwrap();
        if !COMPRESSING.contains(&fstatfs(&file).unwrap().filesystem_type()) {
            assert!(free_bytes(&file).unwrap().is_some());
        }
        // As of a file system without a limit.
        assert_eq!(free_bytes(&File::open("/proc/self/status").unwrap()).unwrap(), None);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert!(open_no_follow(OpenOptions::new().read(true), &file).is_ok());
        let error = open_no_follow(OpenOptions::new().read(true), &link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(max_name_length(folder.path()).unwrap(), 255);
        assert!(may_write(&file) && may_write(&folder.path().join("none")));
    }

    #[test]
    fn the_umask_is_that_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(umask().map(|umask| 0o666 & !umask), Some(mode));
    }

    #[test]
    fn an_access_control_list_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let (file, copy) = (File::create(&from).unwrap(), File::create(&to).unwrap());
        copy_acl(&from, &copy).unwrap();
        // The tag, permissions and id of each entry: the user 2 may read, and the group may not.
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, !0), (2, 4, 2), (4, 0, !0), (0x10, 4, !0), (0x20, 0, !0)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        // SAFETY: the name ends with a NUL, and the kernel reads at most `list.len()` bytes.
        let set = unsafe {
            libc::fsetxattr(file.as_raw_fd(), ACL.as_ptr(), list.as_ptr().cast(), list.len(), 0)
        };
        if set != 0 {
            println!("skipped: this file system has no access control lists");
            return;
        }
        copy_acl(&from, &copy).unwrap();
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let mut copied = vec![0u8; list.len() + 1];
        // SAFETY: the name ends with a NUL, and the kernel writes at most `copied.len()` bytes.
        let length = unsafe {
            libc::fgetxattr(
                copy.as_raw_fd(),
                ACL.as_ptr(),
                copied.as_mut_ptr().cast(),
                copied.len(),
            )
        };
        assert_eq!(copied[..length as usize], list);
        // A file without a list has none afterwards.
        let plain = folder.path().join("plain");
        File::create(&plain).unwrap();
        for _ in 0..2 {
            copy_acl(&plain, &copy).unwrap();
            // SAFETY: the name ends with a NUL, and the kernel writes nothing.
            let length =
                unsafe { libc::fgetxattr(copy.as_raw_fd(), ACL.as_ptr(), std::ptr::null_mut(), 0) };
            assert_eq!((length, Errno::last()), (-1, Errno::ENODATA));
        }
    }
}
