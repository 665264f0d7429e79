//! A page load in a headless Chromium with an empty profile.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::Measurement;
use super::dial::Dialer;
use super::page::{MARK, Page, path};
use super::web;

/// Load a page; the value is the time from the navigation's start to the end of the load event.
///
/// The browser reports the result on its console, so that no measurement traffic uses the links.
#[derive(clap::Args)]
pub struct Browse {
    /// How many objects the page has.
    #[arg(long, value_name = "N")]
    objects: usize,
    /// Chromium.
    #[arg(long, value_name = "FILE")]
    browser: PathBuf,
    /// Where its profile may be, which goes with it.
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
}

/// Time limit of a page load, and of the browser's end.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The browser loads the page after this delay, because it is busy with its own start before.
const WARM_UP: Duration = Duration::from_millis(800);
/// Options for a headless browser as root without background network traffic.
const OPTIONS: [&str; 20] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--safebrowsing-disable-auto-update",
    "--metrics-recording-only",
    // Without HTTPS upgrades of http://, and without special treatment of the lab's private
    // addresses.
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,LocalNetworkAccessChecks,\
     MediaRouter,OptimizationHints,Translate",
    "--enable-logging=stderr",
];

impl Browse {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let base = web::base((*dialer.server.ip()).into(), dialer.server.port());
        let page = Page::new(self.objects);
        let profile = tempfile::Builder::new().prefix("browser").tempdir_in(&self.folder)?;
        let url = format!("{}{}", base(0), path(self.objects, 0));
        let mut browser = self.start(dialer, profile.path(), &url)?;
        let mut said = BufReader::new(browser.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let loaded = tokio::time::timeout(LOAD_TIMEOUT, read_page_load(&mut said)).await;
        browser.kill().await?;
        // Helper processes keep the pipe open until they have ended; only then can the folder be
        // removed.
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(LOAD_TIMEOUT, said.read_to_end(&mut rest)).await;
        let loaded = loaded.map_err(|_| io::ErrorKind::TimedOut)??;
        let wanted = page.bytes(&base);
        if loaded.bytes != wanted {
            return Err(io::Error::other(format!("{loaded:?} is not the page's {wanted} bytes")));
        }
        let more = [("megabytes".to_owned(), wanted as f64 / 1e6)].into();
        Ok(Measurement { value: loaded.millis / 1000.0, extra: more, ..Measurement::default() })
    }

    fn start(&self, dialer: &Dialer, profile: &Path, url: &str) -> io::Result<Child> {
        let mut command = Command::new(&self.browser);
        command.args(OPTIONS).arg(format!("--user-data-dir={}", profile.display()));
        if let Some(proxy) = dialer.socks {
            command.arg(format!("--proxy-server=socks5://{proxy}"));
        }
        let millis = WARM_UP.as_millis();
        command.arg(format!(
            "data:text/html,<script>setTimeout(()=>location='{url}',{millis})</script>"
        ));
        for variable in ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(variable, profile);
        }
        command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn()
    }
}

/// Figures of a page load on the browser's console.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PageLoad {
    /// Until the end of the load event.
    millis: f64,
    /// Decoded bytes of all bodies.
    bytes: u64,
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
