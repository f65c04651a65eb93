//! LZMA-alone: the library's decoder in steps.

use std::fmt;

use liblzma::stream::{Action, Error, Status, Stream};

use super::{Piece, SCRATCH, Step};

/// Memory of the library's decoder, without its dictionary.
const LZMA_STATE: usize = 64 << 10;
/// Properties, dictionary size, and uncompressed size.
const LZMA_HEADER: usize = 13;

/// A decoder for `lzma`.
pub(super) struct Lzma {
    /// The memory limit of the dictionary.
    memory: u64,
    header: [u8; LZMA_HEADER],
    count: usize,
    /// How much of `header` the library has received.
    fed: usize,
    stream: Option<Box<Stream>>,
    /// The dictionary is smaller than declared.
    cut: bool,
    /// The remaining output that the header declares; all ones if it does not.
    left: u64,
    done: bool,
}

impl fmt::Debug for Lzma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lzma").field("memory", &self.memory).field("cut", &self.cut).finish_non_exhaustive()
    }
}

impl Lzma {
    pub(super) fn new(memory: u64) -> Lzma {
        Lzma {
            memory,
            header: [0; LZMA_HEADER],
            count: 0,
            fed: 0,
            stream: None,
            cut: false,
            left: u64::MAX,
            done: false,
        }
    }

    /// Memory in bytes, once the dictionary exists.
    pub(super) fn memory(&self) -> usize {
        let [_, a, b, c, d, ..] = self.header;
        match self.stream {
            Some(_) => LZMA_STATE + u32::from_le_bytes([a, b, c, d]) as usize,
            None => 0,
        }
    }

    /// Collects the header and makes the decoder. The error is the step's result until that is done.
    fn open(&mut self, input: &mut &[u8]) -> Result<(), Step> {
        let (head, tail) = input.split_at((LZMA_HEADER - self.count).min(input.len()));
        if let Some(to) = self.header.get_mut(self.count..self.count + head.len()) {
            to.copy_from_slice(head);
        }
        self.count += head.len();
        *input = tail;
        if self.count < LZMA_HEADER {
            return Err(Step::NeedInput);
        }
        // Encoders declare dictionaries far larger than their data. One of the permitted size is enough until data refers
        // further back than it reaches.
        let [_, a, b, c, d, size @ ..] = self.header;
        let limit = u32::try_from(self.memory).unwrap_or(u32::MAX);
        if u32::from_le_bytes([a, b, c, d]) > limit {
            self.cut = true;
            if let Some(to) = self.header.get_mut(1..5) {
                to.copy_from_slice(&limit.to_le_bytes());
            }
        }
        // The library must not know the length, or the handling of data after it would depend on how the input is split.
        self.left = u64::from_le_bytes(size);
        if let Some(to) = self.header.get_mut(5..) {
            to.fill(0xff);
        }
        // The dictionary dominates; the rest of the decoder's memory has a small bound.
        match Stream::new_lzma_decoder(u64::MAX) {
            Ok(s) => self.stream = Some(Box::new(s)),
            Err(_) => return Err(Step::Memory),
        }
        Ok(())
    }

    /// One step, like [`super::flate::Flate::step`].
    pub(super) fn step(&mut self, input: &mut &[u8], scratch: &mut [u8; SCRATCH]) -> Step {
        if self.done {
            return Step::End { lied: false };
        }
        if self.stream.is_none()
            && let Err(step) = self.open(input)
        {
            return step;
        }
        let Some(stream) = self.stream.as_mut() else { return Step::Failed };
        if self.fed < LZMA_HEADER {
            let before = stream.total_in();
            // The library consumes nothing without room for output, and a header gives no output.
            let result = stream.process(self.header.get(self.fed..).unwrap_or(&[]), scratch, Action::Run);
            let used = (stream.total_in() - before) as usize;
            self.fed += used;
            return match result {
                Ok(Status::StreamEnd) => {
                    self.done = true;
                    Step::End { lied: false }
                }
                Ok(_) if used > 0 => Step::Again { lied: false },
                Err(Error::Mem | Error::MemLimit) => Step::Memory,
                _ => Step::Failed,
            };
        }
        let (before_in, before_out) = (stream.total_in(), stream.total_out());
        let room = usize::try_from(self.left).unwrap_or(SCRATCH).min(SCRATCH);
        if room == 0 {
            self.done = true;
            return Step::End { lied: false };
        }
        let result = stream.process(input, scratch.get_mut(..room).unwrap_or(&mut []), Action::Run);
        let used = (stream.total_in() - before_in) as usize;
        let made = (stream.total_out() - before_out) as usize;
        *input = input.get(used..).unwrap_or(&[]);
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(made as u64);
        }
        self.done = result == Ok(Status::StreamEnd);
        // Four times the work of inflating.
        let piece = |failed: Option<super::Status>| {
            Step::Output(Piece { range: 0..made, cost: made.saturating_mul(4), failed })
        };
        match result {
            Ok(Status::StreamEnd) if made == 0 => Step::End { lied: false },
            Ok(_) if made > 0 => piece(None),
            Ok(_) if used > 0 => Step::Again { lied: false },
            Ok(_) if input.is_empty() => Step::NeedInput,
            Err(Error::Mem | Error::MemLimit) => Step::Memory,
            // Errors after the declared length do not matter.
            Err(_) if made > 0 && self.left == 0 => piece(None),
            Err(_) if made > 0 => piece(Some(if self.cut { super::Status::Memory } else { super::Status::Broken })),
            Err(_) if self.cut => Step::Memory,
            _ => Step::Failed,
        }
    }
}
