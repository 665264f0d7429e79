//! Why something would be carried as it would be.

use std::net::IpAddr;

use manyways_proto::mux::Target;
use manyways_proto::policy::{Decision, Explanation, Protocol};
use manyways_wire::HostName;
use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::intake::Intake;
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
    /// What the policy says of a destination now. `intake` is what is taken in, where anything is.
    pub fn why(&self, question: &Question, intake: Option<&Intake>) -> Why {
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
            not_taken_in: intake.and_then(|intake| intake.lacks(question)),
            // One that takes nothing in is nothing else.
            has_proxy: intake.is_none_or(|intake| intake.has_proxy),
        }
    }
}
