//! A TLS session: the only transaction of its flow.

use std::cell::OnceCell;

use margay_flow::Direction;
use margay_json::Json;

use crate::certificates::{CertificateStore, Occasion};
use crate::config::AppLogOptions;
use crate::proto::AppProto;
use crate::script::Answer;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::cert::Chain;
use super::events::Event;
use super::hello::Hello;
use super::ja;
use super::version::Version;
use super::{CLIENT_FINISHED, CLIENT_HANDSHAKE, SERVER_FINISHED, SERVER_HANDSHAKE, buffers, log};

/// The last message in the data that arrived last, of either direction (`ssl_state`). 0 stands for none; 16 for an unknown
/// one, which is never reached.
pub(super) mod state {
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const CLIENT_KEYX: u8 = 4;
    pub(crate) const SERVER_KEYX: u8 = 8;
}

/// The messages of one side.
#[derive(Debug, Default)]
pub struct Side {
    /// Its first hello.
    pub hello: Option<Hello>,
    /// The version of its hello: the one that the server chose, or the client's `legacy_version`.
    pub said: Version,
    /// As `said`; before the hello, the version of the records.
    pub(super) version: Version,
    /// Its certificates.
    pub chain: Option<Chain>,
    /// When the certificates arrived, in seconds since 1970.
    pub seen: i64,
    /// JA3 of the client or JA3S of the server, with its MD5, computed on first use.
    ja3: OnceCell<(String, String)>,
    /// Whether rules and logs use it.
    pub(super) ja3_wanted: bool,
}

impl Side {
    /// JA3, or JA3S, and its MD5. As in Suricata, an invalid hello has no MD5.
    pub fn ja3(&self, dir: Direction) -> Option<(&str, Option<&str>)> {
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
        Some((string, Some(hash.as_str()).filter(|_| hello.read_to().1)))
    }
}

/// A TLS session.
#[derive(Debug, Default)]
pub struct TlsTx {
    pub(super) base: TxBase,
    /// The client's messages.
    pub client: Side,
    /// The server's messages.
    pub server: Side,
    /// [`state`].
    pub(super) state: u8,
    /// Whether the session resumes an earlier one.
    pub resumed: bool,
    /// By direction: the handshake has ended. The client changed its cipher or sent data after the ServerHello; the server sent
    /// data.
    pub(super) went_on: [bool; 2],
    /// Whether the server requested a client certificate (RFC 5246, section 7.4.4).
    pub(super) asks_client: bool,
    /// The flow's protocol before TLS.
    pub(super) from: Option<AppProto>,
    /// Whether rules and logs use JA4.
    pub(super) ja4: bool,
}

impl TlsTx {
    /// The messages of a direction's sender.
    pub const fn side(&self, dir: Direction) -> &Side {
        match dir {
            Direction::ToServer => &self.client,
            Direction::ToClient => &self.server,
        }
    }

    /// The version: the server's choice; until then, the client's `legacy_version`.
    pub const fn version(&self) -> Version {
        if self.server.said.is_unknown() { self.client.said } else { self.server.said }
    }

    pub(super) const fn side_mut(&mut self, dir: Direction) -> &mut Side {
        match dir {
            Direction::ToServer => &mut self.client,
            Direction::ToClient => &mut self.server,
        }
    }

    /// Adds an event of a direction.
    pub(super) fn event(&mut self, dir: Direction, event: Event) {
        if !self.base.events.has(event as u8) {
            self.base.events.add(event as u8);
            self.base.touch(dir);
        }
    }

    /// Ends a direction's handshake.
    pub(super) fn goes_on(&mut self, dir: Direction) {
        if !std::mem::replace(&mut self.went_on[dir.index()], true) {
            self.base.touch(dir);
        }
    }

    /// Records the last message of a direction.
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
            // If the server requested a client certificate, the client's response is part of the event.
            server >= SERVER_HANDSHAKE && self.base.progress[0] >= CLIENT_HANDSHAKE
        } else {
            // Without a cleartext certificate (TLS 1.3, resumed sessions), the end of both handshakes shows that the session is
            // established.
            self.went_on == [true; 2]
        };
        complete || agreed || self.base.progress == [CLIENT_FINISHED, SERVER_FINISHED]
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        usize::from(log::is_logged(self, &options.tls))
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn store_certificates(&self, dir: Direction, store: &mut CertificateStore, occasion: &Occasion<'_>) -> bool {
        let Some(chain) = &self.side(dir).chain else { return store.dir.is_none() };
        if !chain.is_empty() && store.dir.is_some() {
            store.store(&chain.certificates(), dir, occasion);
        }
        true
    }

    fn ask(&self, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        match protocol {
            "tls-log" => log::line_value(self, what),
            _ => super::script::answer(self, protocol, what),
        }
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        log::log(self, json, &options.tls, what);
    }
}
