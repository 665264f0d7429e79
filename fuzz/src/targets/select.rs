//! Models of the selection of networks, and its indicators.

use manyways_model::select::model::{self, Carriage};
use manyways_model::select::{Feature, Features, Source};
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
