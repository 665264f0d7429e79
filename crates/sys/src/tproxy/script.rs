//! Generates the rules as text for `nft -f`.

use std::fmt::{self, Display, Write as _};

use super::{Error, FailMode, Names, Rules, Selection, Target, Targets, holder, probe};
use manyways_unit::Prefix;

/// Never redirected, whatever the settings: traffic that does not leave the link or the host.
pub(super) const NEVER_REDIRECTED: [(&str, &str); 7] = [
    ("0.0.0.0/8", "this host itself"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("224.0.0.0/3", "multicast, broadcast or reserved"),
    ("::/127", "loopback"),
    ("fe80::/10", "link-local"),
    ("ff00::/8", "multicast"),
];

/// Directly before the mangle hooks, so that other programs can still change the marks.
const CHAIN_PRIORITY: &str = "priority mangle - 5; policy accept;";

/// TCP packets other than the first of a connection. Their connection was decided before; most
/// packets that end one no longer belong to a process that could be matched.
pub(crate) const LATER_SEGMENTS: &str = "tcp flags & (syn | ack) != syn";

/// Generates the whole table. `holder` is the process that keeps it alive: its id and its start
/// time.
pub(super) fn table(rules: &Rules, holder: (i32, u64), create: bool) -> Result<String, Error> {
    let names = &rules.names;
    check_names(names)?;
    let name = &names.nft;
    let mut text = if create {
        // An error if it exists, which prevents two processes from installing at once.
        format!("create table inet {name}\n")
    } else {
        format!("table inet {name}\ndelete table inet {name}\n")
    };
    let millis = rules.lifetime.as_nanos().div_ceil(1_000_000).max(1);
    let _ = writeln!(
        text,
        "table inet {name} {{
set alive {{
typeof meta nfproto . meta l4proto
flags dynamic,timeout
timeout {millis}ms
}}
set direct4 {{
type ipv4_addr
flags interval
}}
set direct6 {{
type ipv6_addr
flags interval
}}"
    );
    chain(&mut text, &holder::chain_name(holder), &[]);
    let mark = names.mark;
    let spared = [
        "meta l4proto != { tcp, udp } accept".to_owned(),
        "ct state { invalid, untracked } accept".to_owned(),
        "ct direction reply accept".to_owned(),
        // Not `unreachable`: the proxy may have a route.
        "fib daddr type { local, broadcast, anycast, multicast, blackhole, prohibit } accept"
            .to_owned(),
        "ip daddr @direct4 accept".to_owned(),
        "ip6 daddr @direct6 accept".to_owned(),
        "udp dport { 67, 68, 546, 547 } accept".to_owned(),
        // Connections from before the installation continue unchanged.
        format!("{LATER_SEGMENTS} ct mark & {mark:#x} == 0 accept"),
        format!("meta l4proto udp ct state != new ct mark & {mark:#x} == 0 accept"),
    ];
    chain(&mut text, "spare", &spared);
    let refuse = [
        "meta l4proto tcp reject with tcp reset".to_owned(),
        "reject with icmpx admin-prohibited".to_owned(),
    ];
    chain(&mut text, "refuse", &refuse);
    local(&mut text, rules)?;
    forwarded(&mut text, rules)?;
    text.push_str("}\n");
    text.push_str(&mark_alive(names, &rules.targets));
    text.push_str(&direct_sets(names, &rules.direct));
    Ok(text)
}

/// Outgoing traffic of this host: marked in `output`, passed to the proxy in `loopback`, where it
/// enters.
fn local(text: &mut String, rules: &Rules) -> Result<(), Error> {
    let selected = selected(rules)?;
    if selected.is_empty() {
        return Ok(());
    }
    let Names { mark, own_mark, .. } = rules.names;
    let divert = [
        format!("ct mark set ct mark | {mark:#x}"),
        format!("meta mark set meta mark | {mark:#x}"),
    ];
    chain(text, "divert", &divert);

    let mut choose_alive = verdict_rules(&rules.targets, Target::Reject, "goto refuse");
    choose_alive.push("goto divert".to_owned());
    chain(text, "choose_alive", &choose_alive);

    let mut choose = verdict_rules(&rules.targets, Target::Direct, "accept");
    choose.extend(alive_rules("choose_alive", rules.fail_mode));
    chain(text, "choose", &choose);

    let mut output = vec![
        format!("type route hook output {CHAIN_PRIORITY}"),
        format!("meta mark & {own_mark:#x} == {own_mark:#x} accept"),
    ];
    if !rules.own_users.is_empty() {
        output.push(format!("meta skuid {{ {} }} accept", CommaSeparated(&rules.own_users)));
    }
    output.push("jump spare".to_owned());
    output.push(format!("{LATER_SEGMENTS} goto divert"));
    output.extend(selected.into_iter().map(|condition| format!("{condition}goto choose")));
    chain(text, "output", &output);

    let mut to_proxy = tproxy_rules(&rules.targets, "accept");
    to_proxy.push(format!("{LATER_SEGMENTS} reject with tcp reset"));
    // No socket accepted a new connection, so the proxy is dead. The kernel retransmits the first
    // packet of a connection, which is then decided by the set that this rule empties. (A datagram
    // is lost: an ICMP answer with the destination's address cannot be sent from this hook.)
    to_proxy.push(format!("ct mark set ct mark & {:#x}", !mark));
    to_proxy.push("delete @alive { meta nfproto . meta l4proto }".to_owned());
    if rules.fail_mode == FailMode::Blocked {
        to_proxy.push("meta l4proto tcp reject with tcp reset".to_owned());
    }
    to_proxy.push("drop".to_owned());
    chain(text, "to_proxy", &to_proxy);

    let loopback = [
        format!("type filter hook prerouting {CHAIN_PRIORITY}"),
        format!("iifname \"lo\" meta mark & {mark:#x} == {mark:#x} goto to_proxy"),
    ];
    chain(text, "loopback", &loopback);
    Ok(())
}

/// Traffic that enters on other interfaces, passed to the proxy at once. Without a socket that
/// accepts it, it has no mark and is forwarded.
fn forwarded(text: &mut String, rules: &Rules) -> Result<(), Error> {
    let interfaces = interfaces(rules)?;
    if interfaces.is_empty() {
        return Ok(());
    }
    let Names { mark, own_mark, .. } = rules.names;
    let names: Vec<String> = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    let marks =
        format!("ct mark set ct mark | {mark:#x} meta mark set meta mark | {own_mark:#x} accept");
    let mut take = tproxy_rules(&rules.targets, &marks);
    take.push(format!("{LATER_SEGMENTS} reject with tcp reset"));
    take.push(fail_mode_verdict(rules.fail_mode));
    chain(text, "take", &take);

    let mut take_alive = verdict_rules(&rules.targets, Target::Reject, "goto refuse");
    take_alive.push("goto take".to_owned());
    chain(text, "take_alive", &take_alive);

    let mut entry = vec![
        format!("type filter hook prerouting {CHAIN_PRIORITY}"),
        format!("iifname != {{ {} }} accept", CommaSeparated(&names)),
        "jump spare".to_owned(),
        format!("{LATER_SEGMENTS} goto take"),
    ];
    entry.extend(verdict_rules(&rules.targets, Target::Direct, "accept"));
    entry.extend(alive_rules("take_alive", rules.fail_mode));
    chain(text, "forwarded", &entry);
    Ok(())
}

/// Returns the selectors of the routing rules, as arguments of `ip rule`. With `src_valid_mark`,
/// which VPNs set, the kernel looks up the route back to a packet's source with the packet's mark.
/// The mark of local traffic would make all incoming packets look as if they came from this host.
pub(super) fn routing(rules: &Rules) -> Result<Vec<Vec<String>>, Error> {
    let words = |mark: u32| ["fwmark".to_owned(), format!("{mark:#x}/{mark:#x}")];
    let mut all = Vec::new();
    if !selected(rules)?.is_empty() {
        all.push(words(rules.names.mark).to_vec());
    }
    for name in interfaces(rules)? {
        all.push([&words(rules.names.own_mark)[..], &["iif".to_owned(), name]].concat());
    }
    Ok(all)
}

/// Fills the set that indicates a living proxy, with a new expiry.
pub(super) fn mark_alive(names: &Names, to: &Targets) -> String {
    let living: Vec<String> = traffic_kinds(to)
        .into_iter()
        .filter(|(_, _, target)| *target != Target::Direct)
        .map(|(family, protocol, _)| format!("{family} . {protocol}"))
        .collect();
    // Emptied first: adding an existing element does not renew its expiry on all kernels.
    fill_set(&names.nft, "alive", &living)
}

/// Empties the set that indicates a living proxy, as if it were dead.
pub(super) fn mark_dead(names: &Names) -> String {
    fill_set(&names.nft, "alive", &Vec::<String>::new())
}

/// Fills the sets of destinations that are reached directly.
pub(super) fn direct_sets(names: &Names, prefixes: &[Prefix]) -> String {
    let never = super::never_redirected().map(|(prefix, _)| prefix);
    // Sets of intervals must not contain overlaps.
    let all = Prefix::merge(prefixes.iter().copied().chain(never).collect());
    let (v4, v6): (Vec<Prefix>, Vec<Prefix>) =
        all.into_iter().partition(|prefix| prefix.address().is_ipv4());
    fill_set(&names.nft, "direct4", &v4) + &fill_set(&names.nft, "direct6", &v6)
}

pub(crate) fn fill_set<T: Display>(table: &str, set: &str, elements: &[T]) -> String {
    let mut text = format!("flush set inet {table} {set}\n");
    if !elements.is_empty() {
        let _ = writeln!(text, "add element inet {table} {set} {{ {} }}", CommaSeparated(elements));
    }
    text
}

pub(crate) fn chain(text: &mut String, name: &str, rules: &[String]) {
    let _ = writeln!(text, "chain {name} {{");
    for rule in rules {
        let _ = writeln!(text, "{rule}");
    }
    text.push_str("}\n");
}

/// Returns families and protocols, as nftables names them, with their target.
fn traffic_kinds(to: &Targets) -> [(&'static str, &'static str, Target); 4] {
    [
        ("ipv4", "tcp", to.tcp_v4),
        ("ipv6", "tcp", to.tcp_v6),
        ("ipv4", "udp", to.udp_v4),
        ("ipv6", "udp", to.udp_v6),
    ]
}

/// Returns a rule with the verdict for each kind of traffic with this target.
fn verdict_rules(to: &Targets, target: Target, verdict: &str) -> Vec<String> {
    let of_target = traffic_kinds(to).into_iter().filter(|(_, _, own)| *own == target);
    of_target
        .map(|(family, protocol, _)| {
            format!("meta nfproto {family} meta l4proto {protocol} {verdict}")
        })
        .collect()
}

fn tproxy_rules(to: &Targets, then: &str) -> Vec<String> {
    let rule = |(family, protocol, target)| {
        let Target::Proxy(port) = target else { return None };
        let at = if family == "ipv4" { "ip to 127.0.0.1" } else { "ip6 to [::1]" };
        Some(format!("meta l4proto {protocol} tproxy {at}:{port} {then}"))
    };
    traffic_kinds(to).into_iter().filter_map(rule).collect()
}

fn alive_rules(chain: &str, when_dead: FailMode) -> [String; 2] {
    [format!("meta nfproto . meta l4proto @alive goto {chain}"), fail_mode_verdict(when_dead)]
}

fn fail_mode_verdict(when_dead: FailMode) -> String {
    match when_dead {
        FailMode::Direct => "accept".to_owned(),
        FailMode::Blocked => "goto refuse".to_owned(),
    }
}

/// Returns the interfaces whose traffic is selected, once each.
fn interfaces(rules: &Rules) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for selection in &rules.selections {
        if let Selection::From(names) = selection {
            for name in names {
                quoted(name, "an interface's name")?;
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
        }
    }
    Ok(all)
}

/// Returns the conditions of the rules that select outgoing traffic of this host.
fn selected(rules: &Rules) -> Result<Vec<String>, Error> {
    let all = rules.selections.iter().map(conditions).collect::<Result<Vec<_>, _>>()?;
    Ok(all.concat())
}

fn conditions(selection: &Selection) -> Result<Vec<String>, Error> {
    Ok(match selection {
        Selection::All => vec![String::new()],
        Selection::Users(users) if users.is_empty() => Vec::new(),
        Selection::Users(users) => vec![format!("meta skuid {{ {} }} ", CommaSeparated(users))],
        Selection::Cgroup(path) => vec![format!("{} ", in_cgroup(path)?)],
        Selection::Marked(mark) => vec![format!("meta mark & {mark:#x} == {mark:#x} ")],
        Selection::To(prefixes) => {
            let merged = Prefix::merge(prefixes.clone());
            let (v4, v6): (Vec<Prefix>, Vec<Prefix>) =
                merged.into_iter().partition(|prefix| prefix.address().is_ipv4());
            [("ip", v4), ("ip6", v6)]
                .into_iter()
                .filter(|(_, prefixes)| !prefixes.is_empty())
                .map(|(family, prefixes)| {
                    format!("{family} daddr {{ {} }} ", CommaSeparated(&prefixes))
                })
                .collect()
        }
        Selection::From(_) => Vec::new(),
    })
}

/// Returns the condition for processes in a cgroup, or in one below it.
pub(crate) fn in_cgroup(path: &str) -> Result<String, Error> {
    let found = probe::cgroup(path)
        .map_err(|error| Error::Cgroup { path: path.to_owned(), reason: error })?;
    let path = quoted(&found.path, "a cgroup")?;
    Ok(format!("socket cgroupv2 level {} {path}", found.level))
}

/// nftables has quoted strings, but no escape for a quote within them.
pub(crate) fn quoted(text: &str, what: &str) -> Result<String, Error> {
    if text.is_empty() || text.contains(|c: char| c == '"' || c == '*' || c.is_control()) {
        return Err(Error::InvalidValue(format!("{text:?} cannot be {what}")));
    }
    Ok(format!("\"{text}\""))
}

pub(crate) fn check_table_name(name: &str) -> Result<(), Error> {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(fit) {
        let message = format!("{name:?} cannot be a table: use letters, digits, - and _");
        return Err(Error::InvalidValue(message));
    }
    Ok(())
}

fn check_names(names: &Names) -> Result<(), Error> {
    check_table_name(&names.nft)?;
    if names.mark == 0 || names.own_mark == 0 || names.mark & names.own_mark != 0 {
        let message = "the two marks must be non-zero and share no bits".to_owned();
        return Err(Error::InvalidValue(message));
    }
    Ok(())
}

pub(crate) struct CommaSeparated<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for CommaSeparated<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, element) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{element}")?;
        }
        Ok(())
    }
}
