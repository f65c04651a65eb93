//! Messages of the handshake (RFC 8446 section 4, RFC 5246 section 7.4).

use margay_flow::Direction;

use crate::parser::Parse;

use super::cert::Chain;
use super::events::Event;
use super::hello::Hello;
use super::tx::{TlsTx, state};
use super::version::Version;
use super::{CLIENT_CERT, CLIENT_HANDSHAKE, CLIENT_HELLO, SERVER_CERT, SERVER_HANDSHAKE, SERVER_HELLO};

/// Length of a message header: type and length.
pub(super) const HEAD_LEN: usize = 4;

/// Types of messages.
pub(super) mod kind {
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const CERTIFICATE: u8 = 11;
    pub(crate) const SERVER_KEY_EXCHANGE: u8 = 12;
    pub(crate) const CERTIFICATE_REQUEST: u8 = 13;
    pub(crate) const SERVER_HELLO_DONE: u8 = 14;
    pub(crate) const CLIENT_KEY_EXCHANGE: u8 = 16;
}

/// Whether a message type is assigned (IANA, TLS HandshakeType).
pub(super) const fn is_known(kind: u8) -> bool {
    matches!(kind, 0..=6 | 8..=9 | 11..=16 | 20..=26 | 67 | 254)
}

/// Handles a handshake message.
pub(super) fn message(tx: &mut TlsTx, cx: &Parse<'_>, dir: Direction, kind: u8, body: &[u8]) {
    match (kind, dir) {
        (kind::CLIENT_HELLO, Direction::ToServer) => {
            if tx.base.progress == [0; 2] && !cx.inline {
                // As in Suricata, rules on the session's state are evaluated with the packet that acknowledges the hello.
                tx.base.touch(Direction::ToClient);
            }
            hello(tx, dir, body);
        }
        (kind::SERVER_HELLO, Direction::ToClient) => hello(tx, dir, body),
        (kind::CERTIFICATE, _) => {
            let mut events = Vec::new();
            let chain = Chain::read(body, &mut |e| events.push(e));
            for e in events {
                tx.event(dir, e);
            }
            let side = tx.side_mut(dir);
            if side.chain.is_none() && !chain.is_empty() {
                side.seen = cx.time.0.div_euclid(1_000_000);
                side.chain = Some(chain);
            }
            tx.base.advance(dir, if dir == Direction::ToServer { CLIENT_CERT } else { SERVER_CERT });
        }
        (kind::SERVER_KEY_EXCHANGE, Direction::ToClient) => tx.set_state(dir, state::SERVER_KEYX),
        (kind::CERTIFICATE_REQUEST, Direction::ToClient) => tx.asks_client = true,
        // The rest of the handshake is encrypted or of no use to rules, unless the client has to send its certificate.
        (kind::SERVER_HELLO_DONE, Direction::ToClient) => {
            tx.base.advance(dir, SERVER_HANDSHAKE);
            if !tx.asks_client {
                // The client sent nothing new, so its direction is not marked for inspection.
                let client = &mut tx.base.progress[Direction::ToServer.index()];
                *client = CLIENT_HANDSHAKE.max(*client);
            }
        }
        (kind::CLIENT_KEY_EXCHANGE, Direction::ToServer) => {
            tx.set_state(dir, state::CLIENT_KEYX);
            tx.base.advance(dir, CLIENT_HANDSHAKE);
        }
        _ => {}
    }
}

fn hello(tx: &mut TlsTx, dir: Direction, body: &[u8]) {
    let client = dir == Direction::ToServer;
    let (hello, flaws) = if client { Hello::client(body) } else { Hello::server(body) };
    for (flaw, event) in [
        (!client && !hello.version.is_of_record() && !hello.version.is_13(), Event::InvalidRecordVersion),
        (flaws.malformed, Event::HandshakeInvalidLength),
        (flaws.several_sni, Event::MultipleSniExtensions),
        (flaws.sni_type, Event::InvalidSniType),
        (flaws.sni_length, Event::InvalidSniLength),
    ] {
        if flaw {
            tx.event(dir, event);
        }
    }
    let side = tx.side_mut(dir);
    side.said = match hello.chosen() {
        // Only early drafts have the supported version in `legacy_version`.
        Version::TLS13 if !client && hello.version == Version::TLS13 => Version(0x7f01),
        v => v,
    };
    side.version = side.said;
    // Keep the first hello, unless it was a HelloRetryRequest.
    if side.hello.as_ref().is_none_or(|h| !client && h.is_retry()) {
        side.hello = Some(hello);
    }
    let (seen, progress) =
        if client { (state::CLIENT_HELLO, CLIENT_HELLO) } else { (state::SERVER_HELLO, SERVER_HELLO) };
    tx.set_state(dir, seen);
    tx.base.advance(dir, progress);
}
