//! KEXINIT (RFC 4253 section 7.1), and its HASSH: the lists of key exchange, cipher, MAC and compression that a side offers for
//! its own data, joined by semicolons. The fingerprint is their MD5.

use margay_flow::Direction;
use md5::{Digest, Md5};

/// Length of the cookie before the lists.
const COOKIE: usize = 16;
/// Indexes of the lists: key exchange; then cipher, MAC and compression, each for the client and for the server.
const LISTS: [[usize; 4]; 2] = [[0, 2, 4, 6], [0, 3, 5, 7]];

/// A fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hassh {
    /// The lists.
    pub string: Vec<u8>,
    /// MD5 of them, in hexadecimal.
    pub hash: [u8; 32],
}

/// Reads the message of a direction after its message number; padding may follow. `None` if it is truncated.
pub(super) fn hassh(message: &[u8], dir: Direction) -> Option<Hassh> {
    let mut rest = message.get(COOKIE..)?;
    let mut lists: [&[u8]; 10] = [b""; 10];
    for list in &mut lists {
        (*list, rest) = name_list(rest)?;
    }
    // `first_kex_packet_follows`, and a reserved number.
    rest.get(4)?;
    let [kex, cipher, mac, compression] = LISTS[dir.index()].map(|n| lists.get(n).copied().unwrap_or_default());
    let string = [kex, cipher, mac, compression].join(&b';');
    let hash = hex(&Md5::digest(&string).into());
    Some(Hassh { string, hash })
}

/// Reads a list (RFC 4251 section 5). Returns it and the rest.
fn name_list(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

fn hex(digest: &[u8; 16]) -> [u8; 32] {
    let mut out = [0; 32];
    for (pair, b) in out.chunks_exact_mut(2).zip(digest) {
        for (c, nibble) in pair.iter_mut().zip([b >> 4, b & 15]) {
            *c = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A KEXINIT message after its message number, with lists named after their index.
    pub(in crate::ssh) fn message(lists: &[&str; 10]) -> Vec<u8> {
        let mut m = vec![7; COOKIE];
        for l in lists {
            m.extend_from_slice(&(l.len() as u32).to_be_bytes());
            m.extend_from_slice(l.as_bytes());
        }
        m.extend_from_slice(&[0; 5]);
        m
    }

    #[test]
    fn of_both_directions() {
        let m = message(&[
            "curve25519-sha256,ecdh",
            "ssh-ed25519",
            "aes128-ctr,c2",
            "aes256-ctr,s2",
            "hmac-sha1",
            "hmac-md5",
            "none,zlib",
            "zlib@x",
            "",
            "",
        ]);
        let c = hassh(&m, Direction::ToServer).unwrap();
        assert_eq!(c.string, b"curve25519-sha256,ecdh;aes128-ctr,c2;hmac-sha1;none,zlib");
        assert_eq!(&c.hash, b"4eba4c5b73c92fc505ed71a4476c3ace");
        let s = hassh(&m, Direction::ToClient).unwrap();
        assert_eq!(s.string, b"curve25519-sha256,ecdh;aes256-ctr,s2;hmac-md5;zlib@x");
        assert_eq!(&s.hash, b"80262c0f7c7349a3d93a2e736ceaf2ab");
    }

    #[test]
    fn cut_short() {
        let m = message(&["a"; 10]);
        assert!(hassh(&m, Direction::ToServer).is_some());
        for n in 0..m.len() {
            assert_eq!(hassh(&m[..n], Direction::ToServer), None, "{n}");
        }
        let mut huge = m;
        huge[COOKIE] = 0xff;
        assert_eq!(hassh(&huge, Direction::ToServer), None);
    }
}
