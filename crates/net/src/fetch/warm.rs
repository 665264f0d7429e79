//! Warm connections: a download before the measured one.

use std::future::Future;
use std::sync::Arc;

use manyways_proto::fetch::{Config, MeteredUse, Scheduler};
use manyways_unit::Size;

use super::{Client, FetchError, Job, PathSpec};

impl Client {
    /// Names of the paths, in the order in which they were added.
    pub fn path_names(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| path.name.as_str())
    }

    /// Fetches the whole object of a job over one path, on the connection that later jobs will use.
    /// The bytes count against the limit for metered paths.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub async fn warm_up(
        &mut self,
        path: &str,
        job: &Job,
        stop: impl Future<Output = ()>,
    ) -> Result<(), FetchError> {
        // The same workers and therefore the same connections; all other paths are metered with a
        // limit of zero.
        let paths = self
            .paths
            .iter()
            .map(|spec| Arc::new(PathSpec { metered: spec.name != path, ..PathSpec::clone(spec) }));
        let mut alone = Self {
            paths: paths.collect(),
            workers: self.workers.clone(),
            discarded: self.discarded.clone(),
            headers: Arc::clone(&self.headers),
            common_private_headers: Arc::clone(&self.common_private_headers),
            private_headers: Arc::default(),
            metered: MeteredUse::Forbidden,
            metered_used: Size::ZERO,
            config: Config {
                scheduler: Scheduler::Single,
                length: None,
                stop_after: None,
                ..self.config.clone()
            },
            records: false,
            worker_config: self.worker_config.clone(),
            verifies_servers: self.verifies_servers,
            // Only existing paths are warmed.
            path_lister: None,
            path_advisor: None,
        };
        let outcome = alone.fetch(job, &mut |_| {}, stop).await;
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        let metered = self.paths.iter().any(|spec| spec.name == path && spec.metered);
        if metered {
            self.metered_used += report.bytes + report.duplicate;
        }
        outcome.map(drop)
    }
}
