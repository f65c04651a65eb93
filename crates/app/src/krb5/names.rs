//! Names of Kerberos numbers in events.

/// Encryption types (RFC 3961 section 8, RFC 6803, RFC 8009, and those of Windows).
const ENCRYPTION: &[(i32, &str)] = &[
    (1, "des-cbc-crc"),
    (2, "des-cbc-md4"),
    (3, "des-cbc-md5"),
    (5, "des3-cbc-md5"),
    (7, "des3-cbc-sha1"),
    (9, "dsaWithSHA1-CmsOID"),
    (10, "md5WithRSAEncryption-CmsOID"),
    (11, "sha1WithRSAEncryption-CmsOID"),
    (12, "rc2CBC-EnvOID"),
    (13, "rsaEncryption-EnvOID"),
    (14, "rsaES-OAEP-ENV-OID"),
    (15, "des-ede3-cbc-Env-OID"),
    (16, "des3-cbc-sha1-kd"),
    (17, "aes128-cts-hmac-sha1-96"),
    (18, "aes256-cts-hmac-sha1-96"),
    (19, "aes128-cts-hmac-sha256-128"),
    (20, "aes256-cts-hmac-sha384-192"),
    (23, "rc4-hmac"),
    (24, "rc4-hmac-exp"),
    (25, "camellia128-cts-cmac"),
    (26, "camellia256-cts-cmac"),
    (65, "subkey-keymaterial"),
    (-128, "rc4-md4"),
    (-133, "rc4-hmac-OLD"),
    (-136, "rc4-plain-OLD-exp"),
];

/// The types that are not weak.
pub(super) const STRONG: &[i32] = &[17, 18, 19, 20, 25, 26];

/// The name of an encryption type, or its number in the format of events.
pub(super) fn encryption(kind: i32) -> String {
    match ENCRYPTION.iter().find(|(n, _)| *n == kind) {
        Some((_, name)) => (*name).into(),
        None => format!("EncryptionType({kind})"),
    }
}

/// The encryption type for a name or a number.
pub(super) fn encryption_type(word: &str) -> Option<i32> {
    ENCRYPTION.iter().find(|(_, name)| *name == word).map_or_else(|| word.parse().ok(), |(n, _)| Some(*n))
}

/// Errors (RFC 4120 section 7.5.9, RFC 4556), by number; empty if there is no name.
const ERRORS: &[&str] = &[
    "KDC_ERR_NONE",
    "KDC_ERR_NAME_EXP",
    "KDC_ERR_SERVICE_EXP",
    "KDC_ERR_BAD_PVNO",
    "KDC_ERR_C_OLD_MAST_KVNO",
    "KDC_ERR_S_OLD_MAST_KVNO",
    "KDC_ERR_C_PRINCIPAL_UNKNOWN",
    "KDC_ERR_S_PRINCIPAL_UNKNOWN",
    "KDC_ERR_PRINCIPAL_NOT_UNIQUE",
    "KDC_ERR_NULL_KEY",
    "KDC_ERR_CANNOT_POSTDATE",
    "KDC_ERR_NEVER_VALID",
    "KDC_ERR_POLICY",
    "KDC_ERR_BADOPTION",
    "KDC_ERR_ETYPE_NOSUPP",
    "KDC_ERR_SUMTYPE_NOSUPP",
    "KDC_ERR_PADATA_TYPE_NOSUPP",
    "KDC_ERR_TRTYPE_NOSUPP",
    "KDC_ERR_CLIENT_REVOKED",
    "KDC_ERR_SERVICE_REVOKED",
    "KDC_ERR_TGT_REVOKED",
    "KDC_ERR_CLIENT_NOTYET",
    "KDC_ERR_SERVICE_NOTYET",
    "KDC_ERR_KEY_EXPIRED",
    "KDC_ERR_PREAUTH_FAILED",
    "KDC_ERR_PREAUTH_REQUIRED",
    "KDC_ERR_SERVER_NOMATCH",
    "KDC_ERR_MUST_USE_USER2USER",
    "KDC_ERR_PATH_NOT_ACCEPTED",
    "KDC_ERR_SVC_UNAVAILABLE",
    "",
    "KRB_AP_ERR_BAD_INTEGRITY",
    "KRB_AP_ERR_TKT_EXPIRED",
    "KRB_AP_ERR_TKT_NYV",
    "KRB_AP_ERR_REPEAT",
    "KRB_AP_ERR_NOT_US",
    "KRB_AP_ERR_BADMATCH",
    "KRB_AP_ERR_SKEW",
    "KRB_AP_ERR_BADADDR",
    "KRB_AP_ERR_BADVERSION",
    "KRB_AP_ERR_MSG_TYPE",
    "KRB_AP_ERR_MODIFIED",
    "KRB_AP_ERR_BADORDER",
    "",
    "KRB_AP_ERR_BADKEYVER",
    "KRB_AP_ERR_NOKEY",
    "KRB_AP_ERR_MUT_FAIL",
    "KRB_AP_ERR_BADDIRECTION",
    "KRB_AP_ERR_METHOD",
    "KRB_AP_ERR_BADSEQ",
    "KRB_AP_ERR_INAPP_CKSUM",
    "KRB_AP_PATH_NOT_ACCEPTED",
    "KRB_ERR_RESPONSE_TOO_BIG",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "KRB_ERR_GENERIC",
    "KRB_ERR_FIELD_TOOLONG",
    "KDC_ERROR_CLIENT_NOT_TRUSTED",
    "KDC_ERROR_KDC_NOT_TRUSTED",
    "KDC_ERROR_INVALID_SIG",
    "KDC_ERR_KEY_TOO_WEAK",
    "KDC_ERR_CERTIFICATE_MISMATCH",
    "KRB_AP_ERR_NO_TGT",
    "KDC_ERR_WRONG_REALM",
    "KRB_AP_ERR_USER_TO_USER_REQUIRED",
    "KDC_ERR_CANT_VERIFY_CERTIFICATE",
    "KDC_ERR_INVALID_CERTIFICATE",
    "KDC_ERR_REVOKED_CERTIFICATE",
    "KDC_ERR_REVOCATION_STATUS_UNKNOWN",
    "KDC_ERR_REVOCATION_STATUS_UNAVAILABLE",
    "KDC_ERR_CLIENT_NAME_MISMATCH",
    "KDC_ERR_KDC_NAME_MISMATCH",
];

/// The name of an error, or its number in the format of events.
pub(super) fn error(code: i32) -> String {
    match usize::try_from(code).ok().and_then(|n| ERRORS.get(n)).filter(|name| !name.is_empty()) {
        Some(name) => (*name).into(),
        None => format!("ErrorCode({code})"),
    }
}
