//! What a shell tells a session, and what it is told to do.

use super::{CarrierId, Condition, FlowId, Message, ResetCode, StreamId, Target};
use crate::sched::{PathId, Treatment};

/// What happened.
#[derive(Debug)]
pub enum Input<P> {
    /// A carrier is there.
    Attach {
        /// Its number, not used before.
        carrier: CarrierId,
        /// The path that it takes.
        path: PathId,
        /// What is known of it.
        condition: Condition,
    },
    /// A carrier is gone.
    Detach {
        /// Which one.
        carrier: CarrierId,
    },
    /// What a carrier's transport says.
    Condition {
        /// Which carrier.
        carrier: CarrierId,
        /// What it says.
        condition: Condition,
    },
    /// A carrier takes so many bytes now, counted anew.
    Room {
        /// Which carrier.
        carrier: CarrierId,
        /// How many bytes.
        bytes: usize,
    },
    /// The peer allows this from the beginning, as its first message says.
    Allowance {
        /// Bytes of all streams.
        credit: u64,
        /// Bytes of a stream.
        stream_credit: u64,
    },
    /// A message came.
    Message {
        /// Over this carrier.
        carrier: CarrierId,
        /// What it says.
        message: Message<P>,
    },
    /// The application wants a connection. Only a client's does.
    Open {
        /// Its number: one more than the one before.
        stream: StreamId,
        /// How it is treated.
        label: u8,
        /// Where to.
        target: Target,
    },
    /// The application wrote.
    Write {
        /// To which stream.
        stream: StreamId,
        /// What.
        data: P,
    },
    /// The application has nothing more to write.
    Finish {
        /// Which stream.
        stream: StreamId,
    },
    /// The stream ends now, in both directions.
    Reset {
        /// Which one.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// The application took bytes that were delivered.
    Consumed {
        /// Of which stream.
        stream: StreamId,
        /// How many.
        bytes: u64,
    },
    /// A label stands for this from now on, for streams that have it too.
    Relabel {
        /// The label's number.
        id: u8,
        /// What it stands for.
        treatment: Treatment,
    },
    /// A stream gets another label. Only a client gives labels.
    Assign {
        /// Which stream.
        stream: StreamId,
        /// Its new label.
        label: u8,
    },
    /// A datagram of an application, or of a server.
    Datagram {
        /// Its flow.
        flow: FlowId,
        /// How it is treated; a gateway repeats what the client said.
        label: u8,
        /// Where it goes, or whence it comes.
        peer: Target,
        /// What it says.
        data: P,
    },
    /// A flow is over.
    CloseFlow {
        /// Which one.
        flow: FlowId,
    },
    /// The interface of a path works no more, and the peer shall not wait until it notices. The
    /// carriers over it are detached before.
    PathDown {
        /// Which path.
        path: PathId,
    },
}

/// What to do.
#[derive(Debug)]
pub enum Output<P> {
    /// Send this.
    Send {
        /// Over this carrier.
        carrier: CarrierId,
        /// The message.
        message: Message<P>,
    },
    /// Connect to where an application wants to go.
    Open {
        /// For this stream.
        stream: StreamId,
        /// How it is treated.
        label: u8,
        /// Where to.
        target: Target,
    },
    /// Give this to the application.
    Data {
        /// Of this stream.
        stream: StreamId,
        /// The next bytes.
        data: P,
    },
    /// The peer has nothing more to write.
    Finished {
        /// On which stream.
        stream: StreamId,
    },
    /// The stream has ended before its end.
    Reset {
        /// Which one.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// The application may write again, see [`super::Mux::appetite`].
    Hungry {
        /// To which stream.
        stream: StreamId,
    },
    /// Nothing is left of the stream.
    Closed {
        /// Which one.
        stream: StreamId,
    },
    /// A datagram came.
    Datagram {
        /// Of this flow.
        flow: FlowId,
        /// How it is treated.
        label: u8,
        /// Where it goes, or whence it comes.
        peer: Target,
        /// What it says.
        data: P,
    },
    /// The peer's flow is over.
    CloseFlow {
        /// Which one.
        flow: FlowId,
    },
    /// The peer's interface of a path works no more: the carriers over it are to be closed.
    PathDown {
        /// Which path.
        path: PathId,
    },
    /// A carrier has not got through for longer than it should take. It is used only where there
    /// is no other until it does; a new one may get through.
    Suspect {
        /// Which one.
        carrier: CarrierId,
    },
    /// A suspect carrier gets through again.
    Recovered {
        /// Which one.
        carrier: CarrierId,
    },
    /// The peer broke a rule: the carrier is to be closed.
    Breach {
        /// Over which carrier.
        carrier: CarrierId,
        /// What it did.
        what: &'static str,
    },
    /// The peer says that the session is over.
    Bye,
}

/// What a session has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes of streams that were sent, all copies counted.
    pub sent: u64,
    /// Of these, sent again because a carrier stalled…
    pub reinjected: u64,
    /// …though it brought them after all.
    pub spurious: u64,
    /// Bytes of streams that came.
    pub received: u64,
    /// Of these, for the second time.
    pub repeated: u64,
    /// Datagrams that were dropped before they were sent: stale, or too many.
    pub dropped: u64,
    /// Bytes of messages that are not the application's.
    pub headers: u64,
}
