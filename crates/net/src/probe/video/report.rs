//! The result of a film.

use std::collections::BTreeMap;

use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::{Ending, Session};
use manyways_unit::{Rate, Size};

use super::source::FilmFacts;

/// A film that was played, or the beginning of it.
#[derive(Clone, Debug, Default)]
pub struct VideoReport {
    /// Name and version of a player in a browser; `None` for that of manyways.
    pub player: Option<String>,
    /// Facts of the manifest; empty before it was read.
    pub facts: FilmFacts,
    /// `None` before the film starts.
    pub session: Option<Session>,
    /// `None` if the film was not played to the end.
    pub ending: Option<Ending>,
    /// Bytes of the film over each path, by its name.
    pub carried: BTreeMap<String, Carried>,
    /// `h2` or `http/1.1` of the latest connection; `None` for that of a browser.
    pub protocol: Option<&'static str>,
    /// URL of the manifest after redirects, if there were any.
    pub redirected_to: Option<String>,
}

/// Share of a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carried {
    pub bytes: Size,
    pub requests: u64,
}

impl VideoReport {
    /// Mean bitrate of the fetched segments; `None` before the first one.
    pub fn bitrate(&self) -> Option<Rate> {
        let session = self.session.as_ref().filter(|session| !session.segments.is_empty())?;
        Some(session.mean_bitrate(self.film()?))
    }

    /// The film, as it was played.
    pub fn film(&self) -> Option<&Film> {
        self.facts.film.as_ref()
    }
}
