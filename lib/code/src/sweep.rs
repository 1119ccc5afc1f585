//! Linear sweeps of regions, made when somebody asks.
//!
//! Compilers put no data between instructions, so the instructions of a function are those that a
//! sweep from its start comes upon. The target of a jump table that lies between them is none: the
//! table was misread. Knows regions and bytes, nothing of control flow.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use sptrace_addr::Svma;
use sptrace_image::Object;

use crate::bits::{CodeBits, CodeMap};
use crate::regions::Region;

/// Intel SDM volume 2, 2.3.11.
const LONGEST_INSTRUCTION_BYTES: u64 = 15;

/// Where instructions begin in the regions that were swept.
pub(crate) struct Sweep {
    starts: CodeBits,
    done: Mutex<HashSet<(u64, u64)>>,
}

impl Sweep {
    pub fn new(map: &CodeMap) -> Self {
        Self {
            starts: map.bits(),
            done: Mutex::default(),
        }
    }

    /// An instruction of the region begins at `svma`, which lies in it.
    pub fn begins_at(&self, object: &Object<'_>, region: &Region, svma: u64) -> bool {
        let key = (region.start, region.end);
        let lock = || self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if !lock().contains(&key) {
            // Twice by two threads gives the same bits.
            self.sweep(object, region);
            lock().insert(key);
        }
        self.starts.get(svma.wrapping_add(region.delta))
    }

    /// The instruction of the region that ends where the one at `svma` begins.
    pub fn instruction_before(
        &self,
        object: &Object<'_>,
        region: &Region,
        svma: u64,
    ) -> Option<Instruction> {
        if !self.begins_at(object, region, svma) {
            return None;
        }
        let most = LONGEST_INSTRUCTION_BYTES.min(svma - region.start);
        let start = (1..=most)
            .map(|back| svma - back)
            .find(|start| self.starts.get(start.wrapping_add(region.delta)))?;
        let code = object.code_from(Svma(start))?;
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        Some(decoder.decode())
    }

    fn sweep(&self, object: &Object<'_>, region: &Region) {
        let bytes = (region.end - region.start) as usize;
        let Some(code) = object.code_from(Svma(region.start)) else {
            return;
        };
        let code = &code[..bytes.min(code.len())];
        let mut decoder = Decoder::with_ip(64, code, region.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let svma = decoder.ip();
            decoder.decode_out(&mut instruction);
            if !instruction.is_invalid() {
                self.starts.set(svma.wrapping_add(region.delta));
            }
        }
    }
}
