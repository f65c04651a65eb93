//! Connections that one protocol announces and another carries: FTP's data connections.
//!
//! A parser that reads where a connection will come from and go to says so ([`Expect`], in [`crate::Shared::expected`]).
//! The engine keeps what was said in a bounded table for a short time, and asks it when a new TCP flow has its first data.
//! A flow that was expected is not recognised: it begins with the protocol that was announced ([`Carries::parser`]).

use std::net::IpAddr;

use margay_flow::Direction;

use crate::ftp_data::{self, Transfer};
use crate::parser::Parser;
use crate::registry::AppProto;

/// Which connection is expected: who opens it and where to. The port that it is opened from may be any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExpectedFlow {
    /// IP protocol.
    pub transport: u8,
    /// Who opens it.
    pub from: IpAddr,
    /// Who listens.
    pub to: IpAddr,
    /// The port that is listened on.
    pub port: u16,
}

/// What an expected connection will carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carries {
    /// A file of FTP. The second value says whether who opens the connection sends it.
    FtpData(Transfer, bool),
}

impl Carries {
    /// The protocol.
    pub const fn proto(&self) -> AppProto {
        match self {
            Carries::FtpData(..) => AppProto::FtpData,
        }
    }

    /// The parser of a flow that carries it. `reversed` says that the flow's client is who listens: the connection's
    /// beginning was not seen.
    pub fn parser(self, reversed: bool) -> Box<dyn Parser> {
        match self {
            Carries::FtpData(transfer, by_opener) => {
                let dir = if by_opener == reversed { Direction::ToClient } else { Direction::ToServer };
                ftp_data::parser(transfer, dir)
            }
        }
    }
}

/// What is known of a connection that was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// It was announced, and what it is for will be said later: data of it waits for that.
    Pending,
    /// It will carry this.
    Carries(Carries),
    /// It is not expected any more, or for something that nobody wants to know.
    Nothing,
}

/// What a parser says of a connection to come. What it says of the same connection later replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// Which connection.
    pub flow: ExpectedFlow,
    /// Number of the flow that announced it.
    pub parent: u64,
    /// What for.
    pub what: Awaited,
}
