//! Which of a client's paths are there while a transfer runs: links that go down and come back, and
//! what somebody who watches the host's networks says.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::PathSpec;
use super::path::Watcher;

/// How often the watcher is asked.
const LOOK: Duration = Duration::from_secs(1);
/// A path is gone when it was missing so many times in a row: a list may be read while it changes.
const MISSED: u8 = 2;

/// What is different now; paths by number.
#[derive(Debug)]
pub(super) enum Change {
    Gone(usize),
    /// With what is new of it, where that is known.
    Back(usize, Option<PathSpec>),
    /// Its connection's address is not its own any more.
    Renumbered(usize, PathSpec),
    /// Something of it is new, but what is under way can go on.
    Renewed(usize, PathSpec),
    Joined(PathSpec),
}

pub(super) struct Presence {
    watcher: Option<Watcher>,
    paths: Vec<Sight>,
    looking: Option<JoinHandle<Option<Vec<PathSpec>>>>,
    look_at: Instant,
}

/// What was seen of a path last.
#[derive(Clone, Copy, Default)]
struct Sight {
    gone: bool,
    /// Looks in a row without a carrier…
    without_carrier: u8,
    /// …and lists in a row without its name.
    unlisted: u8,
}

impl Presence {
    /// All of `count` paths are there.
    pub(super) fn new(watcher: Option<Watcher>, count: usize) -> Self {
        let paths = vec![Sight::default(); count];
        Self { watcher, paths, looking: None, look_at: Instant::now() + LOOK }
    }

    /// Looks at the links. `has_carrier` is [`PathSpec::has_carrier`].
    pub(super) fn links(
        &mut self,
        paths: &[Arc<PathSpec>],
        has_carrier: impl Fn(&PathSpec) -> bool,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        self.paths.resize_with(paths.len(), Sight::default);
        for (id, (path, sight)) in paths.iter().zip(&mut self.paths).enumerate() {
            if !has_carrier(path) {
                sight.without_carrier = sight.without_carrier.saturating_add(1);
                if sight.without_carrier >= MISSED && !std::mem::replace(&mut sight.gone, true) {
                    changes.push(Change::Gone(id));
                }
                continue;
            }
            sight.without_carrier = 0;
            // A carrier is there before an address is; who watches knows of both.
            if sight.gone && self.watcher.is_none() {
                sight.gone = false;
                changes.push(Change::Back(id, None));
            }
        }
        changes
    }

    /// What the watcher says when it is asked next; never without one. May be dropped and called
    /// again.
    pub(super) async fn listed(&mut self) -> Vec<PathSpec> {
        let Some(Watcher(watch)) = &self.watcher else { return std::future::pending().await };
        loop {
            let looking = match &mut self.looking {
                Some(looking) => looking,
                None => {
                    tokio::time::sleep_until(self.look_at).await;
                    let watch = Arc::clone(watch);
                    self.looking.insert(tokio::task::spawn_blocking(move || watch()))
                }
            };
            let listed = looking.await;
            self.looking = None;
            self.look_at = Instant::now() + LOOK;
            if let Ok(Some(listed)) = listed {
                return listed;
            }
        }
    }

    /// Compares the paths with those that there are. `source` is the address that a path's
    /// connection has, where there is one.
    pub(super) fn compare(
        &mut self,
        paths: &[Arc<PathSpec>],
        listed: Vec<PathSpec>,
        source: impl Fn(usize) -> Option<IpAddr>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        self.paths.resize_with(paths.len(), Sight::default);
        for (id, (path, sight)) in paths.iter().zip(&mut self.paths).enumerate() {
            if path.device.is_none() {
                continue;
            }
            let Some(spec) = listed.iter().find(|spec| spec.name == path.name) else {
                sight.unlisted = sight.unlisted.saturating_add(1);
                if sight.unlisted >= MISSED && !std::mem::replace(&mut sight.gone, true) {
                    changes.push(Change::Gone(id));
                }
                continue;
            };
            sight.unlisted = 0;
            let spec = spec.clone();
            if sight.gone {
                // The list may be older than what was seen of the link.
                if sight.without_carrier == 0 {
                    sight.gone = false;
                    changes.push(Change::Back(id, Some(spec)));
                }
            } else if source(id).is_some_and(|source| !spec.addresses.contains(&source)) {
                changes.push(Change::Renumbered(id, spec));
            } else if spec.addresses != path.addresses || spec.metered != path.metered {
                changes.push(Change::Renewed(id, spec));
            }
        }
        let new = listed.into_iter().filter(|spec| paths.iter().all(|path| path.name != spec.name));
        changes.extend(new.map(Change::Joined));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 4] = [192, 0, 2, 1];
    const TWO: [u8; 4] = [192, 0, 2, 2];

    fn spec(name: &str, address: [u8; 4]) -> PathSpec {
        let device = Some(name.to_owned());
        PathSpec { device, ..PathSpec::from_address(name, address.into()) }
    }

    fn words(changes: &[Change]) -> Vec<String> {
        let words = changes.iter().map(|change| match change {
            Change::Gone(id) => format!("{id} gone"),
            Change::Back(id, _) => format!("{id} back"),
            Change::Renumbered(id, _) => format!("{id} renumbered"),
            Change::Renewed(id, _) => format!("{id} renewed"),
            Change::Joined(spec) => format!("{} joined", spec.name),
        });
        words.collect()
    }

    fn watched(paths: &[Arc<PathSpec>]) -> Presence {
        Presence::new(Some(Watcher(Arc::new(|| None))), paths.len())
    }

    #[tokio::test]
    async fn a_link_that_is_down_twice_is_gone_until_it_has_a_carrier() {
        let paths = [Arc::new(spec("wifi", ONE)), Arc::new(spec("lte", TWO))];
        let mut presence = Presence::new(None, paths.len());
        let mut look = |down: &str| words(&presence.links(&paths, |path| path.name != down));
        assert_eq!(look("lte"), [""; 0]);
        assert_eq!(look(""), [""; 0]);
        assert_eq!(look("lte"), [""; 0]);
        assert_eq!(look("lte"), ["1 gone"]);
        assert_eq!(look("lte"), [""; 0]);
        assert_eq!(look(""), ["1 back"]);
    }

    #[tokio::test]
    async fn who_watches_says_when_a_path_is_back() {
        let paths = [Arc::new(spec("wifi", ONE))];
        let mut presence = watched(&paths);
        for _ in 0..MISSED {
            presence.links(&paths, |_| false);
        }
        let list = || vec![spec("wifi", TWO)];
        assert_eq!(words(&presence.compare(&paths, list(), |_| None)), [""; 0]);
        assert_eq!(words(&presence.links(&paths, |_| true)), [""; 0]);
        let changes = presence.compare(&paths, list(), |_| None);
        let [Change::Back(0, Some(back))] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(back.addresses, [IpAddr::from(TWO)]);
    }

    #[tokio::test]
    async fn a_list_says_who_joins_and_who_is_gone() {
        let paths =
            [Arc::new(spec("wifi", ONE)), Arc::new(PathSpec::from_address("fixed", ONE.into()))];
        let mut presence = watched(&paths);
        let mut compare =
            |list: &[PathSpec]| words(&presence.compare(&paths, list.to_vec(), |_| None));
        assert_eq!(compare(&[spec("lte", TWO)]), ["lte joined"]);
        assert_eq!(compare(&[]), ["0 gone"]);
        assert_eq!(compare(&[]), [""; 0]);
        assert_eq!(compare(&[spec("wifi", ONE)]), ["0 back"]);
        assert_eq!(compare(&[spec("wifi", ONE)]), [""; 0]);
    }

    #[tokio::test]
    async fn another_address_matters_where_the_old_one_is_in_use() {
        let paths = [Arc::new(spec("wifi", ONE))];
        let mut presence = watched(&paths);
        let mut compare = |list: &[[u8; 4]], used: Option<[u8; 4]>| {
            let addresses = list.iter().map(|address| IpAddr::from(*address)).collect();
            let list = vec![PathSpec { addresses, ..spec("wifi", ONE) }];
            words(&presence.compare(&paths, list, |_| used.map(IpAddr::from)))
        };
        assert_eq!(compare(&[ONE], Some(ONE)), [""; 0]);
        assert_eq!(compare(&[ONE, TWO], Some(ONE)), ["0 renewed"]);
        assert_eq!(compare(&[TWO], None), ["0 renewed"]);
        assert_eq!(compare(&[TWO], Some(ONE)), ["0 renumbered"]);
    }
}
