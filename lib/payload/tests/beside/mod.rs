//! Compiled payloads beside their interpretation: what is chosen at random, and where code runs.
//!
//! Shared by this crate's tests, which choose by a seed, and by the fuzz target, which chooses by
//! the bytes that it is given. [`programs`] compares programs that keep words, [`acts`] those that
//! add to tables. Runs the code on this thread.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod acts;
pub mod frames;
pub mod programs;
pub mod random;

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions};
use sptrace_payload::program::{Binary, Width};

/// What is chosen: numbers from somewhere.
pub trait Choices {
    /// Any word.
    fn next(&mut self) -> u64;

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
pub struct Seeded(pub u64);

impl Choices for Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// How much of a word counts.
pub fn width(choices: &mut dyn Choices) -> Width {
    use Width::*;
    [U8, U16, U32, U64, I8, I16, I32][choices.below(7) as usize]
}

/// What two words give.
pub fn operation(choices: &mut dyn Choices) -> Binary {
    use Binary::*;
    let all = [
        Add,
        Subtract,
        Multiply,
        And,
        Or,
        ExclusiveOr,
        ShiftLeft,
        ShiftRight,
        ShiftRightSigned,
        Minimum,
        Equal,
        NotEqual,
        Below,
        BelowOrEqual,
        Less,
        LessOrEqual,
    ];
    all[choices.below(16) as usize]
}

/// Pages that can be executed.
pub struct CodePages(*mut u8);

impl CodePages {
    const BYTES: usize = 1 << 20;

    /// New ones.
    pub fn new() -> Self {
        // SAFETY: fresh memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    /// Where the code is then. Each jump in it leads to an instruction.
    pub fn put(&self, code: &[u8]) -> u64 {
        assert!(code.len() <= Self::BYTES);
        let all: Vec<_> = Decoder::new(64, code, DecoderOptions::NONE)
            .into_iter()
            .collect();
        let starts: BTreeSet<u64> = all.iter().map(|one| one.ip()).collect();
        for one in all {
            let target = one.near_branch_target();
            assert!(
                !one.is_invalid() && (target == 0 || starts.contains(&target)),
                "{one}"
            );
        }
        // SAFETY: there is room for it.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.0, code.len()) };
        self.0 as u64
    }
}
