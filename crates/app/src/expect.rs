//! Connections that one protocol announces and another carries: FTP's data connections.
//!
//! A parser that reads the endpoints of a future connection announces it ([`Expect`], in [`crate::Shared::expected`]). The
//! engine keeps announcements in a bounded table for a short time, and searches it when a new TCP flow has its first data. An
//! expected flow skips protocol detection: it begins with the announced protocol ([`crate::Protocol::expected`]).

use std::net::IpAddr;

use margay_flow::Direction;

use crate::proto::AppProto;

/// The endpoints of an expected connection. The source port may be any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExpectedFlow {
    /// IP protocol.
    pub transport: u8,
    /// Address of the peer that opens the connection.
    pub from: IpAddr,
    /// Address of the peer that listens.
    pub to: IpAddr,
    /// The listening port.
    pub port: u16,
}

/// The content of an expected connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carries {
    /// The protocol, whose declaration says how to parse it ([`crate::Protocol::expected`]).
    pub proto: AppProto,
    /// The command that asked for the content, by its number in the protocol.
    pub command: u8,
    /// Name of the content; empty if it has none.
    pub name: Vec<u8>,
    /// Whether the peer that opens the connection sends the content.
    pub by_opener: bool,
}

impl Carries {
    /// The direction of the content. `reversed` says that the flow's client is the listening peer, because the beginning of the
    /// connection was not seen.
    pub fn direction(&self, reversed: bool) -> Direction {
        if self.by_opener == reversed { Direction::ToClient } else { Direction::ToServer }
    }
}

/// The purpose of an announced connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// Announced, with the purpose to follow: its data waits until then.
    Pending,
    /// It will carry this.
    Carries(Carries),
    /// No longer expected, or for an irrelevant purpose.
    Nothing,
}

/// A parser's announcement of a connection. A later announcement of the same connection replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The connection.
    pub flow: ExpectedFlow,
    /// Number of the flow that announced it.
    pub parent: u64,
    /// Its purpose.
    pub what: Awaited,
}
