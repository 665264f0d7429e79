//! Kernel rules that redirect the traffic of applications to a client. [`RuleKeeper`] decides when
//! the rules are renewed, repaired and changed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use manyways_proto::bond::interception::{
    AddressFamilies, Config, Input, Output, RuleKeeper, RuleState,
};
use manyways_sys::clock::Clock;
use manyways_sys::interface::ListError;
use manyways_sys::tproxy::{self, FailMode, Installed, Names, Rules, Selection, Target, Targets};
use manyways_unit::Prefix;
use tokio::task::{AbortHandle, spawn_blocking};

use super::client::Client;
use super::interception_scope::InterceptionScope;
use super::listeners::Listeners;
use super::timer;

/// The intercepted traffic, and its treatment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterceptionOptions {
    pub selections: Vec<Selection>,
    /// Treatment of the selected traffic while the client does not run.
    pub fail_mode: FailMode,
    /// Whether traffic to private networks is intercepted too.
    pub include_private: bool,
    /// Host of the gateway, as configured.
    pub gateway: String,
}

impl InterceptionOptions {
    /// Creates options that intercept this traffic, except to private networks. While the client
    /// does not run, the traffic goes directly.
    pub fn new(selections: Vec<Selection>, gateway: impl Into<String>) -> Self {
        let (fail_mode, include_private) = (FailMode::Direct, false);
        Self { selections, fail_mode, include_private, gateway: gateway.into() }
    }
}

/// The current interception scope; `None` before rules are installed.
pub type SharedScope = Rc<RefCell<Option<InterceptionScope>>>;

/// The failure to intercept traffic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterceptionError {
    /// The transparent proxy cannot listen, for example without root.
    #[error("the transparent proxy cannot listen: {0}")]
    Listen(#[source] std::io::Error),
    /// The networks of this host cannot be listed.
    #[error(transparent)]
    Networks(#[from] ListError),
    /// The kernel rules cannot be installed.
    #[error(transparent)]
    Install(#[from] tproxy::Error),
}

impl InterceptionError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Listen(_) => {
                Some("run it as root, or with --intercept none --socks 127.0.0.1:1080")
            }
            Self::Networks(_) => None,
            Self::Install(_) => {
                Some("without interception, applications can use --socks or --http-proxy")
            }
        }
    }
}

/// A selection of which nothing is intercepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExcludedSelection {
    /// The selected destinations.
    pub selected: Prefix,
    pub reason: ExclusionReason,
}

/// The reason why destinations are not intercepted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExclusionReason {
    /// Never intercepted, such as loopback and multicast: the kind and its prefix.
    Never(&'static str, Prefix),
    /// The gateway itself.
    Gateway,
    /// Private, or on a network of this host.
    Private(Prefix),
}

impl ExclusionReason {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Never(..) => Some("traffic within the host or a link is never intercepted"),
            Self::Gateway => None,
            Self::Private(_) => Some("--include-private intercepts private networks too"),
        }
    }
}

impl fmt::Display for ExcludedSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--intercept to:{} intercepts nothing: ", self.selected)?;
        match &self.reason {
            ExclusionReason::Never(what, outer) => write!(f, "it is {what} ({outer})"),
            ExclusionReason::Gateway => f.write_str("it is the gateway itself"),
            ExclusionReason::Private(outer) => {
                write!(f, "{outer} is private, or a network of this host")
            }
        }
    }
}

/// Installed rules, which are removed when this is dropped.
pub struct InterceptionHandle {
    task: AbortHandle,
    installed: SharedRules,
}

/// `None` after the rules are removed.
type SharedRules = Arc<Mutex<Option<Installed>>>;

/// Called with the intercepted families when they change; `None` while all traffic is refused.
type OnFamilies = dyn Fn(Option<AddressFamilies>);

struct Interception {
    options: InterceptionOptions,
    client: Client,
    clock: Clock,
    config: Config,
    /// Ports of TCP over IPv4, TCP over IPv6, UDP over IPv4 and UDP over IPv6.
    ports: [u16; 4],
    scope: SharedScope,
    on_families: Box<OnFamilies>,
    installed: SharedRules,
    /// Logged errors. An error may recur with each renewal.
    reported: BTreeSet<String>,
}

/// Returns the selections of which nothing is intercepted.
///
/// # Errors
/// If the networks of this host cannot be listed.
pub fn excluded_selections(
    options: &InterceptionOptions,
    client: &Client,
) -> Result<Vec<ExcludedSelection>, ListError> {
    let excluded = excluded_prefixes(options, client)?;
    let selected = options.selections.iter().filter_map(|selection| match selection {
        Selection::To(prefixes) => Some(prefixes),
        _ => None,
    });
    let reason = |selected: Prefix| {
        let covers = |outer: &Prefix| outer.covers(selected);
        if let Some((outer, what)) = tproxy::never_redirected().find(|(outer, _)| covers(outer)) {
            Some(ExclusionReason::Never(what, outer))
        } else if client.gateway().iter().any(|at| covers(&Prefix::from(at.ip()))) {
            Some(ExclusionReason::Gateway)
        } else {
            excluded.iter().find(|outer| covers(outer)).map(|one| ExclusionReason::Private(*one))
        }
    };
    let excluded = selected
        .flatten()
        .filter_map(|selected| Some((*selected, reason(*selected)?)))
        .map(|(selected, reason)| ExcludedSelection { selected, reason });
    Ok(excluded.collect())
}

/// Installs the rules and keeps them. With [`FailMode::Direct`], waits until the gateway has
/// reported the address families that it reaches. With [`FailMode::Blocked`], installs rules that
/// refuse all traffic until then. Runs on the calling thread's local tasks.
///
/// # Errors
/// If the sockets cannot be opened, the networks cannot be listed, or the rules cannot be
/// installed.
pub async fn start(
    options: InterceptionOptions,
    listeners: &Listeners,
    client: &Client,
    scope: SharedScope,
    on_families: impl Fn(Option<AddressFamilies>) + 'static,
) -> Result<InterceptionHandle, InterceptionError> {
    let ports = bind_listeners(listeners).map_err(InterceptionError::Listen)?;
    let families = match options.fail_mode {
        // A gateway that does not respond, or that refuses this key, must not block
        // applications.
        FailMode::Direct => Some(client.address_families().await),
        FailMode::Blocked => client.known_address_families(),
    };
    let excluded = excluded_prefixes(&options, client)?;
    let state = RuleState { families, excluded };
    let config = Config::default();
    let rules = rules(&options, ports, &state, &config);
    let installed = Arc::new(Mutex::new(Some(rules.install()?)));
    let clock = client.clock();
    let interception = Interception {
        options,
        client: client.clone(),
        clock,
        config,
        ports,
        scope,
        on_families: Box::new(on_families),
        installed: Arc::clone(&installed),
        reported: BTreeSet::new(),
    };
    interception.publish_scope(&state);
    (interception.on_families)(state.families);
    let keeper = RuleKeeper::new(clock.now(), config, state);
    let task = tokio::task::spawn_local(interception.run(keeper)).abort_handle();
    Ok(InterceptionHandle { task, installed })
}

/// Returns the kernel rules. Traffic of a family that the gateway does not reach is rejected, so
/// that applications do not wait for it.
fn rules(
    options: &InterceptionOptions,
    ports: [u16; 4],
    state: &RuleState,
    config: &Config,
) -> Rules {
    let AddressFamilies { v4, v6 } = state.families.unwrap_or_default();
    let proxy = |has: bool, port: u16| if has { Target::Proxy(port) } else { Target::Reject };
    let targets = Targets {
        tcp_v4: proxy(v4, ports[0]),
        tcp_v6: proxy(v6, ports[1]),
        udp_v4: proxy(v4, ports[2]),
        udp_v6: proxy(v6, ports[3]),
    };
    let mut rules = Rules::new(targets, options.selections.clone(), config.rule_lifetime);
    rules.direct.clone_from(&state.excluded);
    rules.fail_mode = options.fail_mode;
    rules
}

/// Returns the prefixes that are not intercepted on the current networks.
fn excluded_prefixes(
    options: &InterceptionOptions,
    client: &Client,
) -> Result<Vec<Prefix>, ListError> {
    let gateway = client.gateway();
    let mut excluded: Vec<Prefix> = gateway.iter().map(|at| Prefix::from(at.ip())).collect();
    if !options.include_private {
        excluded.extend(tproxy::private());
        excluded.extend(tproxy::connected()?);
    }
    Ok(excluded)
}

/// Opens the listeners. Returns the ports of TCP over IPv4 and IPv6, then of UDP.
fn bind_listeners(listeners: &Listeners) -> std::io::Result<[u16; 4]> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    Ok([
        listeners.transparent_tcp(v4)?,
        listeners.transparent_tcp(v6)?,
        listeners.transparent_udp(v4)?,
        listeners.transparent_udp(v6)?,
    ])
}

impl InterceptionHandle {
    /// Removes the rules.
    ///
    /// # Errors
    /// If the rules cannot be removed.
    pub fn stop(self) -> Result<(), tproxy::Error> {
        self.remove()
    }

    fn remove(&self) -> Result<(), tproxy::Error> {
        self.task.abort();
        // A change may be running on another thread and outlive this handle.
        let installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner).take();
        installed.map_or(Ok(()), Installed::remove)
    }
}

impl Drop for InterceptionHandle {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let table = Names::default().nft;
            tracing::error!(
                "cannot remove the packet filter rules: {error}; `nft delete table inet {table}` \
                 removes them"
            );
        }
    }
}

impl Interception {
    /// Keeps the rules; never returns.
    async fn run(mut self, mut keeper: RuleKeeper) {
        loop {
            while let Some(output) = keeper.poll(self.clock.now()) {
                let input = self.perform(output).await;
                keeper.handle(self.clock.now(), input);
            }
            let is_unknown = self.client.known_address_families().is_none();
            tokio::select! {
                () = timer::until(&self.clock, keeper.next_wakeup()) => {}
                _ = self.client.address_families(), if is_unknown => {
                    keeper.handle(self.clock.now(), Input::FamiliesKnown);
                }
            }
        }
    }

    async fn perform(&mut self, output: Output) -> Input {
        let done = |done: Option<()>| if done.is_some() { Input::Done } else { Input::Failed };
        match output {
            Output::Observe => Input::Observed {
                families: self.client.known_address_families(),
                excluded: excluded_prefixes(&self.options, &self.client).ok(),
                is_connected: self.client.is_connected(),
            },
            Output::Replace(state) => {
                let rules = rules(&self.options, self.ports, &state, &self.config);
                let replaced = self.change(move |installed| installed.replace(&rules)).await;
                if replaced.is_some() {
                    self.publish_scope(&state);
                    (self.on_families)(state.families);
                }
                done(replaced)
            }
            Output::SetExcluded(state) => {
                let excluded = state.excluded.clone();
                let changed = self.change(move |installed| installed.set_direct(&excluded)).await;
                if changed.is_some() {
                    self.publish_scope(&state);
                }
                done(changed)
            }
            Output::Repair => self.repair().await,
            Output::Renew => done(self.change(|installed| installed.refresh()).await),
            Output::Pause { is_first } => {
                let paused = self.change(|installed| installed.pause()).await;
                if paused.is_some() && is_first {
                    tracing::warn!(
                        "no network leads to the gateway: --fail-mode applies until one does"
                    );
                }
                done(paused)
            }
        }
    }

    /// Restores rules that another program has changed, for example by loading a packet filter.
    async fn repair(&mut self) -> Input {
        let Some(state) = self.scope.borrow().as_ref().map(|scope| scope.rules.clone()) else {
            return Input::Failed;
        };
        let Some(missing) = self.change(move |installed| installed.repair(&state)).await else {
            return Input::Failed;
        };
        self.reported.clear();
        for part in &missing {
            tracing::warn!(
                "the packet filter rules were changed by another program and are restored: {part}"
            );
        }
        if missing.is_empty() { Input::Done } else { Input::Repaired }
    }

    fn publish_scope(&self, state: &RuleState) {
        let scope = InterceptionScope {
            rules: rules(&self.options, self.ports, state, &self.config),
            families_known: state.families.is_some(),
            gateway: self.options.gateway.clone(),
            addresses: self.client.gateway().iter().map(SocketAddr::ip).collect(),
        };
        self.scope.replace(Some(scope));
    }

    /// Changes the rules on another thread, because the change starts programs and would delay the
    /// packets of this thread. `None` if the change failed, or the rules are already removed.
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
                let words = format!("cannot renew the packet filter rules: {error}");
                if self.reported.insert(words.clone()) {
                    tracing::warn!("{words}");
                }
                None
            }
        }
    }
}

/// Describes a selection for messages.
pub fn describe(selection: &Selection) -> String {
    let list = |all: Vec<String>| all.join(", ");
    match selection {
        Selection::All => "all traffic of this host".to_owned(),
        Selection::Users(users) => {
            format!("traffic of user {}", list(users.iter().map(u32::to_string).collect()))
        }
        Selection::Cgroup(path) => format!("traffic of cgroup {path}"),
        Selection::Marked(mark) => format!("packets with the mark {mark:#x}"),
        Selection::From(interfaces) => format!("packets forwarded from {}", interfaces.join(", ")),
        Selection::To(prefixes) => {
            format!("packets to {}", list(prefixes.iter().map(Prefix::to_string).collect()))
        }
    }
}
