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
    networks: Vec<EgressNetwork>,
}

impl Routes {
    pub(super) async fn start(networks: Vec<EgressNetwork>) -> Result<Self, SteerError> {
        let installed = networks.clone();
        let install = move || Egress::install(Names::default(), &installed, LIFETIME);
        let egress = spawn_blocking(install).await.map_err(|_| SteerError::Task)??;
        Ok(Self { egress: Some(egress), networks })
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
        self.with(move |egress| egress.select(network.as_deref())).await
    }

    /// Renews the choice, and adapts it to the networks of now.
    pub(super) async fn refresh(&mut self, networks: Vec<EgressNetwork>) -> Result<(), SteerError> {
        if networks != self.networks {
            self.networks.clone_from(&networks);
            self.with(move |egress| egress.set_networks(&networks)).await?;
        }
        self.with(Egress::refresh).await.map(drop)
    }

    /// Removes all that was installed.
    pub(super) async fn remove(mut self) -> Result<(), SteerError> {
        let egress = self.egress.take().ok_or(SteerError::Task)?;
        Ok(spawn_blocking(move || egress.remove()).await.map_err(|_| SteerError::Task)??)
    }
}
