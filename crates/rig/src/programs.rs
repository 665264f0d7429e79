//! External programs: their location, their version and their arguments for a shell.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Searches `PATH` and the `sbin` folders, which the `PATH` of an ordinary user lacks.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|f| f.join(name)).find(|file| file.is_file())
}

/// Name and version of a program, from the first line of its output with `option`: `nginx/1.22.1`.
pub fn version(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output().ok()?;
    let printed = [output.stdout, output.stderr].concat();
    let line = String::from_utf8_lossy(&printed).lines().next()?.to_owned();
    let line = line.rsplit("version: ").next().unwrap_or(&line).replace(" version", "");
    Some(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// Quotes a path or an argument as one word for a POSIX shell.
pub fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// The file `manyways` in the folder of the running program.
///
/// # Errors
/// If the path of the running program is not available.
pub fn beside_this() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("manyways"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted(OsStr::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn servers_are_found_beside_what_is_on_the_path() {
        assert!(program("sh").is_some_and(|file| file.is_absolute()));
        assert_eq!(program("no-such-command"), None);
    }
}
