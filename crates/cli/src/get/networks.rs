//! Which networks a transfer may use.

use std::net::IpAddr;

use manyways_net::fetch::location::Location;
use manyways_net::fetch::{Allowance, HostNames, Names, PathSpec};
use manyways_sys::interface::{self, Interface, Kind};

use crate::failure::Failure;

/// Chooses paths, and remembers its last choice.
#[derive(Default)]
pub struct Networks {
    chosen: Option<Vec<String>>,
}

impl Networks {
    /// The paths towards `location`; `None` where they are the same as last time.
    pub async fn towards(
        &mut self,
        via: &[String],
        metered: Allowance,
        location: &Location,
    ) -> Result<Option<Vec<PathSpec>>, Failure> {
        let paths = choose(via, metered, location).await?;
        let names: Vec<String> = paths.iter().map(|path| path.name.clone()).collect();
        if self.chosen.as_ref() == Some(&names) {
            return Ok(None);
        }
        self.chosen = Some(names);
        Ok(Some(paths))
    }
}

async fn choose(
    via: &[String],
    metered: Allowance,
    location: &Location,
) -> Result<Vec<PathSpec>, Failure> {
    let list = |towards: &[IpAddr]| {
        interface::list_towards(towards).map_err(|error| Failure::new(error.to_string()))
    };
    let literal = location.origin().address();
    let mut all = list(literal.as_slice())?;
    let mut usable: Vec<&Interface> = all.iter().filter(|i| i.usable.is_ok()).collect();
    if usable.is_empty() && literal.is_none() {
        // No way to the internet, but perhaps one to this server in a local network.
        let found = HostNames.lookup(&location.origin().host).await.unwrap_or_default();
        if !found.is_empty() {
            all = list(&found)?;
            usable = all.iter().filter(|i| i.usable.is_ok()).collect();
        }
        if via.is_empty() && usable.is_empty() && found.iter().any(IpAddr::is_loopback) {
            return Ok(vec![loopback()]);
        }
    }
    let local = literal.is_some_and(|address| address.is_loopback())
        || location.origin().host == "localhost";
    if local && via.is_empty() {
        return Ok(vec![loopback()]);
    }
    let chosen = if via.is_empty() { usable } else { named(via, &all, local)? };
    if chosen.is_empty() {
        return Err(Failure::new("no network of this host can be used")
            .hint("`manyways paths` says why for each"));
    }
    let paths: Vec<PathSpec> = chosen.into_iter().map(path).collect();
    if metered == Allowance::Nothing && paths.iter().all(|path| path.metered) {
        let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
        return Err(Failure::new(format!("only metered networks are there: {}", names.join(", ")))
            .hint("--metered yes uses them, --metered 100MB uses them for so much"));
    }
    Ok(paths)
}

fn named<'a>(
    via: &[String],
    all: &'a [Interface],
    local: bool,
) -> Result<Vec<&'a Interface>, Failure> {
    let mut chosen: Vec<&Interface> = Vec::new();
    for name in via.iter().map(|name| name.trim()) {
        let Some(found) = all.iter().find(|interface| interface.name == name) else {
            let names: Vec<&str> = all
                .iter()
                .filter(|interface| interface.kind != Kind::Loopback)
                .map(|interface| interface.name.as_str())
                .collect();
            return Err(Failure::usage(format!("there is no network called {name:?}"))
                .hint(format!("this host has: {}", names.join(", "))));
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

fn path(interface: &Interface) -> PathSpec {
    if interface.kind == Kind::Loopback { loopback() } else { PathSpec::of(interface) }
}

/// The host itself: the kernel chooses the address, and the host resolves the name.
fn loopback() -> PathSpec {
    PathSpec {
        name: "lo".to_owned(),
        device: None,
        addresses: Vec::new(),
        metered: false,
        names: std::sync::Arc::new(HostNames),
    }
}
