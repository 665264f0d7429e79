//! Properties of the machine and the programs of a measurement.

use std::path::Path;
use std::time::UNIX_EPOCH;

use manyways_lab::DEFAULT_CC;
use serde::{Deserialize, Serialize};

/// Number of available processors.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The release of the kernel.
pub fn kernel() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The machine and the programs of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Number of available processors.
    pub cores: usize,
    /// As in `/proc/sys/kernel/osrelease`.
    pub kernel: String,
    /// TCP congestion control of both endpoints.
    pub congestion_control: String,
    /// Names and versions.
    pub programs: Vec<String>,
    /// Size and modification time of the binary under test, which identify its build.
    pub build: String,
}

impl Machine {
    /// Reads the properties of this machine and of the binary under test.
    ///
    /// # Errors
    /// One sentence, if the metadata of the binary cannot be read.
    pub fn here(binary: &Path, programs: Vec<String>) -> Result<Self, String> {
        let build = std::fs::metadata(binary)
            .and_then(|file| Ok((file.len(), file.modified()?)))
            .map(|(length, time)| {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                format!("{length}-{}", since.as_millis())
            })
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        Ok(Self {
            cores: cores(),
            kernel: kernel(),
            congestion_control: DEFAULT_CC.to_owned(),
            programs,
            build,
        })
    }
}
