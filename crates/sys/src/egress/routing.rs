//! Routing tables and rules: a mark selects the table of its network.

use std::fmt::Write as _;

use super::{EgressNetwork, Error, Names, NextHop};
use crate::tproxy::command::{self, families};

/// Preference of the rule that looks up `main`, unless it was changed.
const MAIN_PREFERENCE: u32 = 32766;
/// Number of routing tables to choose from.
const TABLES: u32 = 64;

/// A routing rule as `ip -N rule` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    preference: u32,
    selectors: String,
}

/// Chooses the routing table of each network, and keeps those of existing rules: running flows need
/// them.
pub(super) fn choose_tables(names: &Names, networks: &[EgressNetwork]) -> Result<Vec<u32>, Error> {
    let mut all = Vec::new();
    for family in families() {
        all.extend(rules(family)?);
    }
    let (own, others): (Vec<Rule>, Vec<Rule>) =
        all.into_iter().partition(|rule| rule.is_own(names));
    let mut tables: Vec<Option<u32>> = networks
        .iter()
        .map(|network| {
            let fwmark = format!("fwmark {:#x}/{:#x}", network.mark, names.mask);
            let of_mark = own.iter().filter(|rule| rule.selectors.contains(&fwmark));
            of_mark.filter_map(Rule::table).next()
        })
        .collect();
    let mut candidates = table_range(names);
    for index in 0..tables.len() {
        if tables[index].is_some() {
            continue;
        }
        for candidate in candidates.by_ref() {
            let named = others.iter().any(|rule| rule.table() == Some(candidate));
            if !named && !tables.contains(&Some(candidate)) && is_unused(names, candidate)? {
                tables[index] = Some(candidate);
                break;
            }
        }
    }
    let chosen: Option<Vec<u32>> = tables.into_iter().collect();
    chosen.ok_or_else(|| Error::NoFreeNumber {
        what: format!("the routing tables {} to {}", names.route_table, last_table(names)),
    })
}

/// Whether a table has no routes of other programs.
fn is_unused(names: &Names, table: u32) -> Result<bool, Error> {
    let own = format!(" proto {} ", names.protocol);
    for family in families() {
        let found = show(&["-N", family, "route", "show", "table", &table.to_string()])?;
        if found.lines().any(|line| !line.trim().is_empty() && !format!("{line} ").contains(&own)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds missing rules and routes, and removes own ones that are not wanted. Returns the interfaces
/// without a route that they should have, for example because they are down.
pub(super) fn apply(
    names: &Names,
    networks: &[EgressNetwork],
    tables: &[u32],
) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for family in families() {
        let wanted: Vec<(&EgressNetwork, NextHop, u32)> = networks
            .iter()
            .zip(tables)
            .filter_map(|(network, table)| {
                let hop = if family == "-4" { network.v4 } else { network.v6 };
                Some((network, hop?, *table))
            })
            .collect();
        apply_routes(names, family, &wanted, &mut missing)?;
        apply_rules(names, family, &wanted)?;
    }
    missing.sort();
    missing.dedup();
    Ok(missing)
}

fn apply_rules(
    names: &Names,
    family: &str,
    networks: &[(&EgressNetwork, NextHop, u32)],
) -> Result<(), Error> {
    let (own, others): (Vec<Rule>, Vec<Rule>) =
        rules(family)?.into_iter().partition(|rule| rule.is_own(names));
    let mut wanted = Vec::new();
    if !networks.is_empty() {
        let preference = preference(&own, &others)?;
        for (network, _, table) in networks {
            let selectors = format!(
                "from all fwmark {:#x}/{:#x} lookup {table} proto {}",
                network.mark, names.mask, names.protocol,
            );
            wanted.push(Rule { preference, selectors });
        }
    }
    let mut lines = String::new();
    // Added first: running flows need a rule at every moment.
    for (verb, these, those) in [("add", &wanted, &own), ("del", &own, &wanted)] {
        for Rule { preference, selectors } in these.iter().filter(|rule| !those.contains(rule)) {
            let _ = writeln!(lines, "rule {verb} pref {preference} {selectors}");
        }
    }
    if !lines.is_empty() {
        command::ip_batch(family, &lines)?;
    }
    Ok(())
}

/// Chooses the preference of the rules: the largest free one that precedes the lookup of `main`, and
/// rules that select by nothing but the source address, because the kernel has chosen this address
/// before the network. So all other rules of users come first, as far as there is a free number
/// after them.
fn preference(own: &[Rule], others: &[Rule]) -> Result<u32, Error> {
    let first = others
        .iter()
        .filter(|rule| rule.preference > 0 && (rule.is_main() || rule.is_by_source_only()));
    let end = first.map(|rule| rule.preference).min().unwrap_or(MAIN_PREFERENCE);
    let is_used = |number: u32| others.iter().any(|rule| rule.preference == number);
    let mut existing = own.iter().map(|rule| rule.preference);
    let kept = existing.find(|number| *number < end && !is_used(*number));
    kept.or_else(|| (1..end).rev().find(|number| !is_used(*number)))
        .ok_or_else(|| Error::NoFreeNumber { what: format!("the routing rules below {end}") })
}

fn apply_routes(
    names: &Names,
    family: &str,
    networks: &[(&EgressNetwork, NextHop, u32)],
    missing: &mut Vec<String>,
) -> Result<(), Error> {
    let wanted: Vec<(String, String)> = networks
        .iter()
        .map(|(network, hop, table)| {
            let via = match hop {
                NextHop::Gateway(ip) => format!("via {ip} "),
                NextHop::PointToPoint => String::new(),
            };
            let route = format!("default {via}dev {} table {table}", network.interface);
            (route, network.interface.clone())
        })
        .collect();
    let before = routes(names, family)?;
    for surplus in before.iter().filter(|there| !wanted.iter().any(|(route, _)| route == *there)) {
        // It may have disappeared with its interface since.
        let _ =
            command::ip_batch(family, &format!("route del {surplus} proto {}\n", names.protocol));
    }
    for (route, interface) in wanted.iter().filter(|(route, _)| !before.contains(route)) {
        // The kernel accepts no route over an interface that is down, or to a gateway outside of
        // its networks.
        let line = format!("route replace {route} proto {}\n", names.protocol);
        match command::ip_batch(family, &line) {
            Ok(()) => {}
            Err(crate::tproxy::Error::Refused { .. }) => missing.push(interface.clone()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns own routes, in the notation of `ip route add` and without other attributes.
fn routes(names: &Names, family: &str) -> Result<Vec<String>, Error> {
    let protocol = names.protocol.to_string();
    let text = show(&["-N", family, "route", "show", "table", "all", "proto", &protocol])?;
    Ok(text.lines().filter_map(|line| own_route(names, line)).collect())
}

/// `None` for a route in the table of another program that uses the same protocol number.
fn own_route(names: &Names, line: &str) -> Option<String> {
    let table = value_of(line, "table")?.parse().ok()?;
    if !table_range(names).contains(&table) {
        return None;
    }
    let via = value_of(line, "via").map(|ip| format!("via {ip} ")).unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    Some(format!("{} {via}dev {} table {table}", words.first()?, value_of(line, "dev")?))
}

/// Removes all own rules and routes; returns whether there were any.
pub(super) fn remove(names: &Names) -> Result<bool, Error> {
    let mut found = has_own_rules(names);
    for family in families() {
        apply_rules(names, family, &[])?;
        let own = routes(names, family)?;
        found |= !own.is_empty();
        apply_routes(names, family, &[], &mut Vec::new())?;
    }
    Ok(found)
}

/// Whether there are own rules; false if unknown.
pub(super) fn has_own_rules(names: &Names) -> bool {
    let has = |family| rules(family).is_ok_and(|all| all.iter().any(|rule| rule.is_own(names)));
    families().into_iter().any(has)
}

fn rules(family: &str) -> Result<Vec<Rule>, Error> {
    let text = show(&["-N", family, "rule", "show"])?;
    Ok(text.lines().filter_map(Rule::parse).collect())
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let (preference, selectors) = line.split_once(':')?;
        let selectors = selectors.replace(" [detached]", "").trim().to_owned();
        Some(Self { preference: preference.trim().parse().ok()?, selectors })
    }

    fn table(&self) -> Option<u32> {
        value_of(&self.selectors, "lookup")?.parse().ok()
    }

    fn is_own(&self, names: &Names) -> bool {
        let by_mark = value_of(&self.selectors, "fwmark")
            .and_then(|mark| mark.split_once('/'))
            .is_some_and(|(_, mask)| mask == format!("{:#x}", names.mask));
        by_mark
            && value_of(&self.selectors, "proto") == Some(&names.protocol.to_string())
            && self.table().is_some_and(|table| table_range(names).contains(&table))
    }

    fn is_main(&self) -> bool {
        self.words().eq(["from", "all", "lookup", "254"])
    }

    fn is_by_source_only(&self) -> bool {
        let mut words = self.words();
        words.next() == Some("from")
            && words.next().is_some_and(|source| source != "all")
            && words.next() == Some("lookup")
    }

    /// The words that decide, without the name of the program that added the rule.
    fn words(&self) -> impl Iterator<Item = &str> {
        let end = self.selectors.find(" proto ").unwrap_or(self.selectors.len());
        self.selectors[..end].split_ascii_whitespace()
    }
}

fn last_table(names: &Names) -> u32 {
    names.route_table.saturating_add(TABLES - 1)
}

fn table_range(names: &Names) -> std::ops::RangeInclusive<u32> {
    names.route_table..=last_table(names)
}

/// Returns the word after a keyword.
fn value_of<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == keyword)?;
    words.next()
}

fn show(arguments: &[&str]) -> Result<String, Error> {
    match command::ip(arguments) {
        Ok(text) => Ok(text),
        // Error message for a table without any route.
        Err(crate::tproxy::Error::Refused { stderr, .. }) if stderr.contains("does not exist") => {
            Ok(String::new())
        }
        Err(error) => Err(error.into()),
    }
}
