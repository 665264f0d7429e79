//! Models, goals and tables of the selection of networks, and its indicators.

use manyways_model::select::model::{self, Carriage};
use manyways_model::select::simulate::Costs;
use manyways_model::select::{Feature, Features, Goal, Source, transfers};
use manyways_net::steer::source::{Line, Lines, MAX_LINE, WrongLine, check};
use manyways_sys::interface::wifi::read_stations;
use manyways_unit::Size;

pub(super) const LINE_WORDS: &[&str] = &[
    "{\"network\":\"lte\"",
    ",\"rsrp\":-97.5",
    ",\"rsrq\":",
    ",\"snr\":",
    ",\"cqi\":9",
    ",\"link-rate\":",
    "null",
    "1e999",
    "-0",
    "}\n",
    "[[",
];
pub(super) const MODEL_WORDS: &[&str] = &[
    "\"schema\":\"manyways.select-model/1\"",
    "\"regressors\":{\"wifi\":{",
    "\"kind\":\"boosted\"",
    "\"kind\":\"svr\"",
    "\"kind\":\"tree\"",
    "\"features\":[\"size\",\"closed\"]",
    "\"left\":[1,0,0]",
    "\"right\":[2,0,0]",
    "\"feature\":[0,-1,-1]",
    "\"up_to\":null",
    "1e308",
    "-1",
    "4294967295",
];

pub(super) const TABLE_WORDS: &[&str] = &[
    "place,group,second,choice,size,seconds",
    ",wifi.rssi,lte.udp-rate",
    "\n",
    ",lte+wifi,",
    ",wifi,3000,0.5",
    ",,",
    "1e308",
    "1e-308",
    "NaN",
    "18446744073709551615",
    "-0",
];
pub(super) const GOAL_WORDS: &[&str] = &[
    "speed = 1\n",
    "energy = 0.5\n",
    "money = 1e1\n",
    "at-least = \"5mbit\"\n",
    "nan",
    "inf",
    "[speed]",
    "0x7fffffffffffffff",
];

/// A table of transfers, and the cases in it.
pub(super) fn table(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match transfers::parse(text) {
        Ok(found) => {
            assert!(found.iter().all(|one| one.seconds > 0.0 && one.seconds.is_finite()));
            let cases = transfers::cases(&found);
            assert!(!cases.is_empty() && cases.len() <= found.len());
            for goal in [Goal::FAST, Goal::THRIFTY] {
                for case in &cases {
                    let best = case.best(&goal, &Costs::default(), &Carriage::ALL);
                    assert!(best.is_some_and(|(_, objective)| objective.is_finite()));
                }
            }
            let table = transfers::training_table(&found);
            assert_eq!(table.lines().count(), found.len() + 1);
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

/// A file of a goal.
pub(super) fn goal(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Goal::parse(text) {
        Ok(goal) => {
            let exponents = [goal.speed, goal.energy, goal.money];
            assert!(exponents.iter().all(|one| (0.0..=10.0).contains(one)));
            assert!(goal.at_least.is_none_or(|rate| !rate.is_zero()));
        }
        Err(error) => assert!(error.line > 0 && !error.message.contains('\n')),
    }
}

/// A trained model, and its predictions.
pub(super) fn model(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(model) = model::parse(text) else { return };
    assert!(!model.title.contains('\n'));
    for carriage in Carriage::ALL {
        let predicted = |size: u64| {
            let features = Features::new(Size::from_bytes(size), 1.0, &[]);
            model.predict(carriage, &features)
        };
        let Some(found) = predicted(3_000) else { continue };
        assert!(!found.value.is_nan());
        assert!(found.unknown.iter().all(|one| *one != Feature::SIZE));
        assert!(predicted(u64::MAX).is_some_and(|found| !found.value.is_nan()));
    }
}

/// Output of a command. The first byte is the length of pieces in which it comes.
pub(super) fn lines(bytes: &[u8]) {
    let Some((piece, text)) = bytes.split_first() else { return };
    let lines_of = |size: usize| -> Vec<Result<Line, WrongLine>> {
        let mut lines = Lines::new(None);
        text.chunks(size).flat_map(|piece| lines.on_bytes(piece)).collect()
    };
    let lines = lines_of(usize::from(*piece).max(1));
    assert_eq!(lines, lines_of(text.len().max(1)));
    for line in lines {
        match line {
            Ok(line) => {
                assert!(!line.network.is_empty() && line.network.len() <= MAX_LINE);
                assert!(!line.readings.is_empty());
                for (indicator, value) in line.readings {
                    assert_eq!(indicator.source(), Source::Passive);
                    let checked = value.and_then(|value| check(indicator, value).ok());
                    assert!(checked.is_none_or(f64::is_finite));
                }
            }
            Err(wrong) => assert!(!wrong.to_string().contains('\n')),
        }
    }
}

/// Messages of nl80211.
pub(super) fn stations(bytes: &[u8]) {
    for station in read_stations(bytes) {
        for rate in [station.sent_rate, station.received_rate].into_iter().flatten() {
            assert!(!rate.is_zero());
        }
    }
}
