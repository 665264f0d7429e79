//! Which kind of device a flow belongs to: handheld or not, and its operating system.
//!
//! [`user_agent`], [`dhcp`] and [`ja4`] derive a [`DeviceProperties`] of the device from one text.
//! [`classify`](fn@classify) combines the properties from many flows in the order of the campus
//! Wi-Fi paper (3.2): evidence from the flow itself, from flows of the same address at the same
//! time, from address pools that the user lists, from the DHCP request for the address, and from
//! the TLS ClientHello. [`devices`] lists the devices of a capture.
//!
//! Unknown properties remain `None`. A device is not followed from one address to another: a device
//! that changes its hardware address appears as several addresses, each with its time span.

mod agent;
mod classify;
mod fingerprint;
mod pools;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

pub use agent::{MAX_AGENT_LEN, user_agent};
pub use classify::{Classification, Evidence, Finding, Flow, Lease, Pool, classify};
pub use fingerprint::{TlsClient, dhcp, ja4};
pub use pools::{MAX_POOLS, PoolsError, PoolsErrorKind, pools};
pub use rows::{Device, Gaps, devices};

/// An operating system, or a family of them where its members look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum System {
    /// iOS and iPadOS: iPhones, iPods and iPads.
    Ios,
    /// macOS.
    MacOs,
    /// tvOS: Apple TV.
    TvOs,
    /// watchOS: Apple Watch.
    WatchOs,
    /// An unknown system of Apple.
    Apple,
    /// Android and its derivatives, such as Fire OS.
    Android,
    HarmonyOs,
    /// Windows on computers.
    Windows,
    /// Windows Phone, Windows Mobile and Windows CE.
    WindowsPhone,
    ChromeOs,
    /// Any other Linux.
    Linux,
    /// FreeBSD, OpenBSD or NetBSD.
    Bsd,
    /// BlackBerry OS and BlackBerry 10.
    BlackBerry,
    Symbian,
    KaiOs,
    Tizen,
    /// webOS on televisions.
    WebOs,
    /// Roku OS.
    Roku,
    /// System of a PlayStation.
    PlayStation,
    /// System of an Xbox.
    Xbox,
    /// System of a console of Nintendo.
    Nintendo,
}

impl System {
    pub const ALL: [Self; 21] = [
        Self::Ios,
        Self::MacOs,
        Self::TvOs,
        Self::WatchOs,
        Self::Apple,
        Self::Android,
        Self::HarmonyOs,
        Self::Windows,
        Self::WindowsPhone,
        Self::ChromeOs,
        Self::Linux,
        Self::Bsd,
        Self::BlackBerry,
        Self::Symbian,
        Self::KaiOs,
        Self::Tizen,
        Self::WebOs,
        Self::Roku,
        Self::PlayStation,
        Self::Xbox,
        Self::Nintendo,
    ];

    /// Returns the value of table columns for this system.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ios => "ios",
            Self::MacOs => "macos",
            Self::TvOs => "tvos",
            Self::WatchOs => "watchos",
            Self::Apple => "apple",
            Self::Android => "android",
            Self::HarmonyOs => "harmonyos",
            Self::Windows => "windows",
            Self::WindowsPhone => "windows-phone",
            Self::ChromeOs => "chromeos",
            Self::Linux => "linux",
            Self::Bsd => "bsd",
            Self::BlackBerry => "blackberry",
            Self::Symbian => "symbian",
            Self::KaiOs => "kaios",
            Self::Tizen => "tizen",
            Self::WebOs => "webos",
            Self::Roku => "roku",
            Self::PlayStation => "playstation",
            Self::Xbox => "xbox",
            Self::Nintendo => "nintendo",
        }
    }

    /// Returns the more specific of two systems. `None` if they contradict each other.
    pub fn combine(self, other: Self) -> Option<Self> {
        let of_apple = |system| {
            matches!(system, Self::Ios | Self::MacOs | Self::TvOs | Self::WatchOs | Self::Apple)
        };
        match (self, other) {
            _ if self == other => Some(self),
            (Self::Apple, exact) | (exact, Self::Apple) if of_apple(exact) => Some(exact),
            _ => None,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Properties of a device, derived from one text that the device sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceProperties {
    /// Whether the device is held in a hand in use: phones, tablets and music players are;
    /// computers and televisions are not. `None` if unknown, and for watches and portable consoles.
    pub handheld: Option<bool>,
    pub system: Option<System>,
    /// The first two numbers of the system's version; Darwin's version for [`System::Apple`], NT's
    /// for [`System::Windows`]. `None` if the text has no true version.
    pub version: Option<(u16, u16)>,
    /// Whether the sender is a web crawler, which imitates devices.
    pub robot: bool,
    /// Confidence in the other fields, from 0 to 1: an estimate, not a measurement.
    pub confidence: f64,
}

impl DeviceProperties {
    /// Combines the properties from several texts of one flow. A contradictory property is `None`,
    /// because several devices may share a proxy. Texts of robots count only if all texts are of
    /// robots. `None` without any text.
    pub fn combine(all: &[Self]) -> Option<Self> {
        let robot = all.iter().all(|one| one.robot);
        let counted = || all.iter().filter(|one| one.robot == robot);
        let system = unanimous(counted().filter_map(|one| one.system), System::combine);
        let same_system = counted().filter(|one| one.system == system);
        Some(Self {
            handheld: unanimous(counted().filter_map(|one| one.handheld), same),
            system,
            version: unanimous(same_system.filter_map(|one| one.version), same),
            robot,
            confidence: counted().map(|one| one.confidence).reduce(f64::min)?,
        })
    }
}

/// Reduces the values with `agreed`. `None` if two values contradict each other, or if there are no
/// values.
fn unanimous<T>(
    mut said: impl Iterator<Item = T>,
    agreed: impl Fn(T, T) -> Option<T>,
) -> Option<T> {
    let first = said.next()?;
    said.try_fold(first, agreed)
}

fn same<T: PartialEq>(one: T, other: T) -> Option<T> {
    (one == other).then_some(one)
}
