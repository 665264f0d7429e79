//! Putting the rules in, looking whether they are still there, and taking them out.

use std::fmt;
use std::fs;

use super::script::{self, HOLDER};
use super::{Error, Names, Rules, Targets, command, probe};
use manyways_unit::Prefix;

/// The families as `ip` wants them.
const FAMILIES: [&str; 2] = ["-4", "-6"];

/// Rules that are in place; dropping this takes them out, and [`Installed::remove`] says how that
/// went.
#[derive(Debug)]
pub struct Installed {
    names: Names,
    to: Targets,
    /// The chains as `nft` printed them right after they were made.
    chains: String,
    /// The families that the kernel has, each with the routing rules as `ip` printed them.
    families: Vec<(&'static str, Vec<String>)>,
    removed: bool,
}

/// A part of the rules that is not as we made it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The nftables table: somebody has flushed the ruleset.
    Table,
    /// The chains of the table were changed, or a cgroup that they name has gone.
    Chains,
    /// A routing rule of IPv4.
    RuleV4,
    /// A routing rule of IPv6.
    RuleV6,
    /// The route of IPv4.
    RouteV4,
    /// The route of IPv6.
    RouteV6,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "the nftables table is gone",
            Self::Chains => "the chains of the nftables table were changed",
            Self::RuleV4 => "a routing rule of IPv4 is gone",
            Self::RuleV6 => "a routing rule of IPv6 is gone",
            Self::RouteV4 => "the route of IPv4 is gone",
            Self::RouteV6 => "the route of IPv6 is gone",
        })
    }
}

impl Rules {
    /// Puts the rules in, in place of those of the same names that this process or one that is dead
    /// has put in. They hold from now on for [`Rules::patience`]. (Whether a process lives is judged
    /// by what `/proc` shows: two in different PID namespaces take each other for dead.)
    ///
    /// Connections that are there go on as they began; flows of datagrams do too, where the kernel
    /// tracked them before.
    ///
    /// # Errors
    /// [`Error::InUse`] where another living process holds them; [`Error::Taken`] where another
    /// program uses the routing table or the rule's priority; what the kernel or the host lacks.
    /// Nothing is left behind then.
    pub fn install(&self) -> Result<Installed, Error> {
        // First, because it finds senseless rules before anything is changed.
        let before = command::nft_table(&self.names.nft)?;
        let script = script::table(self, own(), before.is_none())?;
        let routing = script::routing(self)?;
        free(before.as_deref())?;
        let families = families();
        for family in &families {
            free_numbers(&self.names, family)?;
        }
        // Ours from here on, and taken out again where a step fails.
        let mut installed = Installed {
            names: self.names.clone(),
            to: self.to,
            chains: String::new(),
            families: families.into_iter().map(|family| (family, Vec::new())).collect(),
            removed: false,
        };
        // Without a mark on any packet these do nothing yet.
        for (family, rules) in &mut installed.families {
            route(&self.names, &routing, family)?;
            *rules = rules_at(&self.names, family)?;
        }
        if let Err(error) = command::nft(&script) {
            let raced = command::nft_table(&self.names.nft).ok().flatten();
            if let Err(in_use) = free(raced.as_deref()) {
                // The other one needs the routes that are there now.
                installed.removed = true;
                return Err(in_use);
            }
            return Err(match error {
                Error::Refused { .. } => probe::lacking().unwrap_or(error),
                other => other,
            });
        }
        let table = command::nft_table(&self.names.nft)?.unwrap_or_default();
        installed.chains = chains(&table);
        Ok(installed)
    }
}

impl Installed {
    /// Says that the proxy lives: the rules hold for [`Rules::patience`] from now on. Call it a few
    /// times in that time, from the very loop that serves the proxy's sockets.
    ///
    /// # Errors
    /// Where the table is gone, among others: [`Installed::mend`].
    pub fn refresh(&self) -> Result<(), Error> {
        command::nft(&script::alive(&self.names, &self.to))
    }

    /// Lets new traffic pass by as if the proxy were dead, until the next [`Installed::refresh`];
    /// connections that it has go on.
    pub fn pause(&self) -> Result<(), Error> {
        command::nft(&script::not_alive(&self.names))
    }

    /// Says anew which destinations are reached directly, as when the host has moved to another
    /// network.
    pub fn set_direct(&self, direct: &[Prefix]) -> Result<(), Error> {
        command::nft(&script::direct(&self.names, direct))
    }

    /// Puts other rules in place of these, which differ in no name and select the same traffic. At
    /// no time are there none, and connections go on as they began.
    ///
    /// # Errors
    /// Where the table is no longer this process's, among others; it stays as it was then.
    pub fn replace(&mut self, rules: &Rules) -> Result<(), Error> {
        let before = command::nft_table(&self.names.nft)?;
        free(before.as_deref())?;
        command::nft(&script::table(rules, own(), before.is_none())?)?;
        self.to = rules.to;
        self.chains = chains(&command::nft_table(&self.names.nft)?.unwrap_or_default());
        Ok(())
    }

    /// What is no longer as it was installed; empty when all is whole. [`Installed::mend`] mends it.
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

    /// Puts back what somebody has taken away or changed; says what it was. `rules` are those that
    /// were installed, or put in their place since. Connections go on where they still can.
    ///
    /// # Errors
    /// Those of [`Rules::install`]. What is there stays then.
    pub fn mend(&mut self, rules: &Rules) -> Result<Vec<Missing>, Error> {
        let missing = self.check()?;
        if missing.is_empty() {
            return Ok(missing);
        }
        let routing = script::routing(rules)?;
        // Before the table, as when they were installed: a mark needs a route.
        for (family, there) in &mut self.families {
            free_numbers(&self.names, family)?;
            route(&self.names, &routing, family)?;
            *there = rules_at(&self.names, family)?;
        }
        if missing.iter().any(|part| matches!(part, Missing::Table | Missing::Chains)) {
            self.replace(rules)?;
        }
        Ok(missing)
    }

    /// Takes the rules out, and says how that went. One that fails is tried again.
    pub fn remove(mut self) -> Result<(), Error> {
        self.removed = true;
        surely_take_out(&self.names).map(drop)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if !self.removed {
            let _ = surely_take_out(&self.names);
        }
    }
}

/// Whether a process that is dead has left rules of these names. Where it cannot be known, it has not.
pub fn is_left(names: &Names) -> bool {
    matches!(command::nft_table(&names.nft), Ok(Some(table)) if free(Some(&table)).is_ok())
}

/// Takes out what this process, or one that was killed, left in place; says whether there was
/// anything.
///
/// # Errors
/// [`Error::InUse`] where another living process holds the rules.
pub fn remove(names: &Names) -> Result<bool, Error> {
    free(command::nft_table(&names.nft)?.as_deref())?;
    surely_take_out(names)
}

/// Again where it fails: who ends a whole service may end the programs that are started for this,
/// each of them once.
fn surely_take_out(names: &Names) -> Result<bool, Error> {
    take_out(names).or_else(|_| take_out(names)).or_else(|_| take_out(names))
}

fn take_out(names: &Names) -> Result<bool, Error> {
    let mut found = false;
    // The table first: a mark without a route would send packets astray.
    if command::nft_table(&names.nft)?.is_some() {
        found = true;
        command::nft(&format!("delete table inet {}\n", names.nft))?;
    }
    let (priority, number) = (names.priority.to_string(), names.route_table.to_string());
    for family in families() {
        for rule in rules_at(names, family)? {
            if is_ours(names, &rule) {
                found = true;
                command::ip(&[family, "rule", "del", "pref", &priority, "lookup", &number])?;
            }
        }
        for route in routes(names, family)? {
            if is_our_route(&route) {
                found = true;
                let which = ["route", "del", "local", "default", "dev", "lo", "table", &number];
                command::ip(&[&[family], &which[..]].concat())?;
            }
        }
    }
    Ok(found)
}

/// The route and the rules that lead to it, in place of those of an earlier run, perhaps with other
/// marks.
fn route(names: &Names, rules: &[Vec<String>], family: &str) -> Result<(), Error> {
    let (priority, number) = (names.priority.to_string(), names.route_table.to_string());
    let which = ["route", "replace", "local", "default", "dev", "lo", "table", &number];
    command::ip(&[&[family], &which[..]].concat())?;
    let wanted: Vec<String> = rules
        .iter()
        .map(|rule| format!("{priority}:\tfrom all {} lookup {number}", rule.join(" ")))
        .collect();
    let there = rules_at(names, family)?;
    // Connections that are under way need them at every moment.
    if there == wanted {
        return Ok(());
    }
    for _ in there.iter().filter(|rule| is_ours(names, rule)) {
        command::ip(&[family, "rule", "del", "pref", &priority, "lookup", &number])?;
    }
    for rule in rules {
        let mut words = vec![family, "rule", "add", "pref", &priority, "lookup", &number];
        words.extend(rule.iter().map(String::as_str));
        command::ip(&words)?;
    }
    Ok(())
}

/// This process, as the table names its holder.
fn own() -> (i32, u64) {
    let pid = std::process::id() as i32;
    (pid, started(pid).unwrap_or(0))
}

/// Whether nobody else who lives holds the table with this text.
fn free(table: Option<&str>) -> Result<(), Error> {
    let holder = table.and_then(|table| {
        let (_, after) = table.split_once(HOLDER)?;
        let (pid, start) = after.split_once(' ')?.0.split_once('_')?;
        Some((pid.parse::<i32>().ok()?, start.parse::<u64>().ok()?))
    });
    match holder {
        Some((pid, start))
            if pid != std::process::id() as i32 && started(pid).is_some_and(|at| at == start) =>
        {
            Err(Error::InUse { pid })
        }
        _ => Ok(()),
    }
}

/// Whether nobody else uses the routing rule's priority and the table.
fn free_numbers(names: &Names, family: &str) -> Result<(), Error> {
    let rules = rules_at(names, family)?;
    if let Some(other) = rules.into_iter().find(|rule| !is_ours(names, rule)) {
        let what = format!("the priority {} of routing rules", names.priority);
        return Err(Error::Taken { what, by: other });
    }
    let routes = routes(names, family)?;
    if let Some(other) = routes.into_iter().find(|route| !is_our_route(route)) {
        let what = format!("the routing table {}", names.route_table);
        return Err(Error::Taken { what, by: other });
    }
    Ok(())
}

fn rules_at(names: &Names, family: &str) -> Result<Vec<String>, Error> {
    let text = command::ip(&["-N", family, "rule", "show", "pref", &names.priority.to_string()])?;
    // What is said of a rule whose interface is not there at the moment.
    Ok(lines(&text.replace(" [detached]", "")))
}

fn is_ours(names: &Names, rule: &str) -> bool {
    let number = names.route_table.to_string();
    rule.contains(" fwmark ")
        && rule.split_once(" lookup ").is_some_and(|(_, after)| after.trim() == number)
}

fn routes(names: &Names, family: &str) -> Result<Vec<String>, Error> {
    let number = names.route_table.to_string();
    match command::ip(&["-N", family, "route", "show", "table", &number]) {
        Ok(text) => Ok(lines(&text)),
        // The word for a table that nobody has put a route into.
        Err(Error::Refused { said, .. }) if said.contains("does not exist") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_our_route(route: &str) -> bool {
    // Without names for numbers, "local" is the type 2.
    route.starts_with("local default dev lo ") || route.starts_with("2 default dev lo ")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The chains of a printed table. Its sets change without anybody's doing.
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

/// The families that this kernel has.
fn families() -> Vec<&'static str> {
    let has = |family: &&str| *family == "-4" || fs::exists("/proc/net/if_inet6").unwrap_or(false);
    FAMILIES.into_iter().filter(has).collect()
}

/// When a process was started, in ticks since the machine was: with it, a number that was given to
/// another process since is told from the first. None where there is no such process.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may hold anything, ends at the last bracket.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
