//! Facts about a flow of an application: the server's name and the owner.

use manyways_proto::bond::routing::FlowFacts;
use manyways_proto::mux::Destination;
use manyways_proto::policy::Protocol;
use manyways_sys::process::Owner;
use manyways_wire::{HostName, Peek, http, tls};

/// Creates facts without an owner. The name in a request to a proxy is the domain.
pub(super) fn new_facts(protocol: Protocol, destination: Destination) -> FlowFacts {
    let domain = match &destination {
        Destination::Name(name, _) => HostName::parse(name.as_bytes()),
        Destination::Address(..) => None,
    };
    let domain = domain.map(|name| name.as_str().to_owned());
    FlowFacts { domain, ..FlowFacts::new(protocol, destination) }
}

/// Sets the owner of a flow. `user` is the owner's user name.
pub(super) fn set_owner(facts: &mut FlowFacts, owner: Owner, user: Option<String>) {
    facts.uid = Some(owner.uid);
    facts.user = user;
    if let Some(process) = owner.process {
        facts.process = Some(process.program.unwrap_or(process.name));
        facts.cgroup = process.cgroup;
    }
}

/// Searches the first bytes of a connection for the server's name: in a ClientHello or HTTP
/// request.
pub(super) fn server_name_in(first: &[u8]) -> Peek<Option<HostName>> {
    match tls::client_hello(first) {
        Peek::Complete(hello) => return Peek::Complete(hello.server_name),
        Peek::More(whole) => return Peek::More(whole),
        Peek::No => {}
    }
    match http::head(first) {
        Peek::Complete(head) => Peek::Complete(head.name().cloned()),
        Peek::More(whole) => Peek::More(whole),
        Peek::No => Peek::No,
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Size;

    use super::*;

    #[test]
    fn the_name_that_a_proxy_was_asked_for_is_the_domain() {
        let facts = new_facts(Protocol::Tcp, Destination::Name("WWW.Example.com".into(), 443));
        let flow = facts.attributes(5);
        assert_eq!((flow.domain, flow.port), (Some("www.example.com"), 443));
        assert_eq!((flow.address, flow.bytes), (None, Size::from_bytes(5)));
    }

    #[test]
    fn a_request_names_its_server_as_soon_as_it_is_whole() {
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let name = HostName::parse(b"a.example");
        assert_eq!(server_name_in(request), Peek::Complete(name));
        assert!(matches!(server_name_in(&request[..20]), Peek::More(_)));
        assert_eq!(server_name_in(b"SSH-2.0-OpenSSH\r\n"), Peek::No);
    }
}
