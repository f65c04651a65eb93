//! Connections that one protocol announces and another carries: FTP's data connections.
//!
//! A parser that reads the endpoints of a future connection announces it ([`Expect`], in [`crate::Shared::expected`]). The
//! engine keeps announcements in a bounded table for a short time, and searches it when a new TCP flow has its first data. An
//! expected flow skips protocol detection: it begins with the announced protocol ([`Carries::parser`]).

use std::net::IpAddr;

use margay_flow::Direction;

use crate::ftp_data::{self, Transfer};
use crate::parser::Parser;
use crate::registry::AppProto;

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
pub enum Carries {
    /// A file transfer of FTP. The second value says whether the peer that opens the connection sends the file.
    FtpData(Transfer, bool),
}

impl Carries {
    /// The protocol.
    pub const fn proto(&self) -> AppProto {
        match self {
            Carries::FtpData(..) => AppProto::FtpData,
        }
    }

    /// The parser of a flow that carries it. `reversed` says that the flow's client is the listening peer, because the
    /// beginning of the connection was not seen.
    pub fn parser(self, reversed: bool) -> Box<dyn Parser> {
        match self {
            Carries::FtpData(transfer, by_opener) => {
                let dir = if by_opener == reversed { Direction::ToClient } else { Direction::ToServer };
                ftp_data::parser(transfer, dir)
            }
        }
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
