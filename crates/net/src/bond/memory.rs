//! The memory of a gateway for the buffers of its clients, and their shares.

use std::cell::RefCell;
use std::rc::Rc;

use manyways_proto::bond::budget::{Budget, MIN_SESSION_MEMORY, limit_buffers, session_memory};
use manyways_proto::mux::Config;
use manyways_unit::Size;

use super::key::PublicKey;

/// Assumed memory of a host that does not report it.
const UNKNOWN_LIMIT: Size = Size::from_bytes(1 << 30);

/// The memory for buffers of all sessions; cheap to clone.
#[derive(Clone)]
pub(super) struct Memory(Rc<RefCell<Budget<PublicKey>>>);

/// The share of a session, which is given back when this is dropped.
pub(super) struct SessionMemory {
    all: Memory,
    key: PublicKey,
    bytes: u64,
}

/// Returns half of the memory that this process may use: the rest is for sockets, the kernel and
/// what the program needs itself.
pub(super) fn default_budget() -> Size {
    let limit = manyways_sys::memory::limit().unwrap_or(UNKNOWN_LIMIT);
    Size::from_bytes(limit.as_bytes() / 2)
}

impl Memory {
    pub(super) fn new(total: Size) -> Self {
        Self(Rc::new(RefCell::new(Budget::new(total.as_bytes()))))
    }

    pub(super) fn set_clients(&self, count: usize) {
        self.0.borrow_mut().set_clients(count);
    }

    /// Limits the buffers of a new session to the share of its client.
    pub(super) fn take(&self, key: PublicKey, config: &mut Config) -> SessionMemory {
        let wanted = session_memory(config);
        let given = self.0.borrow_mut().take(key, wanted, MIN_SESSION_MEMORY);
        limit_buffers(config, given.unwrap_or(MIN_SESSION_MEMORY));
        SessionMemory { all: self.clone(), key, bytes: given.unwrap_or(0) }
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.all.0.borrow_mut().give_back(self.key, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use manyways_proto::mux::Role;

    use super::*;

    #[test]
    fn sessions_share_the_memory_and_give_it_back() {
        let memory = Memory::new(Size::from_bytes(64 << 20));
        let session = |byte| {
            let mut config = Config::new(Role::Gateway);
            let share = memory.take(PublicKey([byte; 32]), &mut config);
            (share, session_memory(&config) >> 20)
        };
        let (first, own) = session(1);
        assert_eq!(own, 32);
        let (second, own) = session(2);
        assert_eq!(own, 16);
        drop((first, second));
        assert_eq!(memory.0.borrow().used(), 0);
        let _all: Vec<_> = (3..9).map(session).collect();
        // The least is given though it was promised already.
        assert_eq!(session(9).1, MIN_SESSION_MEMORY >> 20);
        assert!(memory.0.borrow().used() <= 64 << 20);
    }
}
