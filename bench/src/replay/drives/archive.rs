//! The archives that are driven, one of each class of Deng's thesis.

use std::net::SocketAddr;

use manyways_rig::launch::{DriveError, system};
use manyways_rig::programs::quoted;
use manyways_rig::{Authority, Server, ServerConfig};
use manyways_unit::{Size, Span};
use serde::Deserialize;

use super::super::Replay;
use super::super::cells::Drive;
use crate::figures::Figures;
use crate::shell::Shell;

/// The archive, in the folder of the cell.
pub const FILE: &str = "archive.zip";
/// The server of long flows.
const SERVER: &str = "203.0.113.10";
const NAME: &str = "www.example.test";
/// Time limit to make an archive.
const TIMEOUT: Span = Span::from_secs(60);

/// Traffic of an application (Deng's thesis, §2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A page load, from a HAR file.
    Short,
    /// Objects that are fetched in turn from a server of ours.
    Long,
}

/// The part of the document of `record classify` that is read.
#[derive(Deserialize)]
struct Classified {
    pattern: String,
    bytes: u64,
    long_share: f64,
    flows: Vec<serde_json::Value>,
}

impl Class {
    /// Name of its cell.
    pub fn cell(self) -> &'static str {
        match self {
            Self::Short => "drive-short",
            Self::Long => "drive-long",
        }
    }

    /// The pattern that its archive must have.
    fn pattern(self) -> &'static str {
        match self {
            Self::Short => "short-flow dominated",
            Self::Long => "long-flow dominated",
        }
    }

    /// Makes the archive, and describes it.
    ///
    /// # Errors
    /// The inner one is the reason why there is none, or none of this class.
    pub fn archive(
        self,
        replay: &Replay,
        shell: &Shell<'_>,
        drive: &Drive,
    ) -> Result<Result<Figures, String>, DriveError> {
        let made = match self {
            Self::Short => {
                let har = replay.hars.join(format!("{}.har", drive.short));
                let har = std::path::absolute(har).map_err(system("find the HAR file"))?;
                let mut command = shell.command(&replay.tools.manyways);
                command.args(["record", "import"]).arg(har).args(["-o", FILE]);
                shell.finish(&mut command, TIMEOUT)?
            }
            Self::Long => record(replay, shell, drive)?,
        };
        if let Err(reason) = made {
            return Ok(Err(format!("no archive: {reason}")));
        }
        let mut command = shell.command(&replay.tools.manyways);
        let classified =
            shell.finish(command.args(["record", "classify", FILE, "--json"]), TIMEOUT)?;
        Ok(classified.and_then(|text| self.check(&text)))
    }

    fn check(self, text: &str) -> Result<Figures, String> {
        let found: Classified = serde_json::from_str(text)
            .map_err(|error| format!("a classification that cannot be read: {error}"))?;
        if found.pattern != self.pattern() {
            return Err(format!("the archive is {}, not {}", found.pattern, self.pattern()));
        }
        Ok(Figures::of([
            ("connections", found.flows.len() as f64),
            ("bytes, MB", found.bytes as f64 / 1e6),
            ("bytes of long flows, %", found.long_share * 100.0),
        ]))
    }
}

/// Records objects of nginx, which curl fetches in turn over one connection.
fn record(
    replay: &Replay,
    shell: &Shell<'_>,
    drive: &Drive,
) -> Result<Result<String, String>, DriveError> {
    let size: Size = match drive.long.size.parse() {
        Ok(size) => size,
        Err(error) => return Ok(Err(format!("the size of the objects: {error}"))),
    };
    let root = shell.path("root");
    let own = shell.path("nginx");
    for folder in [&root, &own] {
        std::fs::create_dir(folder).map_err(system("make a folder"))?;
    }
    let mut script = format!(
        "exec \"$MANYWAYS\" record --internet --origin-ca authority.pem -o {FILE} -- curl -sS --fail"
    );
    for object in 0..drive.long.objects {
        let words = (0..size.as_bytes() / 4 + 1).map(|word| word as u32 ^ (object as u32) << 24);
        let content = words.flat_map(|word| word.wrapping_mul(2_654_435_761).to_be_bytes());
        let content: Vec<u8> = content.take(size.as_bytes() as usize).collect();
        std::fs::write(root.join(object.to_string()), content).map_err(system("write a file"))?;
        script += &format!(" -o /dev/null https://{NAME}/{object}");
    }
    let authority = Authority::new(shell.folder(), &[NAME])?;
    let at = |port| [SocketAddr::new(std::net::IpAddr::from([203, 0, 113, 10]), port)];
    let site = ServerConfig {
        root: &root,
        plain: &at(80),
        secure: &at(443),
        authority: Some(&authority),
        extra_config: "",
    };
    let server = Server::nginx(&own, &site)?;
    let far: Vec<String> = server.command().iter().map(|word| quoted(word.as_ref())).collect();
    let mut command = shell.command(&replay.tools.manyways);
    command.args(["lab", "shell", "--link", "wan:delay=5ms"]);
    command.args(["--far-host", &format!("{SERVER},name={NAME}")]);
    command.args(["--far", &format!("exec {}", far.join(" "))]);
    command.args(["--", "sh", "-c", &script]);
    shell.finish(&mut command, TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_of_the_other_class_is_refused() {
        let text = |pattern: &str| {
            format!(r#"{{"pattern":"{pattern}","bytes":4000000,"long_share":0.25,"flows":[{{}}]}}"#)
        };
        let short = Class::Short.check(&text("short-flow dominated")).unwrap();
        assert_eq!(short.quantities["bytes of long flows, %"], 25.0);
        let refused = Class::Long.check(&text("short-flow dominated")).unwrap_err();
        assert_eq!(refused, "the archive is short-flow dominated, not long-flow dominated");
    }
}
