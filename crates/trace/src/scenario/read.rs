//! Parses scenario files (TOML): text in, a [`Scenario`] or an error with its position out.

use super::{
    Change, Counter, DeviceSpec, Event, Expectation, HostSpec, LinkSpec, Scenario, Workload,
};
use crate::link_text::{
    KEYS, LinkError, Reader, Setting, condition, device_name, link_name, one_way, setting,
};
use manyways_unit::Span;
use manyways_unit::human::quoted;
use manyways_unit::toml::{Entry, Table, TomlError, line_and_column, parse_document, unknown_key};

/// Maximum size of a scenario file in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// Maximum number of links of a scenario.
pub const MAX_LINKS: usize = 16;
/// Maximum number of hosts of a scenario.
pub const MAX_HOSTS: usize = 64;
/// Maximum number of devices of a scenario.
pub const MAX_DEVICES: usize = 16;

/// An error in a scenario file, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ScenarioError {
    /// Counted from one.
    pub line: usize,
    /// In characters, counted from one.
    pub column: usize,
    /// The error message.
    pub message: String,
    /// Advice for the user; `None` if there is none.
    pub hint: Option<String>,
}

/// Parses a scenario file; `read` opens the files that it names, relative to the scenario.
///
/// | Key | Value | Default |
/// |---|---|---|
/// | `name` | `[a-z0-9-]+` | needed |
/// | `about` | a sentence | empty |
/// | `seed` | a whole number | `1` |
/// | `cc` | TCP congestion control | `"cubic"` |
/// | `trace-offset` | where traces start | `"0s"` |
/// | `[link.NAME]` | settings of a link, see [`link_text`](crate::link_text) | at least one link |
/// | `[device.NAME]` | `serve`: a list of strings; the first device has the links that name none | those that links name |
/// | `[host.NAME]` | `names`, `serve`: lists of strings; `extra-delay`: a table of times by link | one host `origin` |
/// | `[[event]]` | `at`, `when` (`"wifi.down_bytes >= 300KB"`) or both, `until`, `link`, and settings that change | none |
/// | `[[workload]]` | `name`, `run`, `timeout` (`"60s"`), `device` | none |
/// | `[[expect]]` | `workload`, `value` (`exit`, `seconds`, `missed_events`, `LINK.` and the name of a [`Counter`]), `is` like `"<= 2.5"` | none |
///
/// Links, devices, hosts and workloads keep the order of the file; events are sorted by time. Limits:
/// [`MAX_TEXT`], [`MAX_LINKS`], [`MAX_DEVICES`], [`MAX_HOSTS`].
pub fn parse(text: &str, read: &mut Reader<'_>) -> Result<Scenario, ScenarioError> {
    let read = if text.len() > MAX_TEXT {
        Err(TomlError::new(0, format!("a scenario has at most {MAX_TEXT} bytes")))
    } else {
        parse_document(text, "the scenario", |root| scenario(root, read))
    };
    read.map_err(|error| {
        let (line, column) = line_and_column(text, error.offset);
        ScenarioError { line, column, message: error.message, hint: error.hint }
    })
}

/// Returns the position of the radio setting of a link, for error messages of the owner of the
/// profiles: line and column as in [`ScenarioError`]. `None` if `text` has no such setting.
pub fn radio_position(text: &str, link: &str) -> Option<(usize, usize)> {
    let at = parse_document(text, "the scenario", |root| {
        let table = root.required("link")?.table("the links")?;
        let table = table.required(link)?.table("a link")?;
        Ok(table.required("rrc")?.offset())
    });
    at.ok().map(|at| line_and_column(text, at))
}

fn scenario(root: Table<'_>, read: &mut Reader<'_>) -> Result<Scenario, TomlError> {
    let root = root.check_keys(&[
        "name",
        "about",
        "seed",
        "cc",
        "trace-offset",
        "link",
        "device",
        "host",
        "event",
        "workload",
        "expect",
    ])?;
    let name = slug(&root.required("name")?)?;
    let links = links(&root, read)?;
    let devices = devices(&root, &links)?;
    let hosts = hosts(&root, &links)?;
    let events = events(&root, &links, read)?;
    let workloads = workloads(&root, &super::devices(&devices, &links))?;
    let expectations = expectations(&root, &links, &workloads)?;
    Ok(Scenario {
        name,
        about: root.entry("about").map_or(Ok(""), |entry| entry.one_line())?.to_owned(),
        seed: root.entry("seed").map_or(Ok(1), |entry| entry.integer())?,
        cc: root.entry("cc").map_or(Ok("cubic".to_owned()), |entry| congestion_control(&entry))?,
        trace_offset: root.entry("trace-offset").map_or(Ok(Span::ZERO), |entry| entry.parse())?,
        links,
        devices,
        hosts,
        events,
        workloads,
        expectations,
    })
}

fn links(root: &Table<'_>, read: &mut Reader<'_>) -> Result<Vec<LinkSpec>, TomlError> {
    let entry = root.required("link").map_err(|fault| {
        TomlError { message: "the scenario has no link".to_owned(), ..fault }
            .with_hint("add one like [link.wifi]")
    })?;
    let all = entry.table("the links")?;
    if all.entries.is_empty() {
        return Err(TomlError::new(all.offset, "the scenario has no link")
            .with_hint("add one like [link.wifi]"));
    }
    all.entries
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            if index == MAX_LINKS {
                let message = format!("a scenario has at most {MAX_LINKS} links");
                return Err(TomlError::new(entry.key_offset, message));
            }
            link_name(entry.key).map_err(|error| {
                let fault = TomlError::new(entry.key_offset, error.to_string());
                match error {
                    LinkError::Reserved(_) => {
                        error.hint().into_iter().fold(fault, TomlError::with_hint)
                    }
                    _ => fault,
                }
            })?;
            let table = entry.table("a link")?.check_keys(&KEYS)?;
            let mut link = LinkSpec::new(entry.key);
            let settings: Result<Vec<Setting>, TomlError> =
                table.entries.iter().map(|entry| link_setting(entry, read)).collect();
            link.configure(settings?).map_err(|error| {
                let key = if matches!(error, LinkError::NoAir(_)) { "shares" } else { "rrc" };
                let at = table.entry(key).map_or(table.offset, |entry| entry.offset());
                link_error(at, &error)
            })?;
            Ok(link)
        })
        .collect()
}

fn link_setting(entry: &Entry<'_>, read: &mut Reader<'_>) -> Result<Setting, TomlError> {
    if entry.key == "between"
        && let Ok(devices) = entry.strings()
    {
        let names: Vec<&str> = devices.into_iter().map(|(_, name)| name).collect();
        return setting(entry.key, &names.join(":"), read)
            .map_err(|error| link_error(entry.offset(), &error));
    }
    setting(entry.key, &entry.scalar_text()?, read)
        .map_err(|error| link_error(entry.offset(), &error))
}

fn link_error(at: usize, error: &LinkError) -> TomlError {
    TomlError { hint: error.hint(), ..TomlError::new(at, error.to_string()) }
}

fn devices(root: &Table<'_>, links: &[LinkSpec]) -> Result<Vec<DeviceSpec>, TomlError> {
    let Some(entry) = root.entry("device") else { return Ok(Vec::new()) };
    let all = entry.table("the devices")?;
    if let Some(entry) = all.entries.get(MAX_DEVICES) {
        let message = format!("a scenario has at most {MAX_DEVICES} devices");
        return Err(TomlError::new(entry.key_offset, message));
    }
    let device = |entry: &Entry<'_>| {
        let name = device_name(entry.key)
            .map_err(|error| TomlError::new(entry.key_offset, error.to_string()))?;
        let table = entry.table("a device")?.check_keys(&["serve"])?;
        let serve = table.entry("serve").map_or(Ok(Vec::new()), |entry| entry.strings())?;
        Ok(DeviceSpec { name, serve: serve.into_iter().map(|(_, text)| text.to_owned()).collect() })
    };
    let devices: Vec<DeviceSpec> =
        all.entries.iter().map(device).collect::<Result<_, TomlError>>()?;
    for link in links {
        for name in link.device.iter().chain(&link.peer) {
            known_device(name, device_offset(root, &link.name)?, &devices)?;
        }
    }
    Ok(devices)
}

/// Returns the position of the setting of a link that names its device.
fn device_offset(root: &Table<'_>, link: &str) -> Result<usize, TomlError> {
    let table = root.required("link")?.table("the links")?;
    let table = table.required(link)?.table("a link")?;
    let entry = table.entry("device").or_else(|| table.entry("between"));
    Ok(entry.map_or(table.offset, |entry| entry.offset()))
}

fn known_device(name: &str, at: usize, devices: &[DeviceSpec]) -> Result<(), TomlError> {
    if devices.iter().any(|device| device.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    Err(TomlError::new(at, format!("there is no device `{}`", quoted(name)))
        .with_hint(format!("the devices are {}", names.join(", "))))
}

fn hosts(root: &Table<'_>, links: &[LinkSpec]) -> Result<Vec<HostSpec>, TomlError> {
    let Some(entry) = root.entry("host") else { return Ok(Vec::new()) };
    let all = entry.table("the hosts")?;
    if let Some(entry) = all.entries.get(MAX_HOSTS) {
        let message = format!("a scenario has at most {MAX_HOSTS} hosts");
        return Err(TomlError::new(entry.key_offset, message));
    }
    all.entries.iter().map(|entry| host(entry, links)).collect()
}

fn host(entry: &Entry<'_>, links: &[LinkSpec]) -> Result<HostSpec, TomlError> {
    if !is_label(entry.key) {
        let message = format!(
            "`{}` cannot name a host: small letters, digits and hyphens",
            quoted(entry.key)
        );
        return Err(TomlError::new(entry.key_offset, message));
    }
    let table = entry.table("a host")?.check_keys(&["names", "serve", "extra-delay"])?;
    let mut host = HostSpec {
        name: entry.key.to_owned(),
        extra_delay: Vec::new(),
        names: Vec::new(),
        serve: Vec::new(),
    };
    if let Some(delays) = table.entry("extra-delay") {
        for delay in &delays.table("the extra delays")?.entries {
            known_link(delay.key, delay.key_offset, links)?;
            let span = one_way(delay.string()?).map_err(|error| delay.error(error))?;
            host.extra_delay.push((delay.key.to_owned(), span));
        }
    }
    if let Some(names) = table.entry("names") {
        for (at, text) in names.strings()? {
            let (name, link) = match text.split_once('@') {
                Some((name, link)) => (name, Some(link)),
                None => (text, None),
            };
            if name.len() > 253 || !name.split('.').all(is_label) {
                let message = format!("`{}` is not a host name", quoted(name));
                return Err(TomlError::new(at, message)
                    .with_hint("write a name like www.example.lab, or cdn.lab@wifi for one link"));
            }
            if let Some(link) = link {
                known_link(link, at, links)?;
            }
            let name = (name.to_owned(), link.map(str::to_owned));
            if host.names.contains(&name) {
                return Err(TomlError::new(at, format!("the name `{text}` is given twice")));
            }
            host.names.push(name);
        }
    }
    if let Some(serve) = table.entry("serve") {
        host.serve = serve.strings()?.into_iter().map(|(_, text)| text.to_owned()).collect();
    }
    Ok(host)
}

fn events(
    root: &Table<'_>,
    links: &[LinkSpec],
    read: &mut Reader<'_>,
) -> Result<Vec<Event>, TomlError> {
    let Some(entry) = root.entry("event") else { return Ok(Vec::new()) };
    let mut events: Vec<Event> = entry
        .tables("an event")?
        .into_iter()
        .map(|table| event(&table, links, read))
        .collect::<Result<_, _>>()?;
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn event(table: &Table<'_>, links: &[LinkSpec], read: &mut Reader<'_>) -> Result<Event, TomlError> {
    let parse = |key| {
        let Some(entry) = table.entry(key) else { return Ok(None) };
        let parsed = condition(entry.string()?).map_err(|error| entry.error(error))?;
        parsed.index(links).map_err(|error| link_error(entry.offset(), &error))?;
        Ok(Some(parsed))
    };
    let (when, until) = (parse("when")?, parse("until")?);
    let at = match table.entry("at") {
        Some(entry) => entry.parse()?,
        None if when.is_some() => Span::ZERO,
        None => {
            let hint = "add at = \"2s\", or when = \"wifi.down_bytes >= 300KB\"";
            return Err(TomlError::new(table.offset, "the event has no time").with_hint(hint));
        }
    };
    let link = table.required("link")?;
    let name = link.string()?;
    known_link(name, link.offset(), links)?;
    let mut settings = Vec::new();
    for entry in &table.entries {
        match entry.key {
            "at" | "when" | "until" | "link" => continue,
            key if !KEYS.contains(&key) => {
                let known = [&["at", "when", "until", "link"], &KEYS[..]].concat();
                return Err(unknown_key(entry, table.noun, &known));
            }
            _ => {}
        }
        let change = link_setting(entry, read)?
            .while_running()
            .map_err(|error| link_error(entry.key_offset, &error))?;
        if let Some(link) = links.iter().find(|link| link.name == name) {
            link.check_change(&change).map_err(|error| link_error(entry.offset(), &error))?;
            if until.is_some() {
                link.check_inverse(&change).map_err(|error| link_error(entry.offset(), &error))?;
            }
        }
        settings.push(change);
    }
    if settings.is_empty() {
        return Err(TomlError::new(table.offset, "the event changes nothing")
            .with_hint("add a change, like state = \"silent\" or down = \"2mbit\""));
    }
    settings.sort_by_key(Change::is_one_way);
    Ok(Event { when, at, until, link: name.to_owned(), change: settings })
}

fn workloads(root: &Table<'_>, devices: &[DeviceSpec]) -> Result<Vec<Workload>, TomlError> {
    let Some(entry) = root.entry("workload") else { return Ok(Vec::new()) };
    let mut workloads: Vec<Workload> = Vec::new();
    for table in entry.tables("a workload")? {
        let table = table.check_keys(&["name", "run", "timeout", "device"])?;
        let name_entry = table.required("name")?;
        let name = slug(&name_entry)?;
        if workloads.iter().any(|other| other.name == name) {
            return Err(name_entry.error(format!("there are two workloads `{name}`")));
        }
        let run_entry = table.required("run")?;
        let run = run_entry.string()?;
        if run.trim().is_empty() || run.contains('\0') {
            return Err(run_entry.error("a command was expected"));
        }
        let timeout = match table.entry("timeout") {
            None => Span::from_secs(60),
            Some(entry) => match entry.parse()? {
                Span::ZERO => return Err(entry.error("a time above zero was expected")),
                timeout => timeout,
            },
        };
        let device = match table.entry("device") {
            None => None,
            Some(entry) => {
                known_device(entry.string()?, entry.offset(), devices)?;
                Some(entry.string()?.to_owned())
            }
        };
        workloads.push(Workload { name, device, run: run.to_owned(), timeout });
    }
    Ok(workloads)
}

fn expectations(
    root: &Table<'_>,
    links: &[LinkSpec],
    workloads: &[Workload],
) -> Result<Vec<Expectation>, TomlError> {
    let Some(entry) = root.entry("expect") else { return Ok(Vec::new()) };
    entry
        .tables("an expectation")?
        .into_iter()
        .map(|table| {
            let table = table.check_keys(&["workload", "value", "is"])?;
            let workload = table.required("workload")?;
            let known: Vec<&str> = workloads.iter().map(|one| one.name.as_str()).collect();
            known_name(workload.string()?, "workload", workload.offset(), &known)?;
            let value = table.required("value")?;
            let mut values = ["exit", "seconds", "missed_events"].map(str::to_owned).to_vec();
            for link in links {
                for counter in Counter::ALL {
                    if counter != Counter::Promotions || link.radio.is_some() {
                        values.push(format!("{}.{}", link.name, counter.name()));
                    }
                }
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            known_name(value.string()?, "value", value.offset(), &values)?;
            let (op, bound) = comparison(&table.required("is")?)?;
            Ok(Expectation {
                workload: workload.string()?.to_owned(),
                value: value.string()?.to_owned(),
                op,
                bound,
            })
        })
        .collect()
}

/// Parses a comparison like `<= 2.5` into operator and bound.
fn comparison(entry: &Entry<'_>) -> Result<(String, f64), TomlError> {
    let text = entry.string()?.trim();
    let invalid = || {
        entry
            .error(format!("`{}` is not a comparison", quoted(text)))
            .with_hint("write <, <=, ==, >= or > and a number, like \"<= 2.5\"")
    };
    let op = ["<=", "==", ">=", "<", ">"].into_iter().find(|op| text.starts_with(op));
    let op = op.ok_or_else(invalid)?;
    let bound: f64 = text[op.len()..].trim().parse().map_err(|_| invalid())?;
    if !bound.is_finite() {
        return Err(invalid());
    }
    Ok((op.to_owned(), bound))
}

fn known_link(name: &str, at: usize, links: &[LinkSpec]) -> Result<(), TomlError> {
    let known: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    known_name(name, "link", at, &known)
}

fn known_name(name: &str, what: &str, at: usize, known: &[&str]) -> Result<(), TomlError> {
    if known.contains(&name) {
        return Ok(());
    }
    let error = TomlError::new(at, format!("there is no {what} `{}`", quoted(name)));
    Err(match manyways_unit::nearest::nearest(name, known.iter().copied()) {
        Some(nearest) => error.with_hint(format!("did you mean `{nearest}`?")),
        None if known.is_empty() => error,
        None => error.with_hint(format!("the {what}s are {}", known.join(", "))),
    })
}

/// Parses the name of a scenario or workload.
fn slug(entry: &Entry<'_>) -> Result<String, TomlError> {
    let text = entry.string()?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err(entry
            .error(format!("`{}` is not a name", quoted(text)))
            .with_hint("a name has 1 to 64 small letters, digits and hyphens"));
    }
    Ok(text.to_owned())
}

/// Whether the text is a valid label of a host name.
fn is_label(label: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(fits)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn congestion_control(entry: &Entry<'_>) -> Result<String, TomlError> {
    let text = entry.string()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    // The kernel's TCP_CA_NAME_MAX is 16, including the terminating zero.
    if text.is_empty() || text.len() > 15 || !text.bytes().all(fits) {
        return Err(entry
            .error(format!("`{}` cannot name a congestion control", quoted(text)))
            .with_hint("the usual ones are cubic, reno and bbr"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
