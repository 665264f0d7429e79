//! A headless Chromium with an empty profile, driven by the Chrome DevTools Protocol over two pipes
//! that no other program can reach.
//!
//! A [`Browser`] has one page. [`Browser::send`] executes a command and returns its result,
//! [`Browser::post`] does not wait for it, [`Browser::event`] returns what happened on the page, and
//! [`Browser::evaluate`] runs a script in it. Dialogs of the page are dismissed. The processes of the
//! browser and its profile go with the value; the kernel and the closed pipe end the browser if this
//! process is killed.

mod command;
mod devtools;
mod messages;
mod proxy;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::path::plain;

pub use command::{Home, find, quiet_command};
pub use devtools::{Browser, Event, Options};
#[cfg(feature = "probe")]
pub(crate) use messages::Messages;
pub use proxy::{ProxiedConnection, Proxy};

/// Why a browser cannot be used, or no longer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// None of the usual names is in `PATH`.
    #[error("no Chromium is installed")]
    Missing,
    /// The file that the user named does not exist.
    #[error("there is no browser {}", .0.display())]
    NotFound(PathBuf),
    #[error("cannot start the browser {}: {error}", .0.display(), error = plain(.1))]
    Start(PathBuf, Arc<io::Error>),
    /// The browser was killed, or it ended by itself; with the last line that it printed.
    #[error("the browser has ended{}", .0.as_ref().map(|line| format!(": {line}")).unwrap_or_default())]
    Ended(Option<String>),
    /// The process of the page ended, for example because it had no memory left.
    #[error("the page has crashed the browser's process for it")]
    Crashed,
    /// There is no answer to a command.
    #[error("the browser does not answer")]
    Hung,
    /// The browser does not execute a command.
    #[error("the browser refuses {command}: {message}")]
    Refused { command: String, message: String },
    /// A script threw an exception.
    #[error("the script failed: {0}")]
    Script(String),
    /// The browser sent bytes that are not a message, or are too many.
    #[error("the browser sent {0}")]
    Invalid(String),
    /// Any other error of the system, with the action that failed.
    #[error("cannot {action}: {error}", error = plain(.error))]
    Io { action: &'static str, error: Arc<io::Error> },
}

impl BrowserError {
    fn io(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { action, error: Arc::new(error) }
    }

    /// The step that may help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("install the package chromium, or name a browser with --browser"),
            Self::NotFound(_) | Self::Start(..) => {
                Some("name the file of a Chromium or Chrome with --browser")
            }
            Self::Ended(Some(line)) if line.contains("sandbox") => {
                Some("let users make user namespaces, which the browser needs for its sandbox")
            }
            Self::Ended(_) | Self::Crashed | Self::Hung => {
                Some("the browser may lack memory; try it in a window")
            }
            Self::Invalid(_) | Self::Refused { .. } => Some("use a Chromium of this year"),
            Self::Script(_) | Self::Io { .. } => None,
        }
    }
}
