//! Parses datagrams packet by packet, until both sides have sent their hello.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tls::hello::Hello;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::events::Event;
use super::frames;
use super::hello::{Chlo, Crypto};
use super::keys::{self, Attempt, Keys};
use super::packet::{self, Kind, Next, Packet};
use super::tx::QuicTx;

/// The limit of transactions that are not freed; one datagram has fewer.
const TXS_MAX: usize = 256;
/// The limit of packets in a datagram.
const PACKETS_MAX: usize = 16;

/// The minimum size of a client's datagram with an Initial packet: a server discards a smaller one (RFC 9000 section 14.1).
const INITIAL_MIN: usize = 1200;

/// The limit of connection ids in a datagram from which keys are derived. Receivers ignore packets with a different id than the
/// first one (RFC 9000 section 12.2); a small margin covers those that do not.
const DERIVED_MAX: usize = 2;

/// Handshake messages (RFC 8446 section 4).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct QuicParser {
    txs: TxList<QuicTx>,
    keys: Option<Box<Keys>>,
    /// The last derived keys.
    attempt: Option<Box<Attempt>>,
    crypto: [Crypto; 2],
    /// By direction: the hello was seen.
    greeted: [bool; 2],
    /// The client received a Retry.
    retried: bool,
}

impl QuicParser {
    fn push(&mut self, cx: &mut Parse<'_>, tx: QuicTx) {
        if self.txs.len() < TXS_MAX {
            self.txs.push(|_| tx);
        } else {
            cx.shared.counters.tx_limit(AppProto::Quic);
        }
    }

    /// Makes the transaction of a packet. `fresh` limits how often it may derive keys.
    fn packet(&mut self, cx: &mut Parse<'_>, dir: Direction, p: &Packet<'_>, fresh: &mut usize) -> QuicTx {
        let mut tx = QuicTx::new(self.txs.next(), dir, p.version);
        tx.public = p.whole.first().is_some_and(|first| first & 0x80 == 0);
        match p.kind {
            Kind::Initial if keys::known(p.version) => self.initial(cx, dir, p, fresh, &mut tx),
            // A gQUIC public header with a QUIC version: no key decrypts it.
            Kind::Clear if keys::known(p.version) => tx.base.events.add(Event::FailedDecrypt as u8),
            Kind::Clear if p.far => tx.base.events.add(Event::ErrorOnData as u8),
            Kind::Initial | Kind::Clear => {
                let mut chlo = None;
                // A packet that is too short for its header has no frames.
                let content = p.whole.get(p.content..).unwrap_or(&[]);
                if frames::gquic(content, &mut |bytes| chlo = chlo.take().or_else(|| Chlo::read(bytes))).is_none() {
                    tx.base.events.add(Event::ErrorOnData as u8);
                }
                if let Some(chlo) = chlo {
                    tx.set_chlo(chlo);
                }
            }
            Kind::Retry if dir == Direction::ToClient && !std::mem::replace(&mut self.retried, true) => {
                // The client starts again with another connection id. It accepts one Retry only (RFC 9000 section 17.2.5.2).
                (self.keys, self.attempt, self.crypto, self.greeted) = (None, None, Default::default(), [false; 2]);
            }
            Kind::Retry | Kind::Secret | Kind::Negotiation => {}
        }
        tx
    }

    fn initial(&mut self, cx: &mut Parse<'_>, dir: Direction, p: &Packet<'_>, fresh: &mut usize, tx: &mut QuicTx) {
        let mut clear = std::mem::take(&mut cx.shared.scratch);
        let opened = self.open(dir, p, fresh, &mut clear);
        if opened.is_none() {
            tx.base.events.add(Event::FailedDecrypt as u8);
        } else if self.greeted[dir.index()] {
            // Data after the hello is not relevant.
        } else {
            let crypto = &mut self.crypto[dir.index()];
            let mut fits = true;
            if frames::initial(&clear, &mut |offset, bytes| fits &= crypto.add(offset, bytes)).is_none() {
                tx.base.events.add(Event::ErrorOnData as u8);
            }
            if !fits {
                tx.base.events.add(Event::CryptoFragTooLong as u8);
                *crypto = Crypto::default();
            }
            let hello = match (crypto.message(), dir) {
                (Some((CLIENT_HELLO, body)), Direction::ToServer) => Some(Hello::client(body)),
                (Some((SERVER_HELLO, body)), Direction::ToClient) => Some(Hello::server(body)),
                _ => None,
            };
            if let Some((hello, flaws)) = hello {
                if flaws.malformed {
                    tx.base.events.add(Event::ErrorOnData as u8);
                }
                tx.hello = Some(Box::new(hello));
                self.greeted[dir.index()] = true;
                *crypto = Crypto::default();
            }
        }
        clear.clear();
        cx.shared.scratch = clear;
    }

    /// Decrypts a packet. If the current keys do not fit a client's packet, derives new ones from it.
    fn open(&mut self, dir: Direction, p: &Packet<'_>, fresh: &mut usize, out: &mut Vec<u8>) -> Option<()> {
        if let Some(keys) = &self.keys
            && keys.open(dir, p.whole, p.content, out).is_some()
        {
            return Some(());
        }
        if dir == Direction::ToClient {
            return None;
        }
        if self.attempt.as_ref().is_none_or(|a| !a.is_of(p.version, p.dcid)) {
            *fresh = fresh.checked_sub(1)?;
            self.attempt = Some(Box::new(Attempt::new(p.version, p.dcid)?));
        }
        let keys = self.attempt.as_ref()?.open(p.whole, p.content, out)?;
        self.attempt = None;
        if self.keys.is_some() {
            // Another connection in the same flow, or the same one after version negotiation.
            (self.crypto, self.greeted) = (Default::default(), [false; 2]);
        }
        self.keys = Some(Box::new(keys));
        Some(())
    }
}

impl Parser for QuicParser {
    fn proto(&self) -> AppProto {
        AppProto::Quic
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let mut rest = data;
        let mut fresh = if data.len() >= INITIAL_MIN { DERIVED_MAX } else { 0 };
        let mut broken = false;
        for _ in 0..PACKETS_MAX {
            match packet::next(rest) {
                None | Some(Next::Other) => break,
                Some(Next::Broken) => {
                    broken = true;
                    break;
                }
                Some(Next::Packet(p, behind)) => {
                    let tx = self.packet(cx, dir, &p, &mut fresh);
                    broken |= tx.base.events.has(Event::ErrorOnData as u8);
                    self.push(cx, tx);
                    if self.greeted == [true; 2] {
                        return Parsed { consumed: data.len(), outcome: Outcome::Done };
                    }
                    rest = behind;
                }
            }
        }
        let outcome = if broken { cx.unreadable() } else { Outcome::More };
        Parsed { consumed: data.len(), outcome }
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        let keys = self.keys.as_ref().map_or(0, |_| size_of::<Keys>());
        self.txs.memory() + (keys + self.crypto.iter().map(Crypto::held).sum::<usize>()) as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        self.txs.remove(id);
    }
}
