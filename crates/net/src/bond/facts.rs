//! What is known of a flow of an application: who it is, and where it wants to go.

use manyways_proto::mux::Target;
use manyways_proto::policy::{Flow, Protocol};
use manyways_sys::process::Owner;
use manyways_unit::Size;
use manyways_wire::{HostName, Peek, http, tls};

/// What is known of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// What carries it.
    pub protocol: Protocol,
    /// Where it goes.
    pub to: Target,
    /// The name of the server, as it was asked for.
    pub domain: Option<HostName>,
    /// The file name of the program, or what the kernel calls the process.
    pub process: Option<String>,
    /// The number of the user.
    pub uid: Option<u32>,
    /// The user's name.
    pub user: Option<String>,
    /// The control group.
    pub cgroup: Option<String>,
}

impl Facts {
    /// A flow of which only that is known. A name that the application asked for is its domain.
    pub fn new(protocol: Protocol, to: Target) -> Self {
        let domain = match &to {
            Target::Name(name, _) => HostName::parse(name.as_bytes()),
            Target::Address(..) => None,
        };
        Self { protocol, to, domain, process: None, uid: None, user: None, cgroup: None }
    }

    /// Whose it is. `user` is the name of the owner's user.
    pub fn belongs(&mut self, owner: Owner, user: Option<String>) {
        self.uid = Some(owner.uid);
        self.user = user;
        if let Some(process) = owner.process {
            self.process = Some(process.program.unwrap_or(process.name));
            self.cgroup = process.cgroup;
        }
    }

    /// The same for the policy, when so many bytes have flowed.
    pub fn flow(&self, bytes: u64) -> Flow<'_> {
        let (address, port) = match &self.to {
            Target::Address(address, port) => (Some(*address), *port),
            Target::Name(_, port) => (None, *port),
        };
        Flow {
            process: self.process.as_deref(),
            user: self.user.as_deref(),
            uid: self.uid,
            cgroup: self.cgroup.as_deref(),
            domain: self.domain.as_ref().map(HostName::as_str),
            address,
            bytes: Size::from_bytes(bytes),
            ..Flow::new(self.protocol, port)
        }
    }
}

/// The server's name in the first bytes of a connection: that of its TLS hello or HTTP request.
pub fn name_in(first: &[u8]) -> Peek<Option<HostName>> {
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
    use super::*;

    #[test]
    fn the_name_that_a_proxy_was_asked_for_is_the_domain() {
        let facts = Facts::new(Protocol::Tcp, Target::Name("WWW.Example.com".into(), 443));
        let flow = facts.flow(5);
        assert_eq!((flow.domain, flow.port), (Some("www.example.com"), 443));
        assert_eq!((flow.address, flow.bytes), (None, Size::from_bytes(5)));
    }

    #[test]
    fn a_request_says_whom_it_is_for_as_soon_as_it_is_whole() {
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let name = HostName::parse(b"a.example");
        assert_eq!(name_in(request), Peek::Complete(name));
        assert!(matches!(name_in(&request[..20]), Peek::More(_)));
        assert_eq!(name_in(b"SSH-2.0-OpenSSH\r\n"), Peek::No);
    }
}
