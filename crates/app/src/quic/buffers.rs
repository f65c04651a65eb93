//! Buffers of QUIC for rules.

use margay_flow::Direction;

use crate::tls::ja;
use crate::tx::{Extra, Form, Found};

use super::COMPLETE;
use super::packet::gquic;
use super::tx::QuicTx;

/// A CYU fingerprint is an MD5 digest.
const CYU: Form = Form::Digest { module: "detect-quic-cyu-hash" };

buffers! {
    Version "quic.version" Single Some(COMPLETE), Some(COMPLETE);
    Sni "quic.sni" Single Some(COMPLETE), None;
    Ua "quic.ua" Single Some(COMPLETE), None;
    CyuHash "quic.cyu.hash" Multi Some(COMPLETE), None, form: CYU;
    CyuString "quic.cyu.string" Multi Some(COMPLETE), None;
    Ja3Hash "ja3.hash" Single Some(COMPLETE), None, form: ja::JA3, extra: Some(Extra::Ja3);
    Ja3String "ja3.string" Single Some(COMPLETE), None, extra: Some(Extra::Ja3);
    Ja3sHash "ja3s.hash" Single None, Some(COMPLETE), form: ja::JA3S, extra: Some(Extra::Ja3);
    Ja3sString "ja3s.string" Single None, Some(COMPLETE), extra: Some(Extra::Ja3);
    Ja4Hash "ja4.hash" Single Some(COMPLETE), None, extra: Some(Extra::Ja4);
}

/// The name of a version of gQUIC (`Q046`).
pub(super) fn name(version: u32) -> Option<String> {
    gquic(version).map(|digits| format!("Q0{digits}"))
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(
    tx: &'a QuicTx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let buffer = *ALL.get(usize::from(id))?;
    if index > 0 || dir != tx.dir {
        return None;
    }
    let client = dir == Direction::ToServer;
    let data: &[u8] = match buffer {
        // Like in Suricata, rules see only the versions of long headers; events also show those of gQUIC's public header.
        Buffer::Version if tx.public => return None,
        Buffer::Version => {
            scratch.extend(tx.version.to_be_bytes());
            scratch
        }
        Buffer::Sni => tx.sni()?,
        Buffer::Ua => tx.chlo.as_ref()?.ua.as_deref()?,
        Buffer::CyuString => &tx.cyu.as_ref()?.0,
        Buffer::CyuHash => &tx.cyu.as_ref()?.1,
        Buffer::Ja3String if client => tx.ja3()?.0,
        Buffer::Ja3Hash if client => tx.ja3()?.1,
        Buffer::Ja3sString if !client => tx.ja3()?.0,
        Buffer::Ja3sHash if !client => tx.ja3()?.1,
        Buffer::Ja4Hash if client => {
            ja::ja4(tx.hello.as_ref()?, b'q', scratch);
            scratch
        }
        _ => return None,
    };
    Some(Found::whole(data))
}
