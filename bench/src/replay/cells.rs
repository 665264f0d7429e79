//! The fixed cells: a table in a file, so that it can be committed before anything is measured.

use serde::Deserialize;

/// The file.
const CELLS: &str = include_str!("cells.toml");

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    pub pages: Pages,
    pub think: Think,
    pub recorder: Recorder,
    pub server: Server,
    pub matching: Matching,
    pub drive: Drive,
}

/// Page loads of a browser.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// HAR files, without their extension.
    pub sites: Vec<String>,
    pub rounds: u32,
    pub think_seed: u64,
    pub networks: Vec<Network>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub name: String,
    #[serde(flatten)]
    pub link: Link,
}

/// Values of `--link`.
#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    pub down: String,
    pub up: String,
    pub delay: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Think {
    pub milliseconds: Vec<u64>,
    pub rtts: Vec<String>,
    /// Of each think time.
    pub requests: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorder {
    pub link: Link,
    pub rounds: u32,
    /// Duration of new connections.
    pub seconds: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub sizes: Vec<String>,
    pub seconds: u64,
    pub rounds: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matching {
    pub seeds: Seeds,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    pub first: u64,
    pub count: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    pub rounds: u32,
    /// HAR file of a page load.
    pub short: String,
    pub long: Long,
    /// Drives at a time.
    pub jobs: usize,
    pub conditions: Vec<Condition>,
}

/// Objects that are fetched in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    pub objects: usize,
    pub size: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub wifi: Link,
    pub lte: Link,
}

impl Link {
    /// A value of `--link` of this name.
    pub fn option(&self, name: &str) -> String {
        format!("{name}:down={},up={},delay={}", self.down, self.up, self.delay)
    }
}

impl Cells {
    /// # Errors
    /// One sentence, if the file is wrong.
    pub fn read() -> Result<Self, String> {
        toml::from_str(CELLS).map_err(|error| format!("cells.toml: {error}"))
    }
}
