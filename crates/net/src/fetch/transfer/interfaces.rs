//! Paths that join, leave and change during a transfer.

use std::net::IpAddr;

use manyways_proto::fetch::{Input, MeteredUse, PathChange, PathId, PathUse};

use super::Transfer;
use crate::fetch::PathSpec;
use crate::fetch::report::Event;
use crate::fetch::worker::Command;

impl Transfer<'_> {
    /// Processes a list of the interfaces; `None` if they could not be listed.
    pub(super) fn on_list(&mut self, listed: Option<Vec<PathSpec>>) {
        let (now, sources) = (self.now(), self.sources());
        let paths = &self.client.paths;
        let changes = self.interfaces.compare(now, paths, &sources, listed.as_deref());
        for change in changes {
            self.on_path_change(change, listed.as_deref().unwrap_or_default());
        }
    }

    /// The local addresses of the paths' connections.
    fn sources(&self) -> Vec<Option<IpAddr>> {
        let paths = self.client.paths.iter().zip(self.timings.peers());
        paths.map(|(path, peer)| path.source(peer?.server.ip())).collect()
    }

    /// Executes a change of a path; `listed` contains the interfaces to which the change refers.
    pub(super) fn on_path_change(&mut self, change: PathChange, listed: &[PathSpec]) {
        let spec = |at: usize| listed.get(at).cloned();
        match change {
            PathChange::Gone { path } => {
                if self.advice.is_used(path) {
                    self.path_down(path);
                    self.report_path(path, "is gone");
                }
                self.advice.set_present(self.now(), path, false);
                self.apply_path_use("joined");
            }
            PathChange::Returned { path, listed } => {
                self.update_path(path, listed.and_then(spec));
                self.advice.set_present(self.now(), path, true);
                self.apply_path_use("is back");
            }
            PathChange::Renumbered { path, listed } if self.advice.is_used(path) => {
                self.path_down(path);
                self.update_path(path, spec(listed));
                self.path_up(path, "has another address");
            }
            PathChange::Renumbered { path, listed } => self.update_path(path, spec(listed)),
            PathChange::Updated { path, listed } => self.update_path(path, spec(listed)),
            PathChange::Joined { listed } => {
                let Some(spec) = spec(listed) else { return };
                if spec.metered && self.client.metered == MeteredUse::Forbidden {
                    return;
                }
                let path = self.client.paths.len();
                self.log.journal.add_path(&spec.name);
                self.advice.add_path(&spec.name);
                self.client.add_path(spec);
                self.timings.add_path();
                self.send(PathId(path), Command::Begin(self.mailbox.sender.clone()));
                self.apply_path_use("joined");
            }
        }
    }

    /// Begins and ends the use of paths; `words` report a beginning.
    pub(super) fn apply_path_use(&mut self, words: &str) {
        let now = self.now();
        while let Some(change) = {
            let core = &self.core;
            self.advice.poll(|path| core.stats(now, PathId(path)).useful)
        } {
            let (path, is_used) = match change {
                PathUse::Begins { path } => (path, true),
                PathUse::Ends { path } => (path, false),
            };
            if is_used {
                self.path_up(path, words);
            } else {
                self.path_down(path);
                self.report_path(path, "left as advised");
            }
            if self.advice.is_asked() {
                self.log.journal.on_use(now, PathId(path), is_used);
            }
        }
    }

    fn path_down(&mut self, path: usize) {
        self.core.handle(self.now(), Input::PathDown { path: PathId(path) });
    }

    fn path_up(&mut self, path: usize, words: &str) {
        let Some(spec) = self.client.paths.get(path) else { return };
        let (id, metered, known) = (PathId(path), spec.metered, spec.estimate);
        self.core.handle(self.now(), Input::PathUp { path: id, metered, known });
        self.report_path(path, words);
    }

    fn update_path(&mut self, path: usize, spec: Option<PathSpec>) {
        if let Some(updated) = spec.and_then(|spec| self.client.update_path(path, spec)) {
            self.send(PathId(path), Command::Path(updated));
        }
    }

    fn report_path(&mut self, path: usize, words: &str) {
        if let Some(path) = self.client.paths.get(path) {
            (self.log.on_event)(Event::Note(&format!("{} {words}", path.name)));
        }
    }
}
