//! Coupled congestion control in the running kernel.

use std::path::Path;

use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use crate::shell::Shell;

/// The script, in the source tree.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lia");
/// Time limit of an action; it compiles for some seconds.
const TIMEOUT: Span = Span::from_secs(120);

/// Coupled congestion control that this registered, until it is dropped.
pub struct Coupled<'s, 'r> {
    shell: &'s Shell<'r>,
    /// Whether it was not there before.
    is_own: bool,
}

impl<'s, 'r> Coupled<'s, 'r> {
    /// # Errors
    /// The inner one is the reason why the kernel does not get it.
    pub fn start(shell: &'s Shell<'r>) -> Result<Result<Self, String>, DriveError> {
        let act = |action| {
            let mut command = shell.command(Path::new(SCRIPT));
            shell.finish(command.arg(action), TIMEOUT)
        };
        let is_own = act("status")?.is_err();
        Ok(act("start")?.map(|_| Self { shell, is_own }))
    }
}

impl Drop for Coupled<'_, '_> {
    fn drop(&mut self) {
        if self.is_own {
            let mut command = self.shell.command(Path::new(SCRIPT));
            // The next start finds it.
            let _ = self.shell.finish(command.arg("stop"), TIMEOUT);
        }
    }
}
