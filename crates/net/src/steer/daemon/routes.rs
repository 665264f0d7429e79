//! The choice for new flows, in the kernel.

use manyways_sys::egress::{Egress, EgressNetwork, Error, Names};
use manyways_unit::Span;
use tokio::task::spawn_blocking;

use super::SteerError;

/// Time after which the kernel forgets the choice of a process that was killed.
const LIFETIME: Span = Span::from_secs(15);

/// [`Egress`], whose calls block for some milliseconds.
#[derive(Debug)]
pub(super) struct Routes {
    /// `None` after a task has failed.
    egress: Option<Egress>,
    /// `None` after a change that has failed.
    networks: Option<Vec<EgressNetwork>>,
    /// The network of new flows, and whether the kernel has it.
    chosen: Option<String>,
    is_chosen: bool,
}

impl Routes {
    pub(super) async fn start(networks: Vec<EgressNetwork>) -> Result<Self, SteerError> {
        let installed = networks.clone();
        let install = move || Egress::install(Names::default(), &installed, LIFETIME);
        let egress = spawn_blocking(install).await.map_err(|_| SteerError::Task)??;
        let networks = Some(networks);
        Ok(Self { egress: Some(egress), networks, chosen: None, is_chosen: true })
    }

    async fn with<R: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut Egress) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, SteerError> {
        let mut egress = self.egress.take().ok_or(SteerError::Task)?;
        let called = spawn_blocking(move || (call(&mut egress), egress)).await;
        let (result, egress) = called.map_err(|_| SteerError::Task)?;
        self.egress = Some(egress);
        Ok(result?)
    }

    /// Chooses the network of new flows; `None`: the host's own routes.
    pub(super) async fn select(&mut self, network: Option<String>) -> Result<(), SteerError> {
        self.chosen.clone_from(&network);
        self.is_chosen = false;
        self.with(move |egress| egress.select(network.as_deref())).await?;
        self.is_chosen = true;
        Ok(())
    }

    /// Renews the choice, and adapts it to the networks of now. A change that has failed is made again.
    pub(super) async fn refresh(&mut self, networks: Vec<EgressNetwork>) -> Result<(), SteerError> {
        let mut changed = Ok(());
        if self.networks.as_ref() != Some(&networks) {
            // A network that was not in the list for a moment has lost its choice.
            self.is_chosen = false;
            let wanted = networks.clone();
            changed = self.with(move |egress| egress.set_networks(&wanted)).await.map(drop);
            self.networks = changed.is_ok().then_some(networks);
        }
        // The choice among the earlier networks must not expire.
        self.with(Egress::refresh).await?;
        changed
    }

    /// Makes a choice again that the kernel does not have; `None` if its network is not in the list.
    pub(super) async fn repeat(&mut self) -> Option<Result<(), SteerError>> {
        match (self.is_chosen, self.chosen.clone()) {
            (true, _) => Some(Ok(())),
            (false, Some(name)) if !self.has(&name) => None,
            (false, chosen) => Some(self.select(chosen).await),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.networks.iter().flatten().any(|one| one.interface == name)
    }

    /// Removes all that was installed.
    pub(super) async fn remove(mut self) -> Result<(), SteerError> {
        let egress = self.egress.take().ok_or(SteerError::Task)?;
        Ok(spawn_blocking(move || egress.remove()).await.map_err(|_| SteerError::Task)??)
    }
}
