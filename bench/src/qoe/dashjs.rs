//! The player dash.js, from npm.

use manyways_rig::film_page::FilmPlayer;
use manyways_rig::programs::{cache, quoted};

/// The script of dash.js, quoted for a shell. It is installed once, below the folder of this user for
/// tools.
///
/// # Errors
/// One sentence, if it cannot be installed.
pub fn script() -> Result<String, String> {
    let cache = cache().ok_or("there is no home folder")?;
    let folder = cache.join("npm");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let script = FilmPlayer::DashJs.install(&folder)?;
    Ok(quoted(script.as_os_str()))
}
