//! Inputs and outputs of a session.

use std::ops::Add;

use manyways_unit::Span;

use super::{
    CarrierId, Destination, Direction, FlowId, LoanMessage, Message, ResetCode, StreamId,
    TransportInfo,
};
use crate::sched::{PathId, StreamPolicy};

/// An event for the session.
#[derive(Debug)]
pub enum Input<P> {
    /// A carrier was connected.
    Attach {
        /// Unused before.
        carrier: CarrierId,
        path: PathId,
        transport_info: TransportInfo,
    },
    /// The carrier leads over a device that lends its network.
    Lend {
        carrier: CarrierId,
        /// Number of the loan, the same at client and gateway.
        join: u32,
        /// Round-trip time of the half of the path that is not the carrier's transport.
        rtt: Span,
    },
    /// The lender has dropped the next message of the carrier that needs an ACK.
    Dropped { carrier: CarrierId },
    /// Send a message about a loan, once: it may be lost.
    Loan(LoanMessage),
    /// The carrier will be closed soon: it gets no new messages.
    Retire { carrier: CarrierId },
    /// A carrier was closed.
    Detach { carrier: CarrierId },
    /// The transport of a carrier reports its state.
    TransportInfo { carrier: CarrierId, transport_info: TransportInfo },
    /// A carrier accepts this number of bytes now; replaces the previous number.
    Writable { carrier: CarrierId, bytes: usize },
    /// Initial credit that the peer grants in its first message.
    InitialCredit {
        /// Credit of the session, in bytes.
        credit: u64,
        /// Credit of each stream, in bytes.
        stream_credit: u64,
    },
    /// A message was received.
    Message { carrier: CarrierId, message: Message<P> },
    /// An application of the client opens a connection.
    Open {
        /// One more than the previous stream.
        stream: StreamId,
        label: u8,
        /// Destination for the gateway.
        destination: Destination,
        /// Whether the gateway confirms its connection to the destination: [`Output::Opened`].
        confirm: bool,
    },
    /// The gateway has connected a stream to its destination.
    Opened { stream: StreamId },
    /// The application wrote data.
    Write { stream: StreamId, data: P },
    /// The application has no more data to write.
    Finish { stream: StreamId },
    /// The stream is ended in both directions.
    Reset { stream: StreamId, code: ResetCode },
    /// The application consumed delivered data.
    Consumed { stream: StreamId, bytes: u64 },
    /// Changes the policy of a label, also for existing streams with this label.
    Relabel { id: u8, stream_policy: StreamPolicy },
    /// Changes the label of a stream. Only a client assigns labels.
    Assign { stream: StreamId, label: u8 },
    /// A datagram of an application or a server.
    Datagram {
        flow: FlowId,
        /// A gateway repeats the label of the client.
        label: u8,
        /// Destination (at the client) or source (at the gateway).
        peer: Destination,
        data: P,
    },
    /// A flow was closed.
    CloseFlow { flow: FlowId },
    /// The interface of a path is down. The mux informs the peer, which need not wait for its own
    /// timeout. The carriers over the path are detached before.
    PathDown { path: PathId },
}

/// An action for the shell.
#[derive(Debug)]
pub enum Output<P> {
    Send {
        carrier: CarrierId,
        message: Message<P>,
    },
    /// A stream was reset because the peer has more than it may.
    StreamRefused,
    /// The peer has sent a message about a loan.
    Loan(LoanMessage),
    /// Ask the lender of a carrier to drop the messages of these numbers, if it still has them: the
    /// n-th message that needs an ACK has number n - 1.
    Recall {
        carrier: CarrierId,
        first: u64,
        last: u64,
    },
    /// Connect to the target of a stream.
    Open {
        stream: StreamId,
        label: u8,
        destination: Destination,
    },
    /// The gateway has connected a stream to its destination. Data of the stream may arrive
    /// earlier, and then this output may be missing.
    Opened {
        stream: StreamId,
    },
    /// Deliver data to the application.
    Data {
        stream: StreamId,
        /// The next bytes in order.
        data: P,
    },
    /// The peer has no more data to write.
    Finished {
        stream: StreamId,
    },
    /// The stream was aborted.
    Reset {
        stream: StreamId,
        code: ResetCode,
    },
    /// The application may write again; see [`super::Mux::writable_bytes`].
    Writable {
        stream: StreamId,
    },
    /// The stream is closed and its state is removed.
    Closed {
        stream: StreamId,
    },
    /// A datagram was received.
    Datagram {
        flow: FlowId,
        label: u8,
        /// Destination (at the gateway) or source (at the client).
        peer: Destination,
        data: P,
    },
    /// The peer closed a flow.
    CloseFlow {
        flow: FlowId,
    },
    /// The peer's interface of a path is down: close the carriers over this path.
    PathDown {
        path: PathId,
    },
    /// A carrier has not got through for longer than expected. Until it recovers, it is used only
    /// if there is no other carrier. A new connection may work.
    Suspect {
        carrier: CarrierId,
        direction: Direction,
    },
    /// A suspect carrier works again.
    Recovered {
        carrier: CarrierId,
    },
    /// The peer violated the protocol: close the carrier.
    ProtocolViolation {
        carrier: CarrierId,
        /// Description of the violation.
        violation: &'static str,
    },
    /// The lender of the carrier has dropped a message that it had to pass on: close the carrier.
    WrongDrop {
        carrier: CarrierId,
    },
    /// The peer ended the session.
    Bye,
}

/// Statistics of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Sent bytes of streams, including retransmissions and copies.
    pub sent: u64,
    /// Part of `sent` that was reinjected because a carrier stalled.
    pub reinjected: u64,
    /// Bytes that were recalled from a lender and given to another path.
    pub recalled: u64,
    /// Reinjected bytes that the stalled carrier delivered after all.
    pub spurious: u64,
    /// Received bytes of streams.
    pub received: u64,
    /// Part of `received` that was received before.
    pub duplicate: u64,
    /// Datagrams that were dropped because they were stale, too long or too many, or because their
    /// flow was closed.
    pub dropped: u64,
    /// Bytes of messages without application data.
    pub headers: u64,
}

impl Add for Counters {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            reinjected: self.reinjected + other.reinjected,
            recalled: self.recalled + other.recalled,
            spurious: self.spurious + other.spurious,
            received: self.received + other.received,
            duplicate: self.duplicate + other.duplicate,
            dropped: self.dropped + other.dropped,
            headers: self.headers + other.headers,
        }
    }
}
