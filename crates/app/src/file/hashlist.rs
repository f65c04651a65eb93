//! Digest lists for `filemd5`, `filesha1` and `filesha256`. Each line starts with a hexadecimal digest, as in the output of
//! `md5sum`; the rest of the line is ignored, and so are empty lines and lines that begin with `#`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The digest of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// 16 bytes.
    Md5,
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl HashKind {
    /// Length of the digest in bytes.
    pub const fn size(self) -> usize {
        match self {
            HashKind::Md5 => 16,
            HashKind::Sha1 => 20,
            HashKind::Sha256 => 32,
        }
    }

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            HashKind::Md5 => "MD5",
            HashKind::Sha1 => "SHA-1",
            HashKind::Sha256 => "SHA-256",
        }
    }
}

/// Why a list could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum HashListError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line does not begin with a digest.
    #[error("{}:{line}: the line does not begin with a {} digest, which is {} hexadecimal digits", path.display(), kind.name(), kind.size() * 2)]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The expected digest.
        kind: HashKind,
    },
}

/// A sorted set of digests, searched by bisection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashList {
    kind: HashKind,
    digests: Vec<u8>,
    /// The first line that does not begin with a digest, and the number of such lines.
    bad: Option<(usize, usize)>,
}

/// The longest line that is read; the rest is skipped.
const LINE_MAX: u64 = 8192;

impl HashList {
    /// Loads a list.
    ///
    /// # Errors
    /// The file cannot be read, or has lines and no digest.
    pub fn load(path: &Path, kind: HashKind) -> Result<HashList, HashListError> {
        let read = |source| HashListError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(read)?;
        Self::read(&mut BufReader::new(file), kind).map_err(|e| match e {
            Failed::Io(source) => HashListError::Read { path: path.to_owned(), source },
            Failed::Line(line) => HashListError::Line { path: path.to_owned(), line, kind },
        })
    }

    /// Reads a list.
    fn read(input: &mut dyn BufRead, kind: HashKind) -> Result<HashList, Failed> {
        let len = kind.size();
        let mut digests: Vec<[u8; 32]> = Vec::new();
        let mut bad: Option<(usize, usize)> = None;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let n = std::io::Read::take(&mut *input, LINE_MAX).read_until(b'\n', &mut line)?;
            if n == 0 {
                break;
            }
            if line.last() != Some(&b'\n') && n as u64 == LINE_MAX {
                skip_line(input)?;
            }
            let text = line.trim_ascii();
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            let whole = !text.get(len * 2).is_some_and(u8::is_ascii_hexdigit);
            match text.get(..len * 2).filter(|_| whole).and_then(unhex) {
                Some(digest) => digests.push(digest),
                // One mistake in a list must not turn its rules off.
                None => bad = bad.map_or(Some((number, 1)), |(first, n)| Some((first, n + 1))),
            }
        }
        if let Some((first, _)) = bad.filter(|_| digests.is_empty()) {
            return Err(Failed::Line(first));
        }
        digests.sort_unstable();
        digests.dedup();
        let digests = digests.iter().flat_map(|d| d.iter().copied().take(len)).collect();
        Ok(HashList { kind, digests, bad })
    }

    /// The message about skipped lines; `None` if there are none.
    pub fn skipped(&self, path: &Path) -> Option<String> {
        let (first, count) = self.bad?;
        let (path, name, digits) = (path.display(), self.kind.name(), self.kind.size() * 2);
        Some(format!(
            "{path}:{first}: {count} lines do not begin with a {name} digest of {digits} digits, and are skipped"
        ))
    }

    /// The digest of the list.
    pub const fn kind(&self) -> HashKind {
        self.kind
    }

    /// The number of digests.
    pub const fn len(&self) -> usize {
        self.digests.len() / self.kind.size()
    }

    /// Whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Whether the list has a digest; false for a digest of another length.
    pub fn contains(&self, digest: &[u8]) -> bool {
        let len = self.kind.size();
        if digest.len() != len {
            return false;
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.digests.get(middle * len..(middle + 1) * len).map(|d| d.cmp(digest)) {
                Some(std::cmp::Ordering::Equal) => return true,
                Some(std::cmp::Ordering::Less) => low = middle + 1,
                _ => high = middle,
            }
        }
        false
    }
}

enum Failed {
    Io(std::io::Error),
    Line(usize),
}

impl From<std::io::Error> for Failed {
    fn from(e: std::io::Error) -> Self {
        Failed::Io(e)
    }
}

fn skip_line(input: &mut dyn BufRead) -> std::io::Result<()> {
    loop {
        let buf = input.fill_buf()?;
        if buf.is_empty() {
            return Ok(());
        }
        let (n, end) = match buf.iter().position(|&b| b == b'\n') {
            Some(i) => (i + 1, true),
            None => (buf.len(), false),
        };
        input.consume(n);
        if end {
            return Ok(());
        }
    }
}

/// Decodes up to 64 hexadecimal digits, padded with zeros.
fn unhex(text: &[u8]) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    for (o, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [a, b] = pair else { return None };
        let digit = |c: u8| (c as char).to_digit(16);
        *o = u8::try_from(digit(*a)? << 4 | digit(*b)?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str, kind: HashKind) -> Result<HashList, usize> {
        HashList::read(&mut text.as_bytes(), kind).map_err(|e| match e {
            Failed::Line(n) => n,
            Failed::Io(e) => panic!("{e}"),
        })
    }

    #[test]
    fn md5sum_output() {
        let l = list(
            "# a comment\n\n900150983cd24fb0d6963f7d28e17f72  abc.txt\nD41D8CD98F00B204E9800998ECF8427E\r\n\
             900150983cd24fb0d6963f7d28e17f72\n",
            HashKind::Md5,
        )
        .expect("a list");
        assert_eq!(l.len(), 2);
        let abc = unhex(b"900150983cd24fb0d6963f7d28e17f72").expect("hex");
        let empty = unhex(b"d41d8cd98f00b204e9800998ecf8427e").expect("hex");
        assert!(l.contains(&abc[..16]) && l.contains(&empty[..16]));
        assert!(!l.contains(&[0; 16]) && !l.contains(&[0xff; 16]) && !l.contains(&abc));
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(list("\n900150983cd24fb0d6963f7d28e17f7\n", HashKind::Md5), Err(2));
        assert_eq!(list("900150983cd24fb0d6963f7d28e17fxx\n", HashKind::Md5), Err(1));
        // A digest of another kind.
        assert_eq!(list("a9993e364706816aba3e25717850c26c9cd0d89d\n", HashKind::Md5), Err(1));
        assert!(list("a9993e364706816aba3e25717850c26c9cd0d89d", HashKind::Sha1).is_ok());
        assert!(list("", HashKind::Sha256).is_ok_and(|l| l.is_empty() && !l.contains(&[0; 32])));
    }

    #[test]
    fn a_long_line_is_one_line() {
        let text = format!("900150983cd24fb0d6963f7d28e17f72 {}\nx\n", "y".repeat(100_000));
        assert_eq!(list(&text, HashKind::Md5).map(|l| l.bad), Ok(Some((2, 1))));
    }

    #[test]
    fn a_mistake_leaves_the_other_lines() {
        let text = "zz\n900150983cd24fb0d6963f7d28e17f72\n9bb05c0127cc7fd9fda656d3276daf1\n";
        let l = list(text, HashKind::Md5).expect("a list");
        assert_eq!((l.len(), l.bad), (1, Some((1, 2))));
        let said = l.skipped(Path::new("a.lst")).expect("a message");
        assert!(said.starts_with("a.lst:1: 2 lines do not begin with a"), "{said}");
        assert_eq!(
            list("900150983cd24fb0d6963f7d28e17f72\n", HashKind::Md5).map(|l| l.skipped(Path::new("a"))),
            Ok(None)
        );
    }

    #[test]
    fn every_one_is_found() {
        let text: String = (0..1000u32).map(|i| format!("{:064x}\n", u64::from(i) * 7_919_777)).collect();
        let l = list(&text, HashKind::Sha256).expect("a list");
        for i in 0..1000u64 {
            let d = unhex(format!("{:064x}", i * 7_919_777).as_bytes()).expect("hex");
            assert!(l.contains(&d));
            let mut e = d;
            e[0] = 1;
            assert!(!l.contains(&e));
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let e = HashList::load(Path::new("/nonexistent/list.md5"), HashKind::Md5).expect_err("missing");
        assert!(e.to_string().starts_with("/nonexistent/list.md5: cannot be read"), "{e}");
    }
}
