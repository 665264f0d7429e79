//! Other programs: where they are, which version they have, and how the shell is told of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Looks for a program on the path, and where servers are, which an ordinary user's path lacks.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|f| f.join(name)).find(|file| file.is_file())
}

/// The first words of what a program says about itself.
pub fn version(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let line = String::from_utf8_lossy(&said).lines().next()?.to_owned();
    let line = line.rsplit("version: ").next().unwrap_or(&line).replace(" version", "");
    Some(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// One word of the shell.
pub fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// The binary under test, which is built beside this program.
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
}
