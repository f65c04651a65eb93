//! Names in events: those of the IANA registries for IKE, in Suricata's spelling.

use std::borrow::Cow;

/// The name of a number; without a name, its registry and the number.
pub(super) fn name(names: &[(u16, &'static str)], registry: &str, n: u16) -> Cow<'static, str> {
    match names.iter().find(|x| x.0 == n) {
        Some(x) => x.1.into(),
        None => format!("{registry}({n} / {n:#x})").into(),
    }
}

/// The name of an attribute's value in IKE version 1.
pub(super) fn v1(names: &[(u16, &'static str)], n: u64) -> &'static str {
    names.iter().find(|x| u64::from(x.0) == n).map_or("Unknown", |x| x.1)
}

/// The exchange of a version 1 message (RFC 2408 section 3.1, RFC 2409 appendix A); other numbers have no name.
pub(super) const fn exchange(n: u8) -> Option<&'static str> {
    Some(match n {
        0 => "Unknown Exchange Type",
        1 => "Base",
        2 => "Identity Protection",
        3 => "Authentication Only",
        4 => "Aggressive",
        5 => "Informational",
        6 => "Transaction (Config Mode)",
        32 => "Quick Mode",
        33 => "New Group Mode",
        _ => return None,
    })
}

/// Encryption (version 1).
pub(super) const V1_ENC: &[(u16, &str)] = &[
    (1, "EncDesCbc"),
    (2, "EncIdeaCbc"),
    (3, "EncBlowfishCbc"),
    (4, "EncRc5R16B64Cbc"),
    (5, "EncTripleDesCbc"),
    (6, "EncCastCbc"),
    (7, "EncAesCbc"),
    (8, "EncCamelliaCbc"),
];
/// Hashes (version 1).
pub(super) const V1_HASH: &[(u16, &str)] =
    &[(1, "HashMd5"), (2, "HashSha"), (3, "HashTiger"), (4, "HashSha2_256"), (5, "HashSha2_384"), (6, "HashSha2_512")];
/// Authentication (version 1).
pub(super) const V1_AUTH: &[(u16, &str)] = &[
    (1, "AuthPreSharedKey"),
    (2, "AuthDssSignatures"),
    (3, "AuthRsaSignatures"),
    (4, "AuthEncryptionWithRsa"),
    (5, "AuthRevisedEncryptionWithRsa"),
    (6, "AuthReserved"),
    (7, "AuthReserved"),
    (8, "AuthReserved"),
    (9, "AuthEcdsaSha256"),
    (10, "AuthEcdsaSha384"),
    (11, "AuthEcdsaSha512"),
];
/// Diffie-Hellman groups (version 1).
pub(super) const V1_GROUP: &[(u16, &str)] = &[
    (1, "GroupDefault768BitModp"),
    (2, "GroupAlternate1024BitModpGroup"),
    (3, "GroupEc2nOnGp2p155"),
    (4, "GroupEc2nOnGp2p185"),
    (5, "GroupModp1536Bit"),
    (6, "GroupEc2nOverGf2p163"),
    (7, "GroupEc2nOverGf2p163"),
    (8, "GroupEc2nOverGf2p283"),
    (9, "GroupEc2nOverGf2p283"),
    (10, "GroupEc2nOverGf2p409"),
    (11, "GroupEc2nOverGf2p409"),
    (12, "GroupEc2nOverGf2p571"),
    (13, "GroupEc2nOverGf2p571"),
    (14, "GroupModp2048Bit"),
    (15, "GroupModp3072Bit"),
    (16, "GroupModp4096Bit"),
    (17, "GroupModp6144Bit"),
    (18, "GroupModp8192Bit"),
    (19, "GroupRandomEcp256"),
    (20, "GroupRandomEcp384"),
    (21, "GroupRandomEcp521"),
    (22, "GroupModp1024With160BitPrime"),
    (23, "GroupModp2048With224BitPrime"),
    (24, "GroupModp2048With256BitPrime"),
    (25, "GroupRandomEcp192"),
    (26, "GroupRandomEcp224"),
    (27, "GroupBrainpoolEcp224"),
    (28, "GroupBrainpoolEcp256"),
    (29, "GroupBrainpoolEcp384"),
    (30, "GroupBrainpoolEcp512"),
];
/// Units of a lifetime (version 1).
pub(super) const V1_LIFE: &[(u16, &str)] = &[(1, "LifeTypeSeconds"), (2, "LifeTypeKilobytes")];
/// Payloads (version 1).
pub(super) const V1_PAYLOAD: &[(u16, &str)] = &[
    (0, "None"),
    (1, "SecurityAssociation"),
    (2, "Proposal"),
    (3, "Transform"),
    (4, "KeyExchange"),
    (5, "Identification"),
    (6, "Certificate"),
    (7, "CertificateRequest"),
    (8, "Hash"),
    (9, "Signature"),
    (10, "Nonce"),
    (11, "Notification"),
    (12, "Delete"),
    (13, "VendorID"),
    (15, "SaKekPayload"),
    (16, "SaTekPayload"),
    (17, "KeyDownload"),
    (18, "SequenceNumber"),
    (19, "ProofOfPossession"),
    (20, "NatDiscovery"),
    (21, "NatOriginalAddress"),
    (22, "GroupAssociatedPolicy"),
];
/// Payloads (version 2).
pub(super) const PAYLOAD: &[(u16, &str)] = &[
    (0, "NoNextPayload"),
    (33, "SecurityAssociation"),
    (34, "KeyExchange"),
    (35, "IdentInitiator"),
    (36, "IdentResponder"),
    (37, "Certificate"),
    (38, "CertificateRequest"),
    (39, "Authentication"),
    (40, "Nonce"),
    (41, "Notify"),
    (42, "Delete"),
    (43, "VendorID"),
    (44, "TrafficSelectorInitiator"),
    (45, "TrafficSelectorResponder"),
    (46, "EncryptedAndAuthenticated"),
    (47, "Configuration"),
    (48, "ExtensibleAuthentication"),
];
/// Encryption (version 2).
pub(super) const ENC: &[(u16, &str)] = &[
    (1, "ENCR_DES_IV64"),
    (2, "ENCR_DES"),
    (3, "ENCR_3DES"),
    (4, "ENCR_RC5"),
    (5, "ENCR_IDEA"),
    (6, "ENCR_CAST"),
    (7, "ENCR_BLOWFISH"),
    (8, "ENCR_3IDEA"),
    (9, "ENCR_DES_IV32"),
    (11, "ENCR_NULL"),
    (12, "ENCR_AES_CBC"),
    (13, "ENCR_AES_CTR"),
    (14, "ENCR_AES_CCM_8"),
    (15, "ENCR_AES_CCM_12"),
    (16, "ENCR_AES_CCM_16"),
    (18, "ENCR_AES_GCM_8"),
    (19, "ENCR_AES_GCM_12"),
    (20, "ENCR_AES_GCM_16"),
    (21, "ENCR_NULL_AUTH_AES_GMAC"),
    (23, "ENCR_CAMELLIA_CBC"),
    (24, "ENCR_CAMELLIA_CTR"),
    (25, "ENCR_CAMELLIA_CCM_8"),
    (26, "ENCR_CAMELLIA_CCM_12"),
    (27, "ENCR_CAMELLIA_CCM_16"),
    (28, "ENCR_CHACHA20_POLY1305"),
];
/// Pseudo-random functions (version 2).
pub(super) const PRF: &[(u16, &str)] = &[
    (0, "PRF_NULL"),
    (1, "PRF_HMAC_MD5"),
    (2, "PRF_HMAC_SHA1"),
    (3, "PRF_HMAC_TIGER"),
    (4, "PRF_AES128_XCBC"),
    (5, "PRF_HMAC_SHA2_256"),
    (6, "PRF_HMAC_SHA2_384"),
    (7, "PRF_HMAC_SHA2_512"),
    (8, "PRF_AES128_CMAC"),
];
/// Integrity (version 2).
pub(super) const AUTH: &[(u16, &str)] = &[
    (0, "NONE"),
    (1, "AUTH_HMAC_MD5_96"),
    (2, "AUTH_HMAC_SHA1_96"),
    (3, "AUTH_DES_MAC"),
    (4, "AUTH_KPDK_MD5"),
    (5, "AUTH_AES_XCBC_96"),
    (6, "AUTH_HMAC_MD5_128"),
    (7, "AUTH_HMAC_SHA1_160"),
    (8, "AUTH_AES_CMAC_96"),
    (9, "AUTH_AES_128_GMAC"),
    (10, "AUTH_AES_192_GMAC"),
    (11, "AUTH_AES_256_GMAC"),
    (12, "AUTH_HMAC_SHA2_256_128"),
    (13, "AUTH_HMAC_SHA2_384_192"),
    (14, "AUTH_HMAC_SHA2_512_256"),
];
/// Diffie-Hellman groups (version 2).
pub(super) const DH: &[(u16, &str)] = &[
    (0, "None"),
    (1, "Modp768"),
    (2, "Modp1024"),
    (5, "Modp1536"),
    (14, "Modp2048"),
    (15, "Modp3072"),
    (16, "Modp4096"),
    (17, "Modp6144"),
    (18, "Modp8192"),
    (19, "Ecp256"),
    (20, "Ecp384"),
    (21, "Ecp521"),
    (22, "Modp1024s160"),
    (23, "Modp2048s224"),
    (24, "Modp2048s256"),
    (25, "Ecp192"),
    (26, "Ecp224"),
    (27, "BrainpoolP224r1"),
    (28, "BrainpoolP256r1"),
    (29, "BrainpoolP384r1"),
    (30, "BrainpoolP512r1"),
    (31, "Curve25519"),
    (32, "Curve448"),
];
/// Extended sequence numbers (version 2).
pub(super) const ESN: &[(u16, &str)] = &[(0, "NoESN"), (1, "ESN")];
/// Notify messages (version 2).
pub(super) const NOTIFY: &[(u16, &str)] = &[
    (1, "UNSUPPORTED_CRITICAL_PAYLOAD"),
    (4, "INVALID_IKE_SPI"),
    (5, "INVALID_MAJOR_VERSION"),
    (7, "INVALID_SYNTAX"),
    (9, "INVALID_MESSAGE_ID"),
    (11, "INVALID_SPI"),
    (14, "NO_PROPOSAL_CHOSEN"),
    (17, "INVALID_KE_PAYLOAD"),
    (24, "AUTHENTICATION_FAILED"),
    (34, "SINGLE_PAIR_REQUIRED"),
    (35, "NO_ADDITIONAL_SAS"),
    (36, "INTERNAL_ADDRESS_FAILURE"),
    (37, "FAILED_CP_REQUIRED"),
    (38, "TS_UNACCEPTABLE"),
    (39, "INVALID_SELECTORS"),
    (43, "TEMPORARY_FAILURE"),
    (44, "CHILD_SA_NOT_FOUND"),
    (16384, "INITIAL_CONTACT"),
    (16385, "SET_WINDOW_SIZE"),
    (16386, "ADDITIONAL_TS_POSSIBLE"),
    (16387, "IPCOMP_SUPPORTED"),
    (16388, "NAT_DETECTION_SOURCE_IP"),
    (16389, "NAT_DETECTION_DESTINATION_IP"),
    (16390, "COOKIE"),
    (16391, "USE_TRANSPORT_MODE"),
    (16392, "HTTP_CERT_LOOKUP_SUPPORTED"),
    (16393, "REKEY_SA"),
    (16394, "ESP_TFC_PADDING_NOT_SUPPORTED"),
    (16395, "NON_FIRST_FRAGMENTS_ALSO"),
    (16404, "MULTIPLE_AUTH_SUPPORTED"),
    (16405, "ANOTHER_AUTH_FOLLOWS"),
    (16406, "REDIRECT_SUPPORTED"),
    (16430, "IKEV2_FRAGMENTATION_SUPPORTED"),
    (16431, "SIGNATURE_HASH_ALGORITHMS"),
];
