//! Interfaces, and the start of a capture.

use std::io;
use std::sync::Arc;

use manyways_sys::capture::{Options, Ring};
use manyways_sys::interface::{self, Device};
use manyways_unit::Size;
use manyways_wire::capture::{Interface, LinkType};
use thiserror::Error;

use super::LiveCapture;

/// Name that stands for all interfaces.
const ANY_INTERFACE: &str = "any";

/// Interface and parameters of a live capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveInterface {
    /// Name of an interface, or `any` for all.
    pub name: String,
    /// Snap length in bytes.
    pub snap_length: u32,
    /// Size of the kernel's ring.
    pub buffer: Size,
    /// Capture packets for other hosts, too.
    pub promiscuous: bool,
}

impl LiveInterface {
    /// A snap length of 2048 bytes contains all headers and the longest hellos; the ring has 64 MiB.
    pub fn new(name: String) -> Self {
        Self { name, snap_length: 2_048, buffer: Size::from_mib(64), promiscuous: false }
    }
}

/// Reason why a capture cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The interface does not exist.
    #[error("there is no interface {name}")]
    Missing {
        name: String,
        /// Names of the existing interfaces.
        others: Vec<String>,
    },
    /// The process lacks the permission to capture.
    #[error("capturing packets is not allowed")]
    Forbidden,
    #[error("the interface {0} is down")]
    Down(String),
    /// Another error of the system.
    #[error("cannot capture on {name}: {error}")]
    System {
        /// Name of the interface.
        name: String,
        #[source]
        error: io::Error,
    },
}

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down,
    Removed,
}

impl LiveError {
    /// Hint for the user; `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { others, .. } => {
                Some(format!("the interfaces are: {}; `any` captures on all", others.join(", ")))
            }
            Self::Forbidden => Some(
                "run as root, or add the capability: \
                 sudo setcap cap_net_raw+ep \"$(command -v manyways)\""
                    .into(),
            ),
            Self::Down(name) => Some(format!("switch the interface on: ip link set {name} up")),
            Self::System { error, .. } if error.kind() == io::ErrorKind::OutOfMemory => {
                Some("use a smaller --buffer".into())
            }
            Self::System { .. } => None,
        }
    }
}

impl LiveCapture {
    /// Opens the interface and starts to capture.
    pub fn open(devices: &LiveInterface) -> Result<Self, LiveError> {
        let name = devices.name.clone();
        let system = |error| LiveError::System { name: name.clone(), error };
        let all = interface::devices().map_err(|error| system(io::Error::other(error)))?;
        let found = all.iter().find(|device| device.name == name);
        if found.is_none() && name != ANY_INTERFACE {
            let others = all.into_iter().map(|device| device.name).collect();
            return Err(LiveError::Missing { name, others });
        }
        if found.is_some_and(|device| !device.is_up) {
            return Err(LiveError::Down(name));
        }
        let index = found.map(|device| device.index);
        let link = found.and_then(|device| LinkType::from_hardware(device.hardware));
        let options = Options {
            interface: index,
            cooked: link.is_none(),
            snap_length: devices.snap_length,
            buffer: devices.buffer,
            promiscuous: devices.promiscuous,
        };
        let ring = Ring::open(&options).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LiveError::Forbidden,
            io::ErrorKind::NetworkDown => LiveError::Down(name.clone()),
            _ => system(error),
        })?;
        let link = link.unwrap_or(LinkType::SLL2);
        let interface =
            Interface { link, snap_length: devices.snap_length, name: name.clone(), dropped: 0 };
        Ok(Self { ring, name, index, interfaces: Arc::new([interface]) })
    }

    /// The current state of the interface.
    pub(super) fn state(&self) -> State {
        let same = |device: &&Device| Some(device.index) == self.index;
        let Some(all) = interface::devices().ok().filter(|_| self.index.is_some()) else {
            // Without an answer of the kernel, the interface counts as up.
            return State::Up;
        };
        match all.iter().find(same) {
            None => State::Removed,
            Some(device) if device.is_up => State::Up,
            Some(_) => State::Down,
        }
    }
}
