//! The state of one path of a client.

use manyways_unit::{Span, Time};

use super::{CarrierTransport, Config, Failure, PacketSize, TransportChoice};
use crate::bond::path::PathState;
use crate::mux::{CarrierId, Direction};

#[derive(Debug)]
pub(super) struct Path<F> {
    /// Whether it leads over a lender.
    pub(super) is_lent: bool,
    pub(super) carrier: Option<CarrierId>,
    pub(super) is_suspect: bool,
    /// Time since which the path is asleep.
    pub(super) asleep_since: Option<Time>,
    pub(super) activity: Activity<F>,
    pub(super) backoff: Span,
    /// Time for which the lender is not used after the next message that it changes.
    pub(super) distrust: Span,
    /// Remaining failures of TCP, other than timeouts, before QUIC is tried.
    pub(super) tcp_failures_left: u8,
    /// The last reported failure since the last success.
    pub(super) reported_failure: Option<Failure<F>>,
    /// Where the suspect carrier has carried no more than a handshake.
    pub(super) barren: Option<Direction>,
    pub(super) way: Way,
    /// Where a carrier has carried no more than a handshake, before this way was tried.
    pub(super) lost: Option<Direction>,
    /// Whether data has passed this way, and no attempt has failed since.
    pub(super) way_works: bool,
    /// Whether data has passed in no way since the last success.
    pub(super) is_on_trial: bool,
    /// Whether the peer closed the last carrier.
    pub(super) is_closed: bool,
    /// Whether the gateway refused the last attempt.
    pub(super) is_refused: bool,
}

impl<F> Path<F> {
    /// Creates the state of a path that is due.
    pub(super) fn new(is_lent: bool, config: &Config) -> Self {
        Self {
            is_lent,
            carrier: None,
            is_suspect: false,
            asleep_since: None,
            activity: Activity::Due,
            backoff: config.first_backoff,
            distrust: config.first_distrust,
            tcp_failures_left: 0,
            reported_failure: None,
            barren: None,
            way: Way::Normal,
            lost: None,
            way_works: false,
            is_on_trial: false,
            is_closed: false,
            is_refused: false,
        }
    }

    pub(super) fn state(&self) -> PathState {
        match (self.carrier, self.asleep_since) {
            (Some(_), _) if self.is_suspect || self.is_on_trial => PathState::Suspect,
            (Some(_), _) => PathState::Up,
            (None, Some(_)) => PathState::Asleep,
            (None, None) => PathState::Down,
        }
    }

    /// Returns when the path has something to do if nothing happens before.
    pub(super) fn next_wakeup(&self, is_known: bool) -> Option<Time> {
        match &self.activity {
            Activity::Settled | Activity::NoLink => None,
            Activity::Due | Activity::Backoff(..) | Activity::Distrusted(_)
                if self.is_lent && !is_known =>
            {
                None
            }
            Activity::Due => Some(Time::ZERO),
            Activity::Backoff(_, at)
            | Activity::RenewalPause(at)
            | Activity::Distrusted(at)
            | Activity::Suspect(at) => Some(*at),
            Activity::Attempt(attempt) => Some(match &attempt.stage {
                Stage::Connecting(_, Some(at)) | Stage::FallenBack(at, _) => {
                    attempt.deadline.min(*at)
                }
                Stage::Connecting(_, None) | Stage::Handshake => attempt.deadline,
            }),
        }
    }

    /// Ends the wait, because the path has changed.
    pub(super) fn wake(&mut self, first_backoff: Span) {
        match &mut self.activity {
            Activity::Attempt(attempt) => attempt.is_outdated = true,
            Activity::Backoff(..) | Activity::RenewalPause(_) => {
                self.backoff = first_backoff;
                self.activity = Activity::Due;
            }
            Activity::Suspect(_) => self.activity = Activity::Due,
            Activity::NoLink => self.activity = Activity::Due,
            Activity::Settled => {
                if self.carrier.is_none() && self.asleep_since.is_none() {
                    self.activity = Activity::Due;
                }
            }
            Activity::Due | Activity::Distrusted(_) => {}
        }
    }

    /// Returns the time for which its lender is not used now.
    pub(super) fn next_distrust(&mut self, max: Span) -> Span {
        let pause = self.distrust;
        self.distrust = (pause * 2).min(max);
        pause
    }
}

/// A way to get data through a path, in the order of attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Normal,
    /// The network may have been silent for a moment only.
    NormalAgain,
    SmallPackets,
    Quic,
}

impl Way {
    /// `None` after the last one.
    pub(super) fn next(self, choice: TransportChoice) -> Option<Self> {
        match (self, choice) {
            (Self::Normal, _) => Some(Self::NormalAgain),
            (_, TransportChoice::Only(CarrierTransport::Quic)) => None,
            (Self::NormalAgain, _) => Some(Self::SmallPackets),
            (Self::SmallPackets, TransportChoice::TcpThenQuic) => Some(Self::Quic),
            (Self::SmallPackets | Self::Quic, _) => None,
        }
    }

    pub(super) fn packets(self) -> PacketSize {
        match self {
            Self::SmallPackets => PacketSize::Small,
            Self::Normal | Self::NormalAgain | Self::Quic => PacketSize::Normal,
        }
    }
}

/// Current activity of a path.
#[derive(Debug)]
pub(super) enum Activity<F> {
    /// None: the path has a carrier or is asleep.
    Settled,
    /// None until the interface works.
    NoLink,
    /// Dialled at the next poll.
    Due,
    /// Dialled at the second time. The attempt before began at the first one.
    Backoff(Time, Time),
    /// Dialled after a constant delay.
    RenewalPause(Time),
    /// Dialled at this time and not before, whatever changes: its lender has changed messages.
    Distrusted(Time),
    /// Replaces the carrier at this time if it is still suspect.
    Suspect(Time),
    Attempt(Attempt<F>),
}

#[derive(Debug)]
pub(super) struct Attempt<F> {
    pub(super) began: Time,
    pub(super) deadline: Time,
    pub(super) stage: Stage<F>,
    /// Whether the peer has proved its key.
    pub(super) is_secured: bool,
    /// Whether the path changed during the attempt. A failed attempt is then repeated at once.
    pub(super) is_outdated: bool,
}

#[derive(Debug)]
pub(super) enum Stage<F> {
    /// Connects over the only transport without deadline, or over TCP until this deadline.
    Connecting(CarrierTransport, Option<Time>),
    /// Connects over QUIC until this deadline, after TCP failed with this reason.
    FallenBack(Time, Failure<F>),
    /// Client and gateway are authenticated, and exchange hello and welcome.
    Handshake,
}
