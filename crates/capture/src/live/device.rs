//! What can be captured on, and how that begins.

use std::io;
use std::sync::Arc;

use manyways_sys::capture::{Options, Ring};
use manyways_sys::interface::{self, Device};
use manyways_unit::Size;
use manyways_wire::capture::{Interface, LinkType};
use thiserror::Error;

use super::Live;

/// What stands for all interfaces.
const ANY: &str = "any";

/// What to capture on.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The name of an interface, or `any` for all.
    pub name: String,
    /// The most bytes that are kept of a packet.
    pub snap: u32,
    /// What the kernel may hold of what was not looked at yet.
    pub buffer: Size,
    /// Take what is for others as well.
    pub promiscuous: bool,
}

/// Why a capture does not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no such interface.
    #[error("there is no interface {name}")]
    Missing {
        /// Which.
        name: String,
        /// Those that there are.
        others: Vec<String>,
    },
    /// This process may not capture.
    #[error("capturing packets is not allowed")]
    Forbidden,
    /// The interface is switched off.
    #[error("the interface {0} is down")]
    Down(String),
    /// The system refuses for another reason.
    #[error("cannot capture on {name}: {error}")]
    System {
        /// Where.
        name: String,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down,
    Gone,
}

impl LiveError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { others, .. } => {
                Some(format!("there are: {}, and any for all of them", others.join(", ")))
            }
            Self::Forbidden => Some(
                "run it as root, or give the program the right to: \
                 sudo setcap cap_net_raw+ep \"$(command -v manyways)\""
                    .into(),
            ),
            Self::Down(name) => Some(format!("switch it on: ip link set {name} up")),
            Self::System { error, .. } if error.kind() == io::ErrorKind::OutOfMemory => {
                Some("take a smaller --buffer".into())
            }
            Self::System { .. } => None,
        }
    }
}

impl Live {
    /// Begins to capture.
    pub fn open(devices: &Devices) -> Result<Self, LiveError> {
        let name = devices.name.clone();
        let system = |error| LiveError::System { name: name.clone(), error };
        let all = interface::devices().map_err(|error| system(io::Error::other(error)))?;
        let found = all.iter().find(|device| device.name == name);
        if found.is_none() && name != ANY {
            let others = all.into_iter().map(|device| device.name).collect();
            return Err(LiveError::Missing { name, others });
        }
        if found.is_some_and(|device| !device.is_up) {
            return Err(LiveError::Down(name));
        }
        let index = found.map(|device| device.index);
        let link = found.and_then(|device| LinkType::of_device(device.hardware));
        let options = Options {
            interface: index,
            cooked: link.is_none(),
            snap: devices.snap,
            buffer: devices.buffer,
            promiscuous: devices.promiscuous,
        };
        let ring = Ring::open(&options).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LiveError::Forbidden,
            io::ErrorKind::NetworkDown => LiveError::Down(name.clone()),
            _ => system(error),
        })?;
        let link = link.unwrap_or(LinkType::SLL2);
        let interface = Interface { link, snap: devices.snap, name: name.clone(), lost: 0 };
        Ok(Self { ring, name, index, interfaces: Arc::new([interface]) })
    }

    /// How the interface is.
    pub(super) fn state(&self) -> State {
        let same = |device: &&Device| Some(device.index) == self.index;
        let Some(all) = interface::devices().ok().filter(|_| self.index.is_some()) else {
            // Where the kernel does not say, nothing is known to be wrong.
            return State::Up;
        };
        match all.iter().find(same) {
            None => State::Gone,
            Some(device) if device.is_up => State::Up,
            Some(_) => State::Down,
        }
    }
}
