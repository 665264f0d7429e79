//! Parser of filters.

use std::net::{IpAddr, Ipv4Addr};

use super::words::{SIGNS, Word, is_part, words};
use super::{Expression, FilterError, Order, PROTOCOLS, Problem, SCTP, TCP, Test, UDP, Way};
use manyways_unit::Prefix;

/// Maximum nesting of parentheses and `not`.
const DEPTH: usize = 100;
/// Maximum number of tests of a filter.
const TESTS: usize = 1_000;
const LARGEST_VLAN: u32 = 4_095;

/// Keywords of pcap-filter(7) that are not supported.
const NOT_READ: [&str; 27] = [
    "ether",
    "fddi",
    "tr",
    "wlan",
    "link",
    "ppp",
    "slip",
    "radio",
    "rarp",
    "atalk",
    "decnet",
    "iso",
    "stp",
    "ipx",
    "netbeui",
    "gateway",
    "broadcast",
    "multicast",
    "protochain",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "inbound",
    "outbound",
    "ifname",
    "ah",
];

/// Names of the ports that are most common in filters.
const PORTS: [(&str, u16); 22] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("submission", 587),
    ("imaps", 993),
    ("pop3s", 995),
    ("sip", 5_060),
    ("mdns", 5_353),
];

/// Words before a value that define its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Qualifiers {
    protocol: Option<Protocol>,
    way: Option<Ends>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Version(u8),
    Number(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    One(Way),
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    Ports,
    Protocol,
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    /// Index of the next word.
    next: usize,
    /// Length of the text in bytes.
    end: usize,
    depth: usize,
    tests: usize,
    /// Qualifiers of the previous value, which apply to a value without any.
    before: Option<Qualifiers>,
}

type Parsed<T = Expression> = Result<T, FilterError>;

pub(super) fn parse(text: &str) -> Parsed {
    let words = words(text);
    let end = text.len();
    if words.is_empty() {
        return Err(FilterError { at: 0..end, problem: Problem::Empty });
    }
    let mut parser = Parser { words, next: 0, end, depth: 0, tests: 0, before: None };
    let expression = parser.expression()?;
    match parser.take() {
        None => Ok(expression),
        Some(word) => {
            let wanted = if word.text == ")" { "no parenthesis" } else { "and, or, or the end" };
            Err(instead(&word, wanted))
        }
    }
}

fn wrong(word: &Word<'_>, problem: impl FnOnce(String) -> Problem) -> FilterError {
    FilterError { at: word.at.clone(), problem: problem(word.text.to_owned()) }
}

fn instead(word: &Word<'_>, wanted: &'static str) -> FilterError {
    wrong(word, |found| match found.chars().next() {
        Some('[') => Problem::NotRead(found),
        Some(first) if !is_part(first) && !is_sign(&found) => Problem::Character(first),
        _ => Problem::Instead { found, wanted },
    })
}

fn is_sign(text: &str) -> bool {
    SIGNS.contains(&text) || ["(", ")", "!", "<", ">", "="].contains(&text)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|word| word.text)
    }

    fn take(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.next).cloned();
        self.next += usize::from(word.is_some());
        word
    }

    fn need(&mut self, wanted: &'static str) -> Parsed<Word<'a>> {
        let at = self.end..self.end;
        self.take().ok_or(FilterError { at, problem: Problem::Ends(wanted) })
    }

    /// Consumes the next word if it is one of `words`.
    fn takes(&mut self, words: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|word| words.contains(&word));
        self.next += usize::from(is_one);
        is_one
    }

    /// Parses terms joined by `and` and `or`, which have the same precedence.
    fn expression(&mut self) -> Parsed {
        let mut left = self.term()?;
        loop {
            if self.takes(&["and", "&&"]) {
                left = left.and(self.term()?);
            } else if self.takes(&["or", "||"]) {
                left = left.or(self.term()?);
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self) -> Parsed {
        let word = self.need("a test")?;
        self.depth += 1;
        self.tests += 1;
        if self.depth > DEPTH || self.tests > TESTS {
            return Err(wrong(&word, |_| Problem::Large));
        }
        let term = match word.text {
            "not" | "!" => Expression::Not(Box::new(self.term()?)),
            "(" => {
                let inner = self.expression()?;
                match self.take() {
                    Some(close) if close.text == ")" => inner,
                    Some(other) => return Err(instead(&other, "and, or, or a parenthesis")),
                    None => return Err(wrong(&word, |_| Problem::Open)),
                }
            }
            _ => self.test(word)?,
        };
        self.depth -= 1;
        Ok(term)
    }

    /// Parses a test that begins with `word`.
    fn test(&mut self, word: Word<'a>) -> Parsed {
        let alone = match word.text {
            "arp" => Some(Test::Arp),
            "vlan" => Some(Test::Vlan(self.vlan()?)),
            "len" => Some(self.length()?),
            "less" => Some(Test::Length(Order::AtMost, self.number(u32::MAX)?)),
            "greater" => Some(Test::Length(Order::AtLeast, self.number(u32::MAX)?)),
            _ => None,
        };
        if let Some(test) = alone {
            self.before = None;
            return Ok(Expression::Test(test));
        }
        if NOT_READ.contains(&word.text) {
            return Err(wrong(&word, Problem::NotRead));
        }
        let mut qualifiers = Qualifiers { protocol: protocol(word.text), ..Qualifiers::default() };
        if qualifiers.protocol.is_some() {
            let words = ["src", "dst", "host", "net", "port", "portrange", "proto"];
            if !self.peek().is_some_and(|next| words.contains(&next)) {
                return self.protocol_alone(&word, qualifiers.protocol);
            }
        } else {
            // The word is a qualifier or a value: parse it again.
            self.next -= 1;
        }
        qualifiers.way = self.ends();
        qualifiers.kind = self.kind();
        if qualifiers == Qualifiers::default() {
            self.next += 1;
            return self.value_alone(&word);
        }
        let wanted = match qualifiers.kind {
            None | Some(Kind::Host) => "an address",
            Some(Kind::Net) => "a network",
            Some(Kind::Port) => "a port",
            Some(Kind::Ports) => "a range of ports",
            Some(Kind::Protocol) => "a protocol",
        };
        self.before = Some(qualifiers);
        if self.peek() == Some("(") {
            return self.term();
        }
        let value = self.need(wanted)?;
        if ["and", "or", "not", ")", "&&", "||", "!", "["].contains(&value.text) {
            return Err(instead(&value, wanted));
        }
        self.value(qualifiers, &value)
    }

    fn protocol_alone(&mut self, word: &Word<'a>, protocol: Option<Protocol>) -> Parsed {
        self.before = None;
        match self.words.get(self.next) {
            Some(next) if next.text == "[" => {
                let at = word.at.start..next.at.end;
                let problem = Problem::NotRead(format!("{}[", word.text));
                Err(FilterError { at, problem })
            }
            _ => Ok(Expression::Test(match protocol {
                Some(Protocol::Version(version)) => Test::Version(version),
                Some(Protocol::Number(number)) => Test::Protocol(number),
                None => return Err(wrong(word, Problem::Word)),
            })),
        }
    }

    /// Parses a value without qualifiers: an address, or a value of the previous kind.
    fn value_alone(&mut self, word: &Word<'a>) -> Parsed {
        let is_address = word.text.contains(['.', ':', '/']) && !word.text.contains('\\');
        match self.before {
            Some(before) if is_value(word.text) => self.value(before, word),
            None if is_address && is_value(word.text) => {
                let qualifiers = Qualifiers::default();
                self.before = Some(qualifiers);
                self.value(qualifiers, word)
            }
            None if word.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => {
                Err(wrong(word, Problem::Alone))
            }
            _ if PORTS.iter().any(|(name, _)| *name == word.text) => match self.before {
                Some(before) => self.value(before, word),
                None => Err(wrong(word, Problem::Alone)),
            },
            _ if !word.text.starts_with(char::is_alphanumeric) => Err(instead(word, "a test")),
            _ => Err(wrong(word, Problem::Word)),
        }
    }

    fn ends(&mut self) -> Option<Ends> {
        let (first, other) = match self.peek() {
            Some("src") => (Way::Source, "dst"),
            Some("dst") => (Way::Destination, "src"),
            _ => return None,
        };
        self.next += 1;
        let second = self.words.get(self.next + 1).map(|word| word.text);
        let ends = match (self.peek(), second) {
            (Some("or" | "||"), Some(second)) if second == other => Ends::One(Way::Either),
            (Some("and" | "&&"), Some(second)) if second == other => Ends::Both,
            _ => return Some(Ends::One(first)),
        };
        self.next += 2;
        Some(ends)
    }

    fn kind(&mut self) -> Option<Kind> {
        let kind = match self.peek()? {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::Ports,
            "proto" => Kind::Protocol,
            _ => return None,
        };
        self.next += 1;
        Some(kind)
    }

    fn value(&mut self, qualifiers: Qualifiers, word: &Word<'a>) -> Parsed {
        let Qualifiers { protocol, way, kind } = qualifiers;
        let contradiction = |what| wrong(word, |text| Problem::Contradiction(what, text));
        let with: Box<dyn Fn(Way) -> Test> = match kind {
            None | Some(Kind::Host | Kind::Net) => {
                let prefix = self.prefix(kind, word)?;
                let version = if prefix.address().is_ipv4() { 4 } else { 6 };
                if let Some(Protocol::Version(said)) = protocol
                    && said != version
                {
                    let what = if said == 4 { "an IPv4 address" } else { "an IPv6 address" };
                    return Err(contradiction(what));
                }
                Box::new(move |way| Test::Address(way, prefix))
            }
            Some(Kind::Port | Kind::Ports) => {
                if let Some(Protocol::Number(number)) = protocol
                    && ![TCP, UDP, SCTP].contains(&number)
                {
                    return Err(contradiction("a port of a protocol without ports"));
                }
                let (first, last) = ports(kind, word)?;
                Box::new(move |way| Test::Port(way, first, last))
            }
            Some(Kind::Protocol) => {
                let name = word.text.strip_prefix('\\').unwrap_or(word.text);
                let known = PROTOCOLS.iter().find(|(word, _)| *word == name).map(|(_, n)| *n);
                let number = known.or_else(|| name.parse().ok());
                let Some(number) = number.filter(|_| !name.starts_with('+')) else {
                    return Err(wrong(word, Problem::Protocol));
                };
                if way.is_some() || matches!(protocol, Some(Protocol::Number(_))) {
                    return Err(contradiction("a protocol of one endpoint"));
                }
                Box::new(move |_| Test::Protocol(number))
            }
        };
        let test = match way {
            None => Expression::Test(with(Way::Either)),
            Some(Ends::One(way)) => Expression::Test(with(way)),
            Some(Ends::Both) => {
                Expression::Test(with(Way::Source)).and(Expression::Test(with(Way::Destination)))
            }
        };
        Ok(match protocol {
            // The address implies its version.
            Some(Protocol::Version(_)) if matches!(kind, None | Some(Kind::Host | Kind::Net)) => {
                test
            }
            Some(Protocol::Version(version)) => Expression::Test(Test::Version(version)).and(test),
            Some(Protocol::Number(number)) => Expression::Test(Test::Protocol(number)).and(test),
            None => test,
        })
    }

    fn prefix(&mut self, kind: Option<Kind>, word: &Word<'a>) -> Parsed<Prefix> {
        if let Ok(address) = word.text.parse::<IpAddr>() {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let mut length = all;
            if kind == Some(Kind::Net) && self.takes(&["mask"]) {
                let mask = self.need("a mask")?;
                length = mask_length(mask.text).ok_or_else(|| wrong(&mask, Problem::Mask))?;
            }
            // `Prefix::new` converts IPv4-mapped IPv6 addresses to IPv4.
            return Prefix::new(address, length).ok_or_else(|| wrong(word, Problem::Beyond));
        }
        let (net, length) = match word.text.split_once('/') {
            Some((net, length)) => (net, Some(length)),
            None => (word.text, None),
        };
        if kind == Some(Kind::Host) {
            let is_net = length.is_some() && net.parse::<IpAddr>().is_ok();
            return Err(wrong(word, if is_net { Problem::Length } else { Problem::Address }));
        }
        let is_short = kind == Some(Kind::Net) || length.is_some();
        let address = net.parse::<IpAddr>().ok().map(|address| (address, None));
        let address = address.or_else(|| short(net).filter(|_| is_short));
        let Some((address, implied)) = address else {
            return Err(wrong(word, Problem::Address));
        };
        let length = match length {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse::<u8>().ok()
            }
            Some(_) => None,
            None => implied,
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let Some(length) = length.filter(|length| *length <= bits) else {
            let most = bits.into();
            return Err(wrong(word, |found| Problem::Number { found, most }));
        };
        Prefix::new(address, length).ok_or_else(|| wrong(word, Problem::Beyond))
    }

    fn number(&mut self, most: u32) -> Parsed<u32> {
        let word = self.need("a number")?;
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        let number = word.text.parse().ok().filter(|number| is_number && *number <= most);
        number.ok_or_else(|| wrong(&word, |found| Problem::Number { found, most }))
    }

    fn vlan(&mut self) -> Parsed<Option<u16>> {
        if !self.peek().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(None);
        }
        Ok(u16::try_from(self.number(LARGEST_VLAN)?).ok())
    }

    fn length(&mut self) -> Parsed<Test> {
        const WANTED: &str = "one of < <= = != >= >";
        let sign = self.need(WANTED)?;
        let order = Order::ALL.iter().find(|(text, _)| *text == sign.text);
        let (_, order) = order.ok_or_else(|| instead(&sign, WANTED))?;
        Ok(Test::Length(*order, self.number(u32::MAX)?))
    }
}

fn protocol(word: &str) -> Option<Protocol> {
    match word {
        "ip" => Some(Protocol::Version(4)),
        "ip6" => Some(Protocol::Version(6)),
        _ => {
            let known = PROTOCOLS.iter().find(|(name, _)| *name == word);
            known.map(|(_, number)| Protocol::Number(*number))
        }
    }
}

/// Whether `word` may be an address, a port or a range of ports.
fn is_value(word: &str) -> bool {
    let has_digits = word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':');
    has_digits && word.contains(|c: char| c.is_ascii_digit() || c == ':')
}

fn port(text: &str) -> Option<u16> {
    let known = PORTS.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    known.or_else(|| text.parse().ok().filter(|_| is_number))
}

fn ports(kind: Option<Kind>, word: &Word<'_>) -> Parsed<(u16, u16)> {
    if kind == Some(Kind::Port) {
        let found = port(word.text).map(|port| (port, port));
        let is_range =
            word.text.split_once('-').is_some_and(|(a, b)| port(a).is_some() && port(b).is_some());
        return found
            .ok_or_else(|| wrong(word, if is_range { Problem::Range } else { Problem::Port }));
    }
    let both = word.text.split_once('-').and_then(|(one, other)| port(one).zip(port(other)));
    // libpcap accepts the two ports in either order.
    let both = both.map(|(one, other)| (one.min(other), one.max(other)));
    both.ok_or_else(|| wrong(word, Problem::Ports))
}

/// Parses an IPv4 network with one to four octets. Returns the number of bits of these octets.
fn short(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let mut octets = [0_u8; 4];
    let mut length = 0;
    for part in text.split('.') {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *octets.get_mut(length)? = part.parse().ok().filter(|_| is_number)?;
        length += 1;
    }
    Some((Ipv4Addr::from(octets).into(), u8::try_from(length * 8).ok()))
}

fn mask_length(text: &str) -> Option<u8> {
    let mask = u32::from(text.parse::<Ipv4Addr>().ok()?);
    let length = mask.leading_ones();
    (mask.count_ones() == length).then_some(length as u8)
}
