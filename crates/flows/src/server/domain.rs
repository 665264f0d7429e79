//! Names of servers.

use manyways_wire::HostName;

/// Source of a server's name, best first: names in the flow itself, then names from DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameSource {
    /// The host of an HTTP request.
    Host,
    /// The server name of a TLS or QUIC ClientHello (SNI).
    ServerName,
    /// A name that DNS resolved to the address.
    Answer,
    /// The PTR record of the address in the capture, which its operator chose.
    Reverse,
}

impl NameSource {
    /// Returns the value of table columns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::ServerName => "sni",
            Self::Answer => "dns",
            Self::Reverse => "reverse-dns",
        }
    }
}

/// Returns the name with the best source; of several with the same source, the first.
pub fn best_name(
    names: impl IntoIterator<Item = (NameSource, HostName)>,
) -> Option<(NameSource, HostName)> {
    names.into_iter().min_by_key(|(by, _)| *by)
}

/// Returns the registrable part of a name, for example `example.co.uk` of `www.example.co.uk`.
/// `None` if the name is only a suffix, like `co.uk` or `localhost`.
///
/// The list of public suffixes covers only the larger countries. If a suffix is missing, the result
/// is the suffix itself (`co.example`): too short, never too long.
pub fn registered_domain(name: &HostName) -> Option<&str> {
    let text = name.as_str();
    let mut ends = text.rmatch_indices('.').map(|(at, _)| at + 1);
    // The last label alone is never registered.
    ends.next()?;
    let Some(second) = ends.next() else {
        return (!is_suffix(text)).then_some(text);
    };
    let domain = text.get(second..)?;
    if !is_suffix(domain) {
        return Some(domain);
    }
    text.get(ends.next().unwrap_or(0)..)
}

/// Returns the delivery network with servers of this name: a content delivery network, or the
/// organisation itself. For servers that a table of prefixes does not cover, for example in the
/// networks of others (the Akamai servers of a university, campus Wi-Fi paper, 6).
pub fn cdn_of(name: &HostName) -> Option<&'static str> {
    let mut rest = name.as_str();
    loop {
        if let Ok(at) = CDN_DOMAINS.binary_search_by_key(&rest, |(suffix, _)| suffix) {
            return Some(CDN_DOMAINS[at].1);
        }
        rest = rest.split_once('.')?.1;
    }
}

fn is_suffix(domain: &str) -> bool {
    domain.split_once('.').is_some_and(|(label, country)| {
        SUFFIXES
            .iter()
            .any(|(of, labels)| *of == country && labels.split(' ').any(|known| known == label))
    })
}

/// Country suffixes with their labels for registrations.
const SUFFIXES: &[(&str, &str)] = &[
    ("ar", "com edu gob gov int mil net org"),
    ("au", "com net org edu gov asn id"),
    ("bd", "com edu net gov org ac"),
    ("br", "com net org gov edu blog art eco"),
    ("cn", "com net org gov edu ac"),
    ("co", "com net org edu gov nom"),
    ("eg", "com edu gov net org"),
    ("gh", "com edu gov org"),
    ("gr", "com edu net org gov"),
    ("hk", "com edu gov idv net org"),
    ("id", "co ac go or web sch net my"),
    ("il", "co ac org net gov muni k12"),
    ("in", "co net org gen firm ind ac edu res gov nic"),
    ("jp", "co ne or ac ad ed go gr lg"),
    ("ke", "co or ne go ac sc"),
    ("kr", "co ne or re pe go ac hs ms es sc"),
    ("mx", "com net org edu gob"),
    ("my", "com net org gov edu name"),
    ("ng", "com org gov edu net"),
    ("nz", "co net org ac govt geek gen maori school iwi"),
    ("pe", "com edu gob net nom org"),
    ("ph", "com net org gov edu"),
    ("pk", "com net edu org gov"),
    ("pl", "com net org edu gov info waw"),
    ("pt", "com edu gov org"),
    ("sa", "com net org gov edu med"),
    ("sg", "com net org gov edu per"),
    ("th", "co ac go in mi net or"),
    ("tr", "com org net edu gov bel k12 av dr web"),
    ("tw", "com net org edu gov idv"),
    ("ua", "com net org edu gov in kiev kyiv"),
    ("uk", "co org me ltd plc net sch ac gov nhs police"),
    ("uy", "com edu gub net org"),
    ("ve", "com co net org edu gob web"),
    ("vn", "com net org edu gov"),
    ("za", "co org net web law ac gov nom school"),
];

/// Sorted by name.
const CDN_DOMAINS: &[(&str, &str)] = &[
    ("1e100.net", "Google"),
    ("aaplimg.com", "Apple"),
    ("akadns.net", "Akamai"),
    ("akahost.net", "Akamai"),
    ("akamai.net", "Akamai"),
    ("akamaiedge.net", "Akamai"),
    ("akamaihd.net", "Akamai"),
    ("akamaitechnologies.com", "Akamai"),
    ("akamaized.net", "Akamai"),
    ("azureedge.net", "Microsoft"),
    ("azurefd.net", "Microsoft"),
    ("b-cdn.net", "Bunny"),
    ("cachefly.net", "CacheFly"),
    ("cdn77.org", "CDN77"),
    ("cdninstagram.com", "Meta"),
    ("cloudflare.net", "Cloudflare"),
    ("cloudfront.net", "Amazon"),
    ("edgecastcdn.net", "Edgecast"),
    ("edgekey.net", "Akamai"),
    ("edgesuite.net", "Akamai"),
    ("fastly.net", "Fastly"),
    ("fastlylb.net", "Fastly"),
    ("fbcdn.net", "Meta"),
    ("footprint.net", "Lumen"),
    ("ggpht.com", "Google"),
    ("googleusercontent.com", "Google"),
    ("googlevideo.com", "Google"),
    ("gstatic.com", "Google"),
    ("gvt1.com", "Google"),
    ("hwcdn.net", "Highwinds"),
    ("llnwd.net", "Limelight"),
    ("msedge.net", "Microsoft"),
    ("nflxvideo.net", "Netflix"),
    ("srip.net", "Akamai"),
    ("stackpathdns.com", "StackPath"),
    ("tiktokcdn.com", "TikTok"),
    ("twimg.com", "X"),
    ("ytimg.com", "Google"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_somebody_registered() {
        for (of, domain) in [
            ("www.example.com", Some("example.com")),
            ("example.com", Some("example.com")),
            ("a.b.c.example.co.uk", Some("example.co.uk")),
            ("example.co.uk", Some("example.co.uk")),
            ("co.uk", None),
            ("com", None),
            ("localhost", None),
            ("www.example.com.au", Some("example.com.au")),
            ("maps.example.co.jp", Some("example.co.jp")),
            ("r4---sn-4g5e6n7s.googlevideo.com", Some("googlevideo.com")),
            // "co" is not a suffix in Germany, and "www" not one in the United Kingdom.
            ("www.co.de", Some("co.de")),
            ("a.www.uk", Some("www.uk")),
        ] {
            assert_eq!(registered_domain(&name(of)), domain, "{of}");
        }
    }

    #[test]
    fn who_delivers() {
        assert!(CDN_DOMAINS.is_sorted_by_key(|(suffix, _)| suffix));
        for (of, by) in [
            ("e1234.dscb.akamaiedge.net", Some("Akamai")),
            ("a23-1-2-3.deploy.static.akamaitechnologies.com", Some("Akamai")),
            ("cloudfront.net", Some("Amazon")),
            ("d111.cloudfront.net", Some("Amazon")),
            ("notcloudfront.net", None),
            ("cloudfront.net.example", None),
            ("fra16s49-in-f14.1e100.net", Some("Google")),
            ("twimg.com", Some("X")),
            ("net", None),
        ] {
            assert_eq!(cdn_of(&name(of)), by, "{of}");
        }
    }

    #[test]
    fn what_the_client_says_counts_most() {
        let all = [
            (NameSource::Reverse, name("a.example")),
            (NameSource::Answer, name("b.example")),
            (NameSource::ServerName, name("c.example")),
            (NameSource::Host, name("d.example")),
        ];
        for known in (1..=4).rev() {
            let (by, best) = best_name(all[..known].iter().cloned()).unwrap();
            assert_eq!((by, best), all[known - 1]);
        }
        assert_eq!(best_name([]), None);
    }

    proptest! {
        #[test]
        fn it_is_an_end_of_the_name(text in "([a-c]{1,2}\\.){0,4}(co|com|uk|au|net)(\\.uk|\\.au)?") {
            let name = name(&text);
            if let Some(domain) = registered_domain(&name) {
                let below = text.strip_suffix(domain);
                prop_assert!(below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
                prop_assert!(domain.contains('.') && !is_suffix(domain));
            } else {
                prop_assert!(!text.contains('.') || is_suffix(&text));
            }
        }
    }
}
