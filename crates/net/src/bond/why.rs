//! Explains the treatment of a destination, for `manyways bond why`.

use std::net::IpAddr;

use manyways_proto::bond::egress::EgressFilter;
use manyways_proto::bond::path::PathSnapshot;
use manyways_proto::bond::routing::FlowFacts;
use manyways_proto::mux::Destination;
use manyways_proto::policy::{Decision, Explanation, Protocol};
use manyways_sys::tproxy::FailMode;
use manyways_unit::{Size, Span};
use manyways_wire::HostName;
use serde::{Deserialize, Serialize};

use super::enforcer::PolicyEnforcer;
use super::flow_facts::new_facts;
use super::interception_scope::{self, InterceptionScope};

/// A destination, and known facts about the application. A fact that is `None` is unknown, and
/// matches no rule about that fact.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WhyQuery {
    /// Name of the server.
    #[serde(default)]
    pub domain: Option<String>,
    /// Address of the server.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Port of the server.
    pub port: u16,
    /// Whether the flow is datagrams instead of a connection.
    #[serde(default)]
    pub is_udp: bool,
    /// File name of the program.
    #[serde(default)]
    pub process: Option<String>,
    /// Name of the user.
    #[serde(default)]
    pub user: Option<String>,
    /// Number of the user.
    #[serde(default)]
    pub uid: Option<u32>,
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Bytes that have flowed.
    #[serde(default)]
    pub bytes: u64,
}

/// The treatment of a destination by a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WhyReport {
    /// `bond`, `direct` or `block`.
    pub decision: String,
    /// Rule that decides; `None` for the default.
    pub rule: Option<String>,
    /// Action of the rule, as text.
    pub action: String,
    /// Paths that the flow is allowed to use.
    pub paths: Vec<String>,
    /// State of these paths.
    #[serde(default)]
    pub path_details: Vec<WhyPath>,
    /// Whether none of these paths is up.
    pub waiting_for_path: bool,
    /// Name that was resolved to the address; `None` if the query has a name or no name is known.
    pub resolved_from: Option<String>,
    /// Results of the evaluated rules.
    pub steps: Vec<WhyStep>,
    /// Why the destination is not intercepted; `None` if it is, or may be. If there is a reason,
    /// the other fields are about applications that use the proxy.
    #[serde(default)]
    pub not_intercepted: Option<String>,
    /// Whether the client is a proxy that applications can use.
    #[serde(default)]
    pub has_proxy: bool,
    /// Unknown conditions under which the flow is intercepted; `None` if there are none.
    #[serde(default)]
    pub intercepted_if: Option<String>,
    /// Why the gateway refuses the destination by default.
    #[serde(default)]
    pub gateway_refuses: Option<String>,
    /// Treatment of all traffic while no network leads to the gateway; `None` while a network does.
    #[serde(default)]
    pub no_path_action: Option<String>,
}

manyways_record::document!(WhyReport, "manyways.bond-why/2");

/// The state of an allowed path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WhyPath {
    /// Name of the path.
    pub name: String,
    /// `wifi`, `cellular`, …
    pub kind: String,
    /// Predicted time until a byte that is sent now arrives at the gateway; `None` if unknown.
    pub delivery_seconds: Option<f64>,
    /// Bytes that wait at the lender; `None` if unknown, or without a lender.
    pub lender_backlog_bytes: Option<u64>,
}

impl From<PathSnapshot> for WhyPath {
    fn from(path: PathSnapshot) -> Self {
        Self {
            name: path.facts.name,
            kind: path.facts.kind,
            delivery_seconds: path.delivery.map(Span::as_secs_f64),
            lender_backlog_bytes: path.lender.and_then(|one| one.backlog).map(Size::as_bytes),
        }
    }
}

/// The result of one rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WhyStep {
    /// Name of the rule.
    pub rule: String,
    /// Line of the rule in the policy file.
    pub line: usize,
    pub matched: bool,
    /// Why the rule matches, or its first condition that does not.
    pub reason: String,
}

/// The ways by which traffic reaches a client.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoints<'a> {
    /// The interception scope; `None` while no kernel rules are installed.
    pub interception: Option<&'a InterceptionScope>,
    /// Whether kernel rules are or will be installed.
    pub intercepts: bool,
    /// Whether the client is a proxy that applications can use.
    pub has_proxy: bool,
}

impl EntryPoints<'_> {
    /// Returns why the flow does not reach the client; `None` if it does, or may.
    fn not_intercepted_reason(&self, query: &WhyQuery) -> Option<String> {
        let words = match self.interception {
            Some(scope) => return scope.not_intercepted_reason(query),
            None if self.intercepts => "interception starts when the gateway has answered",
            None if self.has_proxy => return None,
            None => "the client has neither interception nor a proxy: see --intercept and --socks",
        };
        Some(words.to_owned())
    }

    /// Returns the treatment of traffic while no network leads to the gateway, as text.
    fn no_path_action(&self) -> String {
        let intercepted = match self.interception.map(|scope| &scope.rules) {
            Some(rules) => {
                let (action, option) = match rules.fail_mode {
                    FailMode::Direct => ("goes directly", "open"),
                    FailMode::Blocked => ("is refused", "closed"),
                };
                let timeout = rules.lifetime;
                Some(format!(
                    "intercepted traffic {action} {timeout} after the last path is lost (--fail-mode \
                     {option})"
                ))
            }
            None => self.intercepts.then(|| "interception has not started".to_owned()),
        };
        let proxied = self.has_proxy.then(|| "connections to the proxy wait".to_owned());
        let actions: Vec<String> = intercepted.into_iter().chain(proxied).collect();
        match actions.is_empty() {
            true => "no network leads to the gateway".to_owned(),
            false => format!("no network leads to the gateway: {}", actions.join(", and ")),
        }
    }
}

/// Returns why a gateway refuses a destination by default; `None` if it does not, or may not.
fn gateway_refuses(query: &WhyQuery) -> Option<String> {
    let address = interception_scope::query_address(query)?;
    let reason =
        || format!("the gateway refuses {address}, unless its --permit includes this address");
    (!EgressFilter::default().permits(&[], address)).then(reason)
}

impl PolicyEnforcer {
    /// Returns the treatment of traffic while no network leads to the gateway; `None` while one
    /// does.
    pub fn no_path_action(&self, entry_points: EntryPoints<'_>) -> Option<String> {
        (!self.client().is_connected()).then(|| entry_points.no_path_action())
    }

    /// Explains the current treatment of a destination by the policy.
    pub fn why(&self, query: &WhyQuery, entry_points: EntryPoints<'_>) -> WhyReport {
        let resolved_from = match (query.address, &query.domain) {
            (Some(address), None) => self.name_of(address),
            _ => None,
        };
        let protocol = if query.is_udp { Protocol::Udp } else { Protocol::Tcp };
        let domain = query.domain.as_ref().and_then(|name| HostName::parse(name.as_bytes()));
        let domain = domain.as_ref().or(resolved_from.as_ref());
        let destination = match query.address {
            Some(address) => Destination::Address(address, query.port),
            None => Destination::Name(query.domain.clone().unwrap_or_default(), query.port),
        };
        let facts = FlowFacts {
            domain: domain.map(|name| name.as_str().to_owned()),
            process: query.process.clone(),
            uid: query.uid,
            user: query.user.clone(),
            cgroup: query.cgroup.clone(),
            ..new_facts(protocol, destination)
        };
        let explanation = self.table().explain(&facts.attributes(query.bytes));
        let Explanation { decision, rule, action, steps, is_waiting: waits } = explanation;
        let not_intercepted = entry_points.not_intercepted_reason(query);
        let condition =
            || entry_points.interception.and_then(|scope| scope.interception_condition(query));
        let (decision, path_details) = match decision {
            Decision::Bond(treatment) => {
                let paths = self.paths().into_iter();
                let allowed = paths.filter(|path| treatment.paths.contains(path.facts.id));
                ("bond", allowed.map(WhyPath::from).collect())
            }
            Decision::Direct => ("direct", Vec::new()),
            Decision::Block => ("block", Vec::new()),
        };
        WhyReport {
            decision: decision.to_owned(),
            rule,
            action,
            paths: path_details.iter().map(|path: &WhyPath| path.name.clone()).collect(),
            path_details,
            waiting_for_path: waits,
            resolved_from: resolved_from.map(|name| name.to_string()),
            steps: steps
                .into_iter()
                .map(|step| WhyStep {
                    rule: step.rule,
                    line: step.line,
                    matched: step.matched,
                    reason: step.reason,
                })
                .collect(),
            intercepted_if: if not_intercepted.is_none() { condition() } else { None },
            not_intercepted,
            has_proxy: entry_points.has_proxy,
            gateway_refuses: gateway_refuses(query).filter(|_| decision == "bond"),
            no_path_action: self.no_path_action(entry_points),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_intercepts_nothing_tells_it_unless_it_is_a_proxy() {
        let entry_points =
            |intercepts, has_proxy| EntryPoints { interception: None, intercepts, has_proxy };
        let reason = |intercepts, has_proxy| {
            let reason =
                entry_points(intercepts, has_proxy).not_intercepted_reason(&WhyQuery::default());
            reason.unwrap_or_default()
        };
        assert!(
            reason(false, false).starts_with("the client has neither interception nor a proxy")
        );
        assert_eq!(reason(false, true), "");
        assert_eq!(reason(true, true), "interception starts when the gateway has answered");
        assert_eq!(
            entry_points(false, true).no_path_action(),
            "no network leads to the gateway: connections to the proxy wait"
        );
        let nothing = entry_points(false, false).no_path_action();
        assert_eq!(nothing, "no network leads to the gateway");
    }

    #[test]
    fn a_gateway_refuses_by_default_what_is_not_of_the_internet() {
        let to = |address: &str| {
            let address = address.parse().ok();
            gateway_refuses(&WhyQuery { address, ..WhyQuery::default() })
        };
        let words = "the gateway refuses 10.1.2.3, unless its --permit includes this address";
        assert_eq!(to("10.1.2.3").as_deref(), Some(words));
        assert_eq!(to("93.184.216.34"), None);
        let named = |name: &str| {
            gateway_refuses(&WhyQuery { domain: Some(name.to_owned()), ..WhyQuery::default() })
        };
        assert!(named("localhost").is_some() && named("www.example.com").is_none());
    }
}
