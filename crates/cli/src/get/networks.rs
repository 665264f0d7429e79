//! Which networks a transfer may use.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use manyways_net::fetch::conditions::{Memory, Network, Remembered};
use manyways_net::fetch::location::Location;
use manyways_net::fetch::{Allowance, Conditions, HostNames, Names, PathSpec, Report};
use manyways_sys::interface::{self, Interface, Kind};
use manyways_unit::Rate;

use super::options::{Args, NameServers, Transport};
use crate::failure::Failure;

/// Chooses paths, and remembers its last choice.
pub struct Networks<'a> {
    args: &'a Args,
    memory: Option<Memory>,
    chosen: Option<Vec<String>>,
    known: Arc<Mutex<Known>>,
}

/// What is known of the paths, also of those that come under way.
#[derive(Debug, Default)]
struct Known {
    /// Where the paths have to lead to: nowhere in particular is the internet.
    towards: Vec<IpAddr>,
    /// What they lead to, by their names.
    leads: Vec<Network>,
}

impl<'a> Networks<'a> {
    /// As the command line says.
    pub fn new(args: &'a Args) -> Self {
        Self { args, memory: args.memory(), chosen: None, known: Arc::default() }
    }

    /// The paths towards `location`; `None` where they are the same as last time.
    pub async fn towards(&mut self, location: &Location) -> Result<Option<Vec<PathSpec>>, Failure> {
        let (chosen, towards) = match self.args.transport {
            Transport::Tcp => choose(self.args, location).await?,
            Transport::Mptcp => (vec![Choice::from(PathSpec::kernel_mptcp())], Vec::new()),
        };
        lock(&self.known).towards = towards;
        let names = sorted(chosen.iter().map(|choice| choice.path.name.as_str()));
        if self.chosen.as_ref() == Some(&names) {
            return Ok(None);
        }
        self.chosen = Some(names);
        lock(&self.known).leads = chosen.iter().filter_map(|choice| choice.lead.clone()).collect();
        let memory = self.memory.as_ref();
        Ok(Some(chosen.into_iter().map(|choice| choice.remembered(memory)).collect()))
    }

    /// Says at any time which paths there are, where these may come and go.
    pub fn watch(&self) -> Option<impl Fn() -> Option<Vec<PathSpec>> + Send + Sync + 'static> {
        if lock(&self.known).leads.is_empty() {
            return None;
        }
        let (known, memory) = (Arc::clone(&self.known), self.args.memory());
        let (via, dns) = (self.args.via.clone(), self.args.dns.clone());
        let look = move || {
            let towards = lock(&known).towards.clone();
            let all = interface::list_towards(&towards)
                .inspect_err(|error| tracing::debug!("the networks cannot be listed: {error}"))
                .ok()?;
            let meant = all.iter().filter(|interface| {
                via.is_empty() || via.iter().any(|name| name.trim() == interface.name)
            });
            let usable = meant
                .filter(|interface| interface.usable.is_ok() && interface.kind != Kind::Loopback);
            let choices = usable.map(|interface| path(interface, &dns)).map(|choice| {
                if let Some(lead) = &choice.lead {
                    let leads = &mut lock(&known).leads;
                    leads.retain(|other| other.name != lead.name);
                    leads.push(lead.clone());
                }
                choice.remembered(memory.as_ref())
            });
            Some(choices.collect())
        };
        Some(look)
    }

    /// The client has these paths now: some may have come under way.
    pub fn has<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.chosen = Some(sorted(names));
    }

    /// Keeps what a transfer has shown of its networks, for the next time. `rates` are those that
    /// were estimated last.
    pub fn remember(&self, report: &Report, rates: &[(String, Rate)]) {
        let Some(memory) = &self.memory else { return };
        for path in &report.paths {
            let known = lock(&self.known);
            let Some(network) = known.leads.iter().find(|lead| lead.name == path.name) else {
                continue;
            };
            let rate = rates.iter().find(|(name, _)| *name == path.name).map(|(_, rate)| *rate);
            let kept = Remembered::of(network.clone(), path, rate, SystemTime::now());
            if let Some(Err(error)) = kept.map(|remembered| memory.keep(&remembered)) {
                tracing::debug!("{}: not remembered: {error}", path.name);
            }
        }
    }
}

/// A path, and the network that it leads to, where that is one.
struct Choice {
    path: PathSpec,
    lead: Option<Network>,
}

impl From<PathSpec> for Choice {
    fn from(path: PathSpec) -> Self {
        Self { path, lead: None }
    }
}

impl Choice {
    /// With what the network was worth when it was used last.
    fn remembered(self, memory: Option<&Memory>) -> PathSpec {
        let recalled = memory.zip(self.lead.as_ref());
        let recalled = recalled.and_then(|(memory, lead)| memory.recall(lead, SystemTime::now()));
        let known = recalled.and_then(|remembered| remembered.conditions());
        if let Some(Conditions { rate, rtt }) = known {
            tracing::debug!("{}: {rate} with {rtt} are remembered", self.path.name);
        }
        PathSpec { known, ..self.path }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// The paths towards `location`, and the addresses that they had to lead to.
async fn choose(args: &Args, location: &Location) -> Result<(Vec<Choice>, Vec<IpAddr>), Failure> {
    let via = args.via.as_slice();
    let list = |towards: &[IpAddr]| {
        interface::list_towards(towards).map_err(|error| Failure::new(error.to_string()))
    };
    let literal = location.origin().address();
    let mut towards: Vec<IpAddr> = literal.into_iter().collect();
    let mut all = list(&towards)?;
    let mut usable: Vec<&Interface> = all.iter().filter(|i| i.usable.is_ok()).collect();
    if usable.is_empty() && literal.is_none() {
        // No way to the internet, but perhaps one to this server in a local network.
        let found = HostNames.lookup(&location.origin().host).await.unwrap_or_default();
        if !found.is_empty() {
            all = list(&found)?;
            towards.clone_from(&found);
            usable = all.iter().filter(|i| i.usable.is_ok()).collect();
        }
        if via.is_empty() && usable.is_empty() && found.iter().any(IpAddr::is_loopback) {
            return Ok((vec![loopback().into()], towards));
        }
    }
    let local = literal.is_some_and(|address| address.is_loopback())
        || location.origin().host == "localhost";
    if local && via.is_empty() {
        return Ok((vec![loopback().into()], towards));
    }
    let chosen = if via.is_empty() { usable } else { named(via, &all, local)? };
    if chosen.is_empty() {
        return Err(Failure::new("no network of this host can be used")
            .hint("`manyways paths` says why for each"));
    }
    for NameServers { network, .. } in &args.dns {
        if !all.iter().any(|interface| interface.name == *network) {
            return Err(unknown(network, &all));
        }
    }
    let paths: Vec<Choice> =
        chosen.into_iter().map(|interface| path(interface, &args.dns)).collect();
    if args.metered == Allowance::Nothing && paths.iter().all(|choice| choice.path.metered) {
        let names: Vec<&str> = paths.iter().map(|choice| choice.path.name.as_str()).collect();
        return Err(Failure::new(format!("only metered networks are there: {}", names.join(", ")))
            .hint("--metered yes uses them, --metered 100MB uses them for so much"));
    }
    Ok((paths, towards))
}

fn named<'a>(
    via: &[String],
    all: &'a [Interface],
    local: bool,
) -> Result<Vec<&'a Interface>, Failure> {
    let mut chosen: Vec<&Interface> = Vec::new();
    for name in via.iter().map(|name| name.trim()) {
        let Some(found) = all.iter().find(|interface| interface.name == name) else {
            return Err(unknown(name, all));
        };
        let fine = local && found.kind == Kind::Loopback;
        if let (Err(why), false) = (&found.usable, fine) {
            return Err(Failure::new(format!("{name} cannot be used: {why}")).hint(why.hint()));
        }
        if !chosen.iter().any(|other| other.index == found.index) {
            chosen.push(found);
        }
    }
    Ok(chosen)
}

fn unknown(name: &str, all: &[Interface]) -> Failure {
    let names: Vec<&str> = all
        .iter()
        .filter(|interface| interface.kind != Kind::Loopback)
        .map(|interface| interface.name.as_str())
        .collect();
    Failure::usage(format!("there is no network called {name:?}"))
        .hint(format!("this host has: {}", names.join(", ")))
}

fn path(interface: &Interface, dns: &[NameServers]) -> Choice {
    if interface.kind == Kind::Loopback {
        return loopback().into();
    }
    let own = dns.iter().filter(|dns| dns.network == interface.name);
    let servers: Vec<IpAddr> = own.flat_map(|dns| dns.servers.clone()).collect();
    let path = match servers.is_empty() {
        true => PathSpec::of(interface),
        false => PathSpec::with_name_servers(interface, servers),
    };
    Choice { path, lead: Some(interface.into()) }
}

/// The host itself: the kernel chooses the address, and the host resolves the name.
fn loopback() -> PathSpec {
    PathSpec {
        name: "lo".to_owned(),
        device: None,
        addresses: Vec::new(),
        metered: false,
        mptcp: false,
        known: None,
        names: Arc::new(HostNames),
    }
}
