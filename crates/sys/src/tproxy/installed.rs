//! Installs, checks and removes the rules.

use std::fmt;

use super::command::{self, families};
use super::holder::own_process;
use super::{Error, Names, Rules, Targets, holder, probe, script};
use manyways_unit::Prefix;

/// Installed rules. Dropping this removes them; [`Installed::remove`] also returns the result.
#[derive(Debug)]
pub struct Installed {
    names: Names,
    targets: Targets,
    /// The chains as printed by `nft` right after their creation.
    chains: String,
    /// The families that the kernel supports, each with the routing rules as printed by `ip`.
    families: Vec<(&'static str, Vec<String>)>,
    removed: bool,
}

/// A part of the rules that is missing or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The nftables table: the ruleset was flushed.
    Table,
    /// The chains of the table were changed, or a cgroup that they name was removed.
    Chains,
    /// An IPv4 routing rule.
    RuleV4,
    /// An IPv6 routing rule.
    RuleV6,
    /// The IPv4 route.
    RouteV4,
    /// The IPv6 route.
    RouteV6,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "the nftables table is missing",
            Self::Chains => "the chains of the nftables table were changed",
            Self::RuleV4 => "an IPv4 routing rule is missing",
            Self::RuleV6 => "an IPv6 routing rule is missing",
            Self::RouteV4 => "the IPv4 route is missing",
            Self::RouteV6 => "the IPv6 route is missing",
        })
    }
}

impl Rules {
    /// Installs the rules and replaces rules of the same names that this process or a dead one has
    /// installed. They apply from now on for [`Rules::lifetime`]. (Whether a process lives is read
    /// from `/proc`: two processes in different PID namespaces consider each other dead.)
    ///
    /// Existing connections continue unchanged, and so do flows of datagrams that the kernel
    /// tracked before.
    ///
    /// [`Error::InUse`] if another living process holds the rules; [`Error::NumberInUse`] if
    /// another program uses the routing table or the rule's priority; other errors for features
    /// that the kernel or the host lacks. Nothing is left installed then.
    pub fn install(&self) -> Result<Installed, Error> {
        // First, because it detects invalid rules before any change.
        let before = command::nft_table(&self.names.nft)?;
        let script = script::table(self, own_process(), before.is_none())?;
        let routing = script::routing(self)?;
        check_holder(before.as_deref())?;
        let families = families();
        for family in &families {
            check_numbers(&self.names, family)?;
        }
        // Owned from here on, and removed again if a step fails.
        let mut installed = Installed {
            names: self.names.clone(),
            targets: self.targets,
            chains: String::new(),
            families: families.into_iter().map(|family| (family, Vec::new())).collect(),
            removed: false,
        };
        // Without a mark on any packet these have no effect yet.
        for (family, rules) in &mut installed.families {
            route(&self.names, &routing, family)?;
            *rules = rules_at(&self.names, family)?;
        }
        if let Err(error) = command::nft(&script) {
            let raced = command::nft_table(&self.names.nft).ok().flatten();
            if let Err(in_use) = check_holder(raced.as_deref()) {
                // The other process needs the existing routes.
                installed.removed = true;
                return Err(in_use);
            }
            return Err(match error {
                Error::Refused { .. } => probe::missing_feature().unwrap_or(error),
                other => other,
            });
        }
        let table = command::nft_table(&self.names.nft)?.unwrap_or_default();
        installed.chains = chains(&table);
        Ok(installed)
    }
}

impl Installed {
    /// Extends the lifetime of the rules: they apply for [`Rules::lifetime`] from now on. Call
    /// several times in this interval, from the loop that serves the proxy's sockets.
    ///
    /// # Errors
    /// If the table was removed, among others: [`Installed::repair`].
    pub fn refresh(&self) -> Result<(), Error> {
        command::nft(&script::mark_alive(&self.names, &self.targets))
    }

    /// Treats new traffic as if the proxy were dead, until the next [`Installed::refresh`].
    /// Existing connections of the proxy continue.
    pub fn pause(&self) -> Result<(), Error> {
        command::nft(&script::mark_dead(&self.names))
    }

    /// Replaces the destinations that are reached directly, for example after a change of network.
    pub fn set_direct(&self, direct: &[Prefix]) -> Result<(), Error> {
        command::nft(&script::direct_sets(&self.names, direct))
    }

    /// Replaces the rules by others with the same names and the same selected traffic. There is no
    /// time without rules, and connections continue.
    ///
    /// # Errors
    /// If the table no longer belongs to this process, among others; it stays unchanged then.
    pub fn replace(&mut self, rules: &Rules) -> Result<(), Error> {
        let before = command::nft_table(&self.names.nft)?;
        check_holder(before.as_deref())?;
        command::nft(&script::table(rules, own_process(), before.is_none())?)?;
        self.targets = rules.targets;
        self.chains = chains(&command::nft_table(&self.names.nft)?.unwrap_or_default());
        Ok(())
    }

    /// Returns the parts that differ from the installation; empty if there are none.
    /// [`Installed::repair`] restores them.
    pub fn check(&self) -> Result<Vec<Missing>, Error> {
        let mut missing = Vec::new();
        match command::nft_table(&self.names.nft)? {
            None => missing.push(Missing::Table),
            Some(table) if chains(&table) != self.chains => missing.push(Missing::Chains),
            Some(_) => {}
        }
        for (family, rules) in &self.families {
            let (rule, route) = match *family {
                "-4" => (Missing::RuleV4, Missing::RouteV4),
                _ => (Missing::RuleV6, Missing::RouteV6),
            };
            let now = rules_at(&self.names, family)?;
            if !rules.iter().all(|rule| now.contains(rule)) {
                missing.push(rule);
            }
            if routes(&self.names, family)?.is_empty() {
                missing.push(route);
            }
        }
        Ok(missing)
    }

    /// Restores parts that were removed or changed, and returns them. `rules` are the installed
    /// rules, or their latest replacement. Connections continue if possible.
    ///
    /// # Errors
    /// Those of [`Rules::install`]. Existing parts stay then.
    pub fn repair(&mut self, rules: &Rules) -> Result<Vec<Missing>, Error> {
        let missing = self.check()?;
        if missing.is_empty() {
            return Ok(missing);
        }
        let routing = script::routing(rules)?;
        // Before the table, as in the installation: a mark needs a route.
        for (family, there) in &mut self.families {
            check_numbers(&self.names, family)?;
            route(&self.names, &routing, family)?;
            *there = rules_at(&self.names, family)?;
        }
        if missing.iter().any(|part| matches!(part, Missing::Table | Missing::Chains)) {
            self.replace(rules)?;
        }
        Ok(missing)
    }

    /// Removes the rules and returns the result. A failed removal is retried.
    pub fn remove(mut self) -> Result<(), Error> {
        self.removed = true;
        remove_with_retries(&self.names).map(drop)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if !self.removed {
            let _ = remove_with_retries(&self.names);
        }
    }
}

/// Whether a dead process has left rules of these names; false if unknown.
pub fn has_leftover(names: &Names) -> bool {
    matches!(command::nft_table(&names.nft), Ok(Some(table)) if check_holder(Some(&table)).is_ok())
}

/// Removes rules that this process, or a killed one, left; returns whether there were any.
///
/// # Errors
/// [`Error::InUse`] if another living process holds the rules.
pub fn remove(names: &Names) -> Result<bool, Error> {
    check_holder(command::nft_table(&names.nft)?.as_deref())?;
    remove_with_retries(names)
}

/// Tries three times: a service manager that ends a whole service may also end the programs that
/// are started for the removal, each of them once.
fn remove_with_retries(names: &Names) -> Result<bool, Error> {
    remove_once(names).or_else(|_| remove_once(names)).or_else(|_| remove_once(names))
}

fn remove_once(names: &Names) -> Result<bool, Error> {
    let mut found = false;
    // The table first: a mark without a route would misroute packets.
    if command::nft_table(&names.nft)?.is_some() {
        found = true;
        command::nft(&format!("delete table inet {}\n", names.nft))?;
    }
    let (priority, number) = (names.priority.to_string(), names.route_table.to_string());
    for family in families() {
        for rule in rules_at(names, family)? {
            if is_own_rule(names, &rule) {
                found = true;
                command::ip(&[family, "rule", "del", "pref", &priority, "lookup", &number])?;
            }
        }
        for route in routes(names, family)? {
            if is_own_route(&route) {
                found = true;
                let which = ["route", "del", "local", "default", "dev", "lo", "table", &number];
                command::ip(&[&[family], &which[..]].concat())?;
            }
        }
    }
    Ok(found)
}

/// Sets the route and the rules that lead to it, and replaces those of an earlier run, which may
/// have other marks.
fn route(names: &Names, rules: &[Vec<String>], family: &str) -> Result<(), Error> {
    let (priority, number) = (names.priority.to_string(), names.route_table.to_string());
    let which = ["route", "replace", "local", "default", "dev", "lo", "table", &number];
    command::ip(&[&[family], &which[..]].concat())?;
    let wanted: Vec<String> = rules
        .iter()
        .map(|rule| format!("{priority}:\tfrom all {} lookup {number}", rule.join(" ")))
        .collect();
    let there = rules_at(names, family)?;
    // Existing connections need the rules at every moment.
    if there == wanted {
        return Ok(());
    }
    for _ in there.iter().filter(|rule| is_own_rule(names, rule)) {
        command::ip(&[family, "rule", "del", "pref", &priority, "lookup", &number])?;
    }
    for rule in rules {
        let mut words = vec![family, "rule", "add", "pref", &priority, "lookup", &number];
        words.extend(rule.iter().map(String::as_str));
        command::ip(&words)?;
    }
    Ok(())
}

/// Returns an error if another living process holds the table with this text.
fn check_holder(table: Option<&str>) -> Result<(), Error> {
    match holder::other(table) {
        Some(pid) => Err(Error::InUse { pid }),
        None => Ok(()),
    }
}

/// Returns an error if another program uses the routing rule's priority or the table.
fn check_numbers(names: &Names, family: &str) -> Result<(), Error> {
    let rules = rules_at(names, family)?;
    if let Some(other) = rules.into_iter().find(|rule| !is_own_rule(names, rule)) {
        let what = format!("the priority {} of routing rules", names.priority);
        return Err(Error::NumberInUse { number: what, by: other });
    }
    let routes = routes(names, family)?;
    if let Some(other) = routes.into_iter().find(|route| !is_own_route(route)) {
        let what = format!("the routing table {}", names.route_table);
        return Err(Error::NumberInUse { number: what, by: other });
    }
    Ok(())
}

fn rules_at(names: &Names, family: &str) -> Result<Vec<String>, Error> {
    let text = command::ip(&["-N", family, "rule", "show", "pref", &names.priority.to_string()])?;
    // Marker of a rule whose interface does not exist at the moment.
    Ok(lines(&text.replace(" [detached]", "")))
}

fn is_own_rule(names: &Names, rule: &str) -> bool {
    let number = names.route_table.to_string();
    rule.contains(" fwmark ")
        && rule.split_once(" lookup ").is_some_and(|(_, after)| after.trim() == number)
}

fn routes(names: &Names, family: &str) -> Result<Vec<String>, Error> {
    let number = names.route_table.to_string();
    match command::ip(&["-N", family, "route", "show", "table", &number]) {
        Ok(text) => Ok(lines(&text)),
        // Error message for a table without any route.
        Err(Error::Refused { stderr, .. }) if stderr.contains("does not exist") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_own_route(route: &str) -> bool {
    // Without names for numbers, the type "local" is 2.
    route.starts_with("local default dev lo ") || route.starts_with("2 default dev lo ")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Returns the chains of a printed table. Its sets are omitted, because they change over time.
fn chains(table: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in table.lines() {
        inside |= line.starts_with("\tchain ");
        if inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= line != "\t}";
    }
    kept
}
