//! The file behind an output path: symbolic links, names of temporary files, and the properties
//! that a replacement inherits.
//!
//! An output path is resolved before the first request. Later changes of a link do not redirect the
//! download.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use manyways_sys::filesystem::{copy_acl, max_name_length, may_write, open_no_follow, umask};
use manyways_sys::privilege::{is_root, user_id};
use sha2::{Digest, Sha256};

use super::{SinkError, write_error};

/// Suffix of part files; no other temporary file has a longer one.
const PART_SUFFIX: &str = ".manyways-part";
/// Suffix of resume files.
const RESUME_SUFFIX: &str = ".manyways";
/// Maximum length of a name on Linux, in bytes. Some file systems allow less.
const MAX_NAME: usize = 255;
/// Maximum number of symbolic links, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// Files in a sticky folder may be renamed only by their owner, and by the owner of the folder.
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
/// Mode of a part file that replaces an older file.
const PRIVATE: u32 = 0o600;
/// Mode of other part files, without the bits of the umask.
const PUBLIC: u32 = 0o666;

/// The file behind an output path.
#[derive(Debug)]
pub(in crate::fetch) struct OutputFile {
    /// Without symbolic links. Relative to the current folder if it is within that folder.
    pub(in crate::fetch) path: PathBuf,
    pub(in crate::fetch) part: PathBuf,
    pub(in crate::fetch) resume_file: PathBuf,
    pub(super) kind: OutputKind,
}

/// The kind of file at the path of an [`OutputFile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutputKind {
    Nothing,
    File,
    /// A character device.
    Device,
}

impl OutputFile {
    /// Resolves an output path. Changes nothing.
    pub(in crate::fetch) fn locate(output: &Path) -> Result<Self, SinkError> {
        let path = resolve(output)?;
        let name = path.file_name().unwrap_or_default();
        let folder = folder_of(&path);
        let limit = match max_name_length(folder) {
            Ok(limit @ 1..) => limit.min(MAX_NAME),
            _ => MAX_NAME,
        };
        if name.len() > limit {
            return Err(SinkError::NameTooLong { length: name.len(), limit });
        }
        // The links in /proc/self/fd lead to files that may have no path.
        let (found, opened) = (fs::symlink_metadata(&path).ok(), fs::metadata(output).ok());
        let kind = match &opened {
            None => OutputKind::Nothing,
            Some(file) if file.is_file() => OutputKind::File,
            Some(file) if file.file_type().is_char_device() => OutputKind::Device,
            Some(file) if file.is_dir() || file.file_type().is_block_device() => {
                return Err(SinkError::NotAFile(output.to_owned()));
            }
            Some(_) => return Err(SinkError::NotSeekable(output.to_owned())),
        };
        if found.as_ref().map(identity) != opened.as_ref().map(identity) {
            return Err(SinkError::NotAFile(output.to_owned()));
        }
        let base = path.with_file_name(shortened(name, limit));
        let beside = |suffix| with_suffix(&base, suffix);
        Ok(Self { part: beside(PART_SUFFIX), resume_file: beside(RESUME_SUFFIX), path, kind })
    }

    /// Refuses to replace a file that this user may not change.
    pub(super) fn check_replaceable(&self) -> Result<(), SinkError> {
        if self.kind != OutputKind::File {
            return Ok(());
        }
        let refused = |reason| Err(SinkError::Unusable { path: self.path.clone(), reason });
        // A folder that may be written would permit a rename all the same.
        if !may_write(&self.path) {
            return refused("is read-only for this user");
        }
        let stat = |path| fs::symlink_metadata(path).map_err(|error| write_error(path, error));
        let (folder, file) = (stat(folder_of(&self.path))?, stat(&self.path)?);
        let may_rename = folder.mode() & STICKY == 0
            || is_root()
            || [folder.uid(), file.uid()].contains(&user_id());
        if !may_rename || is_foreign(&folder, &file) {
            return refused("belongs to another user, and its folder is sticky");
        }
        Ok(())
    }

    /// Opens the part file; creates it if it does not exist.
    pub(super) fn open_part(&self) -> Result<File, SinkError> {
        // The older file may be private. Its mode is known only when it is replaced.
        let is_private = self.kind == OutputKind::File;
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(if is_private { PRIVATE } else { PUBLIC });
        match options.clone().create_new(true).open(&self.part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map_err(|error| write_error(&self.part, error)),
        }
        let file = open_own(&mut options, &self.part)?;
        if is_private && let Err(error) = file.set_permissions(Permissions::from_mode(PRIVATE)) {
            tracing::debug!("{}: {error}", self.part.display());
        }
        Ok(file)
    }
}

/// Opens a temporary file of an earlier run. In a folder that users share, a link or a file at this
/// path may be the work of another user.
pub(super) fn open_own(options: &mut OpenOptions, path: &Path) -> Result<File, SinkError> {
    let refused = |reason| Err(SinkError::Unusable { path: path.to_owned(), reason });
    if fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) {
        return refused("is a symbolic link");
    }
    let mut open = || -> io::Result<(File, Metadata, Metadata)> {
        let file = open_no_follow(options, path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata, fs::metadata(folder_of(path))?))
    };
    let (file, metadata, folder) = open().map_err(|error| write_error(path, error))?;
    if !metadata.is_file() {
        return Err(SinkError::NotAFile(path.to_owned()));
    }
    if is_foreign(&folder, &metadata) {
        return refused("belongs to another user, and its folder is sticky");
    }
    if is_shared(&folder) && metadata.nlink() > 1 {
        return refused("is also the file of another name, in a folder that all users share");
    }
    Ok(file)
}

/// Whether `path` is still the name of an open file.
pub(super) fn is_named(file: &File, path: &Path) -> bool {
    let named = fs::symlink_metadata(path).ok().as_ref().map(identity);
    named.is_some() && named == file.metadata().ok().as_ref().map(identity)
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Gives `file` the owner, the group, the access control list and the mode of the file that it
/// replaces. If that is not possible, it gives other users no more rights than they had.
pub(super) fn inherit(file: &File, path: &Path, older: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if own.uid() != older.uid()
        && let Err(error) = fchown(file, Some(older.uid()), None)
    {
        tracing::debug!("{} gets another owner: {error}", path.display());
    }
    let keeps_group = own.gid() == older.gid() || fchown(file, None, Some(older.gid())).is_ok();
    let mode = inherited_mode(older.mode(), keeps_group && copy_acl(path, file).is_ok());
    let Err(error) = file.set_permissions(Permissions::from_mode(mode)) else { return Ok(()) };
    // Some file systems have no modes.
    let is_wider = file.metadata()?.mode() & 0o777 & !mode != 0;
    if is_wider { Err(error) } else { Ok(()) }
}

/// Gives a file that replaces nothing the mode of a new one, if [`OutputFile::open_part`] made it
/// private because of an older file.
pub(super) fn publish(file: &File, path: &Path) {
    let publish = || -> io::Result<()> {
        match (file.metadata()?.mode() & 0o777, umask()) {
            (PRIVATE, Some(umask)) => file.set_permissions(Permissions::from_mode(PUBLIC & !umask)),
            _ => Ok(()),
        }
    };
    if let Err(error) = publish() {
        tracing::debug!("mode of {}: {error}", path.display());
    }
}

/// The mode of a file that replaces one with the mode `older`: without set-user-ID, set-group-ID and
/// sticky bits. If it has another group, its members get only rights that all users had.
fn inherited_mode(older: u32, keeps_group: bool) -> u32 {
    let mode = older & 0o777;
    if keeps_group { mode } else { mode & (0o707 | (mode & 0o007) << 3) }
}

/// Whether another user may have put a file into a folder that all users share. The rule is that of
/// the kernel's `protected_symlinks` (proc_sys_fs(5)), which is not enabled everywhere.
fn is_foreign(folder: &Metadata, file: &Metadata) -> bool {
    is_shared(folder) && ![folder.uid(), user_id()].contains(&file.uid())
}

fn is_shared(folder: &Metadata) -> bool {
    folder.mode() & (STICKY | OTHERS_WRITE) == STICKY | OTHERS_WRITE
}

/// Follows the symbolic links of a path, whose last component may be missing.
fn resolve(output: &Path) -> Result<PathBuf, SinkError> {
    let mut path = output.to_owned();
    for _ in 0..=MAX_LINKS {
        let text = path.as_os_str().as_bytes();
        let is_folder = text.ends_with(b"/") || text.ends_with(b"/.");
        let Some(name) = path.file_name().filter(|_| !is_folder) else {
            return Err(SinkError::NotAFile(output.to_owned()));
        };
        let failed = |error| write_error(&path, error);
        let resolved = resolved_folder(&path).map_err(failed)?.join(name);
        let link = match fs::symlink_metadata(&resolved) {
            Ok(link) if link.is_symlink() => link,
            _ => return Ok(resolved),
        };
        if is_foreign(&fs::metadata(folder_of(&resolved)).map_err(failed)?, &link) {
            let reason = "is a symbolic link of another user in a folder that all users share";
            return Err(SinkError::Unusable { path: resolved, reason });
        }
        path = resolved.with_file_name(fs::read_link(&resolved).map_err(failed)?);
    }
    let reason = "leads through too many symbolic links";
    Err(SinkError::Unusable { path: output.to_owned(), reason })
}

/// The folder of a path, without symbolic links. Empty for the current folder.
fn resolved_folder(path: &Path) -> io::Result<PathBuf> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(PathBuf::new());
    };
    // With the dot, a file in the place of the folder is an error.
    let folder = fs::canonicalize(parent.join("."))?;
    let current = if parent.is_relative() { fs::canonicalize(".").ok() } else { None };
    let within = current.and_then(|current| Some(folder.strip_prefix(current).ok()?.to_owned()));
    Ok(within.unwrap_or(folder))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Shortens a name so that [`PART_SUFFIX`] fits behind it. A hash of the name distinguishes it from
/// others with the same beginning.
fn shortened(name: &OsStr, limit: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() + PART_SUFFIX.len() <= limit {
        return name.to_owned();
    }
    let hash = Sha256::digest(bytes)[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let ending = format!("-{hash:016x}");
    let mut length = limit.saturating_sub(PART_SUFFIX.len() + ending.len()).min(bytes.len());
    let is_continuation = |byte: u8| byte & 0xc0 == 0x80;
    while length > 0 && bytes.get(length).copied().is_some_and(is_continuation) {
        length -= 1;
    }
    OsString::from_vec([&bytes[..length], ending.as_bytes()].concat())
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn located(output: &Path) -> PathBuf {
        OutputFile::locate(output).unwrap().path
    }

    fn refusal(output: &Path) -> String {
        OutputFile::locate(output).unwrap_err().to_string()
    }

    /// A folder without links in its path.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    #[test]
    fn links_lead_to_the_file_that_is_replaced() {
        let (_guard, folder) = folder();
        for name in ["out", "big"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        let (out, real) = (folder.join("out"), folder.join("big/real"));
        symlink("../big/real", out.join("relative")).unwrap();
        symlink(out.join("relative"), out.join("chain")).unwrap();
        symlink(&out, folder.join("also-out")).unwrap();
        // First a dangling link, then one to a file.
        for kind in [OutputKind::Nothing, OutputKind::File] {
            for output in ["out/relative", "out/chain", "also-out/chain", "big/real"] {
                let target = OutputFile::locate(&folder.join(output)).unwrap();
                assert_eq!((&target.path, target.kind), (&real, kind), "{output}");
                assert_eq!(target.part, folder.join("big/real.manyways-part"));
                assert_eq!(target.resume_file, folder.join("big/real.manyways"));
            }
            fs::write(&real, "").unwrap();
        }
        // A link that changes later does not redirect the download.
        let target = OutputFile::locate(&out.join("chain")).unwrap();
        fs::remove_file(out.join("relative")).unwrap();
        symlink("/dev/null", out.join("relative")).unwrap();
        assert_eq!(target.path, real);
        assert_eq!(OutputFile::locate(&out.join("chain")).unwrap().kind, OutputKind::Device);
    }

    #[test]
    fn paths_within_the_current_folder_stay_relative() {
        assert_eq!(located(Path::new("file")), Path::new("file"));
        assert_eq!(located(Path::new("src/../src/file")), Path::new("src/file"));
        assert_eq!(located(Path::new("./file")), Path::new("file"));
        let (_guard, folder) = folder();
        assert_eq!(located(&folder.join("file")), folder.join("file"));
    }

    #[test]
    fn paths_without_a_file_are_refused() {
        let (_guard, folder) = folder();
        symlink("loop", folder.join("loop")).unwrap();
        symlink("no/file", folder.join("dangling")).unwrap();
        symlink("folder/", folder.join("slash")).unwrap();
        let _listener = UnixListener::bind(folder.join("socket")).unwrap();
        for (output, words) in [
            ("loop", "loop leads through too many symbolic links"),
            ("dangling", "no/file cannot be written: no such file or directory"),
            ("slash", "slash is not a regular file"),
            ("folder/", "folder/ is not a regular file"),
            ("folder/.", "is not a regular file"),
            ("..", "is not a regular file"),
            ("socket", "socket is not seekable"),
            ("socket/file", "socket/file cannot be written: not a directory"),
            (&"x".repeat(256), "the file name is too long: 256 bytes, and at most 255 are allowed"),
        ] {
            let refusal = refusal(&folder.join(output));
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn links_of_the_process_to_its_open_files() {
        let (_guard, folder) = folder();
        let (_reader, writer) = io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        assert!(refusal(&pipe).ends_with("is not seekable, but bytes arrive out of order"));
        let file = File::create(folder.join("file")).unwrap();
        let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert_eq!(located(&link), folder.join("file"));
        fs::remove_file(folder.join("file")).unwrap();
        assert!(refusal(&link).ends_with("is not a regular file"));
    }

    #[test]
    fn long_names_are_shortened_between_characters() {
        let (_guard, folder) = folder();
        let part = |name: &str| {
            let part = OutputFile::locate(&folder.join(name)).unwrap().part;
            part.file_name().unwrap().to_str().unwrap().to_owned()
        };
        let fits = "x".repeat(241);
        assert_eq!(part(&fits), format!("{fits}.manyways-part"));
        for name in
            ["x".repeat(242), "x".repeat(255), "é".repeat(125), format!("x{}", "é".repeat(125))]
        {
            let short = part(&name);
            assert!((254..=255).contains(&short.len()), "{short}");
            assert!(short.ends_with(".manyways-part"), "{short}");
            assert_eq!(part(&name), short);
            assert_ne!(part(&format!("{}y", name.trim_end_matches('x'))), short);
            File::create(folder.join(&short)).unwrap();
        }
        assert_eq!(
            shortened(OsStr::from_bytes(&[0x80; 255]), 20).as_bytes().len(),
            "-0123456789abcdef".len()
        );
    }

    #[test]
    fn a_mode_becomes_no_wider() {
        for (older, same_group, other_group) in [
            (0o100644, 0o644, 0o644),
            (0o100600, 0o600, 0o600),
            (0o100664, 0o664, 0o644),
            (0o100660, 0o660, 0o600),
            (0o107750, 0o750, 0o700),
            (0o100604, 0o604, 0o604),
            (0o100656, 0o656, 0o646),
        ] {
            assert_eq!(inherited_mode(older, true), same_group, "{older:o}");
            assert_eq!(inherited_mode(older, false), other_group, "{older:o}");
        }
    }

    #[test]
    fn planted_files_are_not_used() {
        let (_guard, folder) = folder();
        let target = OutputFile::locate(&folder.join("file")).unwrap();
        fs::write(folder.join("victim"), "text").unwrap();
        symlink("victim", &target.part).unwrap();
        let refusal = target.open_part().unwrap_err().to_string();
        assert!(refusal.ends_with("file.manyways-part is a symbolic link"), "{refusal}");
        fs::remove_file(&target.part).unwrap();
        let _listener = UnixListener::bind(&target.part).unwrap();
        assert!(target.open_part().is_err());
        assert_eq!(fs::read_to_string(folder.join("victim")).unwrap(), "text");
    }

    #[test]
    fn files_of_other_users_in_a_sticky_folder() {
        if !is_root() {
            println!("skipped: needs root");
            return;
        }
        let (_guard, folder) = folder();
        let (link, file) = (folder.join("link"), folder.join("file"));
        fs::write(&file, "").unwrap();
        symlink("file", &link).unwrap();
        lchown(&link, Some(12_345), None).unwrap();
        chown(&file, Some(12_345), None).unwrap();
        let target = OutputFile::locate(&link).unwrap();
        target.check_replaceable().unwrap();
        fs::write(&target.part, "").unwrap();
        chown(&target.part, Some(12_345), None).unwrap();
        assert!(target.open_part().is_ok());
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        assert!(refusal(&link).contains("link is a symbolic link of another user in a folder"));
        for refusal in [target.check_replaceable().unwrap_err(), target.open_part().unwrap_err()] {
            let words = "belongs to another user, and its folder is sticky";
            assert!(refusal.to_string().ends_with(words), "{refusal}");
        }
        // The kernel may permit links to files of other users.
        fs::remove_file(&target.part).unwrap();
        fs::write(folder.join("victim"), "text").unwrap();
        fs::hard_link(folder.join("victim"), &target.part).unwrap();
        let refusal = target.open_part().unwrap_err().to_string();
        assert!(
            refusal.ends_with("is also the file of another name, in a folder that all users share")
        );
        fs::remove_file(folder.join("victim")).unwrap();
        // The owner of the folder may put files into it.
        chown(&folder, Some(12_345), None).unwrap();
        assert_eq!(located(&link), file);
        assert!(target.check_replaceable().is_ok() && target.open_part().is_ok());
    }

    #[test]
    fn a_replacement_inherits_owner_and_mode() {
        let (_guard, folder) = folder();
        let (older, newer) = (folder.join("older"), folder.join("newer"));
        fs::write(&older, "").unwrap();
        let file = File::create(&newer).unwrap();
        let ids =
            if is_root() { (12_345, 23_456) } else { (user_id(), file.metadata().unwrap().gid()) };
        chown(&older, Some(ids.0), Some(ids.1)).unwrap();
        fs::set_permissions(&older, Permissions::from_mode(0o6640)).unwrap();
        inherit(&file, &older, &fs::metadata(&older).unwrap()).unwrap();
        let found = fs::metadata(&newer).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o640, ids.0, ids.1));
        assert!(is_named(&file, &newer) && !is_named(&file, &older));
    }

    #[test]
    fn a_file_that_replaces_nothing_is_as_a_new_one() {
        let (_guard, folder) = folder();
        let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().mode() & 0o777;
        File::create(folder.join("new")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        let target = OutputFile::locate(&folder.join("file")).unwrap();
        let part = target.open_part().unwrap();
        assert_eq!(mode("file.manyways-part"), 0o600);
        publish(&part, &target.path);
        assert_eq!(mode("file.manyways-part"), mode("new"));
        // Another mode was chosen on purpose.
        part.set_permissions(Permissions::from_mode(0o640)).unwrap();
        publish(&part, &target.path);
        assert_eq!(mode("file.manyways-part"), 0o640);
    }
}
