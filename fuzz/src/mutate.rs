//! Deterministic mutations of seed inputs.

use crate::MAX_INPUT;

/// Mutates valid inputs; equal seeds give equal inputs.
pub struct Mutator<'c> {
    state: u64,
    corpus: &'c [Vec<u8>],
    words: &'c [&'c str],
}

/// Numbers at the limits of types and parsers.
const BOUNDARY_NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1e308",
    "0.0000000001",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "NaN",
];

impl<'c> Mutator<'c> {
    /// Starts with the corpus; `words` are meaningful to the parser.
    pub fn new(seed: u64, corpus: &'c [Vec<u8>], words: &'c [&'c str]) -> Self {
        Self { state: seed, corpus, words }
    }

    /// Returns a seed input with one to eight mutations.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick(self.corpus).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.mutate(&mut input);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(10) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.next() % 8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.next() as u8;
                }
            }
            2 => input.insert(at, self.next() as u8),
            3 => input.truncate(at),
            4 => {
                let end = self.end_after(at, input.len());
                input.drain(at..end);
            }
            5 => {
                // Copies a part to another position.
                let end = self.end_after(at, input.len());
                let part = input[at..end].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, part);
            }
            6 => {
                if let Some(word) = self.pick(self.words) {
                    input.splice(at..at, word.bytes());
                }
            }
            7 => {
                let other = self.pick(self.corpus).map(Vec::as_slice).unwrap_or_default();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            8 => {
                // Replaces a number after the position by one at a limit.
                let Some(start) = (at..input.len()).find(|i| input[*i].is_ascii_digit()) else {
                    return;
                };
                let length = input[start..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = BOUNDARY_NUMBERS[self.below(BOUNDARY_NUMBERS.len())];
                input.splice(start..start + length, number.bytes());
            }
            _ => {
                // Long repetition of one byte, which may cause deep nesting.
                let byte = *self.pick(b"[{(\"'\n,:.\x00\xff").unwrap_or(&b'[');
                let count = 1 << self.below(12);
                input.splice(at..at, std::iter::repeat_n(byte, count));
            }
        }
    }

    fn end_after(&mut self, at: usize, length: usize) -> usize {
        at + self.below((length - at).min(64) + 1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len().max(1)))
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        let corpus = [b"down=10mbit".to_vec(), b"".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, &corpus, &["up"]);
            (0..100).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().all(|input| input.len() <= MAX_INPUT));
    }

    #[test]
    fn no_corpus_is_a_corpus_too() {
        let mut mutator = Mutator::new(0, &[], &[]);
        for _ in 0..1000 {
            mutator.next_input();
        }
    }
}
