//! Why something would be carried as it would be.

use std::net::IpAddr;

use manyways_proto::mux::Target;
use manyways_proto::policy::{Decision, Explanation, Protocol};
use manyways_sys::tproxy::WhenDead;
use manyways_wire::HostName;
use serde::{Deserialize, Serialize};

use super::door::Door;
use super::facts::Facts;
use super::intake::{self, Intake};
use super::rules::Rules;

/// Name and version of the schema of [`Why`].
pub const SCHEMA: &str = "manyways.bond-why/1";

/// A destination, and who wants to go there. What is not given is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Question {
    /// The name of the server.
    #[serde(default)]
    pub domain: Option<String>,
    /// Its address.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Datagrams.
    #[serde(default)]
    pub udp: bool,
    /// The program.
    #[serde(default)]
    pub process: Option<String>,
    /// The user's name…
    #[serde(default)]
    pub user: Option<String>,
    /// …and number.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The control group.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// How much has flowed.
    #[serde(default)]
    pub bytes: u64,
}

/// What a policy says of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    /// [`SCHEMA`].
    pub schema: String,
    /// `bond`, `direct` or `block`.
    pub decision: String,
    /// The rule that decides; none for the default.
    pub rule: Option<String>,
    /// What that is in words.
    pub action: String,
    /// The paths that it may use.
    pub paths: Vec<String>,
    /// None of them is there.
    pub waits: bool,
    /// The name by which the address is known, where the question had none.
    pub known_as: Option<String>,
    /// What each rule says that was asked.
    pub steps: Vec<WhyStep>,
    /// Why applications that know nothing of the client get there without it. All else is then
    /// about those that ask it as a proxy.
    #[serde(default)]
    pub not_taken_in: Option<String>,
    /// Applications may ask it as a proxy.
    #[serde(default)]
    pub has_proxy: bool,
    /// What has to be so for it to be taken in, where the question does not say it.
    #[serde(default)]
    pub taken_in_if: Option<String>,
    /// Why the gateway does not go there, unless it was told to.
    #[serde(default)]
    pub gateway_refuses: Option<String>,
    /// What becomes of all traffic, as no network leads to the gateway.
    #[serde(default)]
    pub cut_off: Option<String>,
}

/// How applications get to a client.
#[derive(Clone, Copy, Debug)]
pub struct Entrances<'a> {
    /// What is taken in without its knowing, once there are rules for it…
    pub intake: Option<&'a Intake>,
    /// …and whether there will be any.
    pub takes_in: bool,
    /// Applications may ask it as a proxy.
    pub has_proxy: bool,
}

impl Entrances<'_> {
    /// Why nothing brings this to the client, in words; none where something does, or may.
    fn lacks(&self, question: &Question) -> Option<String> {
        let words = match self.intake {
            Some(intake) => return intake.lacks(question),
            None if self.takes_in => "nothing is before the gateway has answered",
            None if self.has_proxy => return None,
            None => "nothing is, and there is no proxy to ask: see --intercept and --socks",
        };
        Some(words.to_owned())
    }

    /// What becomes of traffic while no network leads to the gateway.
    fn without_networks(&self) -> String {
        let taken = match self.intake.map(|intake| &intake.rules) {
            Some(rules) => {
                let (fate, option) = match rules.when_dead {
                    WhenDead::Open => ("goes directly", "open"),
                    WhenDead::Closed => ("is refused", "closed"),
                };
                let patience = rules.patience;
                Some(format!(
                    "what is taken in {fate} after some {patience} of that (--when-dead {option})"
                ))
            }
            None => self.takes_in.then(|| "nothing is taken in before one does".to_owned()),
        };
        let asked = self.has_proxy.then(|| "what asks the proxy waits".to_owned());
        let fates: Vec<String> = taken.into_iter().chain(asked).collect();
        match fates.is_empty() {
            true => "no network leads to the gateway".to_owned(),
            false => format!("no network leads to the gateway: {}", fates.join(", and ")),
        }
    }
}

/// Why a gateway does not go there unless it was told to, in words; none where it does, or may.
fn gateway_refuses(question: &Question) -> Option<String> {
    let address = intake::address(question)?;
    let refused = || format!("the gateway refuses {address}, unless its --open names it");
    (!Door::default().lets(&[], address)).then(refused)
}

/// What one rule says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WhyStep {
    /// Its name.
    pub rule: String,
    /// Its line in the file.
    pub line: usize,
    /// Whether it matches.
    pub matched: bool,
    /// What speaks for it, or the first thing that speaks against it.
    pub why: String,
}

impl Rules {
    /// What becomes of traffic, in words, as no network leads to the gateway; none where one does.
    pub fn cut_off(&self, entrances: Entrances<'_>) -> Option<String> {
        (!self.client().is_connected()).then(|| entrances.without_networks())
    }

    /// What the policy says of a destination now.
    pub fn why(&self, question: &Question, entrances: Entrances<'_>) -> Why {
        let known_as = match (question.address, &question.domain) {
            (Some(address), None) => self.name_of(address),
            _ => None,
        };
        let protocol = if question.udp { Protocol::Udp } else { Protocol::Tcp };
        let domain = question.domain.as_ref().and_then(|name| HostName::parse(name.as_bytes()));
        let to = match question.address {
            Some(address) => Target::Address(address, question.port),
            None => Target::Name(question.domain.clone().unwrap_or_default(), question.port),
        };
        let facts = Facts {
            domain: domain.or(known_as.clone()),
            process: question.process.clone(),
            uid: question.uid,
            user: question.user.clone(),
            cgroup: question.cgroup.clone(),
            ..Facts::new(protocol, to)
        };
        let explanation = self.with_engine(|engine| engine.explain(&facts.flow(question.bytes)));
        let Explanation { decision, rule, action, steps, waits } = explanation;
        let not_taken_in = entrances.lacks(question);
        let depends = || entrances.intake.and_then(|intake| intake.depends(question));
        let (decision, paths) = match decision {
            Decision::Bond(treatment) => {
                let views = self.views().into_iter();
                let may = views.filter(|view| treatment.paths.has(view.facts.id));
                ("bond", may.map(|view| view.facts.name).collect())
            }
            Decision::Direct => ("direct", Vec::new()),
            Decision::Block => ("block", Vec::new()),
        };
        Why {
            schema: SCHEMA.to_owned(),
            decision: decision.to_owned(),
            rule,
            action,
            paths,
            waits,
            known_as: known_as.map(|name| name.to_string()),
            steps: steps
                .into_iter()
                .map(|step| WhyStep {
                    rule: step.rule,
                    line: step.line,
                    matched: step.matched,
                    why: step.why,
                })
                .collect(),
            taken_in_if: if not_taken_in.is_none() { depends() } else { None },
            not_taken_in,
            has_proxy: entrances.has_proxy,
            gateway_refuses: gateway_refuses(question).filter(|_| decision == "bond"),
            cut_off: self.cut_off(entrances),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_in_says_so_unless_a_proxy_may_be_asked() {
        let entrances = |takes_in, has_proxy| Entrances { intake: None, takes_in, has_proxy };
        let lacks = |takes_in, has_proxy| {
            entrances(takes_in, has_proxy).lacks(&Question::default()).unwrap_or_default()
        };
        assert!(lacks(false, false).starts_with("nothing is, and there is no proxy"));
        assert_eq!(lacks(false, true), "");
        assert_eq!(lacks(true, true), "nothing is before the gateway has answered");
        assert_eq!(
            entrances(false, true).without_networks(),
            "no network leads to the gateway: what asks the proxy waits"
        );
        assert_eq!(entrances(false, false).without_networks(), "no network leads to the gateway");
    }

    #[test]
    fn a_gateway_refuses_by_itself_what_is_not_of_the_internet() {
        let to = |address: &str| {
            let address = address.parse().ok();
            gateway_refuses(&Question { address, ..Question::default() })
        };
        let words = "the gateway refuses 10.1.2.3, unless its --open names it";
        assert_eq!(to("10.1.2.3").as_deref(), Some(words));
        assert_eq!(to("93.184.216.34"), None);
        let named = |name: &str| {
            gateway_refuses(&Question { domain: Some(name.to_owned()), ..Question::default() })
        };
        assert!(named("localhost").is_some() && named("www.example.com").is_none());
    }
}
