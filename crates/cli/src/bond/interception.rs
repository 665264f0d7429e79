//! The kernel's rules that bring traffic to a client without its knowing: they are kept alive, and
//! follow what the gateway reaches and where the host is.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use manyways_net::bond::client::Client;
use manyways_net::bond::intake::Intake;
use manyways_net::bond::intercept::Doors;
use manyways_sys::tproxy::{self, Installed, Names, Rules, Selection, Target, Targets, WhenDead};
use manyways_unit::Prefix;
use manyways_unit::Span;
use tokio::task::{AbortHandle, spawn_blocking};

use crate::failure::Failure;

/// The rules are renewed so often; they hold four times as long.
const TURN: Duration = Duration::from_secs(2);
const HOLD: Span = Span::from_secs(8);
/// So many turns without a network that leads to the gateway are borne.
const PATIENCE: u32 = 4;

/// What is taken in, and how.
pub struct Interception {
    pub what: Vec<Selection>,
    pub when_dead: WhenDead,
    /// Traffic to private networks too.
    pub private: bool,
    pub quiet: bool,
    /// What the gateway is called.
    pub gateway: String,
    pub told: Told,
}

/// What is taken in now, for who asks; none before there are rules.
pub type Told = Rc<RefCell<Option<Intake>>>;

/// Rules that are in place until this is dropped.
pub struct Kept {
    task: AbortHandle,
    installed: Shared,
}

/// None once they are taken out.
type Shared = Arc<Mutex<Option<Installed>>>;

/// Which families the gateway reaches: IPv4, IPv6; none before it has said so.
type Families = Option<(bool, bool)>;

struct Keeper {
    wants: Interception,
    client: Client,
    ports: [u16; 4],
    families: Families,
    direct: Vec<Prefix>,
    installed: Shared,
    /// What was said of changes that failed: it may be the same at every turn.
    complaints: BTreeSet<String>,
}

impl Interception {
    /// Waits for the gateway to say what it reaches, puts the rules in, and keeps them. Where nothing
    /// may go past the client, rules that refuse all are there before it answers.
    pub async fn begin(self, doors: &Doors, client: &Client) -> Result<Kept> {
        let ports = listen(doors)?;
        if !self.quiet {
            let what: Vec<String> = self.what.iter().map(words).collect();
            let what = what.join(", and ");
            eprintln!("manyways: takes in {what}, TCP and UDP, once the gateway has answered");
            self.say_spared(client)?;
        }
        // A family that the gateway lacks is refused here, or applications would wait for it.
        let families = match self.when_dead {
            // A gateway that is not there, or does not know this key, cuts nobody off.
            WhenDead::Open => Some(client.address_families().await),
            WhenDead::Closed => client.known_address_families(),
        };
        let direct = self.direct(client)?;
        let rules = self.rules(ports, families, direct.clone());
        let installed = rules.install().map_err(|error| {
            Failure::new(error.to_string())
                .hint("without it, applications can use --socks or --http-proxy")
        })?;
        self.say(families);
        self.tell(rules, families, client);
        let installed = Arc::new(Mutex::new(Some(installed)));
        let keeper = Keeper {
            wants: self,
            client: client.clone(),
            ports,
            families,
            direct,
            installed: Arc::clone(&installed),
            complaints: BTreeSet::new(),
        };
        let task = tokio::task::spawn_local(keeper.keep()).abort_handle();
        Ok(Kept { task, installed })
    }

    fn rules(&self, ports: [u16; 4], families: Families, direct: Vec<Prefix>) -> Rules {
        let (v4, v6) = families.unwrap_or((false, false));
        let proxy = |has: bool, port: u16| if has { Target::Proxy(port) } else { Target::Reject };
        Rules {
            names: Names::default(),
            to: Targets {
                tcp_v4: proxy(v4, ports[0]),
                tcp_v6: proxy(v6, ports[1]),
                udp_v4: proxy(v4, ports[2]),
                udp_v6: proxy(v6, ports[3]),
            },
            what: self.what.clone(),
            direct,
            own_users: Vec::new(),
            when_dead: self.when_dead,
            patience: HOLD,
        }
    }

    /// What is not taken in where the host is now.
    fn direct(&self, client: &Client) -> Result<Vec<Prefix>> {
        let gateway = client.gateway();
        let mut direct: Vec<Prefix> = gateway.iter().map(|at| Prefix::from(at.ip())).collect();
        if !self.private {
            direct.extend(tproxy::private());
            direct.extend(tproxy::connected()?);
        }
        Ok(direct)
    }

    /// Says which destinations are selected in vain.
    fn say_spared(&self, client: &Client) -> Result<()> {
        let direct = self.direct(client)?;
        let selected = self.what.iter().filter_map(|what| match what {
            Selection::To(prefixes) => Some(prefixes),
            _ => None,
        });
        for prefix in selected.flatten() {
            let within = |outer: Prefix| {
                outer.contains(prefix.address()) && outer.length() <= prefix.length()
            };
            let vain = format!("manyways: --intercept to:{prefix} takes nothing in");
            if let Some((outer, what)) = tproxy::never().find(|(outer, _)| within(*outer)) {
                eprintln!("{vain}: it is {what} ({outer})");
                eprintln!("hint: what stays on the host or on a link is never taken in");
            } else if client.gateway().iter().any(|at| within(at.ip().into())) {
                eprintln!("{vain}: it is the gateway itself");
            } else if let Some(outer) = direct.iter().find(|outer| within(**outer)) {
                eprintln!("{vain}: {outer} is private, or a network that this host is on");
                eprintln!("hint: --private takes such networks in too");
            }
        }
        Ok(())
    }

    fn tell(&self, rules: Rules, families: Families, client: &Client) {
        let addresses = client.gateway().iter().map(SocketAddr::ip).collect();
        let gateway = self.gateway.clone();
        let answered = families.is_some();
        self.told.replace(Some(Intake { rules, answered, gateway, addresses }));
    }

    fn say(&self, families: Families) {
        if self.quiet {
            return;
        }
        match families {
            None => eprintln!("manyways: the gateway has not answered yet: all is refused"),
            Some((true, true)) => eprintln!("manyways: IPv4 and IPv6 are taken in"),
            Some((false, false)) => {
                eprintln!("manyways: all is refused: the gateway reaches nothing");
            }
            Some((v4, _)) => {
                let (has, lacks) = if v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
                eprintln!(
                    "manyways: {has} is taken in; {lacks} is refused, since the gateway does not \
                     reach it"
                );
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
        // A change may be under way on another thread, which would outlive this one's interest.
        let installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = installed.map(Installed::remove) {
            eprintln!("manyways: the rules cannot be taken out: {error}");
            eprintln!("hint: `nft delete table inet {}` does it", Names::default().nft);
        }
    }
}

impl Keeper {
    /// Keeps the rules alive as long as a network leads to the gateway. Without one for some
    /// seconds they count as those of a client that does not run: what that means is
    /// `--when-dead`.
    async fn keep(mut self) {
        let mut alone = 0;
        loop {
            self.turn().await;
            self.follow().await;
            let mended = self.mend().await;
            alone = if self.client.is_connected() { 0 } else { alone + 1 };
            if alone < PATIENCE {
                self.change(|rules| rules.refresh()).await;
            } else if alone == PATIENCE || mended {
                let paused = self.change(|rules| rules.pause()).await.is_some();
                if paused && alone == PATIENCE {
                    tracing::warn!(
                        "no network leads to the gateway: --when-dead holds until one does"
                    );
                }
            }
        }
    }

    /// Waits for the next turn, which comes at once where the gateway answers for the first time.
    async fn turn(&self) {
        let answer = async {
            match self.client.known_address_families() {
                Some(_) => std::future::pending().await,
                None => drop(self.client.address_families().await),
            }
        };
        let _ = tokio::time::timeout(TURN, answer).await;
    }

    /// Puts back what somebody has taken away, as whoever loads another packet filter does; says
    /// whether there was anything.
    async fn mend(&mut self) -> bool {
        let rules = self.wants.rules(self.ports, self.families, self.direct.clone());
        let Some(missing) = self.change(move |installed| installed.mend(&rules)).await else {
            return false;
        };
        self.complaints.clear();
        for part in &missing {
            tracing::warn!("somebody has changed the rules, which are put back: {part}");
        }
        !missing.is_empty()
    }

    /// Changes the rules where the gateway reaches other families than before, or the host or the
    /// gateway has moved.
    async fn follow(&mut self) {
        let families = self.client.known_address_families().or(self.families);
        let direct = self.wants.direct(&self.client).unwrap_or_else(|_| self.direct.clone());
        if families != self.families {
            let rules = self.wants.rules(self.ports, families, direct.clone());
            let wanted = rules.clone();
            if self.change(move |installed| installed.replace(&wanted)).await.is_some() {
                (self.families, self.direct) = (families, direct);
                self.wants.say(families);
                self.wants.tell(rules, families, &self.client);
            }
        } else if direct != self.direct {
            let prefixes = direct.clone();
            if self.change(move |installed| installed.set_direct(&prefixes)).await.is_some() {
                let rules = self.wants.rules(self.ports, families, direct.clone());
                self.direct = direct;
                self.wants.tell(rules, families, &self.client);
            }
        }
    }

    /// None where it failed, or the rules are out already. Programs are started for it, which takes
    /// longer than a call should wait for its packets.
    async fn change<T: Send + 'static>(
        &mut self,
        change: impl FnOnce(&mut Installed) -> Result<T, tproxy::Error> + Send + 'static,
    ) -> Option<T> {
        let installed = Arc::clone(&self.installed);
        let changed = spawn_blocking(move || {
            let mut installed = installed.lock().unwrap_or_else(PoisonError::into_inner);
            installed.as_mut().map(change)
        });
        match changed.await.ok()?? {
            Ok(done) => Some(done),
            Err(error) => {
                let complaint = format!("the rules are not renewed: {error}");
                if self.complaints.insert(complaint.clone()) {
                    tracing::warn!("{complaint}");
                }
                None
            }
        }
    }
}

/// The ports of TCP over IPv4 and IPv6, and of UDP.
fn listen(doors: &Doors) -> Result<[u16; 4]> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let failed = || {
        Failure::new("the transparent proxy cannot listen")
            .hint("run it as root, or with --intercept none --socks 127.0.0.1:1080")
    };
    Ok([
        doors.transparent_tcp(v4).map_err(|_| failed())?,
        doors.transparent_tcp(v6).map_err(|_| failed())?,
        doors.transparent_udp(v4).map_err(|_| failed())?,
        doors.transparent_udp(v6).map_err(|_| failed())?,
    ])
}

/// What is selected, for the log.
fn words(selection: &Selection) -> String {
    let list = |all: Vec<String>| all.join(", ");
    match selection {
        Selection::All => "all that this host sends".to_owned(),
        Selection::Users(users) => {
            format!("what user {} sends", list(users.iter().map(u32::to_string).collect()))
        }
        Selection::Cgroup(path) => format!("what cgroup {path} sends"),
        Selection::Marked(mark) => format!("what bears the mark {mark:#x}"),
        Selection::From(interfaces) => format!("what is forwarded from {}", interfaces.join(", ")),
        Selection::To(prefixes) => {
            format!("what goes to {}", list(prefixes.iter().map(Prefix::to_string).collect()))
        }
    }
}
