//! A set-associative cache with least-recently-used replacement. It stores only tags, because only hit or miss matters.

/// The tag of an empty way.
const EMPTY: u32 = u32::MAX;

/// A cache of blocks.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Tags, `ways` for each set, most recently used first.
    tags: Vec<u32>,
    ways: usize,
    mask: u32,
    shift: u32,
}

impl Cache {
    /// A cache of `size` bytes with blocks of `block` bytes. All three numbers are powers of two and `size >= ways * block`.
    pub fn new(size: u32, ways: u32, block: u32) -> Cache {
        let sets = (size / (ways * block)).max(1);
        Cache {
            tags: vec![EMPTY; (sets * ways) as usize],
            ways: ways as usize,
            mask: sets - 1,
            shift: block.trailing_zeros(),
        }
    }

    fn set(&mut self, address: u32) -> (&mut [u32], u32) {
        let tag = address >> self.shift;
        let first = (tag & self.mask) as usize * self.ways;
        (&mut self.tags[first..first + self.ways], tag)
    }

    /// Reads the block of `address`. Returns whether it was a hit. A missing block replaces the least recently used one.
    #[inline]
    pub fn read(&mut self, address: u32) -> bool {
        let (set, tag) = self.set(address);
        if set[0] == tag {
            return true;
        }
        if let [first, second] = set {
            let found = *second == tag;
            *second = *first;
            *first = tag;
            return found;
        }
        let found = set.iter().position(|t| *t == tag);
        let upto = found.unwrap_or(set.len() - 1);
        set[..=upto].rotate_right(1);
        set[0] = tag;
        found.is_some()
    }

    /// Removes every block.
    pub fn flush(&mut self) {
        self.tags.fill(EMPTY);
    }
}
