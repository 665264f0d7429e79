//! Messages with which a client gets a path over a lender.
//!
//! The client asks the gateway for a ticket, and gives it to the lender over the pipe. The lender
//! redeems it at the gateway, and informs the client. Then both connections carry sealed messages.

use std::fmt;

use manyways_unit::Span;

use super::{DecodeError, Decoder, put_name, put_number};
use crate::sched::PathId;

/// Identifier of a ticket: a random number that only client, gateway and lender know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TicketId(pub [u8; 16]);

/// Secret of a lent path, from which its two ends derive their keys. The lender does not get it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

/// A message about a loan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoanMessage {
    /// Client to gateway: the lender with this public key may carry this path of the session.
    Request {
        path: PathId,
        lender: [u8; 32],
        /// Round-trip time of the pipe.
        rtt: Span,
    },
    /// Gateway to client: the lender may come with this ticket.
    Ticket {
        path: PathId,
        ticket: TicketId,
        /// Number of the loan in its session.
        join: u32,
        seed: Seed,
    },
    /// Gateway to client: it gives no ticket, for this reason.
    Refused { path: PathId, reason: String },
    /// Lender to gateway.
    Redeem { ticket: TicketId },
    /// Gateway to lender.
    Redeemed,
    /// Client to lender.
    Join {
        ticket: TicketId,
        /// Whether the lender passes ACKs of the client on only while the gateway sends.
        holds_acks: bool,
    },
    /// Lender to client: both connections carry sealed messages now.
    Joined {
        /// Round-trip time between lender and gateway.
        rtt: Span,
    },
    /// Gateway to client: the lender of this path has changed, left out or repeated messages.
    Forged { path: PathId },
}

mod kind {
    pub const REQUEST: u8 = 0;
    pub const TICKET: u8 = 1;
    pub const REFUSED: u8 = 2;
    pub const REDEEM: u8 = 3;
    pub const REDEEMED: u8 = 4;
    pub const JOIN: u8 = 5;
    pub const JOINED: u8 = 6;
    pub const FORGED: u8 = 7;
}

impl LoanMessage {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { path, lender, rtt } => {
                out.extend([kind::REQUEST, path.0]);
                out.extend(lender);
                put_span(out, *rtt);
            }
            Self::Ticket { path, ticket, join, seed } => {
                out.extend([kind::TICKET, path.0]);
                out.extend(ticket.0);
                put_number(out, (*join).into());
                out.extend(seed.0);
            }
            Self::Refused { path, reason } => {
                out.extend([kind::REFUSED, path.0]);
                put_name(out, reason);
            }
            Self::Redeem { ticket } => {
                out.push(kind::REDEEM);
                out.extend(ticket.0);
            }
            Self::Redeemed => out.push(kind::REDEEMED),
            Self::Join { ticket, holds_acks } => {
                out.extend([kind::JOIN, u8::from(*holds_acks)]);
                out.extend(ticket.0);
            }
            Self::Joined { rtt } => {
                out.push(kind::JOINED);
                put_span(out, *rtt);
            }
            Self::Forged { path } => out.extend([kind::FORGED, path.0]),
        }
    }
}

impl Decoder<'_> {
    pub(super) fn loan(&mut self) -> Result<LoanMessage, DecodeError> {
        Ok(match self.byte()? {
            kind::REQUEST => {
                let (path, lender) = (self.path()?, self.array()?);
                LoanMessage::Request { path, lender, rtt: self.span()? }
            }
            kind::TICKET => {
                let (path, ticket) = (self.path()?, TicketId(self.array()?));
                let (join, seed) = (self.number32()?, Seed(self.array()?));
                LoanMessage::Ticket { path, ticket, join, seed }
            }
            kind::REFUSED => {
                let path = self.path()?;
                LoanMessage::Refused { path, reason: self.name()? }
            }
            kind::REDEEM => LoanMessage::Redeem { ticket: TicketId(self.array()?) },
            kind::REDEEMED => LoanMessage::Redeemed,
            kind::JOIN => {
                let holds_acks = self.byte()? != 0;
                LoanMessage::Join { ticket: TicketId(self.array()?), holds_acks }
            }
            kind::JOINED => LoanMessage::Joined { rtt: self.span()? },
            kind::FORGED => LoanMessage::Forged { path: self.path()? },
            _ => return Err(DecodeError::InvalidField("kind of loan message")),
        })
    }

    fn path(&mut self) -> Result<PathId, DecodeError> {
        match self.byte()? {
            path if path < PathId::LIMIT => Ok(PathId(path)),
            _ => Err(DecodeError::InvalidField("path")),
        }
    }

    /// A span in microseconds.
    fn span(&mut self) -> Result<Span, DecodeError> {
        Ok(Span::from_micros(self.number32()?.into()))
    }
}

fn put_span(out: &mut Vec<u8>, span: Span) {
    let micros = span.as_nanos() / 1_000;
    put_number(out, micros.min(u32::MAX.into()));
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ticket")
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}
