//! Settings of TLS.

/// What is done once a session is encrypted (`encryption-handling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Records are followed, payload and stream are not inspected (`track-only`, `default`).
    #[default]
    TrackOnly,
    /// Nothing more of the flow is looked at (`bypass`).
    Bypass,
    /// All goes on as before (`full`).
    Full,
}

/// Settings of `app-layer.protocols.tls`.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What is done once a session is encrypted.
    pub encryption: Encryption,
    /// Whether JA3 and JA3S are there for rules and logs (`ja3-fingerprints`).
    pub ja3: bool,
    /// The same for JA4 (`ja4-fingerprints`).
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
    /// All of them with their names in the configuration.
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
    /// Those of a log that is not extended.
    pub const BASIC: Fields =
        Fields::of(&[Field::Subject, Field::Issuer, Field::SessionResumed, Field::SubjectAltName]);
    /// Those of an extended one.
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

    /// These.
    pub const fn of(fields: &[Field]) -> Fields {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u8;
            i += 1;
        }
        Fields(bits)
    }

    /// Whether a field is among them.
    pub const fn has(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    /// The same with another one.
    #[must_use]
    pub const fn with(self, field: Field) -> Fields {
        Fields(self.0 | 1 << field as u8)
    }

    /// The same without one.
    #[must_use]
    pub const fn without(self, field: Field) -> Fields {
        Fields(self.0 & !(1 << field as u8))
    }
}

/// What the `tls` log shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Members.
    pub fields: Fields,
    /// Whether the output asks for JA4 by name: that turns it on where `ja4-fingerprints` is `auto`.
    pub asks_ja4: bool,
    /// Whether sessions that were resumed are logged (`session-resumption`).
    pub resumed: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        // As where the type is named without a section.
        LogOptions { fields: Fields::BASIC, asks_ja4: false, resumed: false }
    }
}
