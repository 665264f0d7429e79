//! Questions about a load under other conditions.

use std::str::FromStr;

use manyways_model::qoe::page::Change;

/// A change of the conditions of a load, as the user wrote it: `cached`, `rtt=0.5`, `rate=2`, `cpu=0.5`,
/// or several with commas between.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIf {
    pub text: String,
    pub change: Change,
}

/// A change that does not exist, or with a wrong factor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a change of a load: write cached, rtt=0.5, rate=2 or cpu=0.5")]
pub struct InvalidWhatIf(pub String);

impl FromStr for WhatIf {
    type Err = InvalidWhatIf;

    fn from_str(text: &str) -> Result<Self, InvalidWhatIf> {
        const LEAST: f64 = 1e-3;
        const MOST: f64 = 1e3;
        let mut change = Change::default();
        for part in text.split(',') {
            let invalid = || InvalidWhatIf(part.to_owned());
            if part == "cached" {
                change.cached = true;
                continue;
            }
            let (name, factor) = part.split_once('=').ok_or_else(invalid)?;
            let factor: f64 = factor.parse().map_err(|_| invalid())?;
            if !(LEAST..=MOST).contains(&factor) {
                return Err(invalid());
            }
            match name {
                "rtt" => change.rtt_factor = factor,
                "rate" => change.rate_factor = factor,
                "cpu" => change.cpu_factor = factor,
                _ => return Err(invalid()),
            }
        }
        Ok(Self { text: text.to_owned(), change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_words_with_factors() {
        let what_if: WhatIf = "rtt=0.5,rate=2,cached".parse().unwrap();
        let change = what_if.change;
        assert_eq!((change.rtt_factor, change.rate_factor, change.cpu_factor), (0.5, 2.0, 1.0));
        assert!(change.cached);
        for text in
            ["", "rtt", "rtt=", "rtt=0", "rtt=-1", "rtt=nan", "rate=inf", "drop=x", "cached,"]
        {
            let error = text.parse::<WhatIf>().unwrap_err();
            assert!(error.to_string().contains("write cached"), "{text}");
        }
    }
}
