//! How a browser is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_sys::sandbox::user_id;

use super::BrowserError;

/// Names of Chromium and Chrome.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Variables with folders that the browser writes into.
const FOLDERS: [&str; 4] = ["TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"];
/// Options for a headless browser without background network traffic, and without work for
/// parts of its window that are invisible.
const QUIET: [&str; 19] = [
    "--headless=new",
    "--window-size=1280,800",
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
    // Without HTTPS upgrades of http://, and without special treatment of private addresses.
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,LocalNetworkAccessChecks,\
     MediaRouter,OptimizationHints,Translate,WebUIOmniboxPopup,WebUIOmniboxAimPopup,\
     WebUIOmniboxFullPopup,PreloadTopChromeWebUI",
];

/// Home of the browser, with the certificates that it trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Home {
    /// The folder of the profile.
    Empty,
    /// The one in the environment.
    #[default]
    Inherited,
}

/// The browser `named`, or the first one in `PATH`.
///
/// # Errors
/// There is none.
pub fn find(named: Option<&Path>) -> Result<PathBuf, BrowserError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = |name: &Path| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let Some(named) = named else {
        let found = NAMES.iter().find_map(|name| in_path(Path::new(name)));
        return found.ok_or(BrowserError::Missing);
    };
    let is_name = named.components().count() == 1;
    let found = match is_name {
        true => in_path(named),
        false => Some(named.to_owned()).filter(|file| file.is_file()),
    };
    found.ok_or_else(|| BrowserError::NotFound(named.to_owned()))
}

/// The command of a browser without a window and without traffic of its own, which writes only into
/// `profile`.
pub fn quiet_command(browser: &Path, profile: &Path, home: Home) -> Command {
    let mut command = Command::new(browser);
    command.args(QUIET).arg(format!("--user-data-dir={}", profile.display()));
    if user_id() == 0 {
        // The sandbox refuses to work for root.
        command.arg("--no-sandbox");
    }
    for variable in FOLDERS {
        command.env(variable, profile);
    }
    if home == Home::Empty {
        command.env("HOME", profile);
    }
    command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_a_name_or_a_file() {
        assert!(find(Some(Path::new("sh"))).unwrap().ends_with("sh"));
        assert_eq!(find(Some(Path::new("/bin/sh"))).unwrap(), Path::new("/bin/sh"));
        for missing in ["no-such-browser", "/bin", "./sh", ""] {
            let error = find(Some(Path::new(missing))).unwrap_err();
            assert!(matches!(error, BrowserError::NotFound(_)), "{error}");
            assert!(error.hint().unwrap().contains("--browser"));
        }
    }
}
