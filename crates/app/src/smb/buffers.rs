//! Buffers and numbers of SMB for rules.

use margay_flow::Direction;

use crate::dcerpc;
use crate::declare::NumberSyntax;
use crate::tx::{Found, NumberDef};

use super::COMPLETE;
use super::tx::{SmbTx, What};

const DONE: Option<u8> = Some(COMPLETE);
/// See the buffers of DCE/RPC.
const BEGUN: Option<u8> = Some(0);

buffers! {
    Share "smb.share" ("smb_share") Single DONE, None;
    NamedPipe "smb.named_pipe" ("smb_named_pipe") Single DONE, None;
    User "smb.ntlmssp_user" Single DONE, None;
    Domain "smb.ntlmssp_domain" Single DONE, None;
    StubData "dcerpc.stub_data" Single DONE, DONE;
    Interface "dcerpc.iface" Multi BEGUN, BEGUN;
}

const VERSION: u8 = 0;
const OPNUM: u8 = 1;

/// Numbers for rules.
pub(super) static NUMBERS: &[NumberDef] =
    &[NumberDef::keyword("smb.version", VERSION, [Some(0); 2], NumberSyntax::U8), dcerpc::opnum_keyword(OPNUM)];

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(
    tx: &'a SmbTx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let buffer = *ALL.get(usize::from(id))?;
    if buffer == Buffer::Interface {
        return dcerpc::interface(tx.call()?, index, scratch).map(Found::whole);
    }
    if index > 0 || BUFFERS.get(usize::from(id))?.progress[dir.index()].is_none() {
        return None;
    }
    let data: &[u8] = match (buffer, &tx.what) {
        (Buffer::Share, What::TreeConnect(t)) if !t.pipe => &t.share,
        (Buffer::NamedPipe, What::TreeConnect(t)) if t.pipe => &t.share,
        (Buffer::User, What::SessionSetup(s)) => &s.ntlmssp.as_ref()?.user,
        (Buffer::Domain, What::SessionSetup(s)) => &s.ntlmssp.as_ref()?.domain,
        (Buffer::StubData, What::Dcerpc(c)) => c.stub(dir)?,
        _ => return None,
    };
    Found::filled(data)
}

/// See [`crate::Transaction::number`].
pub(super) fn number(tx: &SmbTx, id: u8, index: usize) -> Option<u64> {
    match id {
        _ if index > 0 => None,
        VERSION => Some(u64::from(tx.version)),
        _ => tx.call()?.opnum.map(u64::from),
    }
}
