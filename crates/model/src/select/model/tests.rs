use std::io::Write;
use std::process::{Command, Stdio};

use manyways_unit::{Random, Time};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::indicator::{Indicator, Indicators};
use super::read::Fault;
use super::*;

const WIFI: Carriage = Carriage::Only(Role::Wifi);

/// A tree that doubles ln(seconds) from 2 to 4 above a size of e^10, and adds 1 where the signal is
/// weak or unknown.
fn tree() -> Value {
    json!({
        "feature": [0, 1, 1, -1, -1, -1, -1],
        "threshold": [10.0, -70.0, -70.0, 0.0, 0.0, 0.0, 0.0],
        "left": [1, 3, 5, 0, 0, 0, 0],
        "right": [2, 4, 6, 0, 0, 0, 0],
        "missing_left": [false, true, true, false, false, false, false],
        "value": [0.0, 0.0, 0.0, 2.5, 2.0, 4.5, 4.0],
    })
}

fn svr() -> Value {
    json!({
        "kind": "svr",
        "features": ["size", "wifi.rssi"],
        "medians": [9.0, -60.0],
        "intervals": [],
        "gamma": 0.5,
        "intercept": 1.0,
        "mean": [9.0, -60.0],
        "scale": [2.0, 10.0],
        "vectors": [[0.0, 0.0], [1.0, 1.0]],
        "coefficients": [2.0, -1.0],
    })
}

fn boosted() -> Value {
    json!({
        "kind": "boosted",
        "features": ["size", "wifi.rssi", "closed"],
        "medians": [9.0, -60.0, 0.0],
        "intervals": [{"up_to": 50_000, "low": -0.5, "high": 0.25}, {"up_to": null, "low": -0.1, "high": 0.1}],
        "baseline": 0.25,
        "range": [-2.0, 0.0],
        "trees": [tree()],
    })
}

fn with(regressor: Value) -> Value {
    json!({
        "schema": "manyways.select-model/1",
        "title": "a model",
        "data": "made by hand",
        "regressors": {"wifi": regressor},
    })
}

fn read(document: &Value) -> Result<Model, ModelError> {
    parse(&document.to_string())
}

fn features(ln_size: f64, rssi: Option<f64>) -> Features {
    let mut indicators = Indicators::default();
    if let Some(rssi) = rssi {
        indicators.set(Time::ZERO, Indicator::Rssi, rssi);
    }
    let size = Size::from_bytes(ln_size.exp() as u64);
    Features::new(size, std::f64::consts::E, &[(Role::Wifi, &indicators)])
}

fn value(model: &Model, features: &Features) -> f64 {
    model.predict(WIFI, features).unwrap().value
}

#[test]
fn boosted_trees_follow_the_closed_form_beyond_their_training() {
    let model = read(&with(boosted())).unwrap();
    assert_eq!(model.title, "a model");
    for (ln_size, rssi, expected) in [
        (9.0, Some(-60.0), 3.25),
        (9.0, Some(-80.0), 3.75),
        (11.0, Some(-60.0), 5.25),
        (11.0, None, 5.75),
    ] {
        assert!((value(&model, &features(ln_size, rssi)) - expected).abs() < 1e-12, "{ln_size}");
    }
    let found = model.predict(WIFI, &features(9.0, None)).unwrap();
    assert_eq!(found.unknown, [Feature::of(Role::Wifi, Indicator::Rssi)]);
    let interval = (found.prediction.low.ln(), found.prediction.high.ln());
    assert!((interval.0 - 3.25).abs() < 1e-9 && (interval.1 - 4.0).abs() < 1e-9, "{interval:?}");
    let large = model.predict(WIFI, &features(12.0, None)).unwrap().prediction;
    assert!((large.high / large.low - 0.2_f64.exp()).abs() < 1e-9);
    assert_eq!(model.predict(Carriage::Only(Role::Lte), &features(9.0, None)), None);
}

#[test]
fn a_tree_and_support_vectors_take_the_median_of_an_unknown_feature() {
    let one = json!({
        "kind": "tree",
        "features": ["size", "wifi.rssi"],
        "medians": [9.0, -60.0],
        "intervals": [{"up_to": null, "low": 0.0, "high": 0.0}],
        "tree": tree(),
    });
    let model = read(&with(one)).unwrap();
    assert_eq!(value(&model, &features(9.0, None)), value(&model, &features(9.0, Some(-60.0))));
    assert_eq!(value(&model, &features(9.0, Some(-80.0))), 2.5);
    let model = read(&with(svr())).unwrap();
    let found = value(&model, &features(9.0, None));
    let size = features(9.0, None).get(Feature::SIZE);
    let (x, y) = ((size - 9.0) / 2.0, 0.0);
    let kernel = |a: f64, b: f64| (-0.5 * ((x - a).powi(2) + (y - b) * (y - b))).exp();
    let expected = 1.0 + 2.0 * kernel(0.0, 0.0) - kernel(1.0, 1.0);
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
}

/// The fault of a model after one change.
fn fault(mut regressor: Value, change: impl FnOnce(&mut Value)) -> Fault {
    change(&mut regressor);
    match read(&with(regressor)) {
        Err(ModelError::Regressor { choice: "wifi", fault }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_malformed_model_is_refused_with_a_reason() {
    let in_tree = |key: &'static str, place: usize, new: Value| {
        fault(boosted(), move |model| model["trees"][0][key][place] = new)
    };
    // A loop, a node that does not exist, one with two parents.
    assert_eq!(in_tree("left", 1, json!(0)), Fault::Child(1));
    assert_eq!(in_tree("left", 1, json!(1)), Fault::Child(1));
    assert_eq!(in_tree("right", 2, json!(7)), Fault::Child(2));
    assert_eq!(in_tree("right", 2, json!(5)), Fault::Parent(5));
    assert_eq!(in_tree("feature", 1, json!(3)), Fault::Feature("3".to_owned()));
    assert_eq!(
        fault(boosted(), |one| one["trees"][0] = short()),
        Fault::Lengths("the arrays of a tree")
    );
    assert_eq!(in_tree("value", 3, json!(5.0)), Fault::NotMonotone);
    let empty = json!({"feature": [], "threshold": [], "left": [], "right": [], "missing_left": [], "value": []});
    assert_eq!(fault(boosted(), |one| one["trees"][0] = empty), Fault::NoNode);
    assert_eq!(fault(boosted(), |one| one["features"][2] = json!("wifi.cqi")), Fault::NoClosedForm);
    assert_eq!(
        fault(boosted(), |one| one["features"][1] = json!("wifi.color")),
        Fault::Feature("wifi.color".to_owned())
    );
    assert_eq!(
        fault(boosted(), |one| one["features"][1] = json!("size")),
        Fault::Twice("size".to_owned())
    );
    assert_eq!(
        fault(boosted(), |one| one["medians"] = json!([1.0])),
        Fault::Lengths("features and medians")
    );
    assert_eq!(fault(boosted(), |one| one["range"] = json!([1.0, 0.0])), Fault::Range);
    // A longer closed form must not take less time.
    let falling = |one: &mut Value| {
        one["features"] = json!(["closed", "size"]);
        one["medians"] = json!([0.0, 0.0]);
        one["trees"][0]["feature"] = json!([1, 0, 0, -1, -1, -1, -1]);
    };
    assert_eq!(fault(boosted(), falling), Fault::NotMonotone);
    assert_eq!(fault(boosted(), |one| one["intervals"][1]["up_to"] = json!(1)), Fault::Intervals);
    assert_eq!(fault(boosted(), |one| one["intervals"][0]["low"] = json!(1.0)), Fault::Intervals);
    assert_eq!(fault(svr(), |one| one["scale"][0] = json!(0.0)), Fault::NotPositive("scale"));
    assert_eq!(fault(svr(), |one| one["gamma"] = json!(-1.0)), Fault::NotPositive("gamma"));
    assert_eq!(
        fault(svr(), |one| one["mean"] = json!([1.0])),
        Fault::Lengths("features, mean and scale")
    );
    assert_eq!(
        fault(svr(), |one| one["vectors"][1] = json!([1.0])),
        Fault::Lengths("vectors and coefficients")
    );
}

fn short() -> Value {
    let mut tree = tree();
    tree["left"] = json!([1]);
    tree
}

#[test]
fn another_schema_or_a_later_version_is_named() {
    let message = |change: fn(&mut Value)| {
        let mut model = with(boosted());
        change(&mut model);
        read(&model).unwrap_err().to_string()
    };
    let version = message(|model| model["schema"] = json!("manyways.select-model/2"));
    assert_eq!(version, "it is version 2, but this program reads version 1");
    let schema = message(|model| model["schema"] = json!("manyways.probe/1"));
    assert_eq!(schema, "its schema is not manyways.select-model/1");
    let choice = message(|model| model["regressors"]["moon"] = boosted());
    assert_eq!(choice, "no program knows its choice moon");
    assert_eq!(message(|model| model["regressors"] = json!({})), "it has no choice");
    let title = message(|model| model["title"] = json!("a\u{1b}[31m"));
    assert!(title.starts_with("its title is longer"), "{title}");
    // JSON has no NaN and no infinity; a number that is too large is neither.
    let text = with(boosted()).to_string();
    for number in ["NaN", "Infinity", "1e999"] {
        let error = parse(&text.replace("-70.0", number)).unwrap_err().to_string();
        assert!(error.starts_with("it is not a model"), "{error}");
    }
    assert!(parse("").is_err() && parse("[]").is_err());
    assert_eq!(parse(&" ".repeat(MAX_TEXT + 1)), Err(ModelError::TooLong));
}

proptest! {
    #[test]
    fn a_changed_model_is_read_or_refused(
        at in any::<prop::sample::Index>(), byte: u8, is_svr: bool, ln_size in 0.0_f64..20.0,
    ) {
        let mut bytes = with(if is_svr { svr() } else { boosted() }).to_string().into_bytes();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        if let Ok(model) = parse(&String::from_utf8_lossy(&bytes))
            && let Some(found) = model.predict(WIFI, &features(ln_size, None))
        {
            prop_assert!(!found.value.is_nan());
        }
    }

    #[test]
    fn time_is_monotone_in_the_size(sizes in (0.0_f64..25.0, 0.0_f64..25.0), rssi in -100.0_f64..-20.0) {
        let model = read(&with(boosted())).unwrap();
        let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
        let of = |ln_size| value(&model, &features(ln_size, Some(rssi)));
        prop_assert!(of(small) <= of(large));
    }
}

/// A table of transfers whose time depends on signal, rate and size, with unknown values.
fn table() -> (String, Vec<(Carriage, Features)>) {
    let mut random = Random::for_purpose(7, 1);
    let mut text = "group,choice,size,seconds,closed,wifi.rssi,wifi.udp-rate,lte.rsrp\n".to_owned();
    let mut rows = Vec::new();
    for row in 0..400 {
        let carriage = Carriage::ALL[row % 2];
        let size = Size::from_bytes([3_000, 100_000, 1_000_000][random.up_to(2) as usize]);
        let (rssi, rate) = (-90.0 + 50.0 * random.uniform(), 1.0 + 40.0 * random.uniform());
        let rsrp = -120.0 + 40.0 * random.uniform();
        let closed = 0.1 + size.as_bytes() as f64 * 8.0 / (rate * 1e6);
        let seconds = closed * (1.0 + random.uniform() - rssi / 100.0);
        let mut features = Features::new(size, closed, &[]);
        let mut cells = Vec::new();
        for (role, indicator, value) in [
            (Role::Wifi, Indicator::Rssi, rssi),
            (Role::Wifi, Indicator::UdpRate, rate),
            (Role::Lte, Indicator::Rsrp, rsrp),
        ] {
            let is_known = random.chance(0.9);
            cells.push(if is_known { value.to_string() } else { String::new() });
            if is_known {
                features.set(Feature::of(role, indicator), value);
            }
        }
        let (group, name, bytes) = (row % 5, carriage.name(), size.as_bytes());
        let cells = cells.join(",");
        let closed = features.get(Feature::CLOSED);
        text += &format!("{group},{name},{bytes},{seconds},{closed},{cells}\n");
        rows.push((carriage, features));
    }
    (text, rows)
}

#[test]
fn predictions_are_those_of_scikit_learn() {
    let python = std::env::var("MANYWAYS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import sklearn"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no scikit-learn");
        return;
    }
    let (text, rows) = table();
    let mut base = None;
    // The last one is the mean of another model and the one before.
    for kind in ["tree", "svr", "boosted", "boosted"] {
        let mut command = Command::new(&python);
        command.args(["-c", TRAINER, "-", "--fast", "--predictions", "--kind", kind]);
        let mut input = text.clone();
        if let Some(base) = &base {
            command.args(["--base", "-", "--seed", "2"]);
            input = format!("{base}\n{text}");
        }
        let mut running = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = running.wait_with_output().unwrap();
        assert!(done.status.success(), "{kind}: {}", String::from_utf8_lossy(&done.stderr));
        let printed = String::from_utf8(done.stdout).unwrap();
        let (model, predictions) = printed.split_once('\n').unwrap();
        base = (kind == "boosted").then(|| model.to_owned());
        let model = parse(model).unwrap();
        let predictions: BTreeMap<String, Vec<f64>> = serde_json::from_str(predictions).unwrap();
        for (name, expected) in &predictions {
            let carriage = Carriage::named(name).unwrap();
            let own = rows.iter().filter(|(own, _)| *own == carriage);
            let predict = |features| model.predict(carriage, features).unwrap().value;
            let found: Vec<f64> = own.map(|(_, features)| predict(features)).collect();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-9, "{kind}, {name}: {found} {expected}");
            }
        }
    }
}
