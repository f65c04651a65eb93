//! Lines on disk while the peer is away.
//!
//! The spool is a folder of segments and a file `acknowledged`. A segment is a file of whole lines, named by an
//! increasing number. `acknowledged` records how far the peer has them. Lines are appended at the end and read from the
//! start, so their order stays. After a crash, the next run sends the rest. Lines whose acknowledgement was not yet
//! recorded are then sent twice; no line is lost. The spool does not sync to the medium, so a power failure may lose
//! what the kernel had not written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::SpoolSettings;

/// A segment is closed at this size, because segments are removed as a whole.
const SEGMENT: u64 = 16 << 20;
/// The file that records how far the peer has the lines.
const ACKNOWLEDGED: &str = "acknowledged";

/// A place in the spool: the number of a segment and an offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Place {
    segment: u64,
    offset: u64,
}

impl Place {
    /// The place `bytes` earlier in the same segment.
    pub(super) fn before(self, bytes: u64) -> Place {
        Place { offset: self.offset.saturating_sub(bytes), ..self }
    }
}

/// An open spool folder.
#[derive(Debug)]
pub(super) struct Spool {
    settings: SpoolSettings,
    /// The segment being written.
    tail: Option<File>,
    /// Where the next line is written and read, and up to where lines are acknowledged.
    end: Place,
    next: Place,
    acknowledged: Place,
    /// Unacknowledged bytes.
    held: u64,
}

impl Spool {
    /// Opens the folder, and creates it if necessary. Lines of an earlier run are sent first. The second value counts
    /// the lines that a crash truncated at the end of a segment; they are lost.
    ///
    /// # Errors
    /// The folder cannot be created, read or written.
    pub(super) fn open(settings: SpoolSettings) -> io::Result<(Spool, u64)> {
        fs::create_dir_all(&settings.dir)?;
        let mut segments = segments(&settings.dir)?;
        segments.sort_unstable();
        let mut acknowledged = read_place(&settings.dir.join(ACKNOWLEDGED))?;
        let (mut held, mut cut) = (0, 0);
        for &n in &segments {
            let path = segment(&settings.dir, n);
            if n < acknowledged.segment {
                fs::remove_file(&path)?;
                continue;
            }
            let length = fs::metadata(&path)?.len();
            let whole = whole_lines(&path)?;
            if whole < length {
                OpenOptions::new().write(true).open(&path)?.set_len(whole)?;
                cut += 1;
            }
            held += whole;
        }
        let first = segments.iter().copied().find(|&n| n >= acknowledged.segment);
        match first {
            Some(n) if n == acknowledged.segment => held = held.saturating_sub(acknowledged.offset),
            Some(n) => acknowledged = Place { segment: n, offset: 0 },
            None => {}
        }
        // This run begins a segment of its own, because an older process may still have the last one open.
        let last = segments.last().map_or(acknowledged.segment, |&n| n.max(acknowledged.segment));
        let end = Place { segment: last + 1, offset: 0 };
        if first.is_none() {
            acknowledged = end;
        }
        Ok((Spool { settings, tail: None, end, next: acknowledged, acknowledged, held }, cut))
    }

    /// Bytes that are unread, or read and not acknowledged.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Whether a line is unread.
    pub(super) fn waits(&self) -> bool {
        self.next < self.end
    }

    /// Appends whole lines; `false` if they would exceed `max-size`.
    ///
    /// # Errors
    /// A disk error. The lines are then not in the spool.
    pub(super) fn push(&mut self, lines: &[u8]) -> io::Result<bool> {
        let size = lines.len() as u64;
        if self.held + size > self.settings.max_size {
            return Ok(false);
        }
        if self.tail.is_none() || self.end.offset >= SEGMENT {
            if self.end.offset > 0 {
                self.end = Place { segment: self.end.segment + 1, offset: 0 };
            }
            let path = segment(&self.settings.dir, self.end.segment);
            self.tail = Some(OpenOptions::new().create(true).append(true).open(path)?);
        }
        let Some(tail) = &mut self.tail else { return Ok(false) };
        if let Err(e) = tail.write_all(lines) {
            // Part of the lines may have been written: cut the segment back to whole lines.
            let _ = tail.set_len(self.end.offset);
            return Err(e);
        }
        self.end.offset += size;
        self.held += size;
        Ok(true)
    }

    /// Reads the next lines, about `most` bytes at most, and the place after them. Pass that place to
    /// [`Spool::acknowledge`] once the peer has the lines.
    ///
    /// # Errors
    /// A disk error.
    pub(super) fn read(&mut self, most: usize) -> io::Result<Option<(Vec<u8>, Place)>> {
        while self.next < self.end {
            let path = segment(&self.settings.dir, self.next.segment);
            let mut file = match File::open(&path) {
                Ok(f) => f,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.next = Place { segment: self.next.segment + 1, offset: 0 };
                    continue;
                }
                Err(e) => return Err(e),
            };
            file.seek(SeekFrom::Start(self.next.offset))?;
            let mut lines = Vec::new();
            let mut room = most as u64;
            // A line longer than `most` is read as a whole.
            let last = loop {
                let got = (&mut file).take(room).read_to_end(&mut lines)?;
                match lines.iter().rposition(|&b| b == b'\n') {
                    Some(at) => break Some(at),
                    None if got == 0 => break None,
                    None => room = most as u64,
                }
            };
            let Some(at) = last else {
                if self.next.segment == self.end.segment {
                    return Ok(None);
                }
                self.next = Place { segment: self.next.segment + 1, offset: 0 };
                continue;
            };
            lines.truncate(at + 1);
            self.next.offset += lines.len() as u64;
            return Ok(Some((lines, self.next)));
        }
        Ok(None)
    }

    /// Records that the peer has everything before `place`, `size` bytes more than before.
    ///
    /// # Errors
    /// A disk error. The next run then sends the lines again.
    pub(super) fn acknowledge(&mut self, place: Place, size: u64) -> io::Result<()> {
        self.held = self.held.saturating_sub(size);
        let done = self.acknowledged.segment;
        self.acknowledged = place;
        let new = self.settings.dir.join("acknowledged.new");
        fs::write(&new, format!("{} {}\n", place.segment, place.offset))?;
        fs::rename(new, self.settings.dir.join(ACKNOWLEDGED))?;
        // If nothing is left, all segments are removed, and the next line begins a new one.
        let until = if self.held == 0 { self.end.segment + 1 } else { place.segment };
        for n in done..until {
            match fs::remove_file(segment(&self.settings.dir, n)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        if self.held == 0 {
            self.tail = None;
            self.end = Place { segment: until, offset: 0 };
            self.next = self.end;
            self.acknowledged = self.end;
        }
        Ok(())
    }
}

fn segment(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("{n:016x}.lines"))
}

fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".lines")).and_then(|n| u64::from_str_radix(n, 16).ok());
        found.extend(number);
    }
    Ok(found)
}

/// Reads the place from the file; the start if there is no file.
fn read_place(path: &Path) -> io::Result<Place> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Place::default()),
        Err(e) => return Err(e),
    };
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(segment)), Some(Ok(offset))) => Ok(Place { segment, offset }),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} does not say how far the peer is: remove it to send everything again", path.display()),
        )),
    }
}

/// Number of bytes that form whole lines.
fn whole_lines(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut at = file.metadata()?.len();
    let mut buffer = vec![0; 64 << 10];
    while at > 0 {
        let n = at.min(buffer.len() as u64);
        file.seek(SeekFrom::Start(at - n))?;
        let part = buffer.get_mut(..usize::try_from(n).unwrap_or(0)).unwrap_or_default();
        file.read_exact(part)?;
        if let Some(p) = part.iter().rposition(|&b| b == b'\n') {
            return Ok(at - n + p as u64 + 1);
        }
        at -= n;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, max_size: u64) -> (Spool, u64) {
        Spool::open(SpoolSettings { dir: dir.to_owned(), max_size }).unwrap()
    }

    fn line(n: usize) -> Vec<u8> {
        format!("{{\"n\":{n},\"fill\":\"{}\"}}\n", "x".repeat(n % 97)).into_bytes()
    }

    /// Reads and acknowledges everything.
    fn drain(s: &mut Spool, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((lines, place)) = s.read(most).unwrap() {
            s.acknowledge(place, lines.len() as u64).unwrap();
            all.extend(lines);
        }
        all
    }

    #[test]
    fn order_is_kept_and_the_disk_is_empty_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (mut s, cut) = open(dir.path(), 1 << 20);
        assert!(cut == 0 && !s.waits());
        let all: Vec<u8> = (0..500).flat_map(line).collect();
        for n in 0..500 {
            assert!(s.push(&line(n)).unwrap());
        }
        assert!(s.waits());
        assert_eq!(s.held(), all.len() as u64);
        assert_eq!(drain(&mut s, 1000), all);
        assert_eq!(s.held(), 0);
        assert!(segments(dir.path()).unwrap().is_empty());
        assert!(s.push(b"again\n").unwrap());
        assert_eq!(drain(&mut s, 3), b"again\n");
    }

    #[test]
    fn the_next_run_goes_on_where_the_peer_was() {
        let dir = tempfile::tempdir().unwrap();
        let (mut s, _) = open(dir.path(), 1 << 20);
        for n in 0..100 {
            s.push(&line(n)).unwrap();
        }
        let (first, place) = s.read(600).unwrap().unwrap();
        s.acknowledge(place, first.len() as u64).unwrap();
        // These are read but not acknowledged, so they have to be sent again.
        s.read(600).unwrap().unwrap();
        drop(s);
        let (mut s, _) = open(dir.path(), 1 << 20);
        s.push(b"new\n").unwrap();
        let mut all = first;
        all.extend(drain(&mut s, 600));
        let want: Vec<u8> = (0..100).flat_map(line).chain(*b"new\n").collect();
        assert_eq!(all, want);
        let (mut s, _) = open(dir.path(), 1 << 20);
        assert!(!s.waits() && s.read(100).unwrap().is_none());
    }

    #[test]
    fn half_a_line_of_a_crash_is_cut_off_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (mut s, _) = open(dir.path(), 1 << 20);
        s.push(b"one\ntwo\n").unwrap();
        let path = segment(dir.path(), segments(dir.path()).unwrap()[0]);
        drop(s);
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"half").unwrap();
        let (mut s, cut) = open(dir.path(), 1 << 20);
        assert_eq!(cut, 1);
        assert_eq!(drain(&mut s, 100), b"one\ntwo\n");
    }

    #[test]
    fn the_limit_holds() {
        let dir = tempfile::tempdir().unwrap();
        let (mut s, _) = open(dir.path(), 10);
        assert!(s.push(b"123456789\n").unwrap());
        assert!(!s.push(b"1\n").unwrap());
        assert_eq!(drain(&mut s, 100), b"123456789\n");
        assert!(s.push(b"1\n").unwrap());
    }

    #[test]
    fn segments_are_removed_once_the_peer_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let (mut s, _) = open(dir.path(), 1 << 30);
        let block = [vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
        for _ in 0..40 {
            assert!(s.push(&block).unwrap());
        }
        assert_eq!(segments(dir.path()).unwrap().len(), 3);
        for _ in 0..20 {
            let (lines, place) = s.read(1 << 20).unwrap().unwrap();
            assert_eq!(lines.len(), block.len());
            s.acknowledge(place, lines.len() as u64).unwrap();
        }
        assert_eq!(segments(dir.path()).unwrap().len(), 2);
        assert_eq!(drain(&mut s, 1 << 20).len(), 20 * block.len());
    }

    #[test]
    fn an_unreadable_acknowledgement_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(ACKNOWLEDGED), "what\n").unwrap();
        let said = Spool::open(SpoolSettings { dir: dir.path().to_owned(), max_size: 1 }).unwrap_err().to_string();
        assert!(said.contains("remove it to send everything again"), "{said}");
    }
}
