//! Numbers that look random and follow from a seed (xoshiro256**, Blackman and Vigna 2018, seeded by SplitMix64).

/// A generator.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator of conversation number `index` of a run with `seed`.
    pub fn new(seed: u64, index: u64) -> Random {
        let mut x = seed ^ index.wrapping_mul(0xd134_2543_de82_ef95);
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random([next(), next(), next(), next()])
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `from` up to and including `to`.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1).max(1) as u64) as i64
    }

    /// `true` in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let numbers = |seed, index| {
            let mut r = Random::new(seed, index);
            std::iter::repeat_with(move || r.below(1000)).take(20).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 7), numbers(1, 7));
        assert_ne!(numbers(1, 7), numbers(1, 8));
        assert_ne!(numbers(1, 7), numbers(2, 7));
        assert!(numbers(3, 3).iter().all(|n| *n < 1000));
    }
}
