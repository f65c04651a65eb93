//! Bytes of streams and bodies, for outputs that write them.

use super::{Addresses, Direction, EventType};

/// The next bytes of a TCP stream, or of an HTTP body.
#[derive(Debug, Clone, Copy)]
pub struct DataEvent<'a> {
    /// [`EventType::TcpData`] or [`EventType::HttpBodyData`].
    pub kind: EventType,
    /// The flow's own addresses: the client is the source.
    pub flow: Addresses,
    /// The number of a body's transaction.
    pub tx_id: Option<u64>,
    /// The direction of the bytes.
    pub direction: Direction,
    /// These are the first bytes of the stream or body.
    pub first: bool,
    /// The bytes.
    pub data: &'a [u8],
}
