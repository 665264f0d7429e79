//! Models of the selection of networks.

use manyways_model::select::model::{self, Carriage};
use manyways_model::select::{Feature, Features};
use manyways_unit::Size;

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
