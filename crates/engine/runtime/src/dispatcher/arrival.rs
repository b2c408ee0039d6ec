//! What arrives at the dispatcher's loop, and the loop's end of a connection. Who sends it: [`super::arrivals`],
//! [`super::relays`], [`super::links`].

use eyas_net::Writer;
use eyas_session::dispatcher::Input;
use eyas_terms::MemberId;
use eyas_wire::message::Hello;
use eyas_wire::users::Visitor;
use std::net::SocketAddr;
use tokio::sync::oneshot;

/// The session's inputs, some with the connection that they came on.
pub(super) enum Arrival {
    Connected { connection: u64, peer: SocketAddr, hello: Hello, visitor: Visitor, line: Line },
    MemberReached { member: MemberId, writer: Writer },
    MemberLost { member: MemberId },
    RelayCame { connection: u64, line: Line },
    RelayLeft { connection: u64 },
    Session(Input),
}

/// The loop's end of a connection. When it is closed, what is queued still leaves, and nothing more is read.
pub(super) struct Line {
    pub(super) writer: Writer,
    /// `None`: a relay reads for many.
    _reading: Option<oneshot::Sender<()>>,
}

impl Line {
    /// Of a connection that somebody reads for it alone, and hears when it is closed.
    pub(super) fn own(writer: Writer) -> (Line, oneshot::Receiver<()>) {
        let (reading, closed) = oneshot::channel();
        (Line { writer, _reading: Some(reading) }, closed)
    }

    pub(super) fn behind_relay(writer: Writer) -> Line {
        Line { writer, _reading: None }
    }
}
