//! Parser of the policy file (TOML): returns a [`Policy`] or the position of an error.

use std::collections::HashSet;
use std::str::FromStr;

use manyways_unit::human::{InvalidValue, probability, quoted};
use manyways_unit::nearest::nearest;
use manyways_unit::toml::{Entry, Table, TomlError, line_and_column, parse_document, unknown_key};
use manyways_unit::{Size, Span};

use super::auto::{AllowedPaths, Goal};
use super::condition::{Condition, HYSTERESIS, MARGIN_PERCENT, Quantity, Subject};
use super::glob::Glob;
use super::hysteresis::Comparison;
use super::paths::PathSelector;
use super::selector::{Key, Protocol, Selector, User};
use super::{Action, DataPlan, Network, Policy, Primary, Rule};
use crate::sched::SchedulerKind;

/// Maximum length of a policy file in bytes.
pub const MAX_TEXT: usize = 1 << 18;
/// Maximum number of rules in a policy.
pub const MAX_RULES: usize = 1_000;
/// Maximum number of patterns in one list.
pub const MAX_PATTERNS: usize = 1_000;
/// Maximum number of errors that are listed.
pub const MAX_ERRORS: usize = 20;
/// Maximum number of networks in a policy.
const MAX_NETWORKS: usize = 64;
/// Maximum length of a rule name in characters.
const MAX_NAME: usize = 64;
/// Maximum hold time of a measured value.
const MAX_HYSTERESIS: Span = Span::from_secs(3_600);

const ACTION_KEYS: [&str; 7] =
    ["scheduler", "paths", "goal", "primary", "priority", "direct", "block"];

/// Value of `paths` in auto rules.
const AUTO: &str = "auto";

/// An error in a policy file and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct PolicyError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Text of the error.
    pub message: String,
    /// Hint for the user. `None` if there is none.
    pub hint: Option<String>,
}

impl Policy {
    /// Parses a policy file.
    ///
    /// # Errors
    /// Returns the first error; [`Policy::parse_all`] returns more.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        Self::parse_all(text).map_err(|mut errors| errors.swap_remove(0))
    }

    /// Parses a policy file.
    ///
    /// # Errors
    /// Returns the errors in the order of their positions, at least one and at most
    /// [`MAX_ERRORS`]: one of each path, of the default, and of each part of a rule. A file that is
    /// no TOML has one error.
    pub fn parse_all(text: &str) -> Result<Self, Vec<PolicyError>> {
        let mut errors = Vec::new();
        let read = if text.len() > MAX_TEXT {
            Err(TomlError::new(0, format!("a policy has at most {MAX_TEXT} bytes")))
        } else {
            parse_document(text, "the policy", |root| policy(root, text, &mut errors))
        };
        match read {
            Ok(policy) if errors.is_empty() => return Ok(policy),
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        errors.sort_by_key(|error| error.offset);
        errors.truncate(MAX_ERRORS);
        let located = errors.into_iter().map(|error| {
            let (line, column) = line_and_column(text, error.offset);
            PolicyError { line, column, message: error.message, hint: error.hint }
        });
        Err(located.collect())
    }
}

/// The value, or `None` after its error was noted.
fn noted<T>(read: Result<T, TomlError>, errors: &mut Vec<TomlError>) -> Option<T> {
    read.map_err(|error| errors.push(error)).ok()
}

fn policy(root: Table<'_>, text: &str, errors: &mut Vec<TomlError>) -> Result<Policy, TomlError> {
    errors.extend(root.unknown_key(&["default", "paths", "rule"]));
    let networks = match root.entry("paths") {
        None => Vec::new(),
        Some(entry) => networks(&entry, text, errors)?,
    };
    let default = match root.entry("default") {
        None => Some(Action::default()),
        Some(entry) => noted(
            entry.table("the default").and_then(|table| action(&table, &Action::default())),
            errors,
        ),
    };
    // A rule may depend on the default, whose error is known then.
    let default = default.unwrap_or_default();
    let tables = match root.entry("rule") {
        None => Vec::new(),
        Some(entry) => entry.tables("a rule")?,
    };
    if let Some(table) = tables.get(MAX_RULES) {
        return Err(TomlError::new(
            table.offset,
            format!("a policy has at most {MAX_RULES} rules"),
        ));
    }
    let mut names = HashSet::new();
    let mut rules = Vec::with_capacity(tables.len());
    for table in tables {
        let name = noted(table.required("name"), errors);
        let Some(rule) = rule(table, &default, text, errors) else { continue };
        if let Some(name) = name
            && !names.insert(rule.name.clone())
        {
            let message = format!("there are two rules `{}`", quoted(&rule.name));
            errors.push(
                TomlError::new(name.offset(), message)
                    .with_hint("give each its own name: it is how a decision is explained"),
            );
        }
        rules.push(rule);
    }
    Ok(Policy { rules, default, networks })
}

fn networks(
    entry: &Entry<'_>,
    text: &str,
    errors: &mut Vec<TomlError>,
) -> Result<Vec<Network>, TomlError> {
    let all = entry.table("the paths")?;
    if let Some(entry) = all.entries.get(MAX_NETWORKS) {
        let message = format!("a policy names at most {MAX_NETWORKS} paths");
        return Err(TomlError::new(entry.key_offset, message));
    }
    let networks = all.entries.iter().filter_map(|entry| noted(network(entry, text), errors));
    Ok(networks.collect())
}

fn network(entry: &Entry<'_>, text: &str) -> Result<Network, TomlError> {
    if !Glob::exact(entry.key).is_ok_and(|name| name.is_plain()) {
        let message = format!("`{}` cannot name a path", quoted(entry.key));
        return Err(TomlError::new(entry.key_offset, message)
            .with_hint("write the name of a path, or a kind like wifi or cellular"));
    }
    let table = entry.table("a path")?.check_keys(&["metered", "monthly", "from-day"])?;
    let plan = match (table.entry("monthly"), table.entry("from-day")) {
        (None, None) => None,
        (None, Some(day)) => {
            return Err(TomlError::new(day.key_offset, "`from-day` belongs to a data plan")
                .with_hint("add one, like monthly = \"10GB\""));
        }
        (Some(monthly), day) => Some(DataPlan {
            monthly: monthly.parse::<Size>()?,
            reset_day: day.map_or(Ok(1), |day| month_day(&day))?,
        }),
    };
    Ok(Network {
        name: entry.key.to_owned(),
        line: line_and_column(text, entry.key_offset).0,
        metered: table.entry("metered").map(|entry| entry.boolean()).transpose()?,
        data_plan: plan,
    })
}

fn month_day(entry: &Entry<'_>) -> Result<u8, TomlError> {
    let day = u8::try_from(entry.integer()?).ok().filter(|day| (1..=28).contains(day));
    day.ok_or_else(|| entry.error("a day from 1 to 28 was expected, which every month has"))
}

/// Parses a rule; `None` after an error in one of its parts, each of which is noted.
fn rule(
    table: Table<'_>,
    default: &Action,
    text: &str,
    errors: &mut Vec<TomlError>,
) -> Option<Rule> {
    errors.extend(table.unknown_key(&["name", "match", "not", "when", "use"]));
    // A missing name is noted already.
    let name = table.entry("name").and_then(|name| noted(rule_name(&name, text), errors));
    let act = table.required("use").map_err(|error| {
        error.with_hint("add an action, like use = { paths = \"wifi\" } or use = {}")
    });
    let action = noted(act.and_then(|act| action(&act.table("`use`")?, default)), errors);
    let selected = |key: &str, what| match table.entry(key) {
        None => Ok(Vec::new()),
        Some(entry) => list(&entry)?.iter().map(|one| selector(one.table(what)?)).collect(),
    };
    let included: Option<Vec<Selector>> = noted(selected("match", "`match`"), errors);
    let excluded = noted(selected("not", "`not`"), errors);
    let conditions = match (table.entry("when"), &action) {
        (None, _) => Some(Vec::new()),
        (Some(entry), Some(action)) => {
            noted(entry.table("`when`").and_then(|table| conditions(&table, action)), errors)
        }
        // Its meaning depends on the action.
        (Some(_), None) => None,
    };
    let (name, line) = name?;
    let mut included = included?;
    if included.is_empty() {
        included.push(Selector::default());
    }
    Some(Rule {
        name,
        line,
        included,
        excluded: excluded?,
        conditions: conditions?,
        action: action?,
    })
}

/// The name of a rule and its line.
fn rule_name(name: &Entry<'_>, text: &str) -> Result<(String, usize), TomlError> {
    let words = name.one_line()?;
    if words.trim().is_empty() || words.chars().count() > MAX_NAME {
        return Err(name.error(format!("a name of up to {MAX_NAME} characters was expected")));
    }
    Ok((words.to_owned(), line_and_column(text, name.key_offset).0))
}

fn selector(table: Table<'_>) -> Result<Selector, TomlError> {
    let table = table.check_keys(&Key::ALL.map(Key::keyword))?;
    if table.entries.is_empty() {
        return Err(TomlError::new(table.offset, format!("{} is empty", table.noun))
            .with_hint("leave it out, or add what flows have to fit, like port = 443"));
    }
    Ok(Selector {
        process: patterns(&table, Key::Process, Glob::ignoring_case)?,
        user: patterns(&table, Key::User, |text| match text.parse() {
            Ok(uid) => Ok(User::Uid(uid)),
            Err(_) => Glob::exact(text).map(User::Name),
        })?,
        cgroup: patterns(&table, Key::Cgroup, FromStr::from_str)?,
        domain: patterns(&table, Key::Domain, FromStr::from_str)?,
        address: patterns(&table, Key::Address, FromStr::from_str)?,
        port: patterns(&table, Key::Port, FromStr::from_str)?,
        protocol: patterns(&table, Key::Protocol, |text| match text {
            "tcp" => Ok(Protocol::Tcp),
            "udp" => Ok(Protocol::Udp),
            _ => Err(InvalidValue::new(text, "a protocol", "tcp or udp")),
        })?,
        bytes: patterns(&table, Key::Bytes, FromStr::from_str)?,
    })
}

/// Parses one pattern or a list of alternatives.
fn patterns<T, E: std::fmt::Display>(
    table: &Table<'_>,
    key: Key,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, TomlError> {
    let Some(entry) = table.entry(key.keyword()) else { return Ok(Vec::new()) };
    list(&entry)?
        .into_iter()
        .map(|item| {
            // Only numbers are valid without quotes.
            let text = match key {
                Key::Port | Key::User => item.scalar_text()?,
                _ => item.string()?.to_owned(),
            };
            read(&text).map_err(|error| item.error(error))
        })
        .collect()
}

/// Parses one value or a list, which must not be empty.
fn list<'t>(entry: &Entry<'t>) -> Result<Vec<Entry<'t>>, TomlError> {
    let items = entry.items();
    match items.len() {
        0 => Err(entry
            .error("the list is empty and would fit nothing")
            .with_hint("leave the key out")),
        1..=MAX_PATTERNS => Ok(items),
        _ => Err(entry.error(format!("a list has at most {MAX_PATTERNS} entries"))),
    }
}

/// Parses the value of `paths`. An auto rule without a goal has that of `base`.
fn allowed_paths(entry: &Entry<'_>, base: &AllowedPaths) -> Result<AllowedPaths, TomlError> {
    let items = list(entry)?;
    let words = items.iter().map(Entry::string).collect::<Result<Vec<_>, _>>()?;
    let auto = words.iter().position(|word| word.trim_start_matches('!') == AUTO);
    if let Some(item) = auto.and_then(|at| items.get(at)) {
        return match (&words[..], base) {
            ([AUTO], AllowedPaths::Auto(_)) => Ok(base.clone()),
            ([AUTO], AllowedPaths::Fixed(_)) => Ok(AllowedPaths::Auto(Goal::default())),
            _ => Err(item
                .error("`auto` chooses all paths of a rule, and cannot be combined or excluded")
                .with_hint("write paths = \"auto\", or name paths or kinds")),
        };
    }
    PathSelector::parse(words).map(AllowedPaths::Fixed).map_err(|error| {
        entry
            .error(error)
            .with_hint("name paths or kinds, or write all, auto, metered, unmetered or !lte")
    })
}

/// Parses one of these names.
fn named<T: FromStr<Err: std::fmt::Display>>(
    entry: &Entry<'_>,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<T, TomlError> {
    entry.parse().map_err(|error: TomlError| {
        let near = entry.string().ok().and_then(|word| nearest(word, names));
        match near {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error,
        }
    })
}

/// Parses `use` or the default; missing keys have the value in `base`.
fn action(table: &Table<'_>, base: &Action) -> Result<Action, TomlError> {
    if let Some(entry) = table.entries.iter().find(|entry| !ACTION_KEYS.contains(&entry.key)) {
        return Err(unknown_key(entry, table.noun, &ACTION_KEYS));
    }
    for (key, action) in [("direct", Action::Direct), ("block", Action::Block)] {
        let Some(entry) = table.entry(key) else { continue };
        if !entry.boolean()? {
            return Err(entry.error("true was expected").with_hint("leave the key out"));
        }
        if let Some(other) = table.entries.iter().find(|other| other.key != key) {
            let message = format!("`{}` has no effect next to `{key}`", other.key);
            return Err(
                TomlError::new(other.key_offset, message).with_hint("leave one of them out")
            );
        }
        return Ok(action);
    }
    let (mut scheduler, mut allowed, mut primary, mut priority) = match base.clone() {
        Action::Bond { scheduler, paths, primary, priority } => {
            (scheduler, paths, primary, priority)
        }
        Action::Direct | Action::Block => (SchedulerKind::default(), AllowedPaths::all(), None, 1),
    };
    if let Some(entry) = table.entry("scheduler") {
        scheduler = named(&entry, SchedulerKind::ALL.map(SchedulerKind::name))?;
    }
    if let Some(entry) = table.entry("paths") {
        allowed = allowed_paths(&entry, &allowed)?;
    }
    if let Some(entry) = table.entry("goal") {
        let AllowedPaths::Auto(goal) = &mut allowed else {
            let message = "`goal` has no effect without paths = \"auto\"";
            return Err(TomlError::new(entry.key_offset, message)
                .with_hint("add paths = \"auto\", or leave `goal` out"));
        };
        *goal = named(&entry, Goal::ALL.map(Goal::name))?;
    }
    if let Some(entry) = table.entry("primary") {
        primary = Some(match entry.string()? {
            "lowest-latency" => Primary::LowestLatency,
            word => Primary::Paths(PathSelector::parse([word]).map_err(|error| {
                entry.error(error).with_hint("name a path or a kind, or write lowest-latency")
            })?),
        });
    }
    if let Some(entry) = table.entry("priority") {
        priority = match entry.scalar_text()?.as_str() {
            "low" => 0,
            "normal" => 1,
            "high" => 2,
            text => text.parse().map_err(|_| {
                entry.error("low, normal, high or a number from 0 to 255 was expected")
            })?,
        };
    }
    Ok(Action::Bond { scheduler, paths: allowed, primary, priority })
}

fn conditions(table: &Table<'_>, action: &Action) -> Result<Vec<Condition>, TomlError> {
    let margin = match table.entry("margin") {
        None => MARGIN_PERCENT,
        Some(entry) => {
            let share = probability(entry.string()?).map_err(|error| entry.error(error))?;
            if share > 0.9 {
                return Err(entry.error("a margin of at most 90% was expected"));
            }
            (share * 100.0).round() as u64
        }
    };
    let hysteresis = match table.entry("hold") {
        None => HYSTERESIS,
        Some(entry) => {
            let hysteresis = entry.parse()?;
            if hysteresis > MAX_HYSTERESIS {
                return Err(entry.error("at most 1h was expected"));
            }
            hysteresis
        }
    };
    let mut all = Vec::new();
    for entry in &table.entries {
        let mut device = |quantity| {
            condition(entry, Subject::Device, quantity, "", margin, hysteresis)
                .map(|one| all.push(one))
        };
        match entry.key {
            "margin" | "hold" => {}
            "battery" => device(Quantity::Battery)?,
            "charging" => device(Quantity::Charging)?,
            _ if !entry.is_table() => {
                let fault =
                    unknown_key(entry, table.noun, &["battery", "charging", "hold", "margin"]);
                return Err(match fault.hint.as_deref() {
                    Some(hint) if hint.starts_with("did you") => fault,
                    _ => fault.with_hint(
                        "the keys are battery, charging, hold, margin, and paths, like \
                         wifi.rate = \"<1mbit\"",
                    ),
                });
            }
            word => {
                let subject = subject(entry, action)?;
                let facts = entry.table("a path in `when`")?;
                for fact in &facts.entries {
                    let known = Quantity::PATH_QUANTITIES;
                    let quantity = known
                        .into_iter()
                        .find(|quantity| quantity.keyword() == fact.key)
                        .ok_or_else(|| {
                            unknown_key(fact, facts.noun, &known.map(Quantity::keyword))
                        })?;
                    let word = format!("{word}.");
                    all.push(condition(
                        fact,
                        subject.clone(),
                        quantity,
                        &word,
                        margin,
                        hysteresis,
                    )?);
                }
                if facts.entries.is_empty() {
                    return Err(TomlError::new(
                        entry.key_offset,
                        format!("nothing is asked of `{word}`"),
                    )
                    .with_hint("add a condition, like wifi.rate = \"<1mbit\""));
                }
            }
        }
    }
    if all.is_empty() {
        return Err(TomlError::new(table.offset, "`when` has no condition").with_hint(
            "leave it out, or add one, like wifi.rate = \"<1mbit\" or battery = \">20%\"",
        ));
    }
    for key in ["margin", "hold"] {
        if let Some(entry) = table.entry(key)
            && !all.iter().any(|condition| condition.quantity.needs_hysteresis())
        {
            let message =
                format!("`{key}` is for up, rate, load, rtt and loss, and none is asked for");
            return Err(TomlError::new(entry.key_offset, message).with_hint("leave it out"));
        }
    }
    Ok(all)
}

/// Parses the paths of a key of `when`.
fn subject(entry: &Entry<'_>, action: &Action) -> Result<Subject, TomlError> {
    if entry.key != "primary" {
        let paths = PathSelector::parse([entry.key])
            .map_err(|error| TomlError::new(entry.key_offset, error.to_string()))?;
        return Ok(Subject::Paths(paths));
    }
    match action {
        Action::Bond { primary: Some(Primary::Paths(primary)), .. } => {
            Ok(Subject::Paths(primary.clone()))
        }
        Action::Bond { primary: Some(Primary::LowestLatency), paths, .. } => {
            Ok(Subject::LowestLatency(paths.clone()))
        }
        _ => Err(TomlError::new(entry.key_offset, "this rule has no primary path").with_hint(
            "name it, like use = { primary = \"wifi\" }, or ask about the path by its name",
        )),
    }
}

fn condition(
    entry: &Entry<'_>,
    subject: Subject,
    quantity: Quantity,
    of: &str,
    margin: u64,
    hysteresis: Span,
) -> Result<Condition, TomlError> {
    let (test, words) = if quantity.is_boolean() {
        let yes = entry.boolean()?;
        let hysteresis = if quantity.needs_hysteresis() { hysteresis } else { Span::ZERO };
        (Comparison::boolean(yes, hysteresis), yes.to_string())
    } else {
        let text = entry.string()?;
        let test = Comparison::parse(quantity, text, margin, hysteresis)
            .map_err(|error| entry.error(error))?;
        (test, text.split_whitespace().collect())
    };
    let text = format!("{of}{} {words}", quantity.keyword());
    Ok(Condition { subject, quantity, comparison: test, text })
}
