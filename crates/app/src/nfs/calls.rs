//! Arguments and results of versions 2 (RFC 1094) and 3 (RFC 1813).

use super::xdr::Xdr;

/// Length of a handle of version 2 (RFC 1094 section 2.3.3).
const HANDLE2: usize = 32;
/// The limit of a handle in version 3 (RFC 1813 section 2.3.3), and in version 4 (RFC 7530 section 2.1).
pub(super) const HANDLE_MAX: usize = 128;
/// The limit of a name or a path.
pub(super) const NAME_MAX: usize = 1024;
/// Length of file attributes in version 2 (RFC 1094 section 2.3.5) and 3 (RFC 1813 section 2.6).
const ATTRIBUTES2: usize = 68;
const ATTRIBUTES3: usize = 84;

/// The procedure that tests a connection. It has neither arguments nor results.
pub(super) const NULL: u32 = 0;

pub(super) mod v2 {
    //! Procedure numbers of version 2.
    pub(in super::super) const READ: u32 = 6;
}

pub(super) mod v3 {
    //! Procedure numbers of version 3.
    pub(in super::super) const LOOKUP: u32 = 3;
    pub(in super::super) const ACCESS: u32 = 4;
    pub(in super::super) const READ: u32 = 6;
    pub(in super::super) const WRITE: u32 = 7;
    pub(in super::super) const CREATE: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const REMOVE: u32 = 12;
    pub(in super::super) const RMDIR: u32 = 13;
    pub(in super::super) const RENAME: u32 = 14;
    pub(in super::super) const READDIRPLUS: u32 = 17;
    pub(in super::super) const COMMIT: u32 = 21;
}

/// Data of a read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk<'a> {
    /// File offset.
    pub(super) offset: u64,
    /// Length.
    pub(super) len: u64,
    /// The available part.
    pub(super) data: &'a [u8],
    /// The file ends with it.
    pub(super) end: bool,
    /// The server stores it before it replies: the client will not commit it.
    pub(super) synced: bool,
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Args<'a> {
    /// Handle of the file or directory.
    pub(super) handle: &'a [u8],
    /// Name in that directory.
    pub(super) name: &'a [u8],
    /// A second name.
    pub(super) to: &'a [u8],
    /// Offset of a read.
    pub(super) offset: u64,
    /// Data of a write.
    pub(super) chunk: Option<Chunk<'a>>,
}

/// Reads the arguments of a procedure of version 2. Only READ has relevant ones.
pub(super) fn args2(procedure: u32, mut xdr: Xdr<'_>) -> Option<Args<'_>> {
    let mut args = Args::default();
    if procedure == v2::READ {
        args.handle = xdr.bytes(HANDLE2)?;
        args.offset = u64::from(xdr.u32()?);
    }
    Some(args)
}

/// Reads the arguments of a procedure of version 3.
pub(super) fn args3(procedure: u32, mut xdr: Xdr<'_>) -> Option<Args<'_>> {
    if procedure == NULL {
        return Some(Args::default());
    }
    let mut args = Args { handle: xdr.opaque(HANDLE_MAX)?, ..Args::default() };
    match procedure {
        v3::LOOKUP | v3::CREATE | v3::MKDIR | v3::REMOVE | v3::RMDIR => args.name = xdr.opaque(NAME_MAX)?,
        v3::RENAME => {
            args.name = xdr.opaque(NAME_MAX)?;
            xdr.opaque(HANDLE_MAX)?;
            args.to = xdr.opaque(NAME_MAX)?;
        }
        v3::READ => args.offset = xdr.u64()?,
        v3::WRITE => {
            let offset = xdr.u64()?;
            // The count, and the requested stability.
            xdr.u32()?;
            let synced = xdr.u32()? != 0;
            let (len, data) = xdr.beginning()?;
            args.chunk = Some(Chunk { offset, len, data, end: false, synced });
        }
        _ => {}
    }
    Some(args)
}

/// The results of a reply.
#[derive(Debug, Default)]
pub(super) struct Results<'a> {
    pub(super) status: u32,
    /// Handle of the file that was found or created.
    pub(super) handle: &'a [u8],
    /// Data of a read.
    pub(super) chunk: Option<Chunk<'a>>,
}

/// Reads the results of a procedure of version 2.
pub(super) fn results2(procedure: u32, offset: u64, mut xdr: Xdr<'_>) -> Option<Results<'_>> {
    if procedure == NULL {
        return Some(Results::default());
    }
    let mut results = Results { status: xdr.u32()?, ..Results::default() };
    if results.status == 0 && procedure == v2::READ {
        let mut attributes = Xdr::new(xdr.bytes(ATTRIBUTES2)?);
        // Type, mode, links, owner and group come before the size.
        attributes.bytes(20)?;
        let size = u64::from(attributes.u32()?);
        let (len, data) = xdr.beginning()?;
        results.chunk = Some(Chunk { offset, len, data, end: offset.saturating_add(len) >= size, synced: false });
    }
    Some(results)
}

/// Skips optional attributes.
fn attributes3(xdr: &mut Xdr<'_>) -> Option<()> {
    match xdr.u32()? {
        0 => Some(()),
        _ => xdr.bytes(ATTRIBUTES3).map(|_| ()),
    }
}

/// Reads the results of a procedure of version 3.
pub(super) fn results3(procedure: u32, offset: u64, mut xdr: Xdr<'_>) -> Option<Results<'_>> {
    if procedure == NULL {
        return Some(Results::default());
    }
    let mut results = Results { status: xdr.u32()?, ..Results::default() };
    if results.status != 0 {
        return Some(results);
    }
    match procedure {
        v3::LOOKUP => results.handle = xdr.opaque(HANDLE_MAX)?,
        // The handle of a created file is optional.
        v3::CREATE if xdr.u32()? != 0 => results.handle = xdr.opaque(HANDLE_MAX)?,
        v3::READ => {
            attributes3(&mut xdr)?;
            xdr.u32()?;
            let end = xdr.u32()? != 0;
            let (len, data) = xdr.beginning()?;
            results.chunk = Some(Chunk { offset, len, data, end, synced: false });
        }
        _ => {}
    }
    Some(results)
}
