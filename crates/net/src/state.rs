//! The folder in which commands keep what outlives them.

use std::path::PathBuf;

/// Returns this user's folder for persistent state: in `XDG_STATE_HOME`, in the folder of the lab,
/// or in the default place. `None` without a home folder.
pub fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(folder) = set("XDG_STATE_HOME") {
        return Some(folder.join("manyways"));
    }
    if let Some(folder) = set("LAB_DIR").filter(|folder| folder.is_dir()) {
        return Some(folder);
    }
    if manyways_sys::sandbox::is_root() {
        return Some(PathBuf::from("/var/lib/manyways"));
    }
    Some(set("HOME")?.join(".local/state/manyways"))
}
