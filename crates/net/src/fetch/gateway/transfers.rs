//! Transfers for the player: one object, or a part of it, in order.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap};
use manyways_proto::fetch::{Excerpt, FetchFailure, PathErrorKind};
use manyways_unit::{Rate, Size};
use tokio::sync::oneshot;

use super::super::location::Location;
use super::super::report::{Cause, Event, FetchError, ResponseHead};
use super::super::sink::{Body, SinkError};
use super::super::{Job, Report};
use super::ask::end_within;
use super::pool::Pool;
use super::{GatewayEvent, Shared};

/// How a transfer ended.
pub(super) type Outcome = Result<(), Failure>;

/// Why an object cannot be delivered.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// One sentence.
    pub(super) text: String,
    /// The head with which the server refused the object.
    pub(super) head: Option<Box<ResponseHead>>,
    /// Whether the server sent the whole object instead of a part.
    pub(super) ignores_ranges: bool,
}

impl Failure {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), head: None, ignores_ranges: false }
    }

    fn of(error: &FetchError, head: Option<ResponseHead>) -> Self {
        let kinds = |kinds: &[PathErrorKind]| match &error.cause {
            Cause::Refused(FetchFailure::NoPathLeft(faults), _) => {
                !faults.is_empty() && faults.iter().all(|(_, fault)| kinds.contains(&fault.kind))
            }
            _ => false,
        };
        let status = match &error.cause {
            Cause::Refused(FetchFailure::Status(status), _)
            | Cause::Refused(FetchFailure::RetryTooLate { status, .. }, _)
                if (400..600).contains(status) =>
            {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Cause::Refused(FetchFailure::IdleTimeout(_), _) => StatusCode::GATEWAY_TIMEOUT,
            _ if kinds(&[PathErrorKind::Forbidden]) => StatusCode::FORBIDDEN,
            _ if kinds(&[PathErrorKind::Stalled, PathErrorKind::Connect]) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            _ => StatusCode::BAD_GATEWAY,
        };
        let ignores_ranges = matches!(error.cause, Cause::Refused(FetchFailure::RangesIgnored, _));
        let head = head.map(Box::new);
        Self { status, text: error.to_string(), head, ignores_ranges }
    }

    /// Fields of the server's head that a refusal passes on.
    pub(super) fn field(&self, name: &header::HeaderName) -> Option<&header::HeaderValue> {
        self.head.as_ref()?.headers.get(name)
    }
}

/// A transfer whose object exists.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) head: ResponseHead,
    /// The first piece; `None` for an object without bytes.
    pub(super) first: Option<Bytes>,
    pub(super) body: Body,
    pub(super) outcome: oneshot::Receiver<Outcome>,
    pub(super) id: u64,
    pub(super) pool: Arc<Pool>,
}

/// Latest heads of a transfer.
#[derive(Debug, Default)]
struct Heads {
    description: Option<ResponseHead>,
    refusal: Option<ResponseHead>,
}

impl Shared {
    /// Begins the transfer of an object, and waits for its first byte.
    ///
    /// If the future is dropped, the transfer ends.
    pub(super) async fn begin(
        self: &Arc<Self>,
        location: &Location,
        excerpt: Option<Excerpt>,
    ) -> Result<Begun, Failure> {
        let is_typed = self.guard.is_typed(location.origin());
        let url = location.to_string();
        let size = self.expected_length(&url, excerpt);
        let job = Job::new(&url, "")
            .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.to_string()))?
            .size(size)
            .excerpt(excerpt)
            .foreign(!is_typed)
            .login(self.login.clone().filter(|_| is_typed));
        let busy = || {
            let text = "too many objects are fetched at the same time";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, text)
        };
        let ignores_ranges = self.ignores_ranges(location.origin());
        let pooled = self.pool.take(location.origin(), ignores_ranges).await.ok_or_else(busy)?;
        let id = pooled.id;
        let heads = Arc::new(Mutex::new(Heads::default()));
        let (body_sender, body) = oneshot::channel();
        let (outcome_sender, mut outcome) = oneshot::channel();
        let shared = Arc::clone(self);
        tokio::spawn({
            let heads = Arc::clone(&heads);
            async move { shared.run(pooled, job, heads, body_sender, outcome_sender).await }
        });
        let lost = || Failure::new(StatusCode::BAD_GATEWAY, "the transfer ended early");
        let mut body = body.await.map_err(|_| lost())?;
        let first = body.next().await;
        if first.is_none() {
            (&mut outcome).await.unwrap_or_else(|_| Err(lost()))?;
            // The outcome is read once more after the body.
            let (sender, again) = oneshot::channel();
            let _ = sender.send(Ok(()));
            outcome = again;
        }
        let mut heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
        let head = heads.description.take().ok_or_else(lost)?;
        self.guard.meet(head.location.origin());
        if let Some(total) = head.total {
            self.remember_size(&url, total);
        }
        Ok(Begun { head, first, body, outcome, id, pool: Arc::clone(&self.pool) })
    }

    /// Runs a transfer to its end.
    async fn run(
        self: Arc<Self>,
        mut pooled: super::pool::PooledClient,
        job: Job,
        heads: Arc<Mutex<Heads>>,
        body_sender: oneshot::Sender<Body>,
        outcome_sender: oneshot::Sender<Outcome>,
    ) {
        let mut rates: Vec<(String, Rate)> = Vec::new();
        let (id, location) = (pooled.id, job.location().clone());
        self.report(GatewayEvent::Begin { transfer: id, url: &location });
        let result = {
            let mut on_event = |event: Event<'_>| {
                match &event {
                    Event::Response(head) => {
                        let mut heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
                        let to = match head.is_description {
                            true => &mut heads.description,
                            false => &mut heads.refusal,
                        };
                        *to = Some((*head).clone());
                    }
                    Event::Progress(progress) => {
                        let paths = progress.paths.iter();
                        rates = paths.filter_map(|p| Some((p.name.clone(), p.rate?))).collect();
                    }
                    _ => {}
                }
                self.report(GatewayEvent::Transfer { transfer: id, event: &event });
            };
            let (body, transfer) =
                pooled.client.stream(&job, &mut on_event, std::future::pending());
            // If the player is gone, the transfer finds that its reader is.
            let _ = body_sender.send(body);
            transfer.await
        };
        let report: &Report = match &result {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        if report.ignores_ranges {
            self.note_ignored_ranges(location.origin());
        }
        self.pool.give_back(pooled, location.origin(), report, &rates);
        let is_read =
            !matches!(&result, Err(FetchError { cause: Cause::Sink(SinkError::ReaderClosed), .. }));
        self.report(GatewayEvent::End {
            transfer: id,
            report,
            rates: &rates,
            error: result.as_ref().err().filter(|_| is_read),
        });
        let refusal = heads.lock().unwrap_or_else(PoisonError::into_inner).refusal.take();
        let outcome = match &result {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::of(error, refusal)),
        };
        // The player may be gone.
        let _ = outcome_sender.send(outcome);
    }

    /// The length of a transfer, if it is known and may be used.
    fn expected_length(&self, url: &str, excerpt: Option<Excerpt>) -> Option<Size> {
        let total = self.size_of(url);
        let length = match excerpt {
            None => total?,
            Some(Excerpt { start, end }) => {
                let end = total.map_or(end, |total| Some(end_within(end, total)));
                end?.checked_sub(start)?
            }
        };
        Some(Size::from_bytes(length)).filter(|_| self.learn != super::Learn::None)
    }
}

/// The fields that a response has from the server.
pub(super) fn passed_on(
    headers: &HeaderMap,
) -> impl Iterator<Item = (header::HeaderName, header::HeaderValue)> {
    const PASSED: [header::HeaderName; 9] = [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CACHE_CONTROL,
        header::EXPIRES,
        header::AGE,
        header::DATE,
        header::ETAG,
        header::LAST_MODIFIED,
    ];
    PASSED.into_iter().flat_map(|name| {
        let values = headers.get_all(&name).iter().cloned().collect::<Vec<_>>();
        values.into_iter().map(move |value| (name.clone(), value))
    })
}
