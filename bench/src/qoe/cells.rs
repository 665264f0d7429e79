//! The fixed cells: a table in a file, so that it can be committed before anything is measured.

use std::fmt::Display;
use std::str::FromStr;

use manyways_unit::{Rate, Span};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The file.
const CELLS: &str = include_str!("cells.toml");

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    pub sabre: Sabre,
    pub film: Film,
    pub one_network: OneNetwork,
    pub two_networks: TwoNetworks,
    pub pages: Pages,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sabre {
    pub rules: Vec<String>,
}

/// Values of all plays.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Film {
    #[serde(deserialize_with = "parsed")]
    pub duration: Span,
    #[serde(deserialize_with = "parsed")]
    pub full_duration: Span,
    #[serde(deserialize_with = "parsed")]
    pub segment: Span,
    #[serde(deserialize_with = "parsed")]
    pub buffer: Span,
    pub rule: String,
    pub rounds: u32,
    /// Labs at a time.
    pub jobs: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneNetwork {
    #[serde(deserialize_with = "parsed")]
    pub rate: Rate,
    pub pair: String,
    #[serde(deserialize_with = "parsed")]
    pub delay: Span,
    pub ladder: String,
    #[serde(deserialize_with = "parsed")]
    pub alone: Rate,
    #[serde(deserialize_with = "parsed")]
    pub shared: Rate,
    #[serde(deserialize_with = "parsed")]
    pub resume_below: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoNetworks {
    pub ladder: String,
    pub rates: Vec<(u64, u64)>,
    pub pairs: Vec<String>,
    #[serde(deserialize_with = "parsed")]
    pub scaled: Rate,
    #[serde(deserialize_with = "parsed")]
    pub round_step: Span,
}

/// Loads of pages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    #[serde(deserialize_with = "parsed")]
    pub down: Rate,
    #[serde(deserialize_with = "parsed")]
    pub up: Rate,
    #[serde(deserialize_with = "parsed")]
    pub delay: Span,
    pub rounds: u32,
    /// Seeds.
    pub known: Vec<u64>,
    pub late: LateObjects,
    pub what_if: WhatIf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateObjects {
    /// Of each known page.
    pub objects: usize,
    #[serde(deserialize_with = "parsed")]
    pub delay: Span,
}

/// Factors of the round trip and of both rates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// Number of known pages.
    pub known: usize,
    pub rtt: f64,
    pub rate: f64,
}

impl Cells {
    /// # Errors
    /// One sentence, if the file is wrong.
    pub fn read() -> Result<Self, String> {
        toml::from_str(CELLS).map_err(|error| format!("cells.toml: {error}"))
    }
}

/// A value that is written as on the command line.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(source: D) -> Result<T, D::Error> {
    String::deserialize(source)?.parse().map_err(D::Error::custom)
}
