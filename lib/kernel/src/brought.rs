//! What a call brings with it: its arguments, and what it gives.
//!
//! Given numbers and memory of a record; gives the bytes that follow the beginning of the call's
//! frame in a trace, or stand before its end.
//!
//! Must not know: where a record has them, and what they mean.

use sptrace_trace::values::{Piece, Values, What};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brought {
    /// A system call begins, of this number and with these words.
    Call(u32, [u64; 6]),
    /// It gives this.
    Result(u32, i64),
    /// A function is called.
    Words {
        /// Index of its description.
        description: usize,
        /// Its words.
        words: Vec<u64>,
        /// Memory, each with its address.
        memory: Vec<(u64, Vec<u8>)>,
    },
    /// It gives this word.
    Answer {
        /// Index of its description.
        description: usize,
        /// See there.
        word: u64,
    },
}

impl Brought {
    /// The bytes, given the numbers of the descriptions in the trace. `None`: there is no such
    /// description.
    pub fn bytes(&self, descriptions: &[u32]) -> Option<Vec<u8>> {
        let mut pieces = Vec::new();
        let (number, what) = match self {
            Self::Call(number, words) => (*number, What::Begins(*words)),
            Self::Result(number, result) => (*number, What::Returned(*result)),
            Self::Words {
                description,
                words,
                memory,
            } => {
                pieces.extend(memory.iter().map(|(address, bytes)| Piece {
                    when: 0,
                    address: *address,
                    bytes,
                }));
                let number = *descriptions.get(*description)?;
                (number, What::Called(words.clone()))
            }
            Self::Answer { description, word } => {
                let words = [*word, 0, 0];
                let number = *descriptions.get(*description)?;
                (number, What::Answered { words, errno: 0 })
            }
        };
        let values = Values {
            number,
            thread: 0,
            what,
            pieces,
        };
        let mut bytes = Vec::new();
        values.put(&mut bytes);
        Some(bytes)
    }
}
