//! Buffers and numbers of DCE/RPC for rules.

use margay_flow::Direction;

use crate::declare::{NumberCondition, NumberSyntax};
use crate::tx::{BufferKind, Found, NumberDef};

use super::COMPLETE;
use super::call::Call;
use super::tx::Exchange;

const DONE: Option<u8> = Some(COMPLETE);
/// The request has the operation and its interface. Rules for the response compare them as soon as the transaction exists,
/// with the next packet to the client.
const BEGUN: Option<u8> = Some(0);

buffers! {
    StubData "dcerpc.stub_data" Single DONE, DONE;
    Interface "dcerpc.iface" Multi BEGUN, BEGUN;
}

const OPNUM: u8 = 0;

/// Numbers for rules.
pub(super) static NUMBERS: &[NumberDef] = &[opnum_keyword(OPNUM)];

/// The number of a call's operation, for a protocol that carries calls.
pub(crate) const fn opnum_keyword(id: u8) -> NumberDef {
    let def = NumberDef::keyword("dcerpc.opnum", id, [BEGUN; 2], NumberSyntax::Own(operations));
    NumberDef { also: &["dce_opnum"], ..def }
}

/// `12,18-24,5`.
fn operations(text: &str) -> Result<NumberCondition, String> {
    let one = |t: &str| t.trim().parse::<u16>().ok().map(u64::from);
    let range = |t: &str| match t.split_once('-') {
        Some((low, high)) => Some((one(low)?, one(high)?)).filter(|(low, high)| low <= high),
        None => one(t).map(|n| (n, n)),
    };
    match text.split(',').map(range).collect() {
        Some(ranges) => Ok(NumberCondition::Ranges(ranges)),
        None => Err(format!("\"{text}\" is no list of numbers and ranges up to 65535")),
    }
}

/// Builds the value of `dcerpc.iface` in `scratch`: the UUID, the major version as two bytes in big endian, and a byte that is
/// 1 if the beginning of the request was seen.
pub(crate) fn interface<'a>(call: &Call, index: usize, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let (uuid, version, first) = call.interface(index)?;
    scratch.extend_from_slice(&uuid.0);
    scratch.extend_from_slice(&version.to_be_bytes());
    scratch.push(u8::from(first));
    Some(scratch)
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(
    tx: &'a Exchange,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let data = match ALL.get(usize::from(id))? {
        Buffer::StubData if index == 0 => tx.call.stub(dir)?,
        Buffer::StubData => return None,
        Buffer::Interface => interface(&tx.call, index, scratch)?,
    };
    debug_assert!(BUFFERS.get(usize::from(id)).is_some_and(|b| index == 0 || b.kind == BufferKind::Multi));
    Found::filled(data)
}

/// See [`crate::Transaction::number`].
pub(super) fn number(tx: &Exchange, id: u8, index: usize) -> Option<u64> {
    tx.call.opnum.filter(|_| id == OPNUM && index == 0).map(u64::from)
}
