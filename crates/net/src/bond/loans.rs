//! The tickets of a gateway, which the verification of TLS keys asks, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manyways_proto::bond::session::SessionId;
use manyways_proto::bond::tickets::{Loan, TicketError, Tickets};
use manyways_proto::mux::{LoanMessage, Seed, TicketId};
use manyways_proto::sched::PathId;
use manyways_unit::{Span, Time};
use ring::rand::{SecureRandom, SystemRandom};

use super::key::PublicKey;

/// Tickets; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Loans(Arc<Mutex<Tickets<PublicKey, LentSession>>>);

/// A session for which a lender comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LentSession {
    pub(super) id: SessionId<PublicKey>,
    /// A later session with the same identifier has another one.
    pub(super) instance: u64,
}

impl Loans {
    /// Whether the lender of this key has a ticket.
    pub(super) fn expects(&self, now: Time, lender: &PublicKey) -> bool {
        self.lock().expects(now, lender)
    }

    /// Answers the request of a client for its path over a lender.
    pub(super) fn answer(
        &self,
        now: Time,
        session: LentSession,
        path: PathId,
        (lender, rtt): (PublicKey, Span),
    ) -> LoanMessage {
        let (mut ticket, mut seed) = ([0; 16], [0; 32]);
        let random = SystemRandom::new();
        if random.fill(&mut ticket).is_err() || random.fill(&mut seed).is_err() {
            let reason = "the gateway has no random numbers".to_owned();
            return LoanMessage::Refused { path, reason };
        }
        let (ticket, seed) = (TicketId(ticket), Seed(seed));
        match self.lock().issue(now, (ticket, seed), session, path, (lender, rtt)) {
            Ok(join) => LoanMessage::Ticket { path, ticket, join, seed },
            Err(error) => LoanMessage::Refused { path, reason: error.to_string() },
        }
    }

    pub(super) fn redeem(
        &self,
        now: Time,
        ticket: TicketId,
        lender: &PublicKey,
    ) -> Result<Loan<LentSession>, TicketError> {
        self.lock().redeem(now, ticket, lender)
    }

    fn lock(&self) -> MutexGuard<'_, Tickets<PublicKey, LentSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
