//! The open calls of stopped threads, in the form in which the agent takes them.
//!
//! Given a process's mappings before the stop ([`Walker`]) and registers in it. Where neither
//! unwind tables nor the code lead to the end of a stack, every word of the rest that may be a
//! return address counts as one: not as a call that is open, but as a place where no patch may be
//! and whose function is patched now.

use sptrace_addr::{Avma, Bias};
use sptrace_image::{UnwindTables, is_go_program};
use sptrace_tracee::maps::Mapping;
use sptrace_tracee::memory;
use sptrace_walk::{
    Cache, End, FunctionStart, Memory, Module, PageCache, Registers, Unreadable, Unwinder,
};
use sptrace_wire::attach::AttachFrame;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::modules::load::openable;

const PAGE_BYTES: u64 = 4096;
/// No stack that makes sense is deeper.
const MAX_FRAMES: usize = 100_000;
/// Of a stack that cannot be walked, looked through at most.
const SCAN_BYTES: u64 = 1 << 20;

/// What the stacks of a process are walked by.
pub struct Walker {
    /// Made of `files`, and dropped before.
    unwinder: Unwinder<'static>,
    files: Files,
}

impl Walker {
    /// Opens the files that the process has mapped; takes time in proportion to their tables.
    pub fn open(pid: u32, maps: &[Mapping]) -> Self {
        let files = Files::open(pid, maps);
        let unwinder = files.unwinder();
        // SAFETY: the bytes lie in mappings and on the heap, stay where they are when `files` is
        // moved, and are never written; nobody gets the unwinder for longer than a reference to
        // `Self` lives.
        let unwinder = unsafe { std::mem::transmute::<Unwinder<'_>, Unwinder<'static>>(unwinder) };
        Self { unwinder, files }
    }

    /// True if a runtime is there that gives its threads turns in running stacks of its own, and
    /// takes them off wherever they stand.
    pub fn knows_lanes(&self) -> bool {
        let mut files = self.files.0.iter();
        files.any(|f| is_go_program(f.bytes()))
    }

    /// Walks stacks of the process whose files these are.
    pub fn unwinder(&self) -> &Unwinder<'_> {
        &self.unwinder
    }
}

/// The files that a process has mapped with code.
struct Files(Vec<Mapped>);

struct Mapped {
    bytes: Bytes,
    start: u64,
}

enum Bytes {
    File(memmap2::Mmap),
    Copy(Vec<u8>),
}

impl Mapped {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::File(map) => map,
            Bytes::Copy(bytes) => bytes,
        }
    }
}

impl Files {
    fn open(pid: u32, maps: &[Mapping]) -> Self {
        let mut files: Vec<Mapped> = Vec::new();
        let mut seen: Vec<&(String, u64)> = Vec::new();
        for m in maps.iter().filter(|m| m.access[2]) {
            if m.path == "[vdso]" {
                files.extend(copy(pid, m));
            }
            if m.file.1 == 0 || seen.contains(&&m.file) {
                continue;
            }
            seen.push(&m.file);
            let first = maps.iter().find(|f| f.file == m.file && f.offset == 0);
            let bytes = openable(pid, m).and_then(|path| {
                let file = File::open(path).ok()?;
                // SAFETY: a file that somebody truncates meanwhile ends us by SIGBUS, as it would
                // end the process that has it mapped, too.
                unsafe { memmap2::Mmap::map(&file) }.ok()
            });
            if let (Some(first), Some(bytes)) = (first, bytes) {
                files.push(Mapped {
                    bytes: Bytes::File(bytes),
                    start: first.start,
                });
            }
        }
        Self(files)
    }

    fn unwinder(&self) -> Unwinder<'_> {
        let modules = self.0.iter().filter_map(|f| {
            let tables = UnwindTables::read(f.bytes()).ok()?;
            let bias = Bias::between(tables.base, Avma(f.start));
            Some(Module { tables, bias })
        });
        Unwinder::new(&modules.collect::<Vec<_>>())
    }
}

fn copy(pid: u32, m: &Mapping) -> Option<Mapped> {
    let memory = memory::open(pid).ok()?;
    let mut bytes = vec![0; (m.end - m.start) as usize];
    memory.read_exact_at(&mut bytes, m.start).ok()?;
    Some(Mapped {
        bytes: Bytes::Copy(bytes),
        start: m.start,
    })
}

type Read<'a> = Box<dyn FnMut(u64, &mut [u8]) -> Result<(), Unreadable> + 'a>;

/// Registers as walks take them.
pub(crate) fn walked(r: &libc::user_regs_struct) -> Registers {
    let general = [
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ];
    Registers::all(r.rip, general)
}

/// One stop of one process.
pub struct Stacks<'a> {
    unwinder: &'a Unwinder<'a>,
    cache: &'a mut Cache,
    memory: PageCache<Read<'a>>,
    /// Code of modules, sorted.
    code: &'a [(u64, u64)],
    starts: &'a FunctionStart<'a>,
}

/// A part of a stack as it was at one moment, by whole pages.
pub struct Copied {
    start: u64,
    bytes: Vec<u8>,
}

impl Copied {
    /// So many bytes above a stack pointer, or what there is of them.
    pub fn of(memory: &File, rsp: u64, bytes: usize) -> Self {
        let start = rsp & !(PAGE_BYTES - 1);
        let mut copy = vec![0; bytes];
        let got = memory.read_at(&mut copy, start).unwrap_or(0);
        copy.truncate(got);
        Self { start, bytes: copy }
    }

    fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }
}

/// What one stack says.
#[derive(Default)]
pub struct Stack {
    /// Open calls, outermost first.
    pub frames: Vec<AttachFrame>,
    /// Where the thread goes on, now and after each return.
    pub pcs: Vec<u64>,
    /// The stack was walked to its end.
    pub is_whole: bool,
}

impl<'a> Stacks<'a> {
    /// For the process whose memory this is.
    pub fn new(
        unwinder: &'a Unwinder<'a>,
        cache: &'a mut Cache,
        memory: &'a File,
        code: &'a [(u64, u64)],
        starts: &'a FunctionStart<'a>,
    ) -> Self {
        let read =
            |at: u64, into: &mut [u8]| memory.read_exact_at(into, at).map_err(|_| Unreadable);
        Self::reading(unwinder, cache, Box::new(read), code, starts)
    }

    /// The same for a process that runs, with a stack as it was.
    pub fn as_copied(
        unwinder: &'a Unwinder<'a>,
        cache: &'a mut Cache,
        (memory, copied): (&'a File, &'a Copied),
        code: &'a [(u64, u64)],
        starts: &'a FunctionStart<'a>,
    ) -> Self {
        let read = move |at: u64, into: &mut [u8]| match copied.get(at, into.len()) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            None => memory.read_exact_at(into, at).map_err(|_| Unreadable),
        };
        Self::reading(unwinder, cache, Box::new(read), code, starts)
    }

    fn reading(
        unwinder: &'a Unwinder<'a>,
        cache: &'a mut Cache,
        read: Read<'a>,
        code: &'a [(u64, u64)],
        starts: &'a FunctionStart<'a>,
    ) -> Self {
        Self {
            unwinder,
            cache,
            memory: PageCache::new(read),
            code,
            starts,
        }
    }

    /// The stack of a thread, which ends at `stack_end` at the latest.
    pub fn of(&mut self, r: &libc::user_regs_struct, stack_end: u64) -> Stack {
        let registers = walked(r);
        let (memory, starts) = (&mut self.memory, Some(self.starts));
        let walk = self
            .unwinder
            .walk(&registers, memory, self.cache, MAX_FRAMES, starts);
        let mut stack = Stack {
            pcs: walk.frames.iter().map(|f| f.address.0).collect(),
            is_whole: walk.end == End::Outermost,
            ..Stack::default()
        };
        let calls = walk.frames.iter().zip(walk.frames.iter().skip(1));
        stack.frames = calls
            .filter_map(|(callee, caller)| {
                Some(AttachFrame {
                    rsp: caller.return_word?.0 + 8,
                    return_address: caller.address.0,
                    pc: callee.address.0 - u64::from(!callee.is_exact()),
                })
            })
            .collect();
        stack.frames.reverse();
        if !stack.is_whole {
            let from = walk.frames.last().map_or(r.rsp, |f| f.stack_pointer.0);
            self.scan(
                from & !7,
                stack_end.min(from.saturating_add(SCAN_BYTES)),
                &mut stack.pcs,
            );
        }
        stack
    }

    fn scan(&mut self, from: u64, end: u64, pcs: &mut Vec<u64>) {
        let mut at = from;
        let mut word = [0u8; 8];
        while at + 8 <= end && self.memory.read(at, &mut word).is_ok() {
            let value = u64::from_le_bytes(word);
            let after = self.code.partition_point(|c| c.0 <= value);
            if after.checked_sub(1).is_some_and(|i| value < self.code[i].1) {
                pcs.push(value);
            }
            at += 8;
        }
    }
}
