//! Commands to the agent as bytes in the arena (`sptrace_wire::attach`).
//!
//! Given what a command says; puts it into the arena and reads what the agent has left there.

use crate::arena::Arena;
use crate::error::TraceeError;
use sptrace_wire::attach::*;
use std::sync::atomic::Ordering;

/// What a command says.
#[derive(Default)]
pub struct Command {
    /// `COMMAND_*`.
    pub command: u32,
    /// Stopped threads.
    pub threads: Vec<AttachThread>,
    /// Their open calls.
    pub frames: Vec<AttachFrame>,
    /// Where threads go on; sorted when it is sent.
    pub pcs: Vec<u64>,
    /// Addresses in new modules.
    pub modules: Vec<u64>,
    /// Addresses in modules that are gone.
    pub gone: Vec<u64>,
    /// Room for so many ranges.
    pub ranges: u32,
    /// End of the first thread's stack.
    pub stack_top: u64,
    /// Base of ld.so, 0 without.
    pub loader: u64,
    /// Number of pages for gates.
    pub gate_pages: u64,
    /// To be closed.
    pub descriptor: u64,
}

/// A command in the arena.
#[derive(Clone, Copy)]
pub struct Sent {
    /// Its offset.
    pub block: u64,
    threads_at: u64,
    /// Offset of the ranges.
    pub ranges_at: u64,
    ranges: u32,
}

const HEADER_WORDS: usize = size_of::<AttachBlock>() / 8;

impl Command {
    /// Puts it into the arena.
    ///
    /// # Errors
    /// No room.
    pub fn send(mut self, arena: &Arena) -> Result<Sent, TraceeError> {
        self.pcs.sort_unstable();
        self.pcs.dedup();
        let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
        let mut words = vec![0u64; HEADER_WORDS];
        let at = |words: &Vec<u64>| words.len() as u64 * 8;
        words[0] = u64::from(self.command) << 32;
        words[1] = pair(0, self.threads.len());
        words[2] = at(&words);
        for t in &self.threads {
            words.push(pair(t.tid as usize, t.frames as usize));
            words.push(u64::from(t.first_frame));
            words.extend([t.fs_base, t.rsp, t.stack_end, t.mask]);
            words.extend([t.gs_base, t.rip]);
            words.extend(t.registers);
        }
        words[3] = pair(self.frames.len(), self.pcs.len());
        words[4] = at(&words);
        for f in &self.frames {
            words.extend([f.rsp, f.return_address, f.pc]);
        }
        words[5] = at(&words);
        words.extend(&self.pcs);
        words[6] = at(&words);
        words.extend(&self.modules);
        words[7] = pair(self.modules.len(), self.ranges as usize);
        words[12] = at(&words);
        words[13] = self.gone.len() as u64;
        words.extend(&self.gone);
        words[8] = at(&words);
        words.resize(words.len() + self.ranges as usize * 2, 0);
        words[9] = self.stack_top;
        words[10] = self.loader;
        words[14] = self.gate_pages;
        words[16] = self.descriptor;
        let (threads_at, ranges_at) = (words[2], words[8]);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let block = arena
            .add_command(&bytes)
            .ok_or(TraceeError::NoRoom("the arena is full"))?;
        Ok(Sent {
            block,
            threads_at: block + threads_at,
            ranges_at: block + ranges_at,
            ranges: self.ranges,
        })
    }
}

impl Sent {
    /// Says another command over the same tables, when the one before is done.
    pub fn next(&self, arena: &Arena, command: u32) {
        let block = arena.attach_block(self.block);
        block.command.store(command, Ordering::Relaxed);
        block.result.store(0, Ordering::Relaxed);
        block.done.store(0, Ordering::Release);
    }

    /// True once the agent has carried it out.
    pub fn is_done(&self, arena: &Arena) -> bool {
        arena.attach_block(self.block).done.load(Ordering::Acquire) != 0
    }

    /// `RESULT_*`, 0 before.
    pub fn result(&self, arena: &Arena) -> u32 {
        arena
            .attach_block(self.block)
            .result
            .load(Ordering::Acquire)
    }

    /// Places whose bytes were not ours to put back.
    pub fn foreign(&self, arena: &Arena) -> u64 {
        arena
            .attach_block(self.block)
            .foreign
            .load(Ordering::Relaxed)
    }

    /// Where the gates are, and the descriptor that watches them.
    pub fn gates(&self, arena: &Arena) -> (u64, i32) {
        let block = arena.attach_block(self.block);
        let descriptor = block.descriptor.load(Ordering::Relaxed);
        (block.gates_at.load(Ordering::Relaxed), descriptor as i32)
    }

    /// The gs base that the agent gives to thread number `i`.
    pub fn gs_base(&self, arena: &Arena, i: usize) -> u64 {
        let entry = self.threads_at + (i * size_of::<AttachThread>()) as u64;
        arena.word(entry + std::mem::offset_of!(AttachThread, gs_base) as u64)
    }

    /// True if `address` lies in what the agent has listed to be unmapped.
    pub fn is_listed(&self, arena: &Arena, address: u64) -> bool {
        let pair = |i: u64| {
            let at = self.ranges_at + i * 16;
            (arena.word(at), arena.word(at + 8))
        };
        let ranges = (0..u64::from(self.ranges)).map(pair);
        ranges
            .take_while(|(start, _)| *start != 0)
            .any(|(start, bytes)| address.wrapping_sub(start) < bytes)
    }

    /// The registers with which thread number `i` must go on, if the agent has changed them.
    pub fn moved(&self, arena: &Arena, i: usize) -> Option<[u64; 18]> {
        use std::mem::offset_of;
        let entry = self.threads_at + (i * size_of::<AttachThread>()) as u64;
        let moved = arena.word(entry + offset_of!(AttachThread, first_frame) as u64) >> 32;
        let registers = entry + offset_of!(AttachThread, registers) as u64;
        let register = |k: usize| arena.word(registers + k as u64 * 8);
        (moved != 0).then(|| std::array::from_fn(register))
    }
}

/// The header's fields as `send` writes them.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(AttachBlock, command) == 4 && offset_of!(AttachBlock, threads) == 12);
    assert!(offset_of!(AttachBlock, threads_at) == 16 && offset_of!(AttachBlock, frames) == 24);
    assert!(offset_of!(AttachBlock, frames_at) == 32 && offset_of!(AttachBlock, pcs_at) == 40);
    assert!(offset_of!(AttachBlock, modules_at) == 48 && offset_of!(AttachBlock, modules) == 56);
    assert!(offset_of!(AttachBlock, ranges_at) == 64 && offset_of!(AttachBlock, stack_top) == 72);
    assert!(offset_of!(AttachBlock, loader) == 80);
    assert!(offset_of!(AttachBlock, gate_pages) == 112);
    assert!(offset_of!(AttachBlock, descriptor) == 128);
    assert!(offset_of!(AttachBlock, gone_at) == 96 && offset_of!(AttachBlock, gone) == 104);
    assert!(offset_of!(AttachThread, first_frame) == 8 && offset_of!(AttachThread, moved) == 12);
};
