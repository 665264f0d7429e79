//! Meaning of ModemManager's objects. Any property may be missing, or of another type.

use std::collections::HashMap;

use manyways_model::select::Indicator;
use manyways_unit::Span;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};

use super::super::ledger::Reading;

pub(super) const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
pub(super) const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
/// `MM_MODEM_PORT_TYPE_NET`.
const NET_PORT: u32 = 2;
/// Bearers of a modem that are queried, at most.
const MAX_BEARERS: usize = 16;
/// `MM_SIGNAL_UNKNOWN`.
const UNKNOWN: f64 = -f64::MAX;
/// The technologies, the most informative first. A modem with several reports the one in use, except
/// with an NR cell beside an LTE cell, where LTE carries the control plane.
const TECHNOLOGIES: [&str; 5] = ["Lte", "Nr5g", "Umts", "Gsm", "Evdo"];
const SIGNALS: [(&str, Indicator); 4] = [
    ("rssi", Indicator::Rssi),
    ("rsrp", Indicator::Rsrp),
    ("rsrq", Indicator::Rsrq),
    ("snr", Indicator::Snr),
];

pub(super) type Properties = HashMap<String, OwnedValue>;
pub(super) type Objects = HashMap<OwnedObjectPath, HashMap<String, Properties>>;

/// A modem, and what connects it to interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KnownModem {
    pub(super) path: String,
    /// Its network ports.
    pub(super) interfaces: Vec<String>,
    /// Paths of its connections.
    pub(super) bearers: Vec<String>,
}

/// The modems among all objects, in the order of their paths.
pub(super) fn modems(objects: &Objects) -> Vec<KnownModem> {
    let mut modems: Vec<_> = objects
        .iter()
        .filter_map(|(path, interfaces)| {
            let modem = interfaces.get(MODEM)?;
            let ports = modem.get("Ports").map(|ports| items(ports)).unwrap_or_default();
            let bearers = modem.get("Bearers").map(|paths| items(paths)).unwrap_or_default();
            Some(KnownModem {
                path: path.to_string(),
                interfaces: ports.iter().filter_map(net_port).collect(),
                bearers: bearers.iter().filter_map(object_path).take(MAX_BEARERS).collect(),
            })
        })
        .collect();
    modems.sort_by(|one, other| one.path.cmp(&other.path));
    modems
}

/// The signals of the technology in use; empty if there are none.
pub(super) fn readings(properties: &Properties) -> Vec<Reading> {
    let of = |technology: &&str| properties.get(*technology).map(|dict| signals(dict));
    TECHNOLOGIES.iter().filter_map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The interval of reports in seconds; 0 if they are off, `None` if that is not known.
pub(super) fn setting(properties: &Properties) -> Option<u32> {
    match properties.get("Rate").map(|rate| inner(rate)) {
        Some(Value::U32(rate)) => Some(*rate),
        _ => None,
    }
}

/// The interval of reports to set, in seconds. One that another program has set is kept. `ours` is
/// the one that this program set.
pub(super) fn rate_to_set(current: Option<u32>, ours: Option<u32>, interval: Span) -> Option<u32> {
    let wanted = (interval.as_secs_f64().ceil() as u32).max(1);
    let may_set = current == Some(0) || (current.is_some() && current == ours);
    (may_set && current != Some(wanted)).then_some(wanted)
}

pub(super) fn text(value: &OwnedValue) -> Option<&str> {
    match inner(value) {
        Value::Str(text) => Some(text),
        _ => None,
    }
}

/// Signals of one technology. Other types than numbers are impossible numbers, so that the user gets
/// to know them.
fn signals(dict: &Value<'_>) -> Vec<Reading> {
    let Value::Dict(dict) = inner(dict) else { return Vec::new() };
    let mut found = Vec::new();
    for (key, value) in dict.iter() {
        let Value::Str(name) = key else { continue };
        let Some((_, indicator)) = SIGNALS.iter().find(|(known, _)| name == known) else {
            continue;
        };
        match inner(value) {
            Value::F64(UNKNOWN) => {}
            Value::F64(value) => found.push((*indicator, Some(*value))),
            _ => found.push((*indicator, Some(f64::NAN))),
        }
    }
    found.sort_by_key(|(indicator, _)| *indicator);
    found
}

fn net_port(value: &Value<'_>) -> Option<String> {
    let Value::Structure(port) = inner(value) else { return None };
    match port.fields() {
        [Value::Str(name), Value::U32(NET_PORT)] => Some(name.to_string()),
        _ => None,
    }
}

fn object_path(value: &Value<'_>) -> Option<String> {
    match inner(value) {
        Value::ObjectPath(path) => Some(path.to_string()),
        _ => None,
    }
}

fn items<'a>(value: &'a Value<'a>) -> &'a [Value<'a>] {
    match inner(value) {
        Value::Array(items) => items,
        _ => &[],
    }
}

/// The value in nested variants.
fn inner<'a, 'b>(mut value: &'a Value<'b>) -> &'a Value<'b> {
    while let Value::Value(nested) = value {
        value = nested;
    }
    value
}

#[cfg(test)]
mod tests {
    use zbus::zvariant::{Array, Dict, ObjectPath, Signature};

    use super::*;

    fn owned(value: Value<'_>) -> OwnedValue {
        value.try_to_owned().unwrap()
    }

    fn dict(entries: &[(&'static str, Value<'static>)]) -> OwnedValue {
        let mut dict = Dict::new(&Signature::Str, &Signature::Variant);
        for (name, value) in entries {
            let value = Value::Value(Box::new(value.try_clone().unwrap()));
            dict.append(Value::from(*name), value).unwrap();
        }
        owned(Value::Dict(dict))
    }

    #[test]
    fn modems_have_network_ports_and_bearers() {
        let ports = vec![("cdc-wdm0", 6_u32), ("wwan0", 2), ("ttyUSB2", 3), ("wwan1", 2)];
        let bearers = vec![ObjectPath::from_static_str_unchecked("/org/bearer/3")];
        let modem = HashMap::from([
            ("Ports".to_owned(), owned(Value::from(Array::from(ports)))),
            ("Bearers".to_owned(), owned(Value::from(Array::from(bearers)))),
        ]);
        let wrong = HashMap::from([("Ports".to_owned(), owned(Value::from("wwan0")))]);
        let path = |path: &str| OwnedObjectPath::try_from(path).unwrap();
        let objects = HashMap::from([
            (path("/org/1"), HashMap::from([(MODEM.to_owned(), wrong)])),
            (path("/org/0"), HashMap::from([(MODEM.to_owned(), modem)])),
            (path("/org/2"), HashMap::from([("org.else".to_owned(), HashMap::new())])),
        ]);
        let expected = [
            KnownModem {
                path: "/org/0".to_owned(),
                interfaces: vec!["wwan0".to_owned(), "wwan1".to_owned()],
                bearers: vec!["/org/bearer/3".to_owned()],
            },
            KnownModem { path: "/org/1".to_owned(), interfaces: vec![], bearers: vec![] },
        ];
        assert_eq!(modems(&objects), expected);
    }

    #[test]
    fn signals_of_the_first_technology_with_some_are_read() {
        let lte = dict(&[
            ("snr", Value::from(8.0)),
            ("rsrp", Value::from(-97.5)),
            ("rsrq", Value::from(UNKNOWN)),
            ("error-rate", Value::from(0.5)),
        ]);
        let nr = dict(&[("rsrp", Value::from(-80.0))]);
        let all = HashMap::from([
            ("Lte".to_owned(), lte),
            ("Nr5g".to_owned(), nr.try_clone().unwrap()),
            ("Rate".to_owned(), owned(Value::from(5_u32))),
        ]);
        let expected = [(Indicator::Rsrp, Some(-97.5)), (Indicator::Snr, Some(8.0))];
        assert_eq!(readings(&all), expected);
        assert_eq!(setting(&all), Some(5));
        let only = HashMap::from([("Lte".to_owned(), dict(&[])), ("Nr5g".to_owned(), nr)]);
        assert_eq!(readings(&only), [(Indicator::Rsrp, Some(-80.0))]);
        assert_eq!((readings(&HashMap::new()), setting(&only)), (vec![], None));
    }

    #[test]
    fn a_value_of_another_type_is_impossible_but_reported() {
        let lte = dict(&[("rsrp", Value::from("strong")), ("snr", Value::from(f64::NAN))]);
        let found = readings(&HashMap::from([("Lte".to_owned(), lte)]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, value)| value.is_some_and(f64::is_nan)));
        let text = HashMap::from([("Lte".to_owned(), owned(Value::from("strong")))]);
        assert_eq!(readings(&text), []);
    }

    #[test]
    fn reports_are_switched_on_unless_another_program_did() {
        let half = Span::from_millis(500);
        let (five, six) = (Span::from_secs(5), Span::from_millis(5_001));
        assert_eq!(rate_to_set(Some(0), None, half), Some(1));
        assert_eq!(rate_to_set(Some(0), None, six), Some(6));
        assert_eq!(rate_to_set(Some(1), Some(1), half), None);
        assert_eq!(rate_to_set(Some(1), Some(1), five), Some(5));
        assert_eq!(rate_to_set(Some(30), None, half), None, "of another program");
        assert_eq!(rate_to_set(Some(30), Some(5), half), None, "changed since");
        assert_eq!(rate_to_set(Some(0), Some(5), half), Some(1), "after a restart");
        assert_eq!(rate_to_set(None, None, half), None);
    }
}
