//! A transaction: one packet.

use std::sync::OnceLock;

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::proto::AppProto;
use crate::script::Answer;
use crate::tls::hello::Hello;
use crate::tls::ja;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::COMPLETE;
use super::hello::Chlo;
use super::packet::gquic;

/// A packet, as a transaction.
#[derive(Debug)]
pub struct QuicTx {
    pub(super) base: TxBase,
    /// The direction of the packet.
    pub(super) dir: Direction,
    /// Its version.
    pub(super) version: u32,
    /// Whether its header is gQUIC's public header.
    pub(super) public: bool,
    /// The hello that it completed.
    pub(super) hello: Option<Box<Hello>>,
    /// Its gQUIC hello.
    pub(super) chlo: Option<Box<Chlo>>,
    /// JA3 or JA3S: string and hash, computed on first use.
    ja3: OnceLock<(Vec<u8>, Vec<u8>)>,
    /// CYU: string and hash.
    pub(super) cyu: Option<Box<(Vec<u8>, Vec<u8>)>>,
}

impl QuicTx {
    pub(super) fn new(id: u64, dir: Direction, version: u32) -> Self {
        let mut base = TxBase { id, ..TxBase::default() };
        base.one_sided(dir.reverse(), COMPLETE);
        base.advance(dir, COMPLETE);
        QuicTx { base, dir, version, public: false, hello: None, chlo: None, ja3: OnceLock::new(), cyu: None }
    }

    pub(super) fn set_chlo(&mut self, chlo: Chlo) {
        // There are no reference fingerprints for versions before Q043.
        if let Some(digits) = gquic(self.version).filter(|d| *d != "39") {
            let string = [digits.as_bytes(), b",", &chlo.tags].concat();
            let mut hash = Vec::with_capacity(32);
            ja::md5_hex(&string, &mut hash);
            self.cyu = Some(Box::new((string, hash)));
        }
        self.chlo = Some(Box::new(chlo));
    }

    /// The fingerprint of its hello, JA3 of the client or JA3S of the server: string and hash.
    pub(super) fn ja3(&self) -> Option<(&[u8], &[u8])> {
        let hello = self.hello.as_deref()?;
        let (string, hash) = self.ja3.get_or_init(|| {
            let (mut string, mut hash) = (Vec::with_capacity(128), Vec::with_capacity(32));
            match self.dir {
                Direction::ToServer => ja::ja3(hello, &mut string),
                Direction::ToClient => ja::ja3s(hello, &mut string),
            }
            ja::md5_hex(&string, &mut hash);
            (string, hash)
        });
        Some((string, hash))
    }

    /// The server's name.
    pub(super) fn sni(&self) -> Option<&[u8]> {
        match (&self.hello, &self.chlo) {
            (Some(hello), _) if self.dir == Direction::ToServer => hello.sni(),
            (_, Some(chlo)) => chlo.sni.as_deref(),
            _ => None,
        }
    }
}

impl Transaction for QuicTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        let pair = |p: &(Vec<u8>, Vec<u8>)| p.0.capacity() + p.1.capacity();
        let own = self.hello.as_ref().map_or(0, |h| size_of::<Hello>() + h.held())
            + self.chlo.as_ref().map_or(0, |c| size_of::<Chlo>() + c.held())
            + self.ja3.get().map_or(0, pair)
            + self.cyu.as_deref().map_or(0, pair);
        self.base.held() + own as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn direction(&self, _options: &AppLogOptions) -> Direction {
        self.dir
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn ask(&self, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        if protocol != "ja3" {
            return None;
        }
        let of = |dir| self.ja3().filter(|_| self.dir == dir);
        Some(match what {
            "get" => Answer::Bool(true),
            "ja3_get_hash" => Answer::bytes(of(Direction::ToServer).map(|j| j.1)),
            "ja3_get_string" => Answer::bytes(of(Direction::ToServer).map(|j| j.0)),
            "ja3s_get_hash" => Answer::bytes(of(Direction::ToClient).map(|j| j.1)),
            "ja3s_get_string" => Answer::bytes(of(Direction::ToClient).map(|j| j.0)),
            _ => return None,
        })
    }

    fn log(&self, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        super::log::log(self, json, options.options.get(AppProto::Quic, super::JA4) != 0);
    }
}
