//! Names of commands, status codes, control codes and other values in events.

/// MS-ERREF section 2.3.1: a line per code with eight digits, a space and the name, sorted.
const NT_STATUS: &str = include_str!("ntstatus.txt");
/// Control codes of MS-FSCC section 2.3, MS-SMB2 section 2.2.31 and MS-DFSC, in the same format.
const FSCTL: &str = include_str!("fsctl.txt");

/// Finds the line of a code in a table.
fn find(table: &'static str, code: u32) -> Option<&'static str> {
    let (mut low, mut high) = (0, table.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let begin = table.get(..middle)?.rfind('\n').map_or(0, |n| n + 1).max(low);
        let rest = table.get(begin..)?;
        let line = rest.lines().next()?;
        let (digits, name) = line.split_once(' ')?;
        match u32::from_str_radix(digits, 16).ok()?.cmp(&code) {
            std::cmp::Ordering::Equal => return Some(name),
            std::cmp::Ordering::Less => low = begin + line.len() + 1,
            std::cmp::Ordering::Greater => high = begin,
        }
    }
    None
}

/// The name of an NT status.
pub(super) fn nt_status(code: u32) -> Option<&'static str> {
    find(NT_STATUS, code)
}

/// The name of a control code.
pub(super) fn fsctl(code: u32) -> Option<&'static str> {
    find(FSCTL, code)
}

/// The name of an error of class ERRSRV (MS-CIFS section 2.2.2.4).
pub(super) const fn server_error(code: u16) -> Option<&'static str> {
    Some(match code {
        1 => "SRV_ERROR",
        2 => "SRV_BADPW",
        3 => "SRV_BADPATH",
        4 => "SRV_ACCESS",
        5 => "SRV_BADTID",
        6 => "SRV_BADNETNAME",
        7 => "SRV_BADDEVICE",
        49 => "SRV_QFULL",
        50 => "SRV_QTOOBIG",
        51 => "SRV_QEOF",
        52 => "SRV_INVPFID",
        64 => "SRV_BADCMD",
        65 => "SRV_SRVERR",
        67 => "SRV_FILESPECS",
        69 => "SRV_BADPERMITS",
        71 => "SRV_SETATTRMODE",
        81 => "SRV_TIMEOUT",
        82 => "SRV_NORESOURCE",
        83 => "SRV_TOOMANYUIDS",
        91 => "SRV_BADUID",
        250 => "SRV_USEMPX",
        251 => "SRV_USESTD",
        252 => "SRV_CONTMPX",
        0xffff => "SRV_NOSUPPORT",
        _ => return None,
    })
}

/// The name of a command of SMB1 (MS-CIFS section 2.2.2.1).
pub(super) const fn smb1_command(code: u8) -> &'static str {
    match code {
        0x00 => "SMB1_COMMAND_CREATE_DIRECTORY",
        0x01 => "SMB1_COMMAND_DELETE_DIRECTORY",
        0x02 => "SMB1_COMMAND_OPEN",
        0x03 => "SMB1_COMMAND_CREATE",
        0x04 => "SMB1_COMMAND_CLOSE",
        0x05 => "SMB1_COMMAND_FLUSH",
        0x06 => "SMB1_COMMAND_DELETE",
        0x07 => "SMB1_COMMAND_RENAME",
        0x08 => "SMB1_COMMAND_QUERY_INFORMATION",
        0x09 => "SMB1_COMMAND_SET_INFORMATION",
        0x0a => "SMB1_COMMAND_READ",
        0x0b => "SMB1_COMMAND_WRITE",
        0x0c => "SMB1_COMMAND_LOCK_BYTE_RANGE",
        0x0d => "SMB1_COMMAND_UNLOCK_BYTE_RANGE",
        0x0e => "SMB1_COMMAND_CREATE_TEMPORARY",
        0x0f => "SMB1_COMMAND_CREATE_NEW",
        0x10 => "SMB1_COMMAND_CHECK_DIRECTORY",
        0x11 => "SMB1_COMMAND_PROCESS_EXIT",
        0x12 => "SMB1_COMMAND_SEEK",
        0x13 => "SMB1_COMMAND_LOCK_AND_READ",
        0x14 => "SMB1_COMMAND_WRITE_AND_UNLOCK",
        0x1a => "SMB1_COMMAND_READ_RAW",
        0x1b => "SMB1_COMMAND_READ_MPX",
        0x1c => "SMB1_COMMAND_READ_MPX_SECONDARY",
        0x1d => "SMB1_COMMAND_WRITE_RAW",
        0x1e => "SMB1_COMMAND_WRITE_MPX",
        0x1f => "SMB1_COMMAND_WRITE_MPX_SECONDARY",
        0x20 => "SMB1_COMMAND_WRITE_COMPLETE",
        0x21 => "SMB1_COMMAND_QUERY_SERVER",
        0x22 => "SMB1_COMMAND_SET_INFORMATION2",
        0x23 => "SMB1_COMMAND_QUERY_INFORMATION2",
        0x24 => "SMB1_COMMAND_LOCKING_ANDX",
        0x25 => "SMB1_COMMAND_TRANS",
        0x26 => "SMB1_COMMAND_TRANS_SECONDARY",
        0x27 => "SMB1_COMMAND_IOCTL",
        0x28 => "SMB1_COMMAND_IOCTL_SECONDARY",
        0x29 => "SMB1_COMMAND_COPY",
        0x2a => "SMB1_COMMAND_MOVE",
        0x2b => "SMB1_COMMAND_ECHO",
        0x2c => "SMB1_COMMAND_WRITE_AND_CLOSE",
        0x2d => "SMB1_COMMAND_OPEN_ANDX",
        0x2e => "SMB1_COMMAND_READ_ANDX",
        0x2f => "SMB1_COMMAND_WRITE_ANDX",
        0x30 => "SMB1_COMMAND_NEW_FILE_SIZE",
        0x31 => "SMB1_COMMAND_CLOSE_AND_TREE_DISC",
        0x32 => "SMB1_COMMAND_TRANS2",
        0x33 => "SMB1_COMMAND_TRANS2_SECONDARY",
        0x34 => "SMB1_COMMAND_FIND_CLOSE2",
        0x35 => "SMB1_COMMAND_FIND_NOTIFY_CLOSE",
        0x70 => "SMB1_COMMAND_TREE_CONNECT",
        0x71 => "SMB1_COMMAND_TREE_DISCONNECT",
        0x72 => "SMB1_COMMAND_NEGOTIATE_PROTOCOL",
        0x73 => "SMB1_COMMAND_SESSION_SETUP_ANDX",
        0x74 => "SMB1_COMMAND_LOGOFF_ANDX",
        0x75 => "SMB1_COMMAND_TREE_CONNECT_ANDX",
        0x7e => "SMB1_COMMAND_SECURITY_PACKAGE_ANDX",
        0x80 => "SMB1_COMMAND_QUERY_INFO_DISK",
        0x81 => "SMB1_COMMAND_SEARCH",
        0x82 => "SMB1_COMMAND_FIND",
        0x83 => "SMB1_COMMAND_FIND_UNIQUE",
        0x84 => "SMB1_COMMAND_FIND_CLOSE",
        0xa0 => "SMB1_COMMAND_NT_TRANS",
        0xa1 => "SMB1_COMMAND_NT_TRANS_SECONDARY",
        0xa2 => "SMB1_COMMAND_NT_CREATE_ANDX",
        0xa4 => "SMB1_COMMAND_NT_CANCEL",
        0xa5 => "SMB1_COMMAND_NT_RENAME",
        0xc0 => "SMB1_COMMAND_OPEN_PRINT_FILE",
        0xc1 => "SMB1_COMMAND_WRITE_PRINT_FILE",
        0xc2 => "SMB1_COMMAND_CLOSE_PRINT_FILE",
        0xc3 => "SMB1_COMMAND_GET_PRINT_QUEUE",
        0xd8 => "SMB1_COMMAND_READ_BULK",
        0xd9 => "SMB1_COMMAND_WRITE_BULK",
        0xda => "SMB1_COMMAND_WRITE_BULK_DATA",
        0xfe => "SMB1_COMMAND_INVALID",
        0xff => "SMB1_COMMAND_NO_ANDX_COMMAND",
        _ => "SMB1_COMMAND_UNKNOWN",
    }
}

/// The name of a command of SMB2 (MS-SMB2 section 2.2.1).
pub(super) const fn smb2_command(code: u16) -> &'static str {
    match code {
        0 => "SMB2_COMMAND_NEGOTIATE_PROTOCOL",
        1 => "SMB2_COMMAND_SESSION_SETUP",
        2 => "SMB2_COMMAND_SESSION_LOGOFF",
        3 => "SMB2_COMMAND_TREE_CONNECT",
        4 => "SMB2_COMMAND_TREE_DISCONNECT",
        5 => "SMB2_COMMAND_CREATE",
        6 => "SMB2_COMMAND_CLOSE",
        7 => "SMB2_COMMAND_FLUSH",
        8 => "SMB2_COMMAND_READ",
        9 => "SMB2_COMMAND_WRITE",
        10 => "SMB2_COMMAND_LOCK",
        11 => "SMB2_COMMAND_IOCTL",
        12 => "SMB2_COMMAND_CANCEL",
        13 => "SMB2_COMMAND_KEEPALIVE",
        14 => "SMB2_COMMAND_FIND",
        15 => "SMB2_COMMAND_CHANGE_NOTIFY",
        16 => "SMB2_COMMAND_GET_INFO",
        17 => "SMB2_COMMAND_SET_INFO",
        18 => "SMB2_COMMAND_OPLOCK_BREAK",
        _ => "SMB2_COMMAND_UNKNOWN",
    }
}

/// The name of a dialect of SMB2 (MS-SMB2 section 2.2.4).
pub(super) fn smb2_dialect(code: u16) -> String {
    match code {
        0x0202 => "2.02".to_owned(),
        0x0210 => "2.10".to_owned(),
        0x0222 => "2.22".to_owned(),
        0x0224 => "2.24".to_owned(),
        0x02ff => "2.??".to_owned(),
        0x0300 => "3.00".to_owned(),
        0x0302 => "3.02".to_owned(),
        0x0310 => "3.10".to_owned(),
        0x0311 => "3.11".to_owned(),
        other => format!("unknown ({other:#06x})"),
    }
}

/// The name of a create disposition (MS-SMB2 section 2.2.13).
pub(super) const fn disposition(code: u32) -> &'static str {
    match code {
        0 => "FILE_SUPERSEDE",
        1 => "FILE_OPEN",
        2 => "FILE_CREATE",
        3 => "FILE_OPEN_IF",
        4 => "FILE_OVERWRITE",
        5 => "FILE_OVERWRITE_IF",
        _ => "UNKNOWN",
    }
}

/// The type of a share (MS-SMB2 section 2.2.10).
pub(super) const fn share_type(code: u8) -> &'static str {
    match code {
        1 => "FILE",
        2 => "PIPE",
        3 => "PRINT",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found() {
        for table in [NT_STATUS, FSCTL] {
            let mut last = None;
            for line in table.lines() {
                let (digits, name) = line.split_once(' ').unwrap();
                let code = u32::from_str_radix(digits, 16).unwrap();
                assert!(last.is_none_or(|l| l < code), "{line} is not in its place");
                last = Some(code);
                assert_eq!(find(table, code), Some(name));
            }
        }
        assert_eq!(nt_status(0xc000_0016), Some("STATUS_MORE_PROCESSING_REQUIRED"));
        assert_eq!(nt_status(0xffff_ffff), None);
        assert_eq!(fsctl(0x0011_c017), Some("FSCTL_PIPE_TRANSCEIVE"));
        assert_eq!(fsctl(1), None);
    }
}
