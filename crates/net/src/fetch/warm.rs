//! Connections that are warm before what counts begins.

use std::future::Future;
use std::sync::Arc;

use manyways_proto::fetch::{Allowance, Config, Scheduler};
use manyways_unit::Size;

use super::{Client, FetchError, Job, PathSpec};

impl Client {
    /// The paths' names, in the order in which they were given.
    pub fn path_names(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| path.name.as_str())
    }

    /// Fetches a job whole over the path of this name alone, on the connection that later jobs will
    /// find there. What the path brings counts against the allowance where it is metered.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub async fn warm_up(
        &mut self,
        path: &str,
        job: &Job,
        stop: impl Future<Output = ()>,
    ) -> Result<(), FetchError> {
        // The same workers, and so the same connections, but all other paths may bring nothing.
        let paths = self
            .paths
            .iter()
            .map(|spec| Arc::new(PathSpec { metered: spec.name != path, ..PathSpec::clone(spec) }));
        let mut alone = Self {
            paths: paths.collect(),
            workers: self.workers.clone(),
            late: self.late.clone(),
            headers: Arc::clone(&self.headers),
            secrets: Arc::clone(&self.secrets),
            private: Arc::default(),
            metered: Allowance::Nothing,
            metered_spent: Size::ZERO,
            config: Config {
                scheduler: Scheduler::Single,
                length: None,
                stop_after: None,
                ..self.config.clone()
            },
            records: false,
            spawner: self.spawner.clone(),
            // What it warms are the paths that are there.
            watch: None,
        };
        let outcome = alone.fetch(job, &mut |_| {}, stop).await;
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        let metered = self.paths.iter().any(|spec| spec.name == path && spec.metered);
        if metered {
            self.metered_spent += report.bytes + report.duplicate;
        }
        outcome.map(drop)
    }
}
