//! Detects features of the kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Error, command};

/// Features that the rules need, with the module and an example rule of each.
const FEATURES: [(&str, &str, &str); 7] = [
    ("nftables for IPv4 and IPv6 at once", "nf_tables", ""),
    ("transparent proxying", "nft_tproxy", "meta l4proto tcp tproxy ip to 127.0.0.1:1"),
    ("connection tracking in nftables", "nft_ct", "ct direction reply"),
    ("address types in nftables", "nft_fib_inet", "fib daddr type local"),
    ("rejecting in nftables", "nft_reject_inet", "meta l4proto tcp reject with tcp reset"),
    ("marks of connections", "nf_conntrack (CONFIG_NF_CONNTRACK_MARK)", "ct mark set 1"),
    ("users of sockets", "nft_meta", "meta skuid 0"),
];

/// Returns the error for the first missing feature, after the whole was rejected; `None` if all
/// exist.
pub(super) fn missing_feature() -> Option<Error> {
    FEATURES.into_iter().find_map(|(what, module, rule)| {
        let hook = if rule.contains("skuid") { "output" } else { "prerouting" };
        missing((what, module), &format!("filter hook {hook} priority mangle"), rule)
    })
}

/// Returns the error for a feature, with its module, if the kernel refuses an example of it.
pub(crate) fn missing(
    (feature, module): (&'static str, &'static str),
    hook: &str,
    rule: &str,
) -> Option<Error> {
    let refused = command::nft_check(&format!(
        "table inet manyways-probe {{\nchain probe {{\ntype {hook}; policy accept;\n{rule}\n\
         }}\n}}\n"
    ));
    match refused {
        Err(Error::Refused { .. }) => Some(Error::MissingKernelFeature { feature, module }),
        _ => None,
    }
}

/// Reasons why cgroups cannot be matched; the `Display` is the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// Only version 1 is in use.
    #[error("this host has no cgroup2 hierarchy: select by user or by address")]
    NotMounted,
    /// `nft` searches cgroups only below `/sys/fs/cgroup`.
    #[error("the cgroup2 hierarchy is at {}, where nft does not look: select by user or by address", .at.display())]
    OtherMountPoint {
        /// Mount point of the hierarchy.
        at: PathBuf,
    },
    /// The kernel or `nft` does not support it.
    #[error("nftables cannot match cgroups here ({message}): select by user or by address")]
    Unsupported {
        /// Error message of `nft`.
        message: String,
    },
    /// The cgroup does not exist.
    #[error("the cgroup does not exist: create it first, or select by user or by address")]
    NotFound,
    /// The root of the hierarchy contains every process.
    #[error("the root cgroup contains every process: select all")]
    Root,
}

/// A cgroup in the notation of `nft`.
pub(super) struct Cgroup {
    /// Path below `/sys/fs/cgroup`.
    pub(super) path: String,
    /// Depth in the hierarchy.
    pub(super) level: usize,
}

/// Finds a cgroup by its path from the root of the hierarchy.
pub(super) fn cgroup(path: &str) -> Result<Cgroup, CgroupError> {
    let root = root()?;
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() {
        return Err(CgroupError::Root);
    }
    if parts.contains(&"..") {
        return Err(CgroupError::NotFound);
    }
    let found = root.below.join(parts.join("/"));
    if !Path::new(CGROUP_FOLDER).join(&found).is_dir() {
        return Err(CgroupError::NotFound);
    }
    Ok(Cgroup { path: found.to_string_lossy().into_owned(), level: parts.len() })
}

/// Checks whether [`super::Selection::Cgroup`] works on this host, and returns the reason if not.
/// Without the permission to change the firewall, only the other conditions are checked.
pub fn can_match_cgroup() -> Result<(), CgroupError> {
    let root = root()?;
    let folder = Path::new(CGROUP_FOLDER).join(&root.below);
    // Any cgroup is suitable for the check; a hierarchy that consists of its root has none to
    // select.
    let Some(any) = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(io::Result::ok)
        .find(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    else {
        return Ok(());
    };
    let path = root.below.join(any.file_name());
    let refused = command::nft_check(&format!(
        "table inet manyways-probe {{\nchain probe {{\ntype route hook output priority mangle; \
         policy accept;\nsocket cgroupv2 level 1 \"{}\"\n}}\n}}\n",
        path.display()
    ));
    match refused {
        Err(Error::Refused { stderr: message, .. }) => Err(CgroupError::Unsupported { message }),
        Err(error @ Error::NoProgram { .. }) => {
            Err(CgroupError::Unsupported { message: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Folder in which `nft` searches cgroups.
const CGROUP_FOLDER: &str = "/sys/fs/cgroup";

struct Root {
    /// Empty, or often `unified` on a host with both versions.
    below: PathBuf,
}

fn root() -> Result<Root, CgroupError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = mount_point(&mounts).ok_or(CgroupError::NotMounted)?;
    match at.strip_prefix(CGROUP_FOLDER) {
        Ok(below) => Ok(Root { below: below.to_owned() }),
        Err(_) => Err(CgroupError::OtherMountPoint { at }),
    }
}

/// Returns the mount point of the root of the cgroup2 hierarchy, from `/proc/PID/mountinfo`.
/// Prefers one below `/sys/fs/cgroup`.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let mut points = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.split(' ').next() == Some("cgroup2") && root == "/").then(|| PathBuf::from(point))
    });
    let first = points.next()?;
    if first.starts_with(CGROUP_FOLDER) {
        return Some(first);
    }
    Some(points.find(|point| point.starts_with(CGROUP_FOLDER)).unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_where_both_versions_are() {
        let hybrid = "30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                      31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n\
                      32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        assert_eq!(mount_point(hybrid).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        let elsewhere = "31 30 0:27 / /mnt/cg rw - cgroup2 none rw\n";
        assert_eq!(mount_point(elsewhere).unwrap(), Path::new("/mnt/cg"));
        let both = format!("{elsewhere}{hybrid}");
        assert_eq!(mount_point(&both).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount_point("32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw"), None);
    }
}
