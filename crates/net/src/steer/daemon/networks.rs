//! The networks of the host: which ones there are, and the facts that decisions need.

use std::collections::BTreeMap;
use std::io;

use manyways_model::radio::Profile;
use manyways_model::select::simulate::Costs;
use manyways_model::select::{MAX_NETWORKS, NetworkFacts, NetworkKind, TransferEnergy, Unusable};
use manyways_proto::bond::usage::{Day, Usage};
use manyways_proto::policy::Policy;
use manyways_sys::egress::{self, EgressNetwork, Names};
use manyways_sys::interface::{self, Counters, Interface, Kind};
use manyways_unit::{Size, Time};

use crate::bond::UsageFile;

/// Marks in the mask of [`Names`].
const MARKS: u32 = 15;

/// The networks that a choice may be among.
#[derive(Debug)]
pub(super) struct HostNetworks {
    /// Names of interfaces; empty: all that are not virtual.
    via: Vec<String>,
    policy: Option<Policy>,
    /// Profile of the radio of cellular networks.
    profile: Option<Profile>,
    /// Bytes of probes in a month on metered networks.
    monthly: Size,
    /// Of the wall clock.
    today: Day,
    interfaces: Vec<Interface>,
    /// Networks beyond [`MAX_NETWORKS`], among which there is no choice.
    excess: usize,
    /// Networks that lead to a login page.
    pub(super) portals: BTreeMap<String, bool>,
    /// Counters and the time when packets passed.
    traffic: BTreeMap<String, (Counters, Option<Time>)>,
    probes: Counted,
    plans: Counted,
}

/// Bytes of a month, and their file.
#[derive(Debug)]
struct Counted {
    file: UsageFile,
    usage: Usage,
}

impl Counted {
    fn load(file: UsageFile) -> Self {
        Self { usage: file.load(), file }
    }

    fn save(&mut self) -> io::Result<()> {
        self.file.save(&mut self.usage)
    }
}

impl HostNetworks {
    pub(super) fn new(
        via: Vec<String>,
        policy: Option<Policy>,
        profile: Option<Profile>,
        monthly: Size,
        today: Day,
        state: Option<&std::path::Path>,
    ) -> Self {
        let file = |name| Counted::load(UsageFile::named(state, name));
        Self {
            via,
            policy,
            profile,
            monthly,
            today,
            interfaces: Vec::new(),
            excess: 0,
            portals: BTreeMap::new(),
            traffic: BTreeMap::new(),
            probes: file("steer-probes.json"),
            plans: file("steer-plans.json"),
        }
    }

    /// Takes the day of the wall clock, which may also be set back.
    pub(super) fn set_today(&mut self, today: Day) {
        self.today = today;
    }

    /// Takes the interfaces of the host.
    pub(super) fn set_interfaces(&mut self, mut listed: Vec<Interface>) {
        listed.retain(|one| match self.via.is_empty() {
            true => {
                // A network of software leads to another one of the list, or to none.
                !matches!(one.kind, Kind::Loopback | Kind::Virtual | Kind::Tunnel)
                    && (one.metric.is_some() || self.is_known(&one.name))
            }
            false => self.via.contains(&one.name),
        });
        // The rules of the others cannot do without it, and no program gives such names.
        listed.retain(|one| egress::is_valid_name(&one.name));
        // Of networks about which nothing is known, the host's own one is taken.
        listed.sort_by_key(|one| one.metric.unwrap_or(u32::MAX));
        self.excess = listed.len().saturating_sub(MAX_NETWORKS);
        listed.truncate(MAX_NETWORKS);
        self.portals.retain(|name, _| listed.iter().any(|one| one.name == *name));
        self.interfaces = listed;
    }

    /// Notes that an interface has no carrier, until the next list.
    pub(super) fn set_down(&mut self, name: &str) {
        for one in self.interfaces.iter_mut().filter(|one| one.name == name) {
            one.usable = Err(interface::Unusable::NoCarrier);
        }
    }

    /// The networks of `via` that the host does not have.
    pub(super) fn absent(&self) -> impl Iterator<Item = &String> {
        self.via.iter().filter(|name| !self.is_known(name))
    }

    fn is_known(&self, name: &str) -> bool {
        self.interfaces.iter().any(|one| one.name == name)
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// That there are too many networks: one sentence.
    pub(super) fn fault(&self) -> Option<String> {
        let excess = self.excess;
        (excess > 0).then(|| {
            let total = excess + MAX_NETWORKS;
            format!(
                "{excess} of {total} networks are left out, those with the greatest metrics: choose \
                 among others with --via"
            )
        })
    }

    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|one| one.name == name)
    }

    /// The name of the network that a user means: a name, or a kind that only one network has.
    pub(super) fn named(&self, word: &str) -> Result<String, String> {
        if self.is_known(word) {
            return Ok(word.to_owned());
        }
        let kind = if word == "lte" { "cellular" } else { word };
        let of_kind: Vec<&str> = self
            .interfaces
            .iter()
            .filter(|one| one.kind.name() == kind)
            .map(|one| one.name.as_str())
            .collect();
        match of_kind[..] {
            [one] => Ok(one.to_owned()),
            [] => Err(format!("there is no network {}", manyways_unit::human::quoted(word))),
            _ => Err(format!("there is more than one network of the kind {kind}")),
        }
    }

    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.interfaces.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    }

    /// Takes the counters of an interface; returns the bytes that passed since the last ones.
    pub(super) fn on_counters(&mut self, now: Time, name: &str, counters: Counters) -> u64 {
        let known = self.traffic.entry(name.to_owned()).or_insert((counters, None));
        let before = std::mem::replace(&mut known.0, counters);
        let sum = |counters: Counters| counters.received_bytes + counters.sent_bytes;
        let passed = sum(counters).saturating_sub(sum(before));
        if passed > 0 {
            known.1 = Some(now);
        }
        let plan = self.plan_day(name);
        if let (Some(day), true) = (plan, passed > 0) {
            self.plans.usage.add(name, day, self.today, passed);
        }
        passed
    }

    fn plan_day(&self, name: &str) -> Option<u8> {
        let interface = self.interface(name)?;
        let plan = self.policy.as_ref()?.data_plan(name, interface.kind.name())?;
        Some(plan.reset_day)
    }

    /// Adds bytes of a probe.
    pub(super) fn add_probe(&mut self, name: &str, bytes: Size) {
        self.probes.usage.add(name, 1, self.today, bytes.as_bytes());
    }

    /// Bytes of probes this month, and their limit.
    pub(super) fn probe_bytes(&self, name: &str) -> (Size, Option<Size>) {
        let is_metered = self.interface(name).is_some_and(|one| self.is_metered(one));
        (self.probes.usage.used(name, 1, self.today), is_metered.then_some(self.monthly))
    }

    /// # Errors
    /// A file cannot be written; the next call tries again.
    pub(super) fn save(&mut self) -> io::Result<()> {
        let probes = self.probes.save();
        self.plans.save().and(probes)
    }

    fn is_metered(&self, interface: &Interface) -> bool {
        let stated = self
            .policy
            .as_ref()
            .and_then(|one| one.metered(&interface.name, interface.kind.name()));
        stated.unwrap_or_else(|| interface.metered.is_metered())
    }

    /// Facts for the core.
    pub(super) fn facts(&self, now: Time) -> Vec<NetworkFacts> {
        self.interfaces.iter().map(|one| self.facts_of(now, one)).collect()
    }

    fn facts_of(&self, now: Time, interface: &Interface) -> NetworkFacts {
        let name = &interface.name;
        let kind = match interface.kind {
            Kind::Ethernet => NetworkKind::Ethernet,
            Kind::Wifi => NetworkKind::Wifi,
            Kind::Cellular => NetworkKind::Cellular,
            _ => NetworkKind::Other,
        };
        let plan = self.policy.as_ref().and_then(|one| one.data_plan(name, interface.kind.name()));
        let plan = plan.map(|plan| {
            let used = self.plans.usage.used(name, plan.reset_day, self.today);
            let monthly = plan.monthly.as_bytes().max(1) as f64;
            (used.as_bytes() as f64 / monthly, elapsed(self.today, plan.reset_day))
        });
        let unusable = match &interface.usable {
            Err(_) => Some(Unusable::Down),
            Ok(()) if plan.is_some_and(|(used, _)| used >= 1.0) => Some(Unusable::Spent),
            Ok(()) if self.portals.get(name) == Some(&true) => Some(Unusable::Portal),
            Ok(()) => None,
        };
        let (spent, monthly) = self.probe_bytes(name);
        NetworkFacts {
            name: name.clone(),
            kind,
            unusable,
            energy: self.energy(now, interface),
            price: f64::from(u8::from(self.is_metered(interface))),
            plan,
            spent,
            monthly,
        }
    }

    fn energy(&self, now: Time, interface: &Interface) -> TransferEnergy {
        let costs = Costs::default();
        match (interface.kind, &self.profile) {
            (Kind::Cellular, Some(profile)) => {
                let last = self.traffic.get(&interface.name).and_then(|(_, at)| *at);
                TransferEnergy::of_download(profile, last.map(|at| now.since(at)))
            }
            (Kind::Cellular, None) => costs.lte,
            _ => costs.wifi,
        }
    }

    /// The networks for the choice of new flows. A mark belongs to a name for as long as this process and
    /// its state file live.
    pub(super) fn egress(&self, marks: &mut BTreeMap<String, u32>) -> Vec<EgressNetwork> {
        let usable = |one: &&Interface| one.usable.is_ok();
        let usable: Vec<&Interface> =
            self.interfaces.iter().filter(usable).take(MARKS as usize).collect();
        let mut networks = Vec::new();
        for interface in usable {
            let Some(mark) = mark(marks, &interface.name, &self.interfaces) else { continue };
            networks.push(match interface.gateways.is_empty() {
                true => {
                    let has = |v4| interface.addresses.iter().any(|one| one.is_ipv4() == v4);
                    EgressNetwork::point_to_point(&interface.name, has(true), has(false), mark)
                }
                false => EgressNetwork::new(&interface.name, &interface.gateways, mark),
            });
        }
        networks
    }
}

/// The mark of a network: the one that it had, or a free one.
fn mark(marks: &mut BTreeMap<String, u32>, name: &str, present: &[Interface]) -> Option<u32> {
    let unit = 1 << Names::default().mask.trailing_zeros();
    if let Some(number) = marks.get(name) {
        return Some(number * unit);
    }
    let is_free =
        |number: &u32, marks: &BTreeMap<String, u32>| !marks.values().any(|one| one == number);
    if !(1..=MARKS).any(|number| is_free(&number, marks)) {
        marks.retain(|known, _| present.iter().any(|one| one.name == *known));
    }
    let number = (1..=MARKS).find(|number| is_free(number, marks))?;
    marks.insert(name.to_owned(), number);
    Some(number * unit)
}

/// Share of a plan's month that has passed at the start of a day.
fn elapsed(today: Day, reset_day: u8) -> f64 {
    let start = today.period_start(reset_day);
    // No month has more than 31 days, and the next one has at least 28.
    let end = Day(start.0 + 32).period_start(reset_day);
    (today.0 - start.0) as f64 / (end.0 - start.0).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_passes_from_reset_to_reset() {
        // 2024-03-14 and 2024-02-29.
        let (pi_day, leap_day) = (Day(19_796), Day(19_782));
        assert!((elapsed(pi_day, 1) - 13.0 / 31.0).abs() < 1e-9);
        assert!((elapsed(leap_day, 1) - 28.0 / 29.0).abs() < 1e-9);
        assert_eq!(elapsed(pi_day, 14), 0.0);
        assert!((elapsed(pi_day, 15) - 28.0 / 29.0).abs() < 1e-9);
    }

    /// A metered network of 1 kB a month from the first day, with 100 B for probes.
    fn metered(today: Day) -> HostNetworks {
        let policy = Policy::parse("[paths.wwan0]\nmonthly = \"1KB\"\nmetered = true\n").unwrap();
        let monthly = Size::from_bytes(100);
        let mut networks =
            HostNetworks::new(vec!["wwan0".to_owned()], Some(policy), None, monthly, today, None);
        let mut any = interface::list().unwrap().remove(0);
        (any.name, any.kind, any.usable) = ("wwan0".to_owned(), Kind::Cellular, Ok(()));
        networks.set_interfaces(vec![any]);
        networks.on_counters(Time::ZERO, "wwan0", Counters::default());
        networks
    }

    /// Day, used share of the plan, whether that is spent, and bytes of probes.
    fn on(networks: &mut HostNetworks, day: Day) -> (f64, bool, u64) {
        networks.set_today(day);
        let facts = networks.facts(Time::ZERO).remove(0);
        assert_eq!(facts.monthly, Some(Size::from_bytes(100)));
        let (used, elapsed) = facts.plan.unwrap();
        assert!((0.0..1.0).contains(&elapsed), "{elapsed}");
        (used, facts.unusable == Some(Unusable::Spent), facts.spent.as_bytes())
    }

    #[test]
    fn a_wall_clock_that_is_set_by_a_day_leaves_the_allowance_of_the_month_as_it_is() {
        // 2024-03-14.
        let pi_day = Day(19_796);
        let mut networks = metered(pi_day);
        let mut received = 0;
        let mut receive = |networks: &mut HostNetworks, bytes: u64| {
            received += bytes;
            let counters = Counters { received_bytes: received, ..Counters::default() };
            networks.on_counters(Time::ZERO, "wwan0", counters)
        };
        assert_eq!(receive(&mut networks, 600), 600);
        networks.add_probe("wwan0", Size::from_bytes(70));
        for day in [19_796, 19_797, 19_795, 19_796] {
            assert_eq!(on(&mut networks, Day(day)), (0.6, false, 70), "{day}");
        }
        // Bytes of the wrong day count, too.
        networks.set_today(Day(19_795));
        receive(&mut networks, 300);
        networks.set_today(Day(19_797));
        receive(&mut networks, 200);
        networks.add_probe("wwan0", Size::from_bytes(40));
        assert_eq!(on(&mut networks, pi_day), (1.1, true, 110));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_into_the_last_month_gives_no_second_allowance() {
        // 2024-04-01, and the day before.
        let (april, march) = (Day(19_814), Day(19_813));
        let mut networks = metered(april);
        let counters = Counters { received_bytes: 1_000, ..Counters::default() };
        networks.on_counters(Time::ZERO, "wwan0", counters);
        networks.add_probe("wwan0", Size::from_bytes(100));
        for day in [april, march, april] {
            assert_eq!(on(&mut networks, day), (1.0, true, 100));
        }
        assert_eq!(on(&mut networks, Day(19_844)), (0.0, false, 0), "2024-05-01");
    }

    #[test]
    fn networks_beyond_the_limit_are_counted() {
        let any = interface::list().unwrap().remove(0);
        let listed = |count: u32| -> Vec<Interface> {
            let one = |index| {
                let mut one = any.clone();
                (one.name, one.kind) = (format!("wlan{index}"), Kind::Wifi);
                one.metric = Some(1_000 - index);
                one
            };
            (0..count).map(one).collect()
        };
        let mut networks = HostNetworks::new(Vec::new(), None, None, Size::ZERO, Day(19_796), None);
        networks.set_interfaces(listed(16));
        assert_eq!((networks.interfaces().len(), networks.fault()), (16, None));
        networks.set_interfaces(listed(19));
        assert!(networks.fault().unwrap().starts_with("3 of 19 networks are left out"));
        assert!(networks.interface("wlan18").is_some() && networks.interface("wlan2").is_none());
    }

    #[test]
    fn a_mark_stays_with_its_network() {
        let mut marks = BTreeMap::new();
        let unit = 0x0100_0000;
        assert_eq!(mark(&mut marks, "wlan0", &[]), Some(unit));
        assert_eq!(mark(&mut marks, "wwan0", &[]), Some(2 * unit));
        assert_eq!(mark(&mut marks, "wlan0", &[]), Some(unit));
        for index in 0..13 {
            assert!(mark(&mut marks, &format!("n{index}"), &[]).is_some());
        }
        // All are taken: those of networks that are gone make room.
        assert!(mark(&mut marks, "eth0", &[]).is_some_and(|mark| mark & !0x0f00_0000 == 0));
        assert_eq!(marks.len(), 1);
    }
}
