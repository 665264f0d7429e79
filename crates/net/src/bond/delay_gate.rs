//! The delay gate of a client, and the connection of the program that owns it.
//!
//! The program sends one [`DelayRequest`] over the control socket and keeps the connection. From
//! then on the connection carries one JSON value per line: [`GateCommand`]s from the program and
//! [`GateEvent`]s to it. When the connection ends, all delayed connections are released.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::rc::Rc;

use manyways_proto::bond::delay_gate::{
    Config, DelayError, DelayGate, DelayedId, Event, Input, LossReason, Output, OwnerId,
};
use manyways_sys::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, oneshot};

use super::timer;

/// Maximum unread events of an owner. With one more, the owner loses the gate.
const MAX_UNREAD_EVENTS: usize = 4_096;
/// Maximum length of a command's line, in bytes.
const MAX_LINE: u64 = 4_096;

/// A request to delay connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DelayRequest {
    /// Names of the rules whose connections can wait.
    pub rules: Vec<String>,
    /// Maximum delay of a connection, whatever the commands; at most 86 460 s.
    pub max_delay_seconds: f64,
}

/// A command of the gate's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateCommand {
    /// Delays connections that begin from now on. At first the gate is open.
    Close,
    /// Releases all delayed connections, and lets new ones pass.
    Open,
}

/// An event for the gate's owner.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateEvent {
    /// A connection of one of the owner's rules begins.
    Started {
        /// If false, the connection passes at once.
        is_delayed: bool,
    },
    /// A delayed connection is released.
    Released { waited_seconds: f64 },
    /// The application of a delayed connection has given up.
    Abandoned,
}

impl From<Event> for GateEvent {
    fn from(event: Event) -> Self {
        match event {
            Event::Started { is_delayed } => Self::Started { is_delayed },
            Event::Released { waited } => Self::Released { waited_seconds: waited.as_secs_f64() },
            Event::Abandoned => Self::Abandoned,
        }
    }
}

/// The delay gate of a client; cheap to clone.
#[derive(Clone)]
pub(super) struct Gate(Rc<Inner>);

struct Inner {
    clock: Clock,
    core: RefCell<DelayGate>,
    owner: RefCell<Option<Owner>>,
    delayed: RefCell<HashMap<DelayedId, oneshot::Sender<()>>>,
}

struct Owner {
    id: OwnerId,
    events: mpsc::Sender<GateEvent>,
    /// Notified when the owner loses the gate.
    revoked: Rc<Notify>,
}

/// The ownership of the delay gate. All delayed connections are released when this is dropped.
pub struct DelayGrant {
    gate: Gate,
    owner: OwnerId,
    events: mpsc::Receiver<GateEvent>,
    revoked: Rc<Notify>,
    /// Those of the owner's rules whose connections bypass the bond.
    pub(super) direct_rules: Vec<String>,
}

/// A delayed connection.
pub(super) struct DelayedConnection {
    gate: Gate,
    id: DelayedId,
    released: oneshot::Receiver<()>,
}

impl Gate {
    pub(super) fn new(clock: Clock) -> Self {
        Self(Rc::new(Inner {
            clock,
            core: RefCell::new(DelayGate::new(Config::default())),
            owner: RefCell::default(),
            delayed: RefCell::default(),
        }))
    }

    /// Gives the gate to a program. `known` are the names of the policy's rules.
    pub(super) fn acquire(
        &self,
        request: &DelayRequest,
        known: &[String],
    ) -> Result<DelayGrant, DelayError> {
        let (rules, max) = (&request.rules, request.max_delay_seconds);
        let id = self.0.core.borrow_mut().acquire(rules, max, known)?;
        let (sender, events) = mpsc::channel(MAX_UNREAD_EVENTS);
        let revoked = Rc::new(Notify::new());
        let owner = Owner { id, events: sender, revoked: Rc::clone(&revoked) };
        self.0.owner.replace(Some(owner));
        let direct_rules = Vec::new();
        Ok(DelayGrant { gate: self.clone(), owner: id, events, revoked, direct_rules })
    }

    pub(super) fn is_owned(&self) -> bool {
        self.0.core.borrow().is_owned()
    }

    /// Reports a new connection under a rule. Returns `Some` if the connection must wait.
    pub(super) fn on_connection(&self, rule: Option<&str>) -> Option<DelayedConnection> {
        let id = self.0.core.borrow_mut().on_connection(self.0.clock.now(), rule);
        let delayed = id.map(|id| {
            let (sender, released) = oneshot::channel();
            self.0.delayed.borrow_mut().insert(id, sender);
            DelayedConnection { gate: self.clone(), id, released }
        });
        self.pump();
        delayed
    }

    /// Sets the names of the policy's rules. An owner that named a removed rule loses the gate.
    pub(super) fn retain_rules(&self, rules: &[String]) {
        self.0.core.borrow_mut().retain_rules(self.0.clock.now(), rules);
        self.pump();
    }

    fn handle(&self, input: Input) {
        self.0.core.borrow_mut().handle(self.0.clock.now(), input);
        self.pump();
    }

    fn pump(&self) {
        loop {
            let output = self.0.core.borrow_mut().poll(self.0.clock.now());
            match output {
                None => break,
                Some(Output::Release(id)) => {
                    if let Some(sender) = self.0.delayed.borrow_mut().remove(&id) {
                        let _ = sender.send(());
                    }
                }
                Some(Output::Event(id, event)) => {
                    let owner = self.0.owner.borrow();
                    let owner = owner.as_ref().filter(|owner| owner.id == id);
                    if owner.is_some_and(|owner| owner.events.try_send(event.into()).is_err()) {
                        let now = self.0.clock.now();
                        self.0.core.borrow_mut().handle(now, Input::Unread(id));
                    }
                }
                Some(Output::Revoke(id, reason)) => {
                    if reason != LossReason::RuleGone {
                        tracing::warn!(
                            "a program (such as `radio control`) may no longer delay connections, because \
                             {reason}: delayed connections are released"
                        );
                    }
                    let owner = self.0.owner.borrow_mut().take_if(|owner| owner.id == id);
                    if let Some(owner) = owner {
                        owner.revoked.notify_one();
                    }
                }
            }
        }
    }
}

impl DelayedConnection {
    /// Waits until the connection is released. Returns false if `gone` is ready first.
    pub(super) async fn wait(mut self, gone: impl Future<Output = ()>) -> bool {
        let mut gone = std::pin::pin!(gone);
        loop {
            let wakeup = self.gate.0.core.borrow().next_wakeup();
            tokio::select! {
                // The gate drops a sender only after it has used the sender.
                _ = &mut self.released => return true,
                () = &mut gone => {
                    self.gate.handle(Input::Abandoned(self.id));
                    return false;
                }
                () = timer::until(&self.gate.0.clock, wakeup) => self.gate.pump(),
            }
        }
    }
}

impl Drop for DelayedConnection {
    fn drop(&mut self) {
        if self.gate.0.delayed.borrow_mut().remove(&self.id).is_some() {
            self.gate.handle(Input::Abandoned(self.id));
        }
    }
}

impl DelayGrant {
    /// Executes commands and sends events until the connection ends, a command is invalid, or the
    /// owner loses the gate.
    pub(super) async fn serve(mut self, mut stream: UnixStream) -> io::Result<()> {
        let (read, mut write) = stream.split();
        let mut read = BufReader::new(read);
        let (gate, owner) = (&self.gate, self.owner);
        let commands = async {
            loop {
                let mut line = String::new();
                if (&mut read).take(MAX_LINE).read_line(&mut line).await? == 0 {
                    return io::Result::Ok(());
                }
                gate.handle(match serde_json::from_str(&line)? {
                    GateCommand::Close => Input::Close(owner),
                    GateCommand::Open => Input::Open(owner),
                });
            }
        };
        let events = &mut self.events;
        let tells = async {
            while let Some(event) = events.recv().await {
                let mut line = serde_json::to_vec(&event)?;
                line.push(b'\n');
                write.write_all(&line).await?;
            }
            io::Result::Ok(())
        };
        tokio::select! {
            end = commands => end,
            end = tells => end,
            () = self.revoked.notified() => Ok(()),
        }
    }
}

impl Drop for DelayGrant {
    fn drop(&mut self) {
        self.gate.handle(Input::Left(self.owner));
        self.gate.0.owner.borrow_mut().take_if(|owner| owner.id == self.owner);
    }
}

#[cfg(test)]
mod tests;
