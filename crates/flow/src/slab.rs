//! Chunked storage: growth never moves existing entries, and memory grows in small steps.

const SHIFT: u32 = 10;
const CHUNK: usize = 1 << SHIFT;

/// A vector that grows in chunks of 1,024 entries.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Chunks<T> {
    pub(crate) const fn new() -> Self {
        Chunks { chunks: Vec::new() }
    }
    pub(crate) fn len(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * CHUNK + last.len(),
            None => 0,
        }
    }
    pub(crate) fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }
    #[inline]
    pub(crate) fn get(&self, i: u32) -> Option<&T> {
        self.chunks.get((i >> SHIFT) as usize)?.get(i as usize & (CHUNK - 1))
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, i: u32) -> Option<&mut T> {
        self.chunks.get_mut((i >> SHIFT) as usize)?.get_mut(i as usize & (CHUNK - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_pushed() {
        let mut c = Chunks::new();
        for i in 0..2500u32 {
            c.push(i);
        }
        assert_eq!(c.len(), 2500);
        assert_eq!((c.get(0), c.get(1024), c.get(2499), c.get(2500)), (Some(&0), Some(&1024), Some(&2499), None));
    }
}
