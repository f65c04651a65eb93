//! Digests of files, computed as data arrives.

use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// The digests in progress: only those that are used.
#[derive(Debug, Clone, Default)]
pub(super) struct Hasher {
    md5: Option<Md5>,
    sha1: Option<Sha1>,
    sha256: Option<Sha256>,
}

/// The digests of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digests {
    /// MD5 (RFC 1321).
    pub md5: Option<[u8; 16]>,
    /// SHA-1 (FIPS 180-4).
    pub sha1: Option<[u8; 20]>,
    /// SHA-256 (FIPS 180-4).
    pub sha256: Option<[u8; 32]>,
}

impl Hasher {
    /// Starts the requested digests; `None` if there are none.
    pub(super) fn new(md5: bool, sha1: bool, sha256: bool) -> Option<Box<Hasher>> {
        (md5 || sha1 || sha256).then(|| {
            Box::new(Hasher { md5: md5.then(Md5::new), sha1: sha1.then(Sha1::new), sha256: sha256.then(Sha256::new) })
        })
    }

    /// Adds data of the file.
    pub(super) fn update(&mut self, data: &[u8]) {
        if let Some(h) = &mut self.md5 {
            h.update(data);
        }
        if let Some(h) = &mut self.sha1 {
            h.update(data);
        }
        if let Some(h) = &mut self.sha256 {
            h.update(data);
        }
    }

    /// The digests of all data so far.
    pub(super) fn finish(self) -> Digests {
        Digests {
            md5: self.md5.map(|h| h.finalize().into()),
            sha1: self.sha1.map(|h| h.finalize().into()),
            sha256: self.sha256.map(|h| h.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    // RFC 1321, A.5; FIPS 180-4 examples.
    #[test]
    fn known_digests() {
        let mut h = Hasher::new(true, true, true).expect("wanted");
        h.update(b"a");
        h.update(b"bc");
        let d = h.finish();
        assert_eq!(hex(&d.md5.expect("md5")), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(&d.sha1.expect("sha1")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&d.sha256.expect("sha256")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn only_what_is_wanted() {
        assert!(Hasher::new(false, false, false).is_none());
        let d = Hasher::new(true, false, false).expect("wanted").finish();
        assert_eq!(hex(&d.md5.expect("md5")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!((d.sha1, d.sha256), (None, None));
    }
}
