//! Parser of filters.

use std::net::{IpAddr, Ipv4Addr};

use super::words::{SIGNS, Word, is_part, words};
use super::{
    Comparison, Dir, ETHER_PROTOCOLS, Expression, FilterError, FilterErrorKind, PROTOCOLS,
    Primitive, SCTP, TCP, UDP,
};
use manyways_unit::Prefix;

/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 100;
/// Maximum number of tests of a filter.
const MAX_PRIMITIVES: usize = 1_000;
const MAX_VLAN: u32 = 4_095;

/// Keywords of pcap-filter(7) that are not supported.
const UNSUPPORTED: [&str; 26] = [
    "ether",
    "fddi",
    "tr",
    "wlan",
    "link",
    "ppp",
    "slip",
    "radio",
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
    dir: Option<DirQualifier>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Version(u8),
    Number(u8),
    /// EtherType of ARP or RARP.
    Ether(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirQualifier {
    One(Dir),
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
    primitives: usize,
    /// Qualifiers of the previous value, which apply to a value without any.
    previous: Option<Qualifiers>,
}

type Parsed<T = Expression> = Result<T, FilterError>;

pub(super) fn parse(text: &str) -> Parsed {
    let words = words(text);
    let end = text.len();
    if words.is_empty() {
        return Err(FilterError { at: 0..end, kind: FilterErrorKind::Empty });
    }
    let mut parser = Parser { words, next: 0, end, depth: 0, primitives: 0, previous: None };
    let expression = parser.expression()?;
    match parser.take() {
        None => Ok(expression),
        Some(word) => {
            let wanted = if word.text == ")" { "no parenthesis" } else { "and, or, or the end" };
            Err(unexpected(&word, wanted))
        }
    }
}

fn error_at(word: &Word<'_>, problem: impl FnOnce(String) -> FilterErrorKind) -> FilterError {
    FilterError { at: word.at.clone(), kind: problem(word.text.to_owned()) }
}

fn unexpected(word: &Word<'_>, wanted: &'static str) -> FilterError {
    error_at(word, |found| match found.chars().next() {
        Some('[') => FilterErrorKind::Unsupported(found),
        Some(first) if !is_part(first) && !is_sign(&found) => FilterErrorKind::Character(first),
        _ => FilterErrorKind::Unexpected { found, wanted },
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

    fn expect_word(&mut self, wanted: &'static str) -> Parsed<Word<'a>> {
        let at = self.end..self.end;
        self.take().ok_or(FilterError { at, kind: FilterErrorKind::UnexpectedEnd(wanted) })
    }

    /// Consumes the next word if it is one of `words`.
    fn accept(&mut self, words: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|word| words.contains(&word));
        self.next += usize::from(is_one);
        is_one
    }

    /// Parses terms joined by `and` and `or`, which have the same precedence.
    fn expression(&mut self) -> Parsed {
        let mut left = self.term()?;
        loop {
            if self.accept(&["and", "&&"]) {
                left = left.and(self.term()?);
            } else if self.accept(&["or", "||"]) {
                left = left.or(self.term()?);
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self) -> Parsed {
        let word = self.expect_word("a test")?;
        self.depth += 1;
        self.primitives += 1;
        if self.depth > MAX_DEPTH || self.primitives > MAX_PRIMITIVES {
            return Err(error_at(&word, |_| FilterErrorKind::TooLarge));
        }
        let term = match word.text {
            "not" | "!" => Expression::Not(Box::new(self.term()?)),
            "(" => {
                let inner = self.expression()?;
                match self.take() {
                    Some(close) if close.text == ")" => inner,
                    Some(other) => return Err(unexpected(&other, "and, or, or a parenthesis")),
                    None => return Err(error_at(&word, |_| FilterErrorKind::UnclosedParenthesis)),
                }
            }
            _ => self.primitive(word)?,
        };
        self.depth -= 1;
        Ok(term)
    }

    /// Parses a test that begins with `word`.
    fn primitive(&mut self, word: Word<'a>) -> Parsed {
        let alone = match word.text {
            "vlan" => Some(Primitive::Vlan(self.vlan()?)),
            "len" => Some(self.length()?),
            "less" => Some(Primitive::Length(Comparison::AtMost, self.number(u32::MAX)?)),
            "greater" => Some(Primitive::Length(Comparison::AtLeast, self.number(u32::MAX)?)),
            _ => None,
        };
        if let Some(test) = alone {
            self.previous = None;
            return Ok(Expression::Primitive(test));
        }
        if UNSUPPORTED.contains(&word.text) {
            return Err(error_at(&word, FilterErrorKind::Unsupported));
        }
        let mut qualifiers = Qualifiers { protocol: protocol(word.text), ..Qualifiers::default() };
        if qualifiers.protocol.is_some() {
            let words = ["src", "dst", "host", "net", "port", "portrange", "proto"];
            if !self.peek().is_some_and(|next| words.contains(&next)) {
                return self.bare_protocol(&word, qualifiers.protocol);
            }
        } else {
            // The word is a qualifier or a value: parse it again.
            self.next -= 1;
        }
        qualifiers.dir = self.dir_qualifier();
        qualifiers.kind = self.kind();
        if qualifiers == Qualifiers::default() {
            self.next += 1;
            return self.bare_value(&word);
        }
        let wanted = match qualifiers.kind {
            None | Some(Kind::Host) => "an address",
            Some(Kind::Net) => "a network",
            Some(Kind::Port) => "a port",
            Some(Kind::Ports) => "a range of ports",
            Some(Kind::Protocol) => "a protocol",
        };
        self.previous = Some(qualifiers);
        if self.peek() == Some("(") {
            return self.term();
        }
        let value = self.expect_word(wanted)?;
        if ["and", "or", "not", ")", "&&", "||", "!", "["].contains(&value.text) {
            return Err(unexpected(&value, wanted));
        }
        self.value(qualifiers, &value)
    }

    fn bare_protocol(&mut self, word: &Word<'a>, protocol: Option<Protocol>) -> Parsed {
        self.previous = None;
        match self.words.get(self.next) {
            Some(next) if next.text == "[" => {
                let at = word.at.start..next.at.end;
                let problem = FilterErrorKind::Unsupported(format!("{}[", word.text));
                Err(FilterError { at, kind: problem })
            }
            _ => Ok(Expression::Primitive(match protocol {
                Some(Protocol::Version(version)) => Primitive::Version(version),
                Some(Protocol::Number(number)) => Primitive::Protocol(number),
                Some(Protocol::Ether(protocol)) => Primitive::Ether(protocol),
                None => return Err(error_at(word, FilterErrorKind::Word)),
            })),
        }
    }

    /// Parses a value without qualifiers: an address, or a value of the previous kind.
    fn bare_value(&mut self, word: &Word<'a>) -> Parsed {
        let is_address = word.text.contains(['.', ':', '/']) && !word.text.contains('\\');
        match self.previous {
            Some(before) if is_value(word.text) => self.value(before, word),
            None if is_address && is_value(word.text) => {
                let qualifiers = Qualifiers::default();
                self.previous = Some(qualifiers);
                self.value(qualifiers, word)
            }
            None if word.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => {
                Err(error_at(word, FilterErrorKind::MissingQualifier))
            }
            _ if PORTS.iter().any(|(name, _)| *name == word.text) => match self.previous {
                Some(before) => self.value(before, word),
                None => Err(error_at(word, FilterErrorKind::MissingQualifier)),
            },
            _ if !word.text.starts_with(char::is_alphanumeric) => Err(unexpected(word, "a test")),
            _ => Err(error_at(word, FilterErrorKind::Word)),
        }
    }

    fn dir_qualifier(&mut self) -> Option<DirQualifier> {
        let (first, other) = match self.peek() {
            Some("src") => (Dir::Source, "dst"),
            Some("dst") => (Dir::Destination, "src"),
            _ => return None,
        };
        self.next += 1;
        let second = self.words.get(self.next + 1).map(|word| word.text);
        let ends = match (self.peek(), second) {
            (Some("or" | "||"), Some(second)) if second == other => DirQualifier::One(Dir::Either),
            (Some("and" | "&&"), Some(second)) if second == other => DirQualifier::Both,
            _ => return Some(DirQualifier::One(first)),
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
        let Qualifiers { protocol, dir: way, kind } = qualifiers;
        let contradiction =
            |what| error_at(word, |text| FilterErrorKind::Contradiction(what, text));
        let with: Box<dyn Fn(Dir) -> Primitive> = match kind {
            None | Some(Kind::Host | Kind::Net) => {
                let prefix = self.prefix(kind, word)?;
                let version = if prefix.address().is_ipv4() { 4 } else { 6 };
                if let Some(Protocol::Version(said)) = protocol
                    && said != version
                {
                    let what = if said == 4 { "an IPv4 address" } else { "an IPv6 address" };
                    return Err(contradiction(what));
                }
                if matches!(protocol, Some(Protocol::Ether(_))) && version == 6 {
                    return Err(contradiction("an address of ARP"));
                }
                Box::new(move |direction| Primitive::Address(direction, prefix))
            }
            Some(Kind::Port | Kind::Ports) => {
                let has_ports = match protocol {
                    Some(Protocol::Number(number)) => [TCP, UDP, SCTP].contains(&number),
                    Some(Protocol::Ether(_)) => false,
                    Some(Protocol::Version(_)) | None => true,
                };
                if !has_ports {
                    return Err(contradiction("a port of a protocol without ports"));
                }
                let (first, last) = ports(kind, word)?;
                Box::new(move |direction| Primitive::Port(direction, first, last))
            }
            Some(Kind::Protocol) => {
                let name = word.text.strip_prefix('\\').unwrap_or(word.text);
                let known = PROTOCOLS.iter().find(|(word, _)| *word == name).map(|(_, n)| *n);
                let number = known.or_else(|| name.parse().ok());
                let Some(number) = number.filter(|_| !name.starts_with('+')) else {
                    return Err(error_at(word, FilterErrorKind::Protocol));
                };
                if way.is_some()
                    || matches!(protocol, Some(Protocol::Number(_) | Protocol::Ether(_)))
                {
                    return Err(contradiction("a protocol of one endpoint"));
                }
                Box::new(move |_| Primitive::Protocol(number))
            }
        };
        let test = match way {
            None => Expression::Primitive(with(Dir::Either)),
            Some(DirQualifier::One(way)) => Expression::Primitive(with(way)),
            Some(DirQualifier::Both) => Expression::Primitive(with(Dir::Source))
                .and(Expression::Primitive(with(Dir::Destination))),
        };
        Ok(match protocol {
            // The address implies its version; but an IPv4 address may also be that of ARP.
            Some(Protocol::Version(6)) if matches!(kind, None | Some(Kind::Host | Kind::Net)) => {
                test
            }
            Some(Protocol::Version(version)) => {
                Expression::Primitive(Primitive::Version(version)).and(test)
            }
            Some(Protocol::Number(number)) => {
                Expression::Primitive(Primitive::Protocol(number)).and(test)
            }
            Some(Protocol::Ether(protocol)) => {
                Expression::Primitive(Primitive::Ether(protocol)).and(test)
            }
            None => test,
        })
    }

    fn prefix(&mut self, kind: Option<Kind>, word: &Word<'a>) -> Parsed<Prefix> {
        if let Ok(address) = word.text.parse::<IpAddr>() {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let mut length = all;
            if kind == Some(Kind::Net) && self.accept(&["mask"]) {
                let mask = self.expect_word("a mask")?;
                length =
                    mask_length(mask.text).ok_or_else(|| error_at(&mask, FilterErrorKind::Mask))?;
            }
            // `Prefix::new` converts IPv4-mapped IPv6 addresses to IPv4.
            return Prefix::new(address, length)
                .ok_or_else(|| error_at(word, FilterErrorKind::HostBits));
        }
        let (net, length) = match word.text.split_once('/') {
            Some((net, length)) => (net, Some(length)),
            None => (word.text, None),
        };
        if kind == Some(Kind::Host) {
            let is_net = length.is_some() && net.parse::<IpAddr>().is_ok();
            return Err(error_at(
                word,
                if is_net { FilterErrorKind::NetworkAsHost } else { FilterErrorKind::Address },
            ));
        }
        let is_short = kind == Some(Kind::Net) || length.is_some();
        let address = net.parse::<IpAddr>().ok().map(|address| (address, None));
        let address = address.or_else(|| partial_network(net).filter(|_| is_short));
        let Some((address, implied)) = address else {
            return Err(error_at(word, FilterErrorKind::Address));
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
            let max = bits.into();
            return Err(error_at(word, |found| FilterErrorKind::Number { found, max }));
        };
        Prefix::new(address, length).ok_or_else(|| error_at(word, FilterErrorKind::HostBits))
    }

    fn number(&mut self, max: u32) -> Parsed<u32> {
        let word = self.expect_word("a number")?;
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        let number = word.text.parse().ok().filter(|number| is_number && *number <= max);
        number.ok_or_else(|| error_at(&word, |found| FilterErrorKind::Number { found, max }))
    }

    fn vlan(&mut self) -> Parsed<Option<u16>> {
        if !self.peek().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(None);
        }
        Ok(u16::try_from(self.number(MAX_VLAN)?).ok())
    }

    fn length(&mut self) -> Parsed<Primitive> {
        const WANTED: &str = "one of < <= = != >= >";
        let sign = self.expect_word(WANTED)?;
        let order = Comparison::ALL.iter().find(|(text, _)| *text == sign.text);
        let (_, comparison) = order.ok_or_else(|| unexpected(&sign, WANTED))?;
        Ok(Primitive::Length(*comparison, self.number(u32::MAX)?))
    }
}

fn protocol(word: &str) -> Option<Protocol> {
    match word {
        "ip" => Some(Protocol::Version(4)),
        "ip6" => Some(Protocol::Version(6)),
        _ => {
            let known = PROTOCOLS.iter().find(|(name, _)| *name == word);
            let ether = ETHER_PROTOCOLS.iter().find(|(name, _)| *name == word);
            known
                .map(|(_, number)| Protocol::Number(*number))
                .or(ether.map(|(_, protocol)| Protocol::Ether(*protocol)))
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
        return found.ok_or_else(|| {
            error_at(
                word,
                if is_range { FilterErrorKind::RangeAsPort } else { FilterErrorKind::Port },
            )
        });
    }
    let both = word.text.split_once('-').and_then(|(one, other)| port(one).zip(port(other)));
    // libpcap accepts the two ports in either order.
    let both = both.map(|(one, other)| (one.min(other), one.max(other)));
    both.ok_or_else(|| error_at(word, FilterErrorKind::PortRange))
}

/// Parses an IPv4 network with one to four octets. Returns the number of bits of these octets.
fn partial_network(text: &str) -> Option<(IpAddr, Option<u8>)> {
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
