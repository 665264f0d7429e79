//! Tickets with which lenders come to a gateway.
//!
//! A ticket is for one lender, one path of one session, and one use. While a lender has a ticket, the
//! gateway accepts its key.

use std::collections::HashMap;
use std::hash::Hash;

use manyways_unit::{Span, Time};

use crate::mux::{Seed, TicketId};
use crate::sched::PathId;

/// Time for which a ticket is valid.
const LIFETIME: Span = Span::from_secs(60);
/// Maximum number of valid tickets of a session.
const MAX_PER_SESSION: usize = 32;

/// A path of a session over a lender; `S` identifies the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loan<S> {
    pub session: S,
    pub path: PathId,
    /// Number of the loan at both ends.
    pub join: u32,
    pub seed: Seed,
    /// Round-trip time between client and lender.
    pub rtt: Span,
}

/// Reason why a client gets no ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this session has {MAX_PER_SESSION} tickets that no lender has used")]
pub struct TooManyTickets;

/// Reason why a ticket is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    #[error("the ticket does not exist, was used or is older than {} s", LIFETIME.as_secs_f64())]
    Invalid,
    #[error("the ticket is for another lender")]
    OtherLender,
}

/// The valid tickets; `K` is the key of a lender.
#[derive(Debug)]
pub struct Tickets<K, S> {
    valid: HashMap<TicketId, (Time, K, Loan<S>)>,
    next_join: u32,
}

impl<K: Eq + Hash, S: Eq> Tickets<K, S> {
    pub fn new() -> Self {
        Self { valid: HashMap::new(), next_join: 0 }
    }

    /// Records a ticket, and returns the number of its loan. `ticket` and `seed` are random; `rtt` is
    /// the round-trip time between client and lender.
    ///
    /// # Errors
    /// If the session has too many tickets.
    pub fn issue(
        &mut self,
        now: Time,
        (ticket, seed): (TicketId, Seed),
        session: S,
        path: PathId,
        (lender, rtt): (K, Span),
    ) -> Result<u32, TooManyTickets> {
        self.expire(now);
        if self.valid.values().filter(|(.., loan)| loan.session == session).count()
            >= MAX_PER_SESSION
        {
            return Err(TooManyTickets);
        }
        let join = self.next_join;
        self.next_join = join.wrapping_add(1);
        let loan = Loan { session, path, join, seed, rtt };
        self.valid.insert(ticket, (now + LIFETIME, lender, loan));
        Ok(join)
    }

    /// Whether a ticket for the lender of this key is valid.
    pub fn expects(&self, now: Time, lender: &K) -> bool {
        self.valid.values().any(|(until, of, _)| of == lender && now < *until)
    }

    /// Uses a ticket.
    ///
    /// # Errors
    /// If there is no such ticket for this lender.
    pub fn redeem(
        &mut self,
        now: Time,
        ticket: TicketId,
        lender: &K,
    ) -> Result<Loan<S>, TicketError> {
        self.expire(now);
        let (_, of, _) = self.valid.get(&ticket).ok_or(TicketError::Invalid)?;
        if of != lender {
            return Err(TicketError::OtherLender);
        }
        let (.., loan) = self.valid.remove(&ticket).ok_or(TicketError::Invalid)?;
        Ok(loan)
    }

    fn expire(&mut self, now: Time) {
        self.valid.retain(|_, (until, ..)| now < *until);
    }
}

impl<K: Eq + Hash, S: Eq> Default for Tickets<K, S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(6);

    fn at(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    fn ticket(number: u8) -> (TicketId, Seed) {
        (TicketId([number; 16]), Seed([number; 32]))
    }

    #[test]
    fn a_ticket_is_for_one_lender_and_one_use() {
        let mut tickets = Tickets::new();
        let joins = [1, 2].map(|number| {
            let path = PathId(number);
            tickets.issue(at(0), ticket(number), "session", path, ("phone", RTT)).unwrap()
        });
        assert_ne!(joins[0], joins[1]);
        assert!(tickets.expects(at(1), &"phone") && !tickets.expects(at(1), &"tablet"));
        let id = TicketId([2; 16]);
        assert_eq!(tickets.redeem(at(1), id, &"tablet"), Err(TicketError::OtherLender));
        let expected = Loan {
            session: "session",
            path: PathId(2),
            join: joins[1],
            seed: Seed([2; 32]),
            rtt: RTT,
        };
        assert_eq!(tickets.redeem(at(1), id, &"phone"), Ok(expected));
        assert_eq!(tickets.redeem(at(1), id, &"phone"), Err(TicketError::Invalid));
        assert!(tickets.expects(at(1), &"phone"), "it has another one");
    }

    #[test]
    fn a_ticket_expires_after_a_minute() {
        let mut tickets = Tickets::new();
        tickets.issue(at(0), ticket(1), 1, PathId(0), ("phone", RTT)).unwrap();
        assert!(tickets.expects(at(59), &"phone") && !tickets.expects(at(60), &"phone"));
        let redeemed = tickets.redeem(at(60), TicketId([1; 16]), &"phone");
        assert_eq!(redeemed, Err(TicketError::Invalid));
    }

    #[test]
    fn a_session_has_a_limited_number_of_tickets() {
        let mut tickets = Tickets::new();
        let issue = |tickets: &mut Tickets<_, _>, now, number, session| {
            tickets.issue(at(now), ticket(number), session, PathId(0), (0, RTT))
        };
        for number in 0..MAX_PER_SESSION as u8 {
            issue(&mut tickets, 0, number, 1).unwrap();
        }
        assert_eq!(issue(&mut tickets, 0, 99, 1), Err(TooManyTickets));
        assert!(issue(&mut tickets, 0, 100, 2).is_ok());
        assert!(issue(&mut tickets, 60, 101, 1).is_ok());
    }
}
