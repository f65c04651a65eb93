//! Compressed messages (permessage-deflate, RFC 7692). The negotiated parameters are not needed: the largest window also
//! decompresses data that was compressed with a smaller one, or without earlier messages.

use std::fmt;

use flate2::{FlushDecompress, Status};

use super::events::Event;
use crate::decompress::inflating::{self, Inflating};

/// The bytes that senders omit at the end of a message (section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Memory of an inflating stream.
pub(super) const MEMORY: u64 = inflating::MEMORY as u64;

/// The decompressed size that a direction may reach whatever its compressed size.
const FREE: u64 = 1 << 20;
/// In addition, the decompressed bytes allowed for each compressed byte.
const RATIO: u64 = 200;

/// Decompresses the messages of a direction.
#[derive(Default)]
pub(super) struct Inflater {
    inflate: Inflating,
    /// Compressed and decompressed bytes of all messages.
    bytes: [u64; 2],
    /// The rest of the message cannot be decompressed.
    failed: bool,
    /// The output exceeded the limit, so decompression has stopped.
    bomb: bool,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").field("bytes", &self.bytes).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Inflater {
    /// Decompresses data of a message. Output before an error counts.
    ///
    /// # Errors
    /// The event of the error, once per message.
    pub(super) fn feed(&mut self, mut data: &[u8], mut sink: impl FnMut(&[u8])) -> Result<(), Event> {
        if self.failed {
            return Ok(());
        }
        if self.bomb {
            self.failed = true;
            return Err(Event::CompressionBomb);
        }
        let mut out = [0; 4096];
        loop {
            let inflate = self.inflate.stream();
            let before = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(data, &mut out, FlushDecompress::Sync);
            let (took, gave) = (inflate.total_in() - before.0, inflate.total_out() - before.1);
            sink(out.get(..gave as usize).unwrap_or(&[]));
            data = data.get(took as usize..).unwrap_or(&[]);
            self.bytes = [self.bytes[0] + took, self.bytes[1] + gave];
            if self.bytes[1] > FREE.saturating_add(self.bytes[0].saturating_mul(RATIO)) {
                (self.bomb, self.failed) = (true, true);
                return Err(Event::CompressionBomb);
            }
            match status {
                Err(_) => {
                    self.failed = true;
                    return Err(Event::DecompressionFailed);
                }
                // A block may end its stream; another stream follows (section 7.2.3.4).
                Ok(Status::StreamEnd) => self.inflate.reset(false),
                Ok(_) if took == 0 && gave == 0 => return Ok(()),
                Ok(_) => {}
            }
            if data.is_empty() && gave < out.len() as u64 {
                return Ok(());
            }
        }
    }

    /// Records a gap in the message.
    pub(super) const fn lose(&mut self) {
        self.failed = true;
    }

    /// Ends the message. After one that failed, later messages can still be decompressed if they do not refer to it.
    pub(super) fn end_message(&mut self) {
        if std::mem::take(&mut self.failed) {
            self.inflate.reset(false);
        }
    }
}
