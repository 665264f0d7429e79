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
    // fping begins with its path.
    let name = program.file_name()?.to_string_lossy();
    let line = line.replace(&program.display().to_string(), &name).replace(": Version", "");
    Some(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// Names and versions of the installed programs, each with the option that prints its version.
/// Missing programs are omitted.
pub fn versions(programs: &[(Option<&Path>, &str)]) -> Vec<String> {
    programs.iter().filter_map(|(program, option)| version((*program)?, option)).collect()
}

/// Quotes a path or an argument as one word for a POSIX shell.
pub fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// The program and the arguments of a command, for a POSIX shell.
pub fn shell_words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// The folder of this user in which scripts/setup keeps tools; `None` if there is no home folder.
pub fn cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = folder("XDG_CACHE_HOME").map(PathBuf::from);
    Some(cache.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")))?.join("manyways"))
}

/// Python of a virtual environment in the [`cache`] that has this release of a package; installs it
/// if necessary.
///
/// # Errors
/// One sentence with the exit status of the failed step: the package mirror in its output is
/// irrelevant to a reader of the report.
pub fn python_with(package: &str, release: &str) -> Result<PathBuf, String> {
    let cache = cache().ok_or_else(|| format!("{package}: there is no home folder"))?;
    let root = cache.join("bench-venv");
    let python = root.join("bin/python");
    let is_there = || {
        let ask =
            format!("import {package}, importlib.metadata as m; print(m.version('{package}'))");
        let said = Command::new(&python).args(["-c", &ask]).stdin(Stdio::null()).output();
        said.is_ok_and(|said| said.stdout.trim_ascii() == release.as_bytes())
    };
    if is_there() {
        return Ok(python);
    }
    eprintln!("installing {package} {release} into {} (once)", root.display());
    let run = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{package} cannot be installed: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{package} {release} cannot be installed ({})", output.status)),
        }
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&root))?;
    let wanted = format!("{package}=={release}");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &wanted]))?;
    match is_there() {
        true => Ok(python),
        false => Err(format!("{package} {release} was installed but cannot be used")),
    }
}

/// The file `manyways` in the folder of the running program.
///
/// # Errors
/// If the path of the running program is not available.
pub fn sibling_binary() -> std::io::Result<PathBuf> {
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
