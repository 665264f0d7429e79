//! Which paths have a working interface while a fetch runs: links whose carrier is lost and
//! regained, and interfaces that appear, disappear or change their addresses.
//!
//! ```text
//! Present ──without a carrier, or unlisted, twice in a row──▶ Gone ──both are back──▶ Present
//! ```

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::Pacer;

/// Intervals and limits of the watch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WatchConfig {
    /// Interval between readings of the link carriers.
    pub carrier_interval: Span,
    /// Interval between two lists of the host's interfaces.
    pub list_interval: Span,
    /// Consecutive readings without an interface after which its path counts as gone. One list may
    /// be incomplete while interfaces change.
    pub max_missed: u8,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            carrier_interval: Span::from_millis(100),
            list_interval: Span::from_secs(1),
            max_missed: 2,
        }
    }
}

/// Whether the shell can list the host's interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// The shell cannot: a path is back when its link has a carrier.
    Unavailable,
    /// The shell can: a path is back when its interface is listed and its link has a carrier.
    Available,
}

/// An interface in a list.
#[derive(Clone, Copy, Debug)]
pub struct ListedInterface<'a> {
    /// The name of the path over this interface.
    pub name: &'a str,
    pub addresses: &'a [IpAddr],
    pub metered: bool,
}

/// A path of the fetch.
#[derive(Clone, Copy, Debug)]
pub struct WatchedPath<'a> {
    /// The interface in the latest list that had it.
    pub interface: ListedInterface<'a>,
    /// Whether the path is bound to an interface; other paths never change.
    pub has_device: bool,
    /// Local address of the path's connection; `None` without a connection.
    pub source: Option<IpAddr>,
}

/// A difference between the paths of a fetch and the host's interfaces. Paths are numbered in the
/// order in which they were added; `listed` is an index of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// The path's interface has disappeared.
    Gone { path: usize },
    /// The path's interface has reappeared.
    Returned {
        path: usize,
        /// Its current interface; `None` if the shell cannot list interfaces.
        listed: Option<usize>,
    },
    /// The local address of the path's connection no longer belongs to the interface.
    Renumbered { path: usize, listed: usize },
    /// The interface has changed, but the connection can continue.
    Updated { path: usize, listed: usize },
    /// A new interface, which is not a path yet.
    Joined { listed: usize },
}

/// Decides when to list the interfaces again, and which paths were added or removed.
#[derive(Debug)]
pub struct InterfaceWatch {
    config: WatchConfig,
    listing: Listing,
    paths: Vec<PathPresence>,
    carriers: Pacer,
    /// When the next list is due; `None` while one is being made.
    list_at: Option<Time>,
}

/// Consecutive readings and state of a path.
#[derive(Clone, Copy, Default, Debug)]
struct PathPresence {
    state: State,
    /// Consecutive readings without a carrier.
    without_carrier: u8,
    /// Consecutive lists without the interface.
    unlisted: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Present,
    Gone,
}

impl PathPresence {
    /// Marks the path as gone. Returns whether it was present before.
    fn mark_gone(&mut self) -> bool {
        std::mem::replace(&mut self.state, State::Gone) == State::Present
    }
}

impl InterfaceWatch {
    /// Creates a watch whose paths are all present.
    pub fn new(now: Time, config: WatchConfig, listing: Listing) -> Self {
        let carriers = Pacer::new(now, config.carrier_interval);
        let list_at = Some(now + config.list_interval);
        Self { config, listing, paths: Vec::new(), carriers, list_at }
    }

    /// Whether the carriers are to be read, for [`InterfaceWatch::on_carriers`].
    pub fn wants_carriers(&mut self, now: Time) -> bool {
        self.carriers.take_due(now)
    }

    /// Whether the interfaces are to be listed, for [`InterfaceWatch::on_list`] or
    /// [`InterfaceWatch::on_list_failed`]. Only one list is made at a time.
    pub fn wants_list(&mut self, now: Time) -> bool {
        let is_due = self.listing == Listing::Available && self.list_at.is_some_and(|at| at <= now);
        if is_due {
            self.list_at = None;
        }
        is_due
    }

    /// When to call `wants_carriers` and `wants_list` again.
    pub fn next_wakeup(&self) -> Time {
        let list_at = self.list_at.filter(|_| self.listing == Listing::Available);
        list_at.map_or(self.carriers.next_wakeup(), |at| at.min(self.carriers.next_wakeup()))
    }

    /// Takes the carriers of the paths' links, in the order of the paths.
    pub fn on_carriers(&mut self, carriers: impl IntoIterator<Item = bool>) -> Vec<PathChange> {
        let mut changes = Vec::new();
        for (path, has_carrier) in carriers.into_iter().enumerate() {
            let max_missed = self.config.max_missed;
            let listing = self.listing;
            let presence = self.presence(path);
            if !has_carrier {
                presence.without_carrier = presence.without_carrier.saturating_add(1);
                if presence.without_carrier >= max_missed && presence.mark_gone() {
                    changes.push(PathChange::Gone { path });
                }
                continue;
            }
            presence.without_carrier = 0;
            // A link has a carrier before it has an address; a list shows both.
            if presence.state == State::Gone && listing == Listing::Unavailable {
                presence.state = State::Present;
                changes.push(PathChange::Returned { path, listed: None });
            }
        }
        changes
    }

    /// Notes that the interfaces could not be listed.
    pub fn on_list_failed(&mut self, now: Time) {
        self.list_at = Some(now + self.config.list_interval);
    }

    /// Compares the paths with the interfaces of the host.
    pub fn on_list(
        &mut self,
        now: Time,
        paths: &[WatchedPath<'_>],
        listed: &[ListedInterface<'_>],
    ) -> Vec<PathChange> {
        self.list_at = Some(now + self.config.list_interval);
        let mut changes = Vec::new();
        for (path, watched) in paths.iter().enumerate().filter(|(_, path)| path.has_device) {
            let name = watched.interface.name;
            let found = listed.iter().enumerate().find(|(_, listed)| listed.name == name);
            changes.extend(self.compare(path, watched, found));
        }
        let is_path = |name: &str| paths.iter().any(|path| path.interface.name == name);
        let joined = listed.iter().enumerate().filter(|(_, listed)| !is_path(listed.name));
        changes.extend(joined.map(|(listed, _)| PathChange::Joined { listed }));
        changes
    }

    fn compare(
        &mut self,
        path: usize,
        watched: &WatchedPath<'_>,
        found: Option<(usize, &ListedInterface<'_>)>,
    ) -> Option<PathChange> {
        let max_missed = self.config.max_missed;
        let presence = self.presence(path);
        let Some((listed, interface)) = found else {
            presence.unlisted = presence.unlisted.saturating_add(1);
            let is_missing = presence.unlisted >= max_missed;
            return (is_missing && presence.mark_gone()).then_some(PathChange::Gone { path });
        };
        presence.unlisted = 0;
        let before = &watched.interface;
        if presence.state == State::Gone {
            // The list may be older than the latest reading of the carrier.
            if presence.without_carrier > 0 {
                return None;
            }
            presence.state = State::Present;
            Some(PathChange::Returned { path, listed: Some(listed) })
        } else if watched.source.is_some_and(|source| !interface.addresses.contains(&source)) {
            Some(PathChange::Renumbered { path, listed })
        } else if interface.addresses != before.addresses || interface.metered != before.metered {
            Some(PathChange::Updated { path, listed })
        } else {
            None
        }
    }

    fn presence(&mut self, path: usize) -> &mut PathPresence {
        if self.paths.len() <= path {
            self.paths.resize_with(path + 1, PathPresence::default);
        }
        &mut self.paths[path]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn watch(listing: Listing) -> InterfaceWatch {
        InterfaceWatch::new(Time::ZERO, WatchConfig::default(), listing)
    }

    fn listed<'a>(name: &'a str, addresses: &'a [IpAddr]) -> ListedInterface<'a> {
        ListedInterface { name, addresses, metered: false }
    }

    fn path<'a>(name: &'a str, addresses: &'a [IpAddr]) -> WatchedPath<'a> {
        WatchedPath { interface: listed(name, addresses), has_device: true, source: None }
    }

    #[test]
    fn a_link_that_is_down_twice_is_gone_until_it_has_a_carrier() {
        let mut watch = watch(Listing::Unavailable);
        assert_eq!(watch.on_carriers([true, false]), []);
        assert_eq!(watch.on_carriers([true, true]), []);
        assert_eq!(watch.on_carriers([true, false]), []);
        assert_eq!(watch.on_carriers([true, false]), [PathChange::Gone { path: 1 }]);
        assert_eq!(watch.on_carriers([true, false]), []);
        let back = PathChange::Returned { path: 1, listed: None };
        assert_eq!(watch.on_carriers([true, true]), [back]);
    }

    #[test]
    fn with_a_list_a_path_is_back_when_it_is_listed_with_a_carrier() {
        let mut watch = watch(Listing::Available);
        let (paths, list) = ([path("wifi", &[ONE])], [listed("wifi", &[TWO])]);
        watch.on_carriers([false]);
        assert_eq!(watch.on_carriers([false]), [PathChange::Gone { path: 0 }]);
        assert_eq!(watch.on_list(Time::ZERO, &paths, &list), []);
        assert_eq!(watch.on_carriers([true]), []);
        let back = PathChange::Returned { path: 0, listed: Some(0) };
        assert_eq!(watch.on_list(Time::ZERO, &paths, &list), [back]);
    }

    #[test]
    fn a_list_shows_who_joins_and_what_is_gone() {
        let mut watch = watch(Listing::Available);
        let fixed = WatchedPath { has_device: false, ..path("fixed", &[ONE]) };
        let paths = [path("wifi", &[ONE]), fixed];
        let mut compare = |list: &[ListedInterface<'_>]| watch.on_list(Time::ZERO, &paths, list);
        let lte = PathChange::Joined { listed: 0 };
        assert_eq!(compare(&[listed("lte", &[TWO])]), [lte]);
        assert_eq!(compare(&[]), [PathChange::Gone { path: 0 }]);
        assert_eq!(compare(&[]), []);
        let back = PathChange::Returned { path: 0, listed: Some(0) };
        assert_eq!(compare(&[listed("wifi", &[ONE])]), [back]);
        assert_eq!(compare(&[listed("wifi", &[ONE])]), []);
    }

    #[test]
    fn another_address_matters_where_the_old_one_is_in_use() {
        let mut watch = watch(Listing::Available);
        let mut compare = |addresses: &[IpAddr], source| {
            let path = WatchedPath { source, ..path("wifi", &[ONE]) };
            watch.on_list(Time::ZERO, &[path], &[listed("wifi", addresses)])
        };
        let updated = PathChange::Updated { path: 0, listed: 0 };
        assert_eq!(compare(&[ONE], Some(ONE)), []);
        assert_eq!(compare(&[ONE, TWO], Some(ONE)), [updated]);
        assert_eq!(compare(&[TWO], None), [updated]);
        assert_eq!(compare(&[TWO], Some(ONE)), [PathChange::Renumbered { path: 0, listed: 0 }]);
    }

    #[test]
    fn looks_have_their_times_and_one_list_is_made_at_a_time() {
        let ms = Time::from_millis;
        let mut alone = watch(Listing::Unavailable);
        assert!(alone.wants_carriers(ms(0)) && !alone.wants_carriers(ms(99)));
        assert_eq!(alone.next_wakeup(), ms(100));
        assert!(!alone.wants_list(ms(5_000)));
        let mut watch = watch(Listing::Available);
        assert!(!watch.wants_list(ms(999)));
        assert!(watch.wants_list(ms(1_000)));
        assert!(!watch.wants_list(ms(9_000)), "one is being made");
        watch.on_list_failed(ms(1_500));
        assert!(!watch.wants_list(ms(2_499)) && watch.wants_list(ms(2_500)));
        watch.on_list(ms(2_600), &[], &[]);
        watch.wants_carriers(ms(3_550));
        assert_eq!(watch.next_wakeup(), ms(3_600));
    }
}
