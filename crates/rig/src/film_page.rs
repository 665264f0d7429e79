//! A page that plays a film in a browser with dash.js or hls.js from npm, and records how it went.
//!
//! A server of one origin has the page, the player's script and the film. The page sets
//! `window.manyways`, with times in seconds since the page was opened, rates in bit/s:
//!
//! - `startup`: until the first picture; `ended`, `errors` (sentences)
//! - `segments`: in the order of their arrival, each with `at`, the `position` of the playback then,
//!   `start`, `duration`, `rate` (that of the rung) and `bytes`. A player may load a segment again at
//!   another rate; the later one is played if its `start` is after `position`
//! - `stalls`: each with `at`, `position` and `duration`
//! - `position` and `buffer`, in seconds of the film
//!
//! The browser must be permitted to play without a gesture
//! (`--autoplay-policy=no-user-gesture-required`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page.
pub const PAGE: &str = include_str!("film_page.html");

/// A player of films for browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilmPlayer {
    /// For MPDs.
    DashJs,
    /// For playlists of HLS.
    HlsJs,
}

impl FilmPlayer {
    /// Package of npm, with the release whose events the page knows.
    pub fn package(self) -> &'static str {
        match self {
            Self::DashJs => "dashjs@5",
            Self::HlsJs => "hls.js@1",
        }
    }

    /// Installs the player with npm below a folder, and returns its script.
    ///
    /// # Errors
    /// One sentence, if there is no npm or it fails.
    pub fn install(self, folder: &Path) -> Result<PathBuf, String> {
        let package = self.package();
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--ignore-scripts", "--prefix"]);
        npm.arg(folder).arg(package).stdin(Stdio::null()).stdout(Stdio::null());
        let output = npm.output().map_err(|error| format!("npm cannot be started: {error}"))?;
        let script = folder.join("node_modules").join(match self {
            Self::DashJs => "dashjs/dist/modern/umd/dash.all.min.js",
            Self::HlsJs => "hls.js/dist/hls.min.js",
        });
        match output.status.success() && script.is_file() {
            true => Ok(script),
            false => Err(format!("{package} cannot be installed with npm ({})", output.status)),
        }
    }

    /// The query of the page's address. The addresses of the script and of the manifest are paths of
    /// the same server, of letters, digits and `/._-`.
    pub fn query(self, script: &str, manifest: &str) -> String {
        let player = match self {
            Self::DashJs => "dashjs",
            Self::HlsJs => "hlsjs",
        };
        format!("?player={player}&library={script}&manifest={manifest}")
    }
}
