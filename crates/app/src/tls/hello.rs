//! ClientHello and ServerHello (RFC 8446 section 4.1, RFC 5246 section 7.4.1), stored raw with the positions of the fields that
//! rules and logs use. QUIC carries the same messages.

use std::fmt;

use super::version::{Version, is_grease};

/// The random of a HelloRetryRequest (RFC 8446 section 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Extensions that are read (IANA, TLS ExtensionType values).
mod extension {
    pub(super) const SERVER_NAME: u16 = 0;
    pub(super) const GROUPS: u16 = 10;
    pub(super) const POINT_FORMATS: u16 = 11;
    pub(super) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(super) const ALPN: u16 = 16;
    pub(super) const SESSION_TICKET: u16 = 35;
    pub(super) const SUPPORTED_VERSIONS: u16 = 43;
}

/// A range of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Part {
    at: u32,
    len: u32,
}

/// Defects of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flaws {
    /// It is truncated, or its lengths contradict each other.
    pub malformed: bool,
    /// It has more than one server name extension.
    pub several_sni: bool,
    /// A server name is not of type host name.
    pub sni_type: bool,
    /// A server name has a wrong length.
    pub sni_length: bool,
}

/// A ClientHello or ServerHello.
#[derive(Clone, Default)]
pub struct Hello {
    raw: Box<[u8]>,
    /// The version in `legacy_version`.
    pub version: Version,
    session: Part,
    ciphers: Part,
    extensions: Part,
    /// Whether the cipher suites were read, and whether everything behind them.
    read: (bool, bool),
    sni: Option<Part>,
    groups: Part,
    points: Part,
    signatures: Part,
    alpn: Part,
    versions: Part,
    /// Whether it has a session ticket with content.
    pub ticket: bool,
    /// Whether it has the session ticket extension.
    pub ticket_extension: bool,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello").field("version", &self.version).field("bytes", &self.raw.len()).finish_non_exhaustive()
    }
}

/// A cursor in a hello.
struct Reader<'a> {
    raw: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn of(raw: &'a [u8], part: Part) -> Self {
        let at = part.at as usize;
        Reader { raw, at, end: (at + part.len as usize).min(raw.len()) }
    }

    const fn left(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    fn part(&mut self, len: usize) -> Option<Part> {
        if len > self.left() {
            return None;
        }
        let part = Part { at: self.at as u32, len: len as u32 };
        self.at += len;
        Some(part)
    }

    fn u8(&mut self) -> Option<usize> {
        let p = self.part(1)?;
        self.raw.get(p.at as usize).map(|b| usize::from(*b))
    }

    fn u16(&mut self) -> Option<u16> {
        let p = self.part(2)?;
        self.raw.get(p.at as usize..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
    }

    fn short(&mut self) -> Option<Part> {
        let n = self.u8()?;
        self.part(n)
    }

    fn long(&mut self) -> Option<Part> {
        let n = self.u16()?;
        self.part(usize::from(n))
    }
}

impl Hello {
    /// Heap memory in bytes, without the size of the value itself.
    pub(crate) fn held(&self) -> usize {
        self.raw.len()
    }

    /// Reads the body of a ClientHello, up to the first defect.
    pub fn client(raw: &[u8]) -> (Hello, Flaws) {
        Hello::read(raw, true)
    }

    /// Reads the body of a ServerHello, up to the first defect.
    pub fn server(raw: &[u8]) -> (Hello, Flaws) {
        Hello::read(raw, false)
    }

    fn read(raw: &[u8], client: bool) -> (Hello, Flaws) {
        let mut hello = Hello { raw: raw.into(), ..Hello::default() };
        let mut flaws = Flaws::default();
        let raw = std::mem::take(&mut hello.raw);
        if hello.fill(&raw, client, &mut flaws).is_none() {
            flaws.malformed = true;
        }
        hello.raw = raw;
        (hello, flaws)
    }

    fn fill(&mut self, raw: &[u8], client: bool, flaws: &mut Flaws) -> Option<()> {
        let mut r = Reader { raw, at: 0, end: raw.len() };
        self.version = Version(r.u16()?);
        r.part(32)?;
        // In drafts of TLS 1.3 up to 21, a ServerHello has no session and no compression.
        let short = !client && self.version.is_13();
        if !short {
            self.session = r.short()?;
        }
        self.ciphers = if client { r.long()? } else { r.part(2)? };
        self.read.0 = true;
        if !short {
            // Compression: a list in the ClientHello.
            let n = if client { r.u8()? } else { 1 };
            r.part(n)?;
        }
        if r.left() == 0 {
            self.read.1 = true;
            return Some(());
        }
        // Nothing follows the extensions.
        self.extensions = r.long()?;
        let mut e = Reader::of(raw, self.extensions);
        while e.left() > 0 {
            let kind = e.u16()?;
            let body = e.long()?;
            let mut b = Reader::of(raw, body);
            match kind {
                // The server's extension is empty.
                extension::SERVER_NAME if client => {
                    if self.sni.is_some() {
                        flaws.several_sni = true;
                    } else {
                        self.sni = server_name(&mut b, flaws);
                    }
                }
                extension::GROUPS => self.groups = b.long().unwrap_or_default(),
                extension::POINT_FORMATS => self.points = b.short().unwrap_or_default(),
                extension::SIGNATURE_ALGORITHMS => self.signatures = b.long().unwrap_or_default(),
                extension::ALPN => self.alpn = b.long().unwrap_or_default(),
                extension::SESSION_TICKET => {
                    self.ticket_extension = true;
                    self.ticket = body.len > 0;
                }
                extension::SUPPORTED_VERSIONS if client => self.versions = b.short().unwrap_or_default(),
                extension::SUPPORTED_VERSIONS => self.versions = body,
                _ => {}
            }
        }
        self.read.1 = true;
        Some(())
    }

    fn bytes(&self, part: Part) -> &[u8] {
        let at = part.at as usize;
        self.raw.get(at..at + part.len as usize).unwrap_or(&[])
    }

    fn numbers(&self, part: Part) -> impl Iterator<Item = u16> + '_ {
        self.bytes(part).chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]]))
    }

    /// The random of 32 bytes, if it is complete.
    pub fn random(&self) -> Option<&[u8]> {
        self.raw.get(2..34)
    }

    /// Whether it is a HelloRetryRequest.
    pub fn is_retry(&self) -> bool {
        self.random() == Some(&RETRY[..])
    }

    /// Whether the cipher suites could be read, and whether everything behind them.
    pub(super) const fn read_to(&self) -> (bool, bool) {
        self.read
    }

    /// Session identifier.
    pub fn session(&self) -> &[u8] {
        self.bytes(self.session)
    }

    /// Cipher suites: the client's offer, or the server's choice.
    pub fn ciphers(&self) -> impl Iterator<Item = u16> + '_ {
        self.numbers(self.ciphers)
    }

    /// Extensions, by number.
    pub fn extensions(&self) -> impl Iterator<Item = u16> + '_ {
        let mut r = Reader::of(&self.raw, self.extensions);
        std::iter::from_fn(move || {
            let kind = r.u16()?;
            r.long()?;
            Some(kind)
        })
    }

    /// Groups (elliptic curves).
    pub fn groups(&self) -> impl Iterator<Item = u16> + '_ {
        self.numbers(self.groups)
    }

    /// Formats of points.
    pub fn point_formats(&self) -> &[u8] {
        self.bytes(self.points)
    }

    /// Signature algorithms.
    pub fn signatures(&self) -> impl Iterator<Item = u16> + '_ {
        self.numbers(self.signatures)
    }

    /// Versions of the extension `supported_versions`.
    pub fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        self.numbers(self.versions).map(Version)
    }

    /// The version that the server chose, or the first one of the client that is not GREASE.
    pub fn chosen(&self) -> Version {
        self.versions().find(|v| !v.is_grease()).unwrap_or(self.version)
    }

    /// The newest version that a client offers.
    pub fn newest(&self) -> Version {
        self.versions().filter(|v| !v.is_grease()).max().unwrap_or(self.version)
    }

    /// The server's name.
    pub fn sni(&self) -> Option<&[u8]> {
        self.sni.map(|p| self.bytes(p))
    }

    /// Protocols (ALPN, RFC 7301 section 3.1).
    pub fn alpns(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut r = Reader::of(&self.raw, self.alpn);
        std::iter::from_fn(move || r.short().map(|p| self.bytes(p)))
    }

    /// Whether a value is not GREASE.
    pub(super) const fn is_real(value: &u16) -> bool {
        !is_grease(*value)
    }
}

/// The first host name of a `server_name` extension (RFC 6066 section 3).
fn server_name(r: &mut Reader<'_>, flaws: &mut Flaws) -> Option<Part> {
    if r.left() == 0 {
        return None;
    }
    let list = r.long();
    let Some(mut r) = list.map(|l| Reader::of(r.raw, l)) else {
        flaws.sni_length = true;
        return None;
    };
    // Go skips names of other types, though none is defined.
    while let Some(kind) = r.u8() {
        match r.long() {
            Some(name) if kind == 0 && name.len > 0 => {
                // No host has a longer name (RFC 1035 section 2.3.4).
                flaws.sni_length = name.len > 255;
                return Some(name);
            }
            Some(_) if kind != 0 => flaws.sni_type = true,
            _ => {
                flaws.sni_length |= kind == 0;
                flaws.sni_type |= kind != 0;
                return None;
            }
        }
    }
    None
}
