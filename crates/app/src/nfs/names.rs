//! Names of procedures, operations and status codes.

/// Procedures of version 2 (RFC 1094 section 2.2).
const V2: &[&str] = &[
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];
/// Procedures of version 3 (RFC 1813 section 3.3).
const V3: &[&str] = &[
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
/// Operations of version 4, from number 3 on (RFC 7530 section 16, RFC 8881 section 18).
const V4: &[&str] = &[
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "CREATE",
    "DELEGPURGE",
    "DELEGRETURN",
    "GETATTR",
    "GETFH",
    "LINK",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "LOOKUP",
    "LOOKUPP",
    "NVERIFY",
    "OPEN",
    "OPENATTR",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "PUTFH",
    "PUTPUBFH",
    "PUTROOTFH",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "RENAME",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SECINFO",
    "SETATTR",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "VERIFY",
    "WRITE",
    "RELEASE_LOCKOWNER",
    "BACKCHANNEL_CTL",
    "BIND_CONN_TO_SESSION",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "FREE_STATEID",
    "GET_DIR_DELEGATION",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "LAYOUTCOMMIT",
    "LAYOUTGET",
    "LAYOUTRETURN",
    "SECINFO_NO_NAME",
    "SEQUENCE",
    "SET_SSV",
    "TEST_STATEID",
    "WANT_DELEGATION",
    "DESTROY_CLIENTID",
    "RECLAIM_COMPLETE",
];
const V4_FIRST: u32 = 3;

/// Status codes (RFC 1813 section 2.6, RFC 7530 section 13).
const STATES: &[(u32, &str)] = &[
    (0, "OK"),
    (1, "ERR_PERM"),
    (2, "ERR_NOENT"),
    (5, "ERR_IO"),
    (6, "ERR_NXIO"),
    (13, "ERR_ACCES"),
    (17, "ERR_EXIST"),
    (18, "ERR_XDEV"),
    (19, "ERR_NODEV"),
    (20, "ERR_NOTDIR"),
    (21, "ERR_ISDIR"),
    (22, "ERR_INVAL"),
    (27, "ERR_FBIG"),
    (28, "ERR_NOSPC"),
    (30, "ERR_ROFS"),
    (31, "ERR_MLINK"),
    (63, "ERR_NAMETOOLONG"),
    (66, "ERR_NOTEMPTY"),
    (69, "ERR_DQUOT"),
    (70, "ERR_STALE"),
    (71, "ERR_REMOTE"),
    (99, "ERR_WFLUSH"),
    (10001, "ERR_BADHANDLE"),
    (10002, "ERR_NOT_SYNC"),
    (10003, "ERR_BAD_COOKIE"),
    (10004, "ERR_NOTSUPP"),
    (10005, "ERR_TOOSMALL"),
    (10006, "ERR_SERVERFAULT"),
    (10007, "ERR_BADTYPE"),
    (10008, "ERR_JUKEBOX"),
    (10009, "ERR_SAME"),
    (10010, "ERR_DENIED"),
    (10011, "ERR_EXPIRED"),
    (10012, "ERR_LOCKED"),
    (10013, "ERR_GRACE"),
    (10014, "ERR_FHEXPIRED"),
    (10015, "ERR_SHARE_DENIED"),
    (10016, "ERR_WRONGSEC"),
    (10020, "ERR_NOFILEHANDLE"),
    (10022, "ERR_STALE_CLIENTID"),
    (10023, "ERR_STALE_STATEID"),
    (10024, "ERR_OLD_STATEID"),
    (10025, "ERR_BAD_STATEID"),
    (10036, "ERR_BADXDR"),
    (10044, "ERR_OP_ILLEGAL"),
    (10052, "ERR_BADSESSION"),
];

/// Name of a procedure of version 2 or 3, or of an operation of version 4.
pub(super) fn procedure(version: u32, number: u32) -> Option<&'static str> {
    let (names, at) = match version {
        2 => (V2, number),
        3 => (V3, number),
        4 => (V4, number.checked_sub(V4_FIRST)?),
        _ => return None,
    };
    names.get(at as usize).copied()
}

/// Name of a status code.
pub(super) fn state(number: u32) -> Option<&'static str> {
    STATES.binary_search_by_key(&number, |s| s.0).ok().and_then(|at| STATES.get(at)).map(|s| s.1)
}

/// Name of an authentication flavor (RFC 5531 section 8.2, RFC 2203).
pub(super) const fn flavor(number: u32) -> &'static str {
    match number {
        0 => "NULL",
        1 => "UNIX",
        2 => "SHORT",
        3 => "DH",
        6 => "GSS",
        _ => "UNKNOWN",
    }
}

/// A number for a procedure name, independent of the version: its index in the list of version 3, followed by the other names
/// of version 4. Rules use procedure names; version 2 has a few names of its own.
fn number_of(name: &str) -> Option<u64> {
    let mut from = 0;
    for names in [V3, V4, V2] {
        if let Some(at) = names.iter().position(|n| n.eq_ignore_ascii_case(name)) {
            return Some(from + at as u64);
        }
        from += names.len() as u64;
    }
    None
}

/// The number for a name in a rule.
pub(super) fn word(name: &str) -> Option<u64> {
    number_of(name)
}

/// The number for a procedure or operation.
pub(super) fn named(version: u32, number: u32) -> Option<u64> {
    procedure(version, number).and_then(number_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(STATES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(
            (procedure(2, 17), procedure(3, 21), procedure(4, 38)),
            (Some("STATFS"), Some("COMMIT"), Some("WRITE"))
        );
        assert_eq!(
            (procedure(4, 2), procedure(4, 53), procedure(4, 58)),
            (None, Some("SEQUENCE"), Some("RECLAIM_COMPLETE"))
        );
        assert_eq!((state(10001), state(3)), (Some("ERR_BADHANDLE"), None));
        // Rules treat the same name in two versions as one.
        assert_eq!((word("getattr"), word("getattr")), (named(3, 1), named(4, 9)));
        assert_ne!(word("sequence"), word("statfs"));
        assert_eq!(word("nothing"), None);
    }
}
