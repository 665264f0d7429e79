//! Rules for delay-tolerant traffic (a TOML file).

use manyways_unit::human::quoted;
use manyways_unit::toml::{Entry, Table, TomlError, line_and_column, parse_document};

use super::App;

/// Limit of rules, and of entries in a list.
const MAX_RULES: usize = 1_000;

/// Rules for delay-tolerant traffic; all other traffic is never delayed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DelayTolerance {
    rules: Vec<Rule>,
}

/// All given criteria must match, each by any of its entries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Rule {
    applications: Vec<String>,
    domains: Vec<String>,
    ports: Vec<(u16, u16)>,
}

/// A fault in a rule file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct DelayToleranceError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl DelayTolerance {
    /// Maximum number of bytes of a rule file.
    pub const MAX_TEXT: usize = 64 << 10;

    /// Makes these applications delay-tolerant, by name; `*` matches any characters.
    pub fn applications(names: &[String]) -> Self {
        let applications = names.iter().map(|name| name.to_lowercase()).collect();
        match names.is_empty() {
            true => Self::default(),
            false => Self { rules: vec![Rule { applications, ..Rule::default() }] },
        }
    }

    /// Parses a file with any number of `[[delay-tolerant]]` tables, each with one or more of these
    /// keys. A value is one entry or a list. All keys of a rule must match, each by any of its
    /// entries.
    ///
    /// | Key | Entry | Matches |
    /// |---|---|---|
    /// | `application` | `"mail"`, `"news*"` | the name in the trace; `*` matches any characters |
    /// | `domain` | `"example.org"`, `"*.example.org"`, `".example.org"` | the name as that of the server: itself; all subdomains; both |
    /// | `port` | `993`, `"5222-5228"` | the server's port, if the trace contains the port |
    ///
    /// Case does not matter.
    ///
    /// # Errors
    /// Returns the first fault and its place.
    pub fn parse(text: &str) -> Result<Self, DelayToleranceError> {
        let read = match text.len() > Self::MAX_TEXT {
            true => Err(TomlError::new(
                0,
                format!("a file of rules has at most {} bytes", Self::MAX_TEXT),
            )),
            false => parse_document(text, "the file of rules", rules),
        };
        read.map_err(|error| {
            let (line, column) = line_and_column(text, error.offset);
            DelayToleranceError { line, column, message: error.message, hint: error.hint }
        })
    }

    /// The union of both rule sets.
    pub fn union(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the sessions of an application are delay-tolerant.
    pub fn is_delay_tolerant(&self, app: &App) -> bool {
        let name = app.name.to_lowercase();
        self.rules.iter().any(|rule| rule.matches(&name, app.port))
    }
}

impl Rule {
    fn matches(&self, name: &str, port: Option<u16>) -> bool {
        let applications = &self.applications;
        let is_one = applications.is_empty() || applications.iter().any(|one| glob(one, name));
        let is_below =
            self.domains.is_empty() || self.domains.iter().any(|domain| is_subdomain(domain, name));
        let is_at = |port: u16| self.ports.iter().any(|(from, to)| (*from..=*to).contains(&port));
        is_one && is_below && (self.ports.is_empty() || port.is_some_and(is_at))
    }
}

/// `*` matches any number of characters, including none.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

fn is_subdomain(domain: &str, name: &str) -> bool {
    if let Some(parent) = domain.strip_prefix("*.") {
        return name
            .strip_suffix(parent)
            .is_some_and(|below| below.len() > 1 && below.ends_with('.'));
    }
    match domain.strip_prefix('.') {
        Some(parent) => name == parent || is_subdomain(&format!("*.{parent}"), name),
        None => name == domain,
    }
}

fn rules(root: Table<'_>) -> Result<DelayTolerance, TomlError> {
    const WHAT: &str = "delay-tolerant";
    let root = root.check_keys(&[WHAT])?;
    let Some(entry) = root.entry(WHAT) else {
        return Err(TomlError::new(0, "the file has no rule")
            .with_hint("write [[delay-tolerant]] and, on the next line, application = \"mail\""));
    };
    let tables = entry.tables("a rule")?;
    if tables.len() > MAX_RULES {
        return Err(entry.error(format!("there are at most {MAX_RULES} rules")));
    }
    let rules = tables.into_iter().map(rule).collect::<Result<_, _>>()?;
    Ok(DelayTolerance { rules })
}

fn rule(table: Table<'_>) -> Result<Rule, TomlError> {
    const KEYS: [&str; 3] = ["application", "domain", "port"];
    let at = table.offset;
    let table = table.check_keys(&KEYS)?;
    if KEYS.iter().all(|key| table.entry(key).is_none()) {
        return Err(TomlError::new(at, "the rule has no criterion")
            .with_hint("add an application, a domain or a port"));
    }
    Ok(Rule {
        applications: parse_list(&table, "application", pattern)?,
        domains: parse_list(&table, "domain", domain)?,
        ports: parse_list(&table, "port", ports)?,
    })
}

fn parse_list<T>(
    table: &Table<'_>,
    key: &str,
    read: fn(&Entry<'_>) -> Result<T, TomlError>,
) -> Result<Vec<T>, TomlError> {
    let Some(entry) = table.entry(key) else { return Ok(Vec::new()) };
    let entries = entry.items();
    if entries.is_empty() || entries.len() > MAX_RULES {
        return Err(entry.error(format!("a list has 1 to {MAX_RULES} entries")));
    }
    entries.iter().map(read).collect()
}

fn pattern(entry: &Entry<'_>) -> Result<String, TomlError> {
    let text = entry.one_line()?;
    match text.trim().is_empty() {
        true => Err(entry.error("the name is empty")),
        false => Ok(text.to_lowercase()),
    }
}

fn domain(entry: &Entry<'_>) -> Result<String, TomlError> {
    let text = pattern(entry)?;
    let rest = text.strip_prefix("*.").or(text.strip_prefix('.')).unwrap_or(&text);
    match rest.is_empty() || rest.contains(['*', ' ', '/', ':']) || rest.starts_with('.') {
        true => Err(entry.error(format!("`{}` is not a domain", quoted(&text))).with_hint(
            "write example.org, *.example.org for all subdomains, or .example.org for both",
        )),
        false => Ok(text),
    }
}

fn ports(entry: &Entry<'_>) -> Result<(u16, u16), TomlError> {
    let wrong = |text: &str| {
        let message = format!("`{}` is not a port or a range of ports", quoted(text));
        entry.error(message).with_hint("write 993 or \"5222-5228\"")
    };
    if let Ok(number) = entry.integer() {
        let port = u16::try_from(number).map_err(|_| wrong(&number.to_string()))?;
        return Ok((port, port));
    }
    let text = entry.string()?;
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let read = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong(text));
    let (from, to) = (read(from)?, read(to)?);
    if from > to { Err(wrong(text)) } else { Ok((from, to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str, port: Option<u16>) -> App {
        App { name: name.to_owned(), port }
    }

    #[test]
    fn all_keys_have_to_fit_and_any_entry() {
        let rules = DelayTolerance::parse(
            "[[delay-tolerant]]\n\
             application = [\"Mail\", \"news*\"]\n\
             [[delay-tolerant]]\n\
             domain = \".example.org\"\n\
             port = [993, \"5222-5228\"]\n",
        )
        .unwrap();
        for (name, port, expected) in [
            ("mail", None, true),
            ("MAIL", Some(1), true),
            ("mailbox", None, false),
            ("news", None, true),
            ("newsreader", None, true),
            ("example.org", Some(993), true),
            ("a.b.example.org", Some(5_225), true),
            ("example.org", None, false),
            ("example.org", Some(443), false),
            ("anexample.org", Some(993), false),
            (".example.org", Some(993), false),
            ("", None, false),
        ] {
            assert_eq!(rules.is_delay_tolerant(&app(name, port)), expected, "{name} {port:?}");
        }
    }

    #[test]
    fn domains_match_themselves_or_subdomains() {
        for (domain, name, expected) in [
            ("example.org", "example.org", true),
            ("example.org", "www.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", "www.example.org", true),
            (".example.org", "example.org", true),
            (".example.org", "a.www.example.org", true),
        ] {
            assert_eq!(is_subdomain(domain, name), expected, "{domain} {name}");
        }
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b*", "axxbyy", true),
            ("a*b", "axxc", false),
            ("a*aa", "aa", false),
            ("*a*a*", "xaya", true),
            ("*a*a", "a", false),
        ] {
            assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn without_rules_nothing_waits() {
        assert!(!DelayTolerance::default().is_delay_tolerant(&app("mail", None)));
        assert!(!DelayTolerance::applications(&[]).is_delay_tolerant(&app("", None)));
        let named = DelayTolerance::applications(&["mail".to_owned()]);
        let both = DelayTolerance::default().union(named);
        assert!(
            both.is_delay_tolerant(&app("mail", None))
                && !both.is_delay_tolerant(&app("news", None))
        );
    }

    #[test]
    fn errors_name_their_place() {
        let fault = |text: &str| DelayTolerance::parse(text).unwrap_err().to_string();
        assert_eq!(fault(""), "line 1, column 1: the file has no rule");
        assert_eq!(fault("[[delay-tolerant]]"), "line 1, column 1: the rule has no criterion");
        let rule = |line: &str| fault(&format!("[[delay-tolerant]]\n{line}"));
        assert_eq!(
            rule("port = 70000"),
            "line 2, column 8: port: `70000` is not a port or a range of ports"
        );
        assert_eq!(
            rule("port = \"9-1\""),
            "line 2, column 8: port: `9-1` is not a port or a range of ports"
        );
        assert_eq!(
            rule("domain = \"a*b.org\""),
            "line 2, column 10: domain: `a*b.org` is not a domain"
        );
        assert_eq!(
            rule("application = []"),
            "line 2, column 15: application: a list has 1 to 1000 entries"
        );
        assert_eq!(
            rule("application = \" \""),
            "line 2, column 15: application: the name is empty"
        );
        assert!(rule("app = \"x\"").contains("app"), "{}", rule("app = \"x\""));
        assert!(fault(&"#".repeat(DelayTolerance::MAX_TEXT + 1)).contains("at most"));
    }
}
