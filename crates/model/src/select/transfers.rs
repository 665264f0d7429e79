//! Tables of transfers: the indicators of the networks before, and the time that they took.
//!
//! `docs/steer-model.md` describes the columns. The same table trains a model and tests policies.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use manyways_unit::{Size, Time};
use thiserror::Error;

use super::closed_form::{self, LinkEstimate};
use super::features::{Feature, Features, Role};
use super::indicator::{Indicator, Indicators};
use super::model::Carriage;
use super::simulate::Case;

/// Rows of a table, at most.
const MAX_ROWS: usize = 2_000_000;
/// Seconds of a transfer, at least and at most.
const SECONDS: RangeInclusive<f64> = 1e-9..=1e9;

/// A transfer that has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    pub place: String,
    /// Transfers of one group are in the training or in the test, never in both.
    pub group: String,
    /// When the network was chosen, in seconds.
    pub second: u64,
    pub carriage: Carriage,
    pub size: Size,
    pub seconds: f64,
    /// Of Wi-Fi and LTE ([`Role`]), before the transfer.
    pub indicators: [Indicators; 2],
}

/// Reason why a text is not a table of transfers.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum TransfersError {
    #[error("the column {0} is missing")]
    Column(&'static str),
    #[error("line {line}: {column} is not valid: {value}")]
    Value {
        line: usize,
        column: String,
        /// The text in the table, shortened.
        value: String,
    },
    #[error("it has more than {MAX_ROWS} rows")]
    TooLong,
    #[error("it has no rows")]
    Empty,
}

/// Where the columns are.
struct Columns {
    group: usize,
    choice: usize,
    size: usize,
    seconds: usize,
    place: Option<usize>,
    second: Option<usize>,
    indicators: Vec<(usize, Role, Indicator)>,
}

/// Reads a table (CSV with a header, fields without quotes). Unknown columns are ignored.
///
/// # Errors
/// A [`TransfersError`] with one sentence for the user.
pub fn parse(text: &str) -> Result<Vec<Transfer>, TransfersError> {
    let mut lines = text.lines();
    let columns = Columns::of(lines.next().unwrap_or_default())?;
    let mut found = Vec::new();
    for (index, line) in lines.enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        if found.len() >= MAX_ROWS {
            return Err(TransfersError::TooLong);
        }
        found.push(columns.read(line).map_err(|(column, value)| {
            let value = value.chars().take(40).collect();
            TransfersError::Value { line: index + 2, column, value }
        })?);
    }
    if found.is_empty() { Err(TransfersError::Empty) } else { Ok(found) }
}

impl Columns {
    fn of(header: &str) -> Result<Self, TransfersError> {
        let titles: Vec<&str> = header.split(',').map(str::trim).collect();
        let place = |title: &str| titles.iter().position(|one| *one == title);
        let needed = |title: &'static str| place(title).ok_or(TransfersError::Column(title));
        let indicator = |(at, title): (usize, &&str)| {
            let (role, name) = title.split_once('.')?;
            let role = Role::ALL.into_iter().find(|one| one.name() == role)?;
            Some((at, role, Indicator::named(name)?))
        };
        Ok(Self {
            group: needed("group")?,
            choice: needed("choice")?,
            size: needed("size")?,
            seconds: needed("seconds")?,
            place: place("place"),
            second: place("second"),
            indicators: titles.iter().enumerate().filter_map(indicator).collect(),
        })
    }

    /// A row, or the column and the value that is wrong.
    fn read(&self, line: &str) -> Result<Transfer, (String, String)> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let wrong = |column: &str, at: usize| (column.to_owned(), field(at).to_owned());
        let number = |column: &str, at: usize| {
            let value: f64 = field(at).parse().map_err(|_| wrong(column, at))?;
            if value.is_finite() { Ok(value) } else { Err(wrong(column, at)) }
        };
        let positive = |column: &str, at: usize| {
            number(column, at)
                .and_then(|value| if value > 0.0 { Ok(value) } else { Err(wrong(column, at)) })
        };
        let mut indicators = [Indicators::default(), Indicators::default()];
        for (at, role, indicator) in &self.indicators {
            if !field(*at).is_empty() {
                let value = number(&Feature::of(*role, *indicator).name(), *at)?;
                indicators[*role as usize].set(Time::ZERO, *indicator, value);
            }
        }
        let carriage = Carriage::named(field(self.choice));
        let second = match self.second {
            Some(at) => field(at).parse().map_err(|_| wrong("second", at))?,
            None => 0,
        };
        let seconds = positive("seconds", self.seconds)?;
        if !SECONDS.contains(&seconds) {
            return Err(wrong("seconds", self.seconds));
        }
        Ok(Transfer {
            place: self.place.map_or_else(String::new, |at| field(at).to_owned()),
            group: field(self.group).to_owned(),
            second,
            carriage: carriage.ok_or_else(|| wrong("choice", self.choice))?,
            size: Size::from_bytes(positive("size", self.size)?.max(1.0) as u64),
            seconds,
            indicators,
        })
    }
}

/// Seconds that the closed form expects for a transfer.
pub fn closed_form(carriage: Carriage, size: Size, indicators: &[Indicators; 2]) -> f64 {
    let (first, joined) = match carriage {
        Carriage::Only(role) => (role, None),
        Carriage::Both(Role::Wifi) => (Role::Wifi, Some(Role::Lte)),
        Carriage::Both(Role::Lte) => (Role::Lte, Some(Role::Wifi)),
    };
    let of = |role: Role| &indicators[role as usize];
    let estimate = |one| LinkEstimate::of(of(one));
    closed_form::seconds(estimate(first), joined.map(estimate), size)
}

/// The inputs of a model for a transfer.
pub fn features(carriage: Carriage, size: Size, indicators: &[Indicators; 2]) -> Features {
    let networks = Role::ALL.map(|role| (role, &indicators[role as usize]));
    Features::new(size, closed_form(carriage, size, indicators), &networks)
}

/// The table that [`super::model::TRAINER`] reads: with the closed form.
pub fn training_table<'a>(transfers: impl IntoIterator<Item = &'a Transfer>) -> String {
    let indicators =
        || Feature::all().filter(|one| ![Feature::SIZE, Feature::CLOSED].contains(one));
    let mut text = "group,choice,size,seconds,closed".to_owned();
    indicators().for_each(|one| text += &format!(",{}", one.name()));
    text.push('\n');
    for one in transfers {
        let features = features(one.carriage, one.size, &one.indicators);
        let (choice, size) = (one.carriage.name(), one.size.as_bytes());
        let closed = features.get(Feature::CLOSED);
        // Nothing fails in writing to a string.
        let _ = write!(text, "{},{choice},{size},{},{closed}", one.group, one.seconds);
        for feature in indicators() {
            let value = features.get(feature);
            let _ = if value.is_nan() { write!(text, ",") } else { write!(text, ",{value}") };
        }
        text.push('\n');
    }
    text
}

/// Joins the transfers that began at the same place and second with the same size: the outcomes of
/// each choice. In the order of the table.
pub fn cases(transfers: &[Transfer]) -> Vec<Case> {
    let mut places = BTreeMap::new();
    let mut found: Vec<Case> = Vec::new();
    for one in transfers {
        let key = (one.place.as_str(), one.group.as_str(), one.second, one.size);
        let index = *places.entry(key).or_insert_with(|| {
            found.push(Case {
                place: one.place.clone(),
                group: one.group.clone(),
                second: one.second,
                size: one.size,
                indicators: one.indicators.clone(),
                outcomes: BTreeMap::new(),
            });
            found.len() - 1
        });
        found[index].outcomes.insert(one.carriage, one.seconds);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "place,group,second,choice,size,seconds,wifi.rssi,lte.udp-rate,other\n\
                         a,1,10,wifi,3000,0.5,-60,,x\n\
                         a,1,10,lte,3000,0.25,-60,8,x\n\
                         \n\
                         a,1,20,lte+wifi,100000,1.5,,4.5,x\n";

    #[test]
    fn transfers_of_one_decision_are_a_case() {
        let transfers = parse(TABLE).unwrap();
        assert_eq!(transfers[0].indicators[0].value(Indicator::Rssi), Some(-60.0));
        assert_eq!(transfers[0].indicators[1].value(Indicator::UdpRate), None);
        let cases = cases(&transfers);
        let counts: Vec<usize> = cases.iter().map(|case| case.outcomes.len()).collect();
        assert_eq!((counts, cases[1].second), (vec![2, 1], 20));
        assert_eq!(cases[0].outcomes[&Carriage::Only(Role::Lte)], 0.25);
    }

    #[test]
    fn the_training_table_has_the_closed_form_and_reads_back() {
        let transfers = parse(TABLE).unwrap();
        let table = training_table(&transfers);
        let line = table.lines().nth(2).unwrap();
        let closed =
            closed_form(Carriage::Only(Role::Lte), transfers[1].size, &transfers[1].indicators);
        assert!(line.starts_with(&format!("1,lte,3000,0.25,{},-60,", closed.ln())), "{line}");
        let back = parse(&table).unwrap();
        assert_eq!(back.len(), 3);
        assert_eq!(back[2].indicators, transfers[2].indicators);
    }

    #[test]
    fn a_wrong_table_is_refused_with_its_line() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error(""), "the column group is missing");
        assert_eq!(error(TABLE.lines().next().unwrap()), "it has no rows");
        let changed = |from: &str, to: &str| error(&TABLE.replace(from, to));
        assert_eq!(changed("a,1,10,lte,", "a,1,10,moon,"), "line 3: choice is not valid: moon");
        assert_eq!(changed(",0.25,", ",0,"), "line 3: seconds is not valid: 0");
        assert_eq!(changed(",0.25,", ",1e300,"), "line 3: seconds is not valid: 1e300");
        assert_eq!(changed(",4.5,", ",NaN,"), "line 5: lte.udp-rate is not valid: NaN");
        assert_eq!(changed("3000,0.5", "1e999,0.5"), "line 2: size is not valid: 1e999");
    }

    proptest! {
        #[test]
        fn a_changed_table_is_read_or_refused(at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = TABLE.to_owned().into_bytes();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            if let Ok(transfers) = parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert!(transfers.iter().all(|one| one.seconds > 0.0));
                training_table(&transfers);
            }
        }
    }
}
