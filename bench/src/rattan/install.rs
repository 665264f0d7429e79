//! Rattan's binary, built once with the versions in its lock file.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use manyways_rig::programs::cache;

use super::RattanError;

/// The measured release.
pub const VERSION: &str = "0.1.1";

/// Returns the binary in the cache folder that scripts/setup uses for tools; builds it if it is
/// missing.
pub fn binary() -> Result<PathBuf, RattanError> {
    let cache = cache().ok_or(RattanError::NoHome)?;
    let root = cache.join("tools").join(format!("rattan-{VERSION}"));
    let binary = root.join("bin/rattan");
    if binary.is_file() {
        return Ok(binary);
    }
    eprintln!("building Rattan {VERSION} into {} (once, some minutes)", root.display());
    let build = root.join("build");
    let output = Command::new("cargo")
        .args(["install", "--quiet", "--locked", "--version", VERSION, "rattan", "--root"])
        .arg(&root)
        .env("CARGO_TARGET_DIR", &build)
        // Rattan's release profile has full debug information, which the benchmark does not need.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| RattanError::NotBuilt(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        return Err(RattanError::NotBuilt(reason(&String::from_utf8_lossy(&output.stderr))));
    }
    let _ = std::fs::remove_dir_all(build);
    Ok(binary)
}

/// The first error of cargo and its causes. Addresses are removed: the registry mirror of a machine
/// is irrelevant to a reader of the report.
fn reason(said: &str) -> String {
    let from_error = said
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("error"))
        .take_while(|line| !line.contains("Stack backtrace"));
    let words = from_error
        .take(12)
        .flat_map(str::split_whitespace)
        .map(|word| if word.contains("://") { "(address)" } else { word });
    let mut reason = words.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = reason.char_indices().nth(400) {
        reason.truncate(end);
        reason.push('…');
    }
    if reason.is_empty() { "cargo does not say why".to_owned() } else { reason }
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_reason_begins_with_the_error_and_names_no_address() {
        let said = "  Updating index\nwarning: slow\nerror: no `rattan`\n\nCaused by:\n  [6] https://a.example/x down\nStack backtrace:\n 0: main\n";
        assert_eq!(reason(said), "error: no `rattan` Caused by: [6] (address) down");
        assert_eq!(reason("warning: slow\n"), "cargo does not say why");
        assert_eq!(reason(&format!("error {}", "é".repeat(500))).chars().count(), 401);
    }
}
