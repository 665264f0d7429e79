//! The descriptors of a gateway, and their shares among its clients.

use std::cell::RefCell;
use std::rc::Rc;

use manyways_proto::bond::budget::Budget;

use super::key::PublicKey;

/// Descriptors that clients never have: for the listening sockets, the allow file, the control
/// socket, metrics and name resolution.
const RESERVED: u64 = 64;

/// The descriptors for connections of clients; cheap to clone.
#[derive(Clone)]
pub(super) struct Descriptors(Rc<RefCell<Budget<PublicKey>>>);

/// The descriptors of one client; cheap to clone, and one pointer for each of many connections.
#[derive(Clone)]
pub(super) struct ClientDescriptors(Rc<Client>);

struct Client {
    all: Descriptors,
    key: PublicKey,
}

/// A descriptor of a client, which is given back when this is dropped.
pub(super) struct Descriptor(ClientDescriptors);

impl Descriptors {
    /// `limit` is the limit of open files of this process, and `handshakes` the sockets of pending
    /// handshakes.
    pub(super) fn new(limit: u64, handshakes: u64) -> Self {
        let total = limit.saturating_sub(RESERVED + handshakes);
        Self(Rc::new(RefCell::new(Budget::new(total))))
    }

    pub(super) fn set_clients(&self, count: usize) {
        self.0.borrow_mut().set_clients(count);
    }

    pub(super) fn of(&self, key: PublicKey) -> ClientDescriptors {
        ClientDescriptors(Rc::new(Client { all: self.clone(), key }))
    }

    /// How many there are, and how many clients have.
    pub(super) fn counts(&self) -> (u64, u64) {
        let budget = self.0.borrow();
        (budget.total(), budget.used())
    }
}

impl ClientDescriptors {
    pub(super) fn key(&self) -> PublicKey {
        self.0.key
    }

    /// How many the client has.
    pub(super) fn used(&self) -> u64 {
        self.0.all.0.borrow().used_by(self.0.key)
    }

    /// `None` if the client has its share.
    pub(super) fn take(&self) -> Option<Descriptor> {
        self.0.all.0.borrow_mut().take(self.0.key, 1, 1)?;
        Some(Descriptor(self.clone()))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let client = &self.0.0;
        client.all.0.borrow_mut().give_back(client.key, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_descriptor_is_given_back() {
        let all = Descriptors::new(RESERVED + 10 + 8, 10);
        let [one, other] = [1, 2].map(|byte| all.of(PublicKey([byte; 32])));
        let held: Vec<Descriptor> = (0..9).map_while(|_| one.take()).collect();
        assert_eq!((held.len(), all.counts()), (4, (8, 4)));
        let of_other = other.take();
        assert!(of_other.is_some() && one.take().is_none());
        drop((held, of_other));
        assert_eq!(all.counts(), (8, 0));
    }
}
