//! Reproducible random numbers: the same seed gives the same traffic, on every machine and in every release.

/// xoshiro256** seeded by SplitMix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators").
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

/// A well-mixed 64-bit number for a counter or a key.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The independent generator number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        let mut x = mix(seed).wrapping_add(mix(stream ^ 0x6d61_7267_6179));
        Rng(std::array::from_fn(|_| {
            x = mix(x);
            x
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
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

    /// 0 to `n` - 1; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// `from` to `to`, inclusive.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// 0.0 up to but not including 1.0.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.fill(&mut out);
        out
    }

    /// `n` letters and digits.
    pub(crate) fn word(&mut self, n: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..n).map(|_| char::from(LETTERS[self.below(36) as usize])).collect()
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Random sizes with mean `mean` and minimum `least`, and a long tail like sizes of web objects.
    pub(crate) fn tailed(&mut self, mean: u64, least: u64) -> u64 {
        let u = 1.0 - self.unit();
        // The distribution is exponential: its variance is finite, so a profile's rate comes close to its mean.
        ((-u.ln() * mean.saturating_sub(least) as f64) as u64).saturating_add(least)
    }
}
