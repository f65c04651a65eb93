//! Reads a large file ahead in a separate thread, so that the worker does not wait for the disk.
//!
//! Buffers circulate: the thread fills one while the worker reads another. At most [`BUFFERS`] of them are full.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Bytes of one read from the source. Larger reads are not faster, and push packets out of the caches before they are
/// inspected.
pub(crate) const READ_AHEAD: usize = 1 << 20;
/// Free bytes at the start of each buffer, for a partial record at the end of the previous one.
pub(crate) const HEADROOM: usize = 64 << 10;
/// Most full buffers that wait.
const BUFFERS: usize = 2;

/// A buffer, and the number of bytes read into it from [`HEADROOM`] on; 0 at the end.
type Full = io::Result<(Vec<u8>, usize)>;

/// The result of a read by the thread.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    full: Receiver<Full>,
    empty: Sender<Vec<u8>>,
}

impl ReadAhead {
    /// Reads `source` in a thread, to its end or until this is dropped.
    ///
    /// # Errors
    /// The source, if no thread can be started.
    pub(crate) fn start<R: Read + Send + 'static>(source: R) -> Result<ReadAhead, R> {
        let (full_in, full) = sync_channel(BUFFERS);
        let (empty, empty_out) = channel();
        // The source is passed to the thread only after it has started, so that it is not lost otherwise.
        let (give, take) = channel::<R>();
        let spawned = thread::Builder::new().name("read-ahead".into()).spawn(move || {
            if let Ok(source) = take.recv() {
                read(source, &empty_out, &full_in);
            }
        });
        if spawned.is_err() {
            return Err(source);
        }
        for _ in 0..=BUFFERS {
            let _ = empty.send(Vec::new());
        }
        give.send(source).map_err(|e| e.0)?;
        Ok(ReadAhead { full, empty })
    }

    /// The next full buffer.
    pub(crate) fn next(&mut self) -> Full {
        self.full.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that reads ahead stopped")))
    }

    /// Gives back a buffer for reuse.
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        // After the end there is no receiver.
        let _ = self.empty.send(buffer);
    }
}

fn read(mut source: impl Read, empty: &Receiver<Vec<u8>>, full: &SyncSender<Full>) {
    while let Ok(mut buffer) = empty.recv() {
        margay_packet::fault::point("read-ahead");
        buffer.resize(HEADROOM + READ_AHEAD, 0);
        let read = loop {
            match source.read(&mut buffer[HEADROOM..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Do not trust a source that claims more than the room it was given.
                other => break other.map(|n| n.min(READ_AHEAD)),
            }
        };
        let over = !matches!(read, Ok(n) if n > 0);
        if full.send(read.map(|n| (buffer, n))).is_err() || over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use margay_packet::{LinkType, Time};

    use super::*;
    use crate::{PcapWriter, Reader, Resolution};

    /// Gives a few bytes, or many, at a time; and fails at the end, if it is to.
    struct Uneven {
        bytes: Vec<u8>,
        at: usize,
        step: usize,
        fails: bool,
    }

    impl Read for Uneven {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.step = self.step * 7 % 100_003 + 1;
            let n = self.step.min(buf.len()).min(self.bytes.len() - self.at);
            if n == 0 && self.fails {
                return Err(io::Error::other("broken disk"));
            }
            buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
            self.at += n;
            Ok(n)
        }
    }

    fn frames<R: Read>(mut reader: Reader<R>) -> (Vec<(u64, Vec<u8>)>, String) {
        let mut all = Vec::new();
        loop {
            match reader.next_batch(100) {
                Ok(Some(batch)) => all.extend(batch.iter().map(|f| (f.number, f.data.to_vec()))),
                Ok(None) => return (all, reader.bytes_read().to_string()),
                Err(e) => return (all, e.to_string()),
            }
        }
    }

    #[test]
    fn what_is_read_ahead_is_what_is_read() {
        let mut file = Vec::new();
        let mut w = PcapWriter::new(&mut file, LinkType::ETHERNET, 262_144, Resolution::Micro).unwrap();
        for i in 0..4000usize {
            // Some do not fit the room before a buffer.
            let len = if i % 500 == 3 { 200_000 } else { i * 37 % 1500 };
            w.write(Time::new(1, 0), &vec![i as u8; len], len as u32).unwrap();
        }
        let cut = file.len() - 5;
        for (bytes, fails) in [(file.clone(), false), (file[..cut].to_vec(), false), (file.clone(), true)] {
            let source = || Uneven { bytes: bytes.clone(), at: 0, step: 1, fails };
            let name = Path::new("x.pcap");
            let direct = frames(Reader::new(source(), name).unwrap());
            let ahead = frames(Reader::new(source(), name).unwrap().ahead());
            assert_eq!(direct.1, ahead.1);
            assert!(direct.0 == ahead.0 && direct.0.len() >= 3999);
        }
    }

    #[test]
    fn who_stops_early_leaves_nothing_waiting() {
        let mut file = Vec::new();
        let mut w = PcapWriter::new(&mut file, LinkType::ETHERNET, 65_535, Resolution::Micro).unwrap();
        for _ in 0..10_000 {
            w.write(Time::new(1, 0), &[0; 1000], 1000).unwrap();
        }
        let (sender, ended) = channel();
        struct DropSignal(io::Cursor<Vec<u8>>, Sender<()>);
        impl Read for DropSignal {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.read(buf)
            }
        }
        impl Drop for DropSignal {
            fn drop(&mut self) {
                let _ = self.1.send(());
            }
        }
        let mut reader = Reader::new(DropSignal(io::Cursor::new(file), sender), Path::new("x.pcap")).unwrap().ahead();
        assert!(reader.next_batch(1).unwrap().is_some());
        drop(reader);
        ended.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    }
}
