//! Tables of the user with properties of addresses.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyways_flows::analysis::Settings;
use manyways_flows::device;
use manyways_flows::server::Organisations;
use manyways_wire::dns::HostsTable;

use crate::failure::Failure;

/// Maximum length of a file, in bytes.
const MAX_FILE_LENGTH: u64 = 1 << 30;
const FORMATS: &str = "see docs/flows.md for the format of a line";

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Address pools with devices of a known kind: `prefix,handheld,system` lines.
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
    /// Organisations by address, in place of the built-in table:
    /// `prefix,asn,organisation,cdn` lines.
    #[arg(long, value_name = "FILE")]
    organisations: Option<PathBuf>,
    /// Resolved names, from a resolver's log: `time,client,name,address` lines, or
    /// those of a hosts file; may be repeated.
    #[arg(long, value_name = "FILE")]
    dns: Vec<PathBuf>,
}

impl Args {
    /// Returns the paths of the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.pools.iter().chain(&self.organisations).chain(&self.dns).map(PathBuf::as_path)
    }

    /// Reads the files into settings.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        if let Some(path) = &self.pools {
            settings.pools =
                device::pools(&read(path)?).map_err(|error| invalid_file(path, &error))?;
        }
        if let Some(path) = &self.organisations {
            let table =
                Organisations::read(&read(path)?).map_err(|error| invalid_file(path, &error))?;
            settings.organisations = Some(Arc::new(table));
        }
        if !self.dns.is_empty() {
            let mut told = HostsTable::default();
            for path in &self.dns {
                told.read(&read(path)?).map_err(|error| invalid_file(path, &error))?;
            }
            settings.hosts_table = Some(Arc::new(told));
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unread =
        |why: &dyn Display| Failure::usage(format!("cannot read {}: {why}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unread(&error))?;
    file.take(MAX_FILE_LENGTH + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() as u64 > MAX_FILE_LENGTH {
        return Err(unread(&"it has more than 1 GiB"));
    }
    Ok(bytes)
}

fn invalid_file(path: &Path, error: &dyn Display) -> Failure {
    Failure::usage(format!("{}, {error}", path.display())).hint(FORMATS)
}
