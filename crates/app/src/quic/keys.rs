//! Keys of Initial packets (RFC 9001 section 5, RFC 9369 section 3.3).

use aes_gcm::aead::AeadInPlace;
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce, Tag};
use hkdf::Hkdf;
use margay_flow::Direction;
use sha2::Sha256;

/// Version 2 (RFC 9369).
pub(super) const V2: u32 = 0x6b33_43cf;

const TAG: usize = 16;

/// The salt of a version whose Initial packets can be decrypted.
fn salt(version: u32) -> Option<&'static [u8; 20]> {
    const V1: [u8; 20] = *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
    const DRAFT_29: [u8; 20] = *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";
    const DRAFT_23: [u8; 20] = *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";
    const OF_V2: [u8; 20] = *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
    match version {
        1 | 0xff00_0021..=0xff00_0022 => Some(&V1),
        V2 => Some(&OF_V2),
        0xff00_001d..=0xff00_0020 => Some(&DRAFT_29),
        // mvfst has a version number of its own.
        0xff00_0017..=0xff00_001c | 0xface_b002 => Some(&DRAFT_23),
        _ => None,
    }
}

/// Whether Initial packets of a version can be decrypted.
pub(super) fn known(version: u32) -> bool {
    salt(version).is_some()
}

/// Keys of one sender.
struct Side {
    key: Aes128Gcm,
    iv: [u8; 12],
    header: Aes128,
}

impl Side {
    /// Derives the keys of the client or of the server, from the label of their secret.
    fn new(initial: &Hkdf<Sha256>, version: u32, of: &str) -> Option<Side> {
        let labels = match version {
            V2 => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            _ => ["quic key", "quic iv", "quic hp"],
        };
        let mut secret = [0; 32];
        expand(initial, of, &mut secret)?;
        let secret = Hkdf::<Sha256>::from_prk(&secret).ok()?;
        let (mut key, mut iv, mut header) = ([0; 16], [0; 12], [0; 16]);
        expand(&secret, labels[0], &mut key)?;
        expand(&secret, labels[1], &mut iv)?;
        expand(&secret, labels[2], &mut header)?;
        Some(Side { key: Aes128Gcm::new(&key.into()), iv, header: Aes128::new(&header.into()) })
    }
}

/// The client's keys, derived from its first connection id. The server's keys are only derived once these decrypt a packet,
/// because anyone can send a packet that they do not decrypt.
pub(super) struct Attempt {
    version: u32,
    dcid: Vec<u8>,
    initial: Hkdf<Sha256>,
    client: Side,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attempt")
    }
}

impl Attempt {
    /// Derives keys from a connection id; `None` for an unknown version.
    pub(super) fn new(version: u32, dcid: &[u8]) -> Option<Attempt> {
        let (_, initial) = Hkdf::<Sha256>::extract(Some(salt(version)?), dcid);
        let client = Side::new(&initial, version, "client in")?;
        Some(Attempt { version, dcid: dcid.to_vec(), initial, client })
    }

    /// Whether the keys belong to this connection id.
    pub(super) fn is_of(&self, version: u32, dcid: &[u8]) -> bool {
        self.version == version && self.dcid == dcid
    }

    /// Decrypts a client's packet. On success `out` has its frames, and the keys of both sides are returned.
    pub(super) fn open(&self, packet: &[u8], content: usize, out: &mut Vec<u8>) -> Option<Keys> {
        self.client.open(packet, content, out)?;
        let [client, server] = ["client in", "server in"].map(|of| Side::new(&self.initial, self.version, of));
        Some(Keys([client?, server?]))
    }
}

/// The keys of both sides.
pub(super) struct Keys([Side; 2]);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// Derives both keys from the client's first connection id; `None` for an unknown version.
    #[cfg(test)]
    pub(super) fn new(version: u32, dcid: &[u8]) -> Option<Keys> {
        let (_, initial) = Hkdf::<Sha256>::extract(Some(salt(version)?), dcid);
        Some(Keys([Side::new(&initial, version, "client in")?, Side::new(&initial, version, "server in")?]))
    }

    /// Decrypts a packet whose packet number begins at `content`; `out` then has its frames. `None` on failure.
    pub(super) fn open(&self, dir: Direction, packet: &[u8], content: usize, out: &mut Vec<u8>) -> Option<()> {
        self.0[dir.index()].open(packet, content, out)
    }
}

impl Side {
    fn open(&self, packet: &[u8], content: usize, out: &mut Vec<u8>) -> Option<()> {
        // The sample assumes a packet number of full length (RFC 9001 section 5.4.2).
        let sample: &[u8; 16] = packet.get(content + 4..)?.first_chunk()?;
        let mut mask = (*sample).into();
        self.header.encrypt_block(&mut mask);
        let first = packet.first()? ^ (mask[0] & 0x0f);
        let len = usize::from(first & 3) + 1;
        let frames = content + len;
        let mut head = packet.get(..frames)?.to_vec();
        *head.first_mut()? = first;
        let mut number = 0u64;
        for (b, m) in head.get_mut(content..)?.iter_mut().zip(mask.iter().skip(1)) {
            *b ^= m;
            number = number << 8 | u64::from(*b);
        }
        // In the first packets, the truncated packet number is the complete one.
        let mut nonce = self.iv;
        for (n, b) in nonce.iter_mut().skip(4).zip(number.to_be_bytes()) {
            *n ^= b;
        }
        let (body, tag) = packet.get(frames..)?.split_last_chunk::<TAG>()?;
        out.clear();
        out.extend_from_slice(body);
        self.key.decrypt_in_place_detached(Nonce::from_slice(&nonce), &head, out, Tag::from_slice(tag)).ok()
    }
}

/// `HKDF-Expand-Label` (RFC 8446 section 7.1) without a context.
fn expand(secret: &Hkdf<Sha256>, label: &str, out: &mut [u8]) -> Option<()> {
    let mut info = Vec::with_capacity(32);
    info.extend((out.len() as u16).to_be_bytes());
    info.push(6 + label.len() as u8);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label.as_bytes());
    info.push(0);
    secret.expand(&info, out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    impl Keys {
        /// The inverse of [`Keys::open`]: `head` excludes the packet number.
        pub(in crate::quic) fn seal(&self, dir: Direction, head: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
            let side = &self.0[dir.index()];
            let mut nonce = side.iv;
            nonce[11] ^= number;
            let head = [head, &[number]].concat();
            let mut body = frames.to_vec();
            let tag = side.key.encrypt_in_place_detached(Nonce::from_slice(&nonce), &head, &mut body).unwrap();
            let mut packet = [&head[..], &body, &tag].concat();
            let at = head.len() - 1;
            let mut mask = (*packet[at + 4..].first_chunk::<16>().unwrap()).into();
            side.header.encrypt_block(&mut mask);
            packet[0] ^= mask[0] & 0x0f;
            packet[at] ^= mask[1];
            packet
        }
    }

    /// RFC 9001, appendix A.3.
    #[test]
    fn the_servers_initial_of_the_rfc() {
        let packet = hex(
            "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3e\
             c2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f58891850\
             abbdca3d20398c276456cbc42158407dd074ee",
        );
        let keys = Keys::new(1, &hex("8394c8f03e515708")).unwrap();
        let mut out = Vec::new();
        keys.open(Direction::ToClient, &packet, 18, &mut out).unwrap();
        assert!(out.starts_with(&hex("02000000000600405a020000560303eefce7f7")));
        assert!(keys.open(Direction::ToServer, &packet, 18, &mut out).is_none());
        assert!(Keys::new(0xface_b001, b"x").is_none());
    }
}
