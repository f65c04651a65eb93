//! Headers of ONC RPC messages (RFC 5531 section 9).

use super::xdr::Xdr;

/// Program number.
const NFS: u32 = 100_003;
/// The limit of credentials and verifiers (section 8.2).
const AUTH_MAX: usize = 400;
/// The limit of a machine name (appendix A).
const MACHINE_MAX: usize = 255;

/// The caller's identity in `AUTH_SYS` (appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Creds {
    pub(super) machine: Box<[u8]>,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The authentication of a caller.
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

/// A reply to a call.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) xid: u32,
    /// The server accepted the call.
    pub(super) accepted: bool,
    /// The results, if the procedure was executed.
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
    /// Reads the header of a message; `None` if it is invalid or truncated.
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
                    // 0: the procedure was executed.
                    results = (xdr.u32()? == 0).then_some(xdr);
                }
                Some(Rpc::Reply(Reply { xid, accepted, results }))
            }
            _ => None,
        }
    }
}

/// Reads credentials of `AUTH_SYS`. Suricata reads user and group directly after the machine name, without the padding of RFC
/// 4506 section 4.11. Rules and events must match its numbers, so this code does the same.
fn creds(body: &[u8]) -> Option<Creds> {
    let mut xdr = Xdr::new(body);
    xdr.u32()?;
    let len = xdr.u32()? as usize;
    let machine = xdr.bytes(len).filter(|_| len <= MACHINE_MAX)?.into();
    Some(Creds { machine, uid: xdr.u32()?, gid: xdr.u32()? })
}
