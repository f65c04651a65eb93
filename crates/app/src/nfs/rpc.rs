//! Heads of messages of ONC RPC (RFC 5531 section 9).

use super::xdr::Xdr;

/// Number of the program.
const NFS: u32 = 100_003;
/// Most bytes of credentials and verifiers (section 8.2).
const AUTH_MAX: usize = 400;
/// Most bytes of a machine's name (appendix A).
const MACHINE_MAX: usize = 255;

/// Who calls, as `AUTH_SYS` says (appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Creds {
    pub(super) machine: Box<[u8]>,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// How a caller is authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Auth {
    pub(super) flavor: u32,
    pub(super) creds: Option<Creds>,
}

impl Auth {
    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        self.creds.as_ref().map_or(0, |c| c.machine.len())
    }
}

/// A call of NFS.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) xid: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) auth: Auth,
    /// Arguments of the procedure.
    pub(super) args: Xdr<'a>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) xid: u32,
    /// The server accepted the call.
    pub(super) accepted: bool,
    /// What the procedure gives, where it was run.
    pub(super) results: Option<Xdr<'a>>,
}

/// A message.
#[derive(Debug)]
pub(super) enum Rpc<'a> {
    Call(Call<'a>),
    Reply(Reply<'a>),
    /// A call of another program.
    Other,
}

impl<'a> Rpc<'a> {
    /// Reads the head of a message; `None` where it is none, or is cut short.
    pub(super) fn read(message: &'a [u8]) -> Option<Rpc<'a>> {
        let mut xdr = Xdr::new(message);
        let xid = xdr.u32()?;
        match xdr.u32()? {
            0 => {
                let (rpc, program, version, procedure) = (xdr.u32()?, xdr.u32()?, xdr.u32()?, xdr.u32()?);
                if rpc != 2 {
                    return None;
                }
                let (flavor, body) = (xdr.u32()?, xdr.opaque(AUTH_MAX)?);
                xdr.u32()?;
                xdr.opaque(AUTH_MAX)?;
                if program != NFS {
                    return Some(Rpc::Other);
                }
                let creds = if flavor == 1 { Some(creds(body)?) } else { None };
                Some(Rpc::Call(Call { xid, version, procedure, auth: Auth { flavor, creds }, args: xdr }))
            }
            1 => {
                let accepted = match xdr.u32()? {
                    0 => true,
                    1 => false,
                    _ => return None,
                };
                let mut results = None;
                if accepted {
                    xdr.u32()?;
                    xdr.opaque(AUTH_MAX)?;
                    // 0 is that the procedure was run.
                    results = (xdr.u32()? == 0).then_some(xdr);
                }
                Some(Rpc::Reply(Reply { xid, accepted, results }))
            }
            _ => None,
        }
    }
}

/// Credentials of `AUTH_SYS`. Suricata reads user and group right behind the machine's name, without the padding of RFC 4506
/// section 4.11; rules and events compare with its numbers, so these are read at the same place.
fn creds(body: &[u8]) -> Option<Creds> {
    let mut xdr = Xdr::new(body);
    xdr.u32()?;
    let len = xdr.u32()? as usize;
    let machine = xdr.bytes(len).filter(|_| len <= MACHINE_MAX)?.into();
    Some(Creds { machine, uid: xdr.u32()?, gid: xdr.u32()? })
}
