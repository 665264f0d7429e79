//! Execution of the core's outputs.

use std::sync::Arc;

use manyways_proto::fetch::{Note, Output, PathId, Range, RequestId, Validator};
use manyways_unit::Size;

use super::{RequestTemplate, Transfer, TransferEnd};
use crate::fetch::dial::MAX_WINDOW;
use crate::fetch::event::RequestOutcome;
use crate::fetch::exchange::Credit;
use crate::fetch::report::{Cause, Event};
use crate::fetch::sink::{Sink, SinkError};
use crate::fetch::worker::{Command, RequestParams};

impl Transfer<'_> {
    /// Executes the outputs of the core. Returns whether all bytes are written.
    pub(super) fn execute(&mut self, sink: &mut Sink) -> Result<bool, TransferEnd> {
        while let Some(output) = self.core.poll(self.now()) {
            match output {
                Output::Connect { path, window, connection_window } => {
                    let original = Arc::clone(&self.requests.original);
                    let (window, connection) =
                        (http2_window(window), http2_window(connection_window));
                    self.send(path, Command::Connect(original, window, connection));
                }
                Output::Disconnect { path } => self.send(path, Command::Disconnect),
                Output::ForgetRedirect { path } => self.send(path, Command::ForgetRedirect),
                Output::Window { path, bytes } => {
                    self.send(path, Command::Window(http2_window(bytes)));
                }
                Output::ConnectionWindow { path, bytes } => {
                    self.send(path, Command::ConnectionWindow(http2_window(bytes)));
                }
                Output::Ping { path } => self.send(path, Command::Ping),
                Output::Credit { request, bytes } => {
                    if let Some(path) = self.log.journal.path_of(request) {
                        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                        self.send(path, Command::Credit(request, bytes));
                    }
                }
                Output::Cut { request, end } => {
                    self.log.journal.on_cut(self.now(), request, end);
                }
                Output::Ended { request } => {
                    self.log.journal.on_request_end(self.now(), request, RequestOutcome::Finished);
                }
                Output::Request { request, path, range, if_range } => {
                    self.request(request, path, range, if_range);
                }
                Output::Check { request, path, range, if_range } => {
                    self.request(request, path, Some(range), Some(if_range));
                }
                Output::Cancel { request } => self.cancel(request),
                Output::Write { offset: at, skip, length, .. } => {
                    self.write(sink, at, skip, length)?
                }
                Output::Restart => {
                    sink.restart()?;
                    self.earlier_run.bytes = 0;
                    self.checkpoints.core.on_restart();
                }
                Output::LengthKnown(length) => {
                    if let Some(length) = length {
                        let fetched = self.client.config.stop_after.unwrap_or(length).min(length);
                        let done = Size::from_bytes(self.core.done().total());
                        sink.check_space(Size::from_bytes(fetched), done)?;
                    }
                    if sink.begin()? {
                        self.report_replaced_download();
                    }
                    // From now on a killed run leaves a download that can be continued.
                    self.checkpoints.core.on_object_known(self.now());
                }
                Output::Note(note) => self.report_note(&note),
                Output::Done => return Ok(true),
                Output::Failed(reason) => return Err(Cause::Refused(reason, self.names()).into()),
            }
        }
        Ok(false)
    }

    fn request(
        &mut self,
        request: RequestId,
        path: PathId,
        range: Option<Range>,
        if_range: Option<Validator>,
    ) {
        let now = self.now();
        self.timings.on_request(path, now);
        let expected = self.core.expected_delay(request);
        self.log.journal.on_request(now, request, path, range, expected);
        let ask = RequestParams { range, if_range, ..self.requests.request(self, request) };
        self.send(path, Command::Request(ask));
    }

    /// Writes a part of the latest piece.
    fn write(&self, sink: &mut Sink, at: u64, skip: u64, length: u64) -> Result<(), SinkError> {
        let from = usize::try_from(skip).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = self.piece.get(from..from.saturating_add(length));
        sink.write(at, bytes.unwrap_or_default())
    }

    pub(super) fn send(&self, path: PathId, command: Command) {
        if let Some(worker) = self.client.workers.get(path.0) {
            // A worker ends only with its client.
            let _ = worker.send(command);
        }
    }

    fn cancel(&mut self, request: RequestId) {
        if let Some(path) = self.log.journal.path_of(request) {
            self.send(path, Command::Cancel(request));
        }
        self.log.journal.on_cancelled(self.now(), request);
    }

    fn names(&self) -> Vec<String> {
        self.client.paths.iter().map(|path| path.name.clone()).collect()
    }

    fn report_note(&mut self, note: &Note) {
        let text = match note {
            Note::Dropped { path, error: fault } => match self.client.paths.get(path.0) {
                Some(spec) => format!("{} is no longer used: {fault}", spec.name),
                None => note.to_string(),
            },
            Note::Idle { paths, .. } if !paths.is_empty() => {
                let specs = paths.iter().filter_map(|path| self.client.paths.get(path.0));
                let names: Vec<&str> = specs.map(|spec| spec.name.as_str()).collect();
                format!("{note} for data over {}", names.join(" or "))
            }
            _ => note.to_string(),
        };
        (self.log.on_event)(Event::Note(&text));
    }

    fn report_replaced_download(&mut self) {
        let target = self.job.output.display();
        let text = match &self.earlier_run.replaced {
            Some(older) if older.may_be_of(&self.job.location) => format!(
                "an unfinished download of {target} ({} of {}) is discarded; \
                 -c would have continued it",
                Size::from_bytes(older.done.total()),
                Size::from_bytes(older.length)
            ),
            Some(older) => {
                format!("an unfinished download of {} to {target} is discarded", older.url)
            }
            None => format!("an unfinished download of {target} is discarded"),
        };
        (self.log.on_event)(Event::Note(&text));
    }
}

impl RequestTemplate {
    /// A plain GET.
    fn request(&self, transfer: &Transfer<'_>, request: RequestId) -> RequestParams {
        RequestParams {
            request,
            location: Arc::clone(&self.original),
            headers: Arc::clone(&self.headers),
            private_headers: Arc::clone(&transfer.client.private_headers),
            original: Arc::clone(&self.original),
            range: None,
            if_range: None,
            credit: if self.is_read_limited { Credit::limited() } else { Credit::default() },
        }
    }
}

fn http2_window(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(MAX_WINDOW).min(MAX_WINDOW)
}
