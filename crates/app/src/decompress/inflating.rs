//! Inflating streams, made when they are first needed and recycled: a new one allocates and clears 48 KiB, which costs more than
//! inflating a usual body.

use std::cell::RefCell;

use flate2::Decompress;

/// Memory of an inflating stream: its window of 32 KiB, and tables.
pub(crate) const MEMORY: usize = 48 << 10;
/// Most spare streams per thread.
const KEPT: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Decompress>> = const { RefCell::new(Vec::new()) };
}

/// An inflating stream.
#[derive(Default)]
pub(crate) struct Inflating(Option<Decompress>);

impl Inflating {
    /// The stream, made or recycled at the first use.
    #[inline]
    pub(crate) fn stream(&mut self) -> &mut Decompress {
        self.0.get_or_insert_with(|| take(false))
    }

    /// Begins again, with a header of zlib or without.
    pub(crate) fn reset(&mut self, zlib: bool) {
        match &mut self.0 {
            Some(stream) => stream.reset(zlib),
            none => *none = Some(take(zlib)),
        }
    }
}

impl Drop for Inflating {
    fn drop(&mut self) {
        let Some(stream) = self.0.take() else { return };
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|s| {
            if let Ok(mut spare) = s.try_borrow_mut()
                && spare.len() < KEPT
            {
                spare.push(stream);
            }
        });
    }
}

fn take(zlib: bool) -> Decompress {
    let spare = SPARE.try_with(|s| s.try_borrow_mut().ok()?.pop());
    match spare.ok().flatten() {
        Some(mut stream) => {
            stream.reset(zlib);
            stream
        }
        None => Decompress::new(zlib),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{FlushDecompress, Status};

    use super::*;

    fn kept() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    #[test]
    fn a_recycled_stream_remembers_nothing() {
        let mut first = Inflating::default();
        assert_eq!(kept(), 0);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&[b'x'; 5000]).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut out = [0; 8192];
        first.reset(true);
        // Half of the data: the stream is in the middle of its window.
        first.stream().decompress(&zlib[..zlib.len() / 2], &mut out, FlushDecompress::None).unwrap();
        drop(first);
        assert_eq!(kept(), 1);

        let mut second = Inflating::default();
        assert_eq!((second.stream().total_in(), second.stream().total_out(), kept()), (0, 0, 0));
        // A reference to 100 bytes before the beginning, where the data of the first stream was (RFC 1951 section 3.2.6).
        let back = [0x03, 0xda, 0x01, 0x00, 0x00];
        assert!(second.stream().decompress(&back, &mut out, FlushDecompress::None).is_err());
        second.reset(true);
        let status = second.stream().decompress(&zlib, &mut out, FlushDecompress::None);
        assert_eq!((status.unwrap(), second.stream().total_out()), (Status::StreamEnd, 5000));
        assert!(out[..5000] == [b'x'; 5000]);
    }

    #[test]
    fn few_are_kept_and_none_is_made_for_nothing() {
        let mut many: Vec<_> = (0..2 * KEPT).map(|_| Inflating::default()).collect();
        for stream in many.iter_mut().skip(1) {
            stream.reset(false);
        }
        assert!(many[0].0.is_none());
        drop(many);
        assert_eq!(kept(), KEPT);
    }
}
