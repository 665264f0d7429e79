//! A page that plays a film in a browser with dash.js or hls.js from npm, and records how it went.
//!
//! A server of one origin has the page, the player's script and the film, or the server of the film
//! permits the page to read it. The page sets `window.manyways`, with times in seconds since the page
//! was opened, rates in bit/s:
//!
//! - `startup`: until the first picture; `ended`, `errors` (sentences; not for stalls, and for requests
//!   that a player gives up)
//! - `segments`: in the order of their arrival, each with `at`, the `position` of the playback then,
//!   `start`, `duration`, `rate` (that of the rung) and `bytes`. A player may load a segment again at
//!   another rate; the later one is played if its `start` is after `position`
//! - `stalls`: each with `at`, `position` and `duration`
//! - `position` and `buffer`, in seconds of the film
//!
//! The browser must be permitted to play without a gesture
//! (`--autoplay-policy=no-user-gesture-required`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::cache;

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
            Self::DashJs => "dashjs@5.2.1",
            Self::HlsJs => "hls.js@1.7.4",
        }
    }

    /// The player's script in the [`cache`] of this user. It is installed there once.
    ///
    /// # Errors
    /// As [`Self::install`], or if it cannot be kept.
    pub fn script(self) -> Result<PathBuf, String> {
        let package = self.package();
        let folder = cache().ok_or_else(|| format!("{package}: there is no home folder"))?;
        let folder = folder.join("players");
        let kept = folder.join(format!("{package}.js"));
        if kept.is_file() {
            return Ok(kept);
        }
        let failed = |error: io::Error| format!("{package} cannot be kept: {error}");
        fs::create_dir_all(&folder).map_err(failed)?;
        // Packages have 100 MB more than the script.
        let temporary = tempfile::tempdir_in(&folder).map_err(failed)?;
        let script = self.install(temporary.path())?;
        fs::rename(script, &kept).map_err(failed)?;
        Ok(kept)
    }

    /// Installs the player with npm below a folder, and returns its script.
    ///
    /// # Errors
    /// One sentence, if there is no npm or it fails.
    pub fn install(self, folder: &Path) -> Result<PathBuf, String> {
        let package = self.package();
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--ignore-scripts", "--no-audit"]);
        // Without a network, it does not wait for one.
        npm.args(["--no-fund", "--fetch-retries=0", "--prefix"]);
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

    /// The query of the page's address. The addresses of the script and of the manifest are of letters,
    /// digits and `:/._-`; relative ones are of the page's server.
    pub fn query(self, script: &str, manifest: &str) -> String {
        let player = match self {
            Self::DashJs => "dashjs",
            Self::HlsJs => "hlsjs",
        };
        format!("?player={player}&library={script}&manifest={manifest}")
    }
}
