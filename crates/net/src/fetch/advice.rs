//! Asks another program which paths to use, at the times of `proto::fetch::AdvisedPaths`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use manyways_proto::fetch::{AdviceConfig, AdvisedPaths, PathUse};
use manyways_unit::{Size, Span, Time};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::path::PathSpec;

/// A question about the paths of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdviceRequest {
    /// Host of the job's URL.
    pub host: String,
    /// Missing bytes of the object; `None` while its length is unknown.
    pub remaining: Option<Size>,
    /// The advice that is followed now; empty without any, or if it was given before the length was known.
    pub followed: Vec<String>,
}

/// Why no paths are advised: a clause, such as "`manyways steer run` does not answer".
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAdvice(pub String);

/// Names of the paths to use, the first one first.
type Answer = Result<Vec<String>, NoAdvice>;
pub(super) type Ask = dyn Fn(&AdviceRequest) -> Answer + Send + Sync;

/// The callback of [`ClientBuilder::path_advisor`](super::ClientBuilder::path_advisor).
#[derive(Clone)]
pub(super) struct PathAdvisor {
    pub(super) ask: Arc<Ask>,
    /// Maximum delay of the first request.
    pub(super) limit: Span,
}

impl fmt::Debug for PathAdvisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathAdvisor").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The advice about the paths of a transfer.
pub(super) struct Advice {
    core: AdvisedPaths,
    advisor: Option<PathAdvisor>,
    host: String,
    pending: Option<JoinHandle<Answer>>,
}

impl Advice {
    /// Asks for the first time, and returns a note about the answer. Without an advisor, all paths
    /// are used.
    pub(super) async fn begin(
        advisor: Option<PathAdvisor>,
        paths: &[Arc<PathSpec>],
        host: &str,
        remaining: Option<u64>,
    ) -> (Self, Option<String>) {
        let core = match advisor {
            Some(_) => AdvisedPaths::asked(Time::ZERO, AdviceConfig::default()),
            None => AdvisedPaths::all(),
        };
        let mut advice = Self { core, advisor, host: host.to_owned(), pending: None };
        paths.iter().for_each(|path| advice.core.add_path(&path.name));
        advice.poll_question(Time::ZERO, remaining);
        let limit = advice.advisor.as_ref().map_or(Span::ZERO, |advisor| advisor.limit);
        let Some(pending) = advice.pending.take() else { return (advice, None) };
        let answer = match timeout(Duration::from(limit), pending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(NoAdvice(format!("no network was advised within {limit}"))),
        };
        let note = match &answer {
            Err(why) => format!("{why}: all networks are used"),
            Ok(names) if advice.core.on_advice(Time::ZERO, names.clone()) => match &names[..] {
                [one] => format!("{one} is advised"),
                several => format!("{} are advised", several.join(" and ")),
            },
            Ok(names) => {
                let names = names.join(", ");
                format!("no advised network leads to the server ({names}): all networks are used")
            }
        };
        if answer.is_err() {
            advice.core.on_no_advice(Time::ZERO);
        }
        (advice, Some(note))
    }

    /// Whether another program is asked.
    pub(super) fn is_asked(&self) -> bool {
        self.core.is_asked()
    }

    /// When to call [`Advice::poll_question`] again.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.core.next_wakeup()
    }

    /// Asks if it is time to; `remaining` is the number of missing bytes, if it is known.
    pub(super) fn poll_question(&mut self, now: Time, remaining: Option<u64>) {
        let Some(advisor) = &self.advisor else { return };
        if !self.core.wants_advice(now, remaining) {
            return;
        }
        let request = AdviceRequest {
            host: self.host.clone(),
            remaining: remaining.map(Size::from_bytes),
            followed: self.core.followed(remaining),
        };
        let ask = Arc::clone(&advisor.ask);
        self.pending = Some(spawn_blocking(move || ask(&request)));
    }

    /// Returns the answer to the pending question; never ready without one. Cancel safe.
    pub(super) async fn next_answer(&mut self) -> Answer {
        let Some(pending) = &mut self.pending else { return std::future::pending().await };
        let answer = pending.await;
        self.pending = None;
        answer.unwrap_or_else(|_| Err(NoAdvice("the question has failed".to_owned())))
    }

    /// Takes an answer. Without advice, the paths in use stay.
    pub(super) fn on_answer(&mut self, now: Time, answer: Answer) {
        match answer {
            Ok(names) => {
                self.core.on_advice(now, names);
            }
            Err(why) => {
                tracing::debug!("the paths in use stay: {why}");
                self.core.on_no_advice(now);
            }
        }
    }

    pub(super) fn add_path(&mut self, name: &str) {
        self.core.add_path(name);
    }

    /// Notes that the interface of a path has appeared or disappeared.
    pub(super) fn set_present(&mut self, now: Time, path: usize, is_present: bool) {
        self.core.set_present(now, path, is_present);
    }

    pub(super) fn is_used(&self, path: usize) -> bool {
        self.core.is_used(path)
    }

    /// The next change of the used paths; `useful` is the number of useful bytes of a path.
    pub(super) fn poll(&mut self, useful: impl Fn(usize) -> u64) -> Option<PathUse> {
        self.core.poll(useful)
    }
}
