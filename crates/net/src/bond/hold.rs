//! New connections that somebody holds back: those of some rules of the policy, as long as it says.
//!
//! Whoever does asks once over the control socket ([`Hold`]) and keeps the connection. Over it go, a
//! JSON value a line, its [`Wish`]es one way and what becomes of connections ([`Told`]) the other way.
//! When it ends, however that comes about, all that waits passes: nobody is held back by who is gone.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};

/// No connection is ever held back for longer: a day, and what it may take to let it go then.
const LONGEST: Duration = Duration::from_secs(86_400 + 60);
/// More connections do not wait: each of them is a descriptor.
const MOST_WAITING: usize = 1_000;
/// Who does not hear so much holds nothing back any more.
const UNHEARD: usize = 4_096;
/// The longest line of a wish.
const LINE: u64 = 4_096;

/// Somebody wants to hold connections back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The names of the rules whose connections can wait.
    pub rules: Vec<String>,
    /// None of them waits for longer, whatever is wished. At most a day and a minute.
    pub longest_seconds: f64,
}

/// What who holds back wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// Connections that begin from now on wait. At first they do not.
    Shut,
    /// All that wait pass, and so do new ones.
    Open,
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// One of these rules begins.
    Begins {
        /// It is held back; otherwise it passes at once.
        waits: bool,
    },
    /// One that was held back passes.
    Passes {
        /// It has waited for so long.
        seconds: f64,
    },
    /// The application of one that was held back has given up.
    GivesUp,
}

/// Why somebody may not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// There is one who does.
    #[error("another program holds back connections of this client already")]
    Taken,
    /// The policy has no such rule.
    #[error("the policy of this client has no rule named {name:?}")]
    Rule {
        /// What it is called.
        name: String,
        /// Those that it has.
        rules: Vec<String>,
    },
    /// No rule is named.
    #[error("it names no rule")]
    NoRule,
    /// It is no time.
    #[error("{0} is not for how long a connection can wait")]
    Longest(String),
}

impl HoldError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Rule { rules, .. } if rules.is_empty() => {
                Some("it has none: --policy of `manyways bond client` gives it some".to_owned())
            }
            Self::Rule { rules, .. } => Some(format!("it has: {}", rules.join(", "))),
            _ => None,
        }
    }
}

/// Where new connections pass; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Gate(Rc<RefCell<Option<Rc<Holder>>>>);

struct Holder {
    rules: BTreeSet<String>,
    longest: Duration,
    state: watch::Sender<State>,
    told: mpsc::Sender<Told>,
    /// It holds nothing back any more, though its connection may still be there.
    over: Notify,
}

#[derive(Clone, Copy, Default)]
struct State {
    is_shut: bool,
    /// How often it was opened: one that waits may wake only when it is shut again.
    opened: u64,
}

/// Somebody holds back; whatever waits passes when this is dropped.
pub struct Holding {
    gate: Gate,
    holder: Rc<Holder>,
    news: mpsc::Receiver<Told>,
}

impl Gate {
    /// From now on somebody holds back, where nobody does.
    pub(super) fn hold(&self, hold: &Hold) -> Result<Holding, HoldError> {
        if hold.rules.is_empty() {
            return Err(HoldError::NoRule);
        }
        let longest = Duration::try_from_secs_f64(hold.longest_seconds).ok();
        let longest = longest.filter(|longest| *longest <= LONGEST);
        let longest =
            longest.ok_or_else(|| HoldError::Longest(format!("{} s", hold.longest_seconds)))?;
        let mut present = self.0.borrow_mut();
        if present.is_some() {
            return Err(HoldError::Taken);
        }
        let (told, news) = mpsc::channel(UNHEARD);
        let holder = Rc::new(Holder {
            rules: hold.rules.iter().cloned().collect(),
            longest,
            state: watch::Sender::default(),
            told,
            over: Notify::new(),
        });
        *present = Some(Rc::clone(&holder));
        Ok(Holding { gate: self.clone(), holder, news })
    }

    /// Whether there is somebody who may hold something back.
    pub(super) fn is_held(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether a connection under this rule is to wait, which begins now, and for what.
    pub(super) fn begins(&self, rule: Option<&str>) -> Option<Waiting> {
        let holder = self.0.borrow().clone()?;
        rule.filter(|rule| holder.rules.contains(*rule))?;
        let state = holder.state.subscribe();
        // Those that wait have one as well.
        let is_full = holder.state.receiver_count() > MOST_WAITING;
        let (is_shut, opened) = (state.borrow().is_shut, state.borrow().opened);
        let waits = is_shut && !is_full;
        let hears = self.tell(&holder, Told::Begins { waits });
        let waiting = Waiting {
            gate: self.clone(),
            holder: Rc::downgrade(&holder),
            state,
            opened,
            longest: holder.longest,
        };
        (waits && hears).then_some(waiting)
    }

    /// Nobody holds back connections under other rules than these.
    pub(super) fn keep_to(&self, rules: &[String]) {
        let present = self.0.borrow().clone();
        if let Some(holder) = present
            && !holder.rules.iter().all(|rule| rules.contains(rule))
        {
            self.forget(&holder);
        }
    }

    /// Whether there is room for it.
    fn tell(&self, holder: &Rc<Holder>, told: Told) -> bool {
        let hears = holder.told.try_send(told).is_ok();
        if !hears && self.forget(holder) {
            tracing::warn!("who holds connections back does not listen: they pass");
        }
        hears
    }

    /// Whether it was not forgotten yet.
    fn forget(&self, holder: &Rc<Holder>) -> bool {
        let taken = self.0.borrow_mut().take_if(|present| Rc::ptr_eq(present, holder));
        if taken.is_none() {
            return false;
        }
        holder.state.send_modify(|state| {
            *state = State { is_shut: false, opened: state.opened + 1 };
        });
        holder.over.notify_one();
        true
    }
}

/// A connection that is held back.
pub(super) struct Waiting {
    gate: Gate,
    /// Not more, as it passes when nobody else has one.
    holder: Weak<Holder>,
    state: watch::Receiver<State>,
    opened: u64,
    longest: Duration,
}

impl Waiting {
    /// Until it may pass. False where the application has `gone` before.
    pub(super) async fn pass(mut self, gone: impl Future<Output = ()>) -> bool {
        let began = Instant::now();
        let opened = self.opened;
        let opens = self.state.wait_for(|state| state.opened != opened);
        let (has_gone, is_late) = tokio::select! {
            // Where who holds back is gone this ends as well.
            opened = timeout(self.longest, opens) => (false, opened.is_err()),
            () = gone => (true, false),
        };
        if let Some(holder) = self.holder.upgrade() {
            // It was to be let go before: who does not see to that does not hold back others.
            if is_late && self.gate.forget(&holder) {
                tracing::warn!("who holds connections back does not answer: they pass");
            }
            let seconds = began.elapsed().as_secs_f64();
            let told = if has_gone { Told::GivesUp } else { Told::Passes { seconds } };
            self.gate.tell(&holder, told);
        }
        !has_gone
    }
}

impl Holding {
    /// Does what is wished and tells what happens, until the other end hangs up, says what is no wish, or
    /// does not listen.
    pub(super) async fn serve(mut self, mut stream: UnixStream) -> io::Result<()> {
        let (read, mut write) = stream.split();
        let mut read = BufReader::new(read);
        let holder = &self.holder;
        let wishes = async {
            loop {
                let mut line = String::new();
                if (&mut read).take(LINE).read_line(&mut line).await? == 0 {
                    return io::Result::Ok(());
                }
                let wish = serde_json::from_str(&line)?;
                holder.state.send_modify(|state| match wish {
                    Wish::Shut => state.is_shut = true,
                    Wish::Open => {
                        state.is_shut = false;
                        state.opened += 1;
                    }
                });
            }
        };
        let news = &mut self.news;
        let tells = async {
            while let Some(told) = news.recv().await {
                let mut line = serde_json::to_vec(&told)?;
                line.push(b'\n');
                write.write_all(&line).await?;
            }
            io::Result::Ok(())
        };
        tokio::select! {
            end = wishes => end,
            end = tells => end,
            () = holder.over.notified() => Ok(()),
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.gate.forget(&self.holder);
    }
}

#[cfg(test)]
mod tests;
