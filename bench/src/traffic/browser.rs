//! A headless Chromium with an empty profile, and the line on its console that reports a page load.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use manyways_net::browser::{Home, quiet_command};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// Marker of the line that the document prints on the browser's console after the load, before the
/// figures.
const MARK: &str = "manyways-page";
/// Time limit of a page load, and of the browser's end.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The browser loads the page after this delay, because it is busy with its own start before.
const WARM_UP: Duration = Duration::from_millis(800);
/// Which browser, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Browser {
    /// Chromium.
    #[arg(long, value_name = "FILE")]
    browser: PathBuf,
    /// Where its profile may be, which goes with it.
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
}

/// Figures of a page load on the browser's console.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageLoad {
    /// Until the end of the load event.
    pub millis: f64,
    /// Decoded bytes of all bodies.
    pub bytes: u64,
}

/// A script for the beginning of a document, which prints the figures shortly after the load event: the
/// end of the event is not known during it.
pub fn reporting_script() -> String {
    format!(
        "<script>performance.setResourceTimingBufferSize(9999);addEventListener('load',()=>setTimeout(\
         ()=>{{const p=performance,n=p.getEntriesByType('navigation')[0];\
         console.log('{MARK}',n.loadEventEnd,p.getEntriesByType('resource').reduce(\
         (s,e)=>s+e.decodedBodySize,n.decodedBodySize))}},0))</script>"
    )
}

impl Browser {
    /// Loads a page, through a SOCKS proxy if there is one. The browser reports the result on its console,
    /// so that no measurement traffic uses the links.
    ///
    /// # Errors
    /// If the browser does not report in time, or if the bodies do not have `bytes` bytes.
    pub async fn load(
        &self,
        url: &str,
        bytes: u64,
        proxy: Option<std::net::SocketAddr>,
        home: Home,
    ) -> io::Result<PageLoad> {
        let profile = tempfile::Builder::new().prefix("browser").tempdir_in(&self.folder)?;
        let mut command = self.command(profile.path(), url, home);
        if let Some(proxy) = proxy {
            command.arg(format!("--proxy-server=socks5://{proxy}"));
        }
        let mut browser: Child = command.spawn()?;
        let mut said = BufReader::new(browser.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let loaded = tokio::time::timeout(LOAD_TIMEOUT, read_page_load(&mut said)).await;
        browser.kill().await?;
        // Helper processes keep the pipe open until they have ended; only then can the folder be
        // removed.
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(LOAD_TIMEOUT, said.read_to_end(&mut rest)).await;
        let loaded = loaded.map_err(|_| io::ErrorKind::TimedOut)??;
        if loaded.bytes != bytes {
            return Err(io::Error::other(format!("{loaded:?} is not the page's {bytes} bytes")));
        }
        Ok(loaded)
    }

    fn command(&self, profile: &Path, url: &str, home: Home) -> Command {
        let mut command = Command::from(quiet_command(&self.browser, profile, home));
        command.arg("--enable-logging=stderr");
        let millis = WARM_UP.as_millis();
        command.arg(format!(
            "data:text/html,<script>setTimeout(()=>location='{url}',{millis})</script>"
        ));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }
}

async fn read_page_load(said: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<PageLoad> {
    let mut lines = said.lines();
    let mut last = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(loaded) = parse_line(&line) {
            return Ok(loaded);
        }
        last = line;
    }
    Err(io::Error::other(format!("the browser ended: {last}")))
}

/// Parses a line of the console.
fn parse_line(line: &str) -> Option<PageLoad> {
    let (_, figures) = line.split_once(&format!("\"{MARK} "))?;
    let mut figures = figures.split('"').next()?.split(' ');
    Some(PageLoad { millis: figures.next()?.parse().ok()?, bytes: figures.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_tells_when_a_page_is_loaded() {
        let line = "[1:1:1121/2035.4:INFO:CONSOLE:1] \"manyways-page 69.5 1234\", source: http://a";
        assert_eq!(parse_line(line), Some(PageLoad { millis: 69.5, bytes: 1234 }));
        assert_eq!(parse_line("[1:2:ERROR:dbus/bus.cc:405] Failed to connect to the bus"), None);
    }
}
