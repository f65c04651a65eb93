//! A TLS session: the one transaction of its flow.

use std::cell::OnceCell;

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::registry::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::cert::Chain;
use super::events::Event;
use super::hello::Hello;
use super::ja;
use super::store::{CertificateStore, Occasion};
use super::version::Version;
use super::{CLIENT_FINISHED, CLIENT_HANDSHAKE, SERVER_FINISHED, SERVER_HANDSHAKE, buffers, log};

/// Which message was seen last (`ssl_state`); 16 is none that is known, which never comes that far.
pub(super) mod state {
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const CLIENT_KEYX: u8 = 4;
    pub(crate) const SERVER_KEYX: u8 = 8;
}

/// What one side said.
#[derive(Debug, Default)]
pub struct Side {
    /// Its first hello.
    pub hello: Option<Hello>,
    /// The version of its hello: of the server the one that it chose, of the client the one that it names first.
    pub said: Version,
    /// The same, and before there is one that of its records.
    pub(super) version: Version,
    /// Its certificates.
    pub chain: Option<Chain>,
    /// When those came, in seconds since 1970.
    pub seen: i64,
    /// JA3 of the client or JA3S of the server, and its MD5; worked out when it is asked for first.
    ja3: OnceCell<(String, String)>,
    /// Whether it is there for rules and logs.
    pub(super) ja3_wanted: bool,
}

impl Side {
    /// JA3, or JA3S, and its MD5.
    pub fn ja3(&self, dir: Direction) -> Option<(&str, &str)> {
        let hello = self.hello.as_ref().filter(|_| self.ja3_wanted)?;
        let (string, hash) = self.ja3.get_or_init(|| {
            let (mut string, mut hash) = (Vec::new(), Vec::new());
            match dir {
                Direction::ToServer => ja::ja3(hello, &mut string),
                Direction::ToClient => ja::ja3s(hello, &mut string),
            }
            ja::md5_hex(&string, &mut hash);
            let text = |v| String::from_utf8(v).unwrap_or_default();
            (text(string), text(hash))
        });
        Some((string, hash))
    }
}

/// A TLS session.
#[derive(Debug, Default)]
pub struct TlsTx {
    pub(super) base: TxBase,
    /// What the client said.
    pub client: Side,
    /// What the server said.
    pub server: Side,
    /// Which message was seen last: [`state`].
    pub(super) state: u8,
    /// Whether the session is one that went on from an earlier one.
    pub resumed: bool,
    /// By direction, whether its handshake ended: the client changed its cipher or sent data behind the server's hello, the server sent data.
    pub(super) went_on: [bool; 2],
    /// Whether the server asked for a certificate of the client (RFC 5246, section 7.4.4).
    pub(super) asks_client: bool,
    /// What the flow was before TLS began in it.
    pub(super) from: Option<AppProto>,
    /// Whether JA4 is there for rules and logs.
    pub(super) ja4: bool,
}

impl TlsTx {
    /// What the sender of a direction said.
    pub const fn side(&self, dir: Direction) -> &Side {
        match dir {
            Direction::ToServer => &self.client,
            Direction::ToClient => &self.server,
        }
    }

    /// The version: that which the server chose, as long as it did not the one that the client names first.
    pub const fn version(&self) -> Version {
        if self.server.said.is_unknown() { self.client.said } else { self.server.said }
    }

    pub(super) const fn side_mut(&mut self, dir: Direction) -> &mut Side {
        match dir {
            Direction::ToServer => &mut self.client,
            Direction::ToClient => &mut self.server,
        }
    }

    /// Adds an event that came up in a direction.
    pub(super) fn event(&mut self, dir: Direction, event: Event) {
        if !self.base.events.has(event as u8) {
            self.base.events.add(event as u8);
            self.base.touch(dir);
        }
    }

    /// A direction's handshake ended.
    pub(super) fn goes_on(&mut self, dir: Direction) {
        if !std::mem::replace(&mut self.went_on[dir.index()], true) {
            self.base.touch(dir);
        }
    }

    /// A message of a direction was seen.
    pub(super) fn set_state(&mut self, dir: Direction, state: u8) {
        self.state = state;
        self.base.touch(dir);
    }
}

impl Transaction for TlsTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        let side = |s: &Side| {
            s.hello.as_ref().map_or(0, Hello::held)
                + s.chain.as_ref().map_or(0, Chain::held)
                + s.ja3.get().map_or(0, |(string, hash)| string.capacity() + hash.capacity())
        };
        self.base.held() + (side(&self.client) + side(&self.server)) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        buffers::buffer(self, id, dir, index, scratch)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        buffers::number(self, id, dir, index)
    }

    fn is_counted(&self) -> bool {
        false
    }

    fn is_loggable(&self, complete: bool) -> bool {
        let server = self.base.progress[1];
        let agreed = if self.server.chain.is_some() {
            // Where the server asked for the client's certificate, what the client answers is part of the event.
            server >= SERVER_HANDSHAKE && self.base.progress[0] >= CLIENT_HANDSHAKE
        } else {
            // Without a certificate in clear (TLS 1.3, a session that is resumed) the end of both handshakes says that the session was agreed on.
            self.went_on == [true; 2]
        };
        complete || agreed || self.base.progress == [CLIENT_FINISHED, SERVER_FINISHED]
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        usize::from(log::is_logged(self, &options.tls))
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn store_certificates(&self, dir: Direction, store: &mut CertificateStore, occasion: &Occasion<'_>) {
        if let Some(chain) = self.side(dir).chain.as_ref().filter(|c| !c.is_empty()) {
            store.store(chain, dir, occasion);
        }
    }

    fn ask(&self, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        super::script::answer(self, protocol, what)
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        log::log(self, json, &options.tls, what);
    }
}
