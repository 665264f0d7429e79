//! What the rules of the kernel never bring to a client, and why: for whoever asks where something
//! goes.

use std::net::{IpAddr, Ipv4Addr};

use manyways_sys::interface;
use manyways_sys::tproxy::{self, Rules, Selection, Target};
use manyways_unit::Prefix;

use super::whose::name_of;
use super::why::Question;

/// The ports of DHCP, of both families.
const DHCP: [u16; 4] = [67, 68, 546, 547];

/// What is taken in without its knowing.
#[derive(Clone, Debug)]
pub struct Intake {
    /// The rules as they are installed.
    pub rules: Rules,
    /// The gateway has said what it reaches.
    pub answered: bool,
    /// What the gateway is called…
    pub gateway: String,
    /// …and its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Intake {
    /// Why the destination of a question is not taken in, in words; none where it is, or may be.
    pub fn lacks(&self, question: &Question) -> Option<String> {
        // Where it cannot be known, it is taken for none of them.
        self.lacks_on(question, &interface::addresses().unwrap_or_default())
    }

    /// The same on a host that has these addresses.
    fn lacks_on(&self, question: &Question, own: &[IpAddr]) -> Option<String> {
        let name = question.domain.as_deref().unwrap_or_default();
        if question.address.is_none() && name.eq_ignore_ascii_case(&self.gateway) {
            return Some(format!("{name} is the gateway itself"));
        }
        if question.udp && DHCP.contains(&question.port) {
            return Some(format!("port {} is that of DHCP", question.port));
        }
        let address = address(question);
        address
            .and_then(|address| self.spared(address, own))
            .or_else(|| self.unselected(question, address))
            .or_else(|| self.refused(address?, question.udp))
    }

    /// Destinations that are reached directly, whoever wants to go there.
    fn spared(&self, address: IpAddr, own: &[IpAddr]) -> Option<String> {
        let within = |prefix: &&Prefix| prefix.contains(address);
        if let Some((prefix, what)) = tproxy::never().find(|(prefix, _)| prefix.contains(address)) {
            return Some(format!("{address} is {what} ({prefix})"));
        }
        if own.contains(&address) {
            return Some(format!("{address} is this host itself"));
        }
        if self.addresses.iter().any(|gateway| gateway.to_canonical() == address) {
            return Some(format!("{address} is the gateway itself"));
        }
        let private = tproxy::private();
        let direct = || self.rules.direct.iter().filter(within);
        if let Some(prefix) = direct().find(|prefix| !private.contains(prefix)) {
            return Some(format!("{address} is on a network of this host ({prefix})"));
        }
        let prefix = direct().next()?;
        Some(format!("{address} is private ({prefix}), and --private is not given"))
    }

    /// What nobody asked to be taken in.
    fn unselected(&self, question: &Question, address: Option<IpAddr>) -> Option<String> {
        let may = |selection: &Selection| match selection {
            Selection::To(prefixes) => {
                let Some(address) = address else { return true };
                prefixes.iter().any(|prefix| prefix.contains(address))
            }
            Selection::Users(users) => question.uid.is_none_or(|uid| users.contains(&uid)),
            _ => true,
        };
        (!self.rules.what.iter().any(may)).then(|| "--intercept does not name it".to_owned())
    }

    /// What has to be so for it to be taken in, in words; none where it is taken in, or is not,
    /// whatever the question leaves open.
    pub fn depends(&self, question: &Question) -> Option<String> {
        let address = address(question);
        let mut conditions = Vec::new();
        for selection in &self.rules.what {
            conditions.push(match selection {
                Selection::All => return None,
                Selection::To(prefixes) => match address {
                    Some(to) if prefixes.iter().any(|prefix| prefix.contains(to)) => return None,
                    Some(_) => continue,
                    None => format!("it goes to {}", listed(prefixes)),
                },
                Selection::Users(users) => match question.uid {
                    Some(uid) if users.contains(&uid) => return None,
                    Some(_) => continue,
                    None => format!("user {} sends it", names(users)),
                },
                Selection::Cgroup(path) => format!("cgroup {path} sends it"),
                Selection::Marked(mark) => format!("it bears the mark {mark:#x}"),
                Selection::From(interfaces) => format!("it comes in on {}", listed(interfaces)),
            });
        }
        Some(conditions.join(", or ")).filter(|words| !words.is_empty())
    }

    /// A family that the gateway lacks, or all before it has said what it reaches.
    fn refused(&self, address: IpAddr, udp: bool) -> Option<String> {
        let to = &self.rules.to;
        let (target, family) = match (address, udp) {
            (IpAddr::V4(_), false) => (to.tcp_v4, "IPv4"),
            (IpAddr::V4(_), true) => (to.udp_v4, "IPv4"),
            (IpAddr::V6(_), false) => (to.tcp_v6, "IPv6"),
            (IpAddr::V6(_), true) => (to.udp_v6, "IPv6"),
        };
        let refused = || match self.answered {
            true => format!("it is refused at once, as the gateway has no {family}"),
            false => "it is refused, as the gateway has not answered yet".to_owned(),
        };
        (target == Target::Reject).then(refused)
    }
}

fn listed(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// Users by their names, as far as they have any.
fn names(users: &[u32]) -> String {
    let name = |uid: &u32| name_of(*uid).unwrap_or_else(|| uid.to_string());
    listed(&users.iter().map(name).collect::<Vec<_>>())
}

/// Where a question is about, as far as that is known.
pub(super) fn address(question: &Question) -> Option<IpAddr> {
    let name = question.domain.as_deref().unwrap_or_default();
    let named = is_localhost(name).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    question.address.or(named).map(|address| address.to_canonical())
}

/// A name that never leaves the host (RFC 6761).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use manyways_sys::tproxy::{Names, Targets, WhenDead};
    use manyways_unit::Span;

    use super::*;

    fn intake(what: Vec<Selection>) -> Intake {
        let mut direct = vec!["192.0.2.9".parse().unwrap(), "198.51.100.0/24".parse().unwrap()];
        direct.extend(tproxy::private());
        let rules = Rules {
            names: Names::default(),
            to: Targets {
                tcp_v4: Target::Proxy(1),
                tcp_v6: Target::Reject,
                udp_v4: Target::Proxy(2),
                udp_v6: Target::Proxy(3),
            },
            what,
            direct,
            own_users: Vec::new(),
            when_dead: WhenDead::Open,
            patience: Span::from_secs(8),
        };
        let addresses = vec!["192.0.2.9".parse().unwrap()];
        let gateway = "gw.example".into();
        Intake { rules, answered: true, gateway, addresses }
    }

    /// Of an address or else a name.
    fn to(host: &str, port: u16) -> Question {
        let address = host.parse().ok();
        let domain = address.is_none().then(|| host.to_owned());
        Question { address, domain, port, ..Question::default() }
    }

    fn said(intake: &Intake, question: &Question) -> String {
        intake.lacks_on(question, &["203.0.113.5".parse().unwrap()]).unwrap_or_default()
    }

    #[test]
    fn what_is_never_taken_in_is_said_with_its_reason() {
        let all = intake(vec![Selection::All]);
        for (host, words) in [
            ("127.0.0.1", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("::1", "::1 is loopback (::/127)"),
            ("::ffff:127.0.0.1", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("localhost", "127.0.0.1 is loopback (127.0.0.0/8)"),
            ("fe80::1", "fe80::1 is link-local (fe80::/10)"),
            (
                "255.255.255.255",
                "255.255.255.255 is multicast, broadcast or reserved (224.0.0.0/3)",
            ),
            ("203.0.113.5", "203.0.113.5 is this host itself"),
            ("192.0.2.9", "192.0.2.9 is the gateway itself"),
            ("GW.example", "GW.example is the gateway itself"),
            ("198.51.100.7", "198.51.100.7 is on a network of this host (198.51.100.0/24)"),
            ("10.1.2.3", "10.1.2.3 is private (10.0.0.0/8), and --private is not given"),
            ("2001:db8::1", "it is refused at once, as the gateway has no IPv6"),
            ("192.0.2.8", ""),
            ("www.example.com", ""),
        ] {
            assert_eq!(said(&all, &to(host, 67)), words, "{host}");
        }
        let dhcp = Question { udp: true, ..to("192.0.2.8", 67) };
        assert_eq!(said(&all, &dhcp), "port 67 is that of DHCP");
        assert_eq!(said(&all, &Question { udp: true, ..to("2001:db8::1", 53) }), "");
    }

    #[test]
    fn what_nobody_asked_for_is_not_taken_in_and_what_may_be_asked_for_is() {
        let some = intake(vec![
            Selection::To(vec!["192.0.2.0/28".parse().unwrap()]),
            Selection::Users(vec![7]),
        ]);
        let by = |uid, host| said(&some, &Question { uid, ..to(host, 443) });
        assert_eq!(by(Some(8), "192.0.2.77"), "--intercept does not name it");
        assert_eq!(by(Some(8), "192.0.2.8") + &by(Some(7), "192.0.2.77"), "");
        assert_eq!(by(None, "192.0.2.77") + &by(Some(8), "www.example.com"), "");
    }

    #[test]
    fn what_a_question_leaves_open_is_said() {
        let some = intake(vec![
            Selection::Users(vec![0, 4_000_000_000]),
            Selection::From(vec!["lan".into()]),
            Selection::To(vec!["192.0.2.0/28".parse().unwrap()]),
        ]);
        let depends = |uid, host| some.depends(&Question { uid, ..to(host, 443) });
        let users = "user root or 4000000000 sends it, or it comes in on lan";
        assert_eq!(depends(None, "192.0.2.77").as_deref(), Some(users));
        assert_eq!(depends(Some(7), "192.0.2.77").as_deref(), Some("it comes in on lan"));
        let by_name = depends(Some(7), "www.example.com");
        assert_eq!(by_name.as_deref(), Some("it comes in on lan, or it goes to 192.0.2.0/28"));
        assert_eq!(depends(Some(0), "192.0.2.77"), None);
        assert_eq!(depends(None, "192.0.2.8"), None);
        assert_eq!(intake(vec![Selection::All]).depends(&to("192.0.2.77", 443)), None);
    }
}
