//! Which kind of device a flow belongs to: handheld or not, and its operating system.
//!
//! [`user_agent`], [`dhcp`] and [`ja4`] say what one text tells of a device, each a [`Sight`].
//! [`classify`](fn@classify) puts the sights of many flows together in the order of the campus
//! Wi-Fi paper (3.2): what a flow says itself, then what flows of the same address say at the same
//! time, then address pools that the user knows, then how the device asked for its address, then
//! how it begins to talk TLS. [`devices`] lists who was there.
//!
//! What cannot be told stays open. No device is followed from one address to another: one that
//! changes its hardware address is an address and a time span, never more.

mod agent;
mod classify;
mod fingerprint;
mod pools;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

pub use agent::{AGENT_LIMIT, user_agent};
pub use classify::{Class, Evidence, Finding, Flow, Lease, Pool, classify};
pub use fingerprint::{Tls, dhcp, ja4};
pub use pools::{POOL_LIMIT, PoolFault, PoolsError, pools};
pub use rows::{Device, Gaps, devices};

/// An operating system, or a family of them where its members look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum System {
    /// Of iPhones, iPods and iPads, so iPadOS too.
    Ios,
    /// Of Macs.
    MacOs,
    /// Of Apple's television boxes.
    TvOs,
    /// Of Apple's watches.
    WatchOs,
    /// One of Apple's, which one cannot be told.
    Apple,
    /// Android and what is made of it, as on Amazon's devices.
    Android,
    /// HarmonyOS.
    HarmonyOs,
    /// Windows on computers.
    Windows,
    /// Windows Phone, Windows Mobile and Windows CE.
    WindowsPhone,
    /// ChromeOS.
    ChromeOs,
    /// Any other Linux.
    Linux,
    /// FreeBSD, OpenBSD or NetBSD.
    Bsd,
    /// Blackberry's, up to version 10.
    BlackBerry,
    /// Symbian.
    Symbian,
    /// KaiOS.
    KaiOs,
    /// Tizen.
    Tizen,
    /// webOS on televisions.
    WebOs,
    /// Roku's.
    Roku,
    /// Of PlayStations.
    PlayStation,
    /// Of Xboxes.
    Xbox,
    /// Of Nintendo's consoles.
    Nintendo,
}

impl System {
    /// All of them.
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

    /// Its name in tables.
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

    /// What both may be, the more exact of the two. None when they contradict each other.
    pub fn agreed(self, other: Self) -> Option<Self> {
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

/// What one text tells of the device that sent it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    /// Whether it is one to hold in a hand while it is used: a phone, a tablet, a pod. Computers
    /// and televisions are not, and of a watch or a portable console it is left open.
    pub handheld: Option<bool>,
    /// Its operating system.
    pub system: Option<System>,
    /// The first two numbers of the system's version, where the text says the true one. Of
    /// [`System::Apple`] they are Darwin's, and of [`System::Windows`] NT's.
    pub version: Option<(u16, u16)>,
    /// It is a program that walks the web, which pretends to be devices.
    pub robot: bool,
    /// How far that may be believed, from 0 to 1: a judgement, not a measurement.
    pub confidence: f64,
}

impl Sight {
    /// What these sights of one flow say together. Where two contradict each other the point is
    /// left open, as behind a proxy; and what robots say counts only where there are only robots.
    pub fn agreed(sights: &[Self]) -> Option<Self> {
        let robot = sights.iter().all(|sight| sight.robot);
        let counted = || sights.iter().filter(|sight| sight.robot == robot);
        let system = unanimous(counted().filter_map(|sight| sight.system), System::agreed);
        let same_system = counted().filter(|sight| sight.system == system);
        Some(Self {
            handheld: unanimous(counted().filter_map(|sight| sight.handheld), same),
            system,
            version: unanimous(same_system.filter_map(|sight| sight.version), same),
            robot,
            confidence: counted().map(|sight| sight.confidence).reduce(f64::min)?,
        })
    }
}

/// What all of these say. None where two do not go together, or where there are none.
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
