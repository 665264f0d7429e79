//! Text format of links: one set of keys for `--link` on the command line, for `lab set`, and for
//! the link and event tables of a scenario.
//!
//! `wifi:down=10mbit,up=5mbit,delay=14ms,queue=150ms,loss=0.1%`
//!
//! | Key | Value | Default |
//! |---|---|---|
//! | `down`, `up` | a rate like `10mbit`, `unlimited`, or `trace:FILE` | `unlimited` |
//! | `delay` | a time like `14ms`, at most `1h`, or `trace:FILE`; one way | `0s` |
//! | `jitter` | a time: each packet's delay varies by up to this, either way | `0s` |
//! | `reorder` | `yes` or `no`: whether jitter may reorder | `no` |
//! | `loss` | `none`, `0.1%`, or `ge:P_BAD:P_GOOD[:LOSS_GOOD:LOSS_BAD]` (Gilbert-Elliott; 0 and 100%) | `none` |
//! | `queue` | a time, a size like `64KB`, packets like `100p`, or `unlimited` | `150ms` |
//! | `aqm` | `drop-tail`, `drop-head`, or `codel[:target=5ms][:interval=100ms]` | `drop-tail` |
//! | `state` | `up`, `paused` (packets wait), `silent` (all packets are dropped) or `no-carrier` | `up` |
//! | `mtu` | bytes, 1280 to 65535 | `1500` |
//! | `metered` | `yes` or `no` | `no` |
//! | `middlebox` | `none`, `nat[:idle=120s]` or `strip-mptcp` | `none` |
//! | `rrc` | `none`, or a radio: the name of a profile, or its file (with a slash or a dot in its name) | `none` |
//! | `device` | the name of the device with the link | the first device |
//! | `between` | `DEVICE:DEVICE`: the link joins two devices; `down` is towards the first one | the remote hosts |
//! | `shares` | `none`, or the name of an air: a Wi-Fi or Bluetooth link is slower while another link of its air is busy | `none` |
//! | `signal` | `none`, or the radio signal that programs see: `trace:FILE`, a table of [`signal`](crate::signal) | `none` |
//!
//! `delay`, `jitter`, `reorder`, `loss`, `queue` and `aqm` apply to both directions. With the
//! prefix `down-` or `up-` they apply to one direction and override the common setting, wherever
//! they stand. A trace is `trace:FILE`, or `trace:FORMAT:FILE` to name its format instead of
//! detecting it (see [`trace_file`]). In the text of a whole link, `\,` is a comma that separates no
//! keys, and `\\` a backslash, for file names; another backslash is itself. A scenario and `lab set`
//! need neither.
//! While a link runs, all keys except `mtu`, `metered`, `middlebox`, `rrc`, `device`, `between` and `shares` can change. A
//! running link accepts only one value of `rrc`: with `rrc=dormant` the device requests fast dormancy.
//!
//! A link with `unlimited` capacity never queues, so that its queue has an effect only after a
//! capacity is set. The default idle timeout of the NAT is 120 s, the minimum that RFC 4787 allows
//! for UDP.

use std::sync::Arc;

use crate::scenario::{
    CapacitySpec, Change, Condition, Counter, DelaySpec, Direction, Discipline, LinkSpec,
    LinkState, LossSpec, Middlebox, NetworkKind, QueueLimit, RadioSpec, SignalSpec,
};
use crate::signal::{SignalError, SignalTrace};
use crate::trace_file::{self, Format, TraceError};
use manyways_unit::human::{InvalidValue, probability, quoted, yes_or_no};
use manyways_unit::nearest::nearest;
use manyways_unit::{Rate, Size, Span};

mod write;

/// Reads the files that a text names: returns their bytes, or one sentence with the reason.
pub type Reader<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// All keys, as the user writes them.
pub const KEYS: [&str; 29] = [
    "down",
    "up",
    "delay",
    "jitter",
    "reorder",
    "loss",
    "queue",
    "aqm",
    "down-delay",
    "down-jitter",
    "down-reorder",
    "down-loss",
    "down-queue",
    "down-aqm",
    "up-delay",
    "up-jitter",
    "up-reorder",
    "up-loss",
    "up-queue",
    "up-aqm",
    "state",
    "mtu",
    "metered",
    "middlebox",
    "rrc",
    "signal",
    "device",
    "between",
    "shares",
];

/// Requests to a running link.
const DORMANT: &str = "rrc=dormant";
const NAT_RESTART: &str = "middlebox=restart";

/// Reasons why a text is not a link; [`LinkError::hint`] names a remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The name of the link is malformed.
    #[error(
        "`{0}` cannot name a link: at most ten small letters, digits and hyphens, with a letter, and no hyphen first"
    )]
    Name(String),
    /// The name cannot be used for an interface of the link.
    #[error("`{0}` cannot name a link: the system has this name for something else")]
    Reserved(String),
    /// A setting is not `key=value`.
    #[error("`{0}` is not a setting of a link: expected key=value")]
    NotASetting(String),
    /// A key does not exist.
    #[error("a link has no key `{key}`")]
    UnknownKey {
        /// As the user wrote it.
        key: String,
        /// The most similar key; `None` if no key is similar.
        nearest: Option<&'static str>,
    },
    /// A key occurs twice.
    #[error("`{0}` is given twice")]
    DuplicateKey(&'static str),
    /// A key cannot change while the link runs.
    #[error("`{0}` cannot change while the link runs")]
    FixedKey(&'static str),
    /// A link names its device twice.
    #[error("link `{0}` has both `device` and `between`")]
    TwoDevices(String),
    /// A link of another kind than Wi-Fi and Bluetooth has an air.
    #[error("link `{0}` cannot share an air: its name makes it neither Wi-Fi nor Bluetooth")]
    NoAir(String),
    /// A request of a running device, for a link that does not run yet.
    #[error("a link cannot start with `{0}`")]
    NotRunning(&'static str),
    /// A request to a radio, or a condition on its counters, for a link without one.
    #[error("link `{0}` has no radio")]
    NoRadio(String),
    /// A condition names a link that does not exist.
    #[error("there is no link `{name}`")]
    UnknownLink {
        /// As the user wrote it.
        name: String,
        /// The names of all links.
        known: Vec<String>,
    },
    /// A request that cannot be undone has a condition for its end.
    #[error("`{0}` is a request, so it cannot end on a condition")]
    NotUndone(String),
    /// A restart of a NAT, for a link without one.
    #[error("link `{0}` has no NAT")]
    NoNat(String),
    /// A value cannot be parsed.
    #[error("{key}: {invalid}")]
    Value {
        /// The key that has this value.
        key: &'static str,
        invalid: InvalidValue,
    },
    /// A file cannot be read.
    #[error("{key}: cannot read `{file}`: {reason}")]
    File {
        /// The key that names the file.
        key: &'static str,
        /// As the user named it.
        file: String,
        /// The error message of the reader.
        reason: String,
    },
    /// A file does not contain a valid trace of this kind.
    #[error("{key}: `{file}`: {error}")]
    Trace {
        /// The key that names the file.
        key: &'static str,
        /// As the user named it.
        file: String,
        error: TraceError,
    },
    /// A file does not contain signals.
    #[error("{key}: `{file}`: {error}")]
    Signal {
        /// The key that names the file.
        key: &'static str,
        /// As the user named it.
        file: String,
        error: SignalError,
    },
}

impl LinkError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Name(_) => {
                Some("write a link like wifi:down=10mbit,up=5mbit,delay=14ms".to_owned())
            }
            Self::NotASetting(_) => Some(
                "write a link like wifi:down=10mbit,up=5mbit,delay=14ms, and a comma in the name of \
                 a file as \\,"
                    .to_owned(),
            ),
            Self::Reserved(name) => Some(format!("choose a name like {name}1, wifi or lte")),
            Self::UnknownKey { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            Self::UnknownKey { nearest: None, .. } => {
                Some(format!("the keys are {}", KEYS.join(", ")))
            }
            Self::UnknownLink { name, known } => {
                Some(match nearest(name, known.iter().map(String::as_str)) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("the links are {}", known.join(", ")),
                })
            }
            Self::FixedKey("rrc") => {
                Some("use rrc=dormant to send the radio of a running link to sleep".to_owned())
            }
            Self::FixedKey("middlebox") => Some(
                "use middlebox=restart to remove the mappings of a running link's NAT".to_owned(),
            ),
            Self::NotRunning(NAT_RESTART) => {
                Some("start with middlebox=nat; the NAT has no mappings at the start".to_owned())
            }
            Self::NotRunning(_) => Some(
                "name a radio profile, like rrc=lte; the radio is idle at the start".to_owned(),
            ),
            Self::TwoDevices(_) => Some("leave `device` out: `between` names both devices".to_owned()),
            Self::NoAir(_) => Some(
                "use a name like wifi2 or bt0, or leave `shares` out: other networks have other frequencies".to_owned(),
            ),
            Self::NoRadio(_) => Some("give it one at the start, like rrc=lte".to_owned()),
            Self::NoNat(_) => Some("give it one at the start: middlebox=nat".to_owned()),
            Self::Trace { error: TraceError::UnknownFormat, .. } => {
                Some("name the format, like trace:mahimahi:FILE".to_owned())
            }
            Self::Signal { error: SignalError::TooLarge, .. } => {
                Some("leave out lines: a line holds until the next one".to_owned())
            }
            Self::Signal { .. } => Some(
                "write a first line like time,rssi,snr, and then lines like 1.5,-61,12 with seconds, \
                 dBm and dB"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A setting that can also change while the link runs.
    Change(Change),
    /// MTU in bytes.
    Mtu(u16),
    Metered(bool),
    /// The middlebox on the link; `None` for none.
    Middlebox(Option<Middlebox>),
    /// The radio of the link; `None` for none.
    Radio(Option<RadioSpec>),
    /// The device with the link.
    Device(String),
    /// The devices that the link joins.
    Between(String, String),
    /// The air that the link shares with others; `None` for none.
    Shares(Option<String>),
}

impl LinkSpec {
    /// Parses `NAME` or `NAME:key=value,key=value…`, with `\,` for a comma in a value.
    pub fn parse(text: &str, read: &mut Reader<'_>) -> Result<Self, LinkError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        link_name(name)?;
        let parts = split_at_commas(rest);
        let parts = parts.iter().map(String::as_str).filter(|part| !part.trim().is_empty());
        let settings = key_values(parts, read)?;
        let mut link = Self::new(name);
        link.configure(settings)?;
        Ok(link)
    }

    /// Checks that a change can be undone, for a change with a condition for its end.
    ///
    /// # Errors
    /// If it is a request.
    pub fn check_inverse(&self, change: &Change) -> Result<(), LinkError> {
        let inverse = change.inverse(self);
        inverse.map(drop).ok_or_else(|| LinkError::NotUndone(change.to_string()))
    }

    /// Checks that the link has the radio or the NAT to which a change is a request.
    ///
    /// # Errors
    /// If it has none.
    pub fn check_change(&self, change: &Change) -> Result<(), LinkError> {
        let has_nat = matches!(self.middlebox, Some(Middlebox::Nat { .. }));
        match change {
            Change::Dormant if self.radio.is_none() => Err(LinkError::NoRadio(self.name.clone())),
            Change::NatRestart if !has_nat => Err(LinkError::NoNat(self.name.clone())),
            _ => Ok(()),
        }
    }

    /// Applies settings before the link runs: first those of both directions, then those of one
    /// direction.
    ///
    /// # Errors
    /// If a setting is valid only for a running link, the link has two devices in two ways, or it has
    /// an air that its kind cannot share. Settings before it are then already applied.
    pub fn configure(&mut self, settings: Vec<Setting>) -> Result<(), LinkError> {
        for setting in sorted_settings(settings) {
            match setting {
                Setting::Change(Change::Dormant) => return Err(LinkError::NotRunning(DORMANT)),
                Setting::Change(Change::NatRestart) => {
                    return Err(LinkError::NotRunning(NAT_RESTART));
                }
                Setting::Change(change) => self.apply(&change),
                Setting::Mtu(mtu) => self.mtu = mtu,
                Setting::Metered(metered) => self.metered = metered,
                Setting::Middlebox(middlebox) => self.middlebox = middlebox,
                Setting::Radio(radio) => self.radio = radio,
                Setting::Device(_) | Setting::Between(..) if self.device.is_some() => {
                    return Err(LinkError::TwoDevices(self.name.clone()));
                }
                Setting::Device(device) => self.device = Some(device),
                Setting::Between(device, peer) => {
                    (self.device, self.peer) = (Some(device), Some(peer));
                }
                Setting::Shares(Some(_))
                    if !matches!(self.kind(), NetworkKind::Wifi | NetworkKind::Bluetooth) =>
                {
                    return Err(LinkError::NoAir(self.name.clone()));
                }
                Setting::Shares(air) => self.air = air,
            }
        }
        Ok(())
    }
}

/// Parses `key=value` words, as `lab set LINK` takes them. The changes are returned in the order in
/// which they are to be applied.
pub fn changes<'t>(
    words: impl IntoIterator<Item = &'t str>,
    read: &mut Reader<'_>,
) -> Result<Vec<Change>, LinkError> {
    let settings = sorted_settings(key_values(words, read)?);
    settings.into_iter().map(|setting| setting.while_running()).collect()
}

/// Parses a condition like `wifi.down_bytes >= 300000` or `wifi.down_bytes >= 300KB`.
pub fn condition(text: &str) -> Result<Condition, InvalidValue> {
    let parts = || {
        let (left, right) = text.split_once(">=")?;
        let (link, name) = left.trim().split_once('.')?;
        let counter = Counter::ALL.into_iter().find(|counter| counter.name() == name)?;
        link_name(link).ok()?;
        Some((link, counter, right.trim()))
    };
    let (link, counter, value) = parts().ok_or_else(|| {
        InvalidValue::new(
            text,
            "a condition",
            "it like `wifi.down_bytes >= 300KB`; the counters are down_bytes, up_bytes, \
             down_dropped, up_dropped and promotions",
        )
    })?;
    let number = value.parse().ok();
    let (least, kind, example) = match counter {
        Counter::DownBytes | Counter::UpBytes => {
            let size = || value.parse::<Size>().ok().map(Size::as_bytes);
            (number.or_else(size), "a size above 0", "one like 300000, 300KB or 1MiB")
        }
        _ => (number, "a number above 0", "one like 3"),
    };
    let least = least.filter(|least| *least > 0);
    let least = least.ok_or_else(|| InvalidValue::new(value, kind, example))?;
    Ok(Condition { link: link.to_owned(), counter, least })
}

impl Condition {
    /// Returns the index of the link, which must have the counter.
    ///
    /// # Errors
    /// If `links` has no such link, or the link has no radio and the counter is one of a radio.
    pub fn index(&self, links: &[LinkSpec]) -> Result<usize, LinkError> {
        let index = link_index(&self.link, links)?;
        match (self.counter, &links[index].radio) {
            (Counter::Promotions, None) => Err(LinkError::NoRadio(self.link.clone())),
            _ => Ok(index),
        }
    }
}

/// Returns the index of the link with this name.
///
/// # Errors
/// [`LinkError::UnknownLink`].
pub fn link_index(name: &str, links: &[LinkSpec]) -> Result<usize, LinkError> {
    links.iter().position(|link| link.name == name).ok_or_else(|| {
        let known = links.iter().map(|link| link.name.clone()).collect();
        LinkError::UnknownLink { name: quoted(name), known }
    })
}

/// Interfaces that may already exist in a namespace, and two names with a special meaning in
/// `/proc/sys/net`.
const RESERVED: [&str; 4] = ["all", "default", "internet0", "lo"];

/// Checks the name of a link, which is also the name of its interface in a namespace.
pub fn link_name(name: &str) -> Result<(), LinkError> {
    let fits = name.len() <= 10
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        // Some programs would take a number for the index of an interface.
        && name.contains(|c: char| c.is_ascii_lowercase());
    if !fits {
        return Err(LinkError::Name(quoted(name)));
    }
    if RESERVED.contains(&name) {
        return Err(LinkError::Reserved(name.to_owned()));
    }
    Ok(())
}

/// Parses a one-way delay of at most [`MAX_DELAY`](trace_file::MAX_DELAY).
pub fn one_way(text: &str) -> Result<Span, InvalidValue> {
    text.parse().ok().filter(|span| *span <= trace_file::MAX_DELAY).ok_or_else(|| {
        InvalidValue::new(text, "a delay", "it like 14ms, 1.5s or 100us, at most 1h")
    })
}

/// Splits the settings of a link at the commas that are not escaped.
fn split_at_commas(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letters.next_if(|next| letter == '\\' && matches!(next, ',' | '\\')) {
            Some(escaped) => part.push(escaped),
            None if letter == ',' => parts.push(std::mem::take(&mut part)),
            None => part.push(letter),
        }
    }
    parts.push(part);
    parts
}

fn key_values<'t>(
    words: impl IntoIterator<Item = &'t str>,
    read: &mut Reader<'_>,
) -> Result<Vec<Setting>, LinkError> {
    let mut seen = Vec::new();
    let mut settings = Vec::new();
    for word in words {
        let (key, value) =
            word.split_once('=').ok_or_else(|| LinkError::NotASetting(quoted(word.trim())))?;
        let key = known_key(key.trim())?;
        if seen.contains(&key) {
            return Err(LinkError::DuplicateKey(key));
        }
        seen.push(key);
        settings.push(setting(key, value.trim(), read)?);
    }
    Ok(settings)
}

fn sorted_settings(mut settings: Vec<Setting>) -> Vec<Setting> {
    settings
        .sort_by_key(|setting| matches!(setting, Setting::Change(change) if change.is_one_way()));
    settings
}

impl Setting {
    /// Converts the setting to a change of a running link; an error if the key is fixed.
    pub fn while_running(self) -> Result<Change, LinkError> {
        match self {
            Self::Change(change) => Ok(change),
            Self::Mtu(_) => Err(LinkError::FixedKey("mtu")),
            Self::Metered(_) => Err(LinkError::FixedKey("metered")),
            Self::Middlebox(_) => Err(LinkError::FixedKey("middlebox")),
            Self::Radio(_) => Err(LinkError::FixedKey("rrc")),
            Self::Device(_) => Err(LinkError::FixedKey("device")),
            Self::Between(..) => Err(LinkError::FixedKey("between")),
            Self::Shares(_) => Err(LinkError::FixedKey("shares")),
        }
    }
}

/// Returns the known key that equals `key`.
pub fn known_key(key: &str) -> Result<&'static str, LinkError> {
    KEYS.iter()
        .find(|known| **known == key)
        .copied()
        .ok_or_else(|| LinkError::UnknownKey { key: quoted(key), nearest: nearest(key, KEYS) })
}

/// Parses the value of one key.
pub fn setting(key: &str, value: &str, read: &mut Reader<'_>) -> Result<Setting, LinkError> {
    let key = known_key(key)?;
    let (direction, word) = match key.split_once('-') {
        Some(("down", word)) => (Direction::Down, word),
        Some((_, word)) => (Direction::Up, word),
        None => (Direction::Both, key),
    };
    let invalid = |invalid| LinkError::Value { key, invalid };
    Ok(Setting::Change(match word {
        "down" => Change::Down(capacity(key, value, read)?),
        "up" => Change::Up(capacity(key, value, read)?),
        "delay" => Change::Delay(direction, delay(key, value, read)?),
        "jitter" => Change::Jitter(direction, one_way(value).map_err(invalid)?),
        "reorder" => Change::Reorder(direction, yes_or_no(value).map_err(invalid)?),
        "loss" => Change::Loss(direction, loss(value).map_err(invalid)?),
        "queue" => Change::Queue(direction, queue(value).map_err(invalid)?),
        "aqm" => Change::Discipline(direction, discipline(value).map_err(invalid)?),
        "state" => Change::State(state(value).map_err(invalid)?),
        "mtu" => return Ok(Setting::Mtu(mtu(value).map_err(invalid)?)),
        "metered" => return Ok(Setting::Metered(yes_or_no(value).map_err(invalid)?)),
        "signal" => Change::Signal(signal(key, value, read)?),
        "rrc" if value == "dormant" => Change::Dormant,
        "middlebox" if value == "restart" => Change::NatRestart,
        "rrc" => return Ok(Setting::Radio(radio(key, value, read)?)),
        "device" => return Ok(Setting::Device(device_name(value).map_err(invalid)?)),
        "between" => {
            let (device, peer) = between(value).map_err(invalid)?;
            return Ok(Setting::Between(device, peer));
        }
        "shares" => return Ok(Setting::Shares(air(value).map_err(invalid)?)),
        _ => return Ok(Setting::Middlebox(middlebox(value).map_err(invalid)?)),
    }))
}

/// Parses the name of a device.
pub fn device_name(text: &str) -> Result<String, InvalidValue> {
    short_name(text, "a device")
}

fn air(text: &str) -> Result<Option<String>, InvalidValue> {
    Ok(Some(short_name(text, "an air")?).filter(|name| name != "none"))
}

fn short_name(text: &str, kind: &'static str) -> Result<String, InvalidValue> {
    let fits = (1..=20).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.starts_with(|c: char| c.is_ascii_lowercase());
    let invalid = || {
        InvalidValue::new(
            text,
            kind,
            "at most 20 small letters, digits and hyphens, with a letter first",
        )
    };
    fits.then(|| text.to_owned()).ok_or_else(invalid)
}

fn between(text: &str) -> Result<(String, String), InvalidValue> {
    let (device, peer) = text
        .split_once(':')
        .filter(|(device, peer)| device != peer)
        .ok_or_else(|| InvalidValue::new(text, "two devices", "them like laptop:phone"))?;
    Ok((device_name(device)?, device_name(peer)?))
}

fn capacity(
    key: &'static str,
    value: &str,
    read: &mut Reader<'_>,
) -> Result<CapacitySpec, LinkError> {
    if let Some(source) = value.strip_prefix("trace:") {
        let trace = trace(key, source, read, trace_file::capacity)?;
        return Ok(CapacitySpec::Trace { source: source.to_owned(), trace });
    }
    match value {
        "unlimited" => Ok(CapacitySpec::Unlimited),
        _ => value.parse::<Rate>().map(CapacitySpec::Constant).map_err(|_| LinkError::Value {
            key,
            invalid: InvalidValue::new(
                value,
                "a capacity",
                "it in bits a second, like 10mbit, 2.5gbit or 500kbit, or unlimited, or trace:FILE",
            ),
        }),
    }
}

fn delay(key: &'static str, value: &str, read: &mut Reader<'_>) -> Result<DelaySpec, LinkError> {
    if let Some(source) = value.strip_prefix("trace:") {
        let steps = trace(key, source, read, trace_file::delay)?;
        return Ok(DelaySpec::Trace { source: source.to_owned(), steps });
    }
    one_way(value).map(DelaySpec::Constant).map_err(|_| LinkError::Value {
        key,
        invalid: InvalidValue::new(
            value,
            "a delay",
            "it like 14ms, 1.5s or 100us, at most 1h, or trace:FILE",
        ),
    })
}

fn trace<T>(
    key: &'static str,
    source: &str,
    read: &mut Reader<'_>,
    parse: impl Fn(&[u8], Option<Format>) -> Result<T, TraceError>,
) -> Result<T, LinkError> {
    let named = source
        .split_once(':')
        .and_then(|(format, file)| Format::named(format).map(|format| (Some(format), file)));
    let (format, file) = named.unwrap_or((None, source));
    let bytes = read(file).map_err(|reason| LinkError::File { key, file: quoted(file), reason })?;
    parse(&bytes, format).map_err(|error| LinkError::Trace { key, file: quoted(file), error })
}

fn signal(
    key: &'static str,
    value: &str,
    read: &mut Reader<'_>,
) -> Result<Option<SignalSpec>, LinkError> {
    if value == "none" {
        return Ok(None);
    }
    let source = value.strip_prefix("trace:").filter(|file| !file.is_empty());
    let source = source.ok_or_else(|| LinkError::Value {
        key,
        invalid: InvalidValue::new(value, "a signal", "trace:FILE or none"),
    })?;
    let file = || quoted(source);
    let bytes = read(source).map_err(|reason| LinkError::File { key, file: file(), reason })?;
    let trace = SignalTrace::parse(&bytes).map_err(|error| LinkError::Signal {
        key,
        file: file(),
        error,
    })?;
    Ok(Some(SignalSpec { source: source.to_owned(), trace: Arc::new(trace) }))
}

fn loss(value: &str) -> Result<LossSpec, InvalidValue> {
    let Some(chain) = value.strip_prefix("ge:") else {
        return match value {
            "none" => Ok(LossSpec::None),
            _ => match probability(value)? {
                0.0 => Ok(LossSpec::None),
                probability => Ok(LossSpec::Independent(probability)),
            },
        };
    };
    let parts: Vec<f64> = chain.split(':').map(probability_or_one).collect::<Result<_, _>>()?;
    let (to_bad, to_good, loss_good, loss_bad) = match parts[..] {
        [to_bad, to_good] => (to_bad, to_good, 0.0, 1.0),
        [to_bad, to_good, loss_good, loss_bad] => (to_bad, to_good, loss_good, loss_bad),
        _ => {
            return Err(InvalidValue::new(
                value,
                "a loss",
                "ge:P_BAD:P_GOOD or ge:P_BAD:P_GOOD:LOSS_GOOD:LOSS_BAD with percentages",
            ));
        }
    };
    Ok(LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad })
}

/// In a transition of the loss model, a probability of 1 is plausible.
fn probability_or_one(text: &str) -> Result<f64, InvalidValue> {
    if text.trim() == "1" { Ok(1.0) } else { probability(text) }
}

fn queue(value: &str) -> Result<QueueLimit, InvalidValue> {
    if value == "unlimited" {
        return Ok(QueueLimit::Unlimited);
    }
    if let Some(Ok(packets)) = value.strip_suffix('p').map(|count| count.trim_end().parse()) {
        return Ok(QueueLimit::Packets(packets));
    }
    // A bare zero has no unit, so that it is unclear what it counts.
    let with_unit = value.ends_with(|c: char| c.is_alphabetic());
    match (value.parse::<Span>(), value.parse::<Size>()) {
        (Ok(span), _) if with_unit => Ok(QueueLimit::Time(span)),
        (_, Ok(size)) if with_unit => Ok(QueueLimit::Bytes(size)),
        _ => Err(InvalidValue::new(
            value,
            "a queue",
            "a time like 150ms, a size like 64KB, packets like 100p, or unlimited",
        )),
    }
}

fn discipline(value: &str) -> Result<Discipline, InvalidValue> {
    let invalid = || {
        InvalidValue::new(
            value,
            "a queue discipline",
            "drop-tail, drop-head, codel or codel:target=5ms:interval=100ms",
        )
    };
    let mut parts = value.split(':');
    match parts.next() {
        Some("drop-tail") if parts.next().is_none() => Ok(Discipline::DropTail),
        Some("drop-head") if parts.next().is_none() => Ok(Discipline::DropHead),
        Some("codel") => {
            let mut target = Span::from_millis(5);
            let mut interval = Span::from_millis(100);
            for part in parts {
                let (name, span) = part.split_once('=').ok_or_else(invalid)?;
                let span: Span = span.parse()?;
                match name {
                    "target" => target = span,
                    "interval" if !span.is_zero() => interval = span,
                    _ => return Err(invalid()),
                }
            }
            Ok(Discipline::Codel { target, interval })
        }
        _ => Err(invalid()),
    }
}

fn state(value: &str) -> Result<LinkState, InvalidValue> {
    match value {
        "up" => Ok(LinkState::Up),
        "paused" => Ok(LinkState::Paused),
        "silent" => Ok(LinkState::Silent),
        "no-carrier" => Ok(LinkState::NoCarrier),
        _ => Err(InvalidValue::new(value, "a state", "up, paused, silent or no-carrier")),
    }
}

fn mtu(value: &str) -> Result<u16, InvalidValue> {
    value
        .parse()
        .ok()
        .filter(|mtu| *mtu >= 1280)
        .ok_or_else(|| InvalidValue::new(value, "an MTU", "a number of bytes from 1280 to 65535"))
}

fn middlebox(value: &str) -> Result<Option<Middlebox>, InvalidValue> {
    match value.split_once(':').unwrap_or((value, "")) {
        ("none", "") => Ok(None),
        ("strip-mptcp", "") => Ok(Some(Middlebox::StripMptcp)),
        ("nat", "") => Ok(Some(Middlebox::Nat { idle: Span::from_secs(120) })),
        ("nat", option) if option.starts_with("idle=") => {
            Ok(Some(Middlebox::Nat { idle: option["idle=".len()..].parse()? }))
        }
        _ => Err(InvalidValue::new(value, "a middlebox", "none, nat, nat:idle=30s or strip-mptcp")),
    }
}

fn radio(
    key: &'static str,
    value: &str,
    read: &mut Reader<'_>,
) -> Result<Option<RadioSpec>, LinkError> {
    let source = value.to_owned();
    match value {
        "none" => Ok(None),
        "" => Err(LinkError::Value {
            key,
            invalid: InvalidValue::new(value, "a radio", "the name of a profile, or its file"),
        }),
        // The owner of the radio profiles resolves names; no name has a slash or a dot.
        _ if !value.contains(['/', '.']) => Ok(Some(RadioSpec { source, text: None })),
        _ => {
            let wrong = |reason| LinkError::File { key, file: quoted(value), reason };
            let bytes = read(value).map_err(wrong)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| wrong("the file is not UTF-8 text".to_owned()))?;
            Ok(Some(RadioSpec { source, text: Some(text) }))
        }
    }
}

#[cfg(test)]
mod tests;
