//! Settings of TLS.

/// How to continue once a session is encrypted (`encryption-handling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Follow the records, do not inspect payload and stream (`track-only`, `default`).
    #[default]
    TrackOnly,
    /// Bypass the flow (`bypass`).
    Bypass,
    /// Continue as before (`full`).
    Full,
}

/// Settings of `app-layer.protocols.tls`.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// How to continue once a session is encrypted.
    pub encryption: Encryption,
    /// Whether rules and logs have JA3 and JA3S (`ja3-fingerprints`).
    pub ja3: bool,
    /// Whether rules and logs have JA4 (`ja4-fingerprints`).
    pub ja4: bool,
}

/// A member of the `tls` log that the configuration may name in `custom`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Field {
    Subject,
    Issuer,
    SessionResumed,
    Serial,
    Fingerprint,
    Sni,
    Version,
    NotBefore,
    NotAfter,
    Certificate,
    Chain,
    Ja3,
    Ja3s,
    Ja4,
    SubjectAltName,
    Client,
    ClientCertificate,
    ClientChain,
    ClientAlpns,
    ServerAlpns,
    ClientHandshake,
    ServerHandshake,
}

impl Field {
    /// All fields with their names in the configuration.
    pub const NAMES: &[(&str, Field)] = &[
        ("subject", Field::Subject),
        ("issuer", Field::Issuer),
        ("session_resumed", Field::SessionResumed),
        ("serial", Field::Serial),
        ("fingerprint", Field::Fingerprint),
        ("sni", Field::Sni),
        ("version", Field::Version),
        ("not_before", Field::NotBefore),
        ("not_after", Field::NotAfter),
        ("certificate", Field::Certificate),
        ("chain", Field::Chain),
        ("ja3", Field::Ja3),
        ("ja3s", Field::Ja3s),
        ("ja4", Field::Ja4),
        ("subjectaltname", Field::SubjectAltName),
        ("client", Field::Client),
        ("client_certificate", Field::ClientCertificate),
        ("client_chain", Field::ClientChain),
        ("client_alpns", Field::ClientAlpns),
        ("server_alpns", Field::ServerAlpns),
        ("client_handshake", Field::ClientHandshake),
        ("server_handshake", Field::ServerHandshake),
    ];
}

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(u32);

impl Fields {
    /// The fields of the basic log.
    pub const BASIC: Fields =
        Fields::of(&[Field::Subject, Field::Issuer, Field::SessionResumed, Field::SubjectAltName]);
    /// The fields of the extended log.
    pub const EXTENDED: Fields = Fields(
        Fields::BASIC.0
            | Fields::of(&[
                Field::Serial,
                Field::Fingerprint,
                Field::Sni,
                Field::Version,
                Field::NotBefore,
                Field::NotAfter,
                Field::Ja3,
                Field::Ja3s,
                Field::Ja4,
                Field::Client,
                Field::ClientAlpns,
                Field::ServerAlpns,
            ])
            .0,
    );

    /// A set of these fields.
    pub const fn of(fields: &[Field]) -> Fields {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u8;
            i += 1;
        }
        Fields(bits)
    }

    /// Whether the set has a field.
    pub const fn has(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    /// Adds a field.
    #[must_use]
    pub const fn with(self, field: Field) -> Fields {
        Fields(self.0 | 1 << field as u8)
    }

    /// Removes a field.
    #[must_use]
    pub const fn without(self, field: Field) -> Fields {
        Fields(self.0 & !(1 << field as u8))
    }
}

/// Options of the `tls` log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Members.
    pub fields: Fields,
    /// Whether the output lists JA4, which enables it if `ja4-fingerprints` is `auto`.
    pub asks_ja4: bool,
    /// Whether resumed sessions are logged (`session-resumption`).
    pub resumed: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        // The defaults for a type without a section.
        LogOptions { fields: Fields::BASIC, asks_ja4: false, resumed: false }
    }
}
