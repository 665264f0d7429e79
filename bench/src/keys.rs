//! Keys of the programs under test.

use std::path::Path;
use std::process::{Command, Stdio};

use manyways_rig::launch::{DriveError, system};

/// Creates the key `NAME.key` in a folder and returns its public key.
pub fn generate(manyways: &Path, folder: &Path, name: &str) -> Result<String, DriveError> {
    let output = Command::new(manyways)
        .args(["bond", "keygen"])
        .arg(folder.join(format!("{name}.key")))
        .stdin(Stdio::null())
        .output()
        .map_err(system("make a key"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(DriveError::Server(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
