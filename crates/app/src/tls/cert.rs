//! Certificates (RFC 5280): the raw chain, and the fields of its first certificate for rules and logs.
//!
//! `x509-parser` reads them. It borrows the data, recurses no deeper than a certificate's structure, and formats names as
//! Suricata does. Its errors become events.

use std::cell::OnceCell;
use std::fmt::Write as _;

use sha1::{Digest, Sha1};
use x509_parser::der_parser::error::BerError;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, SubjectAlternativeName};
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{FromDer, X509CertificateParser, X509Name};

use super::events::Event;
use crate::certificates::Certificates;

/// The limit of alternative names kept from a certificate; the rest is ignored.
const NAMES_MAX: usize = 1024;
/// The limit of certificates kept from a chain; the rest is ignored.
const CHAIN_MAX: usize = 64;

/// The fields of a certificate.
#[derive(Debug)]
pub struct Certificate {
    /// Distinguished name of the subject.
    pub subject: Vec<u8>,
    /// Distinguished name of the issuer.
    pub issuer: Vec<u8>,
    /// Serial number, `0A:1B`.
    pub serial: String,
    /// Start of validity, in seconds since 1970.
    pub not_before: i64,
    /// End of validity, in seconds since 1970.
    pub not_after: i64,
    /// Alternative names: host names, addresses, mail addresses, URIs.
    pub names: Vec<Vec<u8>>,
}

/// The certificate chain of one side.
#[derive(Debug, Default)]
pub struct Chain {
    der: Vec<u8>,
    /// The end of each certificate in `der`.
    ends: Vec<u32>,
    /// The first certificate, if it is valid.
    pub first: Option<Box<Certificate>>,
    fingerprint: OnceCell<String>,
}

impl Chain {
    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn held(&self) -> usize {
        let first = |c: &Certificate| {
            let names: usize = c.names.iter().map(|n| size_of::<Vec<u8>>() + n.capacity()).sum();
            size_of::<Certificate>() + c.subject.capacity() + c.issuer.capacity() + c.serial.capacity() + names
        };
        self.der.capacity() + self.ends.capacity() * size_of::<u32>() + self.first.as_deref().map_or(0, first)
    }

    /// Reads the list of a Certificate message (RFC 5246 section 7.4.2). Errors go to `event`.
    pub(super) fn read(body: &[u8], event: &mut dyn FnMut(Event)) -> Chain {
        let mut chain = Chain::default();
        let mut list = match take24(body) {
            Some((list, [])) => list,
            _ => {
                event(Event::CertificateInvalidLength);
                return chain;
            }
        };
        while !list.is_empty() && chain.ends.len() < CHAIN_MAX {
            let Some((der, rest)) = take24(list) else {
                event(Event::InvalidCertificate);
                break;
            };
            if der.is_empty() {
                event(Event::CertificateInvalidLength);
                break;
            }
            if chain.ends.is_empty() {
                match Certificate::read(der) {
                    Ok(c) => chain.first = Some(Box::new(c)),
                    Err(e) => event(e),
                }
            }
            chain.push(der);
            list = rest;
        }
        chain
    }

    /// A chain of a single certificate.
    pub(super) fn of(der: &[u8], event: &mut dyn FnMut(Event)) -> Chain {
        let mut chain = Chain::default();
        match Certificate::read(der) {
            Ok(c) => chain.first = Some(Box::new(c)),
            Err(e) => event(e),
        }
        chain.push(der);
        chain
    }

    fn push(&mut self, der: &[u8]) {
        self.der.extend_from_slice(der);
        self.ends.push(self.der.len() as u32);
    }

    /// The number of certificates.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The certificate at an index, in DER.
    pub fn der(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let from = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |e| *e as usize);
        self.der.get(from..end)
    }

    /// SHA-1 of the first certificate, `0a:1b`, computed on first use.
    pub fn fingerprint(&self) -> Option<&str> {
        let der = self.der(0)?;
        Some(self.fingerprint.get_or_init(|| digits(&Sha1::digest(der), false)))
    }

    /// The chain for the certificate store.
    pub(super) fn certificates(&self) -> Certificates<'_> {
        Certificates {
            chain: (0..).map_while(|i| self.der(i)).collect(),
            names: self.first.as_deref().map(|c| [&*c.subject, &*c.issuer]),
            fingerprint: self.fingerprint(),
        }
    }
}

/// Splits off a field with a 24-bit length. Returns it and the rest.
fn take24(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = data.split_first_chunk::<3>()?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    rest.split_at_checked(len)
}

/// Formats bytes in hexadecimal with colons.
fn digits(bytes: &[u8], upper: bool) -> String {
    let mut out = String::with_capacity(bytes.len() * 3);
    for (i, b) in bytes.iter().enumerate() {
        if i > 0 {
            out.push(':');
        }
        // Writing to a string does not fail.
        let _ = if upper { write!(out, "{b:02X}") } else { write!(out, "{b:02x}") };
    }
    out
}

impl Certificate {
    fn read(der: &[u8]) -> Result<Certificate, Event> {
        // Only one of the extensions is used.
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (_, c) = parser.parse(der).map_err(|e| match e {
            x509_parser::nom::Err::Incomplete(_) => Event::CertificateInvalidLength,
            x509_parser::nom::Err::Error(e) | x509_parser::nom::Err::Failure(e) => event_of(&e),
        })?;
        let mut names = Vec::new();
        let of_subject = c.extensions().iter().find(|e| e.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
        if let Some(Ok((_, list))) = of_subject.map(|e| SubjectAlternativeName::from_der(e.value)) {
            names.extend(list.general_names.iter().filter_map(general_name).take(NAMES_MAX));
        }
        Ok(Certificate {
            subject: name(c.subject()),
            issuer: name(c.issuer()),
            serial: digits(c.raw_serial(), true),
            not_before: c.validity().not_before.timestamp(),
            not_after: c.validity().not_after.timestamp(),
            names,
        })
    }
}

fn name(name: &X509Name<'_>) -> Vec<u8> {
    name.to_string().into_bytes()
}

fn general_name(name: &GeneralName<'_>) -> Option<Vec<u8>> {
    match name {
        GeneralName::DNSName(s) | GeneralName::RFC822Name(s) | GeneralName::URI(s) => Some(s.as_bytes().to_vec()),
        // Suricata's rules and events show an address as a list of its bytes.
        GeneralName::IPAddress(a) => Some(format!("{a:?}").into_bytes()),
        _ => None,
    }
}

const fn event_of(e: &X509Error) -> Event {
    match e {
        X509Error::InvalidVersion => Event::CertificateInvalidVersion,
        X509Error::InvalidSerial => Event::CertificateInvalidSerial,
        X509Error::InvalidAlgorithmIdentifier => Event::CertificateInvalidAlgorithm,
        X509Error::InvalidX509Name => Event::CertificateInvalidName,
        X509Error::InvalidDate => Event::CertificateInvalidDate,
        X509Error::InvalidExtensions | X509Error::DuplicateExtensions => Event::CertificateInvalidExtensions,
        // The data ends too early.
        X509Error::Der(BerError::Incomplete(_) | BerError::NomError(_) | BerError::InvalidLength) => {
            Event::InvalidCertificate
        }
        X509Error::Der(_) => Event::CertificateInvalidDer,
        _ => Event::InvalidCertificate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_within_itself() {
        // The first element claims more bytes than the certificate has.
        let list = [0, 0, 12, 0, 0, 9, 0x30, 5, 0x30, 0x84, 0xff, 0xff, 0xff, 0xfa, 4];
        let mut events = Vec::new();
        let chain = Chain::read(&list, &mut |e| events.push(e));
        assert!(chain.first.is_none() && chain.len() == 1);
        assert_eq!(events, [Event::CertificateInvalidLength]);
    }

    /// As Suricata names them.
    #[test]
    fn certificates_that_cannot_be_read() {
        let zeros = [&[0x30, 0x82, 0, 0x10][..], &[0; 16]].concat();
        for (der, want) in [
            (&[0xff; 50][..], Event::CertificateInvalidDer),
            (&zeros, Event::CertificateInvalidDer),
            (&[0x30, 0x80, 0x30, 0x03, 2, 1, 1, 0, 0], Event::CertificateInvalidDer),
            (&[0x30, 0x82, 1, 0, 0x30, 0x82, 0, 0xf0, 2, 1, 1], Event::InvalidCertificate),
            (&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x30, 0x03, 2, 1, 1], Event::InvalidCertificate),
        ] {
            assert_eq!(Certificate::read(der).err(), Some(want), "{}", der.escape_ascii());
        }
    }
}
