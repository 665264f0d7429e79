//! Record types and rcodes with their names (IANA registry "Domain Name System (DNS) Parameters").

use std::fmt;

/// A resource record type. `Display` writes its name, or `TYPE` and the number (RFC 3597, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u16);

/// The rcode of a response, with its extension if present (RFC 6891, 6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rcode(pub u16);

impl Kind {
    /// IPv4 address.
    pub const A: Self = Self(1);
    /// Canonical name of an alias.
    pub const CNAME: Self = Self(5);
    /// Name of an address.
    pub const PTR: Self = Self(12);
    /// IPv6 address.
    pub const AAAA: Self = Self(28);
    /// Pseudo-record with parameters of the message (RFC 6891).
    pub const OPT: Self = Self(41);
    /// Connection parameters of a web site (RFC 9460).
    pub const HTTPS: Self = Self(65);

    /// Name in the registry; `None` for rare types.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "A",
            2 => "NS",
            5 => "CNAME",
            6 => "SOA",
            10 => "NULL",
            12 => "PTR",
            13 => "HINFO",
            15 => "MX",
            16 => "TXT",
            17 => "RP",
            18 => "AFSDB",
            24 => "SIG",
            25 => "KEY",
            28 => "AAAA",
            29 => "LOC",
            33 => "SRV",
            35 => "NAPTR",
            37 => "CERT",
            39 => "DNAME",
            41 => "OPT",
            43 => "DS",
            44 => "SSHFP",
            46 => "RRSIG",
            47 => "NSEC",
            48 => "DNSKEY",
            50 => "NSEC3",
            51 => "NSEC3PARAM",
            52 => "TLSA",
            53 => "SMIMEA",
            59 => "CDS",
            60 => "CDNSKEY",
            61 => "OPENPGPKEY",
            62 => "CSYNC",
            63 => "ZONEMD",
            64 => "SVCB",
            65 => "HTTPS",
            99 => "SPF",
            249 => "TKEY",
            250 => "TSIG",
            251 => "IXFR",
            252 => "AXFR",
            255 => "ANY",
            256 => "URI",
            257 => "CAA",
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

impl Rcode {
    /// The name exists, even if it has no record of the queried type.
    pub const NO_ERROR: Self = Self(0);
    /// NXDOMAIN: the name does not exist.
    pub const NXDOMAIN: Self = Self(3);

    /// Name in the registry.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 12] = [
            "NOERROR",
            "FORMERR",
            "SERVFAIL",
            "NXDOMAIN",
            "NOTIMP",
            "REFUSED",
            "YXDOMAIN",
            "YXRRSET",
            "NXRRSET",
            "NOTAUTH",
            "NOTZONE",
            "DSOTYPENI",
        ];
        match self.0 {
            16 => Some("BADVERS"),
            23 => Some("BADCOOKIE"),
            code => NAMES.get(usize::from(code)).copied(),
        }
    }
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "RCODE{}", self.0),
        }
    }
}
