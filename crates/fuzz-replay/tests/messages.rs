//! Runs every protocol that declares its keywords with modified conversations of the corpus and with random bytes. Whatever the
//! pieces, rules and logs must see the same (the target `messages`).
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::path::Path;

use margay_app::PROTOCOLS;

/// A simple generator, whose numbers need only be the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Changes some bytes after the name and the options.
fn change(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
    let head = seed.iter().position(|b| *b == b'\n').map_or(seed.len(), |at| (at + 3).min(seed.len()));
    let mut data = seed.to_vec();
    for _ in 0..=dice.below(4) {
        let len = data.len() - head;
        let at = head + dice.below(len);
        match dice.below(6) {
            0 => data.truncate(at),
            1 if at < data.len() => data[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n'][dice.below(6)],
            2 if at < data.len() => data[at] ^= 1 << dice.below(8),
            3 => {
                let copy: Vec<u8> = data[at..].iter().take(1 + dice.below(64)).copied().collect();
                data.splice(at..at, copy);
            }
            4 => data.splice(at..at, (0..dice.below(9)).map(|i| i as u8)).for_each(drop),
            _ if at < data.len() => {
                data.remove(at);
            }
            _ => {}
        }
    }
    if let Some(size) = data.get_mut(head - 1) {
        *size = dice.below(40) as u8;
    }
    data
}

#[test]
fn changed_conversations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/messages");
    let mut files: Vec<_> =
        std::fs::read_dir(corpus).expect("the corpus").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut dice = Dice(1);
    for path in files {
        let seed = std::fs::read(&path).expect("a seed");
        margay_fuzz_replay::messages(&seed);
        for _ in 0..400 {
            margay_fuzz_replay::messages(&change(&seed, &mut dice));
        }
    }
}

#[test]
fn bytes_by_chance() {
    let mut dice = Dice(2);
    for p in PROTOCOLS.iter().filter(|p| !p.keywords.is_empty()) {
        for _ in 0..200 {
            let mut data = [p.rule_name.as_bytes(), b"\n"].concat();
            data.extend([dice.below(2) as u8, dice.below(16) as u8]);
            for _ in 0..1 + dice.below(6) {
                data.extend([0xff, if dice.below(2) == 0 { b'>' } else { b'<' }]);
                data.extend(
                    (0..dice.below(80))
                        .map(|_| [0, 1, 2, 4, 0x30, 0x80, b' ', b'\n'][dice.below(8)] ^ dice.below(3) as u8),
                );
            }
            margay_fuzz_replay::messages(&data);
        }
    }
}
