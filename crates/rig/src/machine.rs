//! Where and with what something is measured.

use std::path::Path;
use std::time::UNIX_EPOCH;

use manyways_lab::DEFAULT_CC;
use serde::{Deserialize, Serialize};

/// Where and with what something was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// TCP congestion control of both sides.
    pub congestion_control: String,
    /// Programs and their versions.
    pub programs: Vec<String>,
    /// Tells one build of the binary under test from another.
    pub build: String,
}

impl Machine {
    /// This machine, the binary under test, and what the others are called.
    ///
    /// # Errors
    /// One sentence, where the binary cannot be looked at.
    pub fn here(binary: &Path, programs: Vec<String>) -> Result<Self, String> {
        let build = std::fs::metadata(binary)
            .and_then(|file| Ok((file.len(), file.modified()?)))
            .map(|(length, time)| {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                format!("{length}-{}", since.as_millis())
            })
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            congestion_control: DEFAULT_CC.to_owned(),
            programs,
            build,
        })
    }
}
