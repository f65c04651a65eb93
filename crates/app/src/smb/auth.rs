//! Client authentication data (MS-NLMP; RFC 4120; wrapped as in RFC 4178).

use super::text;
use crate::reader::Reader;

/// Client information from NTLM (MS-NLMP section 2.2.1.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ntlmssp {
    pub domain: Vec<u8>,
    pub user: Vec<u8>,
    pub host: Vec<u8>,
    /// Operating system version: major, minor, build, NTLM revision.
    pub version: Option<(u8, u8, u16, u8)>,
    /// The fields are not in the usual order.
    pub unusual: bool,
}

/// Server information from Kerberos.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kerberos {
    pub realm: Vec<u8>,
    pub snames: Vec<Vec<u8>>,
}

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Ntlmssp(Ntlmssp),
    Kerberos(Kerberos),
    /// NTLM with fields outside of the message.
    MalformedNtlmssp,
    Other,
}

const SIGNATURE: &[u8] = b"NTLMSSP\0";
const AUTHENTICATE: u32 = 3;
const NEGOTIATE_UNICODE: u32 = 1;
const NEGOTIATE_VERSION: u32 = 0x0200_0000;

/// Reads a client's token.
pub(super) fn token(blob: &[u8]) -> Token {
    if let Some(at) = blob.windows(SIGNATURE.len()).position(|w| w == SIGNATURE) {
        let message = blob.get(at..).unwrap_or(&[]);
        return match ntlmssp(message) {
            Some(Some(n)) => Token::Ntlmssp(n),
            Some(None) => Token::Other,
            None => Token::MalformedNtlmssp,
        };
    }
    kerberos(blob).map_or(Token::Other, Token::Kerberos)
}

/// Returns `Some(None)` for a message without client information.
fn ntlmssp(message: &[u8]) -> Option<Option<Ntlmssp>> {
    let mut r = Reader::little(message.get(SIGNATURE.len()..)?);
    if r.u32()? != AUTHENTICATE {
        return Some(None);
    }
    let mut field = || {
        let (len, _max, offset) = (r.u16()?, r.u16()?, r.u32()?);
        Some((usize::from(len), offset as usize))
    };
    let [_lm, _nt, domain, user, host, _key] = [field()?, field()?, field()?, field()?, field()?, field()?];
    let flags = r.u32()?;
    let version = (flags & NEGOTIATE_VERSION != 0).then(|| {
        let (major, minor, build) = (r.u8()?, r.u8()?, r.u16()?);
        let rest = r.array::<4>()?;
        Some((major, minor, build, rest[3]))
    });
    let text = |(len, offset): (usize, usize)| {
        // The offset of an empty field has no meaning.
        let bytes = if len == 0 { &[] } else { message.get(offset..)?.get(..len)? };
        Some(if flags & NEGOTIATE_UNICODE != 0 { text::utf16(bytes) } else { text::bytes(bytes) })
    };
    Some(Some(Ntlmssp {
        domain: text(domain)?,
        user: text(user)?,
        host: text(host)?,
        version: version.flatten(),
        unusual: !(domain.1 <= user.1 && user.1 <= host.1),
    }))
}

/// Reads a DER value (X.690 section 8.1) from the front: tag and content.
fn der<'a>(data: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *data else { return None };
    let (len, rest) = match first {
        n @ 0..=0x7f => (usize::from(*n), rest),
        n @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(n & 0x7f))?;
            (bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *data = rest;
    Some((*tag, content))
}

/// The content of the next value, if it has this tag.
fn tagged<'a>(data: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    der(data).filter(|(t, _)| *t == tag).map(|(_, c)| c)
}

/// The content of the value with this tag in a sequence.
fn member(mut data: &[u8], tag: u8) -> Option<&[u8]> {
    while let Some((t, content)) = der(&mut data) {
        if t == tag {
            return Some(content);
        }
    }
    None
}

/// The limit of name parts that are read.
const NAMES_MAX: usize = 16;

fn kerberos(mut blob: &[u8]) -> Option<Kerberos> {
    /// Kerberos within the generic interface (RFC 4121 section 4.1): 1.2.840.113554.1.2.2.
    const KRB5: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
    /// 1.3.6.1.5.5.2.
    const SPNEGO: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
    let mut wrapped = tagged(&mut blob, 0x60)?;
    let mut oid = tagged(&mut wrapped, 6)?;
    if oid == SPNEGO {
        // NegTokenInit: its mechToken.
        let init = tagged(&mut tagged(&mut wrapped, 0xa0)?, 0x30)?;
        let mut token = tagged(&mut member(init, 0xa2)?, 4)?;
        wrapped = tagged(&mut token, 0x60)?;
        oid = tagged(&mut wrapped, 6)?;
    }
    if oid != KRB5 {
        return None;
    }
    // AP-REQ (RFC 4120 section 5.5.1) after its token identifier.
    let mut message = wrapped.strip_prefix(&[1, 0])?;
    let request = tagged(&mut tagged(&mut message, 0x6e)?, 0x30)?;
    let ticket = tagged(&mut tagged(&mut member(request, 0xa3)?, 0x61)?, 0x30)?;
    let realm = tagged(&mut member(ticket, 0xa1)?, 0x1b)?.to_vec();
    let name = tagged(&mut member(ticket, 0xa2)?, 0x30)?;
    let mut parts = tagged(&mut member(name, 0xa1)?, 0x30)?;
    let mut snames = Vec::new();
    while let Some(part) = tagged(&mut parts, 0x1b).filter(|_| snames.len() < NAMES_MAX) {
        snames.push(part.to_vec());
    }
    Some(Kerberos { realm, snames })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticate(flags: u32) -> Vec<u8> {
        let mut m = SIGNATURE.to_vec();
        m.extend_from_slice(&3u32.to_le_bytes());
        for (len, at) in [(0u16, 0u32), (0, 0), (4, 72), (2, 76), (2, 78), (0, 0)] {
            m.extend_from_slice(&len.to_le_bytes());
            m.extend_from_slice(&len.to_le_bytes());
            m.extend_from_slice(&at.to_le_bytes());
        }
        m.extend_from_slice(&flags.to_le_bytes());
        m.extend_from_slice(&[10, 0, 0x61, 0x4a, 0, 0, 0, 15]);
        m.extend_from_slice(b"D\0M\0u\0h\0");
        m
    }

    #[test]
    fn a_client_of_ntlm() {
        let blob = [b"\x60\x10junk".to_vec(), authenticate(NEGOTIATE_UNICODE | NEGOTIATE_VERSION)].concat();
        let Token::Ntlmssp(n) = token(&blob) else { panic!() };
        assert_eq!((&*n.domain, &*n.user, &*n.host), (&b"DM"[..], &b"u"[..], &b"h"[..]));
        assert_eq!((n.version, n.unusual), (Some((10, 0, 0x4a61, 15)), false));
        for cut in 20..authenticate(1).len() {
            assert_eq!(token(&authenticate(1)[..cut]), Token::MalformedNtlmssp, "{cut}");
        }
        assert_eq!(token(b"NTLMSSP\0\x01\0\0\0"), Token::Other);
        // A host without a name, whose offset is beyond the message.
        let mut message = authenticate(NEGOTIATE_UNICODE);
        message[44..52].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0, 0]);
        let Token::Ntlmssp(n) = token(&message) else { panic!() };
        assert_eq!((&*n.user, &*n.host), (&b"u"[..], &b""[..]));
    }

    #[test]
    fn a_server_of_kerberos() {
        fn v(tag: u8, content: &[u8]) -> Vec<u8> {
            [&[tag, 0x82], &(content.len() as u16).to_be_bytes()[..], content].concat()
        }
        let name =
            v(0x30, &[v(0xa0, &v(2, &[2])), v(0xa1, &v(0x30, &[v(0x1b, b"cifs"), v(0x1b, b"dc1")].concat()))].concat());
        let ticket = v(0x30, &[v(0xa0, &v(2, &[5])), v(0xa1, &v(0x1b, b"EXAMPLE")), v(0xa2, &name)].concat());
        let request = v(0x6e, &v(0x30, &[v(0xa0, &v(2, &[5])), v(0xa3, &v(0x61, &ticket))].concat()));
        let krb5 = v(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2]);
        let inner = v(0x60, &[krb5, vec![1, 0], request].concat());
        let init = v(0xa0, &v(0x30, &[v(0xa0, &v(0x30, &[])), v(0xa2, &v(4, &inner))].concat()));
        let blob = v(0x60, &[v(6, &[0x2b, 6, 1, 5, 5, 2]), init].concat());
        let want = Kerberos { realm: b"EXAMPLE".to_vec(), snames: vec![b"cifs".to_vec(), b"dc1".to_vec()] };
        assert_eq!(token(&blob), Token::Kerberos(want.clone()));
        assert_eq!(token(&inner), Token::Kerberos(want));
        for cut in 0..blob.len() {
            assert_eq!(token(&blob[..cut]), Token::Other, "{cut}");
        }
    }
}
